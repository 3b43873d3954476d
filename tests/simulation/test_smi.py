"""The simulated nvidia-smi refuses as the driver does, in the vendor's words, and a reset really resets."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import RecoveryAction
from reclaimerd.observe.kernel_devices import read_presence
from reclaimerd.simulation.clients import nvml_client_pids
from reclaimerd.simulation.host import SimulatedGpu, read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.nvml import SimulatedNvml
from reclaimerd.simulation.smi_reset import FABRIC_MANAGER, read_resets
from reclaimerd.simulation.units import SimulatedUnit
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import (
    GIB,
    TWO_GPUS,
    dead_within,
    gpu_of,
    ignores_sigterm,
    signal_through_pidfd,
    state_of,
    used_bytes,
    wait_until,
)

pytestmark = pytest.mark.process
IN_USE = (
    "The following GPUs could not be reset:\n  GPU 00000000:01:00.0: In use by another client\n\n1 device is"
)
DONE = "GPU 00000000:01:00.0 was successfully reset.\nAll done.\n"
LABEL = "(simulation: no real GPU was asked or changed)\n"


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host with two GPUs."""
    with Keeper(tmp_path / "sim dir", TWO_GPUS) as standing:
        yield standing


def smi(keeper: Keeper, *words: str) -> tuple[int, str]:
    """Run the tool as the product does; return its exit code and output."""
    done = subprocess.run([keeper.smi, *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def reset(keeper: Keeper, gpu: str) -> tuple[int, str]:
    """Reset one GPU, or several with commas; return the exit code and the output."""
    return smi(keeper, "--gpu-reset", "-i", gpu)


def change(keeper: Keeper, gpu: str = "GPU-a", /, **fields: object) -> None:
    """Change one GPU's description."""
    host = read_simulated_host(keeper.directory)
    gpus = tuple(
        replace(one, **fields) if one.uuid == gpu else one  # type: ignore[arg-type]  # its own fields
        for one in host.gpus
    )
    write_simulated_host(keeper.directory, replace(host, gpus=gpus))


def fail(keeper: Keeper, **calls: str) -> None:
    """Make calls fail on the first GPU."""
    host = read_simulated_host(keeper.directory)
    write_simulated_host(keeper.directory, replace(host, fail={"GPU-a": calls} if calls else {}))


def gpu_a(keeper: Keeper) -> SimulatedGpu:
    """Return the first GPU as host.toml has it now."""
    return next(gpu for gpu in read_simulated_host(keeper.directory).gpus if gpu.uuid == "GPU-a")


def took_place(keeper: Keeper) -> list[tuple[str, str]]:
    """Return each reset that took place, and how it came out."""
    return [(line.gpu, line.how) for line in read_resets(keeper.directory)]


@pytest.mark.parametrize("name", ["GPU-a", "0000:01:00.0", "00000000:01:00.0", "0"])
def test_a_free_gpu_is_reset(keeper: Keeper, name: str) -> None:
    """Nobody has it: exit 0 and the vendor's words; a holder of the other GPU does not matter."""
    keeper.launch("--gpu", "GPU-b", "--bytes", "1GiB")
    assert reset(keeper, name) == (0, DONE + LABEL)
    assert took_place(keeper) == [("GPU-a", "")]
    assert [line.over for line in read_resets(keeper.directory)] == [False]


@pytest.mark.parametrize(
    "args",
    [
        ("--bytes", "1GiB"),
        ("--bytes", "0"),
        ("--bytes", "1GiB", "--no-node"),
        ("--bytes", "0", "--exit-leader"),
        ("--bytes", "0", "--fork-and-leave"),
    ],
)
def test_a_held_gpu_is_refused(keeper: Keeper, args: tuple[str, ...]) -> None:
    """Memory, an open node, a dead leader's thread and a dead parent's child each refuse; they live on."""
    pid = keeper.launch("--gpu", "GPU-a", *args).pid
    if "--exit-leader" in args:
        wait_until(lambda: state_of(pid) == "Z", "leader dead")
    code, text = reset(keeper, "GPU-a")
    assert code == 255
    assert text.startswith(IN_USE)
    assert took_place(keeper) == []


@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "raw FUSE is there")
def test_a_task_stuck_in_its_exit_refuses(keeper: Keeper) -> None:
    """It shows no descriptor any more, and the driver still counts it."""
    with RawFuse(withhold="flush") as fuse:
        args = ("--gpu", "GPU-a", "--bytes", "1GiB", "--stuck-on", str(fuse.path("held")))
        pidfd = signal_through_pidfd(keeper.launch(*args).pid, signal.SIGKILL)
        fuse.wait_withheld()
        code, text = reset(keeper, "GPU-a")
        assert code == 255
        assert text.startswith(IN_USE)
        fuse.release()
        wait_until(lambda: reset(keeper, "GPU-a")[0] == 0, "free again")
        assert dead_within(pidfd, 5)


def test_an_nvml_client_refuses_until_it_lets_go(keeper: Keeper) -> None:
    """Our own probe is a client as any other: it holds every GPU until it is closed."""
    nvml = SimulatedNvml(keeper.directory)
    nvml.read_host()
    assert nvml_client_pids(keeper.directory) == (os.getpid(),)
    assert reset(keeper, "GPU-a")[0] == 255
    nvml.close()
    assert nvml_client_pids(keeper.directory) == ()
    assert reset(keeper, "GPU-a")[0] == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"persistence": True}, "In use by another client"),
        ({"display_active": True}, "In use by another client"),
        ({"drain_state": True}, "In use by another client"),
        ({"mig_pending": True}, "Not Supported"),
        ({"virtualisation": "vgpu_guest"}, "Not Supported"),
        ({"virtualisation": "passthrough", "switched": True}, "Not Supported"),
    ],
)
def test_states_that_refuse(keeper: Keeper, fields: dict[str, object], text: str) -> None:
    """Persistence mode, a display, a drain state, a pending MIG mode, a guest's GPU; nothing is reset."""
    change(keeper, "GPU-a", **fields)
    code, said = reset(keeper, "GPU-a")
    assert code == 255
    assert f"GPU 00000000:01:00.0: {text}\n" in said
    assert took_place(keeper) == []


