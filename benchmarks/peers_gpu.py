"""The GPUs that all programs of the comparison read: a library with fixed answers, or the real driver.

Starts the processes that hold them and ends them again. Never makes or opens a real device: a made-up
holder has a node 195:0 in a folder of ours open with O_PATH, which is what a descriptor search finds.
"""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rig import clean_environment

SOURCE = Path(__file__).with_name("peers_libnvml.c")
CUDA_CHILD = Path(__file__).resolve().parents[1] / "tests" / "gpu" / "cuda_child.py"
NVIDIA_MAJOR = 195
GPUS = 8
READY_SECONDS = 300.0
"""For all CUDA processes together: each start of a context takes a second or more."""


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """GPUs that so many processes hold, and the environment in which a program sees them."""

    node: Path
    environment: Mapping[str, str]
    holders: int


@contextmanager
def fake_gpus(holders: int) -> Iterator[HeldGpus]:
    """Build the library, make the nodes, and start the holders, spread over the GPUs."""
    gcc = shutil.which("gcc")
    if gcc is None:
        raise SystemExit("no gcc to build the library that stands for the driver")
    with tempfile.TemporaryDirectory(prefix="peers-gpu-") as name:
        folder = Path(name)
        library = folder / "libnvidia-ml.so.1"
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
        subprocess.run([gcc, *flags, "-o", library, SOURCE], check=True)
        nodes = [folder / f"nvidia{number}" for number in range(GPUS)]
        for number, node in enumerate(nodes):
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(NVIDIA_MAJOR, number))
        pids: list[int] = []
        try:
            pids += [_holder(nodes[number % GPUS]) for number in range(holders)]
            lines = "".join(f"{number % GPUS} {pid}\n" for number, pid in enumerate(pids))
            (folder / "pids").write_text(lines, encoding="ascii")
            own = {"LD_LIBRARY_PATH": str(folder), "PEERS_PIDS": str(folder / "pids")}
            yield HeldGpus(nodes[0], clean_environment() | own, holders)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _holder(node: Path) -> int:
    sleep = shutil.which("sleep") or "/bin/sleep"
    actions = [(os.POSIX_SPAWN_OPEN, 3, str(node), os.O_PATH, 0)]
    return os.posix_spawn(sleep, ["sleep", "3600"], {}, file_actions=actions)


@contextmanager
def real_gpus(holders: int) -> Iterator[HeldGpus]:
    """Start so many CUDA processes, each with a context and no memory of its own."""
    children = [_cuda_child() for _ in range(holders)]
    try:
        for child in children:
            assert child.stdout is not None
            ready = select.select([child.stdout], [], [], READY_SECONDS)[0]
            if not (ready and child.stdout.readline().startswith("ready")):
                raise SystemExit("a CUDA process did not get ready")
        yield HeldGpus(Path("/dev/nvidia0"), clean_environment(), holders)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _cuda_child() -> "subprocess.Popen[str]":
    argv = [sys.executable, str(CUDA_CHILD), "--gib", "0"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=clean_environment())
