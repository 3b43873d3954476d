"""Which watched devices one process has open or mapped, by device number and never by path.

A device node may lie anywhere and a link's text can be made to read like anything, so every
descriptor is asked for its number by statx with AT_STATX_DONT_SYNC. Mappings are found in the maps
text and asked through map_files; its device column is only a key, never an answer. It reads;
any of these reads may hang on a hostile process, so it runs in the procfs worker alone.
"""
# Byte paths and directory descriptors, in the hot path: pathlib knows neither.
# ruff: noqa: PTH115, PTH116, PTH208

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.process import NodeHolding
from reclaimerd.observe.proc_files import MOST_BYTES, read_whole, words_of
from reclaimerd.observe.statx import FileLook, share_descriptors

_AT_FDCWD = -100
_MOST_DESCRIPTORS = 65_536
_MOST_TABLES = 64
"""Past these a process is named as not looked at whole: a flood costs a bounded amount."""
_MOST_SEEN_FILES = 16_384
_ONE_TASK_LINKS = 3
"""Links of a task/ folder with one task in it."""

# A line of proc(5) maps with a file behind it: range, then device column, inode and path as the key.
_KEY = re.compile(rb" ([0-9a-f]+:[0-9a-f]+ [1-9][0-9]* .*)")
_LINE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+:[0-9a-f]+ [1-9][0-9]* .*)$", re.MULTILINE)
_USER_FILES = re.compile(rb"^UserFiles:\s*([1-9][0-9]*)", re.MULTILINE)
_IN_FLIGHT = re.compile(rb"^scm_fds:\s*([1-9][0-9]*)", re.MULTILINE)
_NVIDIA_BUFFER = re.compile(rb"^exp_name:\s*nv_dmabuf", re.MULTILINE)

Places = dict[bytes, DeviceNumber]
"""Where a device was found, below /proc: `PID/fd/N`, `PID/task/TID/fd/N` or `PID/map_files/RANGE`."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one process holds, and what could not be looked at, in words."""

    places: Places
    troubles: tuple[str, ...] = ()


