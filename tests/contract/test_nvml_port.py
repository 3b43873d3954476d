"""One contract for whatever answers as NVML: the simulation always, the real driver where there is one."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.ports import NvmlPort
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import SettingKind
from reclaimerd.model.snapshot import (
    NOT_ASKED,
    GpuReading,
    HostGpus,
)
from reclaimerd.observe.nvml import RealNvml
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.nvml import SimulatedNvml
from tests.rigs.simulated import TWO_GPUS

READINGS = ("memory", "processes", "utilisation", "mig", "persistence", "recovery_action")
FACTS = (
    "generation",
    "links",
    "fabric",
    "virtualisation",
    "display_active",
    "drain_state",
    "mig_pending",
)
PCI_ADDRESS = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
SETTING_FORMS = {
    SettingKind.POWER_LIMIT: r"\d+\.\d\d",
    SettingKind.COMPUTE_MODE: r"\d",
    SettingKind.ACCOUNTING_MODE: r"[01]",
    SettingKind.APPLICATION_CLOCKS: r"\d+,\d+",
}


@pytest.fixture(
    params=[
        pytest.param("simulated", marks=pytest.mark.process),
        pytest.param("real", marks=pytest.mark.gpu),
    ],
)
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NvmlPort]:
    """Return each implementation, over a host with at least one GPU."""
    if request.param == "simulated":
        with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
            keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB")
            yield SimulatedNvml(keeper.directory)
        return
    real = RealNvml()
    try:
        real.read_host()
    except ReclaimerdError as error:
        pytest.skip(f"no NVIDIA GPU to read: {error}")
    yield real
    real.close()


def readings_of(gpu: GpuReading) -> list[object]:
    """Return the readings of one GPU."""
    return [getattr(gpu, field.name) for field in fields(gpu) if field.name in READINGS]


def test_identities_are_whole_and_unique(port: NvmlPort) -> None:
    """Each GPU has a UUID, a PCI address as the kernel writes it, and a device number of its own."""
    host = port.read_host()
    assert host.gpus
    assert host.failures == ()
    assert len({gpu.uuid for gpu in host.gpus}) == len(host.gpus)
    assert len({gpu.device for gpu in host.gpus}) == len(host.gpus)
    for gpu in host.gpus:
        assert gpu.uuid.startswith("GPU-")
        domain, bus, slot = gpu.pci_address.split(":")
        assert (len(domain), len(bus), len(slot)) == (4, 2, 4)
        assert gpu.pci_address == gpu.pci_address.lower()
        assert gpu.device.major > 0
        assert gpu.name
    assert host.driver_version[0].isdigit()
    assert host.simulated == isinstance(port, SimulatedNvml)


def test_every_field_is_a_reading(port: NvmlPort) -> None:
    """Known, unreadable with a why, or absent with a why; nothing else."""
    for gpu in port.read_host().gpus:
        for reading in readings_of(gpu):
            assert isinstance(reading, Known | Unreadable | Absent)
            assert isinstance(reading, Known) or reading.why


def test_memory_is_in_bytes_and_adds_up(port: NvmlPort) -> None:
    """A GPU has more than a MiB, uses no more than it has, and its reserve is apart."""
    for gpu in port.read_host().gpus:
        assert isinstance(gpu.memory, Known)
        memory = gpu.memory.value
        assert memory.total_bytes > 1 << 20
        assert 0 <= memory.used_bytes <= memory.total_bytes
        assert 0 <= memory.reserved_bytes < memory.total_bytes


def test_listed_processes_have_pids_and_never_a_false_zero(port: NvmlPort) -> None:
    """One row for each pid and instance; its bytes are known and no more than used, or unreadable."""
    for gpu in port.read_host().gpus:
        assert isinstance(gpu.processes, Known)
        rows = gpu.processes.value
        keys = [(row.pid, row.gpu_instance, row.compute_instance) for row in rows]
        assert len(set(keys)) == len(keys)
        for row in rows:
            assert row.pid > 0
            assert isinstance(row.used_bytes, Known | Unreadable)
            assert not isinstance(row.used_bytes, Known) or row.used_bytes.value > 0


def test_shares_are_told_when_asked_and_only_then(port: NvmlPort) -> None:
    """Each listed process has a percentage or why not; without asking, nobody has one."""
    for asked in (False, True):
        for gpu in port.read_host(utilisation=asked).gpus:
            assert isinstance(gpu.processes, Known)
            for row in gpu.processes.value:
                assert (row.sm_percent == NOT_ASKED) is not asked
                assert not isinstance(row.sm_percent, Known) or 0 <= row.sm_percent.value <= 100


def test_percentages_are_percentages(port: NvmlPort) -> None:
    """Utilisation, where offered, lies from 0 to 100."""
    for gpu in port.read_host().gpus:
        if isinstance(gpu.utilisation, Known):
            assert 0 <= gpu.utilisation.value.gpu_percent <= 100
            assert 0 <= gpu.utilisation.value.memory_percent <= 100


def test_reset_facts_are_of_the_same_gpus_and_every_field_is_a_reading(port: NvmlPort) -> None:
    """Each GPU of the host has its facts, known or with a why; nothing is guessed."""
    host = port.read_host()
    facts = port.read_reset_facts()
    assert [(gpu.uuid, gpu.pci_address) for gpu in facts] == [
        (gpu.uuid, gpu.pci_address) for gpu in host.gpus
    ]
    for gpu in facts:
        counters = gpu.counters
        readings: list[object] = [getattr(gpu, name) for name in FACTS]
        readings += [counters.uncorrected_ecc, counters.remapped_rows, counters.remap_failed]
        readings += [setting.value for setting in gpu.settings]
        for reading in readings:
            assert isinstance(reading, Known | Unreadable | Absent)
            assert isinstance(reading, Known) or reading.why


def test_links_and_settings_have_the_forms_that_others_read(port: NvmlPort) -> None:
    """Peers are PCI addresses as the kernel writes them; settings are as the vendor's tool takes them."""
    for gpu in port.read_reset_facts():
        if isinstance(gpu.links, Known):
            links = gpu.links.value
            assert links.active >= len(set(links.peers))
            assert all(re.fullmatch(PCI_ADDRESS, peer) for peer in links.peers)
            assert gpu.pci_address not in links.peers
        assert len({setting.kind for setting in gpu.settings}) == len(gpu.settings)
        for setting in gpu.settings:
            if isinstance(setting.value, Known):
                assert re.fullmatch(SETTING_FORMS[setting.kind], setting.value.value)


def test_close_and_read_again(port: NvmlPort) -> None:
    """Close may be called twice, and the next read sees the same GPUs."""

    def identities(host: HostGpus) -> list[tuple[str, int, str]]:
        return [(gpu.uuid, gpu.minor, gpu.pci_address) for gpu in host.gpus]

    before = identities(port.read_host())
    port.close()
    port.close()
    assert identities(port.read_host()) == before
