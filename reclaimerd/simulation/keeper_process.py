"""The keeper of a simulated host: owns its terminals, starts its workloads, outlives none of them.

Run as `python -m reclaimerd.simulation.keeper_process DIR` by `keeper.Keeper`, and told what to do
in JSON lines on standard input; the host's own `systemctl` asks at a socket. It is a child subreaper,
so every process of the simulation stays its descendant; at end of file it ends them all. It may signal
nobody else.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.keeper_door import answer_at
from reclaimerd.simulation.processes import end_everybody, end_some, reap_all, start_all
from reclaimerd.simulation.standing import Keeping, build_host, tear_down

PR_SET_CHILD_SUBREAPER = 36


def answer(request: Mapping[str, object]) -> dict[str, object]:
    """Do what one request asks."""
    match request:
        case {"op": "launch", "argvs": list(argvs)}:
            return {"launched": start_all(argvs)}
        case {"op": "end", "pids": list(pids)}:
            return {"left": end_some(pids)}
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
    door = keeping.door
    while True:
        sources: list[int | socket.socket] = [0, wake, *([door] if door is not None else [])]
        ready, _, _ = select.select(sources, [], [])
        if wake in ready:
            os.read(wake, 4096)
        if keeping.reaps:
            reap_all()
        if door is not None and door in ready:
            answer_at(door, answer)
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


def _gpu_from(entries: Mapping[str, Any]) -> SimulatedGpu:
    """Return a GPU as our controller wrote it; JSON has no tuples."""
    return SimulatedGpu(**{**entries, "peers": tuple(entries["peers"])})


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
        build_host(keeping, [_gpu_from(entries) for entries in setup["gpus"]])
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
