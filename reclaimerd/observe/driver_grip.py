"""Our own hold on the driver: let go of for a reset, or while a person works on the driver by hand.

An NVML client is a holder. Implements `model.ports.DriverGripPort` over the nvml probe: while it is let go,
whoever asks that probe is told so at once and no worker is started, ordinary passes included. A reset and a
person each have their own hold on that: it is taken back when neither needs it closed.
"""

from reclaimerd.observe.probe import Probe

CLOSED_WHY = "our own probe is closed for a reset"


class DriverGrip:
    """The nvml probe's worker, and whether it may be started."""

    __slots__ = ("_for_reset", "_probe", "_released_why")

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._for_reset = False
        self._released_why = ""

    async def let_go(self) -> bool:
        """End our nvml worker for a reset and keep it ended; tell whether none of ours is left.

        Waits at most for the question in flight and a second more. An abandoned worker that lives on
        holds the driver still: then this says so and the probe stays closed until `take_back`.
        """
        self._for_reset = True
        return await self._probe.shut(self._released_why or CLOSED_WHY)

    def take_back(self) -> None:
        """Let the next question start a worker again after a reset; without `let_go` it does nothing."""
        self._for_reset = False
        if not self._released_why:
            self._probe.reopen()

    async def release(self, why: str) -> bool:
        """End our nvml worker for a person, as `let_go` does for a reset; `why` is what askers are told."""
        self._released_why = why
        return await self._probe.shut(why)

    def end_release(self) -> None:
        """End what `release` began; while a reset needs the probe closed, it stays closed."""
        self._released_why = ""
        if not self._for_reset:
            self._probe.reopen()

    def left(self) -> tuple[int, ...]:
        """Return our workers of the driver that live, one that was killed and has not ended too."""
        return self._probe.worker_pids()