def test_a_passed_through_gpu_without_links_is_reset(keeper: Keeper) -> None:
    """Passthrough alone refuses nothing."""
    change(keeper, virtualisation="passthrough")
    assert reset(keeper, "GPU-a")[0] == 0


def test_linked_gpus_before_ampere_are_reset_together(keeper: Keeper) -> None:
    """One alone is refused with the other's name; both in one command are reset, one line each."""
    change(keeper, generation="before_ampere", peers=("GPU-b",))
    code, text = reset(keeper, "GPU-a")
    assert code == 255
    assert "  GPU 00000000:02:00.0\n" in text
    assert took_place(keeper) == []
    code, text = reset(keeper, "GPU-a,GPU-b")
    assert code == 0
    assert text.count("was successfully reset.") == 2
    assert took_place(keeper) == [("GPU-a", ""), ("GPU-b", "")]


def test_one_busy_peer_refuses_the_whole_command(keeper: Keeper) -> None:
    """None of the group is reset when one is in use."""
    keeper.launch("--gpu", "GPU-b")
    code, text = reset(keeper, "GPU-a,GPU-b")
    assert code == 255
    assert "GPU 00000000:02:00.0: In use by another client" in text
    assert took_place(keeper) == []


@pytest.mark.parametrize(("active", "code"), [(False, 255), (True, 0)])
def test_ampere_behind_a_switch_needs_the_fabric_manager(keeper: Keeper, active: bool, code: int) -> None:  # noqa: FBT001 - a parameter of the test
    """With Fabric Manager one GPU is reset alone; without it all of the switch must be named."""
    keeper.place_units(SimulatedUnit(FABRIC_MANAGER, active=active))
    for gpu in ("GPU-a", "GPU-b"):
        change(keeper, gpu, generation="ampere", switched=True)
    assert reset(keeper, "GPU-a")[0] == code
    assert len(took_place(keeper)) == int(active)


@pytest.mark.parametrize(
    ("how", "text"), [("in_use", "In use by another client"), ("not_supported", "Not Supported")]
)
def test_refusals_on_request(keeper: Keeper, how: str, text: str) -> None:
    """host.toml can make a free GPU refuse; then nothing took place."""
    fail(keeper, reset=how)
    code, said = reset(keeper, "GPU-a")
    assert code == 255
    assert f"GPU 00000000:01:00.0: {text}\n" in said
    assert took_place(keeper) == []


def test_a_reset_puts_everything_to_its_default(keeper: Keeper) -> None:
    """Recovery action, settings and what leaked are gone; what stands in the memory chips stays."""
    change(
        keeper,
        recovery_action="gpu_reset",
        power_limit="300.00",
        compute_mode="3",
        application_clocks="1,1",
        residue_bytes=GIB,
        uncorrected_ecc=7,
    )
    assert reset(keeper, "GPU-a") == (0, DONE + LABEL)
    fresh = gpu_a(keeper)
    assert (fresh.recovery_action, fresh.power_limit, fresh.compute_mode) == ("none", "700.00", "0")
    assert (fresh.application_clocks, fresh.residue_bytes, fresh.uncorrected_ecc) == ("2619,1980", 0, 7)


