"""A reset's joints, and the book that is kept of one run: what is durable, and what is still owed.

A step forward is written first and does not happen when that fails. What puts the host back happens
either way: it makes the host as it was, and its record follows when it can be written.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.reset_ledger import SeenLog, settled, with_run
from reclaimerd.errors import CorruptStoreError, ReclaimerdError, RecordError
from reclaimerd.judge.reset_steps import next_phase
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Outcome
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import ClientsPort, DriverGripPort, ResetToolPort, SamplerPort
from reclaimerd.model.reset_run import ResetFact, ResetPhase, ResetResult, ResetRun
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason
from reclaimerd.record import logs

LedgerChange = Callable[[Ledger], Ledger]
_FORWARD = frozenset(
    {ResetPhase.FENCE, ResetPhase.STOP_CLIENTS, ResetPhase.LOOK_AGAIN, ResetPhase.RESET},
)
"""Phases in which the host is changed: none is entered that is not durable."""
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ResetJoints:
    """What a reset joins.

    `write` is the cycle's: durable, or it raises RecordError and nothing changed. `withdrawn` says what has
    taken the leave for it back since. The gates read HOLD and pause anew: `gate_before` is the whole gate
    while the clients that are ours to stop still run, `gate` when they are stopped, `last_gate` that of a
    look without the driver. `verify` returns what is not as it must be; `meaning` says what the tool's exit
    code and text mean.
    """

    sampler: SamplerPort
    tool: ResetToolPort
    clients: ClientsPort
    grip: DriverGripPort
    write: Callable[[LedgerChange | None, tuple[AuditEntry, ...]], Awaitable[None]]
    ledger: Callable[[], Ledger]
    withdrawn: Callable[[ResetRun], tuple[Reason, ...]]
    gate_before: Callable[[Snapshot, ResetRun], tuple[Reason, ...]]
    gate: Callable[[Snapshot, ResetRun], tuple[Reason, ...]]
    last_gate: Callable[[Snapshot, ResetRun], tuple[Reason, ...]]
    verify: Callable[[ResetRun, Snapshot], tuple[str, ...]]
    meaning: Callable[[int, str], Outcome]
    clock: Callable[[], float]
    wall: Callable[[], float]
    policy: Callable[[], Policy]
    boot_id: str
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Moved:
    """How a phase ended: the fact, what the record says of it, and the run where the phase changed it.

    `seen`: how far the look that verified a reset had read the kernel's log.
    """

    fact: ResetFact
    text: str
    result: ResetResult | None = None
    run: ResetRun | None = None
    evidence: tuple[str, ...] = ()
    refusals: tuple[Reason, ...] = ()
    seen: SeenLog | None = None


def fault_text(error: Exception) -> str:
    """Return what an error says to whoever reads the record."""
    match error:
        case RecordError() | CorruptStoreError():
            return f"nothing can be put on record: {error}"
        case ReclaimerdError():
            return str(error)
        case _:
            return f"a fault of ours: {type(error).__name__}: {error}"


def refused(text: str, refusals: tuple[Reason, ...] = ()) -> Moved:
    """Return the end of a phase that goes no further; nothing was reset."""
    said = ": ".join(part for part in (text, "; ".join(reason.text for reason in refusals)) if part)
    return Moved(ResetFact.REFUSED, said, ResetResult.REFUSED, refusals=refusals)


@dataclass(slots=True)
class RunBook:
    """One run as it stands now, and what of it is not durable yet.

    `known`: who was seen to hold its GPUs, or None. `may_start`: this very process has made the phase
    RESET durable and has not given the tool the word; a run that was found in that phase never gives it.
    `in_haste`: we may be ended soon, so what waits for nothing is asked for first.
    """

    joints: ResetJoints
    run: ResetRun
    known: frozenset[ProcessRef] | None = None
    may_start: bool = False
    in_haste: bool = False
    _owed_records: tuple[AuditEntry, ...] = ()
    _owed_changes: tuple[LedgerChange, ...] = field(default=())

    async def intend(self, run: ResetRun, *records: AuditEntry, also: LedgerChange | None = None) -> None:
        """Make a step durable before it is done; raises RecordError, then it must not be done."""
        changes = self._owed_changes if also is None else (*self._owed_changes, also)

        def change(ledger: Ledger) -> Ledger:
            for one in changes:
                ledger = one(ledger)
            return with_run(ledger, run)

        await self.joints.write(change, (*self._owed_records, *records))
        self.run = run
        self._owed_records, self._owed_changes = (), ()

    async def keep(self, run: ResetRun, *records: AuditEntry, also: LedgerChange | None = None) -> None:
        """Put on record what has happened; what can't be written now is owed, and said in the log."""
        try:
            await self.intend(run, *records, also=also)
        except (RecordError, CorruptStoreError) as error:
            self.run = run
            self._owed_records = (*self._owed_records, *records)
            self._owed_changes = self._owed_changes if also is None else (*self._owed_changes, also)
            texts = "; ".join(record.reason for record in records)
            logs.error("reset_record_owed", run=run.id, phase=run.phase.value, text=texts, error=str(error))

    async def settle(self) -> None:
        """Write what is owed, as often as it takes; raises CorruptStoreError when that is for ever."""
        pause = _FIRST_RETRY_SECONDS
        while self._owed_records or self._owed_changes:
            await self.joints.sleep(pause)
            pause = min(2 * pause, _LAST_RETRY_SECONDS)
            try:
                await self.intend(self.run)
            except RecordError as error:
                logs.warning("reset_record_still_owed", run=self.run.id, error=str(error))

    async def note(self, text: str) -> None:
        """Put one sentence on record that changes nothing."""
        await self.keep(self.run, entries.reset_step(self.run, text))

    async def advance(self, moved: Moved) -> None:
        """Move the run by a fact; a phase in which the host is changed is entered only when durable.

        Raises RecordError for such a phase, IllegalTransitionError for a fact that has no place here.
        """
        phase = next_phase(self.run.phase, moved.fact)
        now = self.joints.wall()
        gains_result = moved.result is not None and self.run.result is None
        after = replace(
            self.run if moved.run is None else moved.run,
            phase=phase,
            phase_at=now,
            result=moved.result if gains_result else self.run.result,
        )
        records = [entries.reset_step(self.run, moved.text, moved.evidence, moved.refusals)]
        also: LedgerChange | None = None
        if gains_result:
            after = replace(after, text=moved.text)
            also = self._settling(after, now, moved.seen)
            records += self._alarms(after, also)
        write = self.intend if phase in _FORWARD else self.keep
        await write(after, *records, also=also)
        self.may_start = phase is ResetPhase.RESET

    def _settling(self, run: ResetRun, wall: float, seen: SeenLog | None) -> LedgerChange:
        policy = self.joints.policy()
        return lambda ledger: settled(ledger, run, policy, wall, seen)

    def _alarms(self, run: ResetRun, settling: LedgerChange) -> list[AuditEntry]:
        """Return the records of what a result forbids from now on."""
        before = self.joints.ledger()
        after = settling(before)
        records = []
        if run.result is ResetResult.ABANDONED:
            records.append(entries.reset_alarm(run, f"do not touch {', '.join(run.gpus)}: {run.text}"))
        tripped = after.gpu_breakers[len(before.gpu_breakers) :]
        return records + [entries.gpu_breaker_tripped(run, f"{one.gpu}: {one.reason}") for one in tripped]
