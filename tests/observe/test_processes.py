"""Looks at real processes in every shape: named by an enemy, dying, stopped, stuck, half dead."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.model.identity import DeviceNumber, FileIdentity
from reclaimerd.model.process import (
    PF_EXITING,
    NodeHolding,
    ProcessLook,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.observe.proc_files import lives, read_tids
from reclaimerd.observe.processes import ProcessReader
from tests.rigs.proc_children import ZOMBIE_LEADER, device, script
from tests.rigs.raw_fuse import RawFuse, why_unavailable

pytestmark = pytest.mark.process

SLEEP = "\nimport signal\nready()\nsignal.pause()\n"
THREADS = """
import threading
for _ in range(7):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def look(pid: int, *, whole: bool = False) -> ProcessLook:
    """Look once with a fresh reader."""
    return ProcessReader().look(pid, whole=whole)


def test_ourselves_are_read_as_the_system_says() -> None:
    """Identity, parent, uids, program and arguments agree with what the system tells us of ourselves."""
    with script(SLEEP, "--token=abc", "plain") as pid:
        reading = look(pid).reading
        program = Path(sys.executable).stat()
        assert reading.ref.pid == pid
        assert (
            reading.ref.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        )
        assert reading.ppid == os.getpid()
        assert reading.uids == (os.getuid(), os.geteuid(), os.getuid(), os.geteuid())
        assert reading.exe_file == Known(FileIdentity(program.st_dev, program.st_ino))
        assert reading.exe == Known(os.path.realpath(sys.executable))
        assert isinstance(reading.cmdline, Known)
        assert reading.cmdline.value[-2:] == ("--token=***", "plain")
        assert reading.resident_bytes > 1 << 20
        assert 0 <= reading.age_seconds < 60
        assert not reading.whole


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose its groups")
def test_a_process_is_in_its_real_group_and_its_supplementary_ones() -> None:
    """Each once, and none that is only its effective group: that one it could have borrowed."""
    with script("\nos.setgroups([27, 44])\nos.setresgid(27, 100, 100)\n" + SLEEP) as pid:
        assert look(pid).reading.gids == (27, 44)


@pytest.mark.parametrize("name", ["a b", "x) Z 1 (y", "new\nline", ") R 1 1", "\x1b[31mred"])
def test_a_hostile_name_changes_no_field_and_is_shown_escaped(name: str) -> None:
    """A name with spaces, brackets, newlines or controls moves nothing and prints harmlessly."""
    body = "\nimport ctypes\nctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)\n" + SLEEP
    with script(body, name) as pid:
        reading = look(pid, whole=True).reading
        assert reading.comm.isprintable()
        assert reading.comm.replace("\\x0a", "\n").replace("\\x1b", "\x1b") == name
        assert reading.ppid == os.getpid()
        assert reading.tasks[0].state in {"S", "R"}


def test_a_healthy_process_is_read_by_its_leader_and_whole_on_request() -> None:
    """One task is read while it is healthy, all of them when asked."""
    with script(THREADS + SLEEP) as pid:
        by_leader, whole = look(pid).reading, look(pid, whole=True).reading
        assert (by_leader.thread_count, len(by_leader.tasks), by_leader.whole) == (8, 1, False)
        assert (len(whole.tasks), whole.whole) == (8, True)
        assert whole.tasks[0].tid == pid


def test_a_process_that_is_gone_raises_and_a_thread_is_no_process() -> None:
    """A reaped pid and a thread's id both raise ProcessLookupError."""
    with script(THREADS + SLEEP) as pid:
        tid = next(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid))
        with pytest.raises(ProcessLookupError):
            look(tid)
    with pytest.raises(ProcessLookupError):
        look(pid)


def test_a_zombie_leader_is_read_by_its_living_threads() -> None:
    """State Z with a live thread: every task is read, program and arguments come from the thread."""
    with script(ZOMBIE_LEADER) as pid:
        reading = look(pid).reading
        assert reading.whole
        assert [task.state for task in reading.tasks if task.tid == pid] == ["Z"]
        assert [task.state for task in reading.tasks if task.tid != pid] != []
        assert all(task.state != "Z" for task in reading.tasks if task.tid != pid)
        assert reading.exe == Known(os.path.realpath(sys.executable))
        assert isinstance(reading.cmdline, Known)
        assert "-c" in reading.cmdline.value


