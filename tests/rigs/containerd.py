"""A real containerd with its CRI, in a PID and a mount namespace of its own, ended with the block.

Own folders and sockets: another containerd on the machine is not touched. It comes from the cache that
tools/fetch-containerd fills. In the place of runc stands a script whose containers sleep: what a runtime
tells of a pod comes from containerd's own store, and making namespaces is not what is tried.
"""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cri import Served, entries, kubelets_labels
from tests.rigs.proto_text import message, number, text
from tests.rigs.simulated import wait_until

CALL_SECONDS = 30.0
_IMAGE = "docker.io/library/pause:1"
_CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{folder}/containerd.sock"
[ttrpc]
address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/cni"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{folder}/runc"
"""
_RUNC = """#!/bin/bash
words=() pidfile=
while (($#)); do
    case $1 in
        --root|--log|--log-format|--bundle) shift ;;
        --pid-file) pidfile=$2; shift ;;
        --*) ;;
        *) words+=("$1") ;;
    esac
    shift
done
kept={folder}/pid.${{words[1]}}
case ${{words[0]}} in
    create) setsid sleep 600 </dev/null >/dev/null 2>&1 & echo -n $! | tee "$kept" >"$pidfile" ;;
    kill|delete) kill -9 "$(cat "$kept")" 2>/dev/null ;;
esac
exit 0
"""


def _cached() -> Path | None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reclaimerd"
    return max(cache.glob("containerd-[0-9]*"), default=None)


def why_unavailable() -> str:
    """Return why there can be no containerd here, or ""."""
    if os.geteuid() != 0:
        return "needs root"
    if _cached() is None:
        return "no containerd in the cache: run tools/fetch-containerd"
    return "" if shutil.which("unshare") else "needs unshare"


@dataclass(frozen=True, slots=True)
class Containerd:
    """A running containerd."""

    folder: Path

    @property
    def socket(self) -> Path:
        """Return the path of its socket."""
        return self.folder / "containerd.sock"

    def make(self, pod: Served) -> str:
        """Make a pod of one container as the kubelet does; return the id that the container gets."""
        row = asdict(pod)
        labels = kubelets_labels(row, pod.uid)
        metadata = message(1, text(1, pod.pod) + text(2, pod.uid) + text(3, pod.namespace))
        config = (
            metadata
            + text(3, str(self.folder / "logs"))
            + entries(6, {**pod.labels, **labels})
            + entries(7, pod.annotations)
            + message(8, message(2, message(1, number(1, 2) + number(2, 1) + number(3, 2))))
        )
        sandbox = self._call("RunPodSandbox", message(1, config))
        own = labels | {"io.kubernetes.container.name": pod.container}
        made = message(1, text(1, pod.container)) + message(2, text(1, _IMAGE)) + entries(9, own)
        request = message(1, sandbox.encode()) + message(2, made) + message(3, config)
        return self._call("CreateContainer", request)

    def _call(self, method: str, request: bytes) -> str:
        """Return the id in the answer: its only field."""
        import grpc  # noqa: PLC0415  # an extra of the package

        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            answer: bytes = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(
                request, timeout=CALL_SECONDS
            )
        return answer[2:].decode()


@contextmanager
def containerd() -> Iterator[Containerd]:
    """Run a containerd below a folder of its own (root's alone); end it and all that it started."""
    if (why := why_unavailable()) or (programs := _cached()) is None:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="cd-"))  # short: its longest socket's path must fit in 107 bytes
    try:
        with _running(folder, programs) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@contextmanager
def _running(folder: Path, programs: Path) -> Iterator[Containerd]:
    (folder / "config.toml").write_text(_CONFIG.format(folder=folder, image=_IMAGE))
    (folder / "runc").write_text(_RUNC.format(folder=folder))
    (folder / "runc").chmod(0o755)
    env = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"}
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    argv = [*isolated, str(programs / "containerd"), "--config", str(folder / "config.toml")]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log, env=env) as ran:
        try:
            _wait_ready(folder, ran)
            _import_image(folder, programs)
            yield Containerd(folder)
        finally:
            _end(ran)


def _end(ran: "subprocess.Popen[bytes]") -> None:
    """End the first process of the namespace, and with it all others; `unshare` sees them off."""
    if ran.poll() is not None:
        return
    for pid in Path(f"/proc/{ran.pid}/task/{ran.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    try:
        ran.wait(CALL_SECONDS)
    except subprocess.TimeoutExpired:
        ran.kill()


def _wait_ready(folder: Path, ran: "subprocess.Popen[bytes]") -> None:
    log = folder / "log"
    wait_until(
        lambda: ran.poll() is not None or "successfully booted" in log.read_text(), "containerd is ready", 30
    )
    if ran.poll() is not None:
        pytest.skip(f"containerd can't run here: {log.read_text()[-300:]}")


def _import_image(folder: Path, programs: Path) -> None:
    layer = _tar({"pause": b"none runs this"})
    digest = hashlib.sha256(layer).hexdigest()
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    config: Mapping[str, Any] = {
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/pause"]}, "rootfs": rootfs
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [_IMAGE], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    (folder / "image.tar").write_bytes(_tar(files))
    argv = [str(programs / "ctr"), "-a", str(folder / "containerd.sock"), "-n", "k8s.io"]
    argv += ["images", "import", "--all-platforms", str(folder / "image.tar")]
    subprocess.run(argv, check=True, capture_output=True, timeout=CALL_SECONDS)


def _tar(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()
