"""The keeper leaves nothing behind, whoever dies first."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.simulation.host import read_simulated_host
from reclaimerd.simulation.keeper import Keeper
from tests.rigs.simulated import TWO_GPUS, state_of, wait_until

pytestmark = pytest.mark.process

CONTROLLER = """
import sys
from pathlib import Path
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.keeper import Keeper
keeper = Keeper(Path(sys.argv[1]), [SimulatedGpu("GPU-a", "A", 1 << 30)])
keeper.start()
first = keeper.launch("--gpu", "GPU-a", "--bytes", "1MiB", "--ignore-term")
second = keeper.launch("--gpu", "GPU-a", "--bytes", "1MiB", "--fork-and-leave")
print(keeper.pid, first.pid, *second.children, flush=True)
sys.stdin.read()
"""


def test_the_directory_is_private_and_goes_with_the_keeper(tmp_path: Path) -> None:
    """0700, a node for each GPU with a number of its own; nothing is left after stop."""
    directory = tmp_path / "sim"
    keeper = Keeper(directory, TWO_GPUS)
    keeper.start()
    assert directory.stat().st_mode & 0o777 == 0o700
    devices = [Path(gpu.device).stat().st_rdev for gpu in read_simulated_host(directory).gpus]
    assert len(set(devices)) == 2
    launched = keeper.launch_all([["--gpu", "GPU-a", "--ignore-term"], ["--gpu", "GPU-b", "--stop-self"]])
    pids = [keeper.pid, *(each.pid for each in launched)]
    assert keeper.stop() == ()
    assert [state_of(pid) for pid in pids] == ["gone"] * 3
    assert not directory.exists()
    assert keeper.stop() == ()


def test_files_of_others_stay(tmp_path: Path) -> None:
    """Stop removes what the keeper made and nothing else."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        (keeper.directory / "state").write_text("mine")
    assert [path.name for path in (tmp_path / "sim").iterdir()] == ["state"]


def test_two_simulations_do_not_share_a_directory(tmp_path: Path) -> None:
    """The second is refused, and the first goes on."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        with pytest.raises(ReclaimerdError, match="already holds"):
            Keeper(tmp_path / "sim", TWO_GPUS).start()
        assert keeper.launch("--gpu", "GPU-a").pid


def test_a_dead_controller_takes_all_along(tmp_path: Path) -> None:
    """SIGKILL of the controlling process ends keeper, workloads and orphans, and removes the files."""
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(tmp_path / "sim")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as controller:
        assert controller.stdout is not None
        pidfds = [os.pidfd_open(int(word)) for word in controller.stdout.readline().split()]
        assert len(pidfds) == 3
        controller.kill()
        for pidfd in pidfds:
            assert select.select([pidfd], [], [], 5)[0]
            os.close(pidfd)
    wait_until(lambda: not (tmp_path / "sim").exists(), "directory removed")


def test_a_killed_keeper_is_said_and_its_workloads_go(tmp_path: Path) -> None:
    """Workloads die with their keeper, and the next request is a clear error."""
    keeper = Keeper(tmp_path / "sim", TWO_GPUS)
    keeper.start()
    pid = keeper.launch("--gpu", "GPU-a", "--ignore-term").pid
    os.kill(keeper.pid, signal.SIGKILL)
    wait_until(lambda: state_of(pid) in {"gone", "Z"}, "workload gone")
    with pytest.raises(ReclaimerdError, match="keeper is gone"):
        keeper.launch("--gpu", "GPU-a")
    assert keeper.stop() == ()


def test_a_workload_that_does_not_start_says_why(tmp_path: Path) -> None:
    """Its own words come back, and others started with it are no less there."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        with pytest.raises(ReclaimerdError, match="no such GPU: GPU-z"):
            keeper.launch_all([["--gpu", "GPU-a"], ["--gpu", "GPU-z"]])
        with pytest.raises(ReclaimerdError, match="not start"):
            keeper.launch_commands([["/bin/false"]])


def test_use_before_start_is_an_error(tmp_path: Path) -> None:
    """A keeper that was never started answers with the mend."""
    with pytest.raises(ReclaimerdError, match="start"):
        Keeper(tmp_path / "sim", TWO_GPUS).launch("--gpu", "GPU-a")
