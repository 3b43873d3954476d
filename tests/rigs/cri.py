"""A container runtime as far as we ask one: CRI v1 `ListContainers` and `ListPodSandbox`, by real gRPC.

The server is a process of its own, so that it can be stopped and hang as runtimes do. It filters by id and
encodes its answers itself: nothing of the code under test stands in it.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.rigs.proto_text import message, number, text

END_SECONDS = 20
SANDBOX = "beef" * 16


@dataclass(frozen=True, slots=True)
class Served:
    """One container and its pod's sandbox; the kubelet's own labels are made from the names.

    `uids` are what the container's label, the sandbox's label and the sandbox's metadata say where they do
    not all say `uid`.
    """

    id: str
    uid: str
    container: str = "main"
    pod: str = "train-0"
    namespace: str = "team"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    uids: tuple[str, str, str] | None = None
    sandbox: str = SANDBOX


def kubelets_labels(row: Mapping[str, Any], uid: str) -> dict[str, str]:
    """Return the labels that the kubelet gives every sandbox and container."""
    return {
        "io.kubernetes.pod.name": row["pod"],
        "io.kubernetes.pod.namespace": row["namespace"],
        "io.kubernetes.pod.uid": uid,
    }


def container(row: Mapping[str, Any]) -> bytes:
    """Return one Container, with fields that we do not ask for and one that nobody knows yet."""
    uid = (row["uids"] or [row["uid"]] * 3)[0]
    labels = kubelets_labels(row, uid) | {"io.kubernetes.container.name": row["container"]}
    return (
        text(1, row["id"])
        + text(2, row["sandbox"])
        + message(3, text(1, row["container"]) + number(2, 300))
        + message(4, text(1, "sha256:abc"))
        + number(6, 1)
        + number(7, 1 << 60)
        + entries(8, labels)
        + text(900, "later")
    )


def sandbox(row: Mapping[str, Any]) -> bytes:
    """Return one PodSandbox."""
    _, labelled, uid = row["uids"] or [row["uid"]] * 3
    metadata = text(1, row["pod"]) + text(2, uid) + text(3, row["namespace"]) + number(4, 1)
    return (
        text(1, row["sandbox"])
        + message(2, metadata)
        + number(4, 1 << 60)
        + entries(5, {**row["labels"], **kubelets_labels(row, labelled)})
        + entries(6, row["annotations"])
    )


def entries(field_number: int, texts: Mapping[str, str]) -> bytes:
    """Return a map's field."""
    return b"".join(message(field_number, text(1, key) + text(2, texts[key])) for key in sorted(texts))


def listed(rows: list[Mapping[str, Any]], method: str, wanted: str) -> bytes:
    """Return the answer of one method, filtered by id; a row `raw` is its bytes as they stand."""
    if rows and "raw" in rows[0]:
        return bytes.fromhex(rows[0]["raw"])
    if method == "ListContainers":
        return b"".join(message(1, container(row)) for row in rows if row["id"] == wanted)
    boxes = {row["sandbox"]: row for row in rows if row["sandbox"] == wanted}
    return b"".join(message(1, sandbox(row)) for row in boxes.values())


@dataclass(slots=True)
class Runtime:
    """One served runtime: `serve` changes its list, `freeze` is a hang, `calls` what it was asked."""

    socket: Path
    folder: Path
    _server: subprocess.Popen[str] | None = field(default=None)

    def serve(self, *rows: Served) -> None:
        """Answer with these containers from now on."""
        self._write([asdict(row) for row in rows])

    def serve_bytes(self, raw: bytes) -> None:
        """Answer with these bytes, whatever is asked."""
        self._write([{"raw": raw.hex()}])

    def _write(self, rows: list[dict[str, Any]]) -> None:
        new = self.folder / "rows.new"
        new.write_text(json.dumps(rows))
        new.rename(self.folder / "rows.json")

    def calls(self) -> list[str]:
        """Return every call so far, as method and id."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def start(self) -> None:
        """Start the server and wait until it answers."""
        words = [sys.executable, "-P", "-m", "tests.rigs.cri", str(self.socket), str(self.folder)]
        root = Path(__file__).parents[2]
        env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
        self._server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root, env=env)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == "ready\n"

    def freeze(self) -> None:
        """Let it hang: connections are taken by the kernel, and nobody answers."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._server is not None
        self._server.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server, and its socket with it."""
        if self._server is None:
            return
        self._server.kill()
        self._server.wait(END_SECONDS)
        assert self._server.stdout is not None
        self._server.stdout.close()
        self._server = None
        self.socket.unlink(missing_ok=True)


@contextmanager
def runtime(folder: Path, *rows: Served, socket: Path | None = None) -> Iterator[Runtime]:
    """Serve containers from below a folder (made, root's alone); end the server when the block is left."""
    folder.mkdir(mode=0o750)
    served = Runtime(socket or folder / "containerd.sock", folder)
    served.serve(*rows)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def main(socket: str, folder: str) -> None:
    """Serve until killed; the list is read anew at each call, and each call is written down."""
    import grpc  # noqa: PLC0415  # the tests import this module for its words alone

    def answering(method: str) -> Any:
        def answer(request: bytes, _context: object) -> bytes:
            # Field 1 of the filter in field 1, each with a length of one byte.
            wanted = request[4:].decode()
            with Path(folder, "calls").open("a") as calls:
                calls.write(f"{method} {wanted}\n")
            return listed(json.loads(Path(folder, "rows.json").read_text()), method, wanted)

        return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    methods = {name: answering(name) for name in ("ListContainers", "ListPodSandbox")}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods),)
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print("ready", flush=True)  # noqa: T201  # whoever started us waits for this
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
