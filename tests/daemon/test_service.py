"""The loop around the passes over fakes: what ends it, what does not, and what it tells."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import structlog

from reclaimerd.daemon import notify as notify_module
from reclaimerd.daemon import service as service_module
from reclaimerd.daemon.driver_watch import DriverWatch
from reclaimerd.daemon.engine import ROLES, Choice, Engine
from reclaimerd.daemon.news import News
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.released import DriverRelease
from reclaimerd.daemon.rule_counts import RuleCounts
from reclaimerd.daemon.service import Service
from reclaimerd.errors import CorruptStoreError, ReclaimerdError, RecordError, UnsuitableHostError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId, ProcessRef
from reclaimerd.model.incident import Attempt, OutcomeKind, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Scope
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessLook
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import (
    DriverReading,
    DriverState,
    Snapshot,
)
from reclaimerd.observe.driver_grip import DriverGrip
from reclaimerd.observe.probe import Answered, Failed, Gone
from reclaimerd.record import logs
from reclaimerd.record.chain import Head
from reclaimerd.record.store import AbandonedWorker, Remembered, Stored
from tests.builders import (
    GIB,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    an_incident,
)
from tests.fakes import Rig, a_disk_error, a_rig

BOUND = 20.0
QUIET = replace(a_policy(a_rule(above=70 * GIB)), interval_seconds=0.05)


@dataclass(slots=True)
class FakeMemory:
    """The recorder, as far as the service itself uses it."""

    kept: list[Remembered] = field(default_factory=list)
    error: Exception | None = None
    at: Head | None = None

    async def remember(self, remembered: Remembered) -> None:
        """Keep it, or raise."""
        if self.error is not None:
            raise self.error
        self.kept.append(remembered)

    def head(self) -> Head | None:
        """Return the head that the test set."""
        return self.at

    async def off_loop(self, work: Callable[[], object], _what: str) -> object:
        """Do the work."""
        return work()

    async def close(self) -> None:
        """Close nothing."""


@dataclass(slots=True)
class FakeProbe:
    """A worker with set answers."""

    answers: dict[str, object] = field(default_factory=dict)
    looks: dict[int, object] = field(default_factory=dict)
    asked: list[tuple[str, object]] = field(default_factory=list)
    left_if_we_end: ProcessRef | None = None
    silent_since: float | None = None

    async def ask(self, op: str, args: object) -> object:
        """Note the question and answer."""
        self.asked.append((op, args))
        return self.answers.get(op, Failed("failed", "no answer is set"))

    async def ask_each(self, pids: list[int]) -> dict[int, object]:
        """Return the looks."""
        return {pid: self.looks.get(pid, Gone()) for pid in pids}


@dataclass(slots=True)
class FakeResets:
    """The resets under way, as far as the service uses them."""

    resumed: list[Ledger] = field(default_factory=list)
    looks: int = 0

    async def resume(self, ledger: Ledger) -> None:
        """Note what an earlier life left."""
        self.resumed.append(ledger)

    async def look_after(self) -> None:
        """Count the passes."""
        self.looks += 1


@dataclass(slots=True)
class FakeOutlets:
    """Metrics and notices, as far as the service tells them."""

    passes: list[float] = field(default_factory=list)
    failures: int = 0

    def passed(self, seconds: float) -> None:
        """Note a whole pass."""
        self.passes.append(seconds)

    def failed(self) -> None:
        """Count one that broke off."""
        self.failures += 1

    def anchor_fault(self) -> str:
        """Return none: no head is kept elsewhere."""
        return ""


@dataclass(slots=True)
class FakeEngine:
    """What the service needs of an engine."""

    cycle: Any
    recorder: FakeMemory | None
    choice: Choice
    probes: tuple[FakeProbe, ...] = field(default_factory=lambda: tuple(FakeProbe() for _ in ROLES))
    stored: Stored = field(default_factory=Stored)
    me: ProcessRef = field(default_factory=lambda: a_ref(900))
    news: News = field(default_factory=lambda: News(None, None))
    resets: FakeResets = field(default_factory=FakeResets)
    release: DriverRelease = field(default_factory=lambda: DriverRelease(cast("DriverGrip", None)))
    outlets: FakeOutlets = field(default_factory=FakeOutlets)
    rule_counts: RuleCounts = field(default_factory=RuleCounts)
    closed: bool = False

    @property
    def procfs(self) -> FakeProbe:
        """Return the procfs worker."""
        return self.probes[1]

    @property
    def sampler(self) -> Any:
        """Return what the service asks of the eyes: their memory."""
        return self

    def memory(self) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """Return nothing remembered."""
        return (), ()

    async def close(self) -> None:
        """Note the end."""
        self.closed = True


@dataclass(slots=True)
class Story:
    """A service over fakes, and what it said."""

    rig: Rig
    engine: FakeEngine
    service: Service
    told: list[tuple[str, ...]]

    async def running(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the loop while the work is done, then ask it to end."""
        loop = asyncio.ensure_future(self.service.run())
        try:
            async with asyncio.timeout(BOUND):
                await work()
        finally:
            self.service.pacing.stop()
            await asyncio.wait_for(loop, BOUND)


