"""Fleets in which we count nothing: nobody does, so nothing leaves the host; or the receiver does."""

from dataclasses import dataclass

from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_ports import Asked, SlotTaken, SlotWaits, TargetAnswer


@dataclass(frozen=True, slots=True)
class NobodyCounts:
    """No arbiter: a fleet could be drained empty, so only reports on this host are written."""

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Give no place, ever."""
        del request
        text = "nobody counts the fleet's drained nodes: only the file is written; see [drain.fleet] arbiter"
        return SlotWaits(text, report_only=True)

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """There is nothing to give back."""
        del request
        return Asked("no place was held")


@dataclass(frozen=True, slots=True)
class ReceiverCounts:
    """Whoever receives our requests keeps the limit: the administrator said so."""

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Give a place at once: the receiver decides."""
        del request
        return SlotTaken("whoever receives the request keeps the fleet's limit")

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """There is nothing to give back."""
        del request
        return Asked("the receiver keeps the count")
