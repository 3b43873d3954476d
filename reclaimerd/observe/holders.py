"""The full scan: every process that has a watched device open or mapped, and the process tree.

Runs in the procfs worker. It names what it could not look at: a scan with gaps is never taken for
"nobody holds it". It reads and changes nothing.
"""
# Byte paths and directory descriptors, in the hot path: pathlib knows neither.
# ruff: noqa: PTH110, PTH208

import os
from collections.abc import Callable, Collection, Iterable

from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.process import (
    ScanResult,
    ScanRow,
)
from reclaimerd.observe.open_nodes import holdings
from reclaimerd.observe.proc_files import PROC, hides_processes, read_whole, words_of
from reclaimerd.observe.processes import ProcessReader

_MOST_SKIPPED = 64


def _nothing(_pid: int) -> None:
    """Take note of nothing."""


def scan(
    reader: ProcessReader,
    *,
    root: int | None,
    deep: bool,
    progress: Callable[[int], None] = _nothing,
    without: Collection[int] = (),
) -> ScanResult:
    """Return every holder of the reader's watched devices, and what could not be looked at.

    `root` limits the search to that process's descendants (itself not among them). `deep` also
    names what holds files unseen. `progress` hears each pid before it is looked at, and `without`
    are pids that did not answer before: they are named as left out. What was found is remembered
    by the reader for its next looks.
    """
    pids = _all_pids(reader.root) if root is None else descendants(root, reader.root)
    rows: list[ScanRow] = []
    skipped: list[str] = []
    if reader.root == PROC and hides_processes():
        skipped.append("processes of other users: /proc hides them (hidepid)")
    looked_at = 0
    for pid in pids:
        if pid in without:
            skipped.append(f"pid {pid}: left out: it did not answer before")
            continue
        progress(pid)
        found = reader.finder.search(pid, deep=deep)
        looked_at += 1
        skipped += (f"pid {pid}: {words}" for words in found.troubles)
        if found.places:
            try:
                start_ticks = _start_ticks(reader.root, pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except (OSError, ValueError) as error:
                words = words_of(error) if isinstance(error, OSError) else str(error)
                skipped.append(f"pid {pid}: holds a device, but its start time can't be read: {words}")
                continue
            if not reader.finder.still(found.places):
                found = reader.finder.search(pid, deep=deep)  # it moved, or its pid is another's now
            if not found.places:
                continue
            rows.append(ScanRow(pid, start_ticks, holdings(found.places)))
            reader.remember_places(pid, start_ticks, found.places)
    return ScanResult(tuple(rows), _bounded(skipped), looked_at)


def descendants(pid: int, proc: bytes = PROC) -> tuple[int, ...]:
    """Return the living and dead-unreaped descendants of a process, parents before their children.

    From each task's list of children (task/TID/children); where the kernel has none, from every
    process's parent. A process that appears meanwhile may be missed: look again before relying on it.
    """
    if not os.path.exists(proc + b"thread-self/children"):
        return _descendants_by_parent(pid, proc)
    found: dict[int, None] = {}
    waiting = [pid]
    while waiting:
        for child in _children(proc, waiting.pop(0)):
            if child not in found and child != pid:
                found[child] = None
                waiting.append(child)
    return tuple(found)


def _children(proc: bytes, pid: int) -> Iterable[int]:
    """Yield the children of every task of a process; none of one that is gone."""
    folder = proc + b"%d/task/" % pid
    try:
        tids = os.listdir(folder)
    except OSError:
        return
    for tid in tids:
        try:
            text = read_whole(folder + tid + b"/children")
        except OSError:
            continue
        yield from map(int, text.split())


def _descendants_by_parent(pid: int, proc: bytes) -> tuple[int, ...]:
    """Return the descendants by every process's parent pid."""
    children: dict[int, list[int]] = {}
    for other in _all_pids(proc):
        try:
            stat = parse_stat(read_whole(proc + b"%d/stat" % other).decode("utf-8", "surrogateescape"))
        except (OSError, ValueError):
            continue
        children.setdefault(stat.ppid, []).append(other)
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.pop(waiting.pop(0), [])
        found += below
        waiting += below
    return tuple(found)


def _all_pids(proc: bytes) -> tuple[int, ...]:
    """Return the pid of every process; raises OSError when proc itself can't be listed."""
    return tuple(int(name) for name in os.listdir(proc) if name.isdigit())


def _start_ticks(proc: bytes, pid: int) -> int:
    """Return a process's start time in clock ticks since boot; raises OSError or ValueError."""
    text = read_whole(proc + b"%d/stat" % pid).decode("utf-8", "surrogateescape")
    return parse_stat(text).start_ticks


def _bounded(skipped: list[str]) -> tuple[str, ...]:
    """Return the first lines, and how many more there are."""
    if len(skipped) <= _MOST_SKIPPED:
        return tuple(skipped)
    return (*skipped[:_MOST_SKIPPED], f"and {len(skipped) - _MOST_SKIPPED} more")
