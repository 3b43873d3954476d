"""What came of the vendor's tool, and whether the GPU is well: no success that was not seen."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Outcome
from reclaimerd.model.ports import Look, ToolEnded, ToolState, ToolVanished
from reclaimerd.model.reset_run import ResetPast, ResetPhase, ResetResult
from tests.builders import BOOT, GPU_A, GPU_B, WALL
from tests.daemon.reset_ends import MADE, assert_ended, assert_refused_and_restored, run
from tests.daemon.reset_host import IN_USE, RUN, SUCCESS, TOOL, FakeHost, FakeTool


def test_a_tool_that_never_ran_is_a_refusal() -> None:
    """Nothing was reset, and that is known."""
    host = FakeHost()
    host.tool.never_starts = "the unit could not be made"
    run(host)
    assert_refused_and_restored(host, "the unit could not be made")


def test_a_tool_that_does_not_stand_ready_is_a_refusal_without_a_last_look() -> None:
    """No word is given to what is not there."""
    host = FakeHost()
    host.tool.not_ready = "systemd-run ended with 1"
    run(host)
    assert_refused_and_restored(host, "could not be made ready, and nothing was reset: systemd-run ended")
    assert host.tool.words == []
    assert not any(look.without_driver for look in host.looks)


def test_the_tool_is_made_ready_before_the_last_look_and_the_record_tells_how_fresh_that_was() -> None:
    """What it takes to make it ready is not between the last look and the tool."""
    host = FakeHost()
    host.on_look = lambda _count, look: order.append((look.without_driver, host.tool.ready))
    order: list[tuple[bool, bool]] = []
    run(host)
    assert [ready for last, ready in order if last] == [True]
    (line,) = [line for line in host.texts if "the tool runs" in line]
    assert line.endswith("looked again 20 ms before the tool was started (the look took 50 ms)")
    assert host.tool.words == [pytest.approx(host.tool.began_at - 0.02 + 0.2)]


def test_a_word_that_is_not_taken_in_time_is_given_again_after_another_look() -> None:
    """Each word rests on a look of its own."""
    host = FakeHost()
    host.tool.late_words = 2
    run(host)
    assert sum(look.without_driver for look in host.looks) == len(host.tool.words) == 3
    assert host.tool.runs == 1
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_three_words_that_are_not_taken_refuse_and_what_stands_ready_leaves() -> None:
    """The name is claimed, so nothing runs later."""
    host = FakeHost()
    host.tool.late_words = 3
    run(host)
    assert len(host.tool.words) == 3
    assert host.tool.claims[RUN] == "never"
    assert_refused_and_restored(host, "within 0.2 s of 3 last looks: the word was not taken")


def test_somebody_who_comes_after_a_word_that_was_late_refuses() -> None:
    """The second look sees the newcomer, and the word is withdrawn."""
    host = FakeHost()
    host.tool.late_words = 1
    host.on_look = lambda _count, _look: host.holders.add(300) if host.tool.words else None
    run(host)
    assert len(host.tool.words) == 1
    assert_refused_and_restored(host, "pid 300 holds it")


def test_a_word_that_was_taken_after_all_is_no_refusal() -> None:
    """Only the claim tells; the tool is waited for, and nothing is put back under it."""
    host = FakeHost()
    host.tool.late_words = 3
    host.tool.takes_at_last = True
    run(host)
    assert host.tool.runs == 1
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


@pytest.mark.parametrize("error", [ReclaimerdError("no answer"), KeyError("no answer")], ids=["known", "bug"])
def test_eyes_that_fail_in_the_last_look_let_go_of_what_stands_ready(error: Exception) -> None:
    """A refusal on every way back."""
    host = FakeHost()

    def fail(_count: int, look: Look) -> None:
        if look.without_driver:
            raise error

    host.on_look = fail
    run(host)
    assert host.tool.claims[RUN] == "never"
    assert_refused_and_restored(host, "no answer")


def test_marks_that_cannot_be_read_are_no_end_of_the_tool() -> None:
    """At the deadline it is left alone like one that runs, never verified; its end, once seen, is an end."""
    host = FakeHost()
    began = host.now

    async def begun_then_unreadable(run_id: AttemptId, not_after: float) -> object:
        host.tool.unreadable = True
        return await FakeTool.start(host.tool, run_id, not_after)

    tool = _Tool(host, host.tool.wait)
    tool.start = begun_then_unreadable  # type: ignore[assignment]  # the stub's own start
    life = ResetProcedure(replace(host.a_life()._joints, tool=tool))  # type: ignore[arg-type]  # a stub
    run(host, life)
    assert (host.run.phase, host.run.result) == (ResetPhase.LEFT_ALONE, ResetResult.ABANDONED)
    assert host.now - began >= host.policy.ladder.reset_seconds
    assert "can't be told" in host.run.text
    assert host.acts == [*MADE, "tool"]
    assert host.grips == ["let go"]
    assert asyncio.run(life.look_after()) == ()
    host.tool.unreadable = False
    run(host)
    assert_ended(host, ResetResult.ABANDONED, "can't be told")


def test_a_word_of_which_nobody_knows_is_left_alone() -> None:
    """Neither a start nor a withdrawal that can be read: the tool may run."""
    host = FakeHost()
    host.tool.late_words = 3
    withdraw = host.tool.withdraw

    async def lost(run: AttemptId) -> ToolState:
        host.tool.unreadable = True
        return await withdraw(run)

    tool = _Tool(host, host.tool.wait)
    tool.withdraw = lost
    run(host, ResetProcedure(replace(host.a_life()._joints, tool=tool)))  # type: ignore[arg-type]  # a stub
    assert (host.run.phase, host.run.result) == (ResetPhase.LEFT_ALONE, ResetResult.ABANDONED)
    assert host.acts == MADE


def test_a_driver_that_says_in_use_is_an_ordinary_refusal() -> None:
    """Not a failure: it trips nothing."""
    host = FakeHost()
    host.tool.end = IN_USE
    run(host)
    assert_ended(host, ResetResult.REFUSED, "In use by another client")
    assert host.ledger.gpu_breakers == ()
    step = next(one for one in host.records if "In use" in one.reason)
    assert step.evidence[0] == "exit code 255"


def test_a_tool_that_fails_is_a_failure_and_is_not_verified_away() -> None:
    """No look after it makes it a success."""
    host = FakeHost()
    host.tool.end = ToolEnded(15, "Unable to reset this GPU")
    run(host)
    assert_ended(host, ResetResult.FAILED, "Unable to reset this GPU")
    assert not any(line.startswith("verify") for line in host.texts)


@pytest.mark.parametrize(
    "end", [ToolEnded(0, "Ready."), ToolVanished("its runner was killed")], ids=["unknown text", "vanished"]
)
def test_an_end_that_is_not_understood_is_never_a_success(end: ToolEnded | ToolVanished) -> None:
    """However well the GPU looks, how it ended is not known."""
    host = FakeHost()
    host.tool.end = end
    run(host)
    assert_ended(host, ResetResult.NOT_VERIFIED, "not verified")


def test_a_start_that_breaks_is_judged_by_the_tools_own_marks() -> None:
    """Our fault at the start does not tell whether it runs; its marks do, and it is not started again."""
    host = FakeHost()
    host.tool.start_error = OSError("pipe")
    run(host)
    assert host.tool.runs == 1
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_the_gpu_is_looked_at_until_it_is_well() -> None:
    """Some looks find something; one that finds nothing is the proof."""
    host = FakeHost(faults_left=4)
    run(host)
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_a_gpu_that_does_not_come_well_in_time_is_not_verified() -> None:
    """The result names what is not as it must be, and the time is bounded."""
    host = FakeHost(faults_left=10**6)
    began = host.now
    run(host)
    assert host.now - began < host.policy.reset.verify_seconds + 10.0
    assert_ended(host, ResetResult.NOT_VERIFIED, "2.0 GiB are still in use")


def test_a_host_that_cannot_be_looked_at_after_the_reset_is_not_verified() -> None:
    """An error of the eyes is no proof, and everything is put back all the same."""
    host = FakeHost()

    def blind(_count: int, look: Look) -> None:
        if host.resets and not look.without_driver:
            raise ReclaimerdError("the driver does not answer")

    host.on_look = blind
    run(host)
    assert_ended(host, ResetResult.NOT_VERIFIED, "the driver does not answer")


def test_a_bug_in_the_verification_is_no_proof() -> None:
    """It ends as not verified."""
    host = FakeHost()

    def fail(_count: int, _look: Look) -> None:
        if host.resets:
            raise KeyError("no such field")

    host.on_look = fail
    run(host)
    assert_ended(host, ResetResult.NOT_VERIFIED, "a fault of ours: KeyError")


def test_a_tool_past_its_deadline_is_left_alone_and_nothing_is_put_back() -> None:
    """Do not touch: no undoing, the driver kept closed, the breaker tripped, the kernel stack on record."""
    host = FakeHost()
    host.tool.end = None
    began = host.now
    run(host)
    assert (host.run.phase, host.run.result) == (ResetPhase.LEFT_ALONE, ResetResult.ABANDONED)
    assert host.now - began >= host.policy.ladder.reset_seconds
    assert host.acts == [*MADE, "tool"]
    assert host.grips == ["let go"]
    (untouchable,) = host.ledger.untouchable
    assert (untouchable.gpus, untouchable.boot_id, untouchable.tool) == ((GPU_A,), BOOT, TOOL)
    assert [breaker.gpu for breaker in host.ledger.gpu_breakers] == [GPU_A]
    assert host.ledger.past_resets[0].result is ResetResult.ABANDONED
    evidence = next(one.evidence for one in host.records if "left alone" in one.reason)
    assert evidence[0] == "[<0>] nv_open_device+0x1"
    assert len(host.of_kind(RecordKind.ALARM)) == len(host.of_kind(RecordKind.BREAKER_TRIPPED)) == 1


def test_while_the_left_alone_tool_runs_every_look_changes_nothing() -> None:
    """Neither a pass's look nor a run does anything."""
    host = FakeHost()
    host.tool.end = None
    life = host.a_life()

    async def some_passes() -> tuple[AttemptId, ...]:
        await life.run(RUN)
        before = len(host.records)
        found = await life.look_after()
        await life.run(RUN)
        assert len(host.records) == before
        return found

    assert asyncio.run(some_passes()) == ()
    assert host.acts == [*MADE, "tool"]


