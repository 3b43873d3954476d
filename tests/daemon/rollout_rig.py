"""A week of a host in a few seconds: processes that come and go, the passes of a real cycle, its record."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GPU_A, GPU_B, WALL, a_busy_snapshot, a_gpu, a_process, a_snapshot, a_workload
from tests.fakes import Rig, a_rig

STEP_SECONDS = 600.0
WEEK_SECONDS = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Stay:
    """One process that holds a GPU from `came` until `left` (seconds from the beginning)."""

    pid: int
    came: float
    left: float
    unit: str = ""
    uid: int = 1000

    @property
    def reading(self) -> ProcessReading:
        """Return the process."""
        uids = (self.uid,) * 4
        unit = a_workload(self.unit or f"job-{self.pid}.service")
        return a_process(self.pid, uids=uids, workload=unit)

    @property
    def ref(self) -> ProcessRef:
        """Return its identity."""
        return self.reading.ref


@dataclass(frozen=True, slots=True)
class Lived:
    """What a time left behind: each record with its instant (wall-clock seconds), and who was signalled."""

    record: tuple[tuple[float, AuditEntry], ...]
    signalled: frozenset[ProcessRef]
    until: float


def live(stays: Sequence[Stay], policy: Policy, *, seconds: float = WEEK_SECONDS) -> Lived:
    """Let this time pass; who is signalled is gone at the next look."""
    rig = a_rig(_seen(stays, 0.0, frozenset()), replace(policy, interval_seconds=STEP_SECONDS))
    record: list[tuple[float, AuditEntry]] = []
    asyncio.run(_passes(rig, stays, seconds, record))
    return Lived(tuple(record), frozenset(rig.executor.sent), rig.sampler.snapshot.taken_at)


async def _passes(
    rig: Rig, stays: Sequence[Stay], seconds: float, record: list[tuple[float, AuditEntry]]
) -> None:
    while (now := rig.sampler.snapshot.taken_at - WALL) <= seconds:
        rig.show(_seen(stays, now, frozenset(rig.executor.sent)))
        written = len(rig.recorder.batches)
        await rig.cycle.run_pass()
        for batch in rig.recorder.batches[written:]:
            record += [(rig.sampler.snapshot.taken_at, entry) for entry in batch.entries]
        rig.age(STEP_SECONDS)


def _seen(stays: Sequence[Stay], now: float, ended: frozenset[ProcessRef]) -> Snapshot:
    here = [one for one in stays if one.came <= now < one.left and one.ref not in ended]
    over = frozenset(one.ref for one in stays if one.came <= now and one not in here)
    if not here:
        return a_snapshot(gpus=(a_gpu(GPU_A), a_gpu(GPU_B)), exited=over)
    return a_busy_snapshot(*(one.reading for one in here), exited=over)
