"""Search the whole host for tasks that may be stuck in the kernel: those that leave, are blocked, or spin.

Every process and every kernel thread, without the driver and without NVML. A task that sleeps
interruptibly and does not leave can't be stuck (a signal wakes it), so it is counted and not looked
at closer. Runs in the procfs worker. It names what it did not look at; entries vanish all the time.
"""
# Byte paths and directory descriptors, in the hot path: pathlib knows neither.
# ruff: noqa: PTH208

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from reclaimerd.host.proc_text import StatText, parse_stat
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.kernel import Frame, KernelLook, KernelTask
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_DUMPCORE,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe.kernel_stacks import read_kernel_look
from reclaimerd.observe.nvml_nodes import NVIDIA_MAJOR, read_shared_devices
from reclaimerd.observe.open_nodes import NodeFinder
from reclaimerd.observe.proc_files import read_text, read_tids, words_of

MOST_TASKS = 131_072
MOST_SUSPECTS = 256
MOST_TASKS_EACH = 16
"""Of a suspect only its worst tasks are told here: an answer has a bound."""
_MOST_SKIPPED = 64
_CLOSER_SECONDS = 4.0
"""For the closer looks, past the time of the search itself."""
_LEAVING = PF_EXITING | PF_POSTCOREDUMP | PF_DUMPCORE
KTHREAD_NAMES = (
    "nv_queue", "nv_open_q", "nvidia", "UVM global queu", "UVM deferred re", "UVM GPU", "UVM Tools Event",
    "vidmem lazy fre",
)  # fmt: skip
"""Beginnings of the driver's kernel threads' names; kernels before 5.17 cut them at 15 characters."""
IDLE_FRAME = "_main_loop"
"""Where an idle kernel thread of the driver sleeps (nv-kthread-q.c)."""


class Touch(StrEnum):
    """Whether a process touches a GPU driver: in its stack, by an open node, or who knows."""

    STACK = "stack"
    NODE = "node"
    UNKNOWN = "unknown"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Suspect:
    """One process with a task that leaves, is blocked or runs."""

    look: KernelLook
    kernel_thread: bool
    touch: Touch
    touch_text: str = ""


@dataclass(frozen=True, slots=True)
class KernelScan:
    """What one search found, and in words what it did not look at."""

    suspects: tuple[Suspect, ...]
    skipped: tuple[str, ...]
    processes: int
    tasks: int


@dataclass(slots=True)
class _Count:
    """How far one search is."""

    until: float
    processes: int = 0
    tasks: int = 0
    skipped: list[str] = field(default_factory=list)


def _nothing(_pid: int) -> None:
    """Take note of nothing."""


def scan_leaving(
    finder: NodeFinder,
    *,
    proc_root: Path = Path("/proc"),
    progress: Callable[[int], None] = _nothing,
    without: Collection[int] = (),
    seconds: float = 8.0,
) -> KernelScan:
    """Return every process with a task that may be stuck; at most 256, within `seconds` and 4 more.

    `finder` tells who has a driver's node open. `progress` hears each pid before it is looked at, and
    `without` are pids that did not answer before. Raises OSError when proc itself can't be listed.
    """
    count = _Count(time.monotonic() + seconds)
    waiting: list[tuple[int, int]] = []
    for pid in _pids(proc_root, count, without, progress):
        with _vanishing(pid, count):
            rank = _rank(pid, proc_root, count)
            if rank is not None:
                waiting.append((rank, pid))
    suspects: list[Suspect] = []
    for number, (_, pid) in enumerate(sorted(waiting)):
        if len(suspects) >= MOST_SUSPECTS or time.monotonic() > count.until + _CLOSER_SECONDS:
            count.skipped.append(f"{len(waiting) - number} more processes that leave, are blocked or run")
            break
        progress(pid)
        with _vanishing(pid, count):
            suspect = _looked_at(pid, proc_root, finder)
            if suspect is not None:
                suspects.append(suspect)
    return KernelScan(tuple(suspects), _bounded(count.skipped), count.processes, count.tasks)


