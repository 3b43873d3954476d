"""Plain blocking reads below /proc, by byte paths and directory descriptors, and errors in words.

For the procfs worker, because most of these reads may hang on a hostile process; the main process
reads with it only what can't (`children`).
"""
# Byte paths and directory descriptors, in the hot path: pathlib knows neither.
# ruff: noqa: PTH110, PTH116, PTH208

import errno
import os
import select

PROC = b"/proc/"
MOST_BYTES = 32 << 20
"""How much of one file is read at most."""
_PIECE_BYTES = 1 << 16
_FIRST_BYTES = 1 << 13
_NO_PROCESS = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})
"""What pidfd_open(2) says of a pid without a process: of one that was reaped, or of a thread."""


def words_of(error: OSError) -> str:
    """Return an error's cause in small words, as people read it."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def read_whole(path: bytes) -> bytes:
    """Return a proc file's text, at most 32 MiB of it; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(descriptor, _PIECE_BYTES)]
        size = len(pieces[0])
        while pieces[-1] and size < MOST_BYTES:
            pieces.append(os.read(descriptor, _PIECE_BYTES))
            size += len(pieces[-1])
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def read_tids(directory: int) -> list[int]:
    """Return the ids of a process's tasks; none when it is gone. Raises OSError for all else that fails."""
    try:
        folder = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except (FileNotFoundError, ProcessLookupError):
        return []
    try:
        return sorted(int(name) for name in os.listdir(folder))
    except (FileNotFoundError, ProcessLookupError):
        return []
    finally:
        os.close(folder)


def read_descriptor_count(folder: bytes) -> int:
    """Return how many descriptors are open (the folder's size since Linux 6.2, before that always 0)."""
    try:
        return os.stat(folder).st_size
    except OSError:
        return -1


def read_text(directory: int, name: str, most: int = MOST_BYTES) -> str:
    """Return a proc file's text, at most about `most` bytes of it; raises OSError.

    Small ones come whole in the first read; many groups or long cgroup paths need more.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        text = piece = os.read(descriptor, _FIRST_BYTES)
        while len(piece) == _FIRST_BYTES and len(text) < most:
            piece = os.read(descriptor, _FIRST_BYTES)
            text += piece
    finally:
        os.close(descriptor)
    return text.decode("utf-8", "surrogateescape")


def gone(pid: int) -> ProcessLookupError:
    """Return the error that says that there is no such process."""
    return ProcessLookupError(errno.ESRCH, "no such process", str(pid))


def lives(pid: int) -> bool:
    """Tell whether a process has a task that lives, without /proc: it may hide what exists.

    Raises OSError where no pidfd is to be had for want of ours; a thread's id is no process.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return False
        raise
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return not poller.poll(0)
    finally:
        os.close(descriptor)


def hides_processes() -> bool:
    """Tell whether /proc shows us less than there is (hidepid): the first process always lives."""
    return not os.path.exists(PROC + b"1")
