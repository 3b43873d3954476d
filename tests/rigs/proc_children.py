"""Real children in the shapes that /proc must be read right for; each ends with its block."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NewType

from reclaimerd.model.identity import DeviceNumber

Child = NewType("Child", int)
"""The pid of a child that is ours to end."""

READY = "import os, sys\ndef ready():\n    os.write(1, b'.')\n"
"""What each script may call: it stands as the test needs it."""

ZOMBIE_LEADER = """
import ctypes, threading, signal
def stay():
    ready_when_dead()
    signal.pause() if False else threading.Event().wait()
def ready_when_dead():
    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z':
        pass
    ready()
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall(60, 0)
"""
"""The leader leaves by the raw exit call of x86-64; its thread lives on."""


@contextmanager
def script(body: str, *args: str, keep: Sequence[int] = ()) -> Iterator[Child]:
    """Run Python code in a child until it says that it is ready; kill and reap it at the end."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", READY + body, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=tuple(keep),
    )
    assert child.stdout is not None
    try:
        assert os.read(child.stdout.fileno(), 1) == b".", "the child ended before it was ready"
        yield Child(child.pid)
    finally:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGCONT)
            child.kill()
        child.stdout.close()
        child.wait(10)


@contextmanager
def device() -> Iterator[tuple[int, str, DeviceNumber]]:
    """Make a character device of our own: descriptor, path and number of a pseudo-terminal's slave."""
    master, slave = pty.openpty()
    number = os.fstat(slave).st_rdev
    try:
        yield slave, os.ttyname(slave), DeviceNumber(os.major(number), os.minor(number))
    finally:
        os.close(slave)
        os.close(master)
