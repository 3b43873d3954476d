"""A node of a cluster: real processes in real cgroups with the kubelet's names, a served kubelet and runtime.

The list comes from a real gRPC server, names from a container's record on disk, and labels from another such
server where the runtime is to answer; the GPUs come from the simulation.
"""

import secrets
import socket as socket_of
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reclaimerd.observe.peers import cgroup_root
from tests.e2e.cgroups import moved
from tests.e2e.rig import GPU_A, Rig, Table, is_alive, signals_in, simulated_host
from tests.rigs.cri import Runtime, Served
from tests.rigs.cri import runtime as served_runtime
from tests.rigs.kubelet import Container, Kubelet, Pod, gpu, kubelet
from tests.rigs.records import CONTAINERD, containerd_config, write_record
from tests.rigs.simulated import wait_until

RULE: Table = {
    "name": "thief",
    "kind": "unallocated",
    "for": "400ms",
    "readings": 2,
    "mode": "enforce",
    "stages": ["sigterm", "sigkill"],
    "grace": "1s",
    "large_jobs": True,
    "match.uid": ["0-4294967294"],
}
OTHER = Pod("other-0", [Container("main", [gpu("GPU-dddddddd-0000-4000-8000-00000000000d")])], "team")
"""A pod whose GPU is none of this host's: it makes the list a whole one."""


@dataclass(slots=True)
class Node:
    """A node of a cluster: one pod of several containers, its kubelet, its runtime, its GPUs."""

    rig: Rig
    kubelet: Kubelet
    pod: Path
    uid: str
    cri: Runtime | None = None
    """The runtime that tells of its containers; None: nobody answers at its socket."""
    served: list[Served] = field(default_factory=list)
    scopes: list[Path] = field(default_factory=list)
    labels: Mapping[str, str] = field(default_factory=dict)
    """The pod's labels, as the runtime tells them of containers that start from now on."""

    def start(self, container: str, *options: str, on: str = GPU_A) -> tuple[int, Path]:
        """Start a workload in a container of the pod; its pid, and where it writes down its signals."""
        cid = secrets.token_hex(32)
        names = {
            "io.kubernetes.cri.sandbox-namespace": "team",
            "io.kubernetes.cri.container-name": container,
        }
        write_record(self.rig.host / "root", CONTAINERD, cid, containerd_config(self.uid, **names))
        if self.cri is not None:
            row = Served(cid, self.uid, container, namespace="team", labels=self.labels)
            self.served.append(row)
            self.cri.serve(*self.served)
        scope = self.pod / f"cri-containerd-{cid}.scope"
        scope.mkdir()
        self.scopes.append(scope)
        pid, path = self.rig.recorder(container, *options, gpu=on)
        return moved(scope, pid), path

    def serve(self, *containers: Container) -> None:
        """Let the kubelet name these containers of the pod, and another pod."""
        self.kubelet.serve(Pod("train-0", containers, "team"), OTHER)

    def allocation(self, pid: int) -> str:
        """Return what `ps` says of who was given the GPU."""
        rows = self.rig.ask("/v1/ps")["rows"]
        return next((str(row["allocation"]) for row in rows if row["pid"] == pid), "no row")

    def wait_allocation(self, pid: int, word: str) -> None:
        """Wait until `ps` says this word."""
        wait_until(
            lambda: self.allocation(pid) == word, f"pid {pid} is {word}, not {self.allocation(pid)}", 20
        )

    def why(self, pid: int) -> str:
        """Return the daemon's sentence on the first GPU of one process."""
        found = self.rig.ctl("inspect", str(pid)).answer["allocations"]
        return str(found[0]["text"]) if found else "-"

    def wait_why(self, pid: int, words: str) -> None:
        """Wait until the daemon's sentence has these words."""
        wait_until(lambda: words in self.why(pid), f"{words}, not: {self.why(pid)}", 20)

    def assert_untouched(self, *workloads: tuple[int, Path]) -> None:
        """Assert that passes go by and nobody is signalled, nor is an incident opened."""
        self.rig.passes(6)
        for pid, path in workloads:
            assert is_alive(pid)
            assert signals_in(path) == []
            assert self.rig.records("incident_opened", pid=pid) == []


@contextmanager
def _runtime(path: Path) -> Iterator[None]:
    """Stand in for a container runtime: its socket, of which only the age is looked at."""
    with socket_of.socket(socket_of.AF_UNIX) as listener:
        listener.bind(str(path))
        yield


@contextmanager
def a_node(
    rule: Table | Sequence[Table] = RULE,
    attribution: Mapping[str, object] | None = None,
    *,
    cri: bool = False,
) -> Iterator[Node]:
    """Give a node whose kubelet and runtime have run long enough, and the daemon on it.

    With `cri` its runtime answers, else only its socket stands there.
    """
    uid = str(uuid.uuid4())
    pod = cgroup_root("") / "kubepods.slice" / f"kubepods-pod{uid.replace('-', '_')}.slice"
    with ExitStack() as stack:
        rig = stack.enter_context(simulated_host())
        try:
            pod.mkdir(parents=True)
        except OSError as error:
            pytest.skip(f"no cgroup v2 can be made here: {error}")
        node = Node(rig, stack.enter_context(kubelet(rig.directory / "pod-resources", OTHER)), pod, uid)
        stack.callback(_remove, node)
        stack.callback(rig.keeper.stop)
        if cri:
            node.cri = stack.enter_context(served_runtime(rig.directory / "containerd"))
        socket = node.cri.socket if node.cri is not None else rig.directory / "containerd.sock"
        if node.cri is None:
            stack.enter_context(_runtime(socket))
        keys = {
            "kubelet_socket": str(node.kubelet.socket),
            "runtime_sockets": [str(socket)],
            "refresh": "400ms",
            "steady": "0s",
            **(attribution or {}),
        }
        rules = [rule] if isinstance(rule, Mapping) else rule
        rig.write_policy(*rules, attribution=keys)
        rig.start_daemon()
        yield node


def _remove(node: Node) -> None:
    for scope in node.scopes:
        wait_until(lambda: not (scope / "cgroup.procs").read_text(), f"{scope} is empty")  # noqa: B023  # at once
        scope.rmdir()
    node.pod.rmdir()
    with suppress(OSError):  # another test may have its pods there
        node.pod.parent.rmdir()
