"""Fakes of the cycle's joints: each keeps the port's contract and notes what it was asked, in one order."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.drain_joints import DrainJoints
from reclaimerd.daemon.drain_procedure import DrainProcedure
from reclaimerd.daemon.drain_tending import why_held
from reclaimerd.daemon.joints import Joints
from reclaimerd.daemon.news import News
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.state import State
from reclaimerd.daemon.warning_tasks import WarningTasks
from reclaimerd.errors import ReclaimerdError, RecordError
from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.plight import PlightSettings
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotTaken, SlotWaits, TargetAnswer
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import Outcome, OutcomeKind, TargetOutcome
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import Batch, Look
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit
from reclaimerd.record.faults import NoSpaceError
from reclaimerd.record.recorder import is_operators
from tests.builders import MONO, OPERATOR, OURS, a_policy

Sent = dict[ProcessRef, list[str]]
"""Which stages were really performed on a process, in order."""


@dataclass(slots=True)
class FakeSampler:
    """Eyes: the snapshot that the test set, and every look that was asked for."""

    snapshot: Snapshot
    looks: list[Look] = field(default_factory=list)
    error: Exception | None = None

    async def sample(self, look: Look) -> Snapshot:
        """Note the look; return what the test set, or raise what it set."""
        self.looks.append(look)
        if self.error is not None:
            raise self.error
        return self.snapshot


@dataclass(slots=True)
class FakeRecorder:
    """Memory: a batch is durable as a whole or not at all.

    `errors` are raised by the next commits, one each (None: that one succeeds). `full`: no room but
    the operators' reserve.
    """

    events: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    errors: list[ReclaimerdError | None] = field(default_factory=list)
    full: bool = False
    last: str = ""
    last_full: bool = False

    async def commit(self, batch: Batch) -> None:
        """Take the batch, or raise; then it left no trace."""
        error = self.errors.pop(0) if self.errors else None
        if error is None and self.full and not is_operators(batch):
            error = NoSpaceError("audit: no space left on the disk")
        if error is not None:
            self.last, self.last_full = str(error), isinstance(error, NoSpaceError)
            self.events.append("refused")
            raise error
        self.last, self.last_full = "", False
        self.batches.append(batch)
        self.events += [entry.kind.value for entry in batch.entries]

    def fault(self) -> str:
        """Return the last commit's fault."""
        return self.last

    def fault_for_operators(self) -> str:
        """Return it, unless the disk is merely full."""
        return "" if self.last_full else self.last

    @property
    def entries(self) -> list[AuditEntry]:
        """Return every durable record, in order."""
        return [entry for batch in self.batches for entry in batch.entries]

    def of_kind(self, kind: RecordKind) -> list[AuditEntry]:
        """Return the durable records of one kind."""
        return [entry for entry in self.entries if entry.kind is kind]


@dataclass(slots=True)
class FakeExecutor:
    """Hands: notes every permit and answers by target; a dry run is never noted as sent."""

    events: list[str]
    permits: list[Permit] = field(default_factory=list)
    answer: Callable[[Permit], OutcomeKind] = lambda _permit: OutcomeKind.SENT
    error: Exception | None = None

    async def execute(self, permit: Permit) -> Outcome:
        """Note the permit and answer it."""
        self.permits.append(permit)
        self.events.append(f"act {permit.step.stage.value}")
        if self.error is not None:
            raise self.error
        kind = OutcomeKind.DRY_RUN if permit.dry_run or permit.step.dry_run else self.answer(permit)
        targets = tuple(TargetOutcome(ref, kind) for ref in permit.step.targets)
        return Outcome(kind, f"{kind.value} by the fake", targets)

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Answer each."""
        return tuple([await self.execute(permit) for permit in permits])

    @property
    def sent(self) -> Sent:
        """Return what was really performed."""
        found: Sent = {}
        for permit in self.permits:
            if not (permit.dry_run or permit.step.dry_run):
                for ref in permit.step.targets:
                    found.setdefault(ref, []).append(permit.step.stage.value)
        return found


@dataclass(slots=True)
class FakeTarget:
    """One who is asked for drains: notes what was asked and taken back, and answers as it was told."""

    events: list[str]
    name: str = "fake"
    asked: list[DrainRequest] = field(default_factory=list)
    withdrawn: list[DrainRequest] = field(default_factory=list)
    answer: TargetAnswer = field(default_factory=lambda: Asked("noted"))
    farewell: TargetAnswer = field(default_factory=lambda: Asked("forgotten"))

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Note the request and answer."""
        self.events.append("act drain")
        self.asked.append(request)
        return self.answer

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Note that it is taken back."""
        self.withdrawn.append(request)
        return self.farewell

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Tell whether it stands."""
        return Asked("stands") if request in self.asked else NotAsked("nothing stands")

    def plan(self, request: DrainRequest) -> str:
        """Return what would be sent."""
        return f"note {request.id}"


