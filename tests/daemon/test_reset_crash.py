"""The daemon's death at every boundary of a reset: the next start ends it the same way, and resets once."""

import asyncio
from collections.abc import Callable

import pytest

from reclaimerd.model.ports import Look, ToolEnded, ToolVanished
from reclaimerd.model.reset_run import ResetPhase, ResetResult
from tests.builders import GPU_A
from tests.daemon.reset_ends import assert_put_back
from tests.daemon.reset_host import DCGM, EXPORTER, IN_USE, RUN, SUCCESS, FakeHost, Killed, with_changes

ABOUT_BOUNDARIES = 30
"""Fewer than this would mean that the rig does not cut where it should."""


def a_host() -> FakeHost:
    """Return a host whose reset succeeds."""
    return FakeHost()


def an_unfenced_host() -> FakeHost:
    """Return a host whose fence does not stand."""
    return FakeHost(fails={"make node-1": 99})


def a_host_with_a_deaf_unit() -> FakeHost:
    """Return a host one of whose clients never stops."""
    return FakeHost(fails={f"make {EXPORTER}": 99})


def a_host_with_a_newcomer() -> FakeHost:
    """Return a host on which somebody always comes before the last look."""
    host = FakeHost()

    def come(_count: int, look: Look) -> None:
        if look.without_driver:
            host.holders.add(300)

    host.on_look = come
    return host


def a_refusing_driver() -> FakeHost:
    """Return a host whose driver says no."""
    host = FakeHost()
    host.tool.end = IN_USE
    return host


def a_failing_tool() -> FakeHost:
    """Return a host whose tool fails."""
    host = FakeHost()
    host.tool.end = ToolEnded(15, "Unable to reset")
    return host


def a_vanishing_tool() -> FakeHost:
    """Return a host whose tool is lost without a word."""
    host = FakeHost()
    host.tool.end = ToolVanished("its runner is gone")
    return host


def a_sick_gpu() -> FakeHost:
    """Return a host whose GPU does not come well."""
    return FakeHost(faults_left=10**9)


def a_busy_host() -> FakeHost:
    """Return a host on which the first two words are not taken in their time."""
    host = FakeHost()
    host.tool.late_words = 2
    return host


def an_overloaded_host() -> FakeHost:
    """Return a host on which no word is taken in its time."""
    host = FakeHost()
    host.tool.late_words = 99
    return host


def a_host_without_a_runner() -> FakeHost:
    """Return a host on which the tool is never made ready."""
    host = FakeHost()
    host.tool.not_ready = "systemd-run ended with 1"
    return host


ENDS: list[tuple[Callable[[], FakeHost], ResetResult]] = [
    (a_host, ResetResult.VERIFIED),
    (an_unfenced_host, ResetResult.REFUSED),
    (a_host_with_a_deaf_unit, ResetResult.REFUSED),
    (a_host_with_a_newcomer, ResetResult.REFUSED),
    (a_refusing_driver, ResetResult.REFUSED),
    (a_failing_tool, ResetResult.FAILED),
    (a_vanishing_tool, ResetResult.NOT_VERIFIED),
    (a_sick_gpu, ResetResult.NOT_VERIFIED),
    (a_busy_host, ResetResult.VERIFIED),
    (an_overloaded_host, ResetResult.REFUSED),
    (a_host_without_a_runner, ResetResult.REFUSED),
]


def boundaries(make: Callable[[], FakeHost]) -> list[str]:
    """Return the boundaries that one whole reset passes."""
    host = make()
    asyncio.run(host.a_life().run(RUN))
    return host.fuse.passed


def next_start(host: FakeHost) -> None:
    """Start again, as the service does: resume, then drive what was left."""

    async def start() -> None:
        life = host.a_life()
        for run_id in await life.resume(host.ledger):
            await life.run(run_id)

    asyncio.run(start())


def killed_at(host: FakeHost, boundary: int) -> None:
    """End the daemon at a boundary of its life."""
    with pytest.raises(Killed):
        asyncio.run(host.a_life(boundary).run(RUN))


@pytest.mark.parametrize(("make", "result"), ENDS, ids=[make.__name__ for make, _ in ENDS])
def test_a_death_at_any_boundary_comes_to_the_same_end(
    make: Callable[[], FakeHost], result: ResetResult
) -> None:
    """Before and after each record and each act: one result, no second reset, everything put back.

    A death after the phase of the reset was made durable and before the tool was started is a refusal:
    that it never ran is known, and what was made ready never runs it.
    """
    names = boundaries(make)
    for boundary, name in enumerate(names):
        host = make()
        killed_at(host, boundary)
        tool_was_due = host.run.phase is ResetPhase.RESET and host.tool.runs == 0
        next_start(host)
        where = f"killed at boundary {boundary} ({name})"
        assert host.run.phase is ResetPhase.DONE, where
        assert host.run.result is (ResetResult.REFUSED if tool_was_due else result), where
        assert host.tool.runs <= 1, where
        assert host.resets == (host.tool.runs if host.tool.end == SUCCESS else 0), where
        assert host.is_as_before(), where
        assert not host.sins, where
        assert len(host.ledger.past_resets) == 1, where
        assert_put_back(host, where)


