"""Progress of an exit is release, not motion: fewer tasks, less GPU memory, less of anything held.

CPU time moves in a healthy exit and in a driver spin alike, so it is no progress.
"""

from reclaimerd.judge.exit_path import live_tasks
from reclaimerd.model.incident import Incident, Release
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot


def release_of(incident: Incident, snapshot: Snapshot) -> Release:
    """Return what the incident's processes still have: live tasks, and bytes on their GPUs."""
    tasks = 0
    for ref in incident.processes:
        reading = snapshot.process(ref)
        if reading is not None:
            tasks += max(len(live_tasks(reading)), 0 if reading.whole else reading.thread_count)
    pids = {ref.pid for ref in incident.processes}
    used = 0
    for uuid in incident.target.gpus:
        gpu = snapshot.gpu(uuid)
        if gpu is not None and isinstance(gpu.processes, Known):
            used += sum(
                row.used_bytes.value
                for row in gpu.processes.value
                if row.pid in pids and isinstance(row.used_bytes, Known)
            )
    return Release(tasks=tasks, gpu_bytes=used, at=snapshot.at)


def released_since(before: Release, now: Release) -> bool:
    """Tell whether something was let go between two looks; growth sets no new mark."""
    return now.tasks < before.tasks or now.gpu_bytes < before.gpu_bytes
