"""A real CUDA process for the GPU tests: plain memory through the driver library, nothing else.

Run as a program; says "ready" once it holds what it was asked to hold. Takes plain device memory only
(cuMemAlloc), never managed memory, and changes no mode of the GPU.
"""

import argparse
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

GIB = 1024**3
CHUNK_BYTES = 4 * GIB
EXIT_SYSCALL = {"x86_64": 60, "aarch64": 93}


class Cuda:
    """The few calls of the CUDA driver library that hold memory and keep the GPU busy."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._check("cuInit", self._cuda.cuInit(0))
        device = ctypes.c_int()
        self._check("cuDeviceGet", self._cuda.cuDeviceGet(ctypes.byref(device), 0))
        context = ctypes.c_void_p()
        self._check("cuCtxCreate", self._cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
        self._blocks: list[tuple[ctypes.c_uint64, int]] = []

    def hold(self, size_bytes: int) -> None:
        """Take this much device memory, in blocks."""
        left = size_bytes
        while left > 0:
            block = min(left, CHUNK_BYTES)
            pointer = ctypes.c_uint64()
            code = self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(block))
            self._check("cuMemAlloc", code)
            self._blocks.append((pointer, block))
            left -= block

    def work(self) -> NoReturn:
        """Write over the memory again and again, so that the GPU is busy."""
        while True:
            for pointer, size in self._blocks:
                self._check("cuMemsetD8", self._cuda.cuMemsetD8_v2(pointer, 7, ctypes.c_size_t(size)))
            self._check("cuCtxSynchronize", self._cuda.cuCtxSynchronize())

    @staticmethod
    def _check(what: str, code: int) -> None:
        if code != 0:
            sys.exit(f"{what} failed with CUDA error {code}")


def options() -> argparse.Namespace:
    """Return the command line, read."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=int, default=0)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--stop-self", action="store_true")
    parser.add_argument("--exit-leader", action="store_true")
    parser.add_argument("--fork-and-leave", type=Path)
    return parser.parse_args()


def main() -> None:
    """Hold, say so, and behave as told."""
    given = options()
    if given.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cuda = Cuda()
    cuda.hold(given.gib * GIB)
    child = os.fork() if given.fork_and_leave is not None else None
    if child == 0:
        wait_for_ever()
    if given.exit_leader:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    sys.stdout.write(f"ready {os.getpid()} {child or 0}\n")
    sys.stdout.flush()
    behave(given, cuda)


def behave(given: argparse.Namespace, cuda: Cuda) -> NoReturn:
    """Leave, stop, work or wait, as told."""
    if given.fork_and_leave is not None:
        while not given.fork_and_leave.exists():
            time.sleep(0.01)
        os._exit(0)
    if given.stop_self:
        os.kill(os.getpid(), signal.SIGSTOP)
    if given.exit_leader:
        ctypes.CDLL(None).syscall(EXIT_SYSCALL[os.uname().machine], 0)
    if given.busy:
        cuda.work()
    wait_for_ever()


def wait_for_ever() -> NoReturn:
    """Hold what is held until a signal comes."""
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
