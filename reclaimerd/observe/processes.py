"""Look at one process: its tasks, program, arguments, cgroup, and the watched devices it holds.

Runs in the procfs worker: several of these reads can hang on a hostile process. All reads of one
look go through descriptors of one life of it, so they are of one process even if its pid is used
again. It reads and remembers; it changes nothing.
"""

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.proc_text import (
    StatText,
    StatusText,
    mask_secrets,
    printable,
)
from reclaimerd.model.identity import DeviceNumber, FileIdentity, ProcessRef
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
    NodeHolding,
    ProcessLook,
    ProcessReading,
    TaskReading,
    Workload,
)
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe.host_files import read_host_files
from reclaimerd.observe.open_nodes import NodeFinder, Places, holdings
from reclaimerd.observe.open_processes import OpenProcess, OpenProcesses, open_process, read_now
from reclaimerd.observe.parsed_texts import ParsedTexts
from reclaimerd.observe.proc_files import (
    PROC,
    gone,
    lives,
    read_descriptor_count,
    read_text,
    words_of,
)
from reclaimerd.observe.recent import IDLE_ROUNDS, Recent
from reclaimerd.observe.statx import FileLook
from reclaimerd.observe.tasks import read_every_task, task_prefixes, task_reading
from reclaimerd.observe.workloads import DirectoryOwners, workload_of

__all__ = ["ProcessReader", "read_host_files"]

_COMMAND_BYTES = 16 << 10
_MOST_REMEMBERED = 4096
_WORKLOAD_SECONDS = 10.0
"""How long a judged cgroup text stands: only root can change whose its directories are."""

_Life = tuple[int, int]
"""A process of this boot: pid and start ticks."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Where a process's devices were found (never empty), and how many descriptors it had then."""

    places: Places
    descriptors: int
    nodes: Known[tuple[NodeHolding, ...]]


