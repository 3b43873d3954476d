"""The warnings under way, each a task of its own beside the passes: no pass waits for a terminal or a hook.

Decides nothing. What came of a warning is kept until a pass has put it on record.
"""

import asyncio
from collections.abc import Callable

from reclaimerd.daemon.admission import Work
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Outcome
from reclaimerd.model.ports import ExecutorPort
from reclaimerd.record import logs


class WarningTasks:
    """Warnings by attempt."""

    __slots__ = ("_done", "_executor", "_tasks", "_wake")

    def __init__(self, executor: ExecutorPort, wake: Callable[[], None]) -> None:
        self._executor = executor
        self._wake = wake
        self._tasks: dict[AttemptId, asyncio.Task[None]] = {}
        self._done: dict[AttemptId, tuple[Work, Outcome]] = {}

    def begin(self, work: Work) -> None:
        """Give a warning whose intent is durable."""
        task = asyncio.get_running_loop().create_task(self._warn(work))
        self._tasks[work.attempt.id] = task
        task.add_done_callback(lambda done: self._ended(work.attempt.id, done))

    @property
    def under_way(self) -> frozenset[AttemptId]:
        """Return the attempts that have no outcome on record yet, and will have one."""
        return frozenset((*self._tasks, *self._done))

    def finished(self) -> tuple[tuple[Work, Outcome], ...]:
        """Return what came of warnings and is not on record yet."""
        return tuple(self._done.values())

    def recorded(self, work: tuple[tuple[Work, Outcome], ...]) -> None:
        """Let go of what is on record now."""
        for item, _ in work:
            self._done.pop(item.attempt.id, None)

    async def stop(self) -> None:
        """Let go of all of them where they stand: a warning without an outcome is given again."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, attempt: AttemptId, task: asyncio.Task[None]) -> None:
        """Forget a task; one that broke off has no outcome, and the next pass gives its attempt UNKNOWN."""
        self._tasks.pop(attempt, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.error("warning_broke_off", attempt=attempt, error=f"{type(error).__name__}: {error}")

    async def _warn(self, work: Work) -> None:
        (outcome,) = await self._executor.execute_all([work.permit])
        self._done[work.attempt.id] = (work, outcome)
        self._wake()
