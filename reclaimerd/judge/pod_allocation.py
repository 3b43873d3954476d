"""Say whether a process in a pod was given the GPU that it holds: the kubelet's list and its container.

A verdict against somebody needs every doubt excluded, one by one; whatever is left over is UNKNOWN, which
leads to no act. The environment of a process proves nothing and is not looked at. Pure.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reclaimerd.judge.device_ids import Place, place_of
from reclaimerd.judge.lingering import unknown
from reclaimerd.model.allocation import (
    Allocation,
    AllocationRuling,
    AllocationTerms,
    AllocationView,
    ContainerAllocation,
)
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.process import ProcessReading, WorkloadNames
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

_STATIC_POD = re.compile(r"pod[0-9a-f]{32}(?![0-9a-f_-])", re.ASCII)
"""A pod that the kubelet runs from a file bears a hash in the place of a UID."""
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class _Case:
    """One process on one GPU, its pod's part of the list, and what its devices stand for."""

    reading: ProcessReading
    gpu: GpuUuid
    snapshot: Snapshot
    view: AllocationView
    terms: AllocationTerms
    names: WorkloadNames
    own: tuple[ContainerAllocation, ...]
    others: tuple[ContainerAllocation, ...]
    """The other containers of its pod."""


def pod_allocation(
    reading: ProcessReading, gpu: GpuUuid, seen: tuple[Snapshot, float], terms: AllocationTerms
) -> Allocation:
    """Return the answer on a process in a pod, by the kubelet's list (`seen`: the look, and now)."""
    view = _fresh_list(reading, seen, terms)
    if isinstance(view, str):
        return unknown(view)
    names = reading.workload.names
    if names is None or not (names.namespace and names.pod and names.container):
        return unknown("the names of its pod and container are not known")
    pod = view.of_pod(names.namespace, names.pod)
    own = tuple(one for one in pod if one.container == names.container)
    others = tuple(one for one in pod if one.container != names.container)
    snapshot, now = seen
    case = _Case(reading, gpu, snapshot, view, terms, names, own, others)
    return _allowed(case) or _judged(case, now)


def outside_pods(reading: ProcessReading, seen: tuple[Snapshot, float], terms: AllocationTerms) -> Allocation:
    """Return the answer on a process that belongs to no pod, by the kubelet alone."""
    _, now = seen
    view = _fresh_list(reading, seen, terms)
    if isinstance(view, str):
        return unknown(view)
    name = reading.workload.name
    if not terms.outside_pods:
        return unknown(f"it belongs to no pod ({name})")
    doubt = next(_list_doubts(view, now, terms), "")
    if doubt:
        return unknown(doubt)
    evidence = (_list_text(view, now),)
    text = f"it belongs to no pod ({name}), and the kubelet gives GPUs to pods alone"
    return Allocation(AllocationRuling.UNALLOCATED, text, evidence)


def _fresh_list(
    reading: ProcessReading, seen: tuple[Snapshot, float], terms: AllocationTerms
) -> AllocationView | str:
    """Return the kubelet's list, or why nothing can be said by it of this process."""
    snapshot, now = seen
    view = snapshot.allocations
    if not isinstance(view, Known):
        return view.why
    stale = now - view.value.read_at
    if not stale <= terms.stale_seconds:
        return f"the kubelet's list is {stale:.0f} s old"
    if not reading.workload.trusted:
        return "its cgroup path proves nothing: not all of it is root's"
    return view.value


def _allowed(case: _Case) -> Allocation | None:
    """Return ALLOWED when its container, or another of its pod where that counts, was given the GPU."""
    shared = case.others if case.terms.pod_shares else ()
    for container in (*case.own, *shared):
        for device, place in _placed(container, case):
            if not _covers(place, case):
                continue
            whose = "it was" if container in case.own else f"container {container.container} of its pod was"
            evidence = (f"{_name(container)}: {device}",)
            return Allocation(
                AllocationRuling.ALLOWED,
                f"{whose} given {device}",
                evidence,
                exclusive=not (place.replica or _is_given_elsewhere(case)),
            )
    return None


def _judged(case: _Case, now: float) -> Allocation:
    doubt = next(_doubts(case, now), "")
    if doubt:
        return unknown(doubt)
    name = f"container {case.names.container} of pod {case.names.namespace}/{case.names.pod}"
    given = [device for one in case.own for device, _ in _placed(one, case)]
    what = f"was given {', '.join(given[:_SHOWN])}, not this GPU" if given else "was given no GPU"
    return Allocation(AllocationRuling.UNALLOCATED, f"{name} {what}", tuple(_evidence(case, now)))


def _doubts(case: _Case, now: float) -> Iterator[str]:
    """Yield what speaks against a verdict, one sentence each; none: the GPU was not given."""
    yield from _list_doubts(case.view, now, case.terms)
    yield from _pod_doubts(case)
    yield from _device_doubts(case)
    started = case.snapshot.at - case.reading.age_seconds
    if case.view.read_at < started:
        yield "the kubelet's list is older than the process"
    if not case.reading.workload.container_id:
        yield "it belongs to its pod, and to none of its containers"


def _list_doubts(view: AllocationView, now: float, terms: AllocationTerms) -> Iterator[str]:
    if view.why:
        yield view.why
    if not view.containers:
        yield "the kubelet's list is empty"
    steady = now - view.steady_since
    if steady < terms.steady_seconds:
        yield f"the kubelet or the container runtime started {steady:.0f} s ago"


