"""The list of this node's pods against servers that misbehave: one clear sentence, never a part of a list."""

import gzip
import re
import socket
import time
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import MOST_BYTES, ClusterAccess, ClusterRefusalError
from reclaimerd.model.allocation import PodState
from reclaimerd.observe import cluster as under_test
from reclaimerd.observe.cluster import read_pods, this_node
from tests.rigs.fake_cluster import (
    TOKEN,
    FakeCluster,
    Said,
    as_the_real_one,
    fake_cluster,
    free_port,
    make_certificate,
    pod_list,
    status,
    write_kubeconfig,
)

pytestmark = [pytest.mark.process, pytest.mark.root]

NODE = "gpu-1"
Query = Mapping[str, str]


def a_pod(name: str = "train-0", node: str = NODE, **about: object) -> dict[str, Any]:
    """Return a pod as JSON has it."""
    named = {"name": name, "namespace": "team", "uid": f"uid-{name}", **about}
    return {
        "metadata": named,
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 900},
        "status": {"phase": "Running"},
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Return one server for all tests of this file."""
    with fake_cluster(tmp_path_factory.mktemp("fake")) as served:
        served.kubeconfig("good")
        yield served


@pytest.fixture(autouse=True)
def as_new(server: FakeCluster) -> None:
    """Let each test begin with one pod and a server that behaves."""
    server.pods = [a_pod()]
    server.answer = as_the_real_one
    server.asked.clear()


def read(server: FakeCluster, *, seconds: float = 20.0, most_bytes: int = MOST_BYTES) -> tuple[PodState, ...]:
    """Return the list by the good credentials."""
    credentials = str(server.folder / "good.kubeconfig")
    return read_pods(ClusterAccess(credentials, seconds, most_bytes), NODE)


def why_not(server: FakeCluster, said: Said, *, most_bytes: int = MOST_BYTES) -> str:
    """Return why there is no list when this is what every question gets."""
    server.answer = lambda *_: said
    with pytest.raises(ReclaimerdError) as caught:
        read(server, most_bytes=most_bytes)
    return str(caught.value)


def test_what_is_kept_of_a_pod(server: FakeCluster) -> None:
    """Its names, labels, deadline, grace, controller; of the annotations our own alone, and the mirror's.

    And the bare names of those that tell of a job over several hosts: some schedulers have no label for it.
    """
    server.pods = [
        a_pod(
            deletionTimestamp="2026-11-30T12:15:00Z",
            deletionGracePeriodSeconds=900,
            labels={"b": "2", "a": "1"},
            annotations={
                "reclaimerd.io/spare": "paper deadline",
                "kubernetes.io/config.mirror": "a5363f4f31e043bdae3c93aca4991903",
                "kubectl.kubernetes.io/last-applied-configuration": '{"env":"SECRET"}',
                "scheduling.k8s.io/group-name": "llm",
            },
            ownerReferences=[
                {"apiVersion": "v1", "kind": "ReplicaSet", "name": "other", "uid": "1"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "2", "controller": True},
            ],
        )
    ]
    assert read(server) == (
        PodState(
            uid="uid-train-0",
            namespace="team",
            name="train-0",
            phase="Running",
            deletes_at=1796040900.0,
            grace_seconds=900.0,
            labels=(("a", "1"), ("b", "2")),
            annotations=(("reclaimerd.io/spare", "paper deadline"), ("scheduling.k8s.io/group-name", "")),
            owner="Job/train",
            mirror="a5363f4f31e043bdae3c93aca4991903",
        ),
    )
    server.pods = [{"metadata": a_pod()["metadata"], "spec": {"nodeName": NODE}}]
    assert read(server) == (PodState("uid-train-0", "team", "train-0", ""),)


def test_the_question_is_this_nodes_alone(server: FakeCluster) -> None:
    """Consistent: no resourceVersion, so no cache that lags may answer."""
    read(server)
    assert server.asked == [{"limit": "250", "fieldSelector": f"spec.nodeName={NODE}"}]


def test_a_list_that_breaks_off_is_none(server: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page came whole, the second is refused: the first is not used."""
    monkeypatch.setattr(under_test, "PAGE", 2)
    server.pods = [a_pod(f"p-{number}") for number in range(3)]
    assert len(read(server)) == 3

    def expired(served: FakeCluster, request: BaseHTTPRequestHandler, query: Query) -> Said | None:
        if "continue" in query:
            return status(410, "The provided continue parameter is too old")
        return as_the_real_one(served, request, query)

    server.answer = expired
    with pytest.raises(ClusterRefusalError, match="HTTP 410, The provided continue parameter is too old"):
        read(server)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said(b"<html>welcome</html>"), "can't be read"),
        (Said(b""), "can't be read"),
        (Said(b'{"items": null}'), "can't be read"),
        (Said(b'{"items": [{"metadata": {"name": 3}}]}'), "can't be read"),
        (pod_list([{"spec": {"nodeName": NODE}}]), "can't be read"),
        (pod_list([a_pod(uid="")]), "a pod without a name"),
        (pod_list([a_pod(), a_pod("q", "gpu-2")]), "a pod of another node"),
        (pod_list([{"metadata": a_pod()["metadata"]}]), "can't be read"),
        (pod_list([a_pod(), a_pod()]), "named twice"),
        (pod_list([a_pod(deletionTimestamp="soon")]), "can't be read"),
        (pod_list([a_pod(deletionTimestamp="2026-11-30T12:15:00")]), "a time without its zone"),
        (pod_list([a_pod(labels={"a": 1})]), "can't be read"),
        (pod_list([]), "has no pods on the node gpu-1; name this node in [cluster] node"),
        (status(401), "does not know us by"),
        (status(403), "rbac-observer.yaml"),
        (status(404), "has no such thing: HTTP 404"),
        (status(429, "too many\n\x1b[31mrequests"), "refused: HTTP 429, too many ?[31mrequests"),
        (Said(b"<html>bad gateway</html>", 502), "refused: HTTP 502"),
        (Said(b"", 301, {"Location": "https://elsewhere.example/"}), "refused: HTTP 301"),
        (Said(b"[" * 30000, 500), "refused: HTTP 500"),
        (Said(b"[]", 500, {"Content-Type": None}), "refused: HTTP 500"),
        (Said(gzip.compress(b"x"), headers={"Content-Encoding": "gzip"}), "a packed answer"),
        (Said(b"{}", headers={"Content-Length": "99"}), "can't be asked"),
    ],
)
def test_what_is_no_list_is_told_in_one_line(server: FakeCluster, said: Said, why: str) -> None:
    """Garbage, refusals, pages of a proxy's, a body that ends early: each says what and where."""
    if said.headers.get("Content-Length"):
        server.answer = _cut_short
        with pytest.raises(ReclaimerdError) as caught:
            read(server)
        text = str(caught.value)
    else:
        text = why_not(server, said)
    assert why in text
    assert server.url in text
    assert text.isprintable()


