"""Pseudo-terminals of one user for the tests of warnings: we read what a person would see."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BOUND_SECONDS = 20.0
OWNER = 54_321
"""A uid that nobody on this machine has."""
_READERS_BYTES = 4095


@dataclass(frozen=True, slots=True)
class Terminal:
    """One terminal: its name, the end where a person reads, and the end where programs write."""

    path: str
    master: int
    slave: int

    def read(self, wanted: str = "", seconds: float = BOUND_SECONDS) -> str:
        """Return what shows on it as soon as `wanted` does; all that is there where the time is up."""
        shown = b""
        while wanted.encode() not in shown or not wanted:
            ready, _, _ = select.select([self.master], [], [], seconds if wanted else 0)
            if not ready:
                break
            shown += os.read(self.master, 65536)
        return shown.decode()

    def fill(self) -> None:
        """Let its buffer be full, as of somebody who reads nothing.

        The kernel hands on what was written a little later, and then there is room again: it is full when it
        takes nothing while the reader's side is full too, 4095 bytes (N_TTY_BUF_SIZE less one).
        """
        writer = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        until = time.monotonic() + BOUND_SECONDS
        try:
            while True:
                try:
                    os.write(writer, b"x")
                except BlockingIOError:
                    unread = struct.unpack("i", fcntl.ioctl(self.master, termios.FIONREAD, bytes(4)))[0]
                    if unread >= _READERS_BYTES:
                        return
                    assert time.monotonic() < until, f"the reader's side holds {unread} bytes alone"
        finally:
            os.close(writer)

    def stop_output(self) -> None:
        """Let its output be stopped, as by Ctrl-S."""
        termios.tcflow(self.slave, termios.TCOOFF)


@contextmanager
def terminal_of(uid: int = OWNER) -> Iterator[Terminal]:
    """Return a terminal that belongs to this user for as long as the block runs; needs root."""
    master, slave = pty.openpty()
    try:
        path = os.ttyname(slave)
        os.chown(path, uid, -1)
        yield Terminal(path, master, slave)
    finally:
        os.close(slave)
        os.close(master)


def device_of(path: str) -> int:
    """Return a terminal's device number."""
    return Path(path).stat().st_rdev
