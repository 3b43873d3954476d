"""A fake host for resets: what stands outside the daemon outlives its death, and so does the store.

`Life` is one life of the daemon over it. A fuse ends a life at a chosen boundary, as SIGKILL does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from reclaimerd.act.reset_texts import outcome_of_tool
from reclaimerd.daemon.reset_book import ResetJoints
from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.fault import KernelNews
from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import (
    ChangeFailed,
    ChangeMade,
    Look,
    ToolEnded,
    ToolNeverRan,
    ToolRuns,
    ToolState,
    ToolUnknown,
    ToolVanished,
    ToolWaits,
)
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_facts import KernelFacts, ResetFacts, UnitFacts, UnitState
from reclaimerd.model.reset_run import Change, ChangeKind, ChangeState, ResetPhase, ResetResult, ResetRun
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind
from tests.builders import BOOT, GPU_A, OPERATOR, WALL, a_gpu, a_holder, a_ref, a_snapshot

RUN = AttemptId("inc-1/reset/1")
DCGM, EXPORTER, NVSM = "nvidia-dcgm.service", "dcgm-exporter.service", "nvsm.service"
CLIENTS = {DCGM: 200, EXPORTER: 201}
"""Units that run before a reset, and the pid by which each holds the GPU."""
TOOL = a_ref(5000, 77)
SUCCESS = ToolEnded(0, "GPU 00000000:00:00.0 was successfully reset.\nAll done.")
IN_USE = ToolEnded(255, "GPU 00000000:00:00.0: In use by another client")
CHANGES = (
    Change(ChangeKind.FENCE, "node-1", "not fenced"),
    Change(ChangeKind.UNIT, DCGM, "active"),
    Change(ChangeKind.UNIT, EXPORTER, "active"),
    Change(ChangeKind.PERSISTENCE, GPU_A, "1"),
    Change(ChangeKind.SETTING, f"{GPU_A} power_limit", "300.00"),
)
UNWELL = frozenset({ResetResult.FAILED, ResetResult.NOT_VERIFIED, ResetResult.ABANDONED})
NO_KERNEL_FACTS = KernelFacts((), (), (), (), (), Known(0))


class Killed(BaseException):
    """The daemon's death by SIGKILL: nobody catches it."""


@dataclass(slots=True)
class Fuse:
    """Ends the life at the n-th boundary (None: never), and names the boundaries that were passed."""

    at: int | None = None
    passed: list[str] = field(default_factory=list)

    def point(self, name: str) -> None:
        """Pass one boundary, or die at it."""
        if self.at == len(self.passed):
            raise Killed(name)
        self.passed.append(name)


