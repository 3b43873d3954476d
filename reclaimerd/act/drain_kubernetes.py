"""Ask a Kubernetes cluster for a drain by marks on this node's object: `DrainTargetPort` over a child.

It drains nothing: it cordons, taints and tells, and evicts at most the offending pod. What is ours it knows
by the request's own note, and touches nothing else.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reclaimerd.act import kube_bodies as bodies
from reclaimerd.act import kube_marks as marks
from reclaimerd.act.kube_marks import Json
from reclaimerd.act.kube_order import (
    TARGET_SECONDS,
    KubeAccess,
    KubeOp,
    KubeOrder,
    asked_of_child,
)
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, KubernetesTarget, NodeMark
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotTaken, SlotWaits, TargetAnswer

_WRITER = f"?fieldManager={marks.WRITER}"
_READ = "<as read>"


@dataclass(frozen=True, slots=True)
class DrainKubernetes:
    """The Node object of this host."""

    access: KubeAccess
    settings: KubernetesTarget = field(default_factory=KubernetesTarget)
    seconds: float = TARGET_SECONDS
    earlier: Callable[[], str] = field(default=str, compare=False)
    """Tells on which node the request stands, which the policy may have renamed since; "" for none."""
    name: str = "kubernetes"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Set the marks of the policy once; an eviction that a budget refuses is tried again for a while."""
        left = await self._leave_earlier(request)
        if isinstance(left, NotAsked):
            return left
        answer = await self._ask(KubeOp.REQUEST, request)
        return replace(answer, place=self.access.node) if isinstance(answer, Asked) else answer

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Take back what this request set, and only that: another's cordon stays."""
        left = await self._leave_earlier(request)
        return left if isinstance(left, NotAsked) else await self._ask(KubeOp.WITHDRAW, request)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Return whether this request's note stands, and which of its marks somebody took away."""
        return await self._ask(KubeOp.STATUS, request)

    async def note_verified(self, request: DrainRequest) -> TargetAnswer:
        """End this request's condition after a later boot in which the GPUs are well; the rest stays."""
        return await self._ask(KubeOp.VERIFIED, request)

    def plan(self, request: DrainRequest) -> str:
        """Return each write in order, its body byte for byte, for a node that nobody has cordoned or tainted.

        What is read from the node is in brackets, and `at` is the time of the first write.
        """
        calls = [self._note_call(request), *self._telling_calls(request), *self._evict_calls(request)]
        return "\n\n".join(f"{line}\nContent-Type: {kind}\n\n{_compact(body)}" for line, kind, body in calls)

    def _note_call(self, request: DrainRequest) -> tuple[str, str, Json]:
        """Return the first write."""
        unread: Json = {"metadata": {"name": self.access.node, "resourceVersion": _READ}, "spec": {}}
        about = (self.access.node, bodies.digest_of(request), request.asked_at)
        note = marks.first_note(unread, request, self.settings, about)
        body = marks.first_patch(unread, note, self.settings)
        path = f"PATCH /api/v1/nodes/{self.access.node}{_WRITER}"
        return path, "application/merge-patch+json", body

    def _telling_calls(self, request: DrainRequest) -> list[tuple[str, str, Json]]:
        calls = []
        if NodeMark.CONDITION in self.settings.marks:
            path = f"PATCH /api/v1/nodes/{self.access.node}/status{_WRITER}"
            calls.append((path, "application/strategic-merge-patch+json", bodies.bad_condition(request)))
        if NodeMark.EVENT in self.settings.marks:
            for event in bodies.events_of(request, self.access.node):
                path = f"POST /api/v1/namespaces/{event['metadata']['namespace']}/events{_WRITER}"
                calls.append((path, "application/json", event))
        return calls

    def _evict_calls(self, request: DrainRequest) -> list[tuple[str, str, Json]]:
        pod = bodies.pod_of(request)
        if NodeMark.EVICT not in self.settings.marks or pod is None:
            return []
        namespace, name, _ = pod
        body = bodies.eviction_of(pod, bodies.EVICTION_VERSIONS[0])
        return [(f"POST /api/v1/namespaces/{namespace}/pods/{name}/eviction", "application/json", body)]

    async def _leave_earlier(self, request: DrainRequest) -> TargetAnswer | None:
        """Take this request's marks back from a node that the policy does not name any more."""
        earlier = self.earlier()
        if earlier in ("", self.access.node):
            return None
        for op in (KubeOp.WITHDRAW, KubeOp.RELEASE):
            answer = await self._ask(op, request, earlier)
            if isinstance(answer, NotAsked):
                return answer
        return None

    async def _ask(self, op: KubeOp, request: DrainRequest, node: str = "") -> TargetAnswer:
        access = replace(self.access, node=node) if node else self.access
        order = KubeOrder(op, access, request, self.seconds, self.settings, FleetSettings())
        answer = await asked_of_child(order)
        match answer:
            case SlotTaken() | SlotWaits():
                return NotAsked("the child answered another question")
            case _:
                return answer


def _compact(body: Json) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