def test_leaked_memory_stays_used_until_a_reset(keeper: Keeper) -> None:
    """A dead process's leak is used, is listed for nobody, refuses no reset, and is gone after it."""
    nvml = SimulatedNvml(keeper.directory)
    pidfd = signal_through_pidfd(
        keeper.launch("--gpu", "GPU-a", "--bytes", "3GiB", "--leak").pid, signal.SIGKILL
    )
    assert dead_within(pidfd, 5)
    assert used_bytes(nvml, "GPU-a") == 3 * GIB
    assert used_bytes(nvml, "GPU-b") == 0
    assert gpu_of(nvml, "GPU-a").processes == Known(())
    nvml.close()
    assert reset(keeper, "GPU-a")[0] == 0
    assert used_bytes(nvml, "GPU-a") == 0
    nvml.close()


def test_a_gpu_that_is_lost_in_the_reset_is_nowhere(keeper: Keeper) -> None:
    """Exit 15, and neither NVML nor DIR/sys has it any more; the other GPU stays."""
    device = keeper.directory / "sys/bus/pci/devices/0000:01:00.0"
    assert (device / "driver").resolve().name == "nvidia"
    fail(keeper, reset="lost")
    code, text = reset(keeper, "GPU-a")
    assert code == 15
    assert "GPU 00000000:01:00.0: GPU is lost\n" in text
    assert not device.exists()
    assert read_presence(keeper.directory / "sys", ["0000:01:00.0"])[:2] == (
        ("0000:02:00.0",),
        ("0000:01:00.0",),
    )
    assert [gpu.uuid for gpu in SimulatedNvml(keeper.directory).read_host().gpus] == ["GPU-b"]
    assert [gpu.uuid for gpu in SimulatedNvml(keeper.directory).read_reset_facts()] == ["GPU-b"]
    assert reset(keeper, "GPU-a")[0] == 6
    assert took_place(keeper) == [("GPU-a", "lost")]


@pytest.mark.parametrize(
    "how", ["lost_after", "other_index", "residue", "recovery_after", "xid_after", "ecc_after"]
)
def test_what_may_be_wrong_after_a_success(keeper: Keeper, how: str) -> None:
    """The tool says success each time, the reset took place, and exactly one thing is wrong."""
    fail(keeper, reset=how)
    assert reset(keeper, "GPU-a") == (0, DONE + LABEL)
    assert took_place(keeper) == [("GPU-a", how)]
    nvml = SimulatedNvml(keeper.directory)
    uuids = [gpu.uuid for gpu in nvml.read_host().gpus]
    assert uuids == {"lost_after": ["GPU-b"], "other_index": ["GPU-b", "GPU-a"]}.get(how, ["GPU-a", "GPU-b"])
    log = keeper.directory / "kmsg"
    assert (log.read_text() if log.exists() else "").count("NVRM: Xid (PCI:0000:01:00): 79,") == (
        how == "xid_after"
    )
    if how != "lost_after":
        gpu = gpu_of(nvml, "GPU-a")
        action = RecoveryAction.NODE_REBOOT if how == "recovery_after" else RecoveryAction.NONE
        assert gpu.recovery_action == Known(action)
        assert used_bytes(nvml, "GPU-a") == (GIB if how == "residue" else 0)
        assert gpu_a(keeper).uncorrected_ecc == (how == "ecc_after")
    nvml.close()


def test_a_careless_driver_resets_over_holders_and_the_log_says_so(keeper: Keeper) -> None:
    """What our own gate alone prevents can be shown: the line says that somebody had the GPU."""
    keeper.launch("--gpu", "GPU-a")
    assert reset(keeper, "GPU-a")[0] == 255
    fail(keeper, reset="careless")
    assert reset(keeper, "GPU-a") == (0, DONE + LABEL)
    assert [line.over for line in read_resets(keeper.directory)] == [True]


def test_a_success_without_known_words(keeper: Keeper) -> None:
    """`silent`: exit 0 and a text that says nothing of a reset."""
    fail(keeper, reset="silent")
    code, text = reset(keeper, "GPU-a")
    assert code == 0
    assert "successfully reset" not in text


def test_a_hung_tool_is_deaf_to_sigterm_until_host_toml_lets_it_go_on(keeper: Keeper) -> None:
    """`reset = "hang"`: no output, no exit, no answer to SIGTERM, nothing reset; then it may end."""
    fail(keeper, reset="hang")
    with subprocess.Popen([keeper.smi, "--gpu-reset", "-i", "GPU-a"], stdout=subprocess.PIPE) as tool:
        wait_until(lambda: ignores_sigterm(tool.pid), "hung")
        tool.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            tool.wait(0.3)
        assert took_place(keeper) == []
        fail(keeper)
        assert tool.wait(10) == 0
    assert took_place(keeper) == [("GPU-a", "")]


