"""This node's pods from a real API server: Terminating, mirrored, by least rights, through a restart."""

import base64
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterAccess, ClusterRefusalError
from reclaimerd.model.allocation import PodState
from reclaimerd.observe.cluster import read_pods
from tests.rigs.fake_cluster import make_certificate
from tests.rigs.kube_apiserver import REAL_CLUSTER, ApiServer, kube_apiserver
from tests.rigs.simulated import wait_until

pytestmark = [*REAL_CLUSTER]

NODE = "gpu-1"
PODS = "/api/v1/namespaces/default/pods"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """Return one API server for all tests of this file; the node's kubelet is one of its users."""
    users = {f"system:node:{NODE}": ["system:nodes"], "somebody": ["people"]}
    with kube_apiserver(users) as served:
        served.apply(a_pod("standing"))
        for manifest in manifests("rbac-observer.yaml"):
            served.apply(manifest)
        yield served


def manifests(name: str) -> list[dict[str, Any]]:
    """Return the objects of one of the manifests that we ship."""
    text = (ROOT / "deploy" / "kubernetes" / name).read_text(encoding="utf-8")
    return [msgspec.yaml.decode(part) for part in text.split("\n---\n")]


def a_pod(name: str, **about: object) -> dict[str, Any]:
    """Return a pod of our node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **about},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 900,
            "containers": [{"name": "main", "image": "image"}],
        },
    }


def read(server: ApiServer, credentials: Path, seconds: float = 20.0) -> dict[str, PodState]:
    """Return this node's pods by name."""
    assert server.processes
    return {pod.name: pod for pod in read_pods(ClusterAccess(str(credentials), seconds), NODE)}


def account_token(server: ApiServer) -> str:
    """Return a token of our service account, as the kubelet gets one for a pod."""
    path = "/api/v1/namespaces/reclaimerd/serviceaccounts/reclaimerd/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(server.call("POST", path, request)["status"]["token"])


def test_a_deleted_pod_has_its_deadline(server: ApiServer) -> None:
    """Its grace of 900 s is in deletionTimestamp; without a kubelet it stays Terminating."""
    server.apply(a_pod("going"))
    admin = server.kubeconfig("admin")
    assert read(server, admin)["going"].deletes_at is None
    before = time.time()
    answer = server.call("DELETE", f"{PODS}/going")
    going = read(server, admin)["going"]
    assert going.deletes_at is not None
    assert before + 899 <= going.deletes_at <= time.time() + 901
    said = datetime.fromisoformat(answer["metadata"]["deletionTimestamp"])
    assert going.deletes_at == said.timestamp()
    assert going.grace_seconds == 900


def test_a_shortened_grace_is_the_new_deadline(server: ApiServer) -> None:
    """Whoever deletes it again with less has the last word; the pod's own grace stays what it was."""
    server.apply(a_pod("hurried"))
    server.call("DELETE", f"{PODS}/hurried")
    server.call("DELETE", f"{PODS}/hurried?gracePeriodSeconds=30")
    hurried = read(server, server.kubeconfig("admin"))["hurried"]
    assert hurried.deletes_at is not None
    assert hurried.deletes_at < time.time() + 31
    assert hurried.grace_seconds == 900


def test_a_pod_that_was_deleted_by_force_is_not_in_the_list(server: ApiServer) -> None:
    """At once: the list is a consistent one."""
    server.apply(a_pod("forced"))
    admin = server.kubeconfig("admin")
    assert "forced" in read(server, admin)
    server.call("DELETE", f"{PODS}/forced?gracePeriodSeconds=0")
    assert "forced" not in read(server, admin)


