"""Starting, ending and reaping the processes of a simulation; only the keeper does so, to its descendants."""

import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path

READY_WITHIN_SECONDS = 15.0
END_WITHIN_SECONDS = 3.0


def descendants_of(pid: int) -> tuple[int, ...]:
    """Return every living or unreaped descendant, parents before children."""
    found: list[int] = []
    queue = [pid]
    while queue:
        children = _children_of(queue.pop())
        found += children
        queue += children
    return tuple(found)


def _children_of(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            text = (task / "children").read_text(encoding="ascii")
            children += [int(word) for word in text.split()]
    except (FileNotFoundError, ProcessLookupError):
        return children
    return children


def start_all(argvs: Sequence[Sequence[str]]) -> list[dict[str, object]]:
    """Start every command, wait until each says "ready" or fails, and answer in the same order."""
    started = [_spawn(argv) for argv in argvs]
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    return [_await_ready(pid, pipe, deadline) for pid, pipe in started]


def _spawn(argv: Sequence[str]) -> tuple[int, int]:
    """Start one command with its output on a pipe; return its pid and the pipe."""
    readable, writable = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writable, 1),
        (os.POSIX_SPAWN_DUP2, writable, 2),
    ]
    # posix_spawn, not subprocess: its children are reaped only by us, and only when we want it.
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        os.environ,
        file_actions=actions,
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD],
    )
    os.close(writable)
    return pid, readable


def _await_ready(pid: int, pipe: int, deadline: float) -> dict[str, object]:
    text = b""
    try:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            chunk = os.read(pipe, 4096)
            text += chunk
            for line in text.decode(errors="replace").splitlines(keepends=True):
                if line.startswith("ready ") and line.endswith("\n"):
                    return {"pid": pid, "children": [int(word) for word in line.split()[2:]]}
            if not chunk:
                break
    finally:
        os.close(pipe)
    end_all([pid])
    return {"error": text.decode(errors="replace").strip() or f"not ready in {READY_WITHIN_SECONDS:g} s"}


def end_all(pids: Sequence[int]) -> None:
    """Send SIGKILL to processes that are our descendants, each through a pidfd."""
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(pidfd)


def reap_all() -> list[int]:
    """Reap every dead child without waiting."""
    reaped: list[int] = []
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped
        if not pid:
            return reaped
        reaped.append(pid)


def end_everybody() -> list[int]:
    """End every descendant, and return those that would not go in time."""
    deadline = time.monotonic() + END_WITHIN_SECONDS
    while True:
        left = descendants_of(os.getpid())
        end_all(left)
        reap_all()
        left = descendants_of(os.getpid())
        if not left or time.monotonic() > deadline:
            return list(left)
        time.sleep(0.005)


def end_some(pids: Sequence[int]) -> list[int]:
    """End some of our descendants and nobody else; return those that would not go in time."""
    ours = [pid for pid in pids if pid in descendants_of(os.getpid())]
    deadline = time.monotonic() + END_WITHIN_SECONDS
    left = ours
    while left and time.monotonic() < deadline:
        end_all(left)
        time.sleep(0.005)
        left = [pid for pid in left if _lives(pid)]
    return left


def _lives(pid: int) -> bool:
    """Tell whether a process has a thread that lives."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([pidfd], [], [], 0)[0]
    finally:
        os.close(pidfd)