def test_when_the_left_alone_tool_has_ended_everything_is_put_back_and_the_gpu_stays_untouched() -> None:
    """The result stays: nobody knows what state the GPU is in."""
    host = FakeHost()
    host.tool.seconds = host.policy.ladder.reset_seconds + 60.0
    life = host.a_life()

    async def later() -> None:
        await life.run(RUN)
        assert await life.look_after() == ()
        host.now += 61.0
        assert await life.look_after() == (RUN,)
        await life.run(RUN)
        assert await life.look_after() == ()

    asyncio.run(later())
    assert_ended(host, ResetResult.ABANDONED, "is left alone")
    assert len(host.ledger.untouchable) == 1


def test_when_it_cannot_be_told_what_became_of_the_tool_it_is_left_alone() -> None:
    """A bug of ours while the tool may run is no leave to touch the GPU; its end, once seen, is."""
    host = FakeHost()

    def fail(*_of: object) -> None:
        raise KeyError("a bug")

    life = ResetProcedure(replace(host.a_life()._joints, tool=_Tool(host, fail)))  # type: ignore[arg-type]
    run(host, life)
    assert (host.run.phase, host.run.result) == (ResetPhase.LEFT_ALONE, ResetResult.ABANDONED)
    assert host.acts == [*MADE, "tool"]
    assert len(host.ledger.untouchable) == 1
    assert asyncio.run(life.look_after()) == ()
    host.now += 60.0
    run(host)
    assert_ended(host, ResetResult.ABANDONED, "what became of the tool can't be told")


