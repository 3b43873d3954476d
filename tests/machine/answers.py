"""What the daemon's workers would answer of the simulated host: probes, exits, the facts of a reset, news.

They stand in the places of the workers' ends; all that is made of their answers is the project's own code.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reclaimerd.host.wire import to_wire
from reclaimerd.model.fault import DeviceEvent, KernelNews
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_facts import ResetFacts, UnitFacts
from reclaimerd.model.snapshot import HostGpus
from reclaimerd.observe.answers import (
    Answer,
    Answered,
    Failed,
    Gone,
    LookAnswer,
    ProbeKind,
    ProbeState,
    Silent,
    SilentCause,
    UnreadableProcess,
)
from reclaimerd.observe.reset_eyes import Scope
from tests.judge.reset_builders import a_unit, gpu_facts, kernel_facts
from tests.machine.oracle import Oracle
from tests.machine.readings import gpu_of, kernel_look_of, look_of, scan_of
from tests.machine.world import CLIENT_UNIT, Proc, World

CAP_BYTES = 4 * 1024**3


@dataclass(slots=True)
class SimProbe:
    """One role's worker, as its parent sees it."""

    role: str
    world: World
    oracle: Oracle
    is_look: Callable[[], bool]
    """Whether it is a pass that looks: what that sees is what is judged."""
    shut_why: str = ""
    asked_each: int = 0

    async def ask(
        self, op: str, args: Mapping[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the truth, unless the worker is shut or the driver hangs."""
        del answer_within
        if self.shut_why:
            return Silent(self.shut_why, self.world.mono, cause=SilentCause.CLOSED)
        if self.role == "nvml":
            return self._of_driver(op)
        return self._of_processes(op, args or {})

    def _of_driver(self, op: str) -> Answer:
        if self.world.hung_since is not None:
            return Silent("no answer", self.world.hung_since, "task 1: nvidia_poll")
        if op == "host":
            self.oracle.over |= {
                one.ref for one in self.world.procs.values() if self.world.used_by(one.ref) > CAP_BYTES
            }
            gpus = tuple(gpu_of(card, self.world) for card in self.world.cards.values() if card.present)
            return self._answered(to_wire(HostGpus("595.45.04", gpus, ())))
        return Failed("failed", f"nobody simulates {op}")

    def _of_processes(self, op: str, args: Mapping[str, object]) -> Answer:
        match op:
            case "watch":
                return self._answered({})
            case "host_files":
                return self._answered({"files": [["/usr/bin/python3", 1, 7]]})
            case "scan":
                return self._answered({"scan": to_wire(scan_of(self.world))})
            case "freezers":
                cgroups = args.get("cgroups", ())
                count = len(cgroups) if isinstance(cgroups, Sequence) else 0
                return self._answered({"frozen": [to_wire(Known(value=False))] * count})
            case "kernel":
                pids = args.get("pids", ())
                wanted = [pid for pid in pids if isinstance(pid, int)] if isinstance(pids, Iterable) else []
                return Answered(tuple(self._kernel(pid) for pid in wanted), self.world.mono, self.world.mono)
            case _:
                return Failed("failed", f"nobody simulates {op}")

    def _kernel(self, pid: int) -> object:
        proc = self.world.procs.get(pid)
        if proc is None:
            return {"pid": pid, "gone": True}
        return {"pid": pid, "kernel": to_wire(kernel_look_of(proc, self.world.mono))}

    def _answered(self, part: object) -> Answered:
        return Answered((part,), self.world.mono, self.world.mono)

    async def ask_each(self, pids: Sequence[int], whole: Iterable[int] = ()) -> dict[int, LookAnswer]:
        """Return a look at each process."""
        del whole
        found: dict[int, LookAnswer] = {}
        for pid in pids:
            proc = self.world.procs.get(pid)
            if proc is None:
                found[pid] = Gone()
            elif not proc.readable:
                found[pid] = UnreadableProcess("it took too long")
            else:
                found[pid] = look_of(proc, self.world)
                if self.is_look():
                    self.oracle.seen[proc.ref] = proc.looks
        return found

    async def read_stack(self, pid: int) -> str:
        """Return nothing."""
        del pid
        return ""

    async def shut(self, why: str) -> bool:
        """End the worker and start none."""
        self.shut_why = why
        return True

    def reopen(self) -> None:
        """Let it be started again."""
        self.shut_why = ""

    async def start(self) -> None:
        """Be ready."""

    async def close(self) -> None:
        """End it; the next question starts another."""

    async def adopt_abandoned(self, ref: ProcessRef, silent_since: float | None = None) -> None:
        """Take over nobody."""

    def explain_by(self, stack_of: object) -> None:
        """Need no explaining."""

    def take_limits(self, limits: WorkerSettings) -> None:
        """Have no limits."""

    def worker_pids(self) -> tuple[int, ...]:
        """Return the worker."""
        return () if self.shut_why else (901,)

    def state(self) -> ProbeState:
        """Return that it does well."""
        return ProbeState(ProbeKind.OK, 0.0, 901)

    @property
    def abandoned(self) -> ProcessRef | None:
        """Nobody was abandoned."""
        return None

    @property
    def left_if_we_end(self) -> ProcessRef | None:
        """Nobody outlives us."""
        return None

    @property
    def silent_since(self) -> float | None:
        """It answers, or says itself since when not."""
        return self.world.hung_since if self.role == "nvml" else None


@dataclass(slots=True)
class SimExits:
    """Pidfds of watched processes: each knows the very process that had the pid when it was opened."""

    world: World
    opened: dict[ProcessRef, Proc | None] = field(default_factory=dict)

    def watch(self, refs: Iterable[ProcessRef]) -> None:
        """Open one for each."""
        for ref in refs:
            self.opened.setdefault(ref, self.world.procs.get(ref.pid))

    def forget_others(self, refs: Iterable[ProcessRef]) -> None:
        """Close all but these."""
        kept = set(refs)
        self.opened = {ref: proc for ref, proc in self.opened.items() if ref in kept}

    def gone(self) -> frozenset[ProcessRef]:
        """Return those whose last thread is gone."""
        return frozenset(ref for ref, proc in self.opened.items() if proc is None or not proc.may_hold)

    def close(self) -> None:
        """Close all."""
        self.opened.clear()


@dataclass(slots=True)
class SimResetEyes:
    """What a reset must know besides."""

    world: World
    nvml: SimProbe

    async def read(self, now: float, scope: Scope) -> ResetFacts:
        """Return a host on which only its processes can forbid a reset."""
        gpus = [gpu_of(card, self.world) for card in self.world.cards.values() if card.present]
        closed = scope.without_driver or self.nvml.shut_why or self.world.hung_since is not None
        active = "active" if self.world.units[CLIENT_UNIT] else "inactive"
        return ResetFacts(
            now,
            Unreadable("closed") if closed else Known(tuple(gpu_facts(one.uuid, one.index) for one in gpus)),
            Known(kernel_facts(gpus)),
            Known(UnitFacts((a_unit(CLIENT_UNIT, active),))),
        )


@dataclass(slots=True)
class SimLog:
    """The kernel's log from one life's start on; implements `LogPort`."""

    world: World
    after: int | None
    fault: str = ""

    def read(self) -> KernelNews:
        """Return the Xids since the last reading."""
        after = -1 if self.after is None else self.after
        fresh = tuple(one for one in self.world.xids if one.seq > after)
        self.after = self.world.log_seq
        return KernelNews(fresh, self.world.log_seq)

    def fileno(self) -> int | None:
        """Have none."""
        return None

    def close(self) -> None:
        """Let go of it."""


@dataclass(slots=True)
class SimDevices:
    """Device events while somebody listens; implements `DevicesPort`."""

    world: World
    fault: str = ""
    gap: str = ""

    def read(self, ours: object = ()) -> tuple[DeviceEvent, ...]:
        """Return the events since the last reading."""
        del ours
        events, self.world.events = tuple(self.world.events), []
        return events

    def fileno(self) -> int | None:
        """Have none."""
        return None