def make(
    monkeypatch: pytest.MonkeyPatch,
    snapshot: Snapshot | None = None,
    *,
    foreground: bool = False,
    stored: Stored | None = None,
    lost: int = 0,
) -> Story:
    """Return a service with real time for the passes and a note of each message to the manager.

    It has no room for the first `lost` of them.
    """
    rig = a_rig(a_snapshot() if snapshot is None else snapshot, QUIET)
    rig.cycle.joints = replace(rig.cycle.joints, clock=time.monotonic)
    engine = FakeEngine(rig.cycle, FakeMemory(), Choice(foreground=foreground), stored=stored or Stored())
    told: list[tuple[str, ...]] = []

    def notify(*fields: str) -> bool:
        told.append(fields)
        return len(told) > lost

    monkeypatch.setattr(notify_module, "notify", notify)
    service = Service(cast("Engine", engine), Pacing(time.monotonic), wall=lambda: WALL)
    return Story(rig, engine, service, told)


@contextmanager
def log_lines() -> Iterator[list[dict[str, object]]]:
    """Collect the log of the block; the list is filled at its end."""
    reader, writer = os.pipe()
    found: list[dict[str, object]] = []
    with os.fdopen(writer, "w") as stream:
        queue = logs.configure(stream, journal=False)
        try:
            yield found
        finally:
            queue.close()
            structlog.reset_defaults()
    with os.fdopen(reader) as text:
        found += [json.loads(line) for line in text]


async def until(condition: Callable[[], bool]) -> None:
    """Wait, in turns of the loop, for what the loop does."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110  # the thing waited for has no event of its own
            await asyncio.sleep(0.002)


def test_ready_is_said_once_with_the_first_pass_s_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that can't be worked with is never READY; later passes feed the watchdog."""
    story = make(monkeypatch)
    asyncio.run(story.running(lambda: until(lambda: len(story.told) >= 3)))
    assert story.told[0] == ("READY=1", "WATCHDOG=1", "STATUS=enforce: 1 GPUs, 0 holders, 0 incidents")
    assert all(fields[0] == "WATCHDOG=1" for fields in story.told[1:])


def test_ready_is_said_again_until_the_manager_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that got lost would end a daemon that works, when its time to start is over."""
    story = make(monkeypatch, lost=2)
    asyncio.run(story.running(lambda: until(lambda: len(story.told) >= 4)))
    assert [fields[0] for fields in story.told[:4]] == ["READY=1", "READY=1", "READY=1", "WATCHDOG=1"]


def test_an_unsuitable_host_ends_the_start_and_is_never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2 with the mend."""
    story = make(monkeypatch)
    story.rig.sampler.error = UnsuitableHostError("the driver is too old", "update it")
    with pytest.raises(UnsuitableHostError):
        asyncio.run(story.service.run())
    assert story.told == []