@contextmanager
def _vanishing(pid: int, count: _Count) -> Iterator[None]:
    """Let a process vanish at any moment; put down what else goes wrong with it."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        return
    except (OSError, ValueError) as error:
        words = words_of(error) if isinstance(error, OSError) else str(error)
        count.skipped.append(f"pid {pid}: {words}")


def _pids(
    proc_root: Path, count: _Count, without: Collection[int], progress: Callable[[int], None]
) -> Iterator[int]:
    """Yield the pids to look at, while time and tasks last; say what is left out."""
    pids = sorted(int(name) for name in os.listdir(proc_root) if name.isdigit())
    for number, pid in enumerate(pids):
        if time.monotonic() > count.until or count.tasks > MOST_TASKS:
            why = "the time for one search is up" if count.tasks <= MOST_TASKS else "too many tasks"
            count.skipped.append(f"{len(pids) - number} processes from pid {pid} on: {why}")
            return
        if pid in without:
            count.skipped.append(f"pid {pid}: left out: it did not answer before")
            continue
        progress(pid)
        count.processes += 1
        yield pid


def _rank(pid: int, proc_root: Path, count: _Count) -> int | None:
    """Return how soon a process is looked at closer (0 first), None for never; raises OSError, ValueError."""
    stats = _stats(pid, proc_root)
    count.tasks += len(stats)
    return min((rank for one in stats if (rank := _task_rank(one)) is not None), default=None)


def _looked_at(pid: int, proc_root: Path, finder: NodeFinder) -> Suspect | None:
    """Return the process if one of its tasks may be stuck; raises OSError, ValueError."""
    look = read_kernel_look(pid, proc_root=proc_root, most_tasks=MOST_TASKS_EACH)
    if any(task.flags & PF_KTHREAD for task in look.tasks):
        return _kernel_thread(look)
    if not any(map(_may_be_stuck, look.tasks)):
        return None
    touch, text = _touch(look, finder)
    return Suspect(look, kernel_thread=False, touch=touch, touch_text=text)


def _may_be_stuck(task: KernelTask) -> bool:
    """Tell whether a task leaves, is blocked, or runs on although SIGKILL waits for it."""
    if task.state in DEAD_STATES:
        return False
    return bool(task.flags & _LEAVING) or task.state == "D" or (task.state == "R" and task.kill_pending)


def _stats(pid: int, proc_root: Path) -> list[StatText]:
    directory = os.open(proc_root / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stats = []
    try:
        for tid in read_tids(directory):
            try:
                text = read_text(directory, f"task/{tid}/stat")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if text:
                stats.append(parse_stat(text))
    finally:
        os.close(directory)
    return stats


def _task_rank(one: StatText) -> int | None:
    """Return 0 for a task that is blocked or a driver's kernel thread, up to 3; None for one that is not.

    Kernel threads of all kinds are looked at; of the others one that leaves, waits or runs. A crowd
    that is just ending, or running, comes last: it must not hide who is stuck.
    """
    if one.flags & PF_KTHREAD:
        return 0 if one.comm.startswith(KTHREAD_NAMES) else 2
    if one.state in DEAD_STATES:
        return None
    if one.state == "D":
        return 0
    if one.flags & _LEAVING:
        return 1 if one.state != "R" else 2
    return 3 if one.state == "R" else None


def _kernel_thread(look: KernelLook) -> Suspect | None:
    """Return a kernel thread that is at work in the driver; None for an idle one and for all others."""
    task = look.tasks[0]
    busy = busy_frame(task)
    if busy is not None:
        return Suspect(look, kernel_thread=True, touch=Touch.STACK, touch_text=str(busy))
    ours = look.comm.startswith(KTHREAD_NAMES)
    if ours and (task.state in "RD" or not isinstance(task.frames, Known)):
        why = "a driver's kernel thread whose stack does not show"
        return Suspect(look, kernel_thread=True, touch=Touch.UNKNOWN, touch_text=why)
    return None


def driver_frame(task: KernelTask) -> Frame | None:
    """Return the innermost reliable frame that belongs to a GPU driver's module, None for none."""
    return _driver_frame(task.frames.value if isinstance(task.frames, Known) else ())


def _driver_frame(frames: Iterable[Frame]) -> Frame | None:
    return next((one for one in frames if one.reliable and is_driver_module(one.module)), None)


def busy_frame(task: KernelTask) -> Frame | None:
    """Return the innermost driver frame of a kernel thread that is not asleep in its main loop."""
    return busy_frame_of(task.frames.value if isinstance(task.frames, Known) else ())


def busy_frame_of(frames: Iterable[Frame]) -> Frame | None:
    """Return the same of a stack; None where its driver frame is the idle loop, or there is none."""
    frame = _driver_frame(frames)
    return None if frame is None or frame.symbol == IDLE_FRAME else frame


def is_driver_module(module: str) -> bool:
    """Tell whether a module tag is of a GPU driver."""
    return module.replace("-", "_").startswith(("nvidia", "amdgpu", "amdkfd", "gdrdrv"))


def _touch(look: KernelLook, finder: NodeFinder) -> tuple[Touch, str]:
    """Return whether a process touches a GPU driver, and the sign for it."""
    frame = next((one for one in map(driver_frame, look.tasks) if one is not None), None)
    if frame is not None:
        return Touch.STACK, str(frame)
    found = finder.search(look.ref.pid, deep=False)
    if found.places:
        numbers = sorted(set(found.places.values()))
        return Touch.NODE, "has open: " + ", ".join(f"{one.major}:{one.minor}" for one in numbers)
    if any(task.flags & _LEAVING and task.state not in DEAD_STATES for task in look.tasks):
        return Touch.UNKNOWN, "what it had open does not show once it leaves"
    if found.troubles:
        return Touch.UNKNOWN, "; ".join(found.troubles)
    if not all(isinstance(task.frames, Known) for task in look.tasks):
        return Touch.UNKNOWN, "its stacks can't be read"
    return Touch.NONE, ""


def read_driver_devices(
    dev: Path = Path("/dev"), devices_file: Path = Path("/proc/devices")
) -> tuple[DeviceNumber, ...]:
    """Return the driver's device numbers from the kernel's list and the nodes below `dev`; opens none."""
    found = set(read_shared_devices(devices_file, dev / "nvidia-caps"))
    for entry in os.scandir(dev):
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        major = os.major(status.st_rdev)
        if stat.S_ISCHR(status.st_mode) and (major == NVIDIA_MAJOR or entry.name.startswith("nvidia")):
            found.add(DeviceNumber(major, os.minor(status.st_rdev)))
    return tuple(sorted(found))


def _bounded(skipped: list[str]) -> tuple[str, ...]:
    """Return the first lines, and how many more there are."""
    if len(skipped) <= _MOST_SKIPPED:
        return tuple(skipped)
    return (*skipped[:_MOST_SKIPPED], f"and {len(skipped) - _MOST_SKIPPED} more")