class NodeFinder:
    """Finds watched devices; remembers which mapped files are no devices, across passes."""

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._look = FileLook()
        self._watched: dict[tuple[int, int], DeviceNumber] = {}
        self._no_devices: set[bytes] = set()

    def watch(self, devices: Collection[DeviceNumber]) -> None:
        """Look for these devices from now on."""
        self._watched = {(device.major, device.minor): device for device in devices}

    def still(self, places: Places) -> bool:
        """Tell whether every place still leads to its device."""
        try:
            for place, device in places.items():
                number = self._look.device_at(_AT_FDCWD, self._root + place)
                if number is None or self._watched.get(number) != device:
                    return False
        except OSError:
            return False
        return True

    def search(self, pid: int, *, deep: bool) -> Found:
        """Return where this process holds watched devices: in any thread's descriptors, or mapped.

        `deep` also names what holds files unseen (io_uring, sockets in flight, dma-bufs) and trusts
        nothing remembered. A process that vanishes meanwhile holds nothing.
        """
        if deep:
            self._no_devices.clear()
        search = _Search(b"%d" % pid)
        self._descriptors(search, search.own, deep=deep)
        try:
            reader = self._threads(search, pid, deep=deep)
        except (FileNotFoundError, ProcessLookupError):
            return search.found()
        self._mappings(search, reader)
        return search.found()

    def opened(self, pid: int) -> Found:
        """Return where this process has watched devices open, in any thread's descriptors; no mappings."""
        search = _Search(b"%d" % pid)
        self._descriptors(search, search.own, deep=False)
        with suppress(FileNotFoundError, ProcessLookupError):
            self._threads(search, pid, deep=False)
        return search.found()

    def _threads(self, search: "_Search", pid: int, *, deep: bool) -> bytes:
        """Search the tables of threads that share none already searched; return whom to ask for mappings.

        Raises FileNotFoundError or ProcessLookupError when the process is gone.
        """
        tables = [pid]
        has_memory = search.own
        try:
            folder = self._root + search.own + b"/task"
            names = os.listdir(folder) if os.stat(folder).st_nlink > _ONE_TASK_LINKS else []
        except (FileNotFoundError, ProcessLookupError):
            raise
        except OSError as error:
            search.trouble(f"threads: {words_of(error)}")
            names = []
        leader_is_dead = bool(names) and not self._has_memory(search.own)
        for name in names:
            tid = int(name)
            if tid == pid:
                continue
            if leader_is_dead and has_memory == search.own and self._has_memory(name):
                has_memory = name
            if _is_searched(tables, tid):
                continue
            self._descriptors(search, search.own + b"/task/" + name, deep=deep)
            if len(tables) < _MOST_TABLES:
                tables.append(tid)
        return has_memory

    def _has_memory(self, task: bytes) -> bool:
        """Tell whether this task still has its address space (a dying one has given it up)."""
        try:
            descriptor = os.open(self._root + task + b"/maps", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return bool(os.read(descriptor, 1))
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def _descriptors(self, search: "_Search", task: bytes, *, deep: bool) -> None:
        """Search one descriptor table."""
        folder = task + b"/fd/"
        try:
            names = os.listdir(self._root + folder)
        except (FileNotFoundError, ProcessLookupError):
            return
        except OSError as error:
            search.trouble(f"descriptors: {words_of(error)}")
            return
        if len(names) > _MOST_DESCRIPTORS:
            search.trouble(f"descriptors: {_MOST_DESCRIPTORS} of {len(names)} looked at")
        for name in names[:_MOST_DESCRIPTORS]:
            if self._try_place(search, folder + name, "descriptors") is _Place.FORBIDDEN:
                return
        if deep:
            for name in names[:_MOST_DESCRIPTORS]:
                self._unseen(search, task, name)

    def _try_place(self, search: "_Search", place: bytes, what: str) -> "_Place":
        """Look at one place and keep it if it is a watched device."""
        try:
            number = self._look.device_at(_AT_FDCWD, self._root + place)
        except (FileNotFoundError, ProcessLookupError):
            return _Place.GONE
        except OSError as error:
            search.trouble(f"{what}: {words_of(error)}")
            return _Place.FORBIDDEN if isinstance(error, PermissionError) else _Place.GONE
        if number is None:
            return _Place.NO_DEVICE
        if number in self._watched:
            search.places[place] = self._watched[number]
        return _Place.DEVICE

    def _mappings(self, search: "_Search", task: bytes) -> None:
        """Search the mappings: one look per file that is not yet known to be no device."""
        try:
            text = read_whole(self._root + task + b"/maps")
        except (FileNotFoundError, ProcessLookupError):
            return
        except OSError as error:
            search.trouble(f"mappings: {words_of(error)}")
            return
        if len(text) >= MOST_BYTES:
            search.trouble(f"mappings: the first {MOST_BYTES >> 20} MiB of text looked at")
        new = set(_KEY.findall(text))
        new -= self._no_devices
        if not new:
            return
        if len(self._no_devices) > _MOST_SEEN_FILES:
            self._no_devices.clear()
        for begin, end, key in _LINE.findall(text):
            if key in new:
                new.discard(key)
                place = b"%b/map_files/%x-%x" % (task, int(begin, 16), int(end, 16))
                seen = self._try_place(search, place, "mappings")
                if seen is _Place.FORBIDDEN:
                    return
                if seen is _Place.NO_DEVICE:
                    self._no_devices.add(key)

    def _unseen(self, search: "_Search", task: bytes, name: bytes) -> None:
        """Name what holds files that no listing shows, or GPU memory without a device."""
        try:
            link = os.readlink(self._root + task + b"/fd/" + name)
            if not link.startswith((b"anon_inode:", b"socket:", b"/dmabuf:")):
                return
            text = read_whole(self._root + task + b"/fdinfo/" + name)
        except (FileNotFoundError, ProcessLookupError):
            return
        except OSError as error:
            search.trouble(f"descriptors: {words_of(error)}")
            return
        number = name.decode()
        ring, flight = _USER_FILES.search(text), _IN_FLIGHT.search(text)
        if ring is not None:
            search.trouble(
                f"descriptor {number}: io_uring holds {ring[1].decode()} files that can't be looked at"
            )
        if flight is not None:
            search.trouble(f"descriptor {number}: {flight[1].decode()} files in flight over a socket")
        if _NVIDIA_BUFFER.search(text) is not None:
            search.trouble(f"descriptor {number}: holds GPU memory as a dma-buf of the NVIDIA driver")


class _Place(Enum):
    """What stood at one place."""

    DEVICE = auto()
    NO_DEVICE = auto()
    GONE = auto()
    FORBIDDEN = auto()


class _Search:
    """What one search has gathered so far."""

    __slots__ = ("own", "places", "troubles")

    def __init__(self, own: bytes) -> None:
        self.own = own
        self.places: Places = {}
        self.troubles: dict[str, None] = {}

    def trouble(self, words: str) -> None:
        """Keep one sentence about what was not looked at; the same one once, and not without end."""
        if len(self.troubles) < _MOST_TABLES:
            self.troubles[words] = None

    def found(self) -> Found:
        """Return what was gathered."""
        return Found(self.places, tuple(self.troubles))


def holdings(places: Places) -> tuple[NodeHolding, ...]:
    """Return each device once; `mapped` when it is mapped and not open."""
    opened = {device for place, device in places.items() if b"/map_files/" not in place}
    mapped = set(places.values()) - opened
    return tuple(NodeHolding(device, mapped=device in mapped) for device in sorted(opened | mapped))


def _is_searched(tables: list[int], tid: int) -> bool:
    """Tell whether this thread's descriptors are in a table already searched, or it has none any more."""
    for table in tables:
        try:
            shared = share_descriptors(table, tid)
        except ProcessLookupError:
            continue
        if shared is None:
            return False
        if shared:
            return True
    return False
