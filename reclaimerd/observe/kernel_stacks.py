"""One process as the kernel shows it: every task's state, switches and stack, and what it still holds.

Plain blocking reads, one process at a time, for the procfs worker alone: several of them wait on a
lock that a hostile process can hold. It reads and judges nothing. Facts: proc(5); a stack needs
CAP_SYS_ADMIN and is empty in state R (fs/proc/base.c).
"""
# Directory descriptors, so that all reads are of one life of the process: pathlib knows them not.

import os
import time
from collections.abc import Iterable
from pathlib import Path

from reclaimerd.host.kernel_text import parse_stack, parse_switches
from reclaimerd.host.proc_text import StatText, StatusText, parse_stat, parse_status, printable
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import Frame, KernelLook, KernelTask
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe.cgroup_state import read_cgroup_bytes, read_freezer
from reclaimerd.observe.proc_files import gone, read_text, read_tids, words_of

MOST_TASKS = 256
"""Of how many tasks the stack is read; those that leave or are blocked come first."""
PROC = Path("/proc")


def read_kernel_look(pid: int, *, proc_root: Path = PROC, most_tasks: int = MOST_TASKS) -> KernelLook:
    """Return one process with up to 256 of its tasks; raises ProcessLookupError when it is gone.

    Raises OSError when it can't be read, ValueError for a text that is none of the kernel's.
    """
    try:
        directory = os.open(proc_root / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise gone(pid) from None
    try:
        return _look(directory, pid, proc_root, most_tasks)
    finally:
        os.close(directory)


def _look(directory: int, pid: int, proc_root: Path, most_tasks: int) -> KernelLook:
    leader, status = _vital(directory, pid)
    stats = _stats(directory)
    read = [_task(directory, stat) for stat in _worst_first(stats, pid, most_tasks)]
    tasks = sorted((one for one in read if one is not None), key=lambda one: one[0].tid)
    if not tasks:
        raise gone(pid)
    statuses = [status, *(one[1] for one in tasks)]
    refrigerated = any(_is_refrigerated(task) for task, _ in tasks)
    cgroup = _cgroup_text(directory)
    freezer, frozen = read_freezer(cgroup, refrigerated=refrigerated)
    return KernelLook(
        ref=ProcessRef(_boot_id(proc_root), pid, leader.start_ticks),
        ppid=leader.ppid,
        comm=printable(leader.comm),
        tasks=tuple(task for task, _ in tasks),
        task_count=len(stats),
        dumping_core=any(one.core_dumping for one in statuses),
        tracer_pid=next((one.tracer_pid for one in statuses if one.tracer_pid), 0),
        ns_pids=status.ns_pids,
        resident_bytes=max(one.vm_rss_bytes or 0 for one in statuses),
        frozen=frozen,
        freezer=freezer,
        written_bytes=_written_bytes(directory),
        cgroup_bytes=read_cgroup_bytes(cgroup, proc_root),
        at=time.monotonic(),
    )


def _vital(directory: int, pid: int) -> tuple[StatText, StatusText]:
    """Return the leader's stat and status; raises ProcessLookupError when there is no such process."""
    try:
        leader = parse_stat(_some(read_text(directory, f"task/{pid}/stat"), pid))
        status = parse_status(_some(read_text(directory, "status"), pid))
    except FileNotFoundError:
        raise gone(pid) from None
    if status.tgid != pid:
        raise gone(pid)
    return leader, status


def _some(text: str, pid: int) -> str:
    if not text:
        raise gone(pid)
    return text


def _stats(directory: int) -> list[StatText]:
    """Return every task's stat; one that vanished meanwhile is left out."""
    stats = []
    for tid in read_tids(directory):
        try:
            text = read_text(directory, f"task/{tid}/stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text:
            stats.append(parse_stat(text))
    return stats


def _worst_first(stats: list[StatText], leader: int, most: int) -> Iterable[StatText]:
    """Return at most so many tasks: the leader, then those that leave, are blocked or run, then others."""
    if len(stats) <= most:
        return stats

    def rank(stat: StatText) -> tuple[int, int]:
        if stat.pid == leader:
            return 0, stat.pid
        if stat.state in DEAD_STATES:
            return 4, stat.pid
        leaving = stat.flags & (PF_EXITING | PF_POSTCOREDUMP) != 0
        return (1 if leaving else 2 if stat.state in "DR" else 3), stat.pid

    return sorted(stats, key=rank)[:most]


def _task(directory: int, stat: StatText) -> tuple[KernelTask, StatusText] | None:
    """Return one task and its status; None when it vanished meanwhile."""
    place = f"task/{stat.pid}"
    try:
        text = read_text(directory, f"{place}/status")
        if not text:
            return None
        status = parse_status(text)
        frames = _frames(directory, place)
    except (FileNotFoundError, ProcessLookupError):
        return None
    voluntary, involuntary = parse_switches(text)
    task = KernelTask(
        tid=stat.pid,
        comm=printable(stat.comm),
        state=stat.state,
        flags=stat.flags,
        cpu_ticks=stat.utime + stat.stime,
        processor=stat.processor,
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
        kill_pending=status.kill_pending,
        wchan=_wchan(directory, place),
        frames=frames,
    )
    return task, status


def _frames(directory: int, place: str) -> Reading[tuple[Frame, ...]]:
    """Return a task's kernel stack; raises FileNotFoundError or ProcessLookupError when it is gone."""
    try:
        return Known(parse_stack(read_text(directory, f"{place}/stack")))
    except FileNotFoundError:
        os.stat(place, dir_fd=directory)  # raises for a task that is gone
        return Absent("this kernel shows no stacks (CONFIG_STACKTRACE)")
    except ProcessLookupError:
        raise
    except OSError as error:
        return Unreadable(words_of(error))


def _wchan(directory: int, place: str) -> str:
    """Return where a task sleeps, "" when it does not or that is not told."""
    try:
        text = read_text(directory, f"{place}/wchan").strip()
    except OSError:
        return ""
    return "" if text == "0" else printable(text)


def _is_refrigerated(task: KernelTask) -> bool:
    """Tell whether the v1 freezer holds this very task (kernel/freezer.c)."""
    frames = task.frames.value if isinstance(task.frames, Known) else ()
    return task.wchan == "__refrigerator" or any(frame.symbol == "__refrigerator" for frame in frames)


def _written_bytes(directory: int) -> Reading[int]:
    """Return wchar of /proc/PID/io: what a core dump has written so far counts in it."""
    try:
        text = read_text(directory, "io")
    except OSError as error:
        return Unreadable(words_of(error))
    for line in text.split("\n"):
        name, _, value = line.partition(":")
        if name == "wchar" and value.strip().isdigit():
            return Known(int(value))
    return Absent("this kernel counts no input and output")


def _cgroup_text(directory: int) -> Reading[str]:
    try:
        return Known(read_text(directory, "cgroup"))
    except OSError as error:
        return Unreadable(words_of(error))


def _boot_id(proc_root: Path) -> str:
    return (proc_root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
