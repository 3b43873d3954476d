"""The simulated nvidia-smi refuses as the driver does, in the vendor's words."""

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import (
    TWO_GPUS,
    dead_within,
    ignores_sigterm,
    signal_through_pidfd,
    state_of,
    wait_until,
)

pytestmark = pytest.mark.process
IN_USE = (
    "The following GPUs could not be reset:\n  GPU 00000000:01:00.0: In use by another client\n\n1 device is"
)


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host with two GPUs."""
    with Keeper(tmp_path / "sim dir", TWO_GPUS) as standing:
        yield standing


def reset(keeper: Keeper, gpu: str) -> tuple[int, str]:
    """Run the tool as the product does; return its exit code and output."""
    done = subprocess.run(
        [keeper.smi, "--gpu-reset", "-i", gpu], capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", ["GPU-a", "0000:01:00.0", "00000000:01:00.0", "0"])
def test_a_free_gpu_is_reset(keeper: Keeper, name: str) -> None:
    """Nobody has it: exit 0 and the vendor's words; a holder of the other GPU does not matter."""
    keeper.launch("--gpu", "GPU-b", "--bytes", "1GiB")
    assert reset(keeper, name) == (0, "GPU 00000000:01:00.0 was successfully reset.\nAll done.\n")


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


def test_persistence_mode_refuses(keeper: Keeper) -> None:
    """Persistence on keeps the device in use."""
    host = read_simulated_host(keeper.directory)
    first = replace(host.gpus[0], persistence=True)
    write_simulated_host(keeper.directory, replace(host, gpus=(first, host.gpus[1])))
    assert reset(keeper, "GPU-a")[0] == 255


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("in_use", 255, "In use by another client"),
        ("not_supported", 255, "Not Supported"),
        ("lost", 15, "GPU is lost"),
    ],
)
def test_failures_on_request(keeper: Keeper, how: str, code: int, text: str) -> None:
    """host.toml can make a free GPU refuse."""
    host = read_simulated_host(keeper.directory)
    write_simulated_host(keeper.directory, replace(host, fail={"GPU-a": {"reset": how}}))
    got = reset(keeper, "GPU-a")
    assert got[0] == code
    assert f"GPU 00000000:01:00.0: {text}" in got[1]


def test_a_hung_tool_is_deaf_to_sigterm(keeper: Keeper) -> None:
    """`reset = "hang"`: no output, no exit, no answer to SIGTERM."""
    host = read_simulated_host(keeper.directory)
    write_simulated_host(keeper.directory, replace(host, fail={"GPU-a": {"reset": "hang"}}))
    with subprocess.Popen([keeper.smi, "--gpu-reset", "-i", "GPU-a"], stdout=subprocess.PIPE) as tool:
        wait_until(lambda: ignores_sigterm(tool.pid), "hung")
        tool.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            tool.wait(0.3)
        tool.kill()


def test_other_uses_are_errors(keeper: Keeper) -> None:
    """An unknown GPU is 6, an unknown option 2, a dead simulation 9: nothing passes for success."""
    assert reset(keeper, "GPU-z")[0] == 6
    asked = subprocess.run([keeper.smi, "-q"], capture_output=True, timeout=20, check=False)
    assert asked.returncode == 2
    (keeper.directory / "keeper.json").unlink()
    assert reset(keeper, "GPU-a")[0] == 9
