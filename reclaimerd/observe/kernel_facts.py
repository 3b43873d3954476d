"""What only the kernel knows before a reset: busy kernel threads, unseen holders, the device itself.

One look, in the procfs worker; the parent looks again (`observe.reset_eyes`), as a thread that is busy
once proves nothing. It reads and changes nothing, and names what it could not look at.
"""
# Byte paths and directory descriptors, in the hot path: pathlib knows neither.
# ruff: noqa: PTH208

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.host.proc_text import StatText, parse_stat
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.process import PF_KTHREAD
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import BusyThread, KernelFacts, ModuleUse
from reclaimerd.observe.holders import descendants
from reclaimerd.observe.kernel_devices import MODULES, read_displays, read_modules, read_presence
from reclaimerd.observe.kernel_scan import read_driver_devices
from reclaimerd.observe.kernel_threads import read_busy_thread
from reclaimerd.observe.nvml_nodes import NVIDIA_MAJOR
from reclaimerd.observe.open_count import count_files, descriptors_of
from reclaimerd.observe.open_nodes import NodeFinder, Places
from reclaimerd.observe.proc_files import PROC, hides_processes, read_text, words_of

RESET_TOOL = "nvidia-smi"
AGENTS = frozenset({"kubelet", "kubelite", "slurmd", "k3s", "k3s-server", "k3s-agent", "rke2"})
"""Names of a scheduler's node agent: it may run in a container, or under a unit of any name."""
_DELETED = " (deleted)"
"""Behind a program's path once its file was replaced: an upgrade, and not yet a restart (proc(5))."""
_COMM_LENGTH = 15
_MODESET_MINOR = 254
_COUNTED = frozenset({"nvidia", "nvidia_uvm"})
"""Modules whose users are open files on their nodes, and the modules on top."""
_MOST_SKIPPED = 64
_TRIES = 3


