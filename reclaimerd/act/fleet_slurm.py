"""The fleet's limit where Slurm counts: a node's drain of ours is its mark, and nothing else is.

It changes nothing. A drain does not expire, so nor does a place: a dead node counts until we or a person
undrain it. Slurm has no lock; so the target counts once more after it asked (`drain_slurm`).
"""

from dataclasses import dataclass

from reclaimerd.act.drain_slurm import FindPlace
from reclaimerd.act.slurm_calls import SlurmCalls
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, SlurmTarget
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotTaken, SlotWaits, TargetAnswer


@dataclass(frozen=True, slots=True)
class SlurmFleet:
    """Counts the nodes that carry a drain of ours; without the target none would, and there is no place."""

    find: FindPlace
    settings: FleetSettings
    target: SlurmTarget | None

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Give a place while there is room, and to a node that has our mark; no count is no place."""
        if self.target is None:
            text = "Slurm counts only the nodes that it was asked to drain: add [drain.slurm]"
            return SlotWaits(text, report_only=True)
        place = await self.find()
        if isinstance(place, NotAsked):
            return SlotWaits(f"the drained nodes can't be counted: {place.text}")
        fleet = await SlurmCalls(place, self.target.seconds).fleet(self.settings)
        if isinstance(fleet, NotAsked):
            return SlotWaits(f"the drained nodes can't be counted: {fleet.text}")
        others = len(fleet.others(place.node))
        text = f"{others} other nodes of {fleet.nodes} are drained by us, of at most {fleet.limit}"
        if others < len(fleet.marks):
            return SlotTaken(f"the node is drained by us already: {text}")
        why = fleet.why_full(place.node, request.code)
        return SlotWaits(why) if why else SlotTaken(text)

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """There is nothing to give back but the drain itself, which its target undid."""
        del request
        return Asked("the node's drain was its place")
