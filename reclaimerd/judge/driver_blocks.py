"""Say which tasks are blocked inside the GPU driver, on whatever GPU: a reset would wait behind them.

The driver takes its locks for all GPUs, so a task blocked for one of them concerns each. Only frames
and judged plights count; a state letter alone says nothing of where a task waits.
"""

from dataclasses import dataclass

from reclaimerd.judge.stack_frames import GPU_MODULES, certain, inside
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, Leaving, Plight
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.snapshot import Snapshot

_STUCK = frozenset({Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING})
_DRIVERS = frozenset({FaultDomain.DRIVER, FaultDomain.HARDWARE})
"""Whose fault it is, where it happens inside the driver: its own, or that of a GPU it waits for."""


@dataclass(frozen=True, slots=True)
class Block:
    """One process that is blocked, or judged stuck, inside the driver, and the evidence in words."""

    ref: ProcessRef
    text: str


def driver_blocks(snapshot: Snapshot) -> tuple[Block, ...]:
    """Return each living process that is known to be blocked inside the driver."""
    found: dict[ProcessRef, Block] = {}
    for look in snapshot.kernel.values():
        text = _blocked_at(look)
        if text and look.ref not in snapshot.exited:
            found[look.ref] = Block(look.ref, text)
    for ref, plight in snapshot.plights.items():
        if _stuck_in_driver(plight) and ref not in snapshot.exited:
            found.setdefault(ref, Block(ref, plight.text or f"stuck at {plight.signature}"))
    return tuple(found[ref] for ref in sorted(found))


def _blocked_at(look: KernelLook) -> str:
    """Return the first task in D with a frame of the driver, in words, "" for none."""
    for task in look.tasks:
        frames = certain(task.frames)
        if task.state == "D" and inside(frames, GPU_MODULES):
            place = next(frame for frame in frames if frame.module in GPU_MODULES)
            return f"task {task.tid} ({task.comm}) waits in {place}"
    return ""


def _stuck_in_driver(plight: Plight) -> bool:
    return plight.leaving in _STUCK and plight.fault_domain in _DRIVERS and bool(plight.signature)