def a_hanging_tool() -> FakeHost:
    """Return a host whose tool never ends."""
    host = FakeHost()
    host.tool.end = None
    return host


def test_a_death_at_any_boundary_of_a_tool_that_hangs_touches_nothing_before_it_ended() -> None:
    """It is left alone once, with one breaker and one mark, and put back when it has ended at last."""
    for boundary, name in enumerate(boundaries(a_hanging_tool)):
        host = a_hanging_tool()
        killed_at(host, boundary)
        next_start(host)
        where = f"killed at boundary {boundary} ({name})"
        assert not host.sins, where
        if not host.tool.runs:
            assert (host.run.phase, host.run.result) == (ResetPhase.DONE, expected(host)), where
            assert host.is_as_before(), where
            continue
        phases = [host.run.phase]
        assert (len(host.ledger.untouchable), len(host.ledger.gpu_breakers)) == (1, 1), where
        host.tool.end = SUCCESS
        host.now += host.tool.seconds
        next_start(host)
        assert [*phases, host.run.phase] == [ResetPhase.LEFT_ALONE, ResetPhase.DONE], where
        assert host.run.result is ResetResult.ABANDONED, where
        assert host.tool.runs == 1, where
        assert host.is_as_before(), where
        assert not host.sins, where


def expected(host: FakeHost) -> ResetResult:
    """Return the result of a run whose tool was never started: that is known, and a refusal."""
    assert host.tool.claims[RUN] == "never"
    return ResetResult.REFUSED


def test_the_rig_cuts_at_every_record_and_every_act() -> None:
    """The boundaries of a reset that succeeds: both sides of each write, each change and the tool."""
    names = boundaries(a_host)
    assert len(names) > ABOUT_BOUNDARIES
    for act in ("making node-1", f"making {DCGM}", f"making {GPU_A}", f"undoing {DCGM}", "undoing node-1"):
        assert {f"before {act}", f"after {act}"} <= set(names)
    assert names.count("before a write") == names.count("after a write") > 15
    ready = ("before making ready", "after making ready", "before the tool", "after the tool")
    at = [names.index(name) for name in ready]
    assert at == sorted(at)


def test_a_death_at_every_second_boundary_comes_to_an_end_as_well() -> None:
    """A daemon that dies again and again, each life one boundary longer: at most one reset, all put back."""
    host = a_host()
    for boundary in range(200):
        try:
            asyncio.run(host.a_life(boundary).run(RUN))
        except Killed:
            continue
        break
    assert host.run.phase is ResetPhase.DONE
    assert host.run.result in (ResetResult.VERIFIED, ResetResult.REFUSED)
    assert host.tool.runs <= 1
    assert host.is_as_before()
    assert not host.sins


def test_a_death_while_the_tool_runs_waits_for_the_rest_of_its_time_only() -> None:
    """The next start keeps the driver closed, finds the tool running, and does not start its clock anew."""
    host = a_host()
    host.tool.end = None
    killed_at(host, boundaries(a_host).index("after the tool"))
    host.now += 250.0
    before = host.now
    next_start(host)
    assert (host.run.phase, host.run.result) == (ResetPhase.LEFT_ALONE, ResetResult.ABANDONED)
    assert host.now - before < 60.0
    assert host.grips == ["let go"]
    assert host.tool.runs == 1
    assert not [act for act in host.acts if act.startswith("undo")]


def test_a_start_while_a_left_alone_tool_runs_keeps_the_driver_closed() -> None:
    """Nothing is done but to stay away."""
    host = a_host()
    host.tool.end = None
    asyncio.run(host.a_life().run(RUN))
    acts, records = list(host.acts), len(host.records)
    next_start(host)
    assert host.grips == ["let go"]
    assert (host.acts, len(host.records)) == (acts, records)


def test_a_death_while_a_stopped_client_vanishes_leaves_it_its_moment() -> None:
    """The next start knows whom it sees first, and waits for them to go; it need not have stopped them."""
    host = a_host()
    names = boundaries(a_host)
    killed_at(host, names.index("after making " + GPU_A) + 5)
    phases = [host.run.phase]
    host.holders.add(200)
    host.lingering = {200: host.now + 2.0}
    next_start(host)
    assert [*phases, host.run.phase] == [ResetPhase.LOOK_AGAIN, ResetPhase.DONE]
    assert host.run.result is ResetResult.VERIFIED
    assert host.is_as_before()


