"""The store as a file: how it is made, whether its outside can be trusted, and its schema by version.

A new store is made whole under another name and then renamed, so that a file at the store's path
was complete once: an empty one there is damage, never a beginning.
"""

import os
import sqlite3
import stat
from pathlib import Path
from urllib.parse import quote

from reclaimerd.errors import CorruptStoreError
from reclaimerd.host.files import open_below, opened_directory
from reclaimerd.record.faults import corrupt_store

_HEADER = b"SQLite format 3\x00"
_BUSY_SECONDS = 2.0
CACHE_KIB = 256
"""SQLite's own cache of 2 MiB fills when every page is checked, and each thread that reads keeps its heap."""
_CACHE = f"PRAGMA cache_size = -{CACHE_KIB}"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE incidents (
            id TEXT PRIMARY KEY, boot_id TEXT NOT NULL, ended INTEGER NOT NULL, opened_at REAL NOT NULL,
            doc TEXT NOT NULL)""",
        "CREATE INDEX incidents_by_time ON incidents (ended, opened_at)",
        "CREATE TABLE ledger (one INTEGER PRIMARY KEY CHECK (one = 1), doc TEXT NOT NULL)",
        "CREATE TABLE remembered (doc TEXT NOT NULL)",
        "CREATE TABLE baselines (gpu TEXT PRIMARY KEY, key TEXT NOT NULL, bytes INTEGER NOT NULL)",
        """CREATE TABLE anchor (
            one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL)""",
        "CREATE TABLE abandoned (role TEXT PRIMARY KEY, doc TEXT NOT NULL)",
    ),
    (
        """CREATE TABLE unsaid (
            number INTEGER PRIMARY KEY, batch INTEGER NOT NULL, incident TEXT NOT NULL, doc TEXT NOT NULL)""",
    ),
)
"""The statements that lead from version N (the index) to N + 1; a released one is never changed.

Step 2 is for the documents' sake too: what binds and an older reader would drop (resets under way, GPUs not
to be touched, drain requests, suspended rules) must make it refuse.
"""


LAST_BY_RULE = (
    "SELECT json_extract(doc, '$.actor.name'), MAX(opened_at) FROM incidents "
    "WHERE json_extract(doc, '$.actor.kind') = 'rule' GROUP BY 1"
)
"""SQLite reads the documents: made into values, thousands of them cost MiB that a thread's heap keeps."""


def refuse_untrusted(path: Path) -> None:
    """Raise CorruptStoreError when what stands at the path can't be a store that was ours.

    Raises OSError when it can't be looked at.
    """
    journal = path.with_name(f"{path.name}-wal")
    for each in (path, journal, path.with_name(f"{path.name}-shm")):
        if each.is_symlink():
            raise corrupt_store(each, "it is a symbolic link")
    try:
        status = path.lstat()
    except FileNotFoundError:
        if journal.exists():
            raise corrupt_store(path, "it is missing, but its journal (-wal) is there") from None
        return
    if not stat.S_ISREG(status.st_mode):
        raise corrupt_store(path, "it is not a regular file")
    with opened_directory(path.parent) as folder:
        descriptor = open_below(folder, path.name, os.O_RDONLY)
        try:
            header = os.read(descriptor, len(_HEADER))
        finally:
            os.close(descriptor)
    if header != _HEADER:
        why = "it is empty" if not header else "it does not begin as a SQLite file does"
        raise corrupt_store(path, why)


def file_at(path: Path) -> tuple[int, int] | None:
    """Return which file stands at the path (device and inode), or None for none that can be seen."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def connected(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Return a connection; a store on a read-only disk is read as it lies, when no journal is pending."""
    place = f"file:{quote(str(path))}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute(_CACHE)
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        journal = path.with_name(f"{path.name}-wal")
        if not read_only or (journal.exists() and journal.stat().st_size > 0):
            raise
        connection = sqlite3.connect(f"{place}&immutable=1", uri=True, isolation_level=None)
        connection.execute(_CACHE)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def make_store(path: Path) -> None:
    """Make an empty store with the newest schema unless there is one; whole or not at all."""
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}.new")
    with opened_directory(path.parent) as folder:
        for name in (unfinished.name, f"{unfinished.name}-wal", f"{unfinished.name}-shm"):
            unfinished.with_name(name).unlink(missing_ok=True)
        os.close(open_below(folder, unfinished.name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(unfinished, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            migrate(connection, path, "make")
        finally:
            connection.close()
        descriptor = open_below(folder, unfinished.name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(unfinished.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    purpose: str,
    migrations: tuple[tuple[str, ...], ...] = MIGRATIONS,
) -> None:
    """Bring the schema to the newest version, each step whole; a reader only checks that it can read.

    `purpose` is `make`, `write` or `read`. Raises CorruptStoreError for a version that is not ours.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    newest = len(migrations)
    if version > newest:
        raise CorruptStoreError(
            f"store: {path} has schema {version}, this version knows up to {newest}",
            "install the newer reclaimerd again, or move the store aside (what it remembers is then lost)",
        )
    if version == 0 and purpose != "make":
        raise corrupt_store(path, "it has no schema version")
    if version < newest and purpose == "read":
        raise CorruptStoreError(
            f"store: {path} has the older schema {version}",
            "start the daemon once: it brings it to the newest",
        )
    for index in range(version, newest):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[index]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {index + 1}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
