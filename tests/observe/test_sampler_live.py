"""The sampler over real workers on a simulated host: real processes that hold, fork, die and hide."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.errors import UnsuitableHostError
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import (
    DriverState,
    Snapshot,
)
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.observe.sightings import read_children
from reclaimerd.simulation.host import HOST_FILE, read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from tests.rigs.simulated import GIB, TWO_GPUS, state_of, wait_until

pytestmark = pytest.mark.process

_PATIENT = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)
_BOUND_SECONDS = 20.0
_PROGRAM = os.path.realpath("/bin/sh")


class _Live:
    """A sampler with its real workers, and what wakes it."""

    def __init__(self, directory: Path, limits: WorkerSettings) -> None:
        self.woken = asyncio.Event()
        self.nvml = Probe("nvml", command_for("nvml", directory), limits)
        self.procfs = Probe("procfs", command_for("procfs"), _PATIENT)
        self.exits = ExitWatch(lambda _ref: self.woken.set())
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        settings = SamplerSettings(boot_id, (_PROGRAM,))
        clocks = (time.monotonic, time.time)
        self.sampler = Sampler(self.nvml, self.procfs, settings, self.exits, clocks)

    async def look(self, **asked: object) -> Snapshot:
        """Take one look."""
        return await self.sampler.sample(Look(**asked))  # type: ignore[arg-type]  # free overrides

    async def look_until(self, true: Callable[[Snapshot], bool], **asked: object) -> Snapshot:
        """Look again and again until a look shows it, with a bound."""
        deadline = time.monotonic() + _BOUND_SECONDS
        while not true(snapshot := await self.look(**asked)):
            assert time.monotonic() < deadline, f"not seen in {_BOUND_SECONDS:g} s"
            await asyncio.sleep(0.02)
        return snapshot


@asynccontextmanager
async def _live(directory: Path, limits: WorkerSettings = _PATIENT) -> AsyncIterator[_Live]:
    live = _Live(directory, limits)
    try:
        yield live
    finally:
        live.exits.close()
        for probe in (live.nvml, live.procfs):
            await probe.close()


def _pids(snapshot: Snapshot, gpu: str = "GPU-a") -> list[int]:
    return [holder.ref.pid for holder in snapshot.holders if holder.gpu == gpu]


def _ref(snapshot: Snapshot, pid: int) -> ProcessRef:
    return snapshot.processes[pid].ref


def test_a_whole_look_at_a_simulated_host(tmp_path: Path) -> None:
    """Both sources show the holder, who holds what adds up, and only the idle GPU has a baseline."""

    async def scene(keeper: Keeper) -> None:
        pid = keeper.launch("--gpu", "GPU-a", "--bytes", "4GiB").pid
        async with _live(keeper.directory) as live:
            snapshot = await live.look()
        (holder,) = snapshot.holders
        assert (holder.ref.pid, holder.listed, holder.node) == (pid, True, True)
        assert holder.used_bytes == Known(4 * GIB)
        assert snapshot.process(holder.ref) is not None
        assert snapshot.driver.state is DriverState.RESPONSIVE
        assert snapshot.scan.full_now
        assert snapshot.simulated
        assert dict(snapshot.baselines) == {"GPU-b": 0}
        assert _PROGRAM in snapshot.host_files.values()
        assert snapshot.unreadable == {}

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_a_holder_that_is_not_listed_is_found_by_a_search(tmp_path: Path) -> None:
    """Its node is open, it holds no memory: nothing but the search shows it."""

    async def scene(keeper: Keeper) -> None:
        async with _live(keeper.directory) as live:
            assert _pids(await live.look()) == []
            pid = keeper.launch("--gpu", "GPU-a").pid
            assert _pids(await live.look()) == []
            assert _pids(await live.look(full_scan=True)) == [pid]
            after = await live.look()
            assert _pids(after) == [pid]
            assert not after.scan.full_now

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


@pytest.mark.parametrize("reap", [True, False], ids=["reaped", "left a zombie"])
def test_the_end_of_a_watched_process_wakes_and_is_proven(tmp_path: Path, *, reap: bool) -> None:
    """By its pidfd, reaped or not; its memory is back in the very look that names it gone."""

    async def scene(keeper: Keeper) -> None:
        pid = keeper.launch("--gpu", "GPU-a", "--bytes", "4GiB").pid
        async with _live(keeper.directory) as live:
            ref = _ref(await live.look(), pid)
            assert (await live.look(watch=(ref,))).exited == frozenset()
            os.kill(pid, signal.SIGKILL)
            await asyncio.wait_for(live.woken.wait(), _BOUND_SECONDS)
            snapshot = await live.look(watch=(ref,))
            assert snapshot.exited == {ref}
            assert snapshot.holders == ()
            memory = snapshot.gpus[0].memory
            assert isinstance(memory, Known)
            assert memory.value.used_bytes == 0
            if not reap:
                assert state_of(pid) == "Z"

    with Keeper(tmp_path / "sim", TWO_GPUS, reap=reap) as keeper:
        asyncio.run(scene(keeper))


def test_a_zombie_leader_holds_and_has_not_exited(tmp_path: Path) -> None:
    """Its other thread lives on: listed, its node open, not gone."""

    async def scene(keeper: Keeper) -> None:
        pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB", "--exit-leader").pid
        wait_until(lambda: state_of(pid) == "Z", "its leader is dead")
        async with _live(keeper.directory) as live:
            ref = _ref(await live.look(), pid)
            snapshot = await live.look(watch=(ref,))
            assert snapshot.exited == frozenset()
            (holder,) = snapshot.holders
            assert (holder.ref, holder.listed) == (ref, True)
            reading = snapshot.processes[pid]
            assert reading.whole
            assert sorted(task.is_dead for task in reading.tasks) == [False, True]

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_the_child_of_a_dead_listed_parent_is_searched_for_and_inherits(tmp_path: Path) -> None:
    """The parent was seen healthy, dies, stays listed: evidence; the living child is the heir."""

    async def scene(keeper: Keeper) -> None:
        leave = tmp_path / "leave"
        family = keeper.launch(
            "--gpu", "GPU-a", "--bytes", "4GiB", "--fork-and-leave", "--leave-on", str(leave)
        )
        (child,) = family.children
        async with _live(keeper.directory) as live:
            before = await live.look()
            assert _pids(before) == sorted((family.pid, child))
            parent = _ref(before, family.pid)
            leave.touch()
            await asyncio.wait_for(live.woken.wait(), _BOUND_SECONDS)
            after = await live.look()
            assert after.scan.full_now
            (listing,) = after.dead_listings
            assert (listing.pid, listing.ref) == (family.pid, parent)
            (heir,) = after.holders
            assert (heir.ref.pid, heir.heir_of, heir.used_bytes) == (child, parent, Known(4 * GIB))
            assert not heir.listed
            assert not (await live.look()).scan.full_now

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_devices_are_watched_again_after_the_procfs_worker_was_replaced(tmp_path: Path) -> None:
    """A new worker knows nothing: it must be told before it searches, or it finds nobody."""

    async def scene(keeper: Keeper) -> None:
        async with _live(keeper.directory) as live:
            await live.look()
            (worker,) = live.procfs.worker_pids()
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: state_of(worker) in {"Z", "gone"}, "the worker is dead")
            pid = keeper.launch("--gpu", "GPU-b").pid
            found = await live.look_until(lambda seen: seen.scan.full_now, full_scan=True)
            assert live.procfs.worker_pids() != (worker,)
            assert _pids(found, "GPU-b") == [pid]

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_a_hung_driver_leaves_identities_and_the_holders_seen_by_their_nodes(tmp_path: Path) -> None:
    """The GPUs stay known, every figure is unreadable, and the silence has a beginning."""

    async def scene(keeper: Keeper) -> None:
        pid = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB").pid
        limits = WorkerSettings(answer_within_seconds=2, hung_after_seconds=60)
        async with _live(keeper.directory, limits) as live:
            before = await live.look_until(lambda seen: seen.driver.state is DriverState.RESPONSIVE)
            write_simulated_host(keeper.directory, replace(read_simulated_host(keeper.directory), hang=True))
            asked_at = time.monotonic()
            after = await live.look()
            assert after.driver.state is DriverState.UNRESPONSIVE
            assert asked_at <= after.driver.since <= asked_at + 1
            assert [gpu.uuid for gpu in after.gpus] == [gpu.uuid for gpu in before.gpus]
            assert all(isinstance(gpu.memory, Unreadable) for gpu in after.gpus)
            assert all(isinstance(gpu.processes, Unreadable) for gpu in after.gpus)
            (holder,) = after.holders
            assert (holder.ref.pid, holder.node, holder.listed) == (pid, True, False)
            began = time.monotonic()
            assert (await live.look()).driver.since == after.driver.since
            assert time.monotonic() - began < 1.5, "no look waits twice"

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_no_driver_is_absent_and_a_faulty_host_is_unsuitable(tmp_path: Path) -> None:
    """Nothing to watch is no fault; what can't be worked with is told with its mend."""

    async def scene(keeper: Keeper) -> None:
        async with _live(keeper.directory) as live:
            assert (await live.look()).driver.state is DriverState.RESPONSIVE
            (keeper.directory / "keeper.json").unlink()
            absent = await live.look()
            assert absent.driver.state is DriverState.ABSENT
            assert absent.gpus == ()
            (keeper.directory / HOST_FILE).write_text("nonsense = 1\n", encoding="utf-8")
            with pytest.raises(UnsuitableHostError, match="nonsense"):
                await live.look()

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_one_gpu_that_fails_hides_nothing_of_the_other(tmp_path: Path) -> None:
    """Its holder is still seen by the node, the other GPU is whole."""

    async def scene(keeper: Keeper) -> None:
        first = keeper.launch("--gpu", "GPU-a", "--bytes", "1GiB").pid
        second = keeper.launch("--gpu", "GPU-b", "--bytes", "1GiB").pid
        host = replace(read_simulated_host(keeper.directory), fail={"GPU-a": {"handle": "GPU is lost"}})
        write_simulated_host(keeper.directory, host)
        async with _live(keeper.directory) as live:
            snapshot = await live.look()
        assert snapshot.gpus[0].memory == Unreadable("GPU is lost")
        assert isinstance(snapshot.gpus[1].memory, Known)
        assert _pids(snapshot, "GPU-a") == [first]
        assert _pids(snapshot, "GPU-b") == [second]

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        asyncio.run(scene(keeper))


def test_children_are_those_of_the_leader(tmp_path: Path) -> None:
    """Read from the kernel's own list."""
    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        pid = keeper.launch("--gpu", "GPU-a").pid
        assert pid in read_children(keeper.pid)
        assert read_children(pid) == ()
