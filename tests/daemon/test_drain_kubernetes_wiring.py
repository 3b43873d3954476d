"""Claims about what the wiring builds for a policy that asks Kubernetes."""

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reclaimerd.act.drain_file import DrainFile
from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.fleet_kubernetes import KubernetesFleet
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.daemon.drain_asks import with_answers
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.wiring_drain import REPORTS, DrainHands
from reclaimerd.daemon.wiring_hands import HandParts
from reclaimerd.model.drain import Ask, NodeDrain
from reclaimerd.model.drain_policy import Arbiter, DrainSettings, FleetSettings, KubernetesTarget
from reclaimerd.model.drain_ports import Asked, NotAsked
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import ClusterSettings, Policy
from tests.act.drain_builders import a_request
from tests.builders import BOOT

TARGET = KubernetesTarget(no_execute=True)
FLEET = FleetSettings(Arbiter.KUBERNETES, nodes=7)


def hands_of(
    tmp_path: Path, cluster: ClusterSettings, simulate: Path | None = None, cycle: Any = None
) -> DrainHands:
    """Return the hands of a policy that asks Kubernetes; nothing else of a host is there."""
    policy = Policy(drain=DrainSettings(kubernetes=TARGET, fleet=FLEET), cluster=cluster)
    nothing = cast("Any", None)
    paths = Paths(tmp_path / "state", tmp_path / "log", tmp_path / "socket", simulate=simulate)
    return DrainHands(HandParts(paths, BOOT, lambda: policy, cycle, nothing, nothing, None))


@pytest.mark.parametrize(
    ("credentials", "used"),
    [("in-cluster", ""), ("/etc/kubeconfig", "/sim/root/etc/kubeconfig"), ("", "")],
)
def test_a_simulated_host_never_asks_by_this_machine_s_account(
    tmp_path: Path, credentials: str, used: str
) -> None:
    """It has this machine's name and boot, and would mark its real node."""
    hands = hands_of(tmp_path, ClusterSettings(credentials, "gpu-1"), Path("/sim"))
    access = KubeAccess(used, "gpu-1", BOOT)
    assert hands.targets()["kubernetes"] == DrainKubernetes(access, TARGET)
    assert hands.fleet() == KubernetesFleet(access, FLEET)


def test_targets_are_told_where_the_request_stands(tmp_path: Path) -> None:
    """As they answered, and as the ledger keeps it over a later answer; nowhere while none stands."""
    ledger = Ledger()
    cycle = cast("Any", SimpleNamespace(state=SimpleNamespace(ledger=ledger)))
    hands = hands_of(tmp_path, ClusterSettings("/etc/kubeconfig", "gpu-1"), cycle=lambda: cycle)
    file, cluster = hands.targets()["file"], hands.targets()["kubernetes"]
    assert isinstance(file, DrainFile)
    assert isinstance(cluster, DrainKubernetes)
    assert (file.earlier(), cluster.earlier()) == ("", "")
    drain = NodeDrain(a_request(), BOOT, 0.0, (), (Ask("file"), Ask("kubernetes")))
    answers = {"file": Asked("written", "/old"), "kubernetes": Asked("marked", "gpu-0")}
    drain = with_answers(with_answers(drain, answers, 1.0), {"file": NotAsked("away")}, 2.0)
    cycle.state.ledger = replace(ledger, drain=drain)
    assert (file.earlier(), cluster.earlier()) == ("/old", "gpu-0")


@pytest.mark.parametrize("node", ["gpu-1", ""])
def test_target_and_arbiter_ask_about_this_node_in_this_boot(tmp_path: Path, node: str) -> None:
    """By the credentials of [cluster]; without a name it is the host's, as the kubelet makes it."""
    hands = hands_of(tmp_path, ClusterSettings("/etc/kubeconfig", node))
    access = KubeAccess("/etc/kubeconfig", node or socket.gethostname().lower(), BOOT)
    assert list(hands.targets()) == ["file", "kubernetes"]
    assert "kubernetes" not in REPORTS
    assert hands.targets()["kubernetes"] == DrainKubernetes(access, TARGET)
    assert hands.fleet() == KubernetesFleet(access, FLEET)