def _cut_short(_served: FakeCluster, request: BaseHTTPRequestHandler, _query: Query) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}")


def test_nothing_that_was_said_wrong_reaches_the_sentence(server: FakeCluster) -> None:
    """A pod's text may hold a secret."""
    assert "SECRET" not in why_not(server, Said(b'{"items": "SECRET"}'))
    assert "SECRET" not in why_not(server, pod_list([a_pod(deletionTimestamp="SECRET")]))


def test_a_size_without_bound_is_cut(server: FakeCluster) -> None:
    """Over all pages together; and labels that are too long to keep."""
    assert "more than 1000 bytes" in why_not(server, pod_list([a_pod(note="x" * 1000)]), most_bytes=1000)
    server.answer = lambda served, _request, query: pod_list(
        [a_pod(f"p{len(served.asked)}")], query.get("continue", "again")
    )
    with pytest.raises(ReclaimerdError, match="more than 4000 bytes"):
        read(server, most_bytes=4000)
    assert len(server.asked) > 5
    long = pod_list([a_pod(labels={"a": "x" * under_test.MOST_TEXT})])
    assert "too long to be kept" in why_not(server, long)


def test_a_clock_that_is_far_off_makes_no_list(server: FakeCluster) -> None:
    """Deadlines are the cluster's times: with a minute between the clocks they would come early or late."""
    body = pod_list([a_pod()]).body
    for apart, sign in ((-60, r"\+"), (60, "-")):
        said = Said(body, headers={"Date": formatdate(time.time() + apart, usegmt=True)})
        assert re.search(rf"the clock here is {sign}(59|60|61) s from", why_not(server, said))
    assert "does not say its time" in why_not(server, Said(body, headers={"Date": None}))
    assert "does not say its time" in why_not(server, Said(body, headers={"Date": "today"}))
    server.answer = lambda *_: Said(body, headers={"Date": formatdate(time.time() + 20, usegmt=True)})
    assert len(read(server)) == 1


