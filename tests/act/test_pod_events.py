"""Claims about warnings as events on pods: on exactly that pod, once, and only where one may ask."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from reclaimerd.act import pod_event_child
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.act.pod_events import REASON, EventOrder, PodEvents
from reclaimerd.act.warn import Notice, NotTold, Told
from reclaimerd.model.drain_ports import NotAsked
from reclaimerd.model.incident import Stage
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.step import OwnerWarning
from tests.act.kube_rig import BOOT, NODE, KubeRig, kube_rig
from tests.builders import a_step, a_target, an_incident
from tests.rigs.kube_apiserver import why_unavailable

REAL = [
    pytest.mark.root,
    pytest.mark.kubernetes,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "available"),
]
EVENTS = "/api/v1/namespaces/default/events"
PODS = "/api/v1/namespaces/default/pods"


def a_notice(names: WorkloadNames | None) -> Notice:
    """Return a warning about a process in a pod."""
    workload = Workload(WorkloadKind.POD, "pod", names=names)
    step = a_step(an_incident(replace(a_target(), workload=workload)), Stage.WARNED)
    return Notice("node-7", step, OwnerWarning(("It is idle.", "It ends in 10 min."), 600.0), 1_700_000_000.0)


@pytest.mark.parametrize(
    "names", [None, WorkloadNames(namespace="ml", pod="train-0"), WorkloadNames(pod_uid="u")]
)
def test_a_pod_that_is_not_known_whole_gets_none(names: WorkloadNames | None) -> None:
    """Namespace, name and uid: another pod could have the name by now. Nobody is asked."""
    events = PodEvents(lambda: KubeAccess("/nowhere/kubeconfig", NODE, BOOT))
    told = asyncio.run(events.warn(a_notice(names)))
    assert isinstance(told, NotTold)
    assert "not known by namespace, name and uid" in told.text


@pytest.mark.parametrize(
    ("namespace", "pod"), [("..", "train-0"), ("ml", "../../nodes/gpu-2"), ("ml", "a?b")]
)
def test_a_name_that_no_pod_has_is_not_put_into_a_path(namespace: str, pod: str) -> None:
    """The names are a runtime's record of labels, which whoever started the container may have written."""
    access = KubeAccess("/nowhere/kubeconfig", NODE, BOOT)
    order = EventOrder(access, namespace, pod, "u", "inc-1-41", "text", 0.0)
    assert pod_event_child.answer_of_cluster(cast("Any", None), order) == NotAsked(
        "no pod can have that name"
    )


def test_without_credentials_nobody_is_asked() -> None:
    """The shipped policy asks no cluster."""
    names = WorkloadNames(namespace="ml", pod="train-0", pod_uid="u")
    told = asyncio.run(PodEvents(lambda: KubeAccess("", NODE, BOOT)).warn(a_notice(names)))
    assert told == NotTold("nobody of the cluster may be asked: [cluster] credentials is empty")


def test_credentials_that_can_not_be_used_are_no_delivery() -> None:
    """The child says what is wrong with them."""
    names = WorkloadNames(namespace="ml", pod="train-0", pod_uid="u")
    access = KubeAccess("/nowhere/kubeconfig", NODE, BOOT)
    told = asyncio.run(PodEvents(lambda: access).warn(a_notice(names)))
    assert isinstance(told, NotTold)
    assert told.text.startswith("ml/train-0: ")
    assert "/nowhere: No such file" in told.text


@pytest.fixture(name="rig")
def a_real_cluster() -> Iterator[KubeRig]:
    """Return a real API server with the rights of our own manifests."""
    with kube_rig("rbac-drain.yaml", "rbac-drain-evict.yaml") as rig:
        rig.add_node(NODE)
        yield rig


def a_pod(rig: KubeRig, namespace: str = "default") -> WorkloadNames:
    """Make a pod, and return its names."""
    spec = {"containers": [{"name": "main", "image": "x"}], "nodeName": NODE}
    about = {"name": "train-0", "namespace": namespace}
    made = rig.server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    return WorkloadNames(namespace=namespace, pod="train-0", pod_uid=made["metadata"]["uid"])


def events(rig: KubeRig) -> list[dict[str, Any]]:
    """Return the events that stand there."""
    return list(rig.server.call("GET", EVENTS)["items"])


class TestRealCluster:
    """Against a real API server."""

    pytestmark = REAL

    def test_the_owner_finds_it_on_the_pod_once(self, rig: KubeRig) -> None:
        """One event for one warning, with our text; one of its name that came later gets none."""
        names = a_pod(rig)
        warner = PodEvents(rig.access)
        assert asyncio.run(warner.warn(a_notice(names))) == Told("event on default/train-0")
        assert isinstance(asyncio.run(warner.warn(a_notice(names))), Told)
        (event,) = events(rig)
        assert (event["reason"], event["message"]) == (REASON, "It is idle. It ends in 10 min.")
        assert event["involvedObject"]["uid"] == names.pod_uid
        told = asyncio.run(warner.warn(a_notice(replace(names, pod_uid="another"))))
        assert told == NotTold("default/train-0: the cluster has no such pod any more")
        assert len(events(rig)) == 1

    def test_where_no_event_can_be_made_nothing_is_delivered(self, rig: KubeRig) -> None:
        """A namespace that is ending: a warning that nobody can see must let no step follow."""
        rig.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
        names = a_pod(rig, "ending")
        rig.server.call("DELETE", "/api/v1/namespaces/ending")
        told = asyncio.run(PodEvents(rig.access).warn(a_notice(names)))
        assert told == NotTold("ending/train-0: its namespace is ending, and no event can be made there")
