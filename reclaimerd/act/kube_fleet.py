"""Take and give back this node's place in the fleet's count: in the child that speaks to the cluster.

What counts is the mark on each node, which does not expire. The Lease is only the mutex around list, count
and mark; a place is given only when nobody took the Lease over between its first and its last write, so a
holder that slept through its time gets none.
"""

import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from reclaimerd.act import kube_marks as marks
from reclaimerd.act.kube_api import KubeApi, is_stale, retry_stale
from reclaimerd.act.kube_marks import Json, SlotNote
from reclaimerd.act.kube_order import KubeOrder
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterRefusalError
from reclaimerd.model.drain_policy import FleetSettings
from reclaimerd.model.drain_ports import Asked, SlotTaken, SlotWaits, TargetAnswer

LEASE_SECONDS = 15
"""So long nobody may have seen a Lease change before it is taken over; a turn takes some 50 ms."""
_TURN_SECONDS = LEASE_SECONDS * 0.5
"""Past it a holder marks nothing: somebody may be about to take over."""
_PAUSE_SECONDS = (0.05, 0.4)
_MEND = "apply deploy/kubernetes/rbac-drain.yaml"


@dataclass(frozen=True, slots=True)
class KubeFleet:
    """One order about this node's place; `wait_seconds`: so long the Lease is waited for."""

    api: KubeApi
    order: KubeOrder
    wait_seconds: float = 30.0
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def take(self) -> SlotTaken | SlotWaits:
        """Take this node's place while there is room, or keep it: the same for the same request."""
        node = self._node()
        if fault := marks.boot_fault(node, self.order.access.boot_id):
            return SlotWaits(fault)
        if self._asked(node):
            return SlotTaken(f"node {self._name} carries this request's marks already")
        nodes = self._count_nodes()
        if not self._holds(node) and (why := self._why_full(nodes)):
            return SlotWaits(why)  # most of a full fleet never touches the Lease
        lease = self._acquire()
        if isinstance(lease, SlotWaits):
            return lease
        try:
            why = self._count_and_mark(nodes)
        except ReclaimerdError:
            # One node that may not be written must not keep all others waiting for its Lease to be dead.
            with suppress(ReclaimerdError):
                self._let_go(lease)
            raise
        if not self._let_go(lease):
            why = why or "another node took the Lease over in the meantime: counted again"
        if why:
            self.release()
            return SlotWaits(why)
        return SlotTaken(f"a place among the {nodes} nodes of the cluster, marked on node {self._name}")

    def _count_and_mark(self, nodes: int) -> str:
        """Mark the node where there is room, in time; return why it was not, or ""."""
        began = self.monotonic()
        why = self._why_full(nodes)
        if not why and self.monotonic() - began > _TURN_SECONDS:
            why = "the cluster was too slow to count in one turn"
        if not why:
            retry_stale(self._mark)
        return why

    def release(self) -> TargetAnswer:
        """Give the place back, if it is this request's."""
        try:
            return retry_stale(self._unmark)
        except ClusterRefusalError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return Asked(f"there is no node {self._name} any more")
            raise

    @property
    def _name(self) -> str:
        return self.order.access.node

    @property
    def _settings(self) -> FleetSettings:
        return self.order.fleet

    def _node(self) -> Json:
        return self.api.node(self._name)

    def _asked(self, node: Json) -> bool:
        note = marks.request_note(node)
        return note is not None and note.id == self.order.request.id

    def _holds(self, node: Json) -> bool:
        note = marks.slot_note(node)
        return note is not None and note.id == self.order.request.id

    def _count_nodes(self) -> int:
        """Return how many nodes the cluster has, or so many as the limit does not grow any more."""
        count = 0
        for _ in self.api.nodes():
            count += 1
            if self._settings.limit(count) >= self._settings.nodes:
                break
        return count

    def _why_full(self, nodes: int) -> str:
        """Return why there is no room beside all other nodes that carry our label."""
        found = [marks.fleet_mark(node) for node in self.api.marked_nodes()]
        why = self._settings.why_full(self._name, self.order.request.code, found, nodes)
        enough = self._settings.limit(nodes) >= self._settings.nodes
        return f"{why}; so many nodes or more, which is enough to know the limit" if why and enough else why

    def _mark(self) -> None:
        node = self._node()
        if self._holds(node):
            return
        request = self.order.request
        note = SlotNote(request.id, request.code.value, self._name, self.wall())
        self.api.patch_node(self._name, marks.slot_patch(node, note))

    def _unmark(self) -> TargetAnswer:
        node = self._node()
        if not self._holds(node):
            return Asked(f"node {self._name} held no place of this request")
        self.api.patch_node(self._name, marks.no_slot_patch(node))
        return Asked(f"node {self._name} gave its place back")

    def _acquire(self) -> Json | SlotWaits:
        """Return the Lease once it is ours; a holder that nobody saw writing for its time is dead."""
        until = self.monotonic() + self.wait_seconds
        version, since = "", 0.0
        while self.monotonic() < until:
            lease = self._lease()
            if isinstance(lease, SlotWaits):
                return lease
            if lease["metadata"]["resourceVersion"] != version:
                version, since = lease["metadata"]["resourceVersion"], self.monotonic()
            holder = (lease.get("spec") or {}).get("holderIdentity")
            if not holder or self.monotonic() - since >= LEASE_SECONDS:
                held = self._write(lease, f"{self._name}/{secrets.token_hex(4)}")
                if held is not None:
                    return held
            self.sleep(random.uniform(*_PAUSE_SECONDS))  # noqa: S311  # no secret: it spreads a fleet
        return SlotWaits("other nodes are counting: the Lease was not free in time")

    def _lease(self) -> Json | SlotWaits:
        namespace = self._settings.lease_namespace
        try:
            return self.api.lease(namespace)
        except ClusterRefusalError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return SlotWaits(f"there is no Lease {namespace}/reclaimerd-fleet: {_MEND}")
            raise

    def _write(self, lease: Json, holder: str) -> Json | None:
        """Return the Lease with this holder ("": nobody); None when somebody else wrote it first."""
        now = datetime.fromtimestamp(self.wall(), UTC).isoformat(timespec="microseconds")
        before = lease.get("spec") or {}
        spec = {
            **before,
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.replace("+00:00", "Z"),
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (1 if holder else 0),
        }
        try:
            return self.api.replace_lease({**lease, "spec": spec})
        except ClusterRefusalError as error:
            if is_stale(error):
                return None
            raise

    def _let_go(self, lease: Json) -> bool:
        """Free the Lease; false when it was no longer ours, and this turn was not the only one."""
        return self._write(lease, "") is not None
