"""A client that opens a simulated GPU again and again, or once at a given moment, and writes down when.

`python fast_client.py DIR UUID LOG [--gap S] [--hold S] [--after GLOB]`, below the keeper. Each opening is
two lines of LOG: "open NS" and "close NS" (monotonic). It opens as a client of the driver does: a reset
under way makes it wait.
"""

import argparse
import ctypes
import os
import random
import signal
import time
from pathlib import Path

from reclaimerd.simulation.clients import opening
from reclaimerd.simulation.host import read_simulated_host

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.001


def main() -> None:
    """Say ready, then open and close until the end, or hold once from the moment on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("gpu")
    parser.add_argument("log", type=Path)
    parser.add_argument("--gap", type=float, default=0.02, help="seconds between two openings, at most")
    parser.add_argument("--hold", type=float, default=0.005, help="seconds that it stays open, at most")
    parser.add_argument("--after", default="", help="open once when a file matches this, and stay")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    device = next(
        gpu.device for gpu in read_simulated_host(options.directory).gpus if gpu.uuid == options.gpu
    )
    options.log.touch()
    print("ready", os.getpid(), flush=True)  # noqa: T201 - the keeper's protocol
    if options.after:
        while not list(Path("/").glob(options.after.lstrip("/"))):
            time.sleep(POLL_SECONDS)
        hold(options.directory, device, options.log, seconds=None)
    chance = random.Random(os.getpid())  # noqa: S311 - no secret
    while True:
        time.sleep(chance.uniform(0, options.gap))
        hold(options.directory, device, options.log, seconds=chance.uniform(0, options.hold))


def hold(directory: Path, device: str, log: Path, seconds: float | None) -> None:
    """Open the device, and close it after so long, or never."""
    with opening(directory):
        descriptor = os.open(device, os.O_RDWR | os.O_NOCTTY)
        note(log, "open")
    if seconds is None:
        while True:
            signal.pause()
    time.sleep(seconds)
    note(log, "close")
    os.close(descriptor)


def note(log: Path, word: str) -> None:
    """Append one line."""
    with log.open("a", encoding="ascii") as file:
        file.write(f"{word} {time.monotonic_ns()}\n")


if __name__ == "__main__":
    main()
