"""One peer that stays in memory and looks again and again: `peers_child.py gpustat|nvitop LOOKS PAUSE`.

Runs under the interpreter that has the peer installed, measures its own looks from inside, and prints
one JSON object. Nothing of ours is imported.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

Look = Callable[[], int]
"""Takes one look at every GPU and every process on it; returns how many processes it showed."""


def gpustat_look() -> Look:
    """Return gpustat's own query, which `gpustat -i` repeats."""
    query = importlib.import_module("gpustat").new_query
    return lambda: sum(len(gpu.processes or ()) for gpu in query())


def nvitop_look() -> Look:
    """Return nvitop's own snapshot of all devices and the processes on them."""
    take = importlib.import_module("nvitop").take_snapshots
    return lambda: len(take().gpu_processes)


def main() -> None:
    """Look, print what it cost, stay."""
    name, looks, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    look = {"gpustat": gpustat_look, "nvitop": nvitop_look}[name]()
    shown = look()  # the first fills caches
    cpu, wall = [], []
    for _ in range(looks):
        time.sleep(pause)
        began, used = time.monotonic(), time.process_time()
        shown = look()
        cpu.append(time.process_time() - used)
        wall.append(time.monotonic() - began)
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    pss = int(rollup.partition("\nPss:")[2].split()[0]) * 1024
    print(json.dumps({"cpu": cpu, "wall": wall, "pss": pss, "shown": shown}), flush=True)


if __name__ == "__main__":
    main()
