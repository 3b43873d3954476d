"""Asks a container runtime by CRI what a pod's container is called; runs in the worker `cri` alone.

For what the record on disk does not have: the pod's labels and annotations, and names where it has none. The
kubelet tells the runtime all of them once, when the pod's sandbox is made, and never again: a label that was
set later is not seen here (containerd issue 8031). So this says of a pod what it was made as.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.oci_text import names_of_labels
from reclaimerd.host.owner_text import SPARE_ANNOTATION, hosts_of, mark_of
from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe.cri_wire import (
    CONTAINERS_METHOD,
    SANDBOXES_METHOD,
    CriContainer,
    CriSandbox,
    containers_of,
    request_for,
    sandboxes_of,
)
from reclaimerd.observe.root_sockets import Call, opened, trusted_mark

MOST_BYTES = 16 * 1024 * 1024
"""As much as the kubelet's own client takes (kubernetes/cri-client, remote_runtime.go)."""
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class CriQuestion:
    """A container, and the uid of its pod, as its cgroup path proves them."""

    container_id: str
    pod_uid: str


def read_cri_names(
    sockets: Sequence[Path], asked: Sequence[CriQuestion], seconds: float
) -> dict[CriQuestion, WorkloadNames]:
    """Return what runtimes say of these containers, those left out of whom none says anything.

    All of it takes at most so many seconds, each socket its part of what is left. Raises ReclaimerdError
    when no runtime said anything at all and one of them failed.
    """
    found: dict[CriQuestion, WorkloadNames] = {}
    failures: list[str] = []
    until = time.monotonic() + seconds
    for number, socket in enumerate(sockets):
        now = time.monotonic()
        share = now + (until - now) / (len(sockets) - number)
        try:
            trusted_mark(socket)
            with opened(socket, f"the container runtime at {socket} gave no answer", MOST_BYTES) as call:
                failures += _ask_each(call, [one for one in asked if one not in found], share, found)
        except ReclaimerdError as error:
            failures.append(str(error))
    if failures and not found:
        raise ReclaimerdError(failures[0])
    return found


def _ask_each(
    call: Call, asked: Sequence[CriQuestion], until: float, found: dict[CriQuestion, WorkloadNames]
) -> list[str]:
    """Ask one runtime about each container, put answers into `found`, and return what failed.

    One pod whose answer can't be read takes no other's: its owner made it.
    """
    failures = []
    for question in asked:
        if until - time.monotonic() < _LEAST_SECONDS:
            break
        try:
            names = _ask(call, question, until)
        except ReclaimerdError as error:
            failures.append(str(error))
            continue
        if names is not None:
            found[question] = names
    return failures


def _ask(call: Call, question: CriQuestion, until: float) -> WorkloadNames | None:
    request = request_for(question.container_id)
    listed = containers_of(call(CONTAINERS_METHOD, request, _left(until)))
    containers = [one for one in listed if one.id == question.container_id]
    if len(containers) != 1 or not _is_of(containers[0].labels, question.pod_uid):
        return None
    request = request_for(containers[0].sandbox_id)
    pods = sandboxes_of(call(SANDBOXES_METHOD, request, _left(until)))
    sandboxes = [one for one in pods if one.id == containers[0].sandbox_id]
    return names_of(containers[0], sandboxes[0], question.pod_uid) if len(sandboxes) == 1 else None


def _left(until: float) -> float:
    return max(until - time.monotonic(), _LEAST_SECONDS)


def _is_of(labels: Mapping[str, str], pod_uid: str) -> bool:
    """Tell whether the kubelet's own label says this uid; none is nobody's."""
    return pod_uid != "" and names_of_labels(labels).pod_uid == pod_uid


def names_of(container: CriContainer, sandbox: CriSandbox, pod_uid: str) -> WorkloadNames | None:
    """Return what a runtime says of a container and its pod; None unless all of it is of this pod. Pure.

    `spread_known`: every label and annotation counted, also one that is too long to be told. That its owner
    set no mark is not known by this: it may have been set since.
    """
    pod, own = names_of_labels(sandbox.labels), names_of_labels(container.labels)
    if not {sandbox.uid, pod.pod_uid, own.pod_uid} == {pod_uid} != {""}:
        return None
    if (own.namespace, own.pod) != (pod.namespace, pod.pod):
        return None
    return replace(
        pod,
        container=own.container,
        hosts=hosts_of((*sandbox.labels, *sandbox.annotations), ""),
        spread_known=True,
        spare_mark=mark_of(sandbox.annotations.get(SPARE_ANNOTATION)),
    )
