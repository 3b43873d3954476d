"""Tell the service manager how we are (sd_notify(3)), and take the socket that it keeps (sd_listen_fds(3)).

A datagram that never blocks. Written here, in two dozen lines: docs/adr/0004 says why no package does it.
"""

import os
import socket
import time
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class LifeSigns:
    """What the service manager is told of our life; a word that it had no room for is said again.

    Without the READY after a reload it would take us for "reloading" from then on. What is owed goes in its
    order and before each later word; a newer reload takes the place of an older, so it is two words at most.
    """

    ready: bool = False
    _owed: list[tuple[str, ...]] = field(default_factory=list)

    def passed(self, *fields: str) -> None:
        """Say how we are; the first time also that we are ready."""
        self._pay()
        taken = notify(*fields if self.ready else ("READY=1", *fields))
        self.ready = self.ready or taken

    def reload_began(self) -> None:
        """Say so, as Type=notify-reload wants it (systemd 253); before the first pass it would mean READY."""
        if self.ready:
            self._owed = [("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")]
            self._pay()

    def reload_ended(self) -> None:
        """Say that the reload is over, whatever came of it."""
        if self.ready:
            self._owed.append(("READY=1",))
            self._pay()

    def _pay(self) -> None:
        while self._owed and notify(*self._owed[0]):
            del self._owed[0]


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
