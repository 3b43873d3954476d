"""Public incidents by their numbers, as readings: letters, log lines, lists and workers that mislead."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from reclaimerd.daemon.this_host import read_boot_id
from reclaimerd.daemon.worker import command_for
from reclaimerd.host.kernel_text import HungTask, parse_hung_task
from reclaimerd.judge.exit_path import is_released, is_zombie_leader, state_word
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import DriverState, Snapshot
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.kernel_log import LogLine
from reclaimerd.observe.nvml_samples import read_samples
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.processes import ProcessReader
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from tests.observe.test_kernel_log import read as read_log
from tests.rigs.fake_libnvml import FakeDriver, build_fake_libnvml
from tests.rigs.fake_libnvml import why_unavailable as why_no_gcc
from tests.rigs.proc_children import ZOMBIE_LEADER, script
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import GIB, TWO_GPUS, state_of, wait_until

pytestmark = pytest.mark.process
needs_fuse = pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
PATIENT = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)
NICE = "\nos.nice(19)\n"
READ_NICELY = f"{NICE}\nready()\nopen(sys.argv[1], 'rb', 0).read(1)\n"


def test_c05_a_storm_of_teardowns_names_no_target() -> None:
    """C05: Xid 45 lines and a hung task are lines for the record: they carry no pid that we could act on."""
    storm = [
        f"4,{number},{1000 + number},-;NVRM: Xid (PCI:0000:61:00): 45, pid=1496200, "
        f"name=distprovers-gpu, Ch 0000000{channel}"
        for number, channel in enumerate("abcdef")
    ]
    hung = "INFO: task cache_mgr_event:620917 blocked for more than 120 seconds."
    state = "task:cache_mgr_event state:D stack:    0 pid:620917 ppid:620571 flags:0x00000002"
    found = read_log(*storm, f"3,90,2000,-;{hung}", f"6,91,2001,-;{state}")
    assert [line.topic for line in found.lines] == ["nvidia"] * 6 + ["hung_task", "trouble"]
    assert parse_hung_task(hung) == HungTask("cache_mgr_event", 620917, 120)
    assert {field.name for field in fields(LogLine)} == {"at", "topic", "text"}


def told_by_ps(pid: int) -> str:
    """Return the state string of `ps`, with its letters for priority, threads and locked pages."""
    asked = ["/usr/bin/ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def reading_of(pid: int) -> ProcessReading:
    """Return a whole reading of one process."""
    return ProcessReader().look(pid, whole=True).reading


@pytest.mark.skipif(not Path("/usr/bin/ps").exists(), reason="no ps to compare with")
def test_c15_more_letters_behind_the_state_change_no_state() -> None:
    """C15: what `ps` shows as ZNl is a dead leader with a living thread: Z alone does not make it dead."""
    with script(NICE + ZOMBIE_LEADER) as pid:
        reading = reading_of(pid)
        letters = told_by_ps(pid)
        assert letters.startswith("ZN"), letters
        assert len(letters) > 2, "the modifiers are what the case is about"
        assert {task.tid: task.state for task in reading.tasks}[pid] == "Z"
        assert is_zombie_leader(reading)
        assert not is_released(reading)
        assert state_word(reading) == "leader dead, 1 thread lives"


@needs_fuse
@pytest.mark.root
@pytest.mark.skipif(not Path("/usr/bin/ps").exists(), reason="no ps to compare with")
def test_c15_what_is_dn_after_kill_9_is_in_d() -> None:
    """C15: with a low priority its string is DN; the state is D, SIGKILL is pending, and it is not dead."""
    with RawFuse(withhold="read") as fuse, script(READ_NICELY, str(fuse.path("held"))) as pid:
        try:
            fuse.wait_withheld()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: state_of(pid) == "D", "it sleeps in D")
            assert told_by_ps(pid) == "DN"
            reading = reading_of(pid)
            assert [task.state for task in reading.tasks] == ["D"]
            assert reading.kill_pending
            assert not is_released(reading)
        finally:
            fuse.release()


@asynccontextmanager
async def sampler_on(
    directory: Path, limits: WorkerSettings = PATIENT
) -> AsyncIterator[tuple[Sampler, Probe]]:
    """Give a sampler over real workers on a simulated host, and its nvml probe."""
    nvml = Probe("nvml", command_for("nvml", directory), limits)
    procfs = Probe("procfs", command_for("procfs"), PATIENT)
    exits = ExitWatch(lambda _ref: None)
    boot_id = read_boot_id()
    clocks = (time.monotonic, time.time)
    try:
        yield Sampler(nvml, procfs, SamplerSettings(boot_id, ("/bin/sh",)), exits, clocks), nvml
    finally:
        exits.close()
        for probe in (nvml, procfs):
            await probe.close()


def change(keeper: Keeper, **values: Any) -> None:
    """Change how the simulated driver behaves."""
    write_simulated_host(keeper.directory, replace(read_simulated_host(keeper.directory), **values))


@needs_fuse
@pytest.mark.root
def test_c21_an_error_and_a_hang_are_two_answers_and_neither_waits_for_its_child(tmp_path: Path) -> None:
    """C21: a driver that says no is read at once; one that says nothing is left, SIGKILLed and unreaped."""

    async def scene(keeper: Keeper, fuse: RawFuse) -> None:
        limits = WorkerSettings(answer_within_seconds=1, hung_after_seconds=1)
        async with sampler_on(keeper.directory, limits) as (sampler, nvml):
            assert (await first_answer(sampler)).driver.state is DriverState.RESPONSIVE
            change(keeper, fail={"GPU-a": {"handle": "the GPU needs a reset"}})
            refused = await sampler.sample(Look())
            assert refused.gpus[0].memory == Unreadable("the GPU needs a reset")
            assert refused.driver.state is not DriverState.UNRESPONSIVE
            (worker,) = nvml.worker_pids()
            change(keeper, block_on=str(fuse.path("driver")))
            silent = await sampler.sample(Look())
            assert silent.driver.state is DriverState.UNRESPONSIVE
            deadline = time.monotonic() + 20
            while nvml.abandoned is None:
                assert time.monotonic() < deadline, "the hung worker is not given up"
                await sampler.sample(Look())
                await asyncio.sleep(0.05)
            assert state_of(worker) == "D", "SIGKILL did not end it"
            began = time.monotonic()
            await nvml.close()
            assert time.monotonic() - began < 5, "nobody waits for a child that can't be reaped"
            assert state_of(worker) == "D"
            change(keeper, block_on="")
            fuse.release()
            wait_until(lambda: state_of(worker) in {"Z", "gone"}, "the kernel lets go of it")

    with RawFuse(withhold="read") as fuse, Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        try:
            asyncio.run(scene(keeper, fuse))
        finally:
            fuse.release()


async def first_answer(sampler: Sampler) -> Snapshot:
    """Return the first look that the driver answered: a new worker takes its time to start."""
    deadline = time.monotonic() + 20
    while (seen := await sampler.sample(Look())).driver.state is not DriverState.RESPONSIVE:
        assert time.monotonic() < deadline, seen.driver
        await asyncio.sleep(0.05)
    return seen


def test_c29_a_pid_of_another_namespace_is_known_beside_the_hosts() -> None:
    """C29: `NSpid` gives both numbers, the host's first; it is the host's that we and the driver use."""
    if os.geteuid() != 0:
        pytest.skip("needs root for a PID namespace")
    body = "print('.', end='', flush=True); import signal; signal.pause()"
    argv = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child", sys.executable, "-I", "-S", "-c", body]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        try:
            assert outer.stdout.read(1) == b"."
            (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            reading = reading_of(int(inner))
            assert reading.ref.pid == int(inner)
            assert reading.ns_pids == (int(inner), 1)
            assert reading_of(outer.pid).ns_pids == (outer.pid,)
        finally:
            outer.kill()


@contextmanager
def fake_driver(folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Give a reader of one GPU over the fake library, as it is told to answer."""
    driver = FakeDriver.start(folder, build_fake_libnvml(folder))

    def read(**state: object) -> dict[str, Any]:
        driver.set(**state)
        (gpu,) = driver.read()["gpus"]
        return dict(gpu)

    try:
        yield read
    finally:
        driver.stop()


