"""Claims about warnings as events on pods: on exactly that pod, once, and only where one may ask."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from reclaimerd.act import pod_event_child
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.act.pod_events import EventOrder, PodEvents
from reclaimerd.act.warn import Notice, NotTold
from reclaimerd.model.drain_ports import NotAsked
from reclaimerd.model.incident import Stage
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.step import OwnerWarning
from tests.act.kube_rig import BOOT, NODE
from tests.builders import a_step, a_target, an_incident


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
