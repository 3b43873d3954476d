"""The part of wiring that knows what is read besides the passes: a reset's facts, the machine's own signals.

Builds, and decides nothing.
"""

import asyncio
import time
from collections.abc import Callable

from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.news import News
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.observe.kmsg import KernelLogReader
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.reset_eyes import HostHands, ResetEyes
from reclaimerd.observe.udev import DeviceWatch
from reclaimerd.observe.units import units_of
from reclaimerd.simulation.kernel_log import SimulatedKernelLog


def build_reset_eyes(
    paths: Paths,
    probes: tuple[Probe, Probe, Probe],
    policy: Callable[[], Policy],
    tool_fault: Callable[[], str],
) -> ResetEyes:
    """Return what reads the facts of a reset."""
    nvml, procfs, _ = probes
    hands = HostHands(
        ours=lambda: [pid for probe in probes for pid in probe.worker_pids()],
        stop_units=lambda: policy().reset.stop_units,
        tool_fault=tool_fault,
        simulate=paths.simulate,
    )
    return ResetEyes(nvml, procfs, units_of(time.monotonic, paths.simulate), hands)


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