def test_a_hung_tool_ends_with_its_simulation(tmp_path: Path) -> None:
    """Whoever abandons it leaves no process behind when the simulation is removed."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        fail(keeper, reset="hang")
        tool = subprocess.Popen([keeper.smi, "--gpu-reset", "-i", "GPU-a"], stdout=subprocess.PIPE)
        wait_until(lambda: ignores_sigterm(tool.pid), "hung")
    assert tool.wait(10) == 9
    tool.communicate()


def test_a_slow_reset_keeps_openers_waiting(keeper: Keeper) -> None:
    """The check and the reset are one: whoever opens the GPU meanwhile has it after the end."""
    host = read_simulated_host(keeper.directory)
    write_simulated_host(keeper.directory, replace(host, slow_reset_seconds=1.0))
    with subprocess.Popen([keeper.smi, "--gpu-reset", "-i", "GPU-a"], stdout=subprocess.PIPE) as tool:
        wait_until(lambda: bool(_has_lock(keeper.directory, tool.pid)), "in the reset")
        keeper.launch("--gpu", "GPU-a")
        assert took_place(keeper) == [("GPU-a", "")]
        assert tool.wait(10) == 0
    assert reset(keeper, "GPU-a")[0] == 255


def _has_lock(directory: Path, pid: int) -> bool:
    """Tell whether a process has the driver's lock (/proc/locks: FLOCK, WRITE, pid, inode)."""
    inode = directory.stat().st_ino
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(row[1] == "FLOCK" and row[4] == str(pid) and row[5].endswith(f":{inode}") for row in rows)


def test_persistence_mode_is_set_and_read_back(keeper: Keeper) -> None:
    """Off, off again, on: the words differ, the query tells the truth in one bare line."""
    change(keeper, persistence=True)
    query = ("--query-gpu=persistence_mode", "--format=csv,noheader", "-i", "GPU-a")
    assert smi(keeper, *query) == (0, "Enabled\n")
    said = "Disabled persistence mode for GPU 00000000:01:00.0.\nAll done.\n"
    assert smi(keeper, "-i", "GPU-a", "-pm", "0") == (0, said + LABEL)
    assert smi(keeper, *query) == (0, "Disabled\n")
    again = smi(keeper, "-pm", "0", "-i", "GPU-a")
    assert again[1].startswith("Persistence mode is already Disabled")
    assert smi(keeper, "-pm", "1", "-i", "GPU-a")[0] == 0
    assert gpu_a(keeper).persistence
    assert not read_simulated_host(keeper.directory).gpus[1].persistence


@pytest.mark.parametrize(
    ("option", "value", "field", "written"),
    [
        ("-pl", "250", "power_limit", "250.00"),
        ("-c", "3", "compute_mode", "3"),
        ("-am", "1", "accounting_mode", "1"),
        ("-ac", "2619,1200", "application_clocks", "2619,1200"),
    ],
)
def test_settings_are_taken_back(keeper: Keeper, option: str, value: str, field: str, written: str) -> None:
    """Each setting is written durably, a wrong value is 2, and a failure on request changes nothing."""
    assert smi(keeper, option, value, "-i", "GPU-a")[0] == 0
    assert getattr(gpu_a(keeper), field) == written
    assert smi(keeper, option, "much", "-i", "GPU-a")[0] == 2
    before = gpu_a(keeper)
    fail(keeper, set_settings="no", set_persistence="no")
    assert smi(keeper, option, "1", "-i", "GPU-a")[0] in {2, 255}
    assert smi(keeper, "-pm", "1", "-i", "GPU-a")[0] == 255
    fail(keeper, set_persistence="silent")
    assert smi(keeper, "-pm", "1", "-i", "GPU-a")[0] == 0
    assert gpu_a(keeper) == before


def test_other_uses_are_errors(keeper: Keeper) -> None:
    """An unknown GPU is 6, other options 2, a dead simulation 9: nothing passes for success."""
    assert reset(keeper, "GPU-z")[0] == 6
    for words in (["-q"], ["--gpu-reset"], ["-r", "-pm", "0", "-i", "0"], ["--query-gpu=x", "--format=csv"]):
        assert smi(keeper, *words)[0] == 2
    (keeper.directory / "keeper.json").unlink()
    assert reset(keeper, "GPU-a")[0] == 9
    assert took_place(keeper) == []