@dataclass(frozen=True, slots=True)
class KernelQuestion:
    """What to look at: GPUs by PCI address, the nodes of the driver, and where.

    `root` limits the search to that process's descendants and `ours` (a simulated host's), and leaves
    kernel threads out. Without a `sys_root` every address is present and no module is loaded.
    """

    addresses: tuple[str, ...]
    devices: tuple[DeviceNumber, ...] = ()
    ours: tuple[int, ...] = ()
    root: int | None = None
    sys_root: Path | None = Path("/sys")
    proc_root: Path = Path("/proc")
    dev_root: Path = Path("/dev")
    without: frozenset[int] = frozenset()
    seconds: float = 4.0


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """One look, the names of a scheduler's agents that run, and why a GPU is missing, in words."""

    facts: KernelFacts
    agents: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Walk:
    """What one walk over all processes gathers."""

    places: Places = field(default_factory=dict)
    busy: list[BusyThread] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Of whom not every descriptor was looked at."""


def read_kernel_facts(question: KernelQuestion, progress: Callable[[int], None]) -> KernelAnswer:
    """Return one look; `progress` hears each pid before it is looked at.

    Raises OSError when /proc or the PCI devices can't be listed at all.
    """
    until = time.monotonic() + question.seconds
    devices = set(question.devices)
    if question.root is None:
        devices |= set(read_driver_devices(question.dev_root, question.proc_root / "devices"))
    finder = NodeFinder(os.fsencode(question.proc_root) + b"/")
    finder.watch(devices)
    present, missing, why = _presence(question)
    modules = _modules(question)
    for _ in range(_TRIES):
        walk = _walk(question, finder, until, progress)
        before, modules = modules, _modules(question)
        if before == modules or time.monotonic() > until:
            break
    opens, hidden = _opens(question, walk, modules)
    displays = () if question.sys_root is None else read_displays(question.sys_root, question.addresses)
    facts = KernelFacts(
        present=present,
        missing=missing,
        modules=modules,
        busy_threads=tuple(walk.busy),
        displays=displays,
        opens=opens,
        other_resets=tuple(walk.resets),
        skipped=_bounded([*hidden, *walk.skipped]),
    )
    return KernelAnswer(facts, tuple(sorted(walk.agents)), why)


def _presence(question: KernelQuestion) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    if question.sys_root is None:
        return tuple(sorted(set(question.addresses))), (), ()
    return read_presence(question.sys_root, question.addresses)


def _modules(question: KernelQuestion) -> tuple[ModuleUse, ...]:
    if question.sys_root is None:
        return tuple(ModuleUse(name, Absent("a simulated host without modules")) for name in MODULES)
    return read_modules(question.sys_root)


def _walk(
    question: KernelQuestion, finder: NodeFinder, until: float, progress: Callable[[int], None]
) -> _Walk:
    walk = _Walk()
    if os.fsencode(question.proc_root) + b"/" == PROC and hides_processes():
        walk.skipped.append("processes of other users: /proc hides them (hidepid)")
        walk.unseen.append("hidden processes")
    pids = _pids(question)
    for number, pid in enumerate(pids):
        if time.monotonic() > until:
            walk.skipped.append(f"{len(pids) - number} processes from pid {pid} on: the time is up")
            walk.unseen.append(walk.skipped[-1])
            break
        if pid in question.without:
            walk.skipped.append(f"pid {pid}: left out: it did not answer before")
            walk.unseen.append(walk.skipped[-1])
            continue
        progress(pid)
        try:
            _look(question, pid, finder, walk)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except (OSError, ValueError) as error:
            words = words_of(error) if isinstance(error, OSError) else str(error)
            walk.skipped.append(f"pid {pid}: {words}")
            walk.unseen.append(walk.skipped[-1])
    return walk


def _pids(question: KernelQuestion) -> list[int]:
    if question.root is None:
        return sorted(int(name) for name in os.listdir(question.proc_root) if name.isdigit())
    below = descendants(question.root, os.fsencode(question.proc_root) + b"/")
    return sorted({*below, *question.ours})


def _look(question: KernelQuestion, pid: int, finder: NodeFinder, walk: _Walk) -> None:
    """Look at one process; raises OSError when it is gone or can't be read, ValueError for an odd stat."""
    directory = os.open(question.proc_root / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        stat = parse_stat(read_text(directory, f"task/{pid}/stat"))
        if stat.flags & PF_KTHREAD:
            match read_busy_thread(directory, stat):
                case BusyThread() as busy if question.root is None:
                    walk.busy.append(busy)
                case str(why) if question.root is None:
                    walk.skipped.append(why)
            return
        _name(question, directory, stat, walk)
    finally:
        os.close(directory)
    found = finder.opened(pid)
    walk.places |= found.places
    walk.unseen += (f"pid {pid}: {words}" for words in found.troubles)


def _name(question: KernelQuestion, directory: int, stat: StatText, walk: _Walk) -> None:
    """Note another reset tool, and a scheduler's agent: root's own, by name and program.

    Raises OSError for a process that is gone.
    """
    comm = stat.comm[:_COMM_LENGTH]
    if comm not in AGENTS and comm != RESET_TOOL:
        return
    if os.fstat(directory).st_uid != 0:
        return  # without root there is no reset, and no agent of a scheduler
    path = os.readlink("exe", dir_fd=directory).removesuffix(_DELETED)
    program = os.path.basename(path)  # noqa: PTH119  # below a descriptor
    if comm in AGENTS and program in AGENTS:
        walk.agents.add(program)
    elif comm == RESET_TOOL and program == RESET_TOOL and stat.pid not in question.ours:
        args = read_text(directory, "cmdline", 4096).split("\0")
        if any(arg == "-r" or arg.startswith("--gpu-reset") for arg in args):
            walk.resets.append(stat.pid)


def _opens(
    question: KernelQuestion, walk: _Walk, modules: Iterable[ModuleUse]
) -> tuple[Reading[int], list[str]]:
    """Return how many open files on the nodes were seen, and which module has users beyond its own.

    A total can't tell a user of one module from an open file of another, hence the second answer.
    """
    counting = {
        one.name: one.users.value - len(one.used_by)
        for one in modules
        if one.name in _COUNTED and isinstance(one.users, Known)
    }
    if walk.unseen:
        if question.sys_root is not None and not counting:
            return Absent("no module here counts its users: there is nothing to compare with"), []
        more = f", and {len(walk.unseen) - 1} more" if len(walk.unseen) > 1 else ""
        return Unreadable(f"not every open file was looked at: {walk.unseen[0]}{more}"), []
    try:
        files = count_files(descriptors_of(walk.places))
    except OSError as error:
        return Unreadable(words_of(error)), []
    seen: dict[str, int] = {}
    uvm_major = _uvm_major(question.proc_root)
    for device, count in files.items():
        module = _module_of(device, uvm_major)
        seen[module] = seen.get(module, 0) + count
    total = sum(files.values())
    hidden = [
        f"{users - seen.get(name, 0)} users of {name} beyond its open files that can be seen"
        for name, users in counting.items()
        if seen.get(name, 0) < users <= total
    ]
    return Known(total), hidden


def _module_of(device: DeviceNumber, uvm_major: int | None) -> str:
    if device.major == uvm_major:
        return "nvidia_uvm"
    return "nvidia_modeset" if device == DeviceNumber(NVIDIA_MAJOR, _MODESET_MINOR) else "nvidia"


def _uvm_major(proc_root: Path) -> int | None:
    text = (proc_root / "devices").read_text(encoding="ascii", errors="replace").partition("Block devices")[0]
    rows = (line.split() for line in text.splitlines())
    return next((int(row[0]) for row in rows if row[1:] == ["nvidia-uvm"] and row[0].isdigit()), None)


def _bounded(skipped: Collection[str]) -> tuple[str, ...]:
    """Return the first sentences, each once, and how many more there are."""
    told = tuple(dict.fromkeys(skipped))
    if len(told) <= _MOST_SKIPPED:
        return told
    return (*told[:_MOST_SKIPPED], f"and {len(told) - _MOST_SKIPPED} more")
