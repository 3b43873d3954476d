"""How long after the kernel's own time the proof is there: the answer of the daemon beside the pidfd.

The kernel's time is when the target's pidfd becomes readable (its last thread is gone), seen by a
thread of this benchmark; ours is when the line that says "ended" arrives over the control socket.
Medians of several kills; wall-clock, so a busy machine spoils them.

    .venv/bin/python benchmarks/proof_time.py [--rounds 9]
"""

import argparse
import os
import select
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# After the line above: `python benchmarks/proof_time.py` has this folder on its path, not the one above.
from benchmarks.rig import GPUS, HOLDERS, daemon, hold, print_table, simulated_host
from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from reclaimerd.simulation.keeper import Keeper

TARGET = Path(__file__).with_name("target.py")
POLICY = '[daemon]\nmode = "observe"\n'
EXCLUSIVE_GOAL_MS = 20
SHARED_GOAL_MS = 250
_GONE_WITHIN_MS = 10_000


def launch(keeper: Keeper, gpu: int) -> int:
    """Start one target on one GPU and return its pid."""
    note = keeper.directory.parent / "note"
    argv = [sys.executable, str(TARGET), str(keeper.directory), f"GPU-{gpu}", str(note)]
    return keeper.launch_commands([argv])[0].pid


def milliseconds_to_proof(keeper: Keeper, pid: int) -> float:
    """Kill one process through the daemon; return how long after its end the proof arrived."""
    gone: list[float] = []
    ended: list[float] = []

    def watch(pidfd: int) -> None:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        if poller.poll(_GONE_WITHIN_MS):
            gone.append(time.monotonic())

    def hear(line: dict[str, Any]) -> None:
        if line.get("event") == "ended":
            ended.append(time.monotonic())

    pidfd = os.pidfd_open(pid)
    watcher = threading.Thread(target=watch, args=(pidfd,))
    watcher.start()
    body = {"targets": [{"pid": pid, "start_ticks": None}], "force": False, "reason": "benchmark"}
    reply = ask_daemon(
        keeper.directory / "reclaimerd.sock",
        Request("POST", "/v1/reclaims", body=body, acts=True),
        hear,
    )
    watcher.join()
    os.close(pidfd)
    if isinstance(reply, NoAnswer) or reply.body.get("exit_code") != 0 or not (gone and ended):
        raise SystemExit(f"pid {pid} was not reclaimed: {reply}")
    return (ended[0] - gone[0]) * 1000


def measured(rounds: int, *, shared: bool, holders: int) -> list[float]:
    """Return the milliseconds of each kill; `shared`: another process holds the same GPU."""
    with simulated_host(GPUS + 1) as keeper:
        if holders:
            hold(keeper, holders, 50)
        if shared:
            launch(keeper, GPUS)
        with daemon(keeper, POLICY) as running:
            figures = []
            for _ in range(rounds):
                pid = launch(keeper, GPUS)
                running.forget_passes()
                running.wait_passes(1)
                figures.append(milliseconds_to_proof(keeper, pid))
            return figures


def row(what: str, figures: list[float], goal: int) -> tuple[str, str, str]:
    """Return one line of the table."""
    span = f"{min(figures):.0f} to {max(figures):.0f}"
    return f"{what} ({span})", f"{statistics.median(figures):.0f} ms", f"<= {goal} ms"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    rows = [
        row("exclusive", measured(rounds, shared=False, holders=0), EXCLUSIVE_GOAL_MS),
        row(
            f"exclusive, {HOLDERS} other holders",
            measured(rounds, shared=False, holders=HOLDERS),
            EXCLUSIVE_GOAL_MS,
        ),
        row("shared", measured(rounds, shared=True, holders=0), SHARED_GOAL_MS),
    ]
    print_table(f"from the kernel's own time to the proof, {rounds} kills each", rows)


if __name__ == "__main__":
    main()
