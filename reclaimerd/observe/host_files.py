"""Which program files are the host's own: a path can be bought, root's file can't.

A container or an ordinary user can run foreign code from a file of any name; only a regular file
of the host's mount namespace that nobody but root can write or replace says which program it is.
"""
# A pathlib.Path would tidy the very text that is judged.
# ruff: noqa: PTH115, PTH116, PTH207

import errno
import glob
import os
import stat
from collections.abc import Sequence

from reclaimerd.model.identity import FileIdentity

_MOST_LINKS = 40
"""As many symbolic links as the kernel itself follows (path_resolution(7))."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_host_files(globs: Sequence[str]) -> dict[str, FileIdentity]:
    """Return device and inode of each file that these absolute globs match, by its matched path.

    Only regular files of root, not writable by group or others, all of whose parents (of the path
    and of what its links lead to) are so too; anything else, also a link that leads nowhere, is
    left out. Where our mount namespace is not the host's (a service manager's sandbox is one), the
    host's is read through process 1, and links lead where they lead for it.
    """
    prefix = "" if _is_host_mount_namespace() else "/proc/1/root"
    found: dict[str, FileIdentity] = {}
    for pattern in globs:
        for path in sorted(glob.glob(prefix + pattern)):
            identity = _host_file(path, prefix)
            if identity is not None:
                found[path.removeprefix(prefix)] = identity
    return found


def _is_host_mount_namespace() -> bool:
    """Tell whether process 1 sees our files; if that can't be told, it is taken so."""
    try:
        return os.readlink("/proc/self/ns/mnt") == os.readlink("/proc/1/ns/mnt")
    except OSError:
        return True


def _host_file(path: str, prefix: str) -> FileIdentity | None:
    """Return a file's identity if it and all above it are root's alone."""
    try:
        real = _walked(path, prefix) if prefix else os.path.realpath(path, strict=True)
        named = () if prefix else (path, real)
        if not all(_is_roots_folder(folder) for one in named for folder in _parents(one)):
            return None
        found = os.lstat(real)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or not _is_roots_alone(found):
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def _walked(path: str, prefix: str) -> str:
    """Return the path without links below another root, whose every folder on the way is root's alone.

    Raises OSError, PermissionError for a folder that is not.
    """
    waiting = path.removeprefix(prefix).split("/")[::-1]
    here, links = "", 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            here = here.rpartition("/")[0]
        elif part not in ("", "."):
            folder = prefix + (here or "/")
            if not _is_roots_folder(folder):
                raise PermissionError(errno.EPERM, "others may change the folder", folder)
            entry = f"{here}/{part}"
            if not stat.S_ISLNK(os.lstat(prefix + entry).st_mode):
                here = entry
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(prefix + entry)
            here = "" if target.startswith("/") else here
            waiting += target.split("/")[::-1]
    return prefix + here


def _parents(path: str) -> list[str]:
    """Return every directory above a file."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) or "/" for depth in range(1, len(parts) + 1)]


def _is_roots_folder(folder: str) -> bool:
    """Tell whether a directory is root's and nobody else may write it; raises OSError."""
    found = os.stat(folder)
    return stat.S_ISDIR(found.st_mode) and _is_roots_alone(found)


def _is_roots_alone(found: os.stat_result) -> bool:
    """Tell whether root owns it and neither group nor others may write it."""
    return found.st_uid == 0 and found.st_mode & _OTHERS_MAY_WRITE == 0
