"""Claims about the time between the last look and the tool: it stands ready, and runs by the word alone."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.placement import ChildPlace, Placed
from reclaimerd.act.reset import ResetTool
from reclaimerd.act.reset_files import read_trace
from reclaimerd.host import child as children
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ports import ToolEnded, ToolNeverRan, ToolRuns, ToolState, ToolUnknown, ToolWaits
from tests.act.reset_tools import RUN, program, reset_tool, runs
from tests.builders import GPU_A

pytestmark = pytest.mark.process


def _waiting(tmp_path: Path) -> tuple[ResetTool, Path]:
    """Return hands over a tool that leaves a mark when it runs, and the mark."""
    mark = tmp_path / "ran"
    return reset_tool(tmp_path / "resets", program(tmp_path / "nvidia-smi", f"touch {mark}")), mark


async def _gone(hands: ResetTool) -> bool:
    """Tell whether the runner that stood ready is gone within a few seconds; a bound, no sleep."""
    ready = read_trace(hands.directory, RUN).ready
    assert ready is not None
    seen = children.adopt(ready.runner.pid)
    if seen is None:
        return True
    try:
        return await children.wait(seen, 10.0) is not None
    finally:
        children.let_go(seen)


def test_what_stands_ready_has_run_and_claimed_nothing(tmp_path: Path) -> None:
    """Ready is a runner that waits: no claim, no start, no tool; withdrawn, it leaves at once."""
    hands, mark = _waiting(tmp_path)

    async def work() -> ToolState:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        trace = read_trace(hands.directory, RUN)
        assert (trace.claim, trace.started, trace.ended) == (None, None, None)
        state = await hands.withdraw(RUN)
        assert await _gone(hands)
        return state

    assert isinstance(runs(work), ToolNeverRan)
    assert not mark.exists()
    assert sorted(path.name for path in hands.directory.iterdir()) == [f"{RUN}.claim", f"{RUN}.ready"]


def test_the_tool_begins_at_once_after_the_word(tmp_path: Path) -> None:
    """Between the word and the loaded tool lies less than the 200 ms that a last look is good for."""
    hands, mark = _waiting(tmp_path)

    async def work() -> tuple[float, ToolState | ToolWaits, ToolState]:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        given_at = time.monotonic()
        begun = await hands.start(RUN, given_at + 0.2)
        return given_at, begun, await hands.wait(RUN, 20.0)

    given_at, begun, end = runs(work)
    assert isinstance(begun, ToolRuns), begun
    assert begun.began_at is not None
    assert 0 < begun.began_at - given_at <= 0.25
    started = read_trace(hands.directory, RUN).started
    assert started is not None
    assert 0 < started.after_word_seconds <= begun.began_at - given_at
    assert isinstance(end, ToolEnded)
    assert mark.exists()


def test_a_word_that_comes_too_late_is_not_taken_and_another_one_is(tmp_path: Path) -> None:
    """A word past its time claims nothing and runs nothing; what stands ready takes the next."""
    hands, mark = _waiting(tmp_path)

    async def work() -> tuple[ToolState | ToolWaits, bool, ToolState | ToolWaits]:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        late = await hands.start(RUN, time.monotonic() - 0.001)
        ran = mark.exists() or read_trace(hands.directory, RUN).claim is not None
        again = await hands.start(RUN, time.monotonic() + 10.0)
        await hands.wait(RUN, 20.0)
        return late, ran, again

    late, ran, again = runs(work)
    assert isinstance(late, ToolWaits)
    assert not ran
    assert isinstance(again, ToolRuns)
    assert mark.exists()


def test_a_late_word_that_is_withdrawn_never_runs_anything(tmp_path: Path) -> None:
    """The word stands there, the claim is ours: the runner leaves, and a later word is for nobody."""
    hands, mark = _waiting(tmp_path)

    async def work() -> tuple[ToolState, ToolState | ToolWaits]:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        await hands.start(RUN, time.monotonic() - 0.001)
        withdrawn = await hands.withdraw(RUN)
        assert await _gone(hands)
        return withdrawn, await hands.start(RUN, time.monotonic() + 10.0)

    withdrawn, later = runs(work)
    assert isinstance(withdrawn, ToolNeverRan)
    assert isinstance(later, ToolNeverRan)
    assert not mark.exists()


def test_another_life_of_ours_claims_what_stands_ready(tmp_path: Path) -> None:
    """A death between making ready and the word: the next start knows that nothing ran, and nothing will."""
    hands, mark = _waiting(tmp_path)
    assert runs(lambda: hands.prepare(RUN, (GPU_A,))) == ""

    async def next_life() -> ToolState:
        state = await replace(hands).wait(RUN, 5.0)
        assert await _gone(hands)
        return state

    assert isinstance(runs(next_life), ToolNeverRan)
    assert not mark.exists()


def test_without_the_word_the_runner_leaves_by_itself(tmp_path: Path) -> None:
    """It has claimed nothing and left nothing behind but that it stood there."""
    hands, mark = _waiting(tmp_path)
    hands = replace(hands, word_within=0.3)

    async def work() -> ToolState | ToolWaits:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        assert await _gone(hands)
        assert [path.name for path in hands.directory.iterdir()] == [f"{RUN}.ready"]
        return await hands.start(RUN, time.monotonic() + 0.2)

    assert isinstance(runs(work), ToolWaits)
    assert not mark.exists()


def test_a_runner_that_ends_before_it_stands_ready_is_said(tmp_path: Path) -> None:
    """A runner that can't even begin: the reason comes back, long before the bound, and the name is taken."""
    hands, mark = _waiting(tmp_path)
    hands = replace(hands, place=_Silent())
    before = time.monotonic()
    assert "before it stood ready" in runs(lambda: hands.prepare(RUN, (GPU_A,)))
    assert time.monotonic() - before < 9
    claim = read_trace(hands.directory, RUN).claim
    assert claim is not None
    assert claim.runner is None
    assert not mark.exists()


class _Silent:
    """A place whose children end at once."""

    outside_of = ""

    def fault(self) -> str:
        return ""

    async def start(self, run: AttemptId, _argv: object) -> Placed:
        return await ChildPlace().start(run, ("/bin/false",))


def test_a_directory_that_turns_unreadable_gives_no_word_and_no_end(tmp_path: Path) -> None:
    """What can't be read is unknown: neither that it runs nor that it never will."""
    hands, mark = _waiting(tmp_path)

    async def work() -> tuple[ToolState | ToolWaits, ToolState]:
        assert await hands.prepare(RUN, (GPU_A,)) == ""
        moved = hands.directory.rename(tmp_path / "elsewhere")
        hands.directory.write_text("no directory")
        try:
            return await hands.start(RUN, time.monotonic() + 0.2), await hands.withdraw(RUN)
        finally:
            hands.directory.unlink()
            moved.rename(hands.directory)
            await hands.withdraw(RUN)
            assert await _gone(hands)

    begun, withdrawn = runs(work)
    assert isinstance(begun, ToolWaits)
    assert isinstance(withdrawn, ToolUnknown)
    assert not mark.exists()