@contextmanager
def _no_descriptor_left() -> Iterator[None]:
    """Let this process open no file: its limit lies at the first number that is free."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_reader_without_descriptors_takes_nobody_for_gone() -> None:
    """What can't be opened for our own want of descriptors is unreadable, and says nothing of an end."""
    with script(THREADS + SLEEP) as pid:
        reader = ProcessReader()
        reader.look(pid, whole=False)
        with _no_descriptor_left(), pytest.raises(OSError) as fault:  # noqa: PT011  # the number is asked below
            reader.look(pid, whole=True)
        assert fault.value.errno == errno.EMFILE
        with _no_descriptor_left(), pytest.raises(OSError) as fault:  # noqa: PT011  # the same
            lives(pid)
        assert fault.value.errno == errno.EMFILE
        assert len(reader.look(pid, whole=True).reading.tasks) == 8


@pytest.mark.parametrize("listings", [1, 99])
def test_a_dead_leader_alone_in_one_listing_is_no_dead_process(
    monkeypatch: pytest.MonkeyPatch, listings: int
) -> None:
    """Threads that hop (each starts the next and ends), or one that execs, may slip out of a listing."""
    with script(ZOMBIE_LEADER) as pid:
        left = [listings]

        def without_the_living(directory: int) -> list[int]:
            left[0] -= 1
            return [pid] if left[0] >= 0 else read_tids(directory)

        monkeypatch.setattr("reclaimerd.observe.tasks.read_tids", without_the_living)
        reading = look(pid, whole=True).reading
        assert not reading.is_released
        assert reading.whole is (listings == 1)


def test_a_dead_unreaped_process_is_there_and_has_nothing() -> None:
    """A zombie is read as all Z; program and arguments are unreadable, never empty."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        found = look(child.pid)
        assert [task.state for task in found.reading.tasks] == ["Z"]
        assert found.reading.whole
        assert isinstance(found.reading.exe, Unreadable)
        assert isinstance(found.reading.exe_file, Unreadable)
        assert isinstance(found.reading.cmdline, Unreadable)
        assert found.nodes == Known(())
    finally:
        child.wait(10)


def test_arguments_read_while_healthy_are_remembered_when_it_dies() -> None:
    """A dying process shows no arguments; the same reader still knows those of the same life."""
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()", "mark"], stdin=subprocess.PIPE)
    try:
        reader = ProcessReader()
        healthy = reader.look(child.pid, whole=False).reading.cmdline
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert reader.look(child.pid, whole=False).reading.cmdline == healthy
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(10)


def test_a_stopped_process_reads_t_and_a_pending_kill_is_seen() -> None:
    """SIGSTOP shows as T; a SIGTERM that pends there is no pending kill."""
    with script(SLEEP) as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        os.kill(pid, signal.SIGTERM)
        reading = look(pid).reading
        assert reading.tasks[0].state == "T"
        assert not reading.kill_pending


def test_an_exec_under_one_pid_is_noticed() -> None:
    """The same process with another program has other arguments in the next look, same identity."""
    body = "\nready()\nsys.stdin.readline()\nos.execv(sys.argv[1], [sys.argv[1], '600'])\n"
    ours, theirs = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "def ready(): pass\nimport os, sys" + body, "/bin/sleep"],
        stdin=ours,
    )
    try:
        reader = ProcessReader()
        before = reader.look(child.pid, whole=False).reading
        os.write(theirs, b"\n")
        deadline = time.monotonic() + 10
        after = before
        between = (before.cmdline, Unreadable("no thread has arguments any more"))  # in mid-exec
        while after.cmdline in between and time.monotonic() < deadline:
            after = reader.look(child.pid, whole=False).reading
        assert after.ref == before.ref
        assert after.cmdline == Known(("/bin/sleep", "600"))
        assert after.exe_file != before.exe_file
    finally:
        child.kill()
        child.wait(10)
        os.close(ours)
        os.close(theirs)


def test_a_kernel_thread_has_no_program_and_no_arguments() -> None:
    """A kernel thread's program is absent by nature, not unreadable."""
    if Path("/proc/2/comm").read_text(encoding="utf-8").strip() != "kthreadd":
        pytest.skip("no kernel threads in this PID namespace")
    reading = look(2).reading
    assert isinstance(reading.exe, Absent)
    assert reading.cmdline == Known(())


