"""A real Kubernetes API server with its etcd on loopback, ended with the block.

Own ports, folders and keys: another cluster on the machine is not touched. There is no kubelet, no scheduler
and no controller, so what is deleted with a grace stays Terminating. Both programs come from the cache that
tools/build-kube-apiserver fills.
"""

import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.fake_cluster import write_kubeconfig
from tests.rigs.simulated import wait_until

READY_SECONDS = 60.0
_END_SECONDS = 15.0
_ADMIN = "system:masters"
Json = dict[str, Any]


def _cached(program: str) -> Path | None:
    """Return the newest one of this program in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reclaimerd"
    return max(cache.glob(f"{program}-[0-9]*"), default=None)


def why_unavailable() -> str:
    """Return why there can be no API server here, or "" when there can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in ("kube-apiserver", "etcd") if _cached(name) is None]
    return f"no {missing[0]} in the cache: run tools/build-kube-apiserver" if missing else ""


REAL_CLUSTER = (
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.kubernetes,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "available"),
)
"""The marks of tests that need this server."""


@dataclass(slots=True)
class ApiServer:
    """One running API server. `admin` is a token that may do everything."""

    folder: Path
    port: int
    etcd_port: int
    admin: str
    tokens: dict[str, str] = field(default_factory=dict)
    """Token of each user; the server reads them when it starts."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return where it answers."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """Return the certificate that vouches for it (its own)."""
        return self.folder / "certificates" / "apiserver.crt"

    def call(self, method: str, path: str, body: Json | None = None, *, token: str = "") -> Json:
        """Return the answer to one call by our own hands; raises HTTPError for what is no success."""
        request = urllib.request.Request(  # noqa: S310  # our own https address
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {token or self.admin}",
                "Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json",
            },
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310  # the same
            found: Json = json.load(answer)
        return found

    def refusal(self, method: str, path: str, body: Json | None = None, *, token: str = "") -> int:
        """Return the HTTP code by which a call is refused; 0: it was not."""
        try:
            self.call(method, path, body, token=token)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        return 0

    def apply(self, manifest: Json) -> Json:
        """Make one object."""
        group, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        namespace = manifest["metadata"].get("namespace", "")
        inside = f"/namespaces/{namespace}" if namespace else ""
        return self.call("POST", f"{root}{inside}/{kind.lower()}s", manifest)

    def kubeconfig(self, name: str, *, token: str = "", **cluster: object) -> Path:
        """Write a kubeconfig of root's for a token; `cluster` replaces what it says of the server."""
        return self.kubeconfig_of(name, {"token": token or self.admin}, **cluster)

    def kubeconfig_of(self, name: str, user: Json, **cluster: object) -> Path:
        """Write a kubeconfig of root's for a user as kubeconfigs have them."""
        ours = {"server": self.url, "certificate-authority": str(self.ca), **cluster}
        return write_kubeconfig(self.folder / f"{name}.kubeconfig", user, ours)

    def client_certificate(self, user: str, group: str) -> Json:
        """Return a user by certificate and key, in one file as the kubelet keeps them."""
        made = self.folder / "client"
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/O={group}/CN={user}",
                 "-keyout", f"{made}.key", "-out", f"{made}.csr")  # fmt: skip
        _openssl("x509", "-req", "-in", f"{made}.csr", "-CA", f"{self.folder}/clients.crt",
                 "-CAkey", f"{self.folder}/clients.key", "-CAcreateserial", "-days", "2",
                 "-out", f"{made}.crt")  # fmt: skip
        both = self.folder / "client.pem"
        both.touch(mode=0o600)
        both.write_text(Path(f"{made}.crt").read_text() + Path(f"{made}.key").read_text())
        return {"client-certificate": str(both), "client-key": str(both)}

    def start(self) -> None:
        """Start the server and wait until it is ready."""
        self.processes["kube-apiserver"] = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certificates",
            f"--token-auth-file={self.folder}/tokens.csv",
            f"--client-ca-file={self.folder}/clients.crt",
            f"--service-account-key-file={self.folder}/account.key",
            f"--service-account-signing-key-file={self.folder}/account.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount,DefaultStorageClass",
            "--service-cluster-ip-range=10.255.0.0/24",
        )
        wait_until(self._is_ready, f"the API server is ready: {self.story()}", READY_SECONDS)

    def kill(self) -> None:
        """Kill the server, as a crash does; its etcd goes on."""
        process = self.processes.pop("kube-apiserver")
        process.kill()
        process.wait(_END_SECONDS)

    def story(self) -> str:
        """Return the end of its log, for a failing test's message."""
        log = self.folder / "kube-apiserver.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def _run(self, program: str, *words: str) -> "subprocess.Popen[bytes]":
        path = _cached(program)
        assert path is not None, why_unavailable()
        with (self.folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen([path, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _start_etcd(self, peer_port: int) -> None:
        own = f"http://127.0.0.1:{self.etcd_port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self.processes["etcd"] = self._run(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={own}",
            f"--advertise-client-urls={own}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def _is_ready(self) -> bool:
        process = self.processes["kube-apiserver"]
        assert process.poll() is None, f"the API server ended: {self.story()}"
        try:
            # Its namespaces are made a moment after it calls itself ready.
            return {"default", "kube-system"} <= {
                one["metadata"]["name"] for one in self.call("GET", "/api/v1/namespaces")["items"]
            }
        except (OSError, ValueError):
            return False

    def end(self) -> None:
        """End both programs."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(_END_SECONDS)


@contextmanager
def kube_apiserver(users: Mapping[str, Sequence[str]] | None = None) -> Iterator[ApiServer]:
    """Run one until the block is left; `users` are further users and their groups, each with a token."""
    folder = Path(tempfile.mkdtemp(prefix="kube-"))
    port, etcd_port, peer_port = _free_ports(3)
    made = ApiServer(folder, port, etcd_port, secrets.token_hex(16))
    try:
        _write_files(made, users or {})
        made._start_etcd(peer_port)
        made.start()
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)


def _write_files(made: ApiServer, users: Mapping[str, Sequence[str]]) -> None:
    rows = [f'{made.admin},admin,admin,"{_ADMIN}"']
    for user, groups in users.items():
        made.tokens[user] = secrets.token_hex(16)
        rows.append(f'{made.tokens[user]},{user},{user},"{",".join(groups)}"')
    (made.folder / "tokens.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    _openssl("genrsa", "-out", f"{made.folder}/account.key", "2048")
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=clients",
             "-keyout", f"{made.folder}/clients.key", "-out", f"{made.folder}/clients.crt")  # fmt: skip


def _openssl(*words: str) -> None:
    subprocess.run(["/usr/bin/openssl", *words], check=True, capture_output=True, timeout=60)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
