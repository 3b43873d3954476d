"""The facts for a reset through real workers, over a simulated host with processes that hold its GPUs."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_facts import KernelFacts
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.driver_grip import CLOSED_WHY, DriverGrip
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.reset_eyes import HostHands, ResetEyes
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.observe.units import units_of
from reclaimerd.simulation.keeper import Keeper
from tests.builders import GIB
from tests.rigs.simulated import TWO_GPUS

pytestmark = pytest.mark.process
LIMITS = WorkerSettings(answer_within_seconds=20)


async def looked_at(directory: Path, *looks: Look) -> list[Snapshot]:
    """Return one snapshot for each look; the driver is let go of before one without it."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()  # noqa: ASYNC240  # a test's set-up
    nvml = Probe("nvml", command_for("nvml", directory), LIMITS)
    procfs = Probe("procfs", command_for("procfs"), LIMITS)
    exits = ExitWatch(lambda _ref: None)
    clocks = (time.monotonic, time.time)
    sampler = Sampler(nvml, procfs, SamplerSettings(boot_id, ()), exits, clocks)

    def ours() -> Sequence[int]:
        return (*nvml.worker_pids(), *procfs.worker_pids())

    hands = HostHands(ours=ours, stop_units=lambda: (), tool_fault=lambda: "", simulate=directory)
    units = units_of(time.monotonic, directory)
    sampler.use_reset_eyes(ResetEyes(nvml, procfs, units, hands))
    grip, found = DriverGrip(nvml), []
    try:
        for look in looks:
            if look.without_driver:
                assert await grip.let_go()
            found.append(await sampler.sample(look))
            assert not (look.without_driver and nvml.worker_pids())
            grip.take_back()
    finally:
        exits.close()
        await nvml.close()
        await procfs.close()
    return found


def kernel_of(snapshot: Snapshot) -> KernelFacts:
    """Return the kernel's facts of a look, which must be known."""
    assert snapshot.reset_facts is not None
    assert isinstance(snapshot.reset_facts.kernel, Known), snapshot.reset_facts
    return snapshot.reset_facts.kernel.value


def test_with_and_without_the_driver(tmp_path: Path) -> None:
    """First everything; then, our worker gone, the search and the kernel alone see the same holder."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        workload = keeper.launch("--gpu", "GPU-a", "--bytes", str(GIB)).pid
        whole = Look(full_scan=True, deep=True, reset=True)
        bare = Look(full_scan=True, deep=True, reset=True, without_driver=True)
        first, second, third = asyncio.run(looked_at(keeper.directory, whole, bare, whole))
    for snapshot in (first, third):
        assert snapshot.reset_facts is not None
        assert isinstance(snapshot.reset_facts.gpus, Known)
        assert [gpu.uuid for gpu in snapshot.reset_facts.gpus.value] == ["GPU-a", "GPU-b"]
        assert isinstance(snapshot.reset_facts.units, Known)
    assert second.reset_facts is not None
    assert second.reset_facts.gpus == Unreadable(CLOSED_WHY)
    assert all(gpu.memory == Unreadable(CLOSED_WHY) for gpu in second.gpus)
    for snapshot in (first, second, third):
        facts = kernel_of(snapshot)
        assert set(facts.present) == {gpu.pci_address for gpu in first.gpus}
        assert (facts.missing, facts.busy_threads, facts.displays) == ((), (), ())
        assert isinstance(facts.opens, Known)
        assert facts.opens.value >= 1
        assert snapshot.scan.full_now
        assert workload in {holder.ref.pid for holder in snapshot.holders}
