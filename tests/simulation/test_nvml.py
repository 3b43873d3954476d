"""The simulated driver misbehaves as host.toml says, and only there."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import DriverAbsentError, UnsuitableHostError
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import (
    ErrorCounters,
    Generation,
    GpuSetting,
    ModuleUse,
    NvLinks,
    SettingKind,
    Virtualisation,
)
from reclaimerd.model.snapshot import (
    NOT_ASKED,
    ContextKind,
    RecoveryAction,
    Utilisation,
)
from reclaimerd.observe.kernel_devices import read_modules, read_presence
from reclaimerd.simulation.claims import OutOfGpuMemoryError, live_claims, own_claim, take_claim
from reclaimerd.simulation.host import SimulatedHost, read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.nvml import SimulatedNvml
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import (
    GIB,
    TWO_GPUS,
    dead_within,
    gpu_of,
    ignores_sigterm,
    signal_through_pidfd,
    state_of,
    wait_until,
)

READER = """
import sys
from pathlib import Path
from reclaimerd.simulation.nvml import SimulatedNvml
print("asking", flush=True)
SimulatedNvml(Path(sys.argv[1])).read_host()
print("answered", flush=True)
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host with two GPUs."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as standing:
        yield standing


def change(keeper: Keeper, **fields: object) -> SimulatedHost:
    """Change host.toml; the next call sees it."""
    host = replace(read_simulated_host(keeper.directory), **fields)  # type: ignore[arg-type] # any field
    write_simulated_host(keeper.directory, host)
    return host


@pytest.mark.process
def test_a_failure_is_one_reading_of_one_gpu(keeper: Keeper) -> None:
    """A failing call is unreadable or absent there; the other GPU is read as ever."""
    nvml = SimulatedNvml(keeper.directory)
    change(keeper, fail={"GPU-a": {"memory": "no permission", "utilisation": "not supported"}})
    first, second = nvml.read_host().gpus
    assert first.memory == Unreadable("no permission")
    assert first.utilisation == Absent("not supported")
    assert isinstance(first.processes, Known)
    assert isinstance(second.memory, Known)


@pytest.mark.process
def test_rows_may_stand_without_their_memory(keeper: Keeper) -> None:
    """With process_memory failing the pid is listed and its bytes are unreadable, not 0."""
    pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB").pid
    change(keeper, fail={"GPU-a": {"process_memory": "not available"}})
    processes = gpu_of(SimulatedNvml(keeper.directory), "GPU-a").processes
    assert isinstance(processes, Known)
    assert [(row.pid, row.used_bytes) for row in processes.value] == [(pid, Unreadable("not available"))]


@pytest.mark.process
def test_a_lost_gpu_and_one_without_identity(keeper: Keeper) -> None:
    """A lost GPU keeps its identity; one without identity is a sentence, and neither hides the other."""
    change(keeper, fail={"GPU-a": {"handle": "GPU is lost"}})
    nvml = SimulatedNvml(keeper.directory)
    lost = gpu_of(nvml, "GPU-a")
    assert (lost.memory, lost.processes) == (Unreadable("GPU is lost"), Unreadable("GPU is lost"))
    change(keeper, fail={"GPU-a": {"identity": "no answer"}})
    host = nvml.read_host()
    assert [gpu.uuid for gpu in host.gpus] == ["GPU-b"]
    assert "no answer" in host.failures[0]


@pytest.mark.process
def test_what_each_process_uses_is_told_when_asked(keeper: Keeper) -> None:
    """Shares come from the workloads; the idle one has 0; the GPU is as busy as they make it."""
    nvml = SimulatedNvml(keeper.directory)
    busy = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--sm", "40").pid
    idle = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB").pid
    assert shares(nvml, "GPU-a", asked=False) == {busy: NOT_ASKED, idle: NOT_ASKED}
    assert shares(nvml, "GPU-a") == {busy: Known(40), idle: Known(0)}
    assert gpu_of(nvml, "GPU-a").utilisation == Known(Utilisation(40, 0))
    first, second = read_simulated_host(keeper.directory).gpus
    change(keeper, gpus=(replace(first, utilisation_percent=95), second))
    unknown = Unreadable("the GPU is 95 % busy, and no sample says with what")
    assert shares(nvml, "GPU-a") == {busy: Known(40), idle: unknown}
    change(keeper, fail={"GPU-a": {"samples": "not supported"}})
    assert shares(nvml, "GPU-a") == dict.fromkeys((busy, idle), Absent("not supported"))
    change(keeper, fail={}, gpus=(replace(first, mig=True), second))
    assert set(shares(nvml, "GPU-a").values()) == {Absent("not offered while MIG is enabled")}


