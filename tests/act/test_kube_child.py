"""Claims about the child that speaks to a cluster: what is sent byte for byte, and every way it may end."""

import asyncio
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.act import kube_order
from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.fleet_kubernetes import KubernetesFleet
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.model.drain_policy import FleetSettings, KubernetesTarget, NodeMark
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotWaits
from tests.act.drain_builders import a_request
from tests.act.kube_rig import BOOT
from tests.rigs.fake_cluster import make_certificate, write_kubeconfig

pytestmark = pytest.mark.process
NODE = "gpu-1"


@dataclass(slots=True)
class Recorded:
    """What came in: first line, type and body of each write; `code` is what each is answered with."""

    url: str
    kubeconfig: Path
    writes: list[str] = field(default_factory=list)
    code: int = 200
    hangs: threading.Event | None = None

    def node(self) -> dict[str, Any]:
        """Return the node as it stands: with the last note that was written."""
        about: dict[str, Any] = {"name": NODE, "resourceVersion": "7"}
        for write in self.writes:
            line, _, body = write.split("\n", 2)
            if line.startswith(f"PATCH /api/v1/nodes/{NODE}?"):
                about["annotations"] = json.loads(body)["metadata"]["annotations"]
        spec = {"unschedulable": bool(self.writes)}
        return {"metadata": about, "spec": spec, "status": {"nodeInfo": {"bootID": BOOT}}}


class _Request(BaseHTTPRequestHandler):
    server: "_Server"

    def _answer(self, body: dict[str, Any], code: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        """Answer with the node, or with the pod."""
        recorded = self.server.recorded
        if recorded.hangs is not None:
            recorded.hangs.wait(60)
        if "/pods/" in self.path:
            about = {"name": "train-0", "namespace": "team", "uid": "u-1"}
            self._answer({"metadata": about, "spec": {"nodeName": NODE}})
        else:
            self._answer(recorded.node())

    def do_PATCH(self) -> None:
        """Keep it."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        recorded = self.server.recorded
        recorded.writes.append(f"{self.command} {self.path}\n{self.headers['content-type']}\n{body}")
        self._answer(recorded.node(), recorded.code)

    do_POST = do_PATCH  # noqa: N815  # the library's names

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    recorded: Recorded

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that leave early."""


@contextmanager
def recording(folder: Path) -> Iterator[Recorded]:
    """Serve until the block is left."""
    make_certificate(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = _Server(("127.0.0.1", 0), _Request)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    url = f"https://127.0.0.1:{server.server_address[1]}"
    cluster = {"server": url, "certificate-authority": str(folder / "server.crt")}
    config = write_kubeconfig(folder / "config", {"token": "t"}, cluster)
    server.recorded = Recorded(url, config)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.recorded
    finally:
        if server.recorded.hangs is not None:
            server.recorded.hangs.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    """Return a server that keeps what it is sent."""
    with recording(tmp_path) as one:
        yield one


def target_of(recorded: Recorded, seconds: float = 20.0) -> DrainKubernetes:
    """Return the target that asks it."""
    access = KubeAccess(str(recorded.kubeconfig), NODE, BOOT)
    return DrainKubernetes(access, KubernetesTarget(tuple(NodeMark)), seconds)


def test_the_plan_is_what_is_sent_byte_for_byte(recorded: Recorded) -> None:
    """But for what is read from the node, and the time of the first write, which a plan can't know."""
    target, request = target_of(recorded), a_request(pod=("team", "train-0", "u-1"))
    answer = asyncio.run(target.request(request))
    assert isinstance(answer, Asked), answer
    planned = [
        part.replace("Content-Type: ", "").replace("\n\n", "\n")
        for part in target.plan(request).replace("\n\n{", "\n{").split("\n\n")
    ]
    written = [
        write for write in recorded.writes if '"unschedulable"' in write or "nodes/gpu-1?" not in write
    ]
    note = json.loads(recorded.node()["metadata"]["annotations"]["reclaimerd.io/drain-request"])
    first = planned[0].replace("<as read>", "7")
    first = first.replace(f'\\"at\\":{request.asked_at}', f'\\"at\\":{note["at"]}')
    assert [first, *planned[1:]] == written
    # The only further writes note what was done, on the node's own note.
    others = [write for write in recorded.writes if write not in written]
    assert [set(json.loads(write.split("\n")[2])) for write in others] == [{"metadata"}] * 2


def test_a_server_that_hangs_is_given_up(recorded: Recorded) -> None:
    """Within the time of one order, and it is asked again."""
    recorded.hangs = threading.Event()
    answer = asyncio.run(target_of(recorded, seconds=1.0).request(a_request()))
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "did not answer within 1 s" in answer.text


@pytest.mark.parametrize(("code", "lasting"), [(500, False), (503, False), (429, False), (422, True)])
def test_each_status_means_again_or_a_person(recorded: Recorded, code: int, lasting: bool) -> None:  # noqa: FBT001
    """A server in trouble is asked again; what it does not understand is a person's."""
    recorded.code = code
    answer = asyncio.run(target_of(recorded).request(a_request()))
    assert isinstance(answer, NotAsked)
    assert answer.lasting is lasting
    assert f"HTTP {code}" in answer.text


def test_no_credentials_is_lasting() -> None:
    """A policy that names no cluster."""
    answer = asyncio.run(DrainKubernetes(KubeAccess("", NODE, BOOT)).request(a_request()))
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert "[cluster] has no credentials" in answer.text


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["#!/bin/sh", "exit 3"], "broke off (no error told, exit code 3)"),
        (["#!/bin/sh", "echo nonsense"], "broke off"),
        (["#!/bin/sh", "exec sleep 60"], "no answer within 0.3 s"),
    ],
)
def test_a_child_that_fails_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], words: str
) -> None:
    """Whatever it does: nothing is taken for done, and there is no place."""
    child = tmp_path / "python"
    child.write_text("\n".join(lines) + "\n", encoding="utf-8")
    child.chmod(0o755)
    monkeypatch.setattr(kube_order, "_START_SECONDS", 0.2)
    monkeypatch.setattr(sys, "executable", str(child))
    access = KubeAccess("/nowhere", NODE, BOOT)
    answer = asyncio.run(DrainKubernetes(access, seconds=0.1).request(a_request()))
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert words in answer.text
    fleet = KubernetesFleet(access, FleetSettings(), seconds=0.1)
    slot = asyncio.run(fleet.take(a_request()))
    assert isinstance(slot, SlotWaits)
    assert not slot.report_only
    assert isinstance(asyncio.run(fleet.release(a_request())), NotAsked)


def test_a_child_that_does_not_start_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program there."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    answer = asyncio.run(DrainKubernetes(KubeAccess("/nowhere", NODE, BOOT)).status(a_request()))
    assert isinstance(answer, NotAsked)
    assert "did not start" in answer.text


def test_the_daemon_itself_has_no_http_client() -> None:
    """Neither lightkube nor what it brings is in the process that wires the targets."""
    code = (
        "import sys, reclaimerd.daemon.wiring_drain; "
        "print([name for name in ('lightkube', 'httpx2', 'msgspec', 'reclaimerd.host.kube_client') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
