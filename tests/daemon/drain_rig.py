"""A drain procedure over a ledger in memory, targets that keep what stands, and a fleet that counts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reclaimerd.daemon.drain_joints import DrainJoints
from reclaimerd.daemon.drain_procedure import DrainProcedure
from reclaimerd.daemon.drains import with_request
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.drain import DrainPhase, DrainRequest, NodeDrain, Withdrawal
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, NotAsked, SlotTaken, SlotWaits, TargetAnswer
from reclaimerd.model.ledger import Ledger
from tests.act.drain_builders import a_request
from tests.builders import BOOT, WALL

TURNS = 200
"""Turns of the loop in which everything over fakes has come to rest."""


@dataclass(slots=True)
class Scheduler:
    """A target as a real one is: what stands there is known by the request's id."""

    name: str
    stands: dict[str, DrainRequest] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    answers: list[TargetAnswer | Exception] = field(default_factory=list)
    """What the next calls answer in place of the truth; then it does as it is asked."""

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Let the request stand, once."""
        await asyncio.sleep(0)
        if (answer := self._odd()) is not None:
            return answer
        if request.id in self.stands:
            return Asked("it stands already")
        self.stands[request.id] = request
        self.effects.append(f"drain {request.id}")
        return Asked("it stands")

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Forget it."""
        await asyncio.sleep(0)
        if (answer := self._odd()) is not None:
            return answer
        if self.stands.pop(request.id, None) is None:
            return Asked("nothing of ours")
        self.effects.append(f"undrain {request.id}")
        return Asked("taken back")

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Tell whether it stands."""
        return Asked("stands") if request.id in self.stands else NotAsked("nothing stands")

    def plan(self, request: DrainRequest) -> str:
        """Return what would be sent."""
        return f"drain {request.id}"

    def _odd(self) -> TargetAnswer | None:
        if not self.answers:
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(slots=True)
class Places:
    """A fleet with room for so many nodes."""

    room: int = 1
    held: set[str] = field(default_factory=set)
    report_only: bool = False
    stuck: str = ""
    fault: Exception | None = None
    calls: int = 0

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Give a place while there is room; whoever has one keeps it."""
        await asyncio.sleep(0)
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        if self.report_only:
            return SlotWaits("nobody counts", report_only=True)
        if request.id not in self.held and len(self.held) >= self.room:
            return SlotWaits(f"{len(self.held)} of {self.room} nodes are drained")
        self.held.add(request.id)
        return SlotTaken("there is room")

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """Take the place back."""
        await asyncio.sleep(0)
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        if self.stuck:
            return NotAsked(self.stuck)
        self.held.discard(request.id)
        return Asked("given back")


@dataclass(slots=True)
class Host:
    """One host's ledger and its drain procedure; `fail_at` lets the n-th write fail, and each after it."""

    targets: list[Scheduler] = field(default_factory=lambda: [Scheduler("slurm")])
    fleet: Places = field(default_factory=Places)
    ledger: Ledger = field(default_factory=Ledger)
    records: list[AuditEntry] = field(default_factory=list)
    reports: frozenset[str] = frozenset()
    held: str = ""
    first: str = ""
    verified: list[str] = field(default_factory=list)
    verified_answers: list[TargetAnswer] = field(default_factory=list)
    fences: set[str] = field(default_factory=set)
    fence_fault: str = ""
    now: float = WALL
    boot_id: str = BOOT
    writes: int = 0
    fail_at: int | None = None
    procedure: DrainProcedure | None = None
    at_record: tuple[str, Callable[[], None]] | None = None
    """What happens while this record is written."""

    @property
    def drain(self) -> NodeDrain:
        """Return the request that the ledger has."""
        assert self.ledger.drain is not None
        return self.ledger.drain

    def texts(self) -> list[str]:
        """Return what the records say, in order."""
        return [entry.reason for entry in self.records]

    def want(self, incident: str = "inc-1") -> None:
        """Let an incident ask for a drain, as a pass does."""
        names = tuple(target.name for target in self.targets)
        self.ledger = with_request(self.ledger, a_request(incident), names, BOOT)

    def take_back(self) -> None:
        """Order the withdrawal, as an operator does."""
        order = Withdrawal("root", "it was mended", self.now)
        self.ledger = replace(self.ledger, drain=replace(self.drain, withdrawal=order))

    async def write(self, change: Callable[[Ledger], Ledger] | None, records: tuple[AuditEntry, ...]) -> None:
        """Make a change durable, or fail as the test wants."""
        await asyncio.sleep(0)
        self.writes += 1
        if self.fail_at is not None and self.writes >= self.fail_at:
            raise RecordError("the disk went away")
        if change is not None:
            self.ledger = change(self.ledger)
        self.records += records
        if self.at_record is not None and self.at_record[0] in {entry.reason for entry in records}:
            self.at_record[1]()

    async def note_verified(self, request: DrainRequest) -> TargetAnswer:
        """Note that it was said, or answer as the test wants."""
        await asyncio.sleep(0)
        self.verified.append(request.id)
        return self.verified_answers.pop(0) if self.verified_answers else Asked("the condition is False")

    async def release_fence(self, incident: str) -> str:
        """Let go of an incident's fence, or say why not."""
        await asyncio.sleep(0)
        if self.fence_fault:
            return self.fence_fault
        self.fences.discard(incident)
        return ""

    def make(self) -> DrainProcedure:
        """Return a procedure over this ledger, as a life of ours has it."""
        targets: dict[str, DrainTargetPort] = {target.name: target for target in self.targets}
        joints = DrainJoints(
            targets=lambda: targets,
            reports=lambda: self.reports,
            fleet=lambda: self.fleet,
            first=lambda: self.first,
            held=lambda _drain: self.held,
            write=self.write,
            ledger=lambda: self.ledger,
            wall=lambda: self.now,
            wake=lambda: None,
            note_verified=self.note_verified,
            boot_id=self.boot_id,
            release_fence=self.release_fence,
        )
        return DrainProcedure(joints)

    async def settle(self) -> None:
        """Let the procedure go as far as it can, then end it where it stands: a death of ours."""
        self.procedure = self.make()
        self.procedure.look_after()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await self.procedure.stop()

    def go(self, seconds: float = 0.0) -> DrainPhase:
        """Let time pass and the procedure go on; return where it stands then."""
        self.now += seconds
        asyncio.run(self.settle())
        return self.drain.phase