@pytest.mark.skipif(bool(why_no_gcc()), reason=why_no_gcc() or "gcc is there")
@pytest.mark.parametrize("nonsense", [101, 4294967295, 3221225472])
def test_c34_a_share_of_time_that_is_none_is_unknown(tmp_path: Path, nonsense: int) -> None:
    """C34: over 100 % is neither 100 nor 0, and costs no other reading: the processes stand with theirs."""
    with fake_driver(tmp_path) as read:
        gpu = read(gpu0_utilisation=nonsense, gpu0_used=300, gpu0_compute="18429:200")
        assert gpu["utilisation"]["kind"] == "unreadable"
        assert str(nonsense) in gpu["utilisation"]["why"]
        (row,) = gpu["processes"]["value"]
        assert (row["pid"], row["used_bytes"]["value"]) == (18429, 200)
        assert read(gpu0_utilisation=100)["utilisation"]["value"]["gpu_percent"] == 100


def test_c34_samples_that_zombies_turn_into_nonsense_say_nothing() -> None:
    """C34: over 100 %, or older than was asked for: unknown for that process, never 0, never 100."""
    now = int(time.time() * 1_000_000)
    kinds = ("smUtil", "memUtil", "encUtil", "decUtil")
    rows = [
        SimpleNamespace(pid=7000, timeStamp=now, **dict.fromkeys(kinds, 3_722_304_989)) for _ in range(98)
    ]
    rows += [
        SimpleNamespace(pid=18429, timeStamp=now, **dict.fromkeys(kinds, 1)),
        SimpleNamespace(pid=7044, timeStamp=1, **dict.fromkeys(kinds, 12)),
    ]
    names = {"NVMLError": KeyError, "NVMLLibraryMismatchError": KeyError}
    module = SimpleNamespace(nvmlDeviceGetProcessUtilization=lambda _handle, _since: rows, **names)
    found = read_samples(cast("ModuleType", module), object(), Known(value=False), 10.0)
    assert found == Known({7000: None, 18429: 1})