def _pod_doubts(case: _Case) -> Iterator[str]:
    names, pod = case.names, (*case.own, *case.others)
    name = f"{names.namespace}/{names.pod}"
    if not pod:
        yield f"pod {name} is not in the kubelet's list: it ended or is ending, its deadline is not known"
    if len(case.own) > 1:
        yield f"the kubelet lists {name}/{names.container} more than once"
    if pod and not case.own and not any(one.devices for one in pod):
        yield f"container {names.container} is not in the kubelet's list, and its pod was given no GPU"
    if pod and not case.own and not _is_given_elsewhere(case):
        # An init container may have more GPUs than all others of its pod, and the list never says so.
        yield f"container {names.container} is not in the kubelet's list, and nobody else was given this GPU"
    if names.namespace in case.terms.spared_namespaces:
        yield f"namespace {names.namespace} is one whose pods may hold GPUs that they were not given"
    if not case.terms.static_pods and _STATIC_POD.search(case.reading.workload.path):
        yield f"pod {name} is a static one"
    if any(_is_namesake(one, case) for one in case.snapshot.processes.values()):
        yield f"two pods are called {name}, and the kubelet's list does not tell them apart"


def _is_namesake(other: ProcessReading, case: _Case) -> bool:
    """Tell whether a process belongs to another pod of the same name: one made anew after a deletion."""
    names = other.workload.names
    if names is None or names.pod is None or names.pod_uid == case.names.pod_uid:
        return False
    return (names.namespace, names.pod) == (case.names.namespace, case.names.pod)


def _device_doubts(case: _Case) -> Iterator[str]:
    pod = (*case.own, *case.others)
    claims = [claim for one in pod for claim in one.claims]
    if claims:
        yield f"its pod has the resource claim {claims[0]}, and what that gives is not told"
    for container in pod:
        for device in container.devices:
            place = place_of(device, case.snapshot.gpus)
            if isinstance(place, str):
                yield place
    former = [one for one in case.view.formerly if _is_of_its_pod(one, case)]
    if any(place.gpu == case.gpu for _, place in _given(former, case)):
        yield "its pod was given this GPU before, so it is ending, and its deadline is not known"
    if any(place.gpu == case.gpu for one in case.own for _, place in _placed(one, case)):
        yield "its container was given another part of this GPU"
    if any(place.replica for one in case.own for _, place in _placed(one, case)):
        yield "its container was given shares of GPUs in turns"
    if any(place.replica and place.gpu == case.gpu for _, place in _given(case.view.containers, case)):
        yield "this GPU is shared in turns, so who uses it says nothing"


def _covers(place: Place, case: _Case) -> bool:
    """Tell whether what was given is the GPU, or the instance of it that the process uses."""
    if place.gpu != case.gpu:
        return False
    used = _instances(case)
    if place.gpu_instance is None or not used:
        return True
    return all(
        gpu == place.gpu_instance and place.compute_instance in (None, compute) for gpu, compute in used
    )


def _instances(case: _Case) -> frozenset[tuple[int | None, int | None]]:
    """Return the MIG instances that the driver lists the process on; none where it does not say."""
    gpu = case.snapshot.gpu(case.gpu)
    if gpu is None or not isinstance(gpu.processes, Known):
        return frozenset()
    pid = case.reading.ref.pid
    rows = (row for row in gpu.processes.value if row.pid == pid and row.gpu_instance is not None)
    return frozenset((row.gpu_instance, row.compute_instance) for row in rows)


def _placed(container: ContainerAllocation, case: _Case) -> Iterator[tuple[str, Place]]:
    """Yield a container's devices as text, each with its place; those that have none are left out."""
    for device in container.devices:
        place = place_of(device, case.snapshot.gpus)
        if isinstance(place, Place):
            yield f"{device.resource} {device.id}", place


def _given(
    containers: Sequence[ContainerAllocation], case: _Case
) -> Iterator[tuple[ContainerAllocation, Place]]:
    for container in containers:
        for _, place in _placed(container, case):
            yield container, place


def _is_given_elsewhere(case: _Case) -> bool:
    """Tell whether another pod was given this GPU too, or the instance of it that the process uses."""
    others = [one for one in case.view.containers if not _is_of_its_pod(one, case)]
    return any(_covers(place, case) for _, place in _given(others, case))


def _is_of_its_pod(container: ContainerAllocation, case: _Case) -> bool:
    return (container.namespace, container.pod) == (case.names.namespace, case.names.pod)


def _evidence(case: _Case, now: float) -> Iterator[str]:
    yield _list_text(case.view, now)
    for container in (*case.own, *case.others)[:_SHOWN]:
        devices = ", ".join(f"{one.resource} {one.id}" for one in container.devices[:_SHOWN])
        yield f"{_name(container)}: {devices or 'no GPU'}"
    owners = [one for one, place in _given(case.view.containers, case) if place.gpu == case.gpu]
    for owner in owners[:_SHOWN]:
        yield f"{case.gpu} was given to {_name(owner)}"


def _list_text(view: AllocationView, now: float) -> str:
    return f"the kubelet's list of {now - view.read_at:.0f} s ago names {len(view.containers)} containers"


def _name(container: ContainerAllocation) -> str:
    return f"{container.namespace}/{container.pod}/{container.container}"
