"""Which processes the kernel is asked about, and what is made of the answers over several looks."""

from collections.abc import Iterable
from dataclasses import replace

from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.judge.steps import was_killed
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

MOST_IN_EXIT = 32
"""Processes whose stacks are read in one pass; the rest wait for their turn behind them."""


def pids_in_exit(incidents: Iterable[Incident], before: Snapshot | None) -> tuple[int, ...]:
    """Return the pids whose tasks and stacks are wanted: sent SIGKILL by us, not gone at the last look."""
    exited = before.exited if before is not None else frozenset()
    pids = [ref.pid for one in incidents if was_killed(one) for ref in one.processes if ref not in exited]
    return tuple(dict.fromkeys(pids))[:MOST_IN_EXIT]


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


def _gpu_bytes(ref: ProcessRef, snapshot: Snapshot) -> int | None:
    """Return what NVML's lists say a process holds on all GPUs, None when a list can't be read."""
    total = 0
    for gpu in snapshot.gpus:
        if not isinstance(gpu.processes, Known):
            return None
        for row in gpu.processes.value:
            if row.pid == ref.pid and isinstance(row.used_bytes, Known):
                total += row.used_bytes.value
    return total
