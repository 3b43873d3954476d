"""Our own hold on the driver: let go of before a reset, because an NVML client is a holder.

Implements `model.ports.DriverGripPort` over the nvml probe: while it is let go, whoever asks that probe
is told so at once and no worker is started, ordinary passes included.
"""

from reclaimerd.observe.probe import Probe

CLOSED_WHY = "our own probe is closed for a reset"


class DriverGrip:
    """The nvml probe's worker, and whether it may be started."""

    __slots__ = ("_probe",)

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    async def let_go(self) -> bool:
        """End our nvml worker and keep it ended; tell whether none of ours is left.

        Waits at most for the question in flight and a second more. An abandoned worker that lives on
        holds the driver still: then this says so and the probe stays closed until `take_back`.
        """
        return await self._probe.shut(CLOSED_WHY)

    def take_back(self) -> None:
        """Let the next question start a worker again; without `let_go` it does nothing."""
        self._probe.reopen()
