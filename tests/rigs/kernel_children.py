"""Real tasks in the states that the kernel's reader must tell apart; each block leaves nothing behind.

Root, Linux, and for some a FUSE mount or a cgroup hierarchy: `why_no_*` says what is missing.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reclaimerd.simulation.raw_fuse import RawFuse
from tests.rigs.proc_children import READY

BOUND_SECONDS = 40.0
FREEZER_V1 = Path("/sys/fs/cgroup/freezer")
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")

PAUSE = "\nimport signal\nready()\nsignal.pause()\n"
OPEN_AND_PAUSE = "\nimport signal\nkept = open(sys.argv[1], 'rb', 0)\nready()\nsignal.pause()\n"
READ = "\nready()\nopen(sys.argv[1], 'rb', 0).read(1)\n"
ZOMBIE_WITH_STUCK_THREAD = """
import ctypes, threading
def read():
    ready()
    open(sys.argv[1], 'rb', 0).read(1)
threading.Thread(target=read).start()
ctypes.CDLL(None).syscall(60, 0)
"""
"""The leader leaves by the raw exit call of x86-64; its thread reads what nobody answers."""
NAMESPACE_INIT = """
import ctypes, signal
ctypes.CDLL(None).unshare(0x20000000)  # CLONE_NEWPID: the next child is init of a namespace
init = os.fork()
if init:
    os.write(1, b'%d\\n' % init)
    os.waitpid(init, 0)
    os._exit(0)
if os.fork():
    signal.pause()
kept = open(sys.argv[1], 'rb', 0)
ready()
signal.pause()
"""
EXEC_WITH_DIRTY_MAPPING = """
import mmap
file = os.open(sys.argv[1], os.O_RDWR)
mapped = mmap.mmap(file, 4096)
mapped[0] = 1
ready()
os.execv('/bin/sleep', ['sleep', '600'])
"""
THREADS = """
import threading
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
LARGE = """
import ctypes, mmap, signal
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: freeing small pages takes longer
held = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)  # MAP_POPULATE
"""
CRASH = """
import resource, signal, threading
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
threading.Thread(target=threading.Event().wait, daemon=True).start()
ready()
signal.pause()
"""
TRACER = """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
target = int(sys.argv[1])
if libc.ptrace(16, target, None, None):  # PTRACE_ATTACH
    os._exit(1)
os.waitpid(target, 0x40000000)  # __WALL
ready()
signal.pause()
"""