def test_a_server_that_hangs_or_dribbles_is_given_up(server: FakeCluster) -> None:
    """Silent after the question, and one byte now and then: the whole has one deadline."""

    def hang(served: FakeCluster, _request: BaseHTTPRequestHandler, _query: Query) -> None:
        served.ended.wait(30)

    def dribble(served: FakeCluster, request: BaseHTTPRequestHandler, _query: Query) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
        while not served.ended.wait(0.05):
            request.wfile.write(b" ")

    for answer in (hang, dribble):
        server.answer = answer
        began = time.monotonic()
        with pytest.raises(ReclaimerdError, match=r"did not answer within 0\.4 s"):
            read(server, seconds=0.4)
        assert time.monotonic() - began < 5


def test_a_page_after_the_deadline_is_not_asked_for(server: FakeCluster) -> None:
    """The time is the whole conversation's, not each page's."""

    def slowly(served: FakeCluster, _request: BaseHTTPRequestHandler, _query: Query) -> Said:
        served.ended.wait(0.2)
        return pod_list([a_pod(f"p{len(served.asked)}")], "again")

    server.answer = slowly
    with pytest.raises(ReclaimerdError, match="did not answer within"):
        read(server, seconds=0.5)
    assert len(server.asked) <= 4


def test_a_server_that_is_not_there_or_is_another(server: FakeCluster, tmp_path: Path) -> None:
    """Nobody listens; and somebody whose certificate our authority does not vouch for gets no token."""
    nobody = server.kubeconfig("nobody", server=f"https://127.0.0.1:{free_port()}")
    with pytest.raises(ReclaimerdError, match=r"can't be asked: .*refused"):
        read_pods(ClusterAccess(str(nobody), 5), NODE)
    make_certificate(tmp_path, "other")
    other = server.kubeconfig("other", **{"certificate-authority": f"{tmp_path}/other.crt"})
    with pytest.raises(ReclaimerdError, match="certificate is not the one"):
        read_pods(ClusterAccess(str(other), 5), NODE)
    assert server.asked == []


def test_an_authority_that_is_none_is_told(server: FakeCluster, tmp_path: Path) -> None:
    """A file that is no certificate, one that is not there, and data that is no base64, or of none."""
    (tmp_path / "garbage").write_text("SECRET")
    for name, value in (
        ("certificate-authority", f"{tmp_path}/garbage"),
        ("certificate-authority", f"{tmp_path}/none"),
        ("certificate-authority-data", "U0VDUkVU"),
        ("certificate-authority-data", "a"),
    ):
        cluster = {"server": server.url, name: value}
        path = write_kubeconfig(server.folder / "authority.kubeconfig", {"token": TOKEN}, cluster)
        with pytest.raises(ReclaimerdError, match=r"can't be used: .*check certificate-authority") as caught:
            read_pods(ClusterAccess(str(path), 5), NODE)
        assert str(path) in str(caught.value)
        assert "SECRET" not in str(caught.value)
    assert server.asked == []


def test_the_environment_does_not_lead_elsewhere(
    server: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of somebody's shell is not asked."""
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert len(read(server)) == 1


def test_the_node_is_the_hosts_name_as_the_kubelet_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small letters; what can be no node's name is refused before anybody is asked."""
    monkeypatch.setattr(socket, "gethostname", lambda: "GPU-1.Example\n")
    assert this_node("") == "gpu-1.example"
    monkeypatch.setenv("RECLAIMERD_NODE_NAME", "ip-10-0-0-1.example")
    assert this_node("") == "ip-10-0-0-1.example", "a pod is told by the cluster"
    assert this_node("other") == "other"
    for name in ("a,metadata.name=b", "a b", "-a", "a" * 300, "\x1b"):
        with pytest.raises(ReclaimerdError, match="is no node's name") as caught:
            this_node(name)
        assert str(caught.value).isprintable()
