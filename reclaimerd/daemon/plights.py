"""Which processes the kernel is asked about, and what is made of the answers over several looks."""

from collections.abc import Iterable
from dataclasses import replace

from reclaimerd.judge.exit_path import is_dumping
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.judge.steps import was_killed
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

MOST_IN_EXIT = 32
"""Processes whose stacks are read in one pass; the rest wait for their turn behind them."""
MOST_BESIDE = 16


def pids_in_exit(incidents: Iterable[Incident], before: Snapshot | None) -> tuple[int, ...]:
    """Return the pids whose tasks and stacks are wanted.

    First those that were sent SIGKILL by us, or write a core, and were not gone at the last look; then
    holders that leave or wait in the kernel: one of them may be what the first wait for.
    """
    exited = before.exited if before is not None else frozenset()
    killed = [
        ref.pid
        for one in incidents
        for ref in one.processes
        if ref not in exited and (was_killed(one) or _dumps(ref, before))
    ]
    beside = _holders_in_kernel(before) if before is not None else []
    return tuple(dict.fromkeys((*killed[:MOST_IN_EXIT], *beside[:MOST_BESIDE])))


def with_plights(
    snapshot: Snapshot, memory: PlightMemory, incidents: Iterable[Incident], settings: PlightSettings
) -> tuple[Snapshot, PlightMemory]:
    """Return the snapshot with what is to be said of each process that leaves, and the next memory."""
    if not snapshot.kernel:
        return snapshot, memory
    killed_at = {ref: one.stage_mono for one in incidents if was_killed(one) for ref in one.processes}
    looks = tuple(snapshot.kernel.values())
    beside = Beside({look.ref: _gpu_bytes(look.ref, snapshot) for look in looks}, killed_at)
    found, memory = advance(memory, looks, beside, settings, snapshot.at)
    return replace(snapshot, plights={plight.ref: plight for plight in found}), memory


def _dumps(ref: ProcessRef, before: Snapshot | None) -> bool:
    reading = before.process(ref) if before is not None else None
    return reading is not None and is_dumping(reading)


def _holders_in_kernel(snapshot: Snapshot) -> list[int]:
    found = []
    for holder in snapshot.holders:
        reading = snapshot.process(holder.ref)
        blocked = reading is not None and any(task.state == "D" for task in reading.tasks)
        if holder.remembered or blocked or (reading is not None and reading.is_leaving):
            found.append(holder.ref.pid)
    return found


def _gpu_bytes(ref: ProcessRef, snapshot: Snapshot) -> int | None:
    """Return what NVML's lists say a process holds on all GPUs, None when a list can't be read."""
    total = 0
    for gpu in snapshot.gpus:
        if not isinstance(gpu.processes, Known):
            return None
        for row in gpu.processes.value:
            if row.pid != ref.pid:
                continue
            if not isinstance(row.used_bytes, Known):
                return None
            total += row.used_bytes.value
    return total
