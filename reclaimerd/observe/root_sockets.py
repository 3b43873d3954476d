"""Asks a service of root's over its unix socket, by gRPC; in workers of their own alone.

A call may hang as long as the service does, and grpcio costs 26 MiB and threads: neither belongs into the
main process. A socket that somebody else could have made is not asked. It judges no answer.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.files import ROOT_ALONE, walk_owners
from reclaimerd.model.allocation import SocketMark
from reclaimerd.model.identity import FileIdentity

Call = Callable[[str, bytes, float], bytes]
"""One unary call: method, request, seconds; returns the answer's bytes. Raises ReclaimerdError."""
_EXTRA = "install reclaimerd[kubernetes]"


def trusted_mark(socket: Path) -> SocketMark:
    """Return a socket's identity and age; raises ReclaimerdError if it is not root's alone, or none."""
    try:
        _, concerns = walk_owners(socket, ROOT_ALONE, most_concerns=1)
        if concerns:
            raise ReclaimerdError(f"{concerns[0].text}: somebody else could answer there", concerns[0].mend)
        return socket_mark(socket)
    except OSError as error:
        raise ReclaimerdError(f"{socket}: {error.strerror or error}") from None


def socket_mark(path: Path) -> SocketMark:
    """Return one socket's identity and age; raises OSError when it is missing."""
    found = os.stat(path)  # noqa: PTH116  # one way to ask for all four figures at once
    if not stat.S_ISSOCK(found.st_mode):
        raise ReclaimerdError(f"{path} is not a socket", "name the socket in [attribution]")
    if found.st_uid not in ROOT_ALONE:
        raise ReclaimerdError(f"{path} belongs to uid {found.st_uid}, not to root")
    identity = FileIdentity(found.st_dev, found.st_ino)
    return SocketMark(str(path), identity, found.st_ctime_ns, time.time() - found.st_ctime)


@contextmanager
def opened(socket: Path, failure: str, most_bytes: int) -> Iterator[Call]:
    """Give what makes calls over one connection, closed with the block; answers are bounded in bytes.

    `failure` begins the sentence on a call without an answer.
    """
    try:
        # Here and not above: a host without such a service needs no grpcio, an extra of the package.
        import grpc  # noqa: PLC0415
    except ImportError:
        raise ReclaimerdError(f"{socket} can't be asked without grpcio", _EXTRA) from None
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", most_bytes)]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:

        def call(method: str, request: bytes, seconds: float) -> bytes:
            # Bytes in and out: an error in a deserialiser of grpc's ends in its log, not with us.
            try:
                answer: bytes = channel.unary_unary(method)(request, timeout=seconds)
            except grpc.RpcError as error:
                raise ReclaimerdError(f"{failure}: {error.code().name}: {error.details()}") from None
            return answer

        yield call
