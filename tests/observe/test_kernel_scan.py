"""The search of the host: who is worth a closer look, who touches a driver, and what was left out."""

import os
from pathlib import Path

import pytest

from reclaimerd.judge.exit_path import process_condition
from reclaimerd.model.kernel import TaskCondition
from reclaimerd.observe.kernel_scan import (
    KernelScan,
    Touch,
    is_driver_module,
    read_driver_devices,
    scan_leaving,
)
from reclaimerd.observe.kernel_stacks import read_kernel_look
from reclaimerd.observe.open_nodes import NodeFinder
from tests.rigs.fake_proc import KTHREAD_FLAGS, FakeProc, FakeTask
from tests.rigs.kernel_children import PAUSE, child, stuck_in_flush, stuck_in_read
from tests.rigs.proc_children import device
from tests.rigs.raw_fuse import why_unavailable

IDLE = "[<0>] down_interruptible+0x1/0x2\n[<0>] _main_loop+0x8e/0x150 [nvidia]\n[<0>] kthread+0x1/0x2\n"
BUSY = "[<0>] schedule+0x1/0x2\n[<0>] os_acquire_rwlock_write+0x1/0x2 [nvidia]\n" + IDLE.partition("\n")[2]
CLOSING = "[<0>] nvidia_close+0x1/0x2 [nvidia]\n[<0>] __fput+0x1/0x2\n[<0>] do_exit+0x1/0x2\n"


def scanned(proc: FakeProc, without: tuple[int, ...] = ()) -> KernelScan:
    """Search a proc file system of files."""
    return scan_leaving(NodeFinder(os.fsencode(proc.root) + b"/"), proc_root=proc.root, without=without)


def touches(scan: KernelScan) -> dict[int, Touch]:
    """Return who was found, and how it touches the driver."""
    return {one.look.ref.pid: one.touch for one in scan.suspects}


def test_c06_a_busy_kernel_thread_of_the_driver_is_found_and_an_idle_one_is_not(tmp_path: Path) -> None:
    """C06: asleep in its main loop it is idle; with a driver frame above that loop, or none at all, busy."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(50, "nv_queue", "S", KTHREAD_FLAGS, IDLE)], ppid=2)
    proc.add([FakeTask(51, "nv_queue", "S", KTHREAD_FLAGS, BUSY)], ppid=2)
    proc.add([FakeTask(1014, "nv_open_q", "D", KTHREAD_FLAGS, BUSY)], ppid=2)
    proc.add([FakeTask(53, "kworker/0:1", "D", KTHREAD_FLAGS, "[<0>] msleep+0x1/0x2\n")], ppid=2)
    proc.add([FakeTask(54, "UVM deferred re", "R", KTHREAD_FLAGS, "")], ppid=2)
    found = scanned(proc)
    assert touches(found) == {51: Touch.STACK, 1014: Touch.STACK, 54: Touch.UNKNOWN}
    assert all(one.kernel_thread for one in found.suspects)
    assert found.processes == 5


def test_who_sleeps_and_is_not_leaving_is_counted_and_not_looked_at(tmp_path: Path) -> None:
    """A sleeper can be woken by a signal; one that leaves, is blocked or runs can not always."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(100), FakeTask(101)])
    proc.add([FakeTask(110), FakeTask(111, state="D", stack="[<0>] nvidia_ioctl+0x1/0x2 [nvidia]\n")])
    proc.add([FakeTask(120, state="R", flags=0x40040C)])
    proc.add([FakeTask(130, state="Z", flags=0x40000C)])
    proc.add([FakeTask(140, state="S", flags=0x400404, stack=CLOSING)])
    found = scanned(proc)
    assert touches(found) == {110: Touch.STACK, 120: Touch.UNKNOWN, 140: Touch.STACK}
    assert found.tasks == 7


def test_who_merely_runs_is_no_suspect_and_one_that_runs_on_after_sigkill_is(tmp_path: Path) -> None:
    """C01: state R with SIGKILL pending is worth a look; state R alone is work."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(100, state="R")])
    proc.add([FakeTask(200, state="R", pending=0x100)])
    found = scanned(proc)
    assert [one.look.ref.pid for one in found.suspects] == [200]


def test_a_crowd_that_ends_does_not_hide_who_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is blocked is looked at first, whatever its pid; the crowd past the bound is counted."""
    monkeypatch.setattr("reclaimerd.observe.kernel_scan.MOST_SUSPECTS", 1)
    proc = FakeProc(tmp_path)
    for pid in range(100, 110):
        proc.add([FakeTask(pid, state="R", flags=0x40000C)])
    proc.add([FakeTask(999, state="D", stack=CLOSING)])
    found = scanned(proc)
    assert touches(found) == {999: Touch.STACK}
    assert found.skipped == ("10 more processes that leave, are blocked or run",)


def test_a_leader_is_among_the_tasks_told_also_where_its_threads_have_lower_numbers(tmp_path: Path) -> None:
    """Numbers are given out from the start again: a dead leader, its threads past the bound, still shows."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(900, state="Z"), *(FakeTask(tid, state="D") for tid in range(100, 104))])
    look = read_kernel_look(900, proc_root=proc.root, most_tasks=3)
    assert [task.tid for task in look.tasks] == [100, 101, 900]
    assert process_condition(look)[1][TaskCondition.ZOMBIE_LEADER] == 1


def test_what_was_left_out_is_named(tmp_path: Path) -> None:
    """A process that did not answer before, and one whose files are none, are named; the others are found."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(100, state="D", stack=CLOSING)])
    proc.add([FakeTask(200, state="D", stack=CLOSING)])
    proc.add([FakeTask(300, state="D", stack=CLOSING)])
    (tmp_path / "300/task/300/stat").write_text("no stat line")
    found = scanned(proc, without=(200,))
    assert touches(found) == {100: Touch.STACK}
    assert len(found.skipped) == 2
    assert found.skipped[0] == "pid 200: left out: it did not answer before"
    assert found.skipped[1].startswith("pid 300: not a stat line")


