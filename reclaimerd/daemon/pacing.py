"""When passes happen: at the interval, and early when something happened. Only this sleeps."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

LEAST_GAP_SECONDS = 0.005
"""A flood of events costs at most this many passes, and a proof still comes within 20 ms."""


@dataclass(slots=True)
class Pacing:
    """An alarm clock that events may ring early, and a count of passes that people may wait for."""

    clock: Callable[[], float]
    _rung: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _done: asyncio.Condition = field(default_factory=asyncio.Condition)
    passes: int = 0

    def wake(self) -> None:
        """Ask for a pass now."""
        self._rung.set()

    def stop(self) -> None:
        """Ask the loop to end."""
        self._stop.set()
        self._rung.set()

    @property
    def stopping(self) -> bool:
        """Tell whether the loop is to end."""
        return self._stop.is_set()

    async def stopped(self) -> None:
        """Wait until the loop is asked to end."""
        await self._stop.wait()

    async def sleep_until(self, at: float) -> None:
        """Wait until `at` (monotonic seconds), or until something rings."""
        await asyncio.sleep(LEAST_GAP_SECONDS)
        left = at - self.clock()
        if left > 0 and not self._rung.is_set():
            try:
                async with asyncio.timeout(left):
                    await self._rung.wait()
            except TimeoutError:
                pass
        self._rung.clear()

    async def passed(self) -> None:
        """Count a pass that succeeded, and tell whoever waits for one."""
        async with self._done:
            self.passes += 1
            self._done.notify_all()

    async def wait_for_pass(self, after: int, seconds: float) -> bool:
        """Wait until more than `after` passes have succeeded; tell whether it happened in time."""
        try:
            async with asyncio.timeout(seconds), self._done:
                await self._done.wait_for(lambda: self.passes > after)
        except TimeoutError:
            return False
        return True
