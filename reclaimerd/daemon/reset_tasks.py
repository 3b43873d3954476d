"""The resets under way, each a task of its own beside the passes; it goes on when whoever asked goes away.

Decides nothing: the procedure has the steps, the ledger the truth.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ledger import Ledger
from reclaimerd.record import logs


class ResetTasks:
    """Runs of the reset procedure by attempt."""

    __slots__ = ("_procedure", "_tasks", "_wake")

    def __init__(self, procedure: ResetProcedure, wake: Callable[[], None]) -> None:
        self._procedure = procedure
        self._tasks: dict[AttemptId, asyncio.Task[None]] = {}
        self._wake = wake

    def begin(self, run: AttemptId) -> None:
        """Let a durable run go on from where it stands; one that goes on already is left to itself."""
        if run in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._procedure.run(run))
        self._tasks[run] = task
        task.add_done_callback(lambda done: self._ended(run, done))

    async def resume(self, ledger: Ledger) -> None:
        """Take up what an earlier life left; before the first look, as our NVML client would be a holder."""
        for run in await self._procedure.resume(ledger):
            self.begin(run)

    async def keep_off(self, ledger: Ledger) -> None:
        """Take up nothing, and ask the driver nothing while a tool that an earlier life started may run."""
        await self._procedure.resume(ledger)

    async def look_after(self) -> None:
        """Go on with a reset whose tool was left alone and has ended since; waits for nothing."""
        for run in await self._procedure.look_after():
            self.begin(run)

    async def put_back(self, ledger: Ledger) -> None:
        """Start no tool any more, and put back what was changed, where none may be running."""
        await self.stop()
        for run in ledger.resets:
            if not run.is_done:
                await self._procedure.put_back(run.id)

    async def stop(self) -> None:
        """Let go of all of them where they stand: the record says how to go on."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _ended(self, run: AttemptId, task: asyncio.Task[None]) -> None:
        self._tasks.pop(run, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.error("reset_broke_off", run=run, error=f"{type(error).__name__}: {error}")
        self._wake()