def test_an_open_device_is_found_kept_and_lost_when_it_is_closed() -> None:
    """A held device shows in each look, and no longer once it is closed, also through the memory."""
    body = (
        "\nready()\nsys.stdin.readline()\nos.close(int(sys.argv[1]))\n"
        "os.write(2, b'!')\nsys.stdin.readline()\n"
    )
    with device() as (slave, _path, number):
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "def ready(): pass\nimport os, sys" + body, str(slave)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(slave,),
        )
        assert child.stdin is not None
        assert child.stderr is not None
        try:
            reader = ProcessReader()
            reader.watch_devices([number, DeviceNumber(1, 3)])
            held = Known((NodeHolding(number),))
            assert reader.look(child.pid, whole=False).nodes == held
            assert reader.look(child.pid, whole=False).nodes == held
            os.write(child.stdin.fileno(), b"\n")
            assert os.read(child.stderr.fileno(), 1) == b"!"
            assert reader.look(child.pid, whole=False).nodes == Known(())
        finally:
            child.kill()
            child.stdin.close()
            child.stderr.close()
            child.wait(10)


def test_other_devices_than_those_watched_are_not_reported() -> None:
    """Only watched numbers count, and a new watch forgets what was found for the old one."""
    with device() as (slave, _path, number), script(SLEEP, keep=(slave,)) as pid:
        reader = ProcessReader()
        reader.watch_devices([number])
        assert reader.look(pid, whole=False).nodes == Known((NodeHolding(number),))
        reader.watch_devices([DeviceNumber(number.major, number.minor + 1000)])
        assert reader.look(pid, whole=False).nodes == Known(())


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_process_stuck_in_its_exit_is_read_and_its_descriptors_prove_nothing() -> None:
    """Killed and stuck in close: flags say exiting, all tasks are read, no program, no descriptors."""
    with RawFuse(withhold="flush") as fuse, device() as (slave, _path, number):
        body = "\nkept = os.open(sys.argv[1], os.O_RDWR)\n" + SLEEP
        with script(body, str(fuse.path("a")), keep=(slave,)) as pid:
            reader = ProcessReader()
            reader.watch_devices([number])
            assert reader.look(pid, whole=False).nodes == Known((NodeHolding(number),))
            os.kill(pid, signal.SIGKILL)
            fuse.wait_withheld()
            found = reader.look(pid, whole=False)
            assert found.reading.whole
            assert found.reading.tasks[0].flags & PF_EXITING
            assert isinstance(found.reading.exe, Unreadable)
            assert isinstance(found.reading.cmdline, Known), "remembered from the healthy look"
            assert isinstance(look(pid).reading.cmdline, Unreadable)
            assert found.nodes == Known(())
            fuse.release()


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_kill_that_waits_behind_a_stuck_read_is_seen_pending() -> None:
    """Killed while stuck in a read: SIGKILL pends, the task is not exiting, its descriptors are there."""
    with RawFuse(withhold="read") as fuse, device() as (slave, _path, number):
        body = "\nfile = os.open(sys.argv[1], os.O_RDWR)\nready()\nos.read(file, 10)\n"
        with script(body, str(fuse.path("a")), keep=(slave,)) as pid:
            fuse.wait_withheld()
            os.kill(pid, signal.SIGKILL)
            reader = ProcessReader()
            reader.watch_devices([number])
            found = reader.look(pid, whole=True)
            assert found.reading.kill_pending
            assert not found.reading.tasks[0].flags & PF_EXITING
            assert found.nodes == Known((NodeHolding(number),))
            fuse.release()


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_look_that_hangs_on_a_stuck_exec_can_be_killed() -> None:
    """A program change that waits for its dirty mapping hangs its reader, and SIGKILL frees the reader."""
    body = (
        "\nimport mmap\nfile = os.open(sys.argv[1], os.O_RDWR)\nmapped = mmap.mmap(file, 4096)\n"
        "mapped[0] = 1\nready()\nos.execv('/bin/sleep', ['sleep', '600'])\n"
    )
    looks = (
        "import sys\nfrom reclaimerd.observe.processes import ProcessReader\nprint('.', flush=True)\n"
        "ProcessReader().look(int(sys.argv[1]), whole=False)\n"
    )
    with RawFuse(withhold="write") as fuse, script(body, str(fuse.path("a"))) as pid:
        fuse.wait_withheld()
        reader = subprocess.Popen([sys.executable, "-c", looks, str(pid)], stdout=subprocess.PIPE)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b".\n"
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(0.3)
        reader.kill()
        assert reader.wait(5) == -signal.SIGKILL
        reader.stdout.close()
        fuse.release()
