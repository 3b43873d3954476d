"""Our view of the driver closed for a person: on record, for a time, never over a reset, given back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from reclaimerd.daemon.access import Caller, Peer, Role
from reclaimerd.daemon.api import Api
from reclaimerd.daemon.engine import Choice
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.released import DriverRelease
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reset_run import ResetPhase, ResetRun
from reclaimerd.observe.driver_grip import DriverGrip
from tests.builders import BOOT, GPU_A, OPERATOR, WALL, a_busy_snapshot
from tests.fakes import Rig, a_disk_error, a_rig

ROOT = Caller(Role.ADMIN, OPERATOR)
PEER = Peer(4000, 0, frozenset())
PATH = "/v1/release-driver"


@dataclass(slots=True)
class FakeGrip:
    """A grip that tells what was done with it; `stuck` are workers that do not end."""

    stuck: tuple[int, ...] = ()
    why: str = ""
    began: int = 0
    wait: asyncio.Event | None = None

    async def release(self, why: str) -> bool:
        """Close it."""
        self.why = why
        self.began += 1
        if self.wait is not None:
            await self.wait.wait()
        return not self.stuck

    def end_release(self) -> None:
        """Open it."""
        self.why = ""

    def left(self) -> tuple[int, ...]:
        """Return who lives on."""
        return self.stuck


@dataclass(slots=True)
class Host:
    """Stands for the service and its engine."""

    rig: Rig = field(default_factory=lambda: a_rig(a_busy_snapshot()))
    grip: FakeGrip = field(default_factory=FakeGrip)
    choice: Choice = field(default_factory=Choice)
    release: DriverRelease = field(init=False)
    pacing: Pacing = field(init=False)

    def __post_init__(self) -> None:
        self.release = DriverRelease(cast("DriverGrip", self.grip))
        self.pacing = Pacing(lambda: self.rig.now[0])

    @property
    def engine(self) -> Any:
        """Return the engine."""
        return self

    @property
    def cycle(self) -> Any:
        """Return the cycle."""
        return self.rig.cycle

    def wall(self) -> float:
        """Return now."""
        return WALL

    async def call(self, **body: object) -> Answer:
        """Make the call as root."""
        return await Api(cast("Service", self)).answer(Call("POST", PATH, {}, body, PEER), ROOT)

    @property
    def notes(self) -> list[str]:
        """Return the notes on record."""
        return [entry.reason for entry in self.rig.recorder.of_kind(RecordKind.NOTE)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait, in turns of the loop, for what the loop does."""
    while not condition():  # noqa: ASYNC110  # the thing waited for has no event of its own
        await asyncio.sleep(0.002)


def run(host: Host, work: Callable[[], Awaitable[None]]) -> None:
    """Run one story to its end, and leave no timer."""

    async def story() -> None:
        try:
            async with asyncio.timeout(10):
                await work()
        finally:
            host.release.stop()

    asyncio.run(story())


def test_a_release_is_on_record_before_it_is_made_and_says_until_when() -> None:
    """Who, how long and why are durable; every look says until when, and not the caller's own words."""
    host = Host()

    async def work() -> None:
        answer = await host.call(for_seconds=60, reason="upgrade\x1b[2J")
        assert answer.body == {
            "released": {"by": "root", "reason": "upgrade\x1b[2J", "since": WALL, "until": WALL + 60}
        }
        assert host.grip.why.startswith("released by root until 20")
        assert "upgrade" not in host.grip.why
        assert host.release.standing is not None

    run(host, work)
    (entry,) = host.rig.recorder.of_kind(RecordKind.NOTE)
    assert entry.actor == OPERATOR
    assert entry.reason == "our own client of the driver is closed for 60 s: upgrade\x1b[2J"


def test_without_a_time_it_is_ten_minutes() -> None:
    """Never for ever."""
    host = Host()

    async def work() -> None:
        released = cast("dict[str, float]", (await host.call()).body["released"])
        assert released["until"] - released["since"] == 600

    run(host, work)


@pytest.mark.parametrize("value", [0, -1, 86401, True, "10m", float("nan"), float("inf")])
def test_a_time_that_is_none_releases_nothing(value: object) -> None:
    """400 with exit 2, and no record."""
    host = Host()

    async def work() -> None:
        answer = await host.call(for_seconds=value)
        assert (answer.status, answer.body["exit_code"]) == (400, ExitCode.USAGE)

    run(host, work)
    assert (host.grip.began, host.notes) == (0, [])