def test_an_end_of_the_tool_that_we_fail_to_read_is_no_success() -> None:
    """A bug in reading its words: the GPU stays untouched, and everything is put back, since it has ended."""
    host = FakeHost()

    def fail(_code: int, _text: str) -> Outcome:
        raise KeyError("a bug")

    run(host, ResetProcedure(replace(host.a_life()._joints, meaning=fail)))
    assert_ended(host, ResetResult.ABANDONED, "what became of the tool can't be told")
    assert len(host.ledger.untouchable) == 1


def test_a_second_failure_within_a_day_trips_the_breaker_of_that_gpu() -> None:
    """Two of one GPU; one of another, or one before yesterday, does not count."""
    host = FakeHost()
    host.tool.end = ToolEnded(15, "Unable to reset")
    now = WALL + host.now
    others = (
        ResetPast((GPU_B,), ResetResult.FAILED, now - 60.0),
        ResetPast((GPU_A,), ResetResult.FAILED, now - 90000.0),
        ResetPast((GPU_A,), ResetResult.REFUSED, now - 60.0),
    )
    host.ledger = replace(host.ledger, past_resets=others)
    run(host)
    assert host.ledger.gpu_breakers == ()
    again = FakeHost()
    again.tool.end = ToolEnded(15, "Unable to reset")
    earlier = ResetPast((GPU_A,), ResetResult.NOT_VERIFIED, now - 3600.0)
    again.ledger = replace(again.ledger, past_resets=(earlier,))
    run(again)
    assert [breaker.gpu for breaker in again.ledger.gpu_breakers] == [GPU_A]
    assert len(again.of_kind(RecordKind.BREAKER_TRIPPED)) == 1


def test_an_end_of_ours_while_the_tool_runs_does_not_take_the_driver_back() -> None:
    """A task that is cut off leaves the grip closed, and nothing put back."""
    host = FakeHost()

    async def cut_off() -> None:
        stuck = asyncio.Event()

        async def wait(*_of: object) -> None:
            stuck.set()
            await asyncio.Event().wait()

        joints = replace(host.a_life()._joints, tool=_Tool(host, wait))  # type: ignore[arg-type]  # its stub
        life = ResetProcedure(joints)
        task = asyncio.ensure_future(life.run(RUN))
        await asyncio.wait_for(stuck.wait(), 5.0)
        assert await life.look_after() == ()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut_off())
    assert host.grips == ["let go"]
    assert host.acts == [*MADE, "tool"]


class _Tool:
    def __init__(self, host: FakeHost, wait: object) -> None:
        tool = host.tool
        self.fault, self.prepare, self.withdraw = tool.fault, tool.prepare, tool.withdraw
        self.start, self.wait = tool.start, wait


def test_success_is_what_the_fake_tool_says_first() -> None:
    """The fake's success is the vendor's text: the tests above do not rest on another."""
    assert "was successfully reset" in SUCCESS.text
