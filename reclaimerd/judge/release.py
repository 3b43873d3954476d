"""Progress of an exit is release, not motion: fewer tasks, less GPU memory, less of anything held.

CPU time moves in a healthy exit and in a driver spin alike, so it is no progress. Nor is a look that
could not be taken: what can't be read counts as it was, never as nothing.
"""

from reclaimerd.judge.exit_path import live_tasks
from reclaimerd.model.incident import Incident, Release
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot


def release_of(incident: Incident, snapshot: Snapshot) -> Release | None:
    """Return what the incident's processes still have: live tasks, and bytes on their GPUs.

    What can't be read now is taken from the incident's last mark; None when there is none yet.
    """
    before = incident.release
    tasks = _tasks_of(incident, snapshot)
    used = _bytes_of(incident, snapshot)
    if before is not None:
        tasks = before.tasks if tasks is None else tasks
        used = before.gpu_bytes if used is None else used
    if tasks is None or used is None:
        return None
    return Release(tasks=tasks, gpu_bytes=used, at=snapshot.at)


def released_since(before: Release, now: Release) -> bool:
    """Tell whether something was let go between two looks; growth sets no new mark."""
    return now.tasks < before.tasks or now.gpu_bytes < before.gpu_bytes


def _tasks_of(incident: Incident, snapshot: Snapshot) -> int | None:
    tasks = 0
    for ref in incident.processes:
        if ref in snapshot.exited:
            continue
        reading = snapshot.process(ref)
        if reading is None:
            return None
        tasks += max(len(live_tasks(reading)), 0 if reading.whole else reading.thread_count)
    return tasks


def _bytes_of(incident: Incident, snapshot: Snapshot) -> int | None:
    pids = {ref.pid for ref in incident.processes}
    used = 0
    for uuid in incident.target.gpus:
        gpu = snapshot.gpu(uuid)
        if gpu is None or not isinstance(gpu.processes, Known):
            return None
        for row in gpu.processes.value:
            if row.pid not in pids:
                continue
            if not isinstance(row.used_bytes, Known):
                return None
            used += row.used_bytes.value
    return used
