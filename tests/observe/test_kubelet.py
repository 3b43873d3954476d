"""The kubelet asked over a real socket, by real gRPC: whole lists, and each failure a sentence."""

import builtins
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.allocation import AllocatedDevice, ContainerAllocation
from reclaimerd.observe import kubelet as asked
from reclaimerd.observe.kubelet import read_kubelet
from tests.rigs.kubelet import Container, Kubelet, Pod, gpu, kubelet

pytestmark = [pytest.mark.process, pytest.mark.root]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Kubelet]:
    """Give a kubelet with one pod of two containers."""
    pod = Pod("train-0", [Container("main", [gpu("GPU-1"), ("rdma/hca", ["mlx5_0"])]), Container("bare")])
    with kubelet(tmp_path / "pod-resources", pod) as one:
        yield one


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """Give a container runtime's socket."""
    path = tmp_path / "containerd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield path


def test_the_list_comes_with_the_sockets(served: Kubelet, runtime: Path) -> None:
    """GPUs alone are kept of the devices, every container of the list, and each socket with its age."""
    answer = read_kubelet(served.socket, [runtime, runtime.with_name("crio.sock")], 10)
    assert answer.containers == (
        ContainerAllocation("default", "train-0", "main", (AllocatedDevice("nvidia.com/gpu", "GPU-1"),)),
        ContainerAllocation("default", "train-0", "bare"),
    )
    assert [mark.path for mark in answer.sockets] == [str(served.socket), str(runtime)]
    assert all(0 <= mark.age_seconds < 60 for mark in answer.sockets)
    assert answer.missing == (str(runtime.with_name("crio.sock")),)


def test_a_restart_makes_another_mark(served: Kubelet) -> None:
    """The socket of a kubelet that was started anew is another file, or was changed later."""
    (before,) = read_kubelet(served.socket, [], 10).sockets
    assert read_kubelet(served.socket, [], 10).sockets[0].changed_ns == before.changed_ns
    served.stop()
    served.start()
    (after,) = read_kubelet(served.socket, [], 10).sockets
    assert (after.file, after.changed_ns) != (before.file, before.changed_ns)


def test_a_kubelet_that_hangs_costs_the_limit(served: Kubelet) -> None:
    """No answer within the time is an error that names the socket."""
    served.freeze()
    began = time.monotonic()
    with pytest.raises(ReclaimerdError, match="DEADLINE_EXCEEDED"):
        read_kubelet(served.socket, [], 0.5)
    assert time.monotonic() - began < 5


def test_a_restart_in_the_middle_is_no_list(
    served: Kubelet, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime whose socket changes while the kubelet answers: the list may be half of one."""
    ask = asked._list

    def ask_and_restart(path: Path, seconds: float) -> tuple[ContainerAllocation, ...]:
        found = ask(path, seconds)
        runtime.unlink()
        return found

    monkeypatch.setattr(asked, "_list", ask_and_restart)
    with pytest.raises(ReclaimerdError, match="started anew"):
        read_kubelet(served.socket, [runtime], 10)


def test_a_socket_that_is_gone_or_none_is_an_error(served: Kubelet, tmp_path: Path) -> None:
    """A stopped kubelet, a plain file, and a runtime's path that is no socket."""
    plain = tmp_path / "plain"
    plain.touch()
    with pytest.raises(ReclaimerdError, match="is not a socket"):
        read_kubelet(plain, [], 1)
    with pytest.raises(ReclaimerdError, match="is not a socket"):
        read_kubelet(served.socket, [plain], 10)
    served.stop()
    with pytest.raises(ReclaimerdError, match="No such file"):
        read_kubelet(served.socket, [], 1)


@pytest.mark.parametrize("what", ["folder", "socket", "writable"])
def test_a_socket_that_somebody_else_could_have_made_is_not_asked(served: Kubelet, what: str) -> None:
    """A folder or socket of a user's, or a folder that others may write: the error names it and its mend."""
    match what:
        case "folder":
            _chown(served.folder, 4242)
        case "socket":
            _chown(served.socket, 4242)
        case _:
            served.folder.chmod(0o777)
    with pytest.raises(ReclaimerdError, match=r"uid 4242|can be written"):
        read_kubelet(served.socket, [], 10)


def _chown(path: Path, uid: int) -> None:
    import os  # noqa: PLC0415  # for this alone

    os.chown(path, uid, uid)


def test_without_grpcio_the_error_says_what_to_install(
    served: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's extra is named."""
    real = builtins.__import__

    def without(
        name: str,
        names: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        wanted: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if name == "grpc":
            raise ImportError(name)
        return real(name, names, local, wanted, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ReclaimerdError, match=r"install reclaimerd\[kubernetes\]"):
        read_kubelet(served.socket, [], 10)


def test_bytes_that_are_no_list_are_an_error(served: Kubelet) -> None:
    """A server that answers with something else: a sentence, not a traceback."""
    (served.folder / "pods.json").write_text("[1]")  # makes the server itself fail
    with pytest.raises(ReclaimerdError, match="gave no list: UNKNOWN"):
        read_kubelet(served.socket, [], 10)
