"""Turns the kernel's and SQLite's errors into one sentence with its mend.

Nothing is retried or decided here.
"""

import errno
import os
import sqlite3
from pathlib import Path

from reclaimerd.errors import CorruptStoreError, ReclaimerdError, RecordError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_CORRUPT_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA})
_DISK_CODES = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""How SQLite reports a full disk when it grows its shared memory file."""
_UNTIL = "no act follows until records are durable again"


class NoSpaceError(RecordError):
    """The disk is full: an operator's act may still use the reserve."""


def record_error(what: str, path: Path, error: OSError) -> RecordError:
    """Return the error that says which record could not be made durable, and how to mend it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return NoSpaceError(f"{what}: no space left on the disk of {path}", f"free some; {_UNTIL}")
        case errno.EROFS:
            return RecordError(f"{what}: the file system of {path} is read-only", f"remount it; {_UNTIL}")
        case errno.EACCES | errno.EPERM:
            why = error.strerror or "permission denied"
            return RecordError(f"{what}: {path} may not be written ({why})", "run as root, check its owner")
        case errno.ELOOP:
            return RecordError(
                f"{what}: {path} or a part of it is a symbolic link", "replace it by a real file"
            )
        case _:
            return RecordError(f"{what}: {path}: {error.strerror or error}", _UNTIL)


def store_error(path: Path, error: sqlite3.Error) -> ReclaimerdError:
    """Return what a SQLite error means: a store that can't be trusted, or one that can't be written."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in _CORRUPT_CODES or _is_missing_table(error):
        return corrupt_store(path, str(error))
    if primary == sqlite3.SQLITE_FULL or (primary in _DISK_CODES and _is_full(path)):
        return record_error("store", path, OSError(errno.ENOSPC, str(error)))
    if primary == sqlite3.SQLITE_READONLY:
        return record_error("store", path, OSError(errno.EROFS, str(error)))
    if primary == sqlite3.SQLITE_BUSY:
        return RecordError(f"store: another process writes to {path}", "stop it; there is one writer")
    return RecordError(f"store: {path}: {error}", _UNTIL)


def corrupt_store(path: Path, why: str) -> CorruptStoreError:
    """Return the error for a store that can't be trusted, with the mend and what it costs."""
    return CorruptStoreError(
        f"store: {path} can't be trusted: {why}",
        f"move it aside (mv {path} {path}.corrupt, with its -wal and -shm) and start again; what is lost: "
        "open incidents, spent budgets, a pause, remembered holders and the audit log's anchor "
        "(the audit log itself stays)",
    )


def lost_store(path: Path) -> RecordError:
    """Return the error for a store that was taken away, or replaced, while it was open."""
    return RecordError(
        f"store: {path} is gone, or another file stands in its place",
        f"put it back, or restart reclaimerd, which begins a new one; {_UNTIL}",
    )


def _is_missing_table(error: sqlite3.Error) -> bool:
    """Tell whether SQLite met a database without our tables: it says so in words only."""
    text = str(error)
    return text.startswith(("no such table", "no such column"))


def _is_full(path: Path) -> bool:
    """Tell whether the disk has no block left for us."""
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
