"""Be many holders of a simulated host's GPUs, each a real process of many threads.

`crowd.py DIR HOLDERS THREADS`, started by the simulation's keeper, which ends it. Forks instead of
starting 64 interpreters: a look reads the same of either.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.claims import own_claim, take_claim
from reclaimerd.simulation.host import SimulatedGpu, read_simulated_host

HELD_BYTES = 1 << 30
STACK_BYTES = 64 << 10


def hold(directory: Path, gpu: SimulatedGpu, threads: int, tell: int) -> NoReturn:
    """Hold 1 GiB of one GPU until killed."""
    os.open(gpu.device, os.O_RDWR | os.O_NOCTTY)
    take_claim(directory, own_claim(gpu.uuid, HELD_BYTES, ContextKind.COMPUTE), gpu.total_bytes)
    threading.stack_size(STACK_BYTES)
    for _ in range(threads - 1):
        threading.Thread(target=signal.pause, daemon=True).start()
    os.write(tell, b".")
    while True:
        signal.pause()


def main() -> NoReturn:
    """Fork the holders, wait until all hold, say ready, and stay."""
    directory, holders, threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    gpus = read_simulated_host(directory).gpus
    ready, tell = os.pipe()
    for number in range(holders):
        if os.fork() == 0:
            hold(directory, gpus[number % min(8, len(gpus))], threads, tell)
    told = 0
    while told < holders:
        told += len(os.read(ready, holders))
    os.write(1, b"ready %d\n" % os.getpid())
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
