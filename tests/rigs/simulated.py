"""Waiting on simulated workloads with a bound: states, pidfds, conditions."""

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import GpuReading
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.nvml import SimulatedNvml

GIB = 1 << 30
TWO_GPUS = (SimulatedGpu("GPU-a", "First", 16 * GIB), SimulatedGpu("GPU-b", "Second", 16 * GIB))


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait for what no descriptor tells, with a bound."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {what}"
        time.sleep(0.005)


def state_of(pid: int) -> str:
    """Return the leader's state letter, or "gone"."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def ignores_sigterm(pid: int) -> bool:
    """Tell whether a process has SIGTERM ignored (status, SigIgn)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return bool(int(text.partition("SigIgn:")[2].split()[0], 16) & 1 << (signal.SIGTERM - 1))


def signal_through_pidfd(pid: int, number: signal.Signals) -> int:
    """Send a signal and return the pidfd, still open."""
    pidfd = os.pidfd_open(pid)
    signal.pidfd_send_signal(pidfd, number)
    return pidfd


def dead_within(pidfd: int, seconds: float) -> bool:
    """Tell whether the last thread goes in time; closes the pidfd."""
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


def gpu_of(nvml: SimulatedNvml, uuid: str) -> GpuReading:
    """Return one GPU's reading now."""
    return next(gpu for gpu in nvml.read_host().gpus if gpu.uuid == uuid)


def used_bytes(nvml: SimulatedNvml, uuid: str) -> int:
    """Return the used bytes of one GPU now."""
    memory = gpu_of(nvml, uuid).memory
    assert isinstance(memory, Known)
    return memory.value.used_bytes


def listed_pids(nvml: SimulatedNvml, uuid: str) -> list[int]:
    """Return the pids that the simulated driver lists on one GPU now."""
    processes = gpu_of(nvml, uuid).processes
    assert isinstance(processes, Known)
    return [row.pid for row in processes.value]