def shares(nvml: SimulatedNvml, uuid: str, *, asked: bool = True) -> dict[int, Reading[int]]:
    """Return what each listed process uses."""
    gpu = next(gpu for gpu in nvml.read_host(utilisation=asked).gpus if gpu.uuid == uuid)
    assert isinstance(gpu.processes, Known)
    return {row.pid: row.sm_percent for row in gpu.processes.value}


@pytest.mark.process
def test_modes_and_recovery_actions_are_read_anew(keeper: Keeper) -> None:
    """What a person writes into host.toml is the next reading; a word we don't know is UNKNOWN."""
    nvml = SimulatedNvml(keeper.directory)
    host = read_simulated_host(keeper.directory)
    first = replace(host.gpus[0], mig=True, persistence=True, recovery_action="node_reboot", reserved_bytes=5)
    second = replace(host.gpus[1], recovery_action="dance", utilisation_percent=80)
    change(keeper, gpus=(first, second), shared_devices=("/dev/null", "/nowhere"))
    read = nvml.read_host()
    assert (read.gpus[0].mig, read.gpus[0].persistence) == (Known(True), Known(True))
    assert isinstance(read.gpus[0].utilisation, Absent)
    assert read.gpus[0].recovery_action == Known(RecoveryAction.NODE_REBOOT)
    assert read.gpus[1].recovery_action == Known(RecoveryAction.UNKNOWN)
    assert [(number.major, number.minor) for number in read.shared_devices] == [(1, 3)]
    assert "/nowhere" in read.failures[0]


@pytest.mark.process
def test_a_hung_driver_hangs_deaf_to_sigterm(keeper: Keeper) -> None:
    """The reader neither answers nor obeys SIGTERM; SIGKILL ends it."""
    change(keeper, hang=True)
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(keeper.directory)], stdout=subprocess.PIPE, text=True,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline() == "asking\n"
        wait_until(lambda: ignores_sigterm(reader.pid), "hung")
        assert not dead_within(signal_through_pidfd(reader.pid, signal.SIGTERM), 0.3)
        reader.kill()
        assert reader.stdout.read() == ""


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "raw FUSE is there")
def test_a_blocked_driver_survives_sigkill(keeper: Keeper) -> None:
    """With block_on a withheld read puts the reader into a real D; freed, it goes."""
    with RawFuse(withhold="read") as fuse:
        change(keeper, block_on=str(fuse.path("wedge")))
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(keeper.directory)], stdout=subprocess.PIPE, text=True,
        ) as reader:  # fmt: skip
            fuse.wait_withheld()
            pidfd = signal_through_pidfd(reader.pid, signal.SIGKILL)
            assert not dead_within(pidfd, 0.3)
            assert state_of(reader.pid) == "D"
            fuse.release()
            assert reader.wait(5) == -signal.SIGKILL


@pytest.mark.process
def test_without_its_keeper_there_is_no_driver(keeper: Keeper) -> None:
    """A keeper that is gone, or whose pid another has, is an absent driver; all_processes needs none."""
    nvml = SimulatedNvml(keeper.directory)
    assert nvml.read_host().simulated_root == keeper.pid
    file = keeper.directory / "keeper.json"
    text = file.read_text()
    file.write_text(json.dumps({"pid": os.getpid(), "start_ticks": 1}))
    with pytest.raises(DriverAbsentError, match="gone"):
        nvml.read_host()
    file.unlink()
    with pytest.raises(DriverAbsentError, match="no keeper"):
        nvml.read_host()
    change(keeper, all_processes=True)
    assert nvml.read_host().simulated_root is None
    file.write_text(text)


def test_no_directory_is_no_simulated_host(tmp_path: Path) -> None:
    """A wrong --simulate is said in one sentence."""
    with pytest.raises(UnsuitableHostError, match="no simulated host"):
        SimulatedNvml(tmp_path / "nowhere").read_host()


def test_a_claim_lives_as_long_as_its_descriptor(tmp_path: Path) -> None:
    """Closed, it is no claim any more; a stale file counts for nothing and readers disturb nobody."""
    (tmp_path / "claims").mkdir()
    mine = own_claim("GPU-a", GIB, ContextKind.MPS)
    descriptor = take_claim(tmp_path, mine, 2 * GIB)
    assert live_claims(tmp_path) == (mine,)
    assert live_claims(tmp_path) == (mine,)
    assert mine.pid == os.getpid()
    with pytest.raises(OutOfGpuMemoryError):
        take_claim(tmp_path, own_claim("GPU-a", 2 * GIB, ContextKind.COMPUTE), 2 * GIB)
    os.close(descriptor)
    assert live_claims(tmp_path) == ()
    assert len(list((tmp_path / "claims").iterdir())) == 1


