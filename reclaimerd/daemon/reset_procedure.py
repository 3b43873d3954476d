"""Drive one reset from its permit to the last thing put back, whatever happens on the way.

It may not decide whether a reset is due, nor start the tool twice, signal it, or touch a GPU on which it
was left alone. Every phase is on record before anything of it is done, so a start after our death goes
on where the record stands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from reclaimerd.daemon.reset_book import Moved, ResetJoints, RunBook, fault_text, refused
from reclaimerd.daemon.reset_changes import ask_fence, prepare, restore, stop_clients
from reclaimerd.daemon.reset_ledger import rebooted, run_in
from reclaimerd.daemon.reset_tool import leave_alone, never_ran, run_tool, tool_is_over
from reclaimerd.daemon.reset_verify import look_again, verify
from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reset_run import ResetFact, ResetPhase, ResetResult
from reclaimerd.record import logs

_TOOL_MAY_RUN = (ResetPhase.RESET, ResetPhase.LEFT_ALONE)
_BEFORE_TOOL = (ResetPhase.PREPARE, ResetPhase.FENCE, ResetPhase.STOP_CLIENTS, ResetPhase.LOOK_AGAIN)


class ResetProcedure:
    """The resets of one host, one at a time."""

    __slots__ = ("_joints", "_turn")

    def __init__(self, joints: ResetJoints) -> None:
        self._joints = joints
        self._turn = asyncio.Lock()

    async def resume(self, ledger: Ledger) -> tuple[AttemptId, ...]:
        """Return the runs that an earlier life left, for `run`; call it before the first look of a start.

        While a tool of this boot may run, our own view of the driver stays closed.
        """
        left = [run for run in ledger.resets if not run.is_done]
        if any(run.boot_id == self._joints.boot_id and run.phase in _TOOL_MAY_RUN for run in left):
            await self._joints.grip.let_go()
        return tuple(run.id for run in left)

    async def look_after(self) -> tuple[AttemptId, ...]:
        """Return the runs whose tool was left alone and has ended: `run` then puts things back.

        Waits for nothing, writes nothing.
        """
        if self._turn.locked():
            return ()
        left = [run for run in self._joints.ledger().resets if run.phase is ResetPhase.LEFT_ALONE]
        return tuple([run.id for run in left if await tool_is_over(self._joints, run)])

    async def run(self, run_id: AttemptId) -> None:
        """Drive a run from the phase that it stands in to its end, or until its tool is left alone.

        Raises CorruptStoreError, when all that could be put back is put back.
        """
        async with self._turn:
            run = run_in(self._joints.ledger(), run_id)
            if run is None or run.is_done:
                return
            await self._drive(RunBook(self._joints, run))

    async def put_back(self, run_id: AttemptId) -> None:
        """Start no tool for a run, and put back what it changed; for an end of ours that has no next start.

        What was made ready is withdrawn. A run whose tool has ended is verified first. One whose tool may
        run is left as it stands: the next start goes on with it.
        """
        async with self._turn:
            run = run_in(self._joints.ledger(), run_id)
            if run is None or run.is_done:
                return
            book = RunBook(self._joints, run, in_haste=True)
            may_run = run.boot_id == self._joints.boot_id and run.phase in _TOOL_MAY_RUN
            is_ready = may_run and run.phase is ResetPhase.RESET
            if run.phase in _BEFORE_TOOL or (is_ready and await never_ran(self._joints, run)):
                await book.advance(refused("we ended before the tool was started; nothing was reset"))
            elif may_run and not await tool_is_over(self._joints, run):
                return
            await self._drive(book)

    async def _drive(self, book: RunBook) -> None:
        try:
            if book.run.boot_id != self._joints.boot_id:
                await _take_reboot(book)
            while not book.run.is_done:
                moved = await _moved(book)
                if moved is None:
                    break
                await _advance(book, moved)
        finally:
            if book.run.phase not in _TOOL_MAY_RUN or book.may_start:
                self._joints.grip.take_back()
        await book.settle()


async def _take_reboot(book: RunBook) -> None:
    """Note that the host was booted since: no tool runs any more, and most changes are put back by it."""
    run = rebooted(book.run)
    if run.phase is ResetPhase.RESTORE and run == book.run:
        return
    if run.tool_at is None:
        text, result = (
            "the host was booted before the tool was started; nothing was reset",
            ResetResult.REFUSED,
        )
    else:
        text, result = "the host was booted while the reset was under way", ResetResult.FAILED
    await book.advance(Moved(ResetFact.REBOOTED, text, result, run=run))


async def _advance(book: RunBook, moved: Moved) -> None:
    """Move the run on; where a step forward can't be put on record, it is not taken."""
    try:
        await book.advance(moved)
    except (RecordError, CorruptStoreError) as error:
        logs.error("reset_not_recorded", run=book.run.id, phase=book.run.phase.value, error=str(error))
        await book.advance(refused(fault_text(error)))


async def _moved(book: RunBook) -> Moved | None:
    """Do a phase and return how it ended, or None where nothing may be done; a fault of ours ends it too."""
    phase = book.run.phase
    try:
        if phase in _BEFORE_TOOL and (reasons := book.joints.withdrawn(book.run)):
            return refused("", reasons)
        return await _PHASES[phase](book)
    except Exception as error:  # the border: after a bug the way leads back, never on
        if phase is ResetPhase.RESTORE:
            raise
        text = fault_text(error)
    logs.error("reset_phase_failed", run=book.run.id, phase=phase.value, error=text)
    return _after_fault(book, text)


def _after_fault(book: RunBook, text: str) -> Moved | None:
    """Return the way back after a fault of ours; while the tool may run it is left alone instead."""
    if book.run.phase is ResetPhase.VERIFY:
        return Moved(ResetFact.NOT_VERIFIED, f"not verified: {text}", ResetResult.NOT_VERIFIED)
    if book.run.phase is ResetPhase.RESET and not book.may_start:
        text = f"what became of the tool can't be told, so it is left alone: {text}"
        return Moved(ResetFact.TOOL_OVERRAN, text, ResetResult.ABANDONED)
    return refused(text)


_PHASES: Mapping[ResetPhase, Callable[[RunBook], Awaitable[Moved | None]]] = {
    ResetPhase.PREPARE: prepare,
    ResetPhase.FENCE: ask_fence,
    ResetPhase.STOP_CLIENTS: stop_clients,
    ResetPhase.LOOK_AGAIN: look_again,
    ResetPhase.RESET: run_tool,
    ResetPhase.LEFT_ALONE: leave_alone,
    ResetPhase.VERIFY: verify,
    ResetPhase.RESTORE: restore,
}