@dataclass(slots=True)
class FakeFleet:
    """Gives a place, or the answer that it was told."""

    answer: SlotTaken | SlotWaits = field(default_factory=lambda: SlotTaken("there is room"))
    taken: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    farewell: TargetAnswer = field(default_factory=lambda: Asked("given back"))

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Note who asked."""
        self.taken.append(request.id)
        return self.answer

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """Note who gave it back."""
        self.released.append(request.id)
        return self.farewell


async def nobody_told(_request: DrainRequest) -> TargetAnswer:
    """Nobody has a word for it."""
    return Asked("nobody is to be told")


async def no_fence(_incident: IncidentId) -> str:
    """No reset has asked for a fence."""
    return ""


_TURNS = 50
"""Turns of the loop that a drain request over fakes needs at most to come to rest."""


@dataclass(slots=True)
class Rig:
    """A cycle over fakes: the test sets the snapshot, runs passes, and reads what was done."""

    cycle: Cycle
    sampler: FakeSampler
    recorder: FakeRecorder
    executor: FakeExecutor
    events: list[str]
    forgotten: list[IncidentId]
    now: list[float]
    target: FakeTarget
    fleet: FakeFleet
    held: list[str]
    """Why nobody may be asked for a drain now; empty: nothing."""

    def order(self, pid: int = 100, **overrides: object) -> Ticket:
        """Lay an operator's order down for the next pass."""
        given = Order(pid, OPERATOR)
        ticket = Ticket(replace(given, **overrides))  # type: ignore[arg-type]  # the test names the fields
        self.cycle.desk.place(ticket)
        return ticket

    async def passes(self, count: int = 1, *, step: float = 1.0) -> None:
        """Make passes, each `step` seconds after the one before; the snapshot only ages."""
        for _ in range(count):
            await self.cycle.run_pass()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            self.age(step)

    def age(self, seconds: float) -> None:
        """Let time pass."""
        seen = self.sampler.snapshot
        self.sampler.snapshot = replace(seen, at=seen.at + seconds, taken_at=seen.taken_at + seconds)
        self.now[0] = self.sampler.snapshot.at

    def show(self, snapshot: Snapshot) -> None:
        """Let the next look see this, at the time that it is now."""
        seen = self.sampler.snapshot
        self.sampler.snapshot = replace(snapshot, at=seen.at, taken_at=seen.taken_at)


def a_rig(snapshot: Snapshot, policy: Policy | None = None, **overrides: object) -> Rig:
    """Return a cycle that started long ago over this snapshot; overrides are fields of Joints."""
    events: list[str] = []
    forgotten: list[IncidentId] = []
    now = [MONO]
    sampler = FakeSampler(snapshot)
    recorder = FakeRecorder(events)
    executor = FakeExecutor(events)
    target, fleet = FakeTarget(events), FakeFleet()
    held: list[str] = []
    cycles: list[Cycle] = []
    drains = DrainProcedure(
        DrainJoints(
            targets=lambda: {target.name: target},
            reports=frozenset,
            fleet=lambda: fleet,
            first=str,
            held=lambda drain: (
                held[0] if held else why_held(drain, cycles[0].state, cycles[0].policy, ("", ""))
            ),
            write=lambda change, records: cycles[0].write(change, records),  # noqa: PLW0108  # built after this
            ledger=lambda: cycles[0].state.ledger,
            wall=lambda: sampler.snapshot.taken_at,
            wake=lambda: None,
            note_verified=nobody_told,
            boot_id=snapshot.boot_id,
            release_fence=no_fence,
        )
    )
    joints = Joints(
        sampler=sampler,
        recorder=recorder,
        executor=executor,
        judge=lambda: JudgeContext(ours=OURS, patterns=lambda _pattern, _text: False, user_ids={}),
        ours=lambda: OURS,
        hold_file=lambda _policy: "",
        clock=lambda: now[0],
        plight_settings=lambda _policy: PlightSettings(),
        forget=forgotten.append,
        warnings=WarningTasks(executor, lambda: None),
        news=News(None, None),
        xids={},
        driver_changed=lambda: events.append("driver changed"),
        begin_reset=lambda run: events.append(f"begin {run}"),
        look_after_drain=drains.look_after,
        drain_targets=lambda: (target.name,),
        host="node-7",
    )
    joints = replace(joints, **overrides)  # type: ignore[arg-type]  # the test names the fields
    cycle = Cycle(a_policy() if policy is None else policy, joints, State())
    cycle.started_mono = MONO - 3600.0
    cycles.append(cycle)
    return Rig(cycle, sampler, recorder, executor, events, forgotten, now, target, fleet, held)


def a_disk_error() -> RecordError:
    """Return a fault that binds everybody."""
    return RecordError("audit: Input/output error")
