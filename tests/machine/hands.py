"""Everything by which the daemon acts on the simulated host, each call with its boundary and its oracle.

The shims of `os`, `select` and `signal` stand under the real executor: pidfds, the last look and the
signal are the project's own code. May not decide whether an act was right: `oracle` does.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace

from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotTaken, SlotWaits, TargetAnswer
from reclaimerd.model.identity import AttemptId, GpuUuid, ProcessRef
from reclaimerd.model.ports import (
    ChangeFailed,
    ChangeMade,
    ToolEnded,
    ToolNeverRan,
    ToolRuns,
    ToolState,
    ToolVanished,
    ToolWaits,
)
from reclaimerd.model.reset_run import Change, ChangeKind
from reclaimerd.model.step import Step
from tests.machine.oracle import Oracle
from tests.machine.world import Phase, Proc, World

STEP: ContextVar[Step | None] = ContextVar("STEP", default=None)
"""The step for which a signal is being sent."""
TOOL_SECONDS = 5.0


class Killed(BaseException):
    """The daemon's death by SIGKILL: nobody catches it."""


@dataclass(slots=True)
class Fuse:
    """Ends one life of the daemon at a boundary; from then on nothing of that life has any effect."""

    left: int | None = None
    """So many boundaries are passed still; None: it is not lit."""
    named: str = ""
    """It ends the life at the next boundary of this name."""
    is_blown: bool = False
    where: str = ""

    def point(self, name: str) -> None:
        """Pass a boundary, or die at it."""
        if not self.is_blown and self.left is not None:
            self.left -= 1
            self.is_blown = self.left < 0
        self.is_blown = self.is_blown or name == self.named
        self.where = self.where or name * self.is_blown
        if self.is_blown:
            raise Killed(name)


@dataclass(slots=True)
class Kernel:
    """The system calls of a signal, over the simulated processes."""

    world: World
    oracle: Oracle
    fuse: Fuse
    races: list[Callable[[Proc], None]] = field(default_factory=list)
    """What happens to the next targets right when their pidfd is opened."""
    opened: dict[int, Proc] = field(default_factory=dict)
    last_fd: int = 5000

    def pidfd_open(self, pid: int) -> int:
        """Return a descriptor of whoever has the pid now."""
        proc = self.world.procs.get(pid)
        if proc is None:
            raise ProcessLookupError(3, "No such process")
        self.last_fd += 1
        self.opened[self.last_fd] = proc
        if self.races:
            self.races.pop()(proc)
        return self.last_fd

    def close(self, descriptor: int) -> None:
        """Let go of one."""
        del self.opened[descriptor]

    def is_dead(self, descriptor: int) -> bool:
        """Tell whether the last thread is gone."""
        return not self.opened[descriptor].may_hold

    def send(self, descriptor: int, number: signal.Signals) -> None:
        """Deliver a signal: this is an act."""
        self.fuse.point(f"before {number.name}")
        proc, step = self.opened[descriptor], STEP.get()
        if proc.phase is Phase.GONE:
            raise ProcessLookupError(3, "No such process")
        self.oracle.judge_signal(step, proc, number)
        if number is signal.SIGKILL or (number is signal.SIGTERM and proc.obeys):
            self.world.leave(proc)
        self.fuse.point(f"after {number.name}")

    def as_os(self) -> SimpleNamespace:
        """Return what stands for the module `os`."""
        return SimpleNamespace(
            pidfd_open=self.pidfd_open, close=self.close, getpid=lambda: 900, geteuid=lambda: 0
        )

    def as_select(self) -> SimpleNamespace:
        """Return what stands for the module `select`."""
        return SimpleNamespace(poll=lambda: _Poll(self), POLLIN=1)

    def as_signal(self) -> SimpleNamespace:
        """Return what stands for the module `signal`."""
        return SimpleNamespace(
            Signals=signal.Signals,
            SIGTERM=signal.SIGTERM,
            SIGKILL=signal.SIGKILL,
            SIGCONT=signal.SIGCONT,
            pidfd_send_signal=self.send,
        )


@dataclass(slots=True)
class _Poll:
    kernel: Kernel
    asked: list[int] = field(default_factory=list)

    def register(self, descriptor: int, _events: int) -> None:
        self.asked.append(descriptor)

    def poll(self, _timeout: int) -> list[tuple[int, int]]:
        return [(one, 1) for one in self.asked if self.kernel.is_dead(one)]


@dataclass(slots=True)
class ToolMarks:
    """What stands of the vendor's tool outside the daemon: it outlives our death, and not a boot."""

    claims: dict[AttemptId, str] = field(default_factory=dict)
    ready: dict[AttemptId, tuple[GpuUuid, ...]] = field(default_factory=dict)
    began: dict[AttemptId, float] = field(default_factory=dict)
    hangs: bool = False
    fails: bool = False
    failed: set[AttemptId] = field(default_factory=set)
    """Runs that failed, whatever is healed since."""
    undone: set[AttemptId] = field(default_factory=set)
    """Runs that hang before the reset: healed they go on to it."""

    def boot(self) -> None:
        """Let no tool run any more."""
        self.hangs = False
        for run in [one for one, claim in self.claims.items() if claim == "started"]:
            self.claims[run] = "vanished"


