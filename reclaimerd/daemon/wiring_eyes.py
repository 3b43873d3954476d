"""The part of wiring that knows what is read besides the passes: a reset's facts, the machine's own signals.

Builds, and decides nothing.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from reclaimerd.daemon.engine import ROLES, Paths
from reclaimerd.daemon.news import News
from reclaimerd.daemon.wiring_workers import Probes
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import SamplerPort
from reclaimerd.observe.allocation_eyes import AllocationEyes
from reclaimerd.observe.cluster_eyes import ClusterEyes
from reclaimerd.observe.cri_eyes import CriEyes
from reclaimerd.observe.hidden import HiddenEyes
from reclaimerd.observe.kmsg import KernelLogReader
from reclaimerd.observe.owner_marks import MarkEyes, unit_marks_of
from reclaimerd.observe.places import NamedSampler, Places
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.reset_eyes import HostHands, ResetEyes
from reclaimerd.observe.sign_eyes import SignEyes
from reclaimerd.observe.slurm_jobs import SlurmEyes
from reclaimerd.observe.slurm_reader import SlurmReader
from reclaimerd.observe.udev import DeviceWatch
from reclaimerd.observe.units import units_of
from reclaimerd.simulation.kernel_log import SimulatedKernelLog

FOREGROUND_SECONDS = 1.0
"""How long one command waits for the controller's answer about a job: it only makes names complete."""


def build_reset_eyes(
    paths: Paths,
    probes: Probes,
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


def build_eyes(
    sampler: SamplerPort, paths: Paths, probes: Probes, policy: Callable[[], Policy], *, foreground: bool
) -> SamplerPort:
    """Return the sampler whose looks have in them all that is read beside the passes."""
    workers = dict(zip(ROLES, probes, strict=True))
    hidden = HiddenEyes(sampler, workers["procfs"], time.monotonic)
    signs = SignEyes(hidden, workers["signs"], time.monotonic)
    patience = FOREGROUND_SECONDS if foreground else 0.0
    named = with_names(signs, paths, workers["procfs"], policy, patience_seconds=patience)
    listed = build_sampler(named, (workers["kubelet"], workers["cluster"]), policy)
    reader = SlurmReader((time.monotonic, time.time))
    root = str(_root_of(paths))
    jobs = SlurmEyes(listed, workers["procfs"], reader, lambda: policy().attribution, root)
    marked = MarkEyes(jobs, unit_marks_of(time.monotonic, paths.simulate), lambda: policy().marks)
    return CriEyes(marked, workers["cri"], policy, time.monotonic, patience_seconds=patience)


def build_sampler(
    sampler: SamplerPort, probes: tuple[Probe, Probe], policy: Callable[[], Policy]
) -> ClusterEyes:
    """Return the sampler whose looks have the kubelet's and the cluster's lists in them."""
    kubelet, cluster = probes
    allocations = AllocationEyes(
        sampler,
        kubelet,
        lambda: policy().attribution,
        lambda: policy().workers.answer_within_seconds,
        time.monotonic,
    )
    return ClusterEyes(allocations, cluster, lambda: policy().cluster, time.monotonic)


def with_names(
    sampler: SamplerPort,
    paths: Paths,
    procfs: Probe,
    policy: Callable[[], Policy],
    *,
    patience_seconds: float,
) -> NamedSampler:
    """Return the sampler whose looks name pods, containers and jobs.

    One command has only one look: it waits a moment for Slurm, where the passes never do.
    """
    places = Places(
        procfs,
        time.monotonic,
        _root_of(paths),
        patience_seconds=patience_seconds,
        scontrol=lambda: policy().attribution.scontrol,
    )
    return NamedSampler(sampler, places)


def _root_of(paths: Paths) -> Path:
    """Return the root of the host's files: a simulated host has its own records and programs."""
    return Path("/") if paths.simulate is None else paths.simulate / "root"


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
