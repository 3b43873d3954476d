"""Opens the policy file once, and tells who could have written it.

It reads the file system and nothing else; it decides nothing about the file's content.
"""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MOST_FILE_BYTES = 1024 * 1024
_MOST_LINKS = 40
"""As many symbolic links as the kernel itself follows (path_resolution(7))."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of one policy file; `concerns` says who but root could change it, a line each."""

    path: Path
    content: bytes
    concerns: tuple[str, ...]


def read_source(path: Path) -> Source:
    """Return the file's bytes and ownership; raise OSError when it is no regular file we can read.

    Links are followed first, each folder and link on the way is looked at, and the file itself is
    judged by the opened descriptor, so what was judged is what was read.
    """
    resolved, concerns = _walk(path)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(resolved, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = _read_all(descriptor)
    finally:
        os.close(descriptor)
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_FILE_BYTES} bytes", str(path))
    return Source(path, content, (*concerns, *_file_concerns(resolved, status)))


def _read_all(descriptor: int) -> bytes:
    """Return the content up to one byte past the limit."""
    chunks: list[bytes] = []
    left = MOST_FILE_BYTES + 1
    while left > 0 and (chunk := os.read(descriptor, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _walk(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the path without links, and what speaks against each folder and link on the way."""
    waiting = list(reversed(path.absolute().parts))
    current = Path(waiting.pop())
    concerns: dict[str, None] = dict.fromkeys(_folder_concerns(current))
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            current = current.parent
            continue
        entry = current / part
        status = entry.lstat()
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            concerns.update(dict.fromkeys(_owner_concerns(entry, status.st_uid)))
            target = entry.readlink()
            current = Path("/") if target.is_absolute() else current
            waiting.extend(reversed([step for step in target.parts if step != "/"]))
            continue
        current = entry
        if stat.S_ISDIR(status.st_mode):
            concerns.update(dict.fromkeys(_folder_concerns(entry)))
    return current, tuple(concerns)


def _trusted_uids() -> frozenset[int]:
    """Return who may own the policy: root, and without root (a demo) ourselves."""
    return frozenset({0, os.geteuid()})


def _owner_concerns(path: Path, uid: int) -> list[str]:
    """Return what speaks against an owner."""
    if uid in _trusted_uids():
        return []
    return [f"{path} belongs to uid {uid}, not to root; chown root {path}"]


def _file_concerns(path: Path, status: os.stat_result) -> list[str]:
    """Return what speaks against the opened file."""
    concerns = _owner_concerns(path, status.st_uid)
    if status.st_mode & _OTHERS_WRITE:
        concerns.append(f"{path} can be written by its group or by others; chmod go-w {path}")
    return concerns


def _folder_concerns(path: Path) -> list[str]:
    """Return what speaks against a folder; a sticky one lets nobody replace another's files."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return []
    status = path.stat()
    concerns = _owner_concerns(path, status.st_uid)
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        concerns.append(f"folder {path} can be written by its group or by others; chmod go-w {path}")
    return concerns
