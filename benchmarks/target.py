"""Hold one simulated GPU until SIGTERM, write down when it came, and end.

`target.py DIR GPU FILE`, started by the simulation's keeper. The signal is waited for and not
handled, so the time written (CLOCK_MONOTONIC, nanoseconds) is that of the wake-up.
"""

import os
import signal
import sys
import time
from pathlib import Path

from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.claims import own_claim, take_claim
from reclaimerd.simulation.host import read_simulated_host

HELD_BYTES = 8 << 30


def main() -> None:
    """Take the GPU, say ready, wait, note the time, end."""
    directory, uuid, note = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    gpu = next(gpu for gpu in read_simulated_host(directory).gpus if gpu.uuid == uuid)
    os.open(gpu.device, os.O_RDWR | os.O_NOCTTY)
    take_claim(directory, own_claim(uuid, HELD_BYTES, ContextKind.COMPUTE), gpu.total_bytes)
    os.write(1, b"ready %d\n" % os.getpid())
    signal.sigwait({signal.SIGTERM})
    note.write_text(str(time.monotonic_ns()), encoding="ascii")


if __name__ == "__main__":
    main()
