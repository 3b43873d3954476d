"""Mark this node for a drain request and take the marks back: in the child that speaks to the cluster.

The order is fixed: the note with cordon and taint in one write, the condition, the events, the eviction.
Each step may be done twice, so that a death at any point is mended by asking again.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus

from reclaimerd.act import kube_bodies as bodies
from reclaimerd.act import kube_marks as marks
from reclaimerd.act.kube_api import KubeApi, retry_stale
from reclaimerd.act.kube_marks import Json, RequestNote
from reclaimerd.act.kube_order import KubeOrder
from reclaimerd.host.kube_client import ClusterRefusalError
from reclaimerd.model.drain_policy import NodeMark
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

_MIRROR = "kubernetes.io/config.mirror"
_ENDED = ("Succeeded", "Failed")
_PASSING = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS)
_TOLD = (NodeMark.CONDITION, NodeMark.EVENT)


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """One order about this node's marks; `wall` is the clock."""

    api: KubeApi
    order: KubeOrder
    wall: Callable[[], float] = time.time

    def request(self) -> TargetAnswer:
        """Set what the policy wants and nobody has set or taken away; evict last."""
        found = retry_stale(self._mark)
        if not isinstance(found, RequestNote):
            return found
        found = self._tell(found)
        refused = self._evict(found)
        if isinstance(refused, NotAsked):
            return refused
        node = self._node()
        note = marks.request_note(node) or found
        return Asked(marks.standing_text(node, note) + (f"; {refused}" if refused else ""))

    def withdraw(self) -> TargetAnswer:
        """Take back what is ours by this request's own note, the note last."""
        try:
            node = self._node()
        except ClusterRefusalError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return Asked(f"there is no node {self._name} any more")
            raise
        self._end_condition(node, "GPUReclaimed")
        return retry_stale(self._unmark)

    def status(self) -> TargetAnswer:
        """Return what of this request stands; changes nothing."""
        node = self._node()
        note = self._own_note(node)
        if note is None:
            return NotAsked(f"nothing of ours stands on node {self._name}")
        return Asked(marks.standing_text(node, note))

    def verified(self) -> TargetAnswer:
        """End the condition of a node that was booted again and whose GPUs are well; the rest stays."""
        if self._end_condition(self._node(), marks.VERIFIED):
            return Asked(f"node {self._name}: the condition is False now")
        return Asked(f"node {self._name} has no condition of ours that is True")

    @property
    def _name(self) -> str:
        return self.order.access.node

    def _node(self) -> Json:
        return self.api.node(self._name)

    def _own_note(self, node: Json) -> RequestNote | None:
        note = marks.request_note(node)
        return note if note is not None and note.id == self.order.request.id else None

    def _mark(self) -> RequestNote | TargetAnswer:
        """Note the request on the node, with cordon and taint, where it is not noted."""
        request, settings = self.order.request, self.order.target
        node = self._node()
        if fault := marks.boot_fault(node, self.order.access.boot_id):
            return NotAsked(fault)
        if other := marks.anothers_request(node, request):
            return Foreign(f"kept as it is: node {self._name} carries another request of ours: {other}")
        note = self._own_note(node)
        if note is not None:
            return note
        if marks.is_cordoned(node) and set(settings.marks) == {NodeMark.CORDON}:
            return Foreign(f"kept as it is: somebody else has cordoned node {self._name}")
        about = (self._name, bodies.digest_of(request), self.wall())
        note = marks.first_note(node, request, settings, about)
        self.api.patch_node(self._name, marks.first_patch(node, note, settings))
        return note

    def _tell(self, note: RequestNote) -> RequestNote:
        """Set the condition and write the events, and note that it was done."""
        request = self.order.request
        wanted = [mark for mark in _TOLD if mark in self.order.target.marks]
        due = [mark for mark in wanted if not note.has(mark)]
        # Asked again in the boot that had ended it, a cause is seen anew.
        again = NodeMark.CONDITION in wanted and marks.ended_by_boot(self._node(), request)
        if NodeMark.CONDITION in due or again:
            self.api.patch_status(self._name, bodies.bad_condition(request))
        if NodeMark.EVENT in due:
            for event in bodies.events_of(request, self._name):
                self.api.create_event(event)
        return self._noted(note, due)

    def _noted(self, note: RequestNote, done: Collection[NodeMark]) -> RequestNote:
        """Note marks as set, on a fresh node, where the note still stands."""
        if not done:
            return note

        def write() -> RequestNote:
            node = self._node()
            stands = self._own_note(node)
            if stands is None:
                return note
            patch, after = marks.noted_patch(node, stands, done)
            self.api.patch_node(self._name, patch)
            return after

        return retry_stale(write)

    def _evict(self, note: RequestNote) -> str | NotAsked:
        """Evict the offending pod once; return what came of it, or that it is to be tried again."""
        pod = bodies.pod_of(self.order.request)
        if NodeMark.EVICT not in self.order.target.marks or note.has(NodeMark.EVICT):
            return ""
        if pod is None:
            return "no pod is named, and none is evicted"
        why = self._why_not_evicted(pod)
        if not why:
            try:
                self.api.evict(pod)
                why = "is being evicted"
            except ClusterRefusalError as error:
                refused = self._refused(error, note)
                if isinstance(refused, NotAsked):
                    return refused
                why = refused
        self._noted(note, [NodeMark.EVICT])
        return f"pod {pod[0]}/{pod[1]} {why}"

    def _refused(self, error: ClusterRefusalError, note: RequestNote) -> str | NotAsked:
        """Return what a refused eviction means: nothing is ever deleted instead."""
        pod = bodies.pod_of(self.order.request)
        if error.code == HTTPStatus.NOT_FOUND or (
            pod is not None and self._why_not_evicted(pod) == "is gone"
        ):
            return "is gone"
        if error.code not in _PASSING and error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise error
        what = "a disruption budget" if error.code == HTTPStatus.TOO_MANY_REQUESTS else "the cluster"
        said = f"refused by {what} (HTTP {error.code}): {error.said}"
        limit = self.order.target.evict_seconds
        if self.wall() - note.at < limit:
            return NotAsked(
                f"{marks.standing_text(self._node(), note)}; the eviction was {said}; tried again"
            )
        return f"was not evicted within {limit:g} s: {said}; a person decides"

    def _why_not_evicted(self, pod: tuple[str, str, str]) -> str:
        """Return why the pod is left alone, "" when it is to be evicted."""
        namespace, name, uid = pod
        if marks.takes_pods(self._node()):
            return "is not evicted: the node takes pods, and the next one would get its GPU"
        found = self.api.pod(namespace, name)
        if found is None or found["metadata"].get("uid") != uid:
            return "is gone"
        about = found["metadata"]
        owners = [one.get("kind") for one in about.get("ownerReferences") or () if one.get("controller")]
        elsewhere = found.get("spec", {}).get("nodeName") != self._name
        reasons = (
            (elsewhere, "is not evicted: it is not on this node"),
            ("deletionTimestamp" in about, "is ending already"),
            (found.get("status", {}).get("phase") in _ENDED, "has ended already"),
            (_MIRROR in (about.get("annotations") or {}), "is not evicted: it is a static pod"),
            ("DaemonSet" in owners, "is not evicted: its DaemonSet would start it again"),
        )
        return next((text for stands, text in reasons if stands), "")

    def _end_condition(self, node: Json, reason: str) -> bool:
        if marks.condition_of(node, self.order.request) is None:
            return False
        body = bodies.good_condition(self.order.request, reason, self.wall())
        self.api.patch_status(self._name, body)
        return True

    def _unmark(self) -> TargetAnswer:
        node = self._node()
        note = self._own_note(node)
        if note is None:
            return Asked(f"nothing of ours stands on node {self._name}")
        patch = marks.last_patch(node, note)
        after = self.api.patch_node(self._name, patch)
        cordoned = marks.is_cordoned(after)
        kept = "; it stays cordoned, which is not ours to end" if cordoned else ""
        return Asked(f"node {self._name}: {', '.join(note.marks) or 'the note'} taken back{kept}")
