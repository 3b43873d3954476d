"""The workloads are real processes, and the simulated driver keeps the real driver's rules."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.nvml import SimulatedNvml
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import (
    GIB,
    TWO_GPUS,
    dead_within,
    gpu_of,
    listed_pids,
    signal_through_pidfd,
    state_of,
    used_bytes,
    wait_until,
)

pytestmark = pytest.mark.process


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host with two GPUs."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as standing:
        yield standing


@pytest.fixture
def nvml(keeper: Keeper) -> SimulatedNvml:
    """Return its driver."""
    return SimulatedNvml(keeper.directory)


def test_memory_is_there_while_the_process_is(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """SIGTERM ends an obedient one, and its memory is back when its pidfd says so."""
    pid = keeper.launch("--gpu", "GPU-a", "--bytes", "2GiB").pid
    assert (used_bytes(nvml, "GPU-a"), used_bytes(nvml, "GPU-b")) == (2 * GIB, 0)
    assert listed_pids(nvml, "GPU-a") == [pid]
    assert dead_within(signal_through_pidfd(pid, signal.SIGTERM), 5)
    assert used_bytes(nvml, "GPU-a") == 0
    assert listed_pids(nvml, "GPU-a") == []


def test_the_node_is_open_and_is_no_terminal_of_its_own(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """A descriptor scan finds the GPU's device number, and the node is not its controlling terminal."""
    pid = keeper.launch("--gpu", "GPU-a").pid
    device = gpu_of(nvml, "GPU-a").device
    numbers = [path.stat().st_rdev for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert (device.major << 8 | device.minor) in numbers
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4] == "0"
    assert listed_pids(nvml, "GPU-a") == []  # 0 bytes: a node and no context


