"""Asks the kubelet which container was given which device; runs in the kubelet's worker alone.

It asks once for the whole list and judges nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.allocation import ContainerAllocation, KubeletAnswer, SocketMark, may_be_gpu
from reclaimerd.observe.kubelet_wire import LIST_METHOD, list_request, list_response
from reclaimerd.observe.root_sockets import opened, socket_mark, trusted_mark

MOST_BYTES = 16 * 1024 * 1024
"""As much as the kubelet's own client takes (pkg/kubelet/apis/podresources/client.go)."""


def read_kubelet(socket: Path, runtimes: Sequence[Path], seconds: float) -> KubeletAnswer:
    """Return the kubelet's list, asked over its socket within so many seconds.

    Raises ReclaimerdError when there is no answer, when the socket is not root's, or when the kubelet or
    a runtime was started anew meanwhile: then the list may be half of one.
    """
    before, _ = _marks(socket, runtimes)
    containers = _list(socket, seconds)
    after, missing = _marks(socket, runtimes)
    if [_without_age(mark) for mark in before] != [_without_age(mark) for mark in after]:
        raise ReclaimerdError("the kubelet or a container runtime was started anew while it was asked")
    return KubeletAnswer(tuple(_gpus_alone(one) for one in containers), after, missing)


def _marks(socket: Path, runtimes: Sequence[Path]) -> tuple[tuple[SocketMark, ...], tuple[str, ...]]:
    """Return the sockets as they stand now, the kubelet's first, and the runtimes' that are not there."""
    marks = [trusted_mark(socket)]
    missing = []
    for path in runtimes:
        try:
            marks.append(socket_mark(path))
        except (FileNotFoundError, NotADirectoryError):
            missing.append(str(path))
        except OSError as error:
            raise ReclaimerdError(f"{path}: {error.strerror or error}") from None
    return tuple(marks), tuple(missing)


def _without_age(mark: SocketMark) -> SocketMark:
    return replace(mark, age_seconds=0.0)


def _gpus_alone(container: ContainerAllocation) -> ContainerAllocation:
    return replace(container, devices=tuple(one for one in container.devices if may_be_gpu(one)))


def _list(socket: Path, seconds: float) -> tuple[ContainerAllocation, ...]:
    with opened(socket, f"the kubelet at {socket} gave no list", MOST_BYTES) as call:
        payload = call(LIST_METHOD, list_request(), seconds)
    try:
        return list_response(payload)
    except ValueError as error:
        raise ReclaimerdError(f"the kubelet's list can't be read: {error}") from None
