"""Children whose every wait has a bound: spawn, deadline, kill, abandon.

A child may sleep inside a driver for ever, and SIGKILL does not end it then: `subprocess` would wait.
Here a pidfd in the asyncio loop tells when a child's last thread is gone, and one that does not go is
abandoned: the loop reaps it whenever it ends. Nothing here reads another process or waits unbounded.
"""

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OUTPUT_LIMIT_BYTES = 64 * 1024
KILL_WAIT_SECONDS = 0.3
_CHUNK_BYTES = 65536


@dataclass(slots=True, eq=False)
class Child:
    """A process by pidfd, ours to reap; `code` is set once it is gone (negative: minus the signal).

    `ours` is false for a process that another parent reaps: then `code` is 0 and says nothing.
    """

    pid: int
    pidfd: int
    ours: bool = True
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A child that ended in time; output is cut at OUTPUT_LIMIT_BYTES each."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Overran:
    """A child that did not end in time; `gone` is false when it lives on (left alone, or unkillable)."""

    pid: int
    gone: bool
    out: str
    err: str
    child: Child


def spawn(
    argv: Sequence[str],
    *,
    pass_fds: Sequence[int] = (),
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Child:
    """Start a program in a session of its own, with our environment and no descriptors but those named.

    `argv[0]` must be absolute (ValueError). Raises OSError when it can't be started. Returns when the
    program is loaded; so never give a program on a file system that may hang (NFS, FUSE).
    """
    if not argv or not Path(argv[0]).is_absolute():
        raise ValueError(f"a program is started by its absolute path, not as {argv[:1]!r}")
    popen = subprocess.Popen(
        list(argv),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        close_fds=True,
        start_new_session=True,
    )
    # From here on the pidfd reaps it; a Popen that thinks it still runs would wait or warn at its end.
    popen.returncode = 0
    return Child(popen.pid, os.pidfd_open(popen.pid))


def adopt(pid: int) -> Child | None:
    """Return a handle on a living process that another parent reaps; None when there is none."""
    try:
        return Child(pid, os.pidfd_open(pid), ours=False)
    except OSError:
        return None


def reap(child: Child) -> int | None:
    """Return the exit code of a child whose last thread is gone, else None; never waits.

    The first call that finds it gone reaps it and closes its pidfd.
    """
    if child.code is not None:
        return child.code
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    if not poll.poll(0):
        return None
    code = 0
    if child.ours:
        with suppress(ChildProcessError):
            found = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOHANG)
            if found is None:
                return None
            code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    child.code = code
    os.close(child.pidfd)
    return code


def let_go(child: Child) -> None:
    """Watch a process no longer that another parent reaps; its `code` then says nothing."""
    if child.code is None:
        child.code = 0
        os.close(child.pidfd)


async def wait(child: Child, seconds: float) -> int | None:
    """Return the child's exit code, or None when the time is up and it lives on."""
    code = reap(child)
    if code is not None:
        return code
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    fd = os.dup(child.pidfd)  # the loop has one reader a descriptor, and several may wait
    loop.add_reader(fd, lambda: None if gone.done() else gone.set_result(None))
    try:
        await asyncio.wait({gone}, timeout=max(0.0, seconds))
    finally:
        loop.remove_reader(fd)
        os.close(fd)
        gone.cancel()
    return reap(child)


def send_kill(child: Child) -> None:
    """Send SIGKILL through the pidfd; one that is gone already is no error."""
    if child.code is None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)


def abandon(child: Child) -> None:
    """Wait for this child no longer: the running loop reaps it whenever it ends."""
    if reap(child) is not None:
        return
    loop = asyncio.get_running_loop()
    fd = os.dup(child.pidfd)

    def end() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        reap(child)

    loop.add_reader(fd, end)


async def kill(child: Child, seconds: float = KILL_WAIT_SECONDS) -> int | None:
    """Send SIGKILL and wait that long; a child that is still there is abandoned (None)."""
    send_kill(child)
    code = await wait(child, seconds)
    if code is None:
        abandon(child)
    return code


class _PipeTail:
    """One output pipe of a child, read as it comes and kept up to the limit."""

    __slots__ = ("_fd", "_kept", "write_fd")

    def __init__(self) -> None:
        self._fd, self.write_fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._kept = bytearray()
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            chunk = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._kept += chunk[: OUTPUT_LIMIT_BYTES - len(self._kept)]
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._fd)

    def close(self) -> str:
        """Return what was written so far; whoever still writes gets SIGPIPE."""
        with suppress(BlockingIOError):
            while len(self._kept) < OUTPUT_LIMIT_BYTES and (chunk := os.read(self._fd, _CHUNK_BYTES)):
                self._kept += chunk[: OUTPUT_LIMIT_BYTES - len(self._kept)]
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        return self._kept.decode("utf-8", "replace")


class _MemoryTail:
    """One output in memory of its own: a child that is left alone may write on after we are gone."""

    __slots__ = ("_fd", "write_fd")

    def __init__(self) -> None:
        self._fd = os.memfd_create("output")
        self.write_fd = os.dup(self._fd)

    def close(self) -> str:
        """Return the beginning of what was written so far."""
        text = os.pread(self._fd, OUTPUT_LIMIT_BYTES, 0).decode("utf-8", "replace")
        os.close(self._fd)
        return text


def _stdin_of(text: str | None) -> int:
    """Return a descriptor that reads as this text; in memory, so that nobody waits for a reader."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("input")
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def run_bounded(
    argv: Sequence[str],
    *,
    deadline_seconds: float,
    stdin_text: str | None = None,
    kill_at_deadline: bool = True,
) -> Finished | Overran:
    """Run a program to its end or to its deadline; returns at most 0.5 s after the deadline.

    At the deadline it gets SIGKILL and is abandoned if it stays; with `kill_at_deadline=False` it is
    left alone, gets no signal from us and keeps its output (the vendor's reset tool must never be cut
    off). Raises OSError when it can't be started, ValueError for a relative path.
    """
    kind = _PipeTail if kill_at_deadline else _MemoryTail
    stdin = _stdin_of(stdin_text)
    out, err = kind(), kind()
    texts: list[str] = []
    try:
        child = spawn(argv, stdin=stdin, stdout=out.write_fd, stderr=err.write_fd)
    except BaseException:
        out.close(), err.close()
        raise
    finally:
        for fd in (stdin, out.write_fd, err.write_fd):
            os.close(fd)
    try:
        code = await wait(child, deadline_seconds)
        overran = code is None
        if overran and kill_at_deadline:
            code = await kill(child)
        elif overran:
            abandon(child)
    except asyncio.CancelledError:
        if kill_at_deadline:
            send_kill(child)
        abandon(child)
        raise
    finally:
        texts += [out.close(), err.close()]
    if overran or code is None:
        return Overran(child.pid, code is not None, texts[0], texts[1], child)
    return Finished(code, texts[0], texts[1])
