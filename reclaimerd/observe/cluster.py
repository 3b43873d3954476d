"""Asks the cluster's API which pods this node has, and how each of them is; in the cluster's worker alone.

It returns the whole list or none, and judges nothing. The list is a consistent one (no resourceVersion is
named): a cache that lags could show a pod that exists as gone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterAccess, opened_cluster
from reclaimerd.host.node_name import node_name
from reclaimerd.host.owner_text import SPREADING_KEYS
from reclaimerd.model.allocation import PodState

PAGE = 250
"""Pods of one request: twice what a node has by default (kubelet, maxPods)."""
MOST_TEXT = 4 * 1024 * 1024
"""Characters of labels and annotations that are kept of all pods: far more than honest ones have."""
MOST_SKEW_SECONDS = 30.0
"""A pod's deadline is by the cluster's clock and judged by ours: a quarter of the margin beyond it."""
_OUR_ANNOTATIONS = "reclaimerd.io/"
"""Of others only the names count that tell of a job over several hosts: they may hold secrets too."""
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A node's name is a DNS subdomain (Kubernetes, object names)."""
_NODE_MEND = "name this node in [cluster] node as `kubectl get nodes` does"
_MIRROR = "kubernetes.io/config.mirror"


def this_node(given: str) -> str:
    """Return the node's name (`node_name`). Raises ReclaimerdError for one that no node can have."""
    name = node_name(given)
    if _NODE.fullmatch(name) is None:
        raise ReclaimerdError(f"{name!a} is no node's name", _NODE_MEND)
    return name


@dataclass(frozen=True, slots=True)
class _Owner:
    kind: str
    name: str
    controller: bool = False


@dataclass(frozen=True, slots=True)
class _About:
    """What is read of a pod's metadata; the names are the API's own."""

    uid: str
    namespace: str
    name: str
    deletionTimestamp: datetime | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class _Spec:
    nodeName: str  # noqa: N815
    terminationGracePeriodSeconds: int | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class _Status:
    phase: str = ""


@dataclass(frozen=True, slots=True)
class _Pod:
    """What is read of a pod: all else may be of any form, so that no later Kubernetes breaks the list."""

    metadata: _About
    spec: _Spec
    status: _Status = _Status()


def read_pods(access: ClusterAccess, node: str) -> tuple[PodState, ...]:
    """Return all pods of this node; raises ReclaimerdError when there is no whole list.

    A node without any pod is taken for a wrong name: every real one has some of the system's.
    """
    with opened_cluster(replace(access, most_skew_seconds=MOST_SKEW_SECONDS)) as client:
        # Here and not above: extras of the package.
        import msgspec  # noqa: PLC0415
        from lightkube.generic_resource import create_namespaced_resource, get_generic_resource  # noqa: PLC0415

        known = get_generic_resource("v1", "Pod")  # type: ignore[no-untyped-call]  # the library's own
        kind = known or create_namespaced_resource("", "v1", "Pod", "pods")
        listed = client.list(kind, namespace="*", chunk_size=PAGE, fields={"spec.nodeName": node})
        pods = [msgspec.convert(dict(pod), _Pod) for pod in listed]
        where = f"the cluster at {client.config.cluster.server}"
    if not pods:
        raise ReclaimerdError(f"{where} has no pods on the node {node}", _NODE_MEND)
    fault = _fault_of(pods, node)
    if fault:
        raise ReclaimerdError(f"{where} sent what can't be read: {fault}")
    states = tuple(map(_state, pods))
    if sum(len(f"{key}{value}") for one in states for key, value in one.labels + one.annotations) > MOST_TEXT:
        raise ReclaimerdError(f"{where}: the labels of the pods on {node} are too long to be kept")
    return states


def _fault_of(pods: Sequence[_Pod], node: str) -> str:
    """Return what makes the list none of this node's pods, "" when nothing does."""
    if any(pod.spec.nodeName != node for pod in pods):
        return "a pod of another node"
    if not all(pod.metadata.uid and pod.metadata.namespace and pod.metadata.name for pod in pods):
        return "a pod without a name"
    if len({pod.metadata.uid for pod in pods}) < len(pods):
        return "a pod that is named twice"
    times = [pod.metadata.deletionTimestamp for pod in pods]
    return "a time without its zone" if any(time and time.tzinfo is None for time in times) else ""


def _kept(notes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield our own annotations, and the bare names of those that tell of a job over several hosts."""
    for key, value in notes.items():
        if key.startswith(_OUR_ANNOTATIONS):
            yield key, value
        elif key in SPREADING_KEYS:
            yield key, ""


def _state(pod: _Pod) -> PodState:
    """Return one pod as far as it is kept."""
    about, grace = pod.metadata, pod.spec.terminationGracePeriodSeconds
    notes = about.annotations or {}
    owners = [f"{one.kind}/{one.name}" for one in about.ownerReferences or () if one.controller]
    deletes = about.deletionTimestamp
    return PodState(
        uid=about.uid,
        namespace=about.namespace,
        name=about.name,
        phase=pod.status.phase,
        deletes_at=None if deletes is None else deletes.timestamp(),
        grace_seconds=None if grace is None else float(grace),
        labels=tuple(sorted((about.labels or {}).items())),
        annotations=tuple(sorted(_kept(notes))),
        owner=owners[0] if owners else "",
        mirror=notes.get(_MIRROR, ""),
    )
