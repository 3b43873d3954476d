"""Whether our own view of the driver is closed because a person asked for it, until when, and its end.

Nothing of it outlives us: a start of ours asks the driver again. It touches no GPU.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from reclaimerd.observe.driver_grip import DriverGrip


@dataclass(frozen=True, slots=True)
class Released:
    """Who asked for it, why, and from when until when (wall-clock seconds)."""

    by: str
    reason: str
    since: float
    until: float


class DriverRelease:
    """The one release of a host, over the grip that resets use too."""

    __slots__ = ("_ending", "_grip", "standing")

    def __init__(self, grip: DriverGrip) -> None:
        self._grip = grip
        self._ending: asyncio.Task[None] | None = None
        self.standing: Released | None = None

    async def begin(
        self, released: Released, why: str, over: Callable[[], Awaitable[None]]
    ) -> tuple[int, ...]:
        """Close our view of the driver; `why` is what every look says meanwhile, `over` is done at its end.

        Returns the workers of ours that hold the driver all the same: then nothing is released. The end
        is set before anything is waited for: whoever asked may go away meanwhile.
        """
        self.stop()
        self.standing = released
        ending = self._end_after(released.until - released.since, over)
        self._ending = asyncio.get_running_loop().create_task(ending)
        if await self._grip.release(why):
            return ()
        left = self._grip.left()
        self.end()
        return left

    def end(self) -> Released | None:
        """Open our view again, now; return what stood."""
        self.stop()
        ended, self.standing = self.standing, None
        self._grip.end_release()
        return ended

    def stop(self) -> None:
        """Let no end come by itself any more."""
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.cancel()

    async def _end_after(self, seconds: float, over: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(seconds)
        self._ending = None  # or its own end would cancel it before it is told
        self.end()
        await over()
