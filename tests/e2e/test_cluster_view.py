"""The cluster's list in the daemon's looks, from the policy file to a recorded look, over real TLS."""

from pathlib import Path

import pytest

from reclaimerd.daemon.recorded_look import read_recorded
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.e2e.rig import Rig, simulated_host
from tests.rigs.fake_cluster import FakeCluster, fake_cluster, status
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process, pytest.mark.root, pytest.mark.slow]

POD = {
    "metadata": {
        "name": "train-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"app": "a"},
        "deletionTimestamp": "2026-11-30T12:15:00Z",
        "annotations": {"reclaimerd.io/spare": "paper", "other.example/x": "SECRET"},
    },
    "spec": {"nodeName": "gpu-1"},
}


def reading_of(rig: Rig) -> object:
    """Return what a look of now has of the cluster, from a file as support gets it."""
    file = rig.directory / "look.json"
    file.unlink(missing_ok=True)
    ran = rig.ctl("snapshot", "--out", str(file))
    assert ran.code == 0, ran
    assert "SECRET" not in file.read_text(encoding="utf-8")
    return read_recorded(file.read_bytes(), str(file)).look.cluster


def credentials_of(served: FakeCluster) -> dict[str, dict[str, object]]:
    """Return the policy's table for this cluster."""
    return {"cluster": {"credentials": str(served.kubeconfig("good")), "node": "gpu-1", "refresh": "1s"}}


def test_the_daemon_and_one_command_see_the_pods_of_this_node(tmp_path: Path) -> None:
    """The view follows the cluster; refused, it ages and then says why; a recorded look carries it."""
    with fake_cluster(tmp_path / "c") as served, simulated_host(tables=credentials_of(served)) as rig:
        served.pods = [POD]
        alone = reading_of(rig)
        assert isinstance(alone, Known), alone
        rig.start_daemon()
        wait_until(lambda: isinstance(reading_of(rig), Known), "the daemon has the list", 20)
        found = reading_of(rig)
        assert isinstance(found, Known)
        (pod,) = found.value.pods
        assert (pod.uid, pod.namespace, pod.name, pod.deletes_at) == ("u-1", "team", "train-0", 1796040900.0)
        assert pod.labels == (("app", "a"),)
        assert pod.annotations == (("reclaimerd.io/spare", "paper"),)
        served.answer = lambda *_: status(403)
        wait_until(lambda: isinstance(reading_of(rig), Unreadable), "the view is too old", 20)
        refused = reading_of(rig)
        assert isinstance(refused, Unreadable)
        assert "HTTP 403" in refused.why
        assert "rbac-observer.yaml" in refused.why


def test_nobody_is_asked_as_shipped() -> None:
    """Without credentials there is no worker and no question."""
    with simulated_host() as rig:
        assert isinstance(reading_of(rig), Absent)
        rig.start_daemon()
        assert isinstance(reading_of(rig), Absent)
