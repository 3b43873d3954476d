"""Tell the service manager how we are (sd_notify(3)), and take the socket that it keeps (sd_listen_fds(3)).

A datagram that never blocks. Written here, in two dozen lines: docs/adr/0004 says why no package does it.
"""

import os
import socket
import time
from pathlib import Path

_FIRST_GIVEN = 3
"""SD_LISTEN_FDS_START."""


def notify(*fields: str) -> bool:
    """Send fields like `READY=1`; tell whether a service manager took them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as end:
        try:
            end.sendto("\n".join(fields).encode(), address)
        except OSError:
            return False
    return True


def reloading() -> bool:
    """Say that a reload began, as Type=notify-reload wants it (systemd 253), harmless before."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog_seconds() -> float | None:
    """Return how often the manager wants to hear from us, None when it doesn't watch us."""
    text = os.environ.get("WATCHDOG_USEC", "")
    ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 1e6 if text.isdigit() and ours else None


def given_listener(path: Path) -> socket.socket | None:
    """Return the manager's listening socket at this path, None where it gave us none.

    It is the manager's: it outlives us, and its file is not ours to take away. The variables are gone
    afterwards, so that no child takes them for its own. Another descriptor is left alone.
    """
    ours = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    for number in range(_FIRST_GIVEN, _FIRST_GIVEN + (int(count) if ours and count.isdecimal() else 0)):
        os.set_inheritable(number, False)
        given = socket.socket(fileno=number)
        if _listens_at(given, path):
            given.setblocking(False)
            return given
        given.detach()
    return None


def _listens_at(given: socket.socket, path: Path) -> bool:
    """Tell whether this is a stream socket that listens at the path (unix(7))."""
    stream = given.family is socket.AF_UNIX and given.type is socket.SOCK_STREAM
    listens = stream and given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return bool(listens) and given.getsockname() == str(path)
