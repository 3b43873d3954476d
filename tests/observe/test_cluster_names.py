"""Pods' labels, marks and spread, joined by the UID in a proven path, and never by a name."""

from typing import Any

from reclaimerd.model.allocation import ClusterView, PodState
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.observe.cluster_names import STALE_SECONDS, with_cluster
from tests.builders import MONO, WALL, a_process

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"


def in_pod(uid: str | None = U, *, trusted: bool = True, **names: Any) -> ProcessReading:
    """Return a process in a pod."""
    named = WorkloadNames(pod_uid=uid, **names) if trusted else None
    workload = Workload(WorkloadKind.POD, "pod", f"/kubepods/pod{U}", trusted=trusted, names=named)
    return a_process(100, workload=workload)


def a_pod(**parts: Any) -> PodState:
    """Return the pod as the cluster has it."""
    return PodState(**{"uid": U, "namespace": "ml", "name": "train-0", "phase": "Running"} | parts)


def names_after(reading: ProcessReading, *pods: PodState, age: float = 0.0) -> WorkloadNames | None:
    """Return the names of the process once the cluster's view is joined."""
    view = ClusterView(MONO - age, WALL, pods)
    return with_cluster({100: reading}, view, MONO)[100].workload.names


def test_a_pod_has_what_its_cluster_says() -> None:
    """Name and namespace where the record had none, all labels, the owner's mark and its job's spread."""
    pod = a_pod(
        labels=(("app", "llm"), ("training.kubeflow.org/job-name", "llm")),
        annotations=(("reclaimerd.io/spare", "till friday"), ("token", "hush")),
    )
    found = names_after(in_pod(container="main"), pod)
    assert found == WorkloadNames(
        namespace="ml", pod="train-0", pod_uid=U, container="main", labels=pod.labels, labels_whole=True,
        hosts=2, spare_mark="till friday", mark_known=True,
    )  # fmt: skip


def test_the_records_own_mark_stays() -> None:
    """What the runtime's record says is not lost to a cluster that says nothing of it."""
    found = names_after(in_pod(spare_mark="yes"), a_pod())
    assert found is not None
    assert (found.spare_mark, found.hosts, found.labels_whole) == ("yes", None, True)


def test_a_static_pod_is_found_by_its_hash() -> None:
    """The path has the hash of its file, and the mirror in the cluster another UID."""
    found = names_after(in_pod("a" * 32), a_pod(uid="other", mirror="a" * 32, labels=(("k", "v"),)))
    assert found is not None
    assert found.labels == (("k", "v"),)


def test_nobody_is_joined_by_less_than_a_proven_uid() -> None:
    """Another UID, an untrusted path, a path without names, a unit, an empty mirror: all stay as they are."""
    others = (a_pod(uid="another"), a_pod(uid="third", mirror=""))
    unit = a_process(100)
    for reading in (in_pod(), in_pod(None), in_pod(trusted=False), unit):
        assert names_after(reading, *others) == reading.workload.names
    assert names_after(in_pod(trusted=False), a_pod()) is None
    assert names_after(unit, a_pod()) is None


def test_labels_that_are_old_or_not_all_of_them_are_said_to_be() -> None:
    """Of an old view no label is told, but the mark, which only spares; too long a label is left out."""
    pod = a_pod(labels=(("app", "llm"),), annotations=(("reclaimerd.io/spare", "yes"),))
    old = names_after(in_pod(), pod, age=STALE_SECONDS + 1)
    assert old is not None
    assert (old.labels, old.labels_whole, old.spare_mark) == ((), False, "yes")
    unmarked = names_after(in_pod(), a_pod(), age=STALE_SECONDS + 1)
    assert unmarked is not None
    assert not unmarked.mark_known, "a mark may have been set meanwhile"
    long = names_after(in_pod(), a_pod(labels=(("app", "llm"), ("long", "x" * 500))))
    assert long is not None
    assert (long.labels, long.labels_whole) == ((("app", "llm"),), False)