def test_it_comes_back_by_itself_on_record() -> None:
    """When the time is over, without anybody's call."""
    host = Host()

    async def work() -> None:
        await host.call(for_seconds=0.05)
        await until(lambda: len(host.notes) == 2)
        assert (host.grip.why, host.release.standing) == ("", None)

    run(host, work)
    assert host.notes[1] == "the time is over for which root had our own client of the driver closed"


def test_it_comes_back_although_that_can_not_be_recorded() -> None:
    """A full disk keeps nobody's view of the driver closed, neither at the end of the time nor on --end."""
    host = Host()

    async def work() -> None:
        await host.call(for_seconds=0.05)
        host.rig.recorder.errors = [a_disk_error()]
        await until(lambda: not host.rig.recorder.errors)
        assert host.release.standing is None
        await host.call(for_seconds=60)
        host.rig.recorder.errors = [a_disk_error()]
        assert (await host.call(end=True)).status == 409
        assert (host.grip.why, host.release.standing) == ("", None)

    run(host, work)


def test_end_takes_it_back_at_once_and_the_old_time_ends_nothing_later() -> None:
    """A second release has its own time; an end without a release is no fault and no record."""
    host = Host()

    async def work() -> None:
        assert (await host.call(end=True)).body == {"released": None}
        assert host.notes == []
        await host.call(for_seconds=0.2)
        assert (await host.call(end=True)).body == {"released": None}
        assert host.grip.why == ""
        await host.call(for_seconds=60)
        await asyncio.sleep(0.3)
        assert host.grip.why != ""
        await host.call(for_seconds=0.05)
        await until(lambda: host.release.standing is None)

    run(host, work)
    assert "may be opened again" in host.notes[1]


@pytest.mark.parametrize("phase", [phase for phase in ResetPhase if phase is not ResetPhase.DONE])
def test_a_reset_under_way_refuses_it(phase: ResetPhase) -> None:
    """Exit 3, named by its incident; nothing is closed and nothing on record."""
    host = Host()
    reset = ResetRun(AttemptId("a"), IncidentId("inc-7"), BOOT, OPERATOR, (GPU_A,), WALL, phase=phase)
    host.rig.cycle.state.ledger = Ledger(resets=(reset,))

    async def work() -> None:
        answer = await host.call()
        assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)
        assert "inc-7" in str(answer.body["error"])

    run(host, work)
    assert (host.grip.began, host.notes) == (0, [])


def test_a_reset_that_is_over_refuses_nothing() -> None:
    """It only waits to be told."""
    host = Host()
    reset = ResetRun(
        AttemptId("a"), IncidentId("inc-7"), BOOT, OPERATOR, (GPU_A,), WALL, phase=ResetPhase.DONE
    )
    host.rig.cycle.state.ledger = Ledger(resets=(reset,))

    async def work() -> None:
        assert (await host.call()).status == 200

    run(host, work)


def test_what_can_not_be_recorded_is_not_released() -> None:
    """No record, no act."""
    host = Host()
    host.rig.recorder.errors = [a_disk_error()]

    async def work() -> None:
        assert (await host.call()).status == 409

    run(host, work)
    assert (host.grip.began, host.release.standing) == (0, None)


def test_a_worker_that_does_not_end_is_named_and_nothing_is_released() -> None:
    """It holds the driver still: whoever went on would be surprised."""
    host = Host(grip=FakeGrip(stuck=(4711,)))

    async def work() -> None:
        answer = await host.call()
        assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)
        assert "4711" in str(answer.body["error"])

    run(host, work)
    assert (host.grip.why, host.release.standing) == ("", None)
    assert "not released" in host.notes[1]


def test_a_caller_who_goes_away_meanwhile_leaves_no_release_without_an_end() -> None:
    """The end is set before anything is waited for."""
    host = Host(grip=FakeGrip(wait=asyncio.Event()))

    async def work() -> None:
        asking = asyncio.ensure_future(host.call(for_seconds=0.1))
        await until(lambda: host.grip.began > 0)
        asking.cancel()
        await until(lambda: host.release.standing is None)
        assert host.grip.why == ""

    run(host, work)


def test_a_command_without_a_daemon_releases_nothing() -> None:
    """Its own view ends with it: a promise beyond that would be a lie."""
    host = Host(choice=replace(Choice(), foreground=True))

    async def work() -> None:
        answer = await host.call()
        assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)

    run(host, work)
    assert (host.grip.began, host.notes) == (0, [])