def test_one_that_ignores_sigterm_needs_sigkill(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """It lives through SIGTERM with its memory, and goes with SIGKILL."""
    pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--ignore-term").pid
    assert not dead_within(signal_through_pidfd(pid, signal.SIGTERM), 0.3)
    assert used_bytes(nvml, "GPU-a") == GIB
    assert dead_within(signal_through_pidfd(pid, signal.SIGKILL), 5)
    assert used_bytes(nvml, "GPU-a") == 0


def test_one_that_stopped_itself_holds_on(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """Stopped, SIGTERM only pends until SIGCONT."""
    pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--stop-self").pid
    wait_until(lambda: state_of(pid) == "T", "stopped")
    assert not dead_within(signal_through_pidfd(pid, signal.SIGTERM), 0.3)
    assert used_bytes(nvml, "GPU-a") == GIB
    assert dead_within(signal_through_pidfd(pid, signal.SIGCONT), 5)
    assert used_bytes(nvml, "GPU-a") == 0


def test_a_dead_leader_with_live_threads_is_listed(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """State Z and an empty fd folder, yet listed with its memory until the last thread goes."""
    pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--exit-leader", "--threads", "3").pid
    wait_until(lambda: state_of(pid) == "Z", "leader dead")
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 5
    assert (listed_pids(nvml, "GPU-a"), used_bytes(nvml, "GPU-a")) == ([pid], GIB)
    assert dead_within(signal_through_pidfd(pid, signal.SIGKILL), 5)
    assert used_bytes(nvml, "GPU-a") == 0


def test_a_forked_child_holds_for_its_dead_parent(
    keeper: Keeper, nvml: SimulatedNvml, tmp_path: Path
) -> None:
    """The parent goes when told; the driver lists the dead parent until the child is gone."""
    flag = tmp_path / "leave"
    launched = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--fork-and-leave", "--leave-on", str(flag))
    (child,) = launched.children
    assert state_of(launched.pid) != "gone"
    flag.touch()
    wait_until(lambda: state_of(launched.pid) == "gone", "parent reaped")
    assert listed_pids(nvml, "GPU-a") == [launched.pid]
    parent = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) == keeper.pid  # the subreaper has it: still a process of the simulation
    assert dead_within(signal_through_pidfd(child, signal.SIGTERM), 5)
    assert (listed_pids(nvml, "GPU-a"), used_bytes(nvml, "GPU-a")) == ([], 0)


def test_an_unreaped_parent_stays_a_zombie_when_asked(tmp_path: Path) -> None:
    """With reap=False the dead parent is a zombie that the driver lists, until `reap`."""
    with Keeper(tmp_path / "sim", TWO_GPUS, reap=False) as keeper:
        launched = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--fork-and-leave")
        wait_until(lambda: state_of(launched.pid) == "Z", "zombie")
        assert listed_pids(SimulatedNvml(keeper.directory), "GPU-a") == [launched.pid]
        assert keeper.reap() == (launched.pid,)
        assert state_of(launched.pid) == "gone"


@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "raw FUSE is there")
def test_a_task_stuck_in_its_exit_keeps_its_memory(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """SIGKILL does not end it, its descriptors are hidden, and the claim lives until its flush is done."""
    with RawFuse(withhold="flush") as fuse:
        pid = keeper.launch(
            "--gpu", "GPU-a", "--bytes", "1GiB", "--stuck-on", str(fuse.path("held")),
        ).pid  # fmt: skip
        pidfd = signal_through_pidfd(pid, signal.SIGKILL)
        fuse.wait_withheld()
        wait_until(lambda: not list(Path(f"/proc/{pid}/fd").iterdir()), "descriptors hidden")
        assert (listed_pids(nvml, "GPU-a"), used_bytes(nvml, "GPU-a")) == ([pid], GIB)
        fuse.release()
        assert dead_within(pidfd, 5)
    assert used_bytes(nvml, "GPU-a") == 0


def test_growth_is_seen(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """Each growth adds to the same row."""
    args = ("--gpu", "GPU-a", "--bytes", "1GiB", "--grow", "1GiB", "--every", "0.05", "--times", "3")
    pid = keeper.launch(*args).pid
    wait_until(lambda: used_bytes(nvml, "GPU-a") == 4 * GIB, "grown")
    assert listed_pids(nvml, "GPU-a") == [pid]


def test_an_allocation_that_does_not_fit_fails(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """The device's total bounds the living claims, and a failed one leaves nothing."""
    keeper.launch("--gpu", "GPU-a", "--bytes", "10GiB")
    with pytest.raises(ReclaimerdError, match="out of memory"):
        keeper.launch("--gpu", "GPU-a", "--bytes", "7GiB")
    assert used_bytes(nvml, "GPU-a") == 10 * GIB
    with pytest.raises(ReclaimerdError, match="no such GPU"):
        keeper.launch("--gpu", "GPU-z")


def test_contexts_and_listing_without_a_node(keeper: Keeper, nvml: SimulatedNvml) -> None:
    """A workload may be of another list, hold several GPUs, or be listed with no node open."""
    args = ("--gpu", "GPU-a", "--gpu", "GPU-b", "--bytes", "1GiB", "--context", "graphics", "--no-node")
    pid = keeper.launch(*args).pid
    for uuid in ("GPU-a", "GPU-b"):
        processes = gpu_of(nvml, uuid).processes
        assert isinstance(processes, Known)
        assert [(row.pid, row.context) for row in processes.value] == [(pid, ContextKind.GRAPHICS)]
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [link for link in links if link.startswith("/dev/pts")]


def test_recorded_signals_are_written_down(keeper: Keeper, tmp_path: Path) -> None:
    """A witness for "no signal was sent": it notes each signal and lives on."""
    record = tmp_path / "signals"
    pid = keeper.launch("--gpu", "GPU-a", "--record-signals", str(record)).pid
    assert record.read_text() == ""
    assert not dead_within(signal_through_pidfd(pid, signal.SIGTERM), 0.1)
    wait_until(lambda: record.read_text() == "SIGTERM\n", "recorded")
