"""A sampler over probes that answer from a script: every silence and failure, without a process."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.process import (
    ProcessLook,
    ScanResult,
)
from reclaimerd.model.snapshot import (
    GpuReading,
    HostGpus,
)
from reclaimerd.observe.answers import Answer, Answered, Failed, Gone, LookAnswer, ProbeKind, ProbeState
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from tests.builders import BOOT, MONO, WALL

NOT_SCRIPTED = Failed("failed", "the script has no answer to this")


class Hands:
    """The clock of the tests: it moves when a test or a script moves it."""

    def __init__(self) -> None:
        self.now = MONO

    def mono(self) -> float:
        """Return the monotonic time."""
        return self.now

    def wall(self) -> float:
        """Return the wall-clock time."""
        return WALL + self.now - MONO


class ScriptedProbe:
    """Answers `ask` by operation and `ask_each` by pid, and remembers what it was asked."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.answers: dict[str, Answer] = {}
        self.looks: dict[int, LookAnswer] = {}
        self.asked: list[tuple[str, Mapping[str, object]]] = []
        self.whole: list[list[int]] = []
        self.looked_at: list[list[int]] = []
        self.kind = ProbeKind.OK
        self.pid = 901
        self.seconds = 0.0

    async def ask(
        self, op: str, args: Mapping[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the scripted answer, whatever its time; one without a time of its own was sent now."""
        del answer_within
        self.asked.append((op, args or {}))
        answer = self.answers.get(op, NOT_SCRIPTED)
        if isinstance(answer, Answered) and answer.sent_at < 0:
            answer = replace(answer, sent_at=self.hands.now, answered_at=self.hands.now + self.seconds)
        self.hands.now += self.seconds
        return answer

    async def ask_each(self, pids: Sequence[int], whole: Iterable[int] = ()) -> dict[int, LookAnswer]:
        """Return the scripted looks; who is not in the script is gone."""
        self.looked_at.append(list(pids))
        self.whole.append(list(whole))
        return {pid: self.looks.get(pid, Gone()) for pid in pids}

    def state(self) -> ProbeState:
        """Return how the scripted worker does."""
        return ProbeState(self.kind, 0.0, self.pid)

    def worker_pids(self) -> tuple[int, ...]:
        """Return the scripted worker."""
        return (self.pid,)

    def ops(self, op: str) -> list[Mapping[str, object]]:
        """Return the arguments of every question of one kind."""
        return [args for asked, args in self.asked if asked == op]


class ScriptedExits:
    """Names as gone whom the test put into `ended`, and opens nothing: the pids are nobody's."""

    def __init__(self) -> None:
        self.ended: set[ProcessRef] = set()
        self.watched: set[ProcessRef] = set()

    def watch(self, refs: Iterable[ProcessRef]) -> None:
        """Note who is watched."""
        self.watched |= set(refs)

    def forget_others(self, refs: Iterable[ProcessRef]) -> None:
        """Forget all but these."""
        self.watched &= set(refs)

    def gone(self) -> frozenset[ProcessRef]:
        """Return whoever the test ended."""
        return frozenset(self.ended)


def answered(part: Any, sent_at: float = -1.0) -> Answered:
    """Return a whole answer of one part."""
    return Answered((part,), sent_at, sent_at)


def a_host(*gpus: GpuReading, **overrides: Any) -> Answered:
    """Return the nvml worker's answer with these GPUs."""
    return answered(to_wire(replace(HostGpus("595.45.04", gpus, ()), **overrides)))


def a_scan(*rows: Any, skipped: tuple[str, ...] = ()) -> Answered:
    """Return the procfs worker's answer to a search."""
    return answered({"scan": to_wire(ScanResult(tuple(rows), skipped, 10))})


class Eyes:
    """A sampler, its two scripted probes and its clock."""

    def __init__(self, *looks: ProcessLook, full_scan_seconds: float = 60.0) -> None:
        self.hands = Hands()
        self.nvml = ScriptedProbe(self.hands)
        self.procfs = ScriptedProbe(self.hands)
        self.nvml.pid, self.procfs.pid = 901, 902
        self.exits = ScriptedExits()
        self.settings = SamplerSettings(BOOT, ("/usr/bin/*",), full_scan_seconds)
        self.sampler = Sampler(
            cast("Probe", self.nvml),
            cast("Probe", self.procfs),
            self.settings,
            cast("ExitWatch", self.exits),
            (self.hands.mono, self.hands.wall),
        )
        self.procfs.answers = {
            "watch": answered({}),
            "scan": a_scan(),
            "host_files": answered({"files": [["/usr/bin/python3", 1, 7]]}),
        }
        self.procfs.looks = {look.reading.ref.pid: look for look in looks}
