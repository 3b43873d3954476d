"""Checks of `doctor` over the network: the cluster's API, and the receivers of webhooks.

A cluster is asked what we may do, a receiver only shakes hands over TLS: no request is sent to it. Both
may hang, and end with their child.
"""

import platform
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

from reclaimerd.cli.doctor_host import Host
from reclaimerd.cli.doctor_words import Said, fail, gravest, ok
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterAccess
from reclaimerd.host.kube_review import Deed, denied
from reclaimerd.host.web_address import address_fault, plain_fault, shown_host
from reclaimerd.model.drain_policy import Arbiter, NodeMark, WebhookTarget
from reclaimerd.model.policy import Policy

_SECONDS = 5.0
_AT_ONCE = 16
_TLS_PORT, _PLAIN_PORT = 443, 80
_LEASE = "reclaimerd-fleet"
"""The Lease by which the fleet's limit is kept; deploy/kubernetes/rbac-drain.yaml names it."""


def deeds_of(policy: Policy, node: str) -> tuple[Deed, ...]:
    """Return all that the policy would do in the cluster: nothing but its own node is written."""
    wanted = [Deed("list", "pods")]
    target = policy.drain.kubernetes
    if target is not None:
        wanted += [Deed("get", "nodes", name=node), Deed("patch", "nodes", name=node)]
        extra = {
            NodeMark.CONDITION: Deed("patch", "nodes", subresource="status", name=node),
            NodeMark.EVENT: Deed("create", "events"),
            NodeMark.EVICT: Deed("create", "pods", subresource="eviction"),
        }
        wanted += [extra[mark] for mark in target.marks if mark in extra]
    if policy.drain.fleet.arbiter is Arbiter.KUBERNETES:
        lease = Deed("get", "leases", "coordination.k8s.io", "", policy.drain.fleet.lease_namespace, _LEASE)
        wanted += [Deed("list", "nodes"), lease, replace(lease, verb="update")]
    return tuple(wanted)


def read_cluster(host: Host) -> Said:
    """Say whether the cluster's API answers our credentials, and permits what the policy needs."""
    policy = host.policy
    settings = policy.cluster
    if not settings.credentials:
        if policy.drain.kubernetes is not None:
            return fail("[drain.kubernetes] has no credentials", "set [cluster] credentials")
        return ok("the policy asks no cluster")
    node = settings.node or platform.node().lower()
    deeds = deeds_of(policy, node)
    try:
        refused = denied(ClusterAccess(settings.credentials, _SECONDS), deeds)
    except ReclaimerdError as error:
        return fail(error.message, error.mend)
    if refused:
        text = f"{settings.credentials} may not {', '.join(map(str, refused))}"
        return fail(text, "apply deploy/kubernetes/rbac-observer.yaml and, for drains, rbac-drain.yaml")
    return ok(f"the cluster permits all {len(deeds)} things that the policy needs on node {node}")


def read_webhooks(host: Host) -> Said:
    """Say whether each receiver's name resolves and its certificate is good; nothing is sent to it."""
    targets = tuple(_targets(host.policy))
    mend = "check the address, the name service, the route and ca_file"
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        faults = list(pool.map(_handshake_fault, targets))
    said = [
        fail(f"{shown_host(one.url)}: {why}", mend) for one, why in zip(targets, faults, strict=True) if why
    ]
    names = ", ".join(dict.fromkeys(shown_host(one.url) for one in targets))
    return gravest(said, ok(f"{names} can be reached" if targets else "the policy names no webhook"))


def _targets(policy: Policy) -> Iterator[WebhookTarget]:
    if policy.drain.webhook is not None:
        yield policy.drain.webhook
    yield from (notice.webhook for notice in policy.notices if notice.url)


def _handshake_fault(target: WebhookTarget) -> str:
    """Return why this receiver can't be spoken to, or ""."""
    fault = address_fault(target.url) or plain_fault(target.url, allowed=target.plain_http)
    if fault:
        return fault
    parts = urlsplit(target.url)
    is_tls = parts.scheme == "https"
    port = parts.port or (_TLS_PORT if is_tls else _PLAIN_PORT)
    host = parts.hostname or ""
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as channel:
            if is_tls:
                context = ssl.create_default_context(cafile=target.ca_file or None)
                context.wrap_socket(channel, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not good: {error.verify_message}"
    except OSError as error:  # a name that does not resolve, a refusal, a time-out and TLS are all of it
        return f"{error.strerror or error}"
    return ""
