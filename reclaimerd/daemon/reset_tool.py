"""Have the vendor's tool made ready, give it the word right after a last look, and say what came of it.

The word is given once that it may have been taken; it is never given by a life that found the run in this
phase. Whoever turns back lets go of what stands ready. Nothing here signals the tool.
"""

from dataclasses import replace
from typing import assert_never

from reclaimerd.daemon import entries
from reclaimerd.daemon.reset_book import Moved, ResetJoints, RunBook, fault_text, refused
from reclaimerd.daemon.reset_verify import START_WITHIN_SECONDS, LastLook, look_last
from reclaimerd.model.incident import OutcomeKind
from reclaimerd.model.ports import (
    ToolEnded,
    ToolNeverRan,
    ToolRuns,
    ToolState,
    ToolUnknown,
    ToolVanished,
    ToolWaits,
)
from reclaimerd.model.reset_run import ResetFact, ResetResult, ResetRun
from reclaimerd.record import logs

LAST_LOOKS = 3


async def run_tool(book: RunBook) -> Moved:
    """Have the tool run, once and only in the life that made this phase durable, and wait for its end."""
    joints, run = book.joints, book.run
    if not book.may_start:
        return _came_of(book, await joints.tool.wait(run.id, _seconds_left(book)))
    state = await _begin(book)
    if isinstance(state, Moved):
        return state
    if isinstance(state, ToolRuns | ToolUnknown):
        state = await joints.tool.wait(run.id, _seconds_left(book))
    return _came_of(book, state)


async def leave_alone(book: RunBook) -> Moved | None:
    """Return None while the tool runs: nobody touches the GPU, and nothing is put back."""
    if not await tool_is_over(book.joints, book.run):
        return None
    return Moved(ResetFact.TOOL_ENDED, "the tool that was left alone has ended; its GPUs stay untouched")


async def tool_is_over(joints: ResetJoints, run: ResetRun) -> bool:
    """Tell whether the tool is seen not to run any more; what can't be told counts as a tool that runs."""
    try:
        state = await joints.tool.wait(run.id, 0.0)
    except Exception as error:  # noqa: BLE001  # the same: nobody knows
        logs.error("reset_tool_unknown", run=run.id, error=f"{type(error).__name__}: {error}")
        return False
    return not isinstance(state, ToolRuns | ToolUnknown)


async def never_ran(joints: ResetJoints, run: ResetRun) -> bool:
    """Withdraw what stands ready; tell whether the tool was never started, and now never will be."""
    try:
        state = await joints.tool.withdraw(run.id)
    except Exception as error:  # noqa: BLE001  # what can't be told counts as a tool that runs
        logs.error("reset_tool_unknown", run=run.id, error=f"{type(error).__name__}: {error}")
        return False
    return isinstance(state, ToolNeverRan)


async def _begin(book: RunBook) -> Moved | ToolState:
    """Make the tool ready, look a last time, and give the word; return a refusal, or what became of it."""
    why = await book.joints.tool.prepare(book.run.id, book.run.gpus)
    if why:
        return refused(f"the vendor's tool could not be made ready, and nothing was reset: {why}")
    late = ""
    for _ in range(LAST_LOOKS):
        try:
            look = await look_last(book)
        except Exception as error:  # noqa: BLE001  # the border: after a bug the way leads back, never on
            logs.error("reset_last_look_failed", run=book.run.id, error=fault_text(error))
            return await _turn_back(book, refused(fault_text(error)))
        if look.reasons:
            return await _turn_back(book, refused("", look.reasons))
        state = await _give_word(book, look)
        if not isinstance(state, ToolWaits):
            return state
        late = state.why
    within = f"within {START_WITHIN_SECONDS:g} s of {LAST_LOOKS} last looks"
    return await _turn_back(book, refused(f"the tool could not be started {within}: {late}"))


