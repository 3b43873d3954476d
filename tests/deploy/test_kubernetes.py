"""The manifests that we ship, read as they lie and taken by a real API server."""

import copy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reclaimerd.config.load import load
from reclaimerd.host.node_name import NODE_VARIABLE
from tests.rigs.kube_apiserver import REAL_CLUSTER, ApiServer, kube_apiserver

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
SETS = "/apis/apps/v1/namespaces/reclaimerd/daemonsets?dryRun=All"
Json = dict[str, Any]


def objects(name: str) -> list[Json]:
    """Return the objects of one manifest."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return [msgspec.yaml.decode(part) for part in text.split("\n---\n")]


def pod() -> Json:
    """Return the pod that the DaemonSet makes."""
    (daemon_set,) = objects("daemonset.yaml")
    return dict(daemon_set["spec"]["template"]["spec"])


def lost(sent: object, taken: object, path: str = "") -> list[str]:
    """Return what the server did not take: a field that it does not know is dropped without a word."""
    match sent, taken:
        case dict(), dict():
            return [one for key in sent for one in lost(sent[key], taken.get(key), f"{path}.{key}")]
        case list(), list() if len(sent) == len(taken):
            pairs = enumerate(zip(sent, taken, strict=True))
            return [one for number, (ours, its) in pairs for one in lost(ours, its, f"{path}[{number}]")]
        case _:
            return [] if sent == taken else [f"{path}: {sent!r}"]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """Return one API server with our namespace."""
    with kube_apiserver() as served:
        for manifest in objects("rbac-observer.yaml"):
            served.apply(manifest)
        yield served


def marked(test: Any) -> Any:
    """Give a test the marks of the real server."""
    for mark in REAL_CLUSTER:
        test = mark(test)
    return test


@marked
def test_the_api_server_takes_every_field(server: ApiServer) -> None:
    """The DaemonSet is valid, and no field of it is dropped."""
    (daemon_set,) = objects("daemonset.yaml")
    assert lost(daemon_set, server.call("POST", SETS, daemon_set)) == []


@marked
def test_a_fault_in_it_would_be_seen(server: ApiServer) -> None:
    """A misspelt field is dropped and noticed; a volume that is missing is refused."""
    (daemon_set,) = objects("daemonset.yaml")
    misspelt = copy.deepcopy(daemon_set)
    misspelt["spec"]["template"]["spec"]["hostPid"] = misspelt["spec"]["template"]["spec"].pop("hostPID")
    found = lost(misspelt, server.call("POST", SETS, misspelt))
    assert found == [".spec.template.spec.hostPid: True"]
    del daemon_set["spec"]["template"]["spec"]["volumes"][0]
    assert server.refusal("POST", SETS, daemon_set) == 422


KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kustomize_makes_one_whole_of_it() -> None:
    """What `kubectl apply -k` would send: an image, the policy by its hashed name, a privileged namespace."""
    words = [str(KUBECTL), "kustomize", str(DEPLOY)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    made = {one["kind"]: one for one in map(msgspec.yaml.decode, done.stdout.split("\n---\n"))}
    spec = made["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"].startswith("registry.example.org/reclaimerd:")
    named = [one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one]
    assert named == [made["ConfigMap"]["metadata"]["name"]]
    assert made["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}


def test_it_is_no_holder_itself() -> None:
    """No GPU is given to it, by the runtime or by the scheduler; it has the host's pids."""
    spec = pod()
    (container,) = spec["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert not any("gpu" in name for kind in container["resources"].values() for name in kind)
    assert (spec["hostPID"], spec["tolerations"]) == (True, [{"operator": "Exists"}])


def test_it_knows_its_node_by_the_clusters_own_name() -> None:
    """The variable that is read is the one that the manifest fills."""
    (container,) = pod()["containers"]
    told = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
    assert told == {NODE_VARIABLE: {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def test_a_policy_with_faults_stops_at_the_first_node() -> None:
    """A pod that ends at once is never ready for a minute, and the next node waits for that."""
    (daemon_set,) = objects("daemonset.yaml")
    spec = daemon_set["spec"]
    assert spec["minReadySeconds"] >= 60
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    (container,) = pod()["containers"]
    assert container["readinessProbe"]["httpGet"] == container["livenessProbe"]["httpGet"]


def test_where_it_writes_there_is_room() -> None:
    """Its root is read-only: state, log, socket and what is unpacked aside have mounts of their own."""
    (container,) = pod()["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    for path in ("/var/lib/reclaimerd", "/var/log/reclaimerd", "/run/reclaimerd", "/tmp"):
        assert not mounts[path].get("readOnly", False)


def test_its_account_is_the_one_with_the_rights() -> None:
    """The account and the namespace are those of the RBAC manifest."""
    (account,) = [one for one in objects("rbac-observer.yaml") if one["kind"] == "ServiceAccount"]
    (daemon_set,) = objects("daemonset.yaml")
    assert pod()["serviceAccountName"] == account["metadata"]["name"]
    assert daemon_set["metadata"]["namespace"] == account["metadata"]["namespace"]


def test_the_policy_is_valid_and_answers_the_probe() -> None:
    """The policy beside it has no fault, only observes, and listens where the kubelet asks."""
    loaded = load(DEPLOY / "reclaimerd.toml", enforce_ownership=False)
    assert loaded.policy.mode.value == "observe"
    probe = pod()["containers"][0]["livenessProbe"]["httpGet"]
    assert loaded.policy.metrics.listen == f"{probe['host']}:{probe['port']}"


def test_the_kustomization_names_what_is_there() -> None:
    """Every file that it names exists, no object comes twice, and the names fit."""
    (base,) = objects("kustomization.yaml")
    made = [(one["kind"], one["metadata"]["name"]) for name in base["resources"] for one in objects(name)]
    assert len(set(made)) == len(made)
    (policy,) = base["configMapGenerator"]
    assert all((DEPLOY / name).exists() for name in policy["files"])
    assert policy["name"] in [one["configMap"]["name"] for one in pod()["volumes"] if "configMap" in one]
    assert [one["name"] for one in base["images"]] == [one["image"] for one in pod()["containers"]]
