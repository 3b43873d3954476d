"""The fleet's limit where a Kubernetes cluster counts: `FleetPort` over a child that speaks to it.

A node's mark is its place; it never expires, so a dead node counts until we or a person take its mark away.
A cluster that can't be asked gives no place.
"""

from dataclasses import dataclass

from reclaimerd.act.kube_order import FLEET_SECONDS, KubeAccess, KubeOp, KubeOrder, asked_of_child
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, KubernetesTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, SlotTaken, SlotWaits, TargetAnswer


@dataclass(frozen=True, slots=True)
class KubernetesFleet:
    """Counts the nodes of the cluster that carry a mark of ours."""

    access: KubeAccess
    settings: FleetSettings
    seconds: float = FLEET_SECONDS

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Take this node's place while there is room, or keep the one that it has."""
        answer = await asked_of_child(self._order(KubeOp.TAKE, request))
        match answer:
            case SlotTaken() | SlotWaits():
                return answer
            case Asked(text=text) | Foreign(text=text) | NotAsked(text=text):
                return SlotWaits(f"the drained nodes can't be counted: {text}")

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """Give the place back, if it is this request's."""
        answer = await asked_of_child(self._order(KubeOp.RELEASE, request))
        match answer:
            case SlotTaken(text=text) | SlotWaits(text=text):
                return NotAsked(text)
            case _:
                return answer

    def _order(self, op: KubeOp, request: DrainRequest) -> KubeOrder:
        return KubeOrder(op, self.access, request, self.seconds, KubernetesTarget(), self.settings)
