"""Warnings as events on pods, against a real API server with the rights of our own manifests."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.act.pod_events import REASON, PodEvents
from reclaimerd.act.warn import NotTold, Told
from reclaimerd.model.process import WorkloadNames
from tests.act.kube_rig import NODE, KubeRig, kube_rig
from tests.act.test_pod_events import a_notice
from tests.rigs.kube_apiserver import REAL_CLUSTER

pytestmark = [*REAL_CLUSTER]
EVENTS = "/api/v1/namespaces/default/events"


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


def test_the_owner_finds_it_on_the_pod_once(rig: KubeRig) -> None:
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


def test_where_no_event_can_be_made_nothing_is_delivered(rig: KubeRig) -> None:
    """A namespace that is ending: a warning that nobody can see must let no step follow."""
    rig.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
    names = a_pod(rig, "ending")
    rig.server.call("DELETE", "/api/v1/namespaces/ending")
    told = asyncio.run(PodEvents(rig.access).warn(a_notice(names)))
    assert told == NotTold("ending/train-0: its namespace is ending, and no event can be made there")