def test_entries_that_vanish_are_normal(tmp_path: Path) -> None:
    """A process without files any more is neither found nor named."""
    proc = FakeProc(tmp_path)
    (tmp_path / "77").mkdir()
    proc.add([FakeTask(100, state="D", stack=CLOSING), FakeTask(101)])
    (tmp_path / "100/task/101/stat").unlink()
    found = scanned(proc)
    assert touches(found) == {100: Touch.STACK}
    assert found.skipped == ()


def test_time_and_number_are_bounded_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the time or the number of suspects the rest is counted in words."""
    proc = FakeProc(tmp_path)
    for pid in (100, 200, 300):
        proc.add([FakeTask(pid, state="D", stack=CLOSING)])
    late = scan_leaving(NodeFinder(os.fsencode(tmp_path) + b"/"), proc_root=tmp_path, seconds=-1)
    assert late.suspects == ()
    assert late.skipped == ("3 processes from pid 100 on: the time for one search is up",)
    monkeypatch.setattr("reclaimerd.observe.kernel_scan.MOST_SUSPECTS", 1)
    few = scanned(proc)
    assert len(few.suspects) == 1
    assert few.skipped == ("2 more processes that leave, are blocked or run",)


def test_a_look_at_files_reads_what_stands_there(tmp_path: Path) -> None:
    """Pending signals, switches, wchan, what a dump has written, and memory in use where no cgroup tells."""
    proc = FakeProc(tmp_path)
    proc.add([FakeTask(100, "a) b", "D", 0x400000, CLOSING, "nvidia_close", 0x100, 9)], ppid=4)
    look = read_kernel_look(100, proc_root=tmp_path)
    task = look.tasks[0]
    assert (task.comm, task.kill_pending, task.wchan, task.cpu_ticks) == ("a) b", True, "nvidia_close", 9)
    assert (task.voluntary_switches, task.involuntary_switches, task.processor) == (3, 4, 1)
    assert (look.ppid, look.ref.start_ticks, look.written_bytes.kind) == (4, 1100, "known")
    (tmp_path / "100/task/100/stack").unlink()
    assert read_kernel_look(100, proc_root=tmp_path).tasks[0].frames.kind == "absent"
    with pytest.raises(ProcessLookupError):
        read_kernel_look(101, proc_root=tmp_path)


@pytest.mark.parametrize("module", ["nvidia", "nvidia_uvm", "nvidia-modeset", "nvidia_drm", "amdgpu"])
def test_modules_of_drivers_are_known(module: str) -> None:
    """Each module of the driver counts; the kernel itself and others do not."""
    assert is_driver_module(module)
    assert not is_driver_module("")
    assert not is_driver_module("fuse")


def test_device_nodes_are_found_by_number_and_none_is_opened(tmp_path: Path) -> None:
    """195:255 always, other majors from the kernel's list; a plain file named like a node is none."""
    devices = tmp_path / "devices"
    devices.write_text("Character devices:\n195 nvidia\n510 nvidia-uvm\n\nBlock devices:\n8 sd\n")
    (tmp_path / "nvidia0").write_text("no node")
    numbers = {(one.major, one.minor) for one in read_driver_devices(tmp_path, devices)}
    assert numbers == {(195, 255), (510, 0), (510, 1)}


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_the_real_host_shows_the_stuck_and_not_the_sleeping() -> None:
    """A stuck exit is found as unknown, and a blocked reader without any device is not of interest."""
    with stuck_in_flush() as leaving, stuck_in_read() as blocked, child(PAUSE) as sleeping:
        os.kill(blocked, 9)
        heard: list[int] = []
        found = scan_leaving(NodeFinder(b"/proc/"), progress=heard.append)
        told = touches(found)
        assert told[leaving] is Touch.UNKNOWN
        assert told.get(blocked, Touch.NONE) is Touch.NONE
        assert sleeping.pid not in told
        assert {leaving, blocked, sleeping.pid, 1} <= set(heard)


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_a_blocked_process_with_a_device_open_touches_the_driver() -> None:
    """Blocked for ever in something else, it still holds the GPU: its open node tells."""
    body = "\nkept = open(sys.argv[2])\nready()\nopen(sys.argv[1], 'rb', 0).read(1)\n"
    from tests.rigs.raw_fuse import RawFuse  # noqa: PLC0415  # only where it can be mounted

    with device() as (_, path, number), RawFuse(withhold="read") as fuse:
        with child(body, str(fuse.path("held")), path) as started:
            fuse.wait_withheld()
            started.kill()
            finder = NodeFinder(b"/proc/")
            finder.watch([number])
            found = {one.look.ref.pid: one for one in scan_leaving(finder).suspects}
            fuse.release()
        assert found[started.pid].touch is Touch.NODE
        assert f"{number.major}:{number.minor}" in found[started.pid].touch_text
