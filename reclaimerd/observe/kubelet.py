"""Asks the kubelet which container was given which device; runs in the kubelet's worker alone.

The call may hang as long as the kubelet does, and grpcio costs 26 MiB and threads: neither belongs into
the main process. It asks once for the whole list and judges nothing.
"""

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.files import ROOT_ALONE, walk_owners
from reclaimerd.model.allocation import ContainerAllocation, KubeletAnswer, SocketMark, may_be_gpu
from reclaimerd.model.identity import FileIdentity
from reclaimerd.observe.kubelet_wire import LIST_METHOD, list_request, list_response

MOST_BYTES = 16 * 1024 * 1024
"""As much as the kubelet's own client takes (pkg/kubelet/apis/podresources/client.go)."""
_EXTRA = "install reclaimerd[kubernetes]"


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
    marks = [_trusted_mark(socket)]
    missing = []
    for path in runtimes:
        try:
            marks.append(_mark(path))
        except (FileNotFoundError, NotADirectoryError):
            missing.append(str(path))
        except OSError as error:
            raise ReclaimerdError(f"{path}: {error.strerror or error}") from None
    return tuple(marks), tuple(missing)


def _trusted_mark(socket: Path) -> SocketMark:
    try:
        _, concerns = walk_owners(socket, ROOT_ALONE, most_concerns=1)
        if concerns:
            raise ReclaimerdError(f"{concerns[0].text}: somebody else could answer there", concerns[0].mend)
        return _mark(socket)
    except OSError as error:
        raise ReclaimerdError(f"{socket}: {error.strerror or error}") from None


def _mark(path: Path) -> SocketMark:
    """Return one socket's identity and age; raises OSError when it is missing."""
    found = os.stat(path)  # noqa: PTH116  # one way to ask for all four figures at once
    if not stat.S_ISSOCK(found.st_mode):
        raise ReclaimerdError(f"{path} is not a socket", "name the socket in [attribution]")
    if found.st_uid not in ROOT_ALONE:
        raise ReclaimerdError(f"{path} belongs to uid {found.st_uid}, not to root")
    identity = FileIdentity(found.st_dev, found.st_ino)
    return SocketMark(str(path), identity, found.st_ctime_ns, time.time() - found.st_ctime)


def _without_age(mark: SocketMark) -> SocketMark:
    return replace(mark, age_seconds=0.0)


def _gpus_alone(container: ContainerAllocation) -> ContainerAllocation:
    return replace(container, devices=tuple(one for one in container.devices if may_be_gpu(one)))


def _list(socket: Path, seconds: float) -> tuple[ContainerAllocation, ...]:
    try:
        # Here and not above: a host without a kubelet needs no grpcio, and it is an extra of the package.
        import grpc  # noqa: PLC0415
    except ImportError:
        raise ReclaimerdError("the kubelet can't be asked without grpcio", _EXTRA) from None
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", MOST_BYTES)]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        # The answer stays bytes here: an error in a deserialiser of grpc's ends in its log, not with us.
        call = channel.unary_unary(LIST_METHOD, request_serializer=list_request)
        try:
            payload: bytes = call(None, timeout=seconds)
        except grpc.RpcError as error:
            raise ReclaimerdError(
                f"the kubelet at {socket} gave no list: {error.code().name}: {error.details()}"
            ) from None
    try:
        return list_response(payload)
    except ValueError as error:
        raise ReclaimerdError(f"the kubelet's list can't be read: {error}") from None
