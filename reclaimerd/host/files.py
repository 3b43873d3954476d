"""Opens files without following links, makes bytes durable, and tells who could have changed a file.

Every function here may block on the disk: none is called in the event loop. They raise OSError as
the kernel gives it (with a sentence where we refuse ourselves); callers translate.
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT_ALONE = frozenset({0})
"""The uids that are trusted with what the host itself runs."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
"""As many symbolic links as the kernel itself follows (path_resolution(7))."""
_SAFE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
"""O_NONBLOCK: a FIFO put in a file's place must not hang the opener; regular files ignore it."""


def ensure_directory(path: Path, mode: int, gid: int | None = None) -> None:
    """Make the directory (and what is missing above it, 0755) unless it is there; never a link.

    What exists is not changed, it might be somebody else's (`--state-dir /etc`): a directory that is
    not ours, or that its group or others may write, is refused with PermissionError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        made = False
    else:
        made = True
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS)
    try:
        status = os.fstat(descriptor)
        if made:
            if gid is not None:
                os.fchown(descriptor, -1, gid)
            os.fchmod(descriptor, mode)
        elif status.st_uid not in (0, os.geteuid()):
            why = f"the directory belongs to uid {status.st_uid}; chown it to root"
            raise PermissionError(errno.EPERM, why, str(path))
        elif status.st_mode & _OTHERS_WRITE:
            why = "the directory can be written by its group or by others; chmod go-w it"
            raise PermissionError(errno.EPERM, why, str(path))
    finally:
        os.close(descriptor)


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Return a descriptor of the directory, which is no link itself, for as long as the block runs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_below(directory_fd: int, name: str, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of the regular file `name` below a directory; no component may be a link.

    Raises OSError: ELOOP or ENOTDIR at a link, EINVAL for a name that leaves the directory or a file
    that is not a regular one.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise OSError(errno.EINVAL, "the name leaves its directory", name)
    folder = os.dup(directory_fd)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _SAFE_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(parts[-1], flags | _SAFE_FLAGS, mode, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return descriptor


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte; a short write (a disk that fills up) is carried on until it raises."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def append_durably(descriptor: int, content: bytes) -> None:
    """Write every byte and wait until the disk has them; on OSError some may stand in the file."""
    write_all(descriptor, content)
    os.fdatasync(descriptor)


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace the file whole: readers see the old bytes or the new ones, also after a power cut."""
    with opened_directory(path.parent) as directory:
        temporary = write_beside(directory, path.name, content, mode)
        try:
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)


def replace_plainly(path: Path, content: bytes, mode: int) -> None:
    """Replace the file whole for its readers, without a wait for the disk: a power cut may lose it."""
    with opened_directory(path.parent) as directory:
        temporary = _beside(directory, path.name, content, mode, lambda _fd: None)
        try:
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            os.unlink(temporary, dir_fd=directory)
            raise


def write_beside(directory_fd: int, name: str, content: bytes, mode: int = 0o600) -> str:
    """Return the name of a new durable file with these bytes, made beside `name` under a random name."""
    return _beside(directory_fd, name, content, mode, os.fsync)


def _beside(directory_fd: int, name: str, content: bytes, mode: int, sync: Callable[[int], None]) -> str:
    temporary = f".{name}.{secrets.token_hex(8)}.new"
    descriptor = open_below(directory_fd, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.fchmod(descriptor, mode)
        write_all(descriptor, content)
        sync(descriptor)
    except OSError:
        os.unlink(temporary, dir_fd=directory_fd)
        raise
    finally:
        os.close(descriptor)
    return temporary


def read_bounded(directory_fd: int, name: str, limit_bytes: int) -> bytes:
    """Return the whole content of a file below a directory; raise OSError (EFBIG) past the limit."""
    descriptor = open_below(directory_fd, name, os.O_RDONLY)
    chunks: list[bytes] = []
    left = limit_bytes + 1
    try:
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(descriptor)
    if left <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes", name)
    return b"".join(chunks)


def refuse_unsafe(path: Path) -> str | None:
    """Return why somebody other than root could change what stands at this path, or None.

    The file is opened once and judged by its descriptor; so is each folder and each link on the way.
    A folder may be writable when it is sticky, or when its mount is read-only.
    """
    try:
        resolved, concerns = walk_owners(path, ROOT_ALONE, most_concerns=1)
        if concerns:
            return concerns[0].text
        descriptor = os.open(resolved, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file"
    return next((concern.text for concern in file_concerns(path, status, ROOT_ALONE)), None)


@dataclass(frozen=True, slots=True)
class Concern:
    """One way for somebody who is not trusted to change what stands at a path; `mend` is a command."""

    path: Path
    why: str
    mend: str
    noun: str = ""

    @property
    def text(self) -> str:
        """Return the path and what is wrong with it."""
        return f"{self.path} {self.why}"


def walk_owners(
    path: Path, trusted: frozenset[int], *, most_concerns: int = sys.maxsize
) -> tuple[Path, tuple[Concern, ...]]:
    """Return the path without links, and what speaks against each folder and link on the way.

    `trusted` are the uids that may own them. With `most_concerns` found the walk ends where it is.
    Raises OSError when a part is missing or can't be looked at, and for a circle of links.
    """
    waiting = list(reversed(path.absolute().parts))
    current = Path(waiting.pop())
    concerns = dict.fromkeys(_folder_concerns(current, trusted))
    links = 0
    while waiting and len(concerns) < most_concerns:
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
            concerns.update(dict.fromkeys(_owner_concerns(entry, status, trusted)))
            target = entry.readlink()
            current = Path("/") if target.is_absolute() else current
            waiting.extend(reversed([step for step in target.parts if step != "/"]))
            continue
        current = entry
        if stat.S_ISDIR(status.st_mode):
            concerns.update(dict.fromkeys(_folder_concerns(entry, trusted)))
    return current, tuple(concerns)


def file_concerns(path: Path, status: os.stat_result, trusted: frozenset[int]) -> list[Concern]:
    """Return what speaks against an opened file."""
    return [*_owner_concerns(path, status, trusted), *_writer_concerns(path, status)]


def _folder_concerns(path: Path, trusted: frozenset[int]) -> list[Concern]:
    """Return what speaks against a folder on the way; a sticky one lets nobody replace another's files."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return []
    status = path.stat()
    writers = [] if status.st_mode & stat.S_ISVTX else _writer_concerns(path, status, "folder ")
    return [*_owner_concerns(path, status, trusted), *writers]


def _owner_concerns(path: Path, status: os.stat_result, trusted: frozenset[int]) -> list[Concern]:
    """Return what speaks against an owner."""
    if status.st_uid in trusted:
        return []
    return [Concern(path, f"belongs to uid {status.st_uid}, not to root", f"chown root {path}")]


def _writer_concerns(path: Path, status: os.stat_result, noun: str = "") -> list[Concern]:
    """Return what speaks against the permission bits."""
    if not status.st_mode & _OTHERS_WRITE:
        return []
    return [Concern(path, "can be written by its group or by others", f"chmod go-w {path}", noun)]
