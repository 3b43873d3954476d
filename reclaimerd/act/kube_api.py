"""The calls of a cluster's API that a drain needs, over lightkube: in the child alone, since they block.

No call decides anything, and none deletes. Every write of a node holds only for the node as it was read.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from reclaimerd.act.kube_bodies import EVICTION_VERSIONS, eviction_of
from reclaimerd.act.kube_marks import LABEL, WRITER, Json
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterAccess, ClusterRefusalError, opened_cluster

if TYPE_CHECKING:
    from lightkube import Client

T = TypeVar("T")
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A DNS subdomain (Kubernetes, object names)."""
LEASE = "reclaimerd-fleet"
PAGE = 200
"""Nodes of one answer: some 10 KiB each."""
_MOST_BYTES = 256 * 1024 * 1024
"""Of one conversation, which keeps one page at a time; a count ends as soon as the limit is known."""
_TRIES = 8


def is_stale(error: BaseException) -> bool:
    """Tell whether somebody else wrote the object since it was read."""
    return isinstance(error, ClusterRefusalError) and error.code == HTTPStatus.CONFLICT


def retry_stale(read_and_write: Callable[[], T]) -> T:
    """Do it, and do it again on a fresh object when somebody else was quicker; raises the last error."""
    tries = Retrying(
        retry=retry_if_exception(is_stale),
        stop=stop_after_attempt(_TRIES),
        wait=wait_random_exponential(multiplier=0.05, max=1.0),
        reraise=True,
    )
    return tries(read_and_write)


@dataclass(frozen=True, slots=True)
class KubeApi:
    """One conversation with the cluster."""

    client: "Client"

    def node(self, name: str) -> Json:
        """Return a node; raises ClusterRefusalError (404) when there is none."""
        return dict(self.client.get(_global("Node", "nodes"), name))

    def patch_node(self, name: str, patch: Json) -> Json:
        """Write a merge patch, which holds only for the version that it names (else 409)."""
        from lightkube.types import PatchType  # noqa: PLC0415  # an extra of the package

        kind = _global("Node", "nodes")
        return dict(
            self.client.patch(kind, name, patch, patch_type=PatchType.MERGE, field_manager=WRITER),
        )

    def patch_status(self, name: str, patch: Json) -> None:
        """Write one condition; it is merged by its type, and no other is touched."""
        from lightkube.types import PatchType  # noqa: PLC0415  # the same

        kind = _global("Node", "nodes").Status
        self.client.patch(kind, name, patch, patch_type=PatchType.STRATEGIC, field_manager=WRITER)

    def create_event(self, event: Json) -> bool:
        """Write an event once: one of its name that stands already is enough; false where none can be made.

        A stuck pod keeps its namespace from ending, and there no event can be made any more.
        """
        kind = _namespaced("", "v1", "Event", "events")
        try:
            self.client.create(kind(event), field_manager=WRITER)
        except ClusterRefusalError as error:
            if _is_no_namespace(error):
                return False
            if error.code != HTTPStatus.CONFLICT:
                raise
        return True

    def pod(self, namespace: str, name: str) -> Json | None:
        """Return a pod, None when there is none."""
        try:
            return dict(self.client.get(_namespaced("", "v1", "Pod", "pods"), name, namespace=namespace))
        except ClusterRefusalError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    def evict(self, pod: tuple[str, str, str]) -> None:
        """Ask that exactly this pod be evicted, by the version of the API that the cluster knows."""
        import msgspec  # noqa: PLC0415  # an extra of the package
        from lightkube.resources.core_v1 import PodEviction  # noqa: PLC0415  # the same

        newest, *older = EVICTION_VERSIONS
        for version in (newest, *older):
            try:
                body = msgspec.convert(eviction_of(pod, version), PodEviction)
                body.apiVersion = version  # the library's conversion drops it for its own
                self.client.create(body, pod[1], namespace=pod[0])
            except ClusterRefusalError as error:
                unknown = error.code == HTTPStatus.BAD_REQUEST and version in error.said
                if not unknown or version == EVICTION_VERSIONS[-1]:
                    raise
            else:
                return

    def marked_nodes(self) -> list[Json]:
        """Return all nodes of the cluster that carry our label, from a consistent list."""
        from lightkube import operators  # noqa: PLC0415  # an extra of the package

        kind = _global("Node", "nodes")
        labels: Any = {LABEL: operators.exists()}
        return [dict(node) for node in self.client.list(kind, chunk_size=PAGE, labels=labels)]

    def nodes(self) -> Iterator[Json]:
        """Return all nodes, a page at a time."""
        kind = _global("Node", "nodes")
        yield from (dict(node) for node in self.client.list(kind, chunk_size=PAGE))

    def lease(self, namespace: str) -> Json:
        """Return the fleet's Lease."""
        kind = _namespaced("coordination.k8s.io", "v1", "Lease", "leases")
        return dict(self.client.get(kind, LEASE, namespace=namespace))

    def replace_lease(self, lease: Json) -> Json:
        """Write the Lease as it was read and changed; 409 when somebody else wrote it meanwhile."""
        kind = _namespaced("coordination.k8s.io", "v1", "Lease", "leases")
        return dict(self.client.replace(kind(lease), field_manager=WRITER))


@contextmanager
def conversation(asked: KubeAccess, seconds: float) -> Iterator[KubeApi]:
    """Return the calls for as long as the block runs; raises ReclaimerdError, also from inside of it."""
    if _NODE.fullmatch(asked.node) is None:
        raise ReclaimerdError(f"{asked.node!a} is no node's name", "name this node in [cluster] node")
    if not asked.credentials:
        raise ReclaimerdError("[cluster] has no credentials", 'write "in-cluster" or a kubeconfig\'s path')
    access = ClusterAccess(asked.credentials, seconds, _MOST_BYTES, account=Path(asked.account))
    with opened_cluster(access) as client:
        yield KubeApi(client)


def _is_no_namespace(error: ClusterRefusalError) -> bool:
    """Tell whether the namespace ends, or has ended (NamespaceLifecycle, the admission plugin's words)."""
    ends = error.code == HTTPStatus.FORBIDDEN and error.said.endswith("because it is being terminated")
    return ends or (error.code == HTTPStatus.NOT_FOUND and error.said.startswith("namespaces "))


def _global(kind: str, plural: str) -> Any:  # noqa: ANN401  # a class that the library makes
    from lightkube.generic_resource import (  # noqa: PLC0415  # an extra of the package
        create_global_resource,
        get_generic_resource,
    )

    known = get_generic_resource("v1", kind)  # type: ignore[no-untyped-call]  # the library's own
    return known or create_global_resource("", "v1", kind, plural)


def _namespaced(group: str, version: str, kind: str, plural: str) -> Any:  # noqa: ANN401  # the same
    from lightkube.generic_resource import (  # noqa: PLC0415  # an extra of the package
        create_namespaced_resource,
        get_generic_resource,
    )

    of = f"{group}/{version}" if group else version
    known = get_generic_resource(of, kind)  # type: ignore[no-untyped-call]  # the library's own
    return known or create_namespaced_resource(group, version, kind, plural)