def test_a_broken_claim_is_named(tmp_path: Path) -> None:
    """A held file that is no claim raises with its path; it is never taken for 0 bytes."""
    (tmp_path / "claims").mkdir()
    descriptor = take_claim(tmp_path, own_claim("GPU-a", 1, ContextKind.COMPUTE), 5)
    os.ftruncate(descriptor, 3)
    with pytest.raises(ValueError, match="a broken claim"):
        live_claims(tmp_path)
    os.close(descriptor)


def test_without_its_folder_the_claims_are_unknown(tmp_path: Path) -> None:
    """A missing folder raises: it never reads as "nobody holds memory"."""
    with pytest.raises(FileNotFoundError):
        live_claims(tmp_path)


@pytest.mark.process
def test_reset_facts_are_what_host_toml_says(keeper: Keeper) -> None:
    """Links by the peers' PCI addresses, counters, and settings with whether they are the default."""
    host = read_simulated_host(keeper.directory)
    first = replace(
        host.gpus[0],
        generation="ampere",
        peers=("GPU-b",),
        switched=True,
        fabric="completed",
        virtualisation="passthrough",
        display_active=True,
        drain_state=True,
        mig_pending=True,
        uncorrected_ecc=3,
        remapped_rows=2,
        remap_failed=True,
        power_limit="300.00",
    )
    change(keeper, gpus=(first, host.gpus[1]))
    facts = {gpu.uuid: gpu for gpu in SimulatedNvml(keeper.directory).read_reset_facts()}
    one, other = facts[GpuUuid("GPU-a")], facts[GpuUuid("GPU-b")]
    assert one.links == Known(NvLinks(2, ("0000:02:00.0",), switched=True))
    assert (one.generation, one.fabric) == (Known(Generation.AMPERE), Known("completed"))
    assert one.virtualisation == Known(Virtualisation.PASSTHROUGH)
    assert one.display_active == one.drain_state == one.mig_pending == Known(value=True)
    assert one.counters == ErrorCounters(Known(3), Known(2), Known(value=True))
    assert one.settings[0] == GpuSetting(SettingKind.POWER_LIMIT, Known("300.00"))
    assert {setting.kind for setting in one.settings} == set(SettingKind)
    assert all(setting.is_default for setting in other.settings)
    assert (other.generation, other.links) == (Known(Generation.LATER), Known(NvLinks(0)))
    assert isinstance(other.fabric, Absent)


@pytest.mark.process
def test_each_fact_fails_alone(keeper: Keeper) -> None:
    """One failing call makes one field unreadable or absent; a lost GPU has none, its neighbour all."""
    nvml = SimulatedNvml(keeper.directory)
    change(keeper, fail={"GPU-a": {"links": "no answer", "ecc": "not supported", "settings": "no"}})
    one, other = nvml.read_reset_facts()
    assert (one.links, one.counters.uncorrected_ecc) == (Unreadable("no answer"), Absent("not supported"))
    assert {setting.value for setting in one.settings} == {Unreadable("no")}
    assert isinstance(one.generation, Known)
    change(keeper, fail={"GPU-a": {"handle": "GPU is lost"}})
    one, same = nvml.read_reset_facts()
    assert (one.generation, one.drain_state) == (Unreadable("GPU is lost"), Unreadable("GPU is lost"))
    assert same == other
    change(keeper, fail={"GPU-a": {"identity": "no answer"}})
    assert nvml.read_reset_facts() == (other,)


@pytest.mark.process
def test_the_simulated_sys_tree_reads_as_sys(keeper: Keeper) -> None:
    """The driver is bound to both GPUs, and its modules count nobody but each other."""
    addresses = ("0000:01:00.0", "0000:02:00.0")
    root = keeper.directory / "sys"
    assert read_presence(root, (*addresses, "0000:09:00.0"))[:2] == (addresses, ("0000:09:00.0",))
    modules = {module.name: module for module in read_modules(root) if isinstance(module.users, Known)}
    assert modules == {
        "nvidia": ModuleUse("nvidia", Known(1), ("nvidia_uvm",)),
        "nvidia_uvm": ModuleUse("nvidia_uvm", Known(0)),
    }
