"""What the fake cluster and a real API server have in common, by the same tests on both."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterAccess, ClusterRefusalError
from reclaimerd.observe import cluster as under_test
from reclaimerd.observe.cluster import read_pods
from tests.rigs.fake_cluster import STRANGER, fake_cluster
from tests.rigs.kube_apiserver import kube_apiserver, why_unavailable

pytestmark = [pytest.mark.process, pytest.mark.root]

NODE = "gpu-1"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: what makes a pod there, and credentials of three kinds."""

    add: Callable[[dict[str, Any]], object]
    good: Path
    stranger: Path
    unknown: Path


def _fake(folder: Path) -> Iterator[Cluster]:
    with fake_cluster(folder) as served:

        def add(pod: dict[str, Any]) -> None:
            served.pods.append({**pod, "metadata": {**pod["metadata"], "uid": pod["metadata"]["name"]}})

        yield Cluster(
            add,
            served.kubeconfig("good"),
            served.kubeconfig("stranger", token=STRANGER),
            served.kubeconfig("unknown", token="x" * 32),
        )


def _real() -> Iterator[Cluster]:
    with kube_apiserver({"stranger": ["people"]}) as served:
        yield Cluster(
            served.apply,
            served.kubeconfig("good"),
            served.kubeconfig("stranger", token=served.tokens["stranger"]),
            served.kubeconfig("unknown", token="x" * 32),
        )


@pytest.fixture(
    scope="module", params=["fake", pytest.param("real", marks=[pytest.mark.kubernetes, pytest.mark.slow])]
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return one cluster with five pods on our node and one on another."""
    if request.param == "real" and why_unavailable():
        pytest.skip(why_unavailable())
    for made in _fake(tmp_path_factory.mktemp("fake")) if request.param == "fake" else _real():
        for number in range(5):
            made.add(a_pod(f"mine-{number}", NODE))
        made.add(a_pod("other", "gpu-2"))
        yield made


def a_pod(name: str, node: str) -> dict[str, Any]:
    """Return a pod as an API server takes it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"app": name},
            "annotations": {"reclaimerd.io/spare": "paper", "other.example/secret": "SECRET"},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 900,
            "containers": [{"name": "main", "image": "image"}],
        },
        "status": {"phase": "Pending"},
    }


def ask(credentials: Path) -> ClusterAccess:
    """Return how the cluster is asked by these credentials."""
    return ClusterAccess(str(credentials), 20)


@pytest.mark.parametrize("page", [2, 5, 250])
def test_the_whole_list_is_this_nodes(cluster: Cluster, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages it comes in; nobody else's pod, and only what is kept of each."""
    monkeypatch.setattr(under_test, "PAGE", page)
    pods = read_pods(ask(cluster.good), NODE)
    assert sorted(pod.name for pod in pods) == [f"mine-{number}" for number in range(5)]
    for pod in pods:
        assert (pod.namespace, pod.phase) == ("default", "Pending")
        assert (pod.deletes_at, pod.grace_seconds, pod.owner, pod.mirror) == (None, 900.0, "", "")
        assert pod.labels == (("app", pod.name),)
        assert pod.annotations == (("reclaimerd.io/spare", "paper"),)
    assert len({pod.uid for pod in pods}) == 5


def test_a_node_without_pods_is_taken_for_a_wrong_name(cluster: Cluster) -> None:
    """An empty list would call every process here a leftover."""
    with pytest.raises(ReclaimerdError, match=r"no pods on the node gpu-9; name this node in \[cluster\]"):
        read_pods(ask(cluster.good), "gpu-9")


def test_whom_it_does_not_know_and_who_may_not(cluster: Cluster) -> None:
    """401 and 403, each with the cluster's own words and the mend."""
    with pytest.raises(ClusterRefusalError, match=r"HTTP 401, Unauthorized; renew") as caught:
        read_pods(ask(cluster.unknown), NODE)
    assert caught.value.code == 401
    with pytest.raises(ClusterRefusalError, match=r"HTTP 403, pods is forbidden: .*rbac-observer") as caught:
        read_pods(ask(cluster.stranger), NODE)
    assert caught.value.code == 403
