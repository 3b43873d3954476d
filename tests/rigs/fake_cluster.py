"""A cluster's API as far as we ask it for pods, over real TLS: for what a real one never says.

It runs in a thread of the test. tests/contract/test_cluster.py shows what it has in common with the real one.
"""

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
TOKEN, STRANGER = "the-token", "the-token-of-somebody"
_STATUS = {401: "Unauthorized", 403: 'pods is forbidden: User "u" cannot list', 404: "not found"}


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: bytes as they are, with headers over the usual ones (None leaves one out)."""

    body: bytes
    code: int = 200
    headers: Mapping[str, str | None] = field(default_factory=dict)


Answer = Callable[["FakeCluster", BaseHTTPRequestHandler, Mapping[str, str]], Said | None]
"""None: it has answered by itself, or never will."""


@dataclass(slots=True)
class FakeCluster:
    """One such server. `answer` may be replaced by any other."""

    folder: Path
    port: int
    pods: list[Json] = field(default_factory=list)
    answer: "Answer" = field(default_factory=lambda: as_the_real_one)
    asked: list[Mapping[str, str]] = field(default_factory=list)
    """The query of each request."""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, name: str, *, token: str = TOKEN, **cluster: object) -> Path:
        """Write a kubeconfig of root's; `cluster` replaces what it says of the server."""
        ours = {"server": self.url, "certificate-authority": f"{self.folder}/server.crt", **cluster}
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", {"token": token}, ours)


def write_kubeconfig(path: Path, user: Json, cluster: Mapping[str, object]) -> Path:
    """Write a kubeconfig that only its owner reads."""
    text = {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    path.write_text(json.dumps(text), encoding="utf-8")  # JSON is YAML
    path.chmod(0o600)
    return path


def status(code: int, message: str | None = None) -> Said:
    """Return a Kubernetes Status."""
    text = _STATUS[code] if message is None else message
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "code": code}
    return Said(json.dumps(body).encode(), code)


def pod_list(pods: Sequence[Json], more: str = "") -> Said:
    """Return one page of a PodList."""
    about = {"resourceVersion": "1", **({"continue": more} if more else {})}
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": pods}
    return Said(json.dumps(body).encode())


def as_the_real_one(
    cluster: FakeCluster, request: BaseHTTPRequestHandler, query: Mapping[str, str]
) -> Said | None:
    """Answer a list as Kubernetes does: who asks, what for, and a page at a time."""
    match request.headers.get("authorization"):
        case str(bearer) if bearer == f"Bearer {TOKEN}":
            pass
        case str(bearer) if bearer == f"Bearer {STRANGER}":
            return status(403)
        case _:
            return status(401)
    if urlsplit(request.path).path != "/api/v1/pods":
        return status(404)
    node = query["fieldSelector"].removeprefix("spec.nodeName=")
    mine = [pod for pod in cluster.pods if pod["spec"]["nodeName"] == node]
    begin, limit = int(query.get("continue", 0)), int(query["limit"])
    page = mine[begin : begin + limit]
    return pod_list(page, str(begin + limit) if begin + limit < len(mine) else "")


@contextmanager
def fake_cluster(folder: Path) -> Iterator[FakeCluster]:
    """Serve until the block is left."""
    folder.mkdir(exist_ok=True)
    make_certificate(folder, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = _Server(("127.0.0.1", 0), _Request)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.cluster = FakeCluster(folder, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.cluster
    finally:
        server.cluster.ended.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def make_certificate(folder: Path, name: str) -> None:
    """Make NAME.crt, which vouches for itself at 127.0.0.1, and NAME.key."""
    subprocess.run(
        [
            "/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt",
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )  # fmt: skip


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cluster: FakeCluster

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that leave early, or refuse our certificate, are what is tested."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Answer as the cluster's script says."""
        cluster = self.server.cluster
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        cluster.asked.append(query)
        said = cluster.answer(cluster, self, query)
        if said is None:
            self.close_connection = True
            return
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": "application/json",
            "Content-Length": str(len(said.body)),
            **said.headers,
        }
        self.send_response_only(said.code)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said.body)

    def do_POST(self) -> None:
        """Answer by the same script, which reads the body where it cares."""
        self.do_GET()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


def free_port() -> int:
    """Return a port where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