def test_labels_our_annotation_and_the_owner(server: ApiServer) -> None:
    """What is kept, as the server gives it back."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    notes = {"reclaimerd.io/spare": "paper", "other.example/x": "SECRET"}
    server.apply(a_pod("named", labels={"app": "a"}, annotations=notes, ownerReferences=[owner]))
    named = read(server, server.kubeconfig("admin"))["named"]
    assert (named.labels, named.owner) == ((("app", "a"),), "Job/train")
    assert named.annotations == (("reclaimerd.io/spare", "paper"),)


def test_a_static_pod_is_known_by_its_mirrors_hash(server: ApiServer) -> None:
    """The kubelet itself mirrors it, as the node's own user."""
    token = server.tokens[f"system:node:{NODE}"]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    made = server.apply(node)
    mirror = a_pod(
        "static-gpu-1",
        annotations={"kubernetes.io/config.mirror": "a5363f4f31e043bdae3c93aca4991903"},
        ownerReferences=[
            {
                "apiVersion": "v1",
                "kind": "Node",
                "name": NODE,
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
        ],
    )
    server.call("POST", PODS, mirror, token=token)
    found = read(server, server.kubeconfig("admin"))["static-gpu-1"]
    assert (found.mirror, found.owner) == ("a5363f4f31e043bdae3c93aca4991903", f"Node/{NODE}")
    assert found.uid != found.mirror
    by_kubelet = read(server, server.kubeconfig("kubelet", token=token))
    assert "static-gpu-1" in by_kubelet


def test_the_kubelets_own_credentials_will_do(server: ApiServer) -> None:
    """Its kubeconfig names a client certificate, with the key in the same file; or has both inside."""
    user = server.client_certificate(f"system:node:{NODE}", "system:nodes")
    assert "standing" in read(server, server.kubeconfig_of("kubelet-cert", user))
    inside = {
        f"{name}-data": base64.b64encode(Path(file).read_bytes()).decode() for name, file in user.items()
    }
    authority = base64.b64encode(server.ca.read_bytes()).decode()
    whole = {"certificate-authority": None, "certificate-authority-data": authority}
    assert "standing" in read(server, server.kubeconfig_of("kubelet-inside", inside, **whole))
    stranger = server.client_certificate("somebody", "people")
    with pytest.raises(ClusterRefusalError, match="HTTP 403"):
        read(server, server.kubeconfig_of("stranger-cert", stranger))


def test_our_account_reads_the_pods_and_can_do_no_more(server: ApiServer) -> None:
    """The manifest that we ship, asked of the server itself: what it allows, and each thing it must not."""
    token = account_token(server)
    assert "standing" in read(server, server.kubeconfig("account", token=token))
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "kube-system"},
    }
    told = server.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review, token=token)
    ours = [
        (rule["verbs"], rule["apiGroups"], rule["resources"])
        for rule in told["status"]["resourceRules"]
        if rule["apiGroups"] != ["authorization.k8s.io"]
    ]
    assert ours == [(["get", "list"], [""], ["pods"])]
    before = server.call("GET", f"{PODS}/standing")
    pod = f"{PODS}/standing"
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "standing"}}
    for method, path, body in (
        ("DELETE", pod, None),
        ("PATCH", pod, {"metadata": {"labels": {"a": "b"}}}),
        ("POST", f"{pod}/eviction", eviction),
        ("POST", PODS, a_pod("new")),
        ("GET", f"{pod}/log", None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/reclaimerd/secrets", None),
        ("GET", "/api/v1/nodes", None),
        ("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}}),
        ("GET", "/api/v1/configmaps", None),
        ("GET", "/apis/coordination.k8s.io/v1/leases", None),
        ("POST", "/api/v1/namespaces/reclaimerd/serviceaccounts/reclaimerd/token", {}),
        ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/reclaimerd-observer", {"rules": []}),
    ):
        assert server.refusal(method, path, body, token=token) == 403, (method, path)
    assert server.call("GET", f"{PODS}/standing") == before


def test_without_the_role_the_refusal_names_the_manifest(server: ApiServer) -> None:
    """403 with the server's own words; and a token that nobody knows is 401."""
    somebody = server.kubeconfig("somebody", token=server.tokens["somebody"])
    with pytest.raises(ClusterRefusalError, match=r'User "somebody" cannot list .*rbac-observer\.yaml'):
        read(server, somebody)
    with pytest.raises(ClusterRefusalError, match="HTTP 401"):
        read(server, server.kubeconfig("nobody", token="x" * 32))


def test_another_authority_or_another_name_gets_no_token(server: ApiServer, tmp_path: Path) -> None:
    """A certificate that does not vouch for it, and the right one for the wrong address."""
    make_certificate(tmp_path, "other")
    other = server.kubeconfig("other", **{"certificate-authority": f"{tmp_path}/other.crt"})
    with pytest.raises(ReclaimerdError, match="certificate is not the one"):
        read(server, other)
    elsewhere = server.kubeconfig("elsewhere", server=f"https://127.0.0.2:{server.port}")
    with pytest.raises(ReclaimerdError, match=r"can't be asked"):
        read(server, elsewhere)


def test_a_restart_in_the_middle_of_a_question_is_one_failure(server: ApiServer) -> None:
    """Killed while it is asked: one clear sentence, in time. Started again it answers as before."""
    admin = server.kubeconfig("admin")
    before = read(server, admin)
    process = server.processes["kube-apiserver"]
    process.send_signal(signal.SIGSTOP)
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            read(server, admin)
        except ReclaimerdError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: _waits_unread(server.port), "our question lies unread at the server")
    server.kill()
    thread.join(15)
    assert not thread.is_alive()
    assert "can't be asked" in str(caught[0])
    with pytest.raises(ReclaimerdError, match=r"can't be asked: .*refused"):
        read(server, admin)
    server.start()
    assert read(server, admin) == before


def _waits_unread(port: int) -> bool:
    """Tell whether a connection to this port has bytes that its server did not read (/proc/net/tcp)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and int(row[4].split(":")[1], 16) > 0 for row in rows)


def test_a_server_that_is_stopped_is_given_up_in_time(server: ApiServer) -> None:
    """It has the connection and never answers."""
    admin = server.kubeconfig("admin")
    process = server.processes["kube-apiserver"]
    process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(ReclaimerdError, match=r"did not answer within 0\.5 s"):
            read(server, admin, seconds=0.5)
        assert time.monotonic() - began < 5
    finally:
        process.send_signal(signal.SIGCONT)
    assert "standing" in read(server, admin)


def test_the_rig_itself_refuses_a_stranger(server: ApiServer) -> None:
    """What the other tests stand on: the server really checks who asks."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.call("GET", "/api/v1/pods", token="x" * 32)
    assert caught.value.code == 401
    caught.value.close()
