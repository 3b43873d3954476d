"""Keep the /proc files of holders open from one look to the next: opening them costs more than reading.

An open file of /proc stands for one life of one process: once that has been reaped every read of it
fails, also when its pid is another's by then. Each read asks the kernel anew and costs no descriptor
of the process itself. For the procfs worker alone: any of these reads may hang.
"""

import errno
import os
from collections import OrderedDict
from dataclasses import dataclass

from reclaimerd.observe.proc_files import MOST_BYTES, gone

MOST_OPEN = 128
"""Four descriptors each, below the usual limit of 1,024; past it the one used least recently goes."""
_PIECE_BYTES = 1 << 13
_READ = os.O_RDONLY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenProcess:
    """Descriptors of one process: its folder, its leader's stat, its status and its cgroup."""

    directory: int
    stat: int
    status: int
    cgroup: int

    def close(self) -> None:
        """Close them all."""
        for descriptor in (self.directory, self.stat, self.status, self.cgroup):
            os.close(descriptor)


def open_process(root: bytes, pid: int) -> OpenProcess:
    """Open a process below `root`; raises ProcessLookupError when it is gone, else OSError.

    A folder on another file system than `root` is nobody's: somebody mounted over it (PermissionError).
    """
    opened: list[int] = []
    try:
        opened.append(os.open(root + b"%d" % pid, _READ | os.O_DIRECTORY))
        if os.fstat(opened[0]).st_dev != os.stat(root).st_dev:  # noqa: PTH116  # a byte path
            raise PermissionError(errno.EACCES, "something is mounted over its entry in /proc")
        opened.extend(
            os.open(name, _READ, dir_fd=opened[0]) for name in (f"task/{pid}/stat", "status", "cgroup")
        )
        return OpenProcess(*opened)
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        if isinstance(error, FileNotFoundError):
            raise gone(pid) from None
        raise


class OpenProcesses:
    """The processes that are kept open, at most `MOST_OPEN` of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, OpenProcess] = OrderedDict()

    def kept(self, pid: int) -> OpenProcess | None:
        """Return what is open of this pid, and count it as used."""
        found = self._kept.get(pid)
        if found is not None:
            self._kept.move_to_end(pid)
        return found

    def keep(self, pid: int, opened: OpenProcess) -> None:
        """Keep a process open; the one used least recently makes room."""
        self.drop(pid)
        self._kept[pid] = opened
        if len(self._kept) > MOST_OPEN:
            self._kept.popitem(last=False)[1].close()

    def drop(self, pid: int) -> None:
        """Close what is open of this pid."""
        found = self._kept.pop(pid, None)
        if found is not None:
            found.close()

    def __del__(self) -> None:
        """Close everything: a reader that is let go leaves no descriptor."""
        for opened in self._kept.values():
            opened.close()


def read_now(descriptor: int, pid: int) -> str:
    """Return what an open proc file says now; raises ProcessLookupError when its process is gone."""
    text = piece = os.pread(descriptor, _PIECE_BYTES, 0)
    while len(piece) == _PIECE_BYTES and len(text) < MOST_BYTES:
        piece = os.pread(descriptor, _PIECE_BYTES, len(text))
        text += piece
    if not text:
        raise gone(pid)
    return text.decode("utf-8", "surrogateescape")