def test_a_host_that_becomes_unsuitable_later_does_not_end_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is exchanged under us: said, and looked at again."""
    story = make(monkeypatch)

    async def work() -> None:
        await until(lambda: story.service.pacing.passes >= 1)
        story.rig.sampler.error = UnsuitableHostError("the driver is too old")
        story.service.pacing.wake()
        await until(lambda: "too old" in story.service.last_error)
        story.rig.sampler.error = None
        story.service.pacing.wake()
        await until(lambda: story.service.last_error == "")

    with log_lines() as lines:
        asyncio.run(story.running(work))
    assert "host_unsuitable" in {line["event"] for line in lines}


def test_a_bug_in_a_pass_is_logged_that_pass_acts_no_further_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard outlives its own faults, and says so in `status`."""
    story = make(monkeypatch)
    story.rig.sampler.error = ZeroDivisionError("oh")
    monkeypatch.setattr(service_module, "AFTER_ERROR_SECONDS", 0.05)

    async def work() -> None:
        await until(lambda: len(story.rig.sampler.looks) >= 2)
        assert story.service.facts()["last_error"] == "ZeroDivisionError: oh"
        assert story.service.pacing.passes == 0
        story.rig.sampler.error = None
        await until(lambda: story.service.pacing.passes >= 1)

    with log_lines() as lines:
        asyncio.run(story.running(work))
    assert story.service.last_error == ""
    assert "pass_failed" in {line["event"] for line in lines}
    assert not any("Traceback" in str(line) for line in lines)


@pytest.mark.parametrize("choice", [Choice(foreground=True), Choice(foreground=True, read_only=True)])
def test_a_command_that_only_reads_goes_on_with_no_reset(
    monkeypatch: pytest.MonkeyPatch, choice: Choice
) -> None:
    """What a dead daemon's reset had stopped is put back by who may write that down, and by no `status`."""
    story = make(monkeypatch, foreground=True)
    story.engine.choice = choice
    asyncio.run(story.service.run(once=True))
    assert story.engine.resets.looks == (0 if choice.read_only else 1)


def test_in_the_foreground_a_bug_ends_the_command_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person waits: better an end than a loop of faults; and nobody's service is told anything."""
    story = make(monkeypatch, foreground=True)
    story.rig.sampler.error = ZeroDivisionError("oh")
    with pytest.raises(ReclaimerdError, match="a pass failed"):
        asyncio.run(story.service.run())
    assert story.told == []


