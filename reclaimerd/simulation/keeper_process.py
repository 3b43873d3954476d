"""The keeper of a simulated host: owns its terminals, starts its workloads, outlives none of them.

Run as `python -m reclaimerd.simulation.keeper_process DIR` by `keeper.Keeper`, and told what to do
in JSON lines on standard input. It is a child subreaper, so every process of the simulation stays
its descendant; at end of file it ends them all. It may signal nobody else.
"""

import contextlib
import ctypes
import json
import os
import pty
import select
import shutil
import signal
import sys
import time
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.simulation.claims import CLAIMS, read_start_ticks
from reclaimerd.simulation.host import HOST_FILE, SimulatedGpu, SimulatedHost, write_simulated_host
from reclaimerd.simulation.nvml import KEEPER_FILE

PR_SET_CHILD_SUBREAPER = 36
READY_WITHIN_SECONDS = 15.0
END_WITHIN_SECONDS = 3.0
SMI = "nvidia-smi"
SMI_TEXT = '#!/bin/sh\nexec {python} -m reclaimerd.simulation.smi {directory} "$@"\n'


@dataclass(slots=True)
class Keeping:
    """What the keeper holds: its directory, the masters of the terminals, whether it reaps."""

    directory: Path
    masters: list[int] = field(default_factory=list)
    reaps: bool = True


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


def build_host(keeping: Keeping, gpus: Sequence[SimulatedGpu]) -> None:
    """Make the directory with its terminals, description, tool and keeper file."""
    directory = keeping.directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (directory / HOST_FILE).exists():
        raise FileExistsError(f"{directory} already holds a simulated host")
    directory.chmod(0o700)
    (directory / CLAIMS).mkdir(mode=0o700)
    placed = []
    for index, gpu in enumerate(gpus):
        master, slave = pty.openpty()
        tty.setraw(slave)
        device = os.ttyname(slave)
        os.close(slave)  # whoever has the slave open is a holder: not the keeper
        keeping.masters.append(master)
        placed.append(replace(gpu, device=device, pci=gpu.pci or f"0000:{index + 1:02x}:00.0"))
    write_simulated_host(directory, SimulatedHost(gpus=tuple(placed)))
    tool = directory / SMI
    tool.write_text(SMI_TEXT.format(python=_quoted(sys.executable), directory=_quoted(str(directory))))
    tool.chmod(0o755)
    own = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
    (directory / KEEPER_FILE).write_text(json.dumps(own), encoding="utf-8")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def tear_down(keeping: Keeping) -> None:
    """Remove what we made, and the directory if nothing else is in it."""
    shutil.rmtree(keeping.directory / CLAIMS, ignore_errors=True)
    for name in (KEEPER_FILE, SMI, HOST_FILE):
        (keeping.directory / name).unlink(missing_ok=True)
    for master in keeping.masters:
        os.close(master)
    try:
        keeping.directory.rmdir()
    except OSError:  # somebody else's files are in it: theirs to remove
        return


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


def answer(request: Mapping[str, object]) -> dict[str, object]:
    """Do what one request asks."""
    match request:
        case {"op": "launch", "argvs": list(argvs)}:
            return {"launched": start_all(argvs)}
        case {"op": "reap"}:
            return {"reaped": reap_all()}
        case {"op": "stop"}:
            return {"left": end_everybody()}
        case _:
            return {"error": f"no such request: {request}"}


def serve(keeping: Keeping) -> None:
    """Answer requests until end of file or stop; reap in between."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if keeping.reaps:
            reap_all()
        if 0 not in ready:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            _say(answer(request))
            if request.get("op") == "stop":
                return


def _say(message: Mapping[str, object]) -> None:
    """Answer; a controller that is gone hears nothing, and its end of file comes next."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def main() -> int:
    """Build, serve, end everybody, tear down."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # our end is our controller's end of file
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asked = sys.stdin.buffer.readline()
    if not asked.endswith(b"\n"):
        return 0  # our controller went before it said what to build
    setup = json.loads(asked)
    keeping = Keeping(Path(sys.argv[1]).resolve(), reaps=bool(setup["reap"]))
    try:
        build_host(keeping, [SimulatedGpu(**entries) for entries in setup["gpus"]])
    except OSError as error:
        _say({"error": str(error)})
        return 1
    try:
        _say({"pid": os.getpid()})
        serve(keeping)
    finally:
        end_everybody()
        tear_down(keeping)
    return 0


if __name__ == "__main__":
    sys.exit(main())
