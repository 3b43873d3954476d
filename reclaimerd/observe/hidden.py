"""Processes that hold a GPU, live, and that /proc does not show: somebody hides them.

`read_hidden` runs in the procfs worker; `HiddenEyes` is the main process's end, which reads nothing. One
look alone proves nothing, for the process may have begun or ended meanwhile: two must agree. Nothing here
judges or acts.
"""
# Byte paths and directory descriptors: pathlib knows neither.
# ruff: noqa: PTH123, PTH208

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import HiddenListing, Snapshot
from reclaimerd.observe.answers import Answered
from reclaimerd.observe.freezers import Asks
from reclaimerd.observe.holder_memory import listed_bytes
from reclaimerd.observe.proc_files import PROC, hides_processes, lives
from reclaimerd.observe.sightings import listed_pids

EVERY_SECONDS = 30.0
"""How often all that NVML lists are looked for in /proc; whoever can't be read is looked for at once."""
MOST_PIDS = 1024
"""Of one question; the rest is not looked for."""
_O_PATH_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def read_hidden(pids: Sequence[int], proc: bytes = PROC) -> dict[int, str]:
    """Return those of the pids that live and are hidden, each with how; raises OSError.

    A /proc that shows us less than there is (hidepid) says nothing of anybody. A thread's id is no
    process: no pidfd can be opened for it.
    """
    if hides_processes():
        return {}
    listed = _read_names(proc)
    mount = _read_mount(proc)
    found = {}
    for pid in pids:
        how = _how_hidden(proc, pid, listed, mount)
        if how and lives(pid):
            found[pid] = how
    return found


def _read_names(proc: bytes) -> frozenset[bytes]:
    """Return the names that the listing of /proc has; raises OSError."""
    return frozenset(os.listdir(proc))


def _how_hidden(proc: bytes, pid: int, listed: frozenset[bytes], mount: bytes) -> str:
    """Return how /proc hides this pid, "" when it does not; raises OSError."""
    name = b"%d" % pid
    try:
        own = _read_mount(proc + name)
    except (FileNotFoundError, ProcessLookupError):
        return "" if name in listed else "/proc has no entry for it"
    if own != mount:
        return "something is mounted over its entry in /proc"
    return "" if name in listed else "the listing of /proc leaves its entry out"


def _read_mount(path: bytes) -> bytes:
    """Return the id of the mount that a folder belongs to (proc_pid_fdinfo(5)); raises OSError."""
    descriptor = os.open(path, _O_PATH_FOLDER)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            rows = dict(line.split(b":", 1) for line in file.read().splitlines())
        return rows[b"mnt_id"].strip()
    finally:
        os.close(descriptor)


class HiddenEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with who is hidden in it."""

    __slots__ = ("_clock", "_due_at", "_found", "_procfs", "_sampler", "_suspects")

    def __init__(self, sampler: SamplerPort, procfs: Asks, clock: Callable[[], float]) -> None:
        self._sampler = sampler
        self._procfs = procfs
        self._clock = clock
        self._due_at: float | None = None
        self._suspects: Mapping[int, str] = {}
        self._found: Mapping[int, str] = {}
        """Those in whom two looks agreed; while nobody can be asked they stay."""

    async def sample(self, look: Look) -> Snapshot:
        """Return the look; before a reset nobody is asked: the look must stay fresh."""
        snapshot = await self._sampler.sample(look)
        listed = listed_pids(snapshot.gpus)
        if not (look.reset or look.without_driver) and self._is_due(listed, snapshot):
            await self._ask(listed)
        found = tuple(
            HiddenListing(gpu.uuid, pid, Unreadable("no figure") if used is None else used, how)
            for gpu in snapshot.gpus
            for pid, how in sorted(self._found.items())
            if pid in listed_pids((gpu,))
            for used in (listed_bytes(gpu, pid),)
        )
        return replace(snapshot, hidden=found) if found else snapshot

    def _is_due(self, listed: set[int], snapshot: Snapshot) -> bool:
        if not listed:
            self._suspects, self._found = {}, {}
            return False
        unseen = any(pid not in snapshot.processes for pid in listed)
        return unseen or bool(self._suspects) or self._due_at is None or self._clock() >= self._due_at

    async def _ask(self, listed: set[int]) -> None:
        self._due_at = self._clock() + EVERY_SECONDS
        answer = await self._procfs.ask("hidden", {"pids": sorted(listed)[:MOST_PIDS]})
        match answer:
            case Answered(parts=({"hidden": list(rows)}, *_)):
                now = {int(pid): str(how) for pid, how in rows}
                self._found = {pid: how for pid, how in now.items() if pid in self._suspects}
                self._suspects = now
            case _:
                return
