"""A real CUDA process for the GPU tests: plain memory through the driver library, nothing else.

Run as a program; says "ready" once it holds what it was asked to hold. Takes plain device memory only
(cuMemAlloc), never managed memory, and changes no mode of the GPU.
"""

import argparse
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

MIB = 1024**2
GIB = 1024**3
CHUNK_BYTES = 4 * GIB
EXIT_SYSCALL = {"x86_64": 60, "aarch64": 93}
SPIN_CYCLES = 20_000_000
"""Some 10 ms of one kernel: it is never long before a signal ends us."""
SPIN_BLOCKS = 128
SPIN = b"""
.version 6.4
.target sm_75
.address_size 64

.visible .entry spin(
    .param .u64 cycles
)
{
    .reg .pred %p1;
    .reg .u64 %rd<5>;

    ld.param.u64 %rd1, [cycles];
    mov.u64 %rd2, %clock64;
again:
    mov.u64 %rd3, %clock64;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
"""
"""A kernel that lets so many clock cycles pass and touches no memory (PTX: the driver compiles it)."""


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
        self._spin = ctypes.c_void_p()

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

    def load_kernel(self) -> None:
        """Compile the kernel, so that `spin` starts at once."""
        module = ctypes.c_void_p()
        code = self._cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(SPIN))
        self._check("cuModuleLoadData", code)
        code = self._cuda.cuModuleGetFunction(ctypes.byref(self._spin), module, ctypes.c_char_p(b"spin"))
        self._check("cuModuleGetFunction", code)

    def spin(self, seconds: float) -> None:
        """Run the kernel again and again for so long; it reads and writes no memory."""
        cycles = ctypes.c_uint64(SPIN_CYCLES)
        given = (ctypes.c_void_p * 1)(ctypes.addressof(cycles))
        sizes = [ctypes.c_uint(size) for size in (SPIN_BLOCKS, 1, 1, 1, 1, 1, 0)]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            code = self._cuda.cuLaunchKernel(self._spin, *sizes, None, given, None)
            self._check("cuLaunchKernel", code)
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
    parser.add_argument("--step-mib", type=int, default=0, help="take this much more at each step")
    parser.add_argument("--step-every", type=float, default=1.0, help="seconds before each step")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--begin", type=Path, help="the steps begin when this file appears")
    parser.add_argument("--spin", type=float, default=0.0, help="seconds of kernels, then --rest, for ever")
    parser.add_argument("--rest", type=float, default=0.0)
    parser.add_argument("--connect", type=int, help="keep a connection to this port of 127.0.0.1")
    return parser.parse_args()


def main() -> None:
    """Hold, say so, and behave as told."""
    given = options()
    if given.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cuda = Cuda()
    cuda.hold(given.gib * GIB)
    if given.spin:
        cuda.load_kernel()
    if given.connect is not None:  # kept by the options, so open to the end
        given.connection = socket.create_connection(("127.0.0.1", given.connect), 10.0)
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
    if given.step_mib:
        grow(given, cuda)
    while given.spin:
        cuda.spin(given.spin)
        time.sleep(given.rest)
    wait_for_ever()


def grow(given: argparse.Namespace, cuda: Cuda) -> None:
    """Take more memory step by step, each at its own time whatever the one before has taken."""
    while given.begin is not None and not given.begin.exists():
        time.sleep(0.01)
    began = time.monotonic()
    for step in range(1, given.steps + 1):
        time.sleep(max(0.0, began + step * given.step_every - time.monotonic()))
        cuda.hold(given.step_mib * MIB)


def wait_for_ever() -> NoReturn:
    """Hold what is held until a signal comes."""
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
