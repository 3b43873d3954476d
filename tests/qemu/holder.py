"""A process of the guest that holds the stand-in device and simulated GPU memory, and ignores SIGTERM.

`python -m tests.qemu.holder DIR GPU BYTES [WORD...]` prints "ready" and waits. With `ioctl` it waits inside
the device's ioctl. An exit runs the last closes in falling order of their descriptors (close_files in
fs/file.c, then kernel/task_work.c, last in first out): with `listed` the node comes last and closes first, so
that the memory is still held while that close hangs; without, the memory is let go before.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.claims import own_claim, take_claim

NODE = "/dev/nvidia0"
ANY_COMMAND = 0x4600
FAR_DESCRIPTOR = 100


def main(directory: Path, gpu: str, used_bytes: int, words: Sequence[str]) -> NoReturn:
    """Take the memory and the node, say so, and wait for SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    claim = take_claim(directory, own_claim(gpu, used_bytes, ContextKind.COMPUTE), 1 << 40)
    node = os.open(NODE, os.O_RDWR)
    last = node if "listed" in words else claim
    fcntl.fcntl(last, fcntl.F_DUPFD, FAR_DESCRIPTOR)
    os.close(last)
    os.write(sys.stdout.fileno(), b"ready\n")
    if "ioctl" in words:
        fcntl.ioctl(node, ANY_COMMAND)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