async def _turn_back(book: RunBook, refusal: Moved) -> Moved | ToolState:
    """Let go of what stands ready; a refusal, unless a word that was given may have been taken after all."""
    state = await book.joints.tool.withdraw(book.run.id)
    if book.may_start or isinstance(state, ToolNeverRan):
        return refusal
    return state


async def _give_word(book: RunBook, look: LastLook) -> ToolState | ToolWaits:
    joints, run = book.joints, book.run
    not_after = look.ended_at + START_WITHIN_SECONDS
    if joints.clock() >= not_after:
        return ToolWaits("the last look was judged too late")
    book.may_start = False
    try:
        state = await joints.tool.start(run.id, not_after)
    except Exception as error:  # noqa: BLE001  # whether it runs now is what its own marks say, not our bug
        logs.error("reset_tool_start_failed", run=run.id, error=f"{type(error).__name__}: {error}")
        return await joints.tool.wait(run.id, _seconds_left(book))
    if isinstance(state, ToolRuns):
        text = f"the tool runs: {state.ref}; {_looked(look, state.began_at)}"
        await book.keep(replace(run, tool=state.ref), entries.reset_step(run, text))
    return state


def _looked(look: LastLook, began_at: float | None) -> str:
    """Return how fresh the last look was; it saw the host within the time that it took."""
    took = f"the look took {look.took_seconds * 1000:.0f} ms"
    if began_at is None:
        return (
            f"looked again at most {START_WITHIN_SECONDS * 1000:.0f} ms before the tool was started ({took})"
        )
    return f"looked again {(began_at - look.ended_at) * 1000:.0f} ms before the tool was started ({took})"


def _seconds_left(book: RunBook) -> float:
    """Return how long the tool may still take, by the wall clock: it goes on while we are not there."""
    limit = book.joints.policy().ladder.reset_seconds
    began_at = book.run.tool_at if book.run.tool_at is not None else book.run.phase_at
    return min(limit, max(0.0, began_at + limit - book.joints.wall()))


def _came_of(book: RunBook, state: ToolState) -> Moved:
    match state:
        case ToolEnded(code=code, text=text):
            return _meant(book, code, text)
        case ToolNeverRan(why=why):
            return refused(f"the tool did not run, and nothing was reset: {why}")
        case ToolVanished(why=why):
            doubt = f"how the tool ended is not known: {why}"
            return Moved(ResetFact.TOOL_ENDED, doubt, run=replace(book.run, text=doubt))
        case ToolRuns(ref=ref, evidence=evidence):
            limit = book.joints.policy().ladder.reset_seconds
            text = f"the tool ({ref}) did not end within {limit:g} s and is left alone"
            seen = tuple(line for line in evidence.splitlines() if line)
            run = replace(book.run, tool=ref)
            return Moved(ResetFact.TOOL_OVERRAN, text, ResetResult.ABANDONED, run=run, evidence=seen)
        case ToolUnknown(why=why):
            text = f"whether the tool has ended can't be told, so it is left alone: {why}"
            return Moved(ResetFact.TOOL_OVERRAN, text, ResetResult.ABANDONED)
        case _:
            assert_never(state)


def _meant(book: RunBook, code: int, text: str) -> Moved:
    """Return what the tool's end means; words that we do not know are verified, and never trusted."""
    outcome = book.joints.meaning(code, text)
    said = (f"exit code {code}", *(line for line in text.splitlines() if line.strip()))
    if outcome.kind is OutcomeKind.RESET_DONE:
        return Moved(ResetFact.TOOL_ENDED, outcome.detail, evidence=said)
    if outcome.kind is OutcomeKind.RESET_NOT_VERIFIED:
        run = replace(book.run, text=outcome.detail)
        return Moved(ResetFact.TOOL_ENDED, outcome.detail, run=run, evidence=said)
    result = ResetResult.REFUSED if outcome.kind is OutcomeKind.RESET_REFUSED else ResetResult.FAILED
    return Moved(ResetFact.TOOL_SAID_NO, outcome.detail, result, evidence=said)