def test_c35_a_zombie_parent_hides_neither_its_child_nor_the_other_gpu(tmp_path: Path) -> None:
    """C35: listed, defunct, unreaped; its child has the node; a GPU that fails beside it changes nothing."""

    async def scene(keeper: Keeper) -> None:
        family = keeper.launch("--gpu", "GPU-a", "--bytes", "5GiB", "--fork-and-leave")
        (child,) = family.children
        other = keeper.launch("--gpu", "GPU-b", "--bytes", "1GiB").pid
        wait_until(lambda: state_of(family.pid) == "Z", "the parent is a zombie")
        change(keeper, fail={"GPU-b": {"handle": "unknown error"}})
        async with sampler_on(keeper.directory) as (sampler, _nvml):
            seen = await first_answer(sampler)
        (dead,) = seen.dead_listings
        assert (dead.pid, dead.used_bytes) == (family.pid, Known(5 * GIB))
        assert {holder.gpu: holder.ref.pid for holder in seen.holders} == {"GPU-a": child, "GPU-b": other}
        memory = seen.gpus[0].memory
        assert isinstance(memory, Known)
        assert memory.value.used_bytes == 5 * GIB
        assert seen.gpus[1].memory == Unreadable("unknown error")

    with Keeper(tmp_path / "sim", TWO_GPUS, reap=False) as keeper:
        asyncio.run(scene(keeper))
