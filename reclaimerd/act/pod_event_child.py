"""The child that puts a warning on a pod: `python -m reclaimerd.act.pod_event_child`, an order on its stdin.

It reads the pod first, since one of its name that came later is another's, and prints one answer.
"""

import hashlib
from datetime import UTC, datetime
from typing import NoReturn

from reclaimerd.act.kube_api import KubeApi, conversation
from reclaimerd.act.kube_bodies import is_name
from reclaimerd.act.kube_marks import WRITER, Json
from reclaimerd.act.kube_order import KubeAnswer, answer_one
from reclaimerd.act.pod_events import REASON, EventOrder
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.drain_ports import Asked, NotAsked

_MOST_TEXT = 1024
"""Of an event's message (events.k8s.io validation)."""


def main() -> NoReturn:
    """Read the order, do it, and print the answer as one JSON object."""
    answer_one(EventOrder, answer_to)


def answer_to(order: EventOrder) -> KubeAnswer:
    """Return what came of it; what goes wrong is an answer too."""
    try:
        with conversation(order.access, order.seconds) as api:
            return answer_of_cluster(api, order)
    except ReclaimerdError as error:
        return NotAsked(str(error))


def answer_of_cluster(api: KubeApi, order: EventOrder) -> KubeAnswer:
    """Make the event, on exactly this pod; raises ReclaimerdError."""
    if not (is_name(order.namespace) and is_name(order.pod)):  # they stand in a path
        return NotAsked("no pod can have that name")
    pod = api.pod(order.namespace, order.pod)
    if pod is None or pod.get("metadata", {}).get("uid") != order.uid:
        return NotAsked("the cluster has no such pod any more")
    if not api.create_event(event_of(order)):
        return NotAsked("its namespace is ending, and no event can be made there")
    return Asked("the event stands")


def event_of(order: EventOrder) -> Json:
    """Return the event's body; the same warning has the same name, and stands there once."""
    name = hashlib.sha256(f"{order.uid}/{order.id}".encode()).hexdigest()[:32]
    at = datetime.fromtimestamp(order.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": order.namespace, "name": order.pod}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{WRITER}.{name}", "namespace": order.namespace},
        "involvedObject": {**about, "uid": order.uid},
        "reason": REASON,
        "message": order.text[:_MOST_TEXT],
        "source": {"component": WRITER, "host": order.access.node},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "type": "Warning",
    }


if __name__ == "__main__":
    main()
