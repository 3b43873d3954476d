"""The full scan beside `fuser`, and 64 looks at healthy holders: CPU seconds, in one run on this host.

Starts 2,000 real `sleep` children and 64 children of 50 threads that hold a pseudo-terminal's
slave, measures, and ends them all. Goals: the scan takes at most 2.5 times fuser's CPU, cold and
warm, and skips none of the children; a round of 64 looks takes at most 4 ms.

    python -m benchmarks.holder_scan [--children 2000] [--json]
"""

import argparse
import json
import os
import pty
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.holders import scan
from reclaimerd.observe.processes import ProcessReader

_ROUNDS = 7
_HOLDERS = 64
_THREADS = 50
_SCAN_GOAL = 2.5
_LOOKS_GOAL_MS = 4.0


@contextmanager
def sleeping(count: int) -> Iterator[frozenset[int]]:
    """Start `count` sleeping children and end them all at the end."""
    sleep = shutil.which("sleep") or "/bin/sleep"
    with open(os.devnull, "r+b") as null:  # noqa: PTH123  # a device, not a file of ours
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), number) for number in range(3)]
        pids = [os.posix_spawn(sleep, ["sleep", "600"], {}, file_actions=actions) for _ in range(count)]
    try:
        yield frozenset(pids)
    finally:
        _end(pids)


@contextmanager
def holding(slave: int) -> Iterator[list[int]]:
    """Start holders: each of many threads, with an inherited descriptor of the device."""
    pids = []
    try:
        for _ in range(_HOLDERS):
            ready, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                _hold(slave, tell)
            pids.append(pid)
            os.close(tell)
            os.read(ready, 1)
            os.close(ready)
        yield pids
    finally:
        _end(pids)


def _hold(slave: int, tell: int) -> None:
    """Be a holder of many threads until killed; never returns."""
    os.fstat(slave)
    for _ in range(_THREADS - 1):
        threading.Thread(target=signal.pause, daemon=True).start()
    os.write(tell, b".")
    while True:
        signal.pause()


def _end(pids: list[int]) -> None:
    """Kill and reap our children."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def cpu_seconds(act: Callable[[], object], who: int = resource.RUSAGE_SELF) -> float:
    """Return the CPU seconds (user and system) that `act` took."""
    before = resource.getrusage(who)
    act()
    after = resource.getrusage(who)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def fuser_cpu_seconds(device: str) -> float:
    """Return the CPU seconds of one `fuser` on the device."""
    fuser = shutil.which("fuser")
    if fuser is None:
        raise SystemExit("fuser is not installed (Debian package psmisc)")
    quiet = subprocess.DEVNULL
    return cpu_seconds(
        lambda: subprocess.run([fuser, device], stdout=quiet, stderr=quiet, check=False),
        resource.RUSAGE_CHILDREN,
    )


def measured_scan(device: DeviceNumber, name: str, children: int) -> dict[str, float]:
    """Return CPU seconds of fuser and of the scan (cold and warm), and how many children it skipped."""
    with sleeping(children) as pids:
        seen: set[int] = set()
        fuser: list[float] = []
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(_ROUNDS):
            fuser.append(fuser_cpu_seconds(name))
            reader = ProcessReader()
            reader.watch_devices([device])
            cold.append(cpu_seconds(lambda: scan(reader, root=None, deep=False)))  # noqa: B023  # called here
            warm.append(cpu_seconds(lambda: scan(reader, root=None, deep=False)))  # noqa: B023  # called here
        result = scan(reader, root=None, deep=False, progress=seen.add)
        named = {int(line.split()[1].rstrip(":")) for line in result.skipped if line.startswith("pid")}
    return {
        "fuser_s": statistics.median(fuser),
        "scan_cold_s": statistics.median(cold),
        "scan_warm_s": statistics.median(warm),
        "skipped": float(len(pids - seen) + len(pids & named)),
    }


def measured_looks(device: DeviceNumber, slave: int) -> float:
    """Return the CPU milliseconds of one round of looks at healthy holders (median)."""
    with holding(slave) as pids:
        reader = ProcessReader()
        reader.watch_devices([device])
        for pid in pids:
            reader.look(pid, whole=False)
        rounds = []
        for _ in range(5 * _ROUNDS):
            began = time.process_time()
            for pid in pids:
                reader.look(pid, whole=False)
            rounds.append(time.process_time() - began)
        return statistics.median(rounds) * 1000


def main() -> int:
    """Measure, print, and return 0 when every goal is met, else 1."""
    options = argparse.ArgumentParser(description="CPU of the full scan beside fuser")
    options.add_argument("--children", type=int, default=2000)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    master, slave = pty.openpty()
    number = os.fstat(slave).st_rdev
    device = DeviceNumber(os.major(number), os.minor(number))
    figures = measured_scan(device, os.ttyname(slave), chosen.children)
    figures["looks_ms"] = measured_looks(device, slave)
    os.close(master)
    os.close(slave)
    figures["cold_ratio"] = figures["scan_cold_s"] / figures["fuser_s"]
    figures["warm_ratio"] = figures["scan_warm_s"] / figures["fuser_s"]
    if chosen.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:12} {value:9.4f}")
    good = max(figures["cold_ratio"], figures["warm_ratio"]) <= _SCAN_GOAL
    good = good and figures["looks_ms"] <= _LOOKS_GOAL_MS and figures["skipped"] == 0
    print("goals met" if good else "goals NOT met", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
