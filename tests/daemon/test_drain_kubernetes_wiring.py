"""Claims about what the wiring builds for a policy that asks Kubernetes."""

import socket
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.fleet_kubernetes import KubernetesFleet
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.wiring_drain import REPORTS, DrainHands
from reclaimerd.daemon.wiring_hands import HandParts
from reclaimerd.model.drain_policy import Arbiter, DrainSettings, FleetSettings, KubernetesTarget
from reclaimerd.model.policy import ClusterSettings, Policy
from tests.builders import BOOT

TARGET = KubernetesTarget(no_execute=True)
FLEET = FleetSettings(Arbiter.KUBERNETES, nodes=7)


def hands_of(tmp_path: Path, cluster: ClusterSettings, simulate: Path | None = None) -> DrainHands:
    """Return the hands of a policy that asks Kubernetes; nothing else of a host is there."""
    policy = Policy(drain=DrainSettings(kubernetes=TARGET, fleet=FLEET), cluster=cluster)
    nothing = cast("Any", None)
    paths = Paths(tmp_path / "state", tmp_path / "log", tmp_path / "socket", simulate=simulate)
    return DrainHands(HandParts(paths, BOOT, lambda: policy, nothing, nothing, nothing, None))


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


@pytest.mark.parametrize("node", ["gpu-1", ""])
def test_target_and_arbiter_ask_about_this_node_in_this_boot(tmp_path: Path, node: str) -> None:
    """By the credentials of [cluster]; without a name it is the host's, as the kubelet makes it."""
    hands = hands_of(tmp_path, ClusterSettings("/etc/kubeconfig", node))
    access = KubeAccess("/etc/kubeconfig", node or socket.gethostname().lower(), BOOT)
    assert list(hands.targets()) == ["file", "kubernetes"]
    assert "kubernetes" not in REPORTS
    assert hands.targets()["kubernetes"] == DrainKubernetes(access, TARGET)
    assert hands.fleet() == KubernetesFleet(access, FLEET)
