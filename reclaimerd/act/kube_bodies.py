"""What a drain request says to a Kubernetes cluster: the bodies of conditions, events and evictions.

Pure, and the same each time for the same request, so that a plan shows what is sent.
"""

import hashlib
import re
from datetime import UTC, datetime

from reclaimerd.act.drain_body import request_bytes, request_line
from reclaimerd.act.kube_marks import CONDITION, WRITER, Json
from reclaimerd.model.drain import DrainRequest

MOST_MESSAGE_BYTES = 1024
"""Of an event (events.k8s.io validation), and enough for a condition."""
EVICTION_VERSIONS = ("policy/v1", "policy/v1beta1")
"""The second is all that clusters before 1.22 know."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A DNS subdomain (Kubernetes, object names)."""


def pod_of(request: DrainRequest) -> tuple[str, str, str] | None:
    """Return the offending pod, None for one whose names no pod can have: they stand in paths."""
    pod = request.pod
    return pod if pod is not None and all(map(is_name, pod[:2])) else None


def is_name(text: str) -> bool:
    """Tell whether an object may be called that."""
    return _NAME.fullmatch(text) is not None


def digest_of(request: DrainRequest) -> str:
    """Return the SHA-256 of the request as every other target gets it."""
    return hashlib.sha256(request_bytes(request)).hexdigest()


def message_of(request: DrainRequest) -> str:
    """Return the request for whoever is paged: what, where, since when, what was tried, what to do."""
    parts = [request_line(request), request.reason]
    if request.since_at is not None:
        parts.append(f"since {_time(request.since_at)}")
    if request.tried:
        parts.append(f"tried: {', '.join(request.tried)}")
    if request.mend:
        parts.append(f"do: {request.mend}")
    parts.append(f"see {request.runbook}")
    if request.evidence:
        parts.append(f"evidence: {', '.join(request.evidence)}")
    text = " ; ".join(" ".join(part.split()) for part in parts)
    return text.encode("utf-8", "replace")[:MOST_MESSAGE_BYTES].decode("utf-8", "ignore")


def bad_condition(request: DrainRequest) -> Json:
    """Return the patch of the node's status that says that the GPU could not be reclaimed."""
    reason = "".join(word.capitalize() for word in request.code.split("_"))
    return _condition("True", reason, message_of(request), request.asked_at)


def good_condition(request: DrainRequest, reason: str, at: float) -> Json:
    """Return the patch that ends it: GPUReclaimed, or RebootedAndVerified (wall-clock seconds)."""
    return _condition("False", reason, f"id={request.id} is over", at)


def _condition(status: str, reason: str, message: str, at: float) -> Json:
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": _time(at),
        "lastTransitionTime": _time(at),
    }
    return {"status": {"conditions": [condition]}}


def events_of(request: DrainRequest, node: str) -> tuple[Json, ...]:
    """Return the event on the node, and the one on the offending pod; each has one name for one request."""
    # The kubelet, too, gives the node's name for its uid: `kubectl describe node` looks for that.
    about_node = {"kind": "Node", "apiVersion": "v1", "name": node, "uid": node}
    events = [_event(request, node, "default", about_node)]
    pod = pod_of(request)
    if pod is not None:
        namespace, name, uid = pod
        about_pod = {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": uid}
        events.append(_event(request, node, namespace, about_pod))
    return tuple(events)


def _event(request: DrainRequest, node: str, namespace: str, about: Json) -> Json:
    name = hashlib.sha256(f"{node}/{request.id}/{about['kind']}".encode()).hexdigest()[:32]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{WRITER}.{name}", "namespace": namespace},
        "involvedObject": about,
        "reason": CONDITION,
        "message": message_of(request),
        "source": {"component": WRITER, "host": node},
        "firstTimestamp": _time(request.asked_at),
        "lastTimestamp": _time(request.asked_at),
        "count": 1,
        "type": "Warning",
    }


def eviction_of(pod: tuple[str, str, str], version: str) -> Json:
    """Return the eviction of exactly this pod, with its own grace: one of its name that came later stays."""
    namespace, name, uid = pod
    return {
        "apiVersion": version,
        "deleteOptions": {"kind": "DeleteOptions", "preconditions": {"uid": uid}},
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
