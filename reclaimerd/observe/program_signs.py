"""What rules about programs need to know besides: input and output, hash, connections, parents.

Runs in a worker of its own: the program's file may lie on a disk that hangs, and most of these reads may
hang on a hostile process. All is read through one descriptor of one life of the process. What could not
be read whole is unreadable: half a list is none. It remembers hashes, and changes nothing.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from reclaimerd.host.proc_text import StatusText, parse_stat, parse_status, printable
from reclaimerd.host.sign_text import parse_io, parse_tcp, socket_inode
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.process import Connection, ProgramSigns
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.observe.proc_files import PROC, gone, read_text, read_whole, words_of
from reclaimerd.observe.recent import Recent

T = TypeVar("T")

MOST_ANCESTORS = 8
MOST_DESCRIPTORS = 8192
MOST_SOCKETS = 256
MOST_LINES = 4096
"""Of one table of connections: a host with more serves many, and the kernel takes long to tell them."""
MOST_FILE_BYTES = 256 << 20
MOST_HASH_SECONDS = 5.0
_SLOW_AGAIN_SECONDS = 600.0
_LINE_BYTES = 256
_PIECE_BYTES = 1 << 16
_SLICE_BYTES = 4 << 20
"""After each the caller hears that the worker is alive: a slow disk is not a hanging one."""
_MOST_REMEMBERED = 1024
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

_FileState = tuple[int, int, int, int, int]
"""A file and its content's version: device, inode, size, last change of content and of inode."""


@dataclass(frozen=True, slots=True)
class SignsOf:
    """The signs of one process; `file` is the program whose hash was asked for, None: it has none."""

    pid: int
    signs: ProgramSigns
    file: FileIdentity | None


def _nothing() -> None:
    """Take note of nothing."""


