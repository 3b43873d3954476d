"""A kubelet as far as we ask one: pod-resources v1 `List`, by a real gRPC server on a unix socket.

The server is a process of its own, so that it can be killed, stopped and started again as kubelets are.
It encodes its answers itself: nothing of the code under test stands in it.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Container:
    """One container: devices as (resource, ids), claims as (namespace, name)."""

    name: str
    devices: Sequence[tuple[str, Sequence[str]]] = ()
    claims: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the list."""

    name: str
    containers: Sequence[Container]
    namespace: str = "default"


def gpu(*ids: str, resource: str = "nvidia.com/gpu") -> tuple[str, Sequence[str]]:
    """Return GPUs as the device plugin names them."""
    return resource, ids


def encoded(pods: Sequence[Mapping[str, Any]]) -> bytes:
    """Return ListPodResourcesResponse; each message also has a field that nobody knows yet."""
    return b"".join(_message(1, _pod(pod)) for pod in pods) + _text(900, "later")


def _pod(pod: Mapping[str, Any]) -> bytes:
    containers = b"".join(_message(3, _container(one)) for one in pod["containers"])
    cpu_ids = _message(4, b"\x00\x01\x80\x01")
    return _text(1, pod["name"]) + _text(2, pod["namespace"]) + containers + cpu_ids


def _container(container: Mapping[str, Any]) -> bytes:
    devices = b"".join(
        _message(2, _text(1, resource) + b"".join(_text(2, one) for one in ids) + _topology())
        for resource, ids in container["devices"]
    )
    claims = b"".join(
        _message(5, _text(2, name) + _text(3, namespace) + _message(4, _text(2, "gpu.nvidia.com")))
        for namespace, name in container["claims"]
    )
    return _text(1, container["name"]) + devices + _message(3, b"\x02\x03") + claims


def _topology() -> bytes:
    """Return TopologyInfo with one NUMA node, its number a varint of two bytes."""
    return _message(3, _message(1, b"\x08" + _varint(300)))


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


@dataclass(slots=True)
class Kubelet:
    """One served list: `serve` changes it, `stop` and `start` are a restart, `freeze` a hang."""

    folder: Path
    _server: subprocess.Popen[str] | None = field(default=None)

    @property
    def socket(self) -> Path:
        """Return the path of the pod-resources socket."""
        return self.folder / "kubelet.sock"

    def serve(self, *pods: Pod) -> None:
        """Answer this list from now on."""
        new = self.folder / "pods.new"
        new.write_text(json.dumps([asdict(pod) for pod in pods]))
        new.rename(self.folder / "pods.json")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        words = [sys.executable, "-P", __file__, str(self.socket), str(self.folder / "pods.json")]
        self._server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def freeze(self) -> None:
        """Let it hang: connections are taken by the kernel, and nobody answers."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End the server; its socket goes with it, as a kubelet's does."""
        if self._server is None:
            return
        self._server.kill()
        self._server.wait(START_SECONDS)
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._server = None
        self.socket.unlink(missing_ok=True)


@contextmanager
def kubelet(folder: Path, *pods: Pod) -> Iterator[Kubelet]:
    """Serve a list below a folder (made, root's alone), and end the server when the block is left."""
    folder.mkdir(mode=0o750)
    served = Kubelet(folder)
    served.serve(*pods)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def main(socket: str, pods: str) -> None:
    """Serve `List` until killed; the list is read anew at each call."""
    import grpc  # noqa: PLC0415  # the tests import this module for its words alone

    def answer(_request: bytes, _context: object) -> bytes:
        return encoded(json.loads(Path(pods).read_text()))

    method = grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),)
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print("ready", flush=True)  # noqa: T201  # whoever started us waits for this
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