def test_a_boot_at_any_boundary_ends_the_run_and_keeps_the_fence_of_a_reset_cut_off() -> None:
    """A boot puts units and modes back; no tool is started or waited for, and what was not proven is not."""
    for boundary, name in enumerate(boundaries(a_host)):
        host = a_host()
        killed_at(host, boundary)
        had_result, had_started = host.run.result, host.run.tool_at is not None
        runs, acts = host.tool.runs, len(host.acts)
        host.boot()
        next_start(host)
        where = f"booted after boundary {boundary} ({name})"
        assert host.run.phase is ResetPhase.DONE, where
        fresh = ResetResult.FAILED if had_started else ResetResult.REFUSED
        assert host.run.result is (had_result or fresh), where
        assert host.tool.runs == runs, where
        assert set(host.acts[acts:]) <= {"undo node-1"}, where
        assert host.is_as_before(), where


def test_a_boot_ends_a_tool_that_was_left_alone() -> None:
    """Its result stays, and so does the fence: nobody has seen the GPU well."""
    host = a_host()
    host.tool.end = None
    asyncio.run(host.a_life().run(RUN))
    host.boot()
    next_start(host)
    assert (host.run.phase, host.run.result) == (ResetPhase.DONE, ResetResult.ABANDONED)
    assert host.is_as_before()


def test_a_boot_of_a_run_that_had_nothing_left_but_the_fence_is_noted_once() -> None:
    """The record does not tell of the boot again."""
    host = a_host_without_changes()
    killed_at(host, len(boundaries(a_host_without_changes)) - 2)
    phases = [host.run.phase]
    host.boot()
    next_start(host)
    assert [*phases, host.run.phase] == [ResetPhase.RESTORE, ResetPhase.DONE]
    assert not [line for line in host.texts if "booted" in line]


def a_host_without_changes() -> FakeHost:
    """Return a host on which a reset changes nothing else."""
    host = FakeHost(units={DCGM: "inactive", EXPORTER: "inactive"}, holders=set())
    with_changes(host)
    return host


def test_putting_back_goes_on_with_what_was_begun() -> None:
    """A run that stands at the putting back is put back to the end."""
    names = boundaries(a_host)
    host = a_host()
    killed_at(host, names.index(f"after undoing {EXPORTER}"))
    phases = [host.run.phase]
    asyncio.run(host.a_life().put_back(RUN))
    assert [*phases, host.run.phase] == [ResetPhase.RESTORE, ResetPhase.DONE]
    assert host.run.result is ResetResult.VERIFIED
    assert host.is_as_before()


@pytest.mark.parametrize(("make", "result"), ENDS)
def test_putting_back_comes_to_the_same_end_once_the_tool_has_ended(
    make: Callable[[], FakeHost], result: ResetResult
) -> None:
    """No next start may come: from the tool on, at any boundary, what is stopped does not stay stopped."""
    names = boundaries(make)
    for boundary, name in enumerate(names):
        host = make()
        killed_at(host, boundary)
        if not host.tool.runs:
            continue
        host.now += host.tool.seconds
        asyncio.run(host.a_life().put_back(RUN))
        where = f"put back after boundary {boundary} ({name})"
        assert (host.run.phase, host.run.result) == (ResetPhase.DONE, result), where
        assert host.tool.runs == 1, where
        assert not host.sins, where
        assert host.is_as_before(), where


def test_putting_back_ends_what_was_left_alone_when_it_has_ended() -> None:
    """While the tool runs nothing is touched; then all is put back, and the result stays."""
    host = a_host()
    host.tool.end = None
    asyncio.run(host.a_life().run(RUN))
    asyncio.run(host.a_life().put_back(RUN))
    phases = [host.run.phase]
    host.tool.end = SUCCESS
    asyncio.run(host.a_life().put_back(RUN))
    assert [*phases, host.run.phase] == [ResetPhase.LEFT_ALONE, ResetPhase.DONE]
    assert host.run.result is ResetResult.ABANDONED
    assert not host.sins
    assert host.is_as_before()


def test_putting_back_goes_no_step_further() -> None:
    """For an end of ours without a next start: before the tool all is put back, then nothing is touched.

    What was made ready is withdrawn; what may have been given the word is not touched.
    """
    names = boundaries(a_host)
    tool = names.index("before the tool")
    for boundary in range(tool + 2):
        host = a_host()
        killed_at(host, boundary)
        asyncio.run(host.a_life().put_back(RUN))
        assert host.tool.runs == (1 if boundary > tool else 0)
        assert not host.tool.stands_ready
        assert not host.sins
        if host.tool.runs:
            assert host.run.phase is ResetPhase.RESET
            continue
        assert (host.run.phase, host.run.result) == (ResetPhase.DONE, ResetResult.REFUSED)
        assert host.is_as_before()