@dataclass(slots=True)
class SimTool:
    """The vendor's tool as one life of the daemon sees it; implements `ResetToolPort`."""

    world: World
    oracle: Oracle
    fuse: Fuse
    marks: ToolMarks
    tool: str = "/usr/bin/nvidia-smi"

    def fault(self) -> str:
        """Return that it can be run."""
        return ""

    async def sweep(self, _runs: set[AttemptId]) -> str:
        """Leave nothing."""
        return ""

    async def prepare(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> str:
        """Stand ready."""
        self.fuse.point("before making the tool ready")
        self.marks.ready[run] = gpus
        return ""

    async def withdraw(self, run: AttemptId) -> ToolState:
        """Let it go."""
        return await self.wait(run, 0.0)

    async def start(self, run: AttemptId, not_after: float) -> ToolState | ToolWaits:
        """Take the word, once."""
        self.fuse.point("before the tool")
        if run in self.marks.claims or self.world.mono > not_after:
            return ToolWaits("too late, or taken")
        self.marks.claims[run], self.marks.began[run] = "started", self.world.mono
        gpus = self.marks.ready[run]
        self.oracle.judge_reset(run, gpus)
        if self.marks.fails:
            self.marks.failed.add(run)
        elif self.marks.hangs:
            self.marks.undone.add(run)
        else:
            self._reset(run)
        self.fuse.point("after the tool")
        return ToolRuns(self._ref(), began_at=self.world.mono)

    async def wait(self, run: AttemptId, seconds: float) -> ToolState:
        """Return what became of it, waiting in simulated time."""
        self.fuse.point("asking the tool")
        claim = self.marks.claims.setdefault(run, "never")
        if claim == "never":
            return ToolNeverRan("it was never started, and now never will be")
        if claim == "vanished":
            return ToolVanished("the host was booted")
        limit = self.world.mono + seconds
        while self.marks.hangs or self.world.mono < self.marks.began[run] + TOOL_SECONDS:
            if self.world.mono >= limit:
                return ToolRuns(self._ref(), "[<0>] nv_open_device+0x1")
            await asyncio.sleep(1.0)
        if self.marks.fails or run in self.marks.failed:
            return ToolEnded(255, "Unable to reset GPU")
        if run in self.marks.undone:  # it hung, and went on
            self.marks.undone.remove(run)
            self._reset(run)
        return ToolEnded(0, "GPU 00000000:00:00.0 was successfully reset.\nAll done.")

    def _reset(self, run: AttemptId) -> None:
        for gpu in self.marks.ready[run]:
            self.world.reset(gpu)

    def _ref(self) -> ProcessRef:
        return ProcessRef(self.world.boot_id, 5000, 77)


@dataclass(slots=True)
class SimClients:
    """Units and persistence mode; implements `ClientsPort`."""

    world: World
    fuse: Fuse

    async def make(self, change: Change) -> ChangeMade | ChangeFailed:
        """Make one change."""
        return self._set(change, before=False)

    async def undo(self, change: Change) -> ChangeMade | ChangeFailed:
        """Put it back."""
        return self._set(change, before=True)

    async def ask_starts(self, _changes: Sequence[Change]) -> ChangeMade | ChangeFailed:
        """Ask for units without a wait: each is started when it is put back."""
        return ChangeMade("asked for")

    def _set(self, change: Change, *, before: bool) -> ChangeMade | ChangeFailed:
        self.fuse.point(f"before changing {change.name}")
        match change.kind:
            case ChangeKind.UNIT if before and not self.world.units[change.name]:
                self.world.start_client()
            case ChangeKind.UNIT if not before:
                self.world.stop_client()
            case ChangeKind.PERSISTENCE:
                self.world.cards[GpuUuid(change.name)].persistence = before
            case _:
                pass
        self.fuse.point(f"after changing {change.name}")
        return ChangeMade("read back")


@dataclass(slots=True)
class Scheduler:
    """Whoever is asked for drains, and the fleet's arbiter: what stands there outlives the daemon."""

    oracle: Oracle
    fuse: Fuse
    stands: dict[str, DrainRequest] = field(default_factory=dict)
    places: set[str] = field(default_factory=set)
    is_away: bool = False
    name: str = "scheduler"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Let the request stand, once: this is an act."""
        self.fuse.point("before asking for the drain")
        if self.is_away:
            return NotAsked("nobody answers")
        fresh = request.id not in self.stands
        self.stands[request.id] = request
        self.oracle.judge_drain(request, tuple(self.stands), is_fresh=fresh)
        self.fuse.point("after asking for the drain")
        return Asked("it stands")

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Forget it."""
        self.fuse.point("before taking the drain back")
        if self.is_away:
            return NotAsked("nobody answers")
        self.stands.pop(request.id, None)
        return Asked("taken back")

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Tell whether it stands."""
        return Asked("stands") if request.id in self.stands else NotAsked("nothing stands")

    def plan(self, request: DrainRequest) -> str:
        """Return what would be sent."""
        return f"drain {request.id}"

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Give this node a place."""
        self.fuse.point("before taking a place")
        if self.is_away:
            return SlotWaits("nobody answers")
        self.places.add(request.id)
        return SlotTaken("there is room")

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """Take the place back."""
        self.fuse.point("before giving the place back")
        self.places.discard(request.id)
        return Asked("given back")