@contextmanager
def child(body: str, *args: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run Python code in a child until it is ready; kill it at the end, and reap it when it can go."""
    started = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", READY + body, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert started.stdout is not None
    try:
        _hear(started, b".")
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.kill()
        started.stdout.close()
        started.wait(BOUND_SECONDS)


def _hear(started: "subprocess.Popen[bytes]", word: bytes) -> bytes:
    """Return what a child wrote up to and with a word; bounded."""
    assert started.stdout is not None
    heard = b""
    while word not in heard:
        assert select.select([started.stdout], [], [], BOUND_SECONDS)[0], f"heard only {heard!r}"
        piece = os.read(started.stdout.fileno(), 64)
        assert piece, f"the child ended before it was ready: {heard!r}"
        heard += piece
    return heard


@contextmanager
def stuck_in_flush(*args: str) -> Iterator[int]:
    """Give the pid of a process that exits and can't: the kernel waits for an answer to its last close."""
    with RawFuse(withhold="flush") as fuse, child(OPEN_AND_PAUSE, str(fuse.path("held")), *args) as started:
        try:
            started.kill()
            fuse.wait_withheld()
            yield started.pid
        finally:
            fuse.release()


@contextmanager
def stuck_in_read(body: str = READ) -> Iterator[int]:
    """Give the pid of a process with a task that reads what nobody answers."""
    with RawFuse(withhold="read") as fuse, child(body, str(fuse.path("held"))) as started:
        try:
            fuse.wait_withheld()
            yield started.pid
        finally:
            fuse.release()


@contextmanager
def hanging_exec() -> Iterator[int]:
    """Give the pid of a process whose change of program waits: reads of its stat and stack hang."""
    with RawFuse(withhold="write") as fuse, child(EXEC_WITH_DIRTY_MAPPING, str(fuse.path("held"))) as started:
        try:
            fuse.wait_withheld()
            yield started.pid
        finally:
            fuse.release()


@contextmanager
def namespace_init_with_stuck_child() -> Iterator[tuple[int, int]]:
    """Give the pids of a killed init of a PID namespace, and of the stuck child that it waits for."""
    with RawFuse(withhold="flush") as fuse:
        outer = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", READY + NAMESPACE_INIT, str(fuse.path("held"))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert outer.stdout is not None
        try:
            heard = _hear(outer, b".")  # the outer process writes the pid and the innermost the dot
            heard += b"" if b"\n" in heard else _hear(outer, b"\n")
            init = int(heard.replace(b".", b""))
            inner = int(Path(f"/proc/{init}/task/{init}/children").read_text(encoding="ascii").split()[0])
            os.kill(init, signal.SIGKILL)
            fuse.wait_withheld()
            yield init, inner
        finally:
            fuse.release()
            with suppress(ProcessLookupError):
                outer.kill()
            outer.stdout.close()
            outer.wait(BOUND_SECONDS)


@contextmanager
def frozen(pid: int, *, version: str) -> Iterator[Path]:
    """Freeze a process in a cgroup of its own for as long as the block runs; thaw it and take that away."""
    root = FREEZER_V1 if version == "v1" else cgroup2_root()
    state, on, off = ("freezer.state", "FROZEN", "THAWED") if version == "v1" else ("cgroup.freeze", "1", "0")
    folder = root / f"reclaimerd-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        (folder / state).write_text(on)
        wait_for(lambda: _is_frozen(folder, version), "frozen")
        yield folder
    finally:
        (folder / state).write_text(off)
        with suppress(OSError):  # it may be gone by now
            (root / "cgroup.procs").write_text(str(pid))
        wait_for(lambda: _removed(folder), "an empty cgroup")


def _is_frozen(folder: Path, version: str) -> bool:
    if version == "v1":
        return (folder / "freezer.state").read_text().strip() == "FROZEN"
    return "frozen 1" in (folder / "cgroup.events").read_text()


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def cgroup2_root() -> Path:
    """Return where cgroup v2 is mounted; raises LookupError where it is not."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    raise LookupError("cgroup v2 is not mounted")


def why_no_freezer(version: str) -> str:
    """Return why nothing can be frozen here, "" when it can."""
    if os.geteuid() != 0:
        return "needs root"
    try:
        root = FREEZER_V1 if version == "v1" else cgroup2_root()
    except LookupError as error:
        return str(error)
    probe = root / f"reclaimerd-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup {version} freezer to write to: {error.strerror}"
    return ""


class NoCoreReaderError(Exception):
    """This machine lets us have no core dumped to a program."""


def _write_pattern(pattern: str) -> None:
    try:
        CORE_PATTERN.write_text(pattern)
    except OSError as error:
        raise NoCoreReaderError(f"core_pattern can't be written: {error.strerror}") from error


@contextmanager
def dumping_core(folder: Path) -> Iterator[int]:
    """Give the pid of a process whose core goes to a reader that reads nothing; the pattern is put back.

    core_pattern is the whole host's: it is ours only until the kernel has started the reader. Raises
    NoCoreReaderError when it can't be written or the kernel starts no reader.
    """
    note = folder / "reader"
    reader = folder / "slow"
    reader.write_text(f"#!/bin/sh\necho $$ > {note}.new\nmv {note}.new {note}\nexec sleep 60\n")
    reader.chmod(0o755)
    before = CORE_PATTERN.read_text(encoding="utf-8").rstrip("\n")
    with child(CRASH) as started:
        try:
            _write_pattern(f"|{reader}")
            started.send_signal(signal.SIGABRT)
            deadline = time.monotonic() + BOUND_SECONDS
            while not note.exists():
                if time.monotonic() > deadline:
                    raise NoCoreReaderError("the kernel started no reader of the core")
                time.sleep(0.01)
        finally:
            _write_pattern(before)
        reader_fd = os.pidfd_open(int(note.read_text()))
        try:
            yield started.pid
        finally:
            signal.pidfd_send_signal(reader_fd, signal.SIGKILL)
            select.select([reader_fd], [], [], BOUND_SECONDS)
            os.close(reader_fd)


@contextmanager
def traced(pid: int) -> Iterator[int]:
    """Give the pid of a tracer that holds this process stopped."""
    with child(TRACER, str(pid)) as tracer:
        yield tracer.pid


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait for what no descriptor tells, with a bound."""
    deadline = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not in {BOUND_SECONDS:g} s: {what}"
        time.sleep(0.01)