class ProcessReader:
    """Reads processes below `proc_root`; remembers what is dear to read and proves itself unchanged."""

    def __init__(self, proc_root: Path = Path("/proc"), owners: DirectoryOwners | None = None) -> None:
        self._root = os.fsencode(proc_root) + b"/"
        self._owners = owners or DirectoryOwners()
        self._files = FileLook()
        self.finder = NodeFinder(self._root)
        self._open = OpenProcesses()
        self._watched: frozenset[DeviceNumber] = frozenset()
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")
        self._boot_id = ""
        self._places: Recent[_Life, _Remembered] = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)
        self._commands: Recent[_Life, tuple[object, tuple[str, ...]]] = Recent(_MOST_REMEMBERED)
        self._texts = ParsedTexts()
        self._workloads: Recent[str, tuple[str, Workload, float]] = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)

    @property
    def root(self) -> bytes:
        """Return the proc file system that is read, with a slash at its end."""
        return self._root

    def watch_devices(self, devices: Sequence[DeviceNumber]) -> None:
        """Look for these devices from now on; what was found for others is forgotten."""
        watched = frozenset(devices)
        if watched != self._watched:
            self._watched = watched
            self.finder.watch(watched)
            self._places = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)

    def remember_places(self, pid: int, start_ticks: int, places: Places) -> None:
        """Keep where the full scan found a process's devices, for the next look to prove again."""
        count = read_descriptor_count(self._root + b"%d/fd" % pid)
        self._places.put((pid, start_ticks), _Remembered(places, count, Known(holdings(places))))

    def look(self, pid: int, *, whole: bool) -> ProcessLook:
        """Return one process and the watched devices it holds; every task if `whole`, dying or dead.

        Raises ProcessLookupError when it is gone or is no process but a thread, else OSError.
        """
        kept = self._open.kept(pid)
        if kept is not None:
            try:
                return self._look(kept, pid, whole=whole)
            except ProcessLookupError:
                self._open.drop(pid)  # that life is over; the pid may be another's by now
        try:
            return self._first_look(pid, whole=whole)
        except ProcessLookupError:
            if self._root == PROC and lives(pid):
                raise PermissionError(errno.EACCES, "it lives, and /proc hides it") from None
            raise

    def _first_look(self, pid: int, *, whole: bool) -> ProcessLook:
        """Open the process and look; keep it open where that went well."""
        opened = open_process(self._root, pid)
        try:
            look = self._look(opened, pid, whole=whole)
        except BaseException:
            opened.close()
            raise
        self._open.keep(pid, opened)
        return look

    def _look(self, opened: OpenProcess, pid: int, *, whole: bool) -> ProcessLook:
        """Read everything through the process's own descriptors."""
        directory = opened.directory
        leader = self._texts.leader(read_now(opened.stat, pid), pid)
        dying = leader.state in DEAD_STATES or leader.flags & (PF_EXITING | PF_POSTCOREDUMP) != 0
        every = whole or dying
        tasks, is_whole = self._tasks(directory, leader, every=every)
        nodes = self._nodes(leader, every=every)
        status = self._texts.status(read_now(opened.status, pid), pid)
        if status.tgid != pid:
            raise gone(pid)
        cgroup, workload = self._workload(read_now(opened.cgroup, pid))
        exe, exe_file = self._exe(directory, leader, status)
        reading = ProcessReading(
            ref=ProcessRef(self.boot_id(), pid, leader.start_ticks),
            ppid=leader.ppid,
            uids=status.uids,
            comm=printable(leader.comm),
            thread_count=status.threads,
            tasks=tasks,
            whole=is_whole,
            kill_pending=status.kill_pending,
            dumping_core=status.core_dumping,
            tracer_pid=status.tracer_pid,
            ns_pids=status.ns_pids,
            age_seconds=self._age_seconds(leader.start_ticks),
            exe=exe,
            exe_file=exe_file,
            cmdline=self._cmdline(directory, leader, status, exe_file),
            cgroup=cgroup,
            workload=workload,
            resident_bytes=status.vm_rss_bytes or 0,
            gids=tuple(dict.fromkeys((status.gids[0], *status.groups))),
        )
        return ProcessLook(reading, nodes)

    def boot_id(self) -> str:
        """Return this boot's id, read once."""
        if not self._boot_id:
            path = self._root + b"sys/kernel/random/boot_id"
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._boot_id = os.read(descriptor, 64).decode("ascii").strip()
            finally:
                os.close(descriptor)
        return self._boot_id

    def _age_seconds(self, start_ticks: int) -> float:
        """Return the seconds since a process started (counted from boot, suspended time included)."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(0.0, now - start_ticks / self._ticks_per_second)

    def _tasks(
        self, directory: int, leader: StatText, *, every: bool
    ) -> tuple[tuple[TaskReading, ...], bool]:
        """Return the leader alone, or every task, and whether these are all."""
        if not every:
            return (task_reading(leader),), False
        return read_every_task(directory, leader.pid, by_pidfd=self._root == PROC)

    def _nodes(self, leader: StatText, *, every: bool) -> Reading[tuple[NodeHolding, ...]]:
        """Return the watched devices held: where they were last, if that is still so, else by a search.

        What was found is returned even if something else could not be looked at; only a search
        that found nothing and could not see everything is unreadable.
        """
        life = (leader.pid, leader.start_ticks)
        remembered = self._places.get(life)
        count = read_descriptor_count(self._root + b"%d/fd" % leader.pid)
        unchanged = remembered is not None and remembered.descriptors == count
        if remembered is not None and unchanged and not every and self.finder.still(remembered.places):
            return remembered.nodes
        found = self.finder.search(leader.pid, deep=False)
        nodes = Known(holdings(found.places))
        if found.places:
            self._places.put(life, _Remembered(found.places, count, nodes))
        elif found.troubles:
            return Unreadable("; ".join(found.troubles))
        return nodes

    def _exe(
        self,
        directory: int,
        leader: StatText,
        status: StatusText,
    ) -> tuple[Reading[str], Reading[FileIdentity]]:
        """Return path and identity of the program, from the first thread that still has one."""
        if leader.flags & PF_KTHREAD:
            absent = Absent("a kernel thread has no program")
            return absent, absent
        why = "no thread has a program any more"
        for prefix in task_prefixes(directory, status):
            link = prefix + "exe"
            try:
                path = os.readlink(link, dir_fd=directory)
                return Known(printable(path)), Known(self._files.identity_at(directory, link.encode()))
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError as error:
                why = words_of(error)
                break
        return Unreadable(why), Unreadable(why)

    def _cmdline(
        self,
        directory: int,
        leader: StatText,
        status: StatusText,
        exe_file: Reading[FileIdentity],
    ) -> Reading[tuple[str, ...]]:
        """Return the arguments, masked and printable; read once per program that the process ran."""
        if leader.flags & PF_KTHREAD:
            return Known(())
        life = (leader.pid, leader.start_ticks)
        program = (exe_file, leader.argument_span)
        remembered = self._commands.get(life)
        if remembered is not None and (remembered[0] == program or not isinstance(exe_file, Known)):
            return Known(remembered[1])
        why = "no thread has arguments any more"
        for prefix in task_prefixes(directory, status):
            try:
                text = read_text(directory, prefix + "cmdline", _COMMAND_BYTES)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError as error:
                return Unreadable(words_of(error))
            if text:
                args = _arguments(text)
                self._commands.put(life, (program, args))
                return Known(args)
        return Unreadable(why)

    def _workload(self, text: str) -> tuple[str, Workload]:
        """Return a cgroup text as it may be shown, and its workload; judged anew after some seconds."""
        now = time.monotonic()
        remembered = self._workloads.get(text)
        if remembered is not None and now - remembered[2] < _WORKLOAD_SECONDS:
            return remembered[0], remembered[1]
        shown = "\n".join(map(printable, text.rstrip("\n").split("\n")))
        workload = workload_of(text, self._owners.owned_by_root)
        self._workloads.put(text, (shown, workload, now))
        return shown, workload


def _arguments(text: str) -> tuple[str, ...]:
    """Return the arguments of a cmdline text, masked and printable."""
    args = tuple(text.removesuffix("\0").split("\0"))
    return tuple(printable(arg) for arg in mask_secrets(args))