@dataclass(slots=True)
class FakeTool:
    """The vendor's tool behind its marks: a name is claimed once, by the tool or by who says it never ran."""

    host: "FakeHost"
    end: ToolEnded | ToolVanished | None = SUCCESS
    """How it ends after `seconds`; None: it hangs."""
    seconds: float = 5.0
    why_not: str = ""
    start_error: Exception | None = None
    never_starts: str = ""
    not_ready: str = ""
    late_words: int = 0
    """So many words are not taken in their time."""
    takes_at_last: bool = False
    """A word that was late is taken after all, when it is withdrawn."""
    word_seconds: float = 0.02
    unreadable: bool = False
    """Nobody can tell what stands of it."""
    ready: bool = False
    words: list[float] = field(default_factory=list)
    claims: dict[AttemptId, str] = field(default_factory=dict)
    began_at: float = 0.0
    runs: int = 0
    dead: bool = False
    """The host was booted since."""

    @property
    def may_run(self) -> bool:
        """Tell whether it is at work now."""
        over = self.end is not None and self.host.now >= self.began_at + self.seconds
        return self.claims.get(RUN) == "started" and not over and not self.dead

    def fault(self) -> str:
        """Return why it can't be run."""
        return self.why_not

    @property
    def stands_ready(self) -> bool:
        """Tell whether the word would still be taken."""
        return self.ready and RUN not in self.claims and not self.dead

    async def prepare(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> str:
        """Stand ready; the durable phase must be RESET, and it takes its time."""
        durable = self.host.run
        assert durable.phase is ResetPhase.RESET
        assert durable.tool_at is not None
        assert gpus == durable.gpus
        self.host.fuse.point("before making ready")
        assert not self.ready, "made ready twice"
        if self.not_ready:
            self.claims.setdefault(run, "never")
            return self.not_ready
        self.ready = True
        self.host.now += 0.4
        self.host.fuse.point("after making ready")
        return ""

    async def withdraw(self, run: AttemptId) -> ToolState:
        """Let it go, unless it has taken a word."""
        if self.takes_at_last and self.words:
            self._begin(run)
        return await self.wait(run, 0.0)

    async def start(self, run: AttemptId, not_after: float) -> ToolState | ToolWaits:
        """Take the word unless the name is claimed; the phase must be durable, and nobody may hold a GPU."""
        assert self.host.run.phase is ResetPhase.RESET
        self.host.fuse.point("before the tool")
        self.words.append(not_after)
        if self.never_starts or run in self.claims or not self.ready:
            self.claims.setdefault(run, "never")
            return ToolNeverRan(self.never_starts or "its name is taken")
        if self.late_words >= len(self.words):
            self.host.now = not_after + 0.05
            return ToolWaits("the word was not taken")
        self.host.now += self.word_seconds
        assert self.host.now <= not_after
        self._begin(run)
        self.host.fuse.point("after the tool")
        if self.start_error is not None:
            raise self.start_error
        return ToolRuns(TOOL, began_at=self.host.now)

    def _begin(self, run: AttemptId) -> None:
        self.claims[run] = "started"
        self.runs += 1
        self.began_at = self.host.now
        if self.host.holders:
            self.host.sins.append(f"reset over {sorted(self.host.holders)}")
        if self.end == SUCCESS and not self.host.holders:
            self.host.resets += 1
            self.host.settings = {}
        self.host.acts.append("tool")

    async def wait(self, run: AttemptId, seconds: float) -> ToolState:
        """Return what became of it; claims a name that nobody has."""
        if self.unreadable:
            self.host.now += seconds
            return ToolUnknown("its marks can't be read")
        state = self.claims.setdefault(run, "never")
        if state == "never":
            return ToolNeverRan("it was never started, and now never will be")
        ends_at = self.began_at + self.seconds
        if self.end is None or ends_at > self.host.now + seconds:
            self.host.now += seconds
            return ToolRuns(TOOL, "[<0>] nv_open_device+0x1\n[<0>] do_sys_open+0x2\n")
        self.host.now = max(self.host.now, ends_at)
        return self.end


@dataclass(slots=True)
class FakeHost:
    """Units, persistence mode, settings, a fence, holders and a store; and what is to go wrong."""

    policy: Policy = field(default_factory=Policy)
    now: float = 100.0
    booted: str = BOOT
    units: dict[str, str] = field(
        default_factory=lambda: {DCGM: "active", EXPORTER: "active", NVSM: "inactive"}
    )
    persistence: bool = True
    fenced: bool = False
    settings: dict[str, str] = field(default_factory=lambda: {f"{GPU_A} power_limit": "300.00"})
    holders: set[int] = field(default_factory=lambda: set(CLIENTS.values()))
    lingers_for: float = 0.0
    """How long the process of a stopped unit still holds the GPU."""
    lingering: dict[int, float] = field(default_factory=dict)
    fails: dict[str, int] = field(default_factory=dict)
    """`make NAME` or `undo NAME`: how many times more it fails."""
    undo_errors: dict[str, Exception] = field(default_factory=dict)
    units_readable: bool = True
    withdrawn_in: ResetPhase | None = None
    """Where the leave for the reset is found to be taken back."""
    last_seq: int | None = 41
    on_look: Callable[[int, Look], None] = lambda _count, _look: None
    looks: list[Look] = field(default_factory=list)
    grip_closes: bool = True
    faults_left: int = 0
    """So many looks after the tool find something that is not as it must be."""
    gate_delays: list[float] = field(default_factory=list)
    resets: int = 0
    acts: list[str] = field(default_factory=list)
    sins: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    records: list[AuditEntry] = field(default_factory=list)
    write_errors: dict[int, Exception] = field(default_factory=dict)
    """What the n-th write raises."""
    writes: int = 0
    fuse: Fuse = field(default_factory=Fuse)
    grips: list[str] = field(default_factory=list)
    tool: FakeTool = field(init=False)

    def __post_init__(self) -> None:
        self.tool = FakeTool(self)
        run = ResetRun(
            id=RUN,
            incident=IncidentId("inc-1"),
            boot_id=BOOT,
            actor=OPERATOR,
            gpus=(GPU_A,),
            began_at=WALL,
            changes=CHANGES,
        )
        self.ledger = Ledger(resets=(run,))

    @property
    def run(self) -> ResetRun:
        """Return the run as the store has it."""
        return self.ledger.resets[0]

    @property
    def texts(self) -> list[str]:
        """Return the steps on record, by phase and text."""
        return [f"{one.action}: {one.reason}" for one in self.records if one.kind is RecordKind.RESET_STEP]

    def of_kind(self, kind: RecordKind) -> list[AuditEntry]:
        """Return the records of one kind."""
        return [one for one in self.records if one.kind is kind]

    def is_as_before(self) -> bool:
        """Tell whether everything that a reset changes is what it was, and nothing stands ready.

        But for the fence: it stands on when it was asked for, and the GPU is not seen to be well.
        """
        fresh = FakeHost()
        mine = (self.units, self.persistence, self.fenced, self.settings)
        fenced = self.run.result in UNWELL and bool(self.run.changes)
        return mine == (fresh.units, fresh.persistence, fenced, fresh.settings) and not self.tool.stands_ready

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    async def write(self, change: Callable[[Ledger], Ledger] | None, records: tuple[AuditEntry, ...]) -> None:
        """Make it durable as a whole, or not at all; a life can end on either side of that."""
        self.writes += 1
        self.fuse.point("before a write")
        if self.writes in self.write_errors:
            raise self.write_errors[self.writes]
        if change is not None:
            self.ledger = change(self.ledger)
        self.records += records
        self.fuse.point("after a write")

    async def sample(self, look: Look) -> Snapshot:
        """Return a look at the host; it takes some time."""
        self.looks.append(look)
        self.on_look(len(self.looks), look)
        self.now += 0.05
        self.holders -= {pid for pid, until in self.lingering.items() if until <= self.now}
        units = tuple(UnitState(name, loaded=True, active=state) for name, state in self.units.items())
        facts = ResetFacts(
            self.now,
            gpus=Known(()),
            kernel=Known(NO_KERNEL_FACTS),
            units=Known(UnitFacts(units)) if self.units_readable else Unreadable("no answer"),
        )
        return a_snapshot(
            gpus=(a_gpu(persistence=Known(self.persistence)),),
            holders=[a_holder(pid) for pid in sorted(self.holders)],
            at=self.now,
            reset_facts=facts,
            kernel_news=KernelNews(last_seq=self.last_seq),
        )

    def withdrawn(self, run: ResetRun) -> tuple[Reason, ...]:
        """Refuse in the phase that the test set."""
        taken_back = run.phase is self.withdrawn_in
        return (Reason(ReasonKind.MODE, "the mode is observe by now"),) if taken_back else ()

    def gate(self, snapshot: Snapshot, _run: ResetRun) -> tuple[Reason, ...]:
        """Refuse for every holder: the clients are stopped by now."""
        return _reasons([one.ref for one in snapshot.holders])

    def gate_before(self, snapshot: Snapshot, _run: ResetRun) -> tuple[Reason, ...]:
        """Refuse for every holder but the processes of units that may be stopped."""
        stoppable = set(CLIENTS.values())
        return _reasons([one.ref for one in snapshot.holders if one.ref.pid not in stoppable])

    def last_gate(self, snapshot: Snapshot, _run: ResetRun) -> tuple[Reason, ...]:
        """Refuse for every holder, and for our own open grip; take the time that the test set."""
        if self.gate_delays:
            self.now += self.gate_delays.pop(0)
        if self.grips[-1:] != ["let go"]:
            return (Reason(ReasonKind.HOLDERS, "our own worker holds it"),)
        return _reasons([one.ref for one in snapshot.holders])

    def verify(self, _run: ResetRun, _snapshot: Snapshot) -> tuple[str, ...]:
        """Find a fault as often as the test set."""
        if self.grips[-1:] == ["let go"]:
            return ("our own view of the driver is still closed",)
        self.faults_left -= 1
        return ("2.0 GiB are still in use",) if self.faults_left >= 0 else ()

    async def let_go(self) -> bool:
        """Close our grip."""
        self.grips.append("let go")
        return self.grip_closes

    def take_back(self) -> None:
        """Open it; not while the tool may run."""
        if self.tool.may_run:
            self.sins.append("took the driver back while the tool ran")
        self.grips.append("take back")

    async def make(self, change: Change) -> ChangeMade | ChangeFailed:
        """Make a change that is durable as made."""
        durable = next(one for one in self.run.changes if (one.kind, one.name) == (change.kind, change.name))
        assert durable.state is ChangeState.MADE, "not on record before it is made"
        self.fuse.point(f"before making {change.name}")
        self.acts.append(f"make {change.name}")
        if self._fails(f"make {change.name}"):
            return ChangeFailed("it did not")
        self._set(change, before=False)
        self.fuse.point(f"after making {change.name}")
        return ChangeMade("read back")

    async def undo(self, change: Change) -> ChangeMade | ChangeFailed:
        """Put a change back; never while the tool runs."""
        self.fuse.point(f"before undoing {change.name}")
        self.acts.append(f"undo {change.name}")
        if self.tool.may_run:
            self.sins.append(f"put {change.name} back while the tool ran")
        if change.name in self.undo_errors:
            raise self.undo_errors[change.name]
        if self._fails(f"undo {change.name}"):
            return ChangeFailed("it would not")
        self._set(change, before=True)
        self.fuse.point(f"after undoing {change.name}")
        return ChangeMade()

    async def ask_starts(self, changes: Sequence[Change]) -> ChangeMade | ChangeFailed:
        """Ask for units without a wait; never while the tool runs."""
        names = ", ".join(each.name for each in changes)
        self.fuse.point(f"before asking for {names}")
        self.acts.append(f"ask for {names}")
        if self.tool.may_run:
            self.sins.append(f"asked for {names} while the tool ran")
        if "ask" in self.undo_errors:
            raise self.undo_errors["ask"]
        return ChangeFailed("it would not") if self._fails("ask") else ChangeMade(f"asked for: {names}")

    def _fails(self, name: str) -> bool:
        left = self.fails.get(name, 0)
        self.fails[name] = left - 1
        return left > 0

    def _set(self, change: Change, *, before: bool) -> None:
        match change.kind:
            case ChangeKind.FENCE:
                self.fenced = not before
            case ChangeKind.UNIT:
                self.units[change.name] = change.before if before else "inactive"
                if before:
                    self.holders.add(CLIENTS[change.name])
                elif self.lingers_for:
                    self.lingering[CLIENTS[change.name]] = self.now + self.lingers_for
                else:
                    self.holders.discard(CLIENTS[change.name])
            case ChangeKind.PERSISTENCE:
                self.persistence = before
                if not before:
                    self.settings = {}
            case ChangeKind.SETTING:
                if self.persistence:  # without it the driver forgets at once
                    self.settings[change.name] = change.before

    def a_life(self, kill_at: int | None = None) -> ResetProcedure:
        """Return the daemon's procedure in a new life, which ends at a boundary if one is named."""
        self.fuse = Fuse(kill_at)
        self.grips = []
        return ResetProcedure(
            ResetJoints(
                sampler=self,
                tool=self.tool,
                clients=self,
                grip=self,
                write=self.write,
                ledger=lambda: self.ledger,
                withdrawn=self.withdrawn,
                gate_before=self.gate_before,
                gate=self.gate,
                last_gate=self.last_gate,
                verify=self.verify,
                meaning=outcome_of_tool,
                clock=lambda: self.now,
                wall=lambda: WALL + self.now,
                policy=lambda: self.policy,
                boot_id=self.booted,
                sleep=self.sleep,
            )
        )

    def boot(self) -> None:
        """Boot the host: units and settings are as at any boot, the scheduler's fence stays, no tool runs."""
        fresh = FakeHost()
        self.booted = "99999999-2222-3333-4444-555555555555"
        self.units, self.persistence, self.settings = fresh.units, fresh.persistence, fresh.settings
        self.holders = fresh.holders
        self.tool.dead = True


def a_disk_error() -> RecordError:
    """Return why nothing can be recorded."""
    return RecordError("audit: Input/output error")


def _reasons(refs: list[ProcessRef]) -> tuple[Reason, ...]:
    return tuple(
        Reason(ReasonKind.HOLDERS, f"pid {ref.pid} holds it", "end it", (ref,), GPU_A) for ref in refs
    )


def with_changes(host: FakeHost, *changes: Change) -> None:
    """Let the host's run change only this."""
    host.ledger = replace(host.ledger, resets=(replace(host.run, changes=changes),))