class SignReader:
    """Reads the signs of processes below `proc`, and remembers the hash of each program file."""

    def __init__(self, proc: bytes = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._digests: Recent[_FileState, tuple[Reading[str], float]] = Recent(_MOST_REMEMBERED)

    def read(self, pid: int, start_ticks: int, alive: Callable[[], None] = _nothing) -> SignsOf:
        """Return what this very process shows; `alive` hears of each slice of a long reading.

        Raises ProcessLookupError when it is gone, or its pid is another's, else OSError or ValueError.
        """
        try:
            directory = os.open(self._proc + b"%d" % pid, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise gone(pid) from None
        try:
            if parse_stat(read_text(directory, "stat")).start_ticks != start_ticks:
                raise gone(pid)
            io_bytes = _tried(lambda: parse_io(read_text(directory, "io")))
            connections = _tried(lambda: _read_connections(directory))
            ancestors = self._ancestors(directory)
            sha256, file = self._hash(directory, alive)
        finally:
            os.close(directory)
        return SignsOf(pid, ProgramSigns(io_bytes, sha256, connections, ancestors), file)

    def _ancestors(self, directory: int) -> tuple[str, ...]:
        """Return the names of its parents, the nearest first; one that can't be read ends the line."""
        found: list[str] = []
        parent = parse_status(read_text(directory, "status")).ppid
        while parent > 0 and len(found) < MOST_ANCESTORS:
            try:
                text = read_whole(self._proc + b"%d/status" % parent).decode("utf-8", "surrogateescape")
                status: StatusText = parse_status(text)
            except (OSError, ValueError):
                break
            found.append(printable(text.partition("\n")[0].removeprefix("Name:\t")))
            parent = status.ppid
        return tuple(found)

    def _hash(self, directory: int, alive: Callable[[], None]) -> tuple[Reading[str], FileIdentity | None]:
        """Return the SHA-256 of its program's file, and which file that is."""
        try:
            descriptor = os.open("exe", _OPEN, dir_fd=directory)
        except OSError as error:
            return Unreadable(f"its program's file: {words_of(error)}"), None
        try:
            return self._known_or_read(descriptor, alive)
        except OSError as error:
            return Unreadable(f"its program's file: {words_of(error)}"), None
        finally:
            os.close(descriptor)

    def _known_or_read(
        self, descriptor: int, alive: Callable[[], None]
    ) -> tuple[Reading[str], FileIdentity | None]:
        """Return the hash of an open file: the one remembered while the file is unchanged."""
        found = os.fstat(descriptor)
        file, state = FileIdentity(found.st_dev, found.st_ino), _state_of(found)
        if not stat.S_ISREG(found.st_mode):
            return Unreadable("its program is no plain file"), file
        kept = self._digests.get(state)
        if kept is not None and (isinstance(kept[0], Known) or self._clock() < kept[1]):
            return kept[0], file
        digest = self._digest(descriptor, found, alive)
        self._digests.put(state, (digest, self._clock() + _SLOW_AGAIN_SECONDS))
        return digest, file

    def _digest(self, descriptor: int, found: os.stat_result, alive: Callable[[], None]) -> Reading[str]:
        """Return the hash of a file's whole content, or why there is none; raises OSError."""
        if found.st_size > MOST_FILE_BYTES:
            most = MOST_FILE_BYTES >> 20
            return Unreadable(f"its program's file has {found.st_size >> 20} MiB: over {most} are not hashed")
        until = self._clock() + MOST_HASH_SECONDS
        digest, left = hashlib.sha256(), found.st_size
        while left > 0 and (piece := os.read(descriptor, min(left, _SLICE_BYTES))):
            digest.update(piece)
            left -= len(piece)
            alive()
            if self._clock() >= until:
                return Unreadable(f"hashing its program's file took longer than {MOST_HASH_SECONDS:g} s")
        if left or _state_of(os.fstat(descriptor)) != _state_of(found):
            return Unreadable("its program's file changed while it was read")
        return Known(digest.hexdigest())


def _state_of(found: os.stat_result) -> _FileState:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _tried(read: Callable[[], T]) -> Reading[T]:
    """Return what was read, or why it could not be; a process that is gone is no reading."""
    try:
        return Known(read())
    except ProcessLookupError:
        raise
    except OSError as error:
        return Unreadable(words_of(error))
    except ValueError as error:
        return Unreadable(str(error))


def _read_connections(directory: int) -> tuple[Connection, ...]:
    """Return the other ends of its established connections; raises ValueError when there are too many."""
    sockets = _read_sockets(directory)
    if not sockets:
        return ()
    found: set[Connection] = set()
    for name in ("net/tcp", "net/tcp6"):
        try:
            table = _read_table(directory, name)
        except FileNotFoundError:  # a kernel without IPv6 has no second table
            if name == "net/tcp":
                raise
            continue
        found |= {row.remote for row in parse_tcp(table) if row.inode in sockets}
    return tuple(sorted(found, key=lambda one: (one.address, one.port)))


def _read_sockets(directory: int) -> frozenset[int]:
    """Return the inodes of the sockets that a process has open; raises ValueError past the bounds."""
    found: set[int] = set()
    folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_DESCRIPTORS:
                    raise ValueError(f"it has more than {MOST_DESCRIPTORS} descriptors open")
                try:
                    inode = socket_inode(os.readlink(entry.name, dir_fd=folder))
                except FileNotFoundError:
                    continue
                if inode is not None:
                    found.add(inode)
    finally:
        os.close(folder)
    if len(found) > MOST_SOCKETS:
        raise ValueError(f"it has more than {MOST_SOCKETS} sockets open")
    return frozenset(found)


def _read_table(directory: int, name: str) -> str:
    """Return a whole table of connections; raises OSError, and ValueError when it is too long."""
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    text = bytearray()
    try:
        while piece := os.read(descriptor, _PIECE_BYTES):
            text += piece
            if text.count(b"\n") > MOST_LINES + 1 or len(text) > MOST_LINES * _LINE_BYTES:
                raise ValueError(f"its network has more than {MOST_LINES} connections")
    finally:
        os.close(descriptor)
    return text.decode("ascii", "replace")