@pytest.mark.parametrize("where", ["commit", "remember"])
def test_a_damaged_store_ends_the_daemon(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """CorruptStoreError is let through, from a pass's commit and from what is kept beside it."""
    story = make(monkeypatch, a_busy_snapshot())
    story.rig.cycle.policy = a_policy()
    assert story.engine.recorder is not None
    if where == "commit":
        story.rig.recorder.errors = [CorruptStoreError("damaged")]
    else:
        story.engine.recorder.error = CorruptStoreError("damaged")
    with pytest.raises(CorruptStoreError):
        asyncio.run(asyncio.wait_for(story.service.run(), BOUND))


def test_the_clock_of_a_silence_is_kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the worker that is silent, whatever the pace: we may be ended in the next moment."""
    story = make(monkeypatch)
    memory, (nvml, procfs, *_) = story.engine.recorder, story.engine.probes
    assert memory is not None
    nvml.left_if_we_end, procfs.left_if_we_end = a_ref(9), a_ref(8)

    async def passes() -> None:
        await story.service._remember(force=False)
        await story.service._remember(force=False)
        nvml.silent_since = procfs.silent_since = 7.0
        await story.service._remember(force=False)
        story.rig.cycle.state.driver_watch = DriverWatch(7.0, alarmed=True)
        await story.service._remember(force=False)
        nvml.silent_since = None
        await story.service._remember(force=False)

    asyncio.run(passes())
    other = AbandonedWorker("procfs", a_ref(8), 7.0)
    assert [kept.abandoned for kept in memory.kept] == [
        (AbandonedWorker("nvml", a_ref(9)), AbandonedWorker("procfs", a_ref(8))),
        (AbandonedWorker("nvml", a_ref(9), 7.0), other),
        (AbandonedWorker("nvml", a_ref(9), 7.0, alarmed=True), other),
        (AbandonedWorker("nvml", a_ref(9)), other),
    ]


def test_memory_that_can_not_be_kept_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no promise before an act: the passes go on."""
    story = make(monkeypatch)
    assert story.engine.recorder is not None
    story.engine.recorder.error = RecordError("full")
    with log_lines() as lines:
        asyncio.run(story.running(lambda: until(lambda: story.service.pacing.passes >= 2)))
    assert "memory_not_kept" in {line["event"] for line in lines}


def test_the_end_does_not_wait_for_a_look_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is silent: asked to stop, the loop ends at once; nothing was planned."""
    story = make(monkeypatch)

    async def hang(_look: Look) -> Snapshot:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(type(story.rig.sampler), "sample", lambda _self, look: hang(look))

    async def run() -> float:
        loop = asyncio.ensure_future(story.service.run())
        await until(lambda: story.rig.cycle.looking)
        began = time.monotonic()
        story.service.pacing.stop()
        await asyncio.wait_for(loop, BOUND)
        return time.monotonic() - began

    with log_lines() as lines:
        assert asyncio.run(run()) < 2.0
    assert [line["event"] for line in lines] == ["pass_cut_short"]
    assert story.rig.cycle.looking is False


def test_the_end_lets_an_act_under_way_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between intent and outcome the pass is not cut: the outcome is recorded before the end."""
    story = make(monkeypatch, a_busy_snapshot())
    story.rig.cycle.policy = replace(a_policy(), interval_seconds=0.05)
    story.rig.cycle.started_mono = -1e9
    acting = asyncio.Event()
    real = story.rig.executor.execute_all

    async def slow(permits: Any) -> Any:
        acting.set()
        await asyncio.sleep(0.2)
        return await real(permits)

    story.rig.cycle.joints = replace(story.rig.cycle.joints, executor=cast("Any", SlowHands(slow)))

    async def work() -> None:
        await acting.wait()

    asyncio.run(story.running(work))
    assert story.rig.recorder.of_kind(RecordKind.OUTCOME)


@dataclass(frozen=True, slots=True)
class SlowHands:
    """Hands that take their time."""

    execute_all: Callable[[Any], Awaitable[Any]]


def test_an_act_that_hangs_does_not_hold_up_the_end_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two seconds the pass is cut: a restart finds the intent without its outcome."""
    monkeypatch.setattr(service_module, "LAST_ACT_SECONDS", 0.1)
    story = make(monkeypatch, a_busy_snapshot())
    story.rig.cycle.policy = a_policy()
    story.rig.cycle.started_mono = -1e9
    acting = asyncio.Event()

    async def hang(_permits: Any) -> Any:
        acting.set()
        await asyncio.Event().wait()

    story.rig.cycle.joints = replace(story.rig.cycle.joints, executor=cast("Any", SlowHands(hang)))
    with log_lines():
        asyncio.run(story.running(lambda: cast("Any", acting.wait())))
    assert story.rig.recorder.of_kind(RecordKind.INTENT)
    assert not story.rig.recorder.of_kind(RecordKind.OUTCOME)


def test_a_fresh_look_is_one_that_began_after_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pids go into it; one that fails is no answer."""
    story = make(monkeypatch)

    async def work() -> None:
        assert await story.service.look(pids=(4242,), full_scan=True, seconds=BOUND)
        assert any(4242 in look.pids and look.full_scan for look in story.rig.sampler.looks)
        story.rig.sampler.error = ZeroDivisionError("oh")
        assert not await story.service.look(seconds=0.2)
        story.rig.sampler.error = None

    with log_lines():
        asyncio.run(story.running(work))


def test_a_driver_that_is_absent_is_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """No busy loop over nothing: the next pass is 30 s away."""
    absent = DriverReading(DriverState.ABSENT, MONO, "no library")
    story = make(monkeypatch, a_snapshot(driver=absent, gpus=[]))
    due = asyncio.run(story.service._one_pass(100.0))
    assert due == 130.0


def test_the_watchdog_is_fed_twice_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the interval: half of WATCHDOG_USEC is the longest silence."""
    story = make(monkeypatch, a_snapshot(driver=DriverReading(DriverState.ABSENT, MONO), gpus=[]))
    monkeypatch.setattr(service_module, "watchdog_seconds", lambda: 0.1)
    asyncio.run(story.running(lambda: until(lambda: len(story.told) >= 3)))
    assert len(story.told) >= 3


def test_the_audit_s_head_is_logged_when_it_moved_and_not_more_than_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An anchor outside our own files."""
    story = make(monkeypatch)
    memory = story.engine.recorder
    assert memory is not None
    clock = [0.0]
    story.rig.cycle.joints = replace(story.rig.cycle.joints, clock=lambda: clock[0])
    with log_lines() as lines:
        story.service._log_head()
        for seq, at in ((1, 0.0), (2, 30.0), (3, 61.0), (3, 200.0)):
            memory.at, clock[0] = Head(seq, f"hash-{seq}"), at
            story.service._log_head()
    assert [(line["event"], line["seq"], line["hash"]) for line in lines] == [
        ("audit_head", 1, "hash-1"),
        ("audit_head", 3, "hash-3"),
    ]


def test_a_start_settles_what_an_earlier_one_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNKNOWN for the cut attempt, an end for another boot, the watch list of this boot, STARTED last."""
    cut = an_incident(attempts=(Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL),))
    older = replace(an_incident(), id=cast("Any", "inc-0"), boot_id="older")
    handed = replace(an_incident(), id=cast("Any", "inc-h"), stage=Stage.HANDED_OVER)
    foreign = replace(handed, id=cast("Any", "inc-f"), boot_id="older")
    stored = Stored(open_incidents=(cut, older), handed_over=(handed, foreign))
    story = make(monkeypatch, stored=stored)
    asyncio.run(story.service.resume())
    assert list(story.rig.cycle.state.incidents) == ["inc-1"]
    assert list(story.rig.cycle.state.handed) == ["inc-h"]
    (batch,) = story.rig.recorder.batches
    assert [entry.kind for entry in batch.entries] == [
        RecordKind.OUTCOME,
        RecordKind.INCIDENT_ENDED,
        RecordKind.STARTED,
    ]
    outcome = story.rig.cycle.state.incidents[cut.id].attempts[0].outcome
    assert outcome is not None
    assert outcome.kind is OutcomeKind.UNKNOWN


def test_a_start_that_can_not_be_recorded_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """RecordError: nothing was looked at, nothing was done."""
    story = make(monkeypatch)
    story.rig.recorder.errors = [a_disk_error()]
    with pytest.raises(RecordError):
        asyncio.run(story.service.resume())
    assert story.rig.sampler.looks == []


@pytest.mark.parametrize("fault", [None, a_disk_error()])
def test_the_end_is_recorded_if_it_can_be_and_everything_is_closed(
    monkeypatch: pytest.MonkeyPatch, fault: RecordError | None
) -> None:
    """A dead disk does not keep the workers alive."""
    story = make(monkeypatch)
    story.rig.recorder.errors = [fault]
    with log_lines() as lines:
        asyncio.run(story.service.stop())
    assert story.engine.closed
    assert [e.kind for e in story.rig.recorder.entries] == ([] if fault else [RecordKind.STOPPED])
    assert [line["event"] for line in lines] == (["stop_not_recorded"] if fault else [])


def test_a_tree_and_a_workload_bring_their_members_from_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descendants by pid, members by cgroup; where nothing can be told, nobody is taken along."""
    story = make(monkeypatch)
    procfs = story.engine.procfs
    procfs.answers = {
        "descendants": Answered(({"pids": [101, 102]},), 0.0, 0.0),
        "members": Answered(({"pids": [100, 103]},), 0.0, 0.0),
    }
    procfs.looks = {100: ProcessLook(a_process(), Known(()))}
    order = Order(100, OPERATOR)

    async def family(scope: Scope, pid: int = 100) -> tuple[int, ...]:
        return await story.service.family(replace(order, scope=scope, pid=pid))

    assert asyncio.run(family(Scope.PROCESS)) == ()
    assert asyncio.run(family(Scope.TREE)) == (101, 102)
    assert asyncio.run(family(Scope.WORKLOAD)) == (100, 103)
    assert procfs.asked[-1] == ("members", {"cgroup": ["", "/system.slice/train-100.service"]})
    assert asyncio.run(family(Scope.WORKLOAD, pid=999)) == ()
    procfs.answers = {}
    assert asyncio.run(family(Scope.WORKLOAD)) == ()
