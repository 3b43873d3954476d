"""The part of wiring that knows what is read besides the passes: a reset's facts, the machine's own signals.

Builds, and decides nothing.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.news import News
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import SamplerPort
from reclaimerd.observe.allocation_eyes import AllocationEyes
from reclaimerd.observe.kmsg import KernelLogReader
from reclaimerd.observe.places import NamedSampler, Places
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.reset_eyes import HostHands, ResetEyes
from reclaimerd.observe.udev import DeviceWatch
from reclaimerd.observe.units import units_of
from reclaimerd.simulation.kernel_log import SimulatedKernelLog

FOREGROUND_SECONDS = 1.0
"""How long one command waits for the controller's answer about a job: it only makes names complete."""


def build_reset_eyes(
    paths: Paths,
    probes: tuple[Probe, Probe, Probe, Probe],
    policy: Callable[[], Policy],
    tool_fault: Callable[[], str],
) -> ResetEyes:
    """Return what reads the facts of a reset."""
    nvml, procfs, *_ = probes
    hands = HostHands(
        ours=lambda: [pid for probe in probes for pid in probe.worker_pids()],
        stop_units=lambda: policy().reset.stop_units,
        tool_fault=tool_fault,
        simulate=paths.simulate,
    )
    return ResetEyes(nvml, procfs, units_of(time.monotonic, paths.simulate), hands)


def build_sampler(sampler: SamplerPort, kubelet: Probe, policy: Callable[[], Policy]) -> AllocationEyes:
    """Return the sampler whose looks have the kubelet's list in them."""
    return AllocationEyes(
        sampler,
        kubelet,
        lambda: policy().attribution,
        lambda: policy().workers.answer_within_seconds,
        time.monotonic,
    )


def with_names(sampler: SamplerPort, paths: Paths, procfs: Probe, *, foreground: bool) -> NamedSampler:
    """Return the sampler whose looks name pods, containers and jobs.

    A simulated host has its own records, below `DIR/root`. One command has only one look: it waits a
    moment for Slurm, where the passes never do.
    """
    root = Path("/") if paths.simulate is None else paths.simulate / "root"
    patience = FOREGROUND_SECONDS if foreground else 0.0
    return NamedSampler(sampler, Places(procfs, time.monotonic, root, patience_seconds=patience))


def build_news(paths: Paths, ledger: Ledger, boot_id: str) -> News:
    """Return the machine's own signals; a simulated host has a log of its own, and none of this machine's."""
    after = ledger.kernel_seq if ledger.kernel_boot == boot_id else None
    if paths.simulate is not None:
        return News(SimulatedKernelLog(paths.simulate, after), None)
    return News(KernelLogReader(after), DeviceWatch())


def starting_anew(nvml: Probe) -> Callable[[], None]:
    """Return what ends our nvml worker: the next question starts one that knows which GPU is which."""
    tasks: set[asyncio.Task[None]] = set()

    def driver_changed() -> None:
        task = asyncio.get_running_loop().create_task(nvml.close())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return driver_changed
