"""An index of the audit log: where each record stands and what it can be found by, in SQLite.

Never the source of truth: it names lines, and whoever asks reads the line itself. It is made from the
log, beside it, by whoever may write there (root), and may be removed at any time. A reader who may not
write uses what there is; what is not indexed yet, is read from the log.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from reclaimerd.errors import RecordError
from reclaimerd.record.audit_files import LogFile, each_file, lines_forward
from reclaimerd.record.audit_filter import WORDS, Filter, keys_of
from reclaimerd.record.audit_read import record_of
from reclaimerd.record.chain import link_of

INDEX_NAME = "audit-index.sqlite"
SCHEMA = 2
_MODE = 0o640
_BUSY_SECONDS = 0.2
_BATCH = 5000
_MOST_CACHED_WORDS = 50_000
_TABLES = (
    "CREATE TABLE files (file INTEGER PRIMARY KEY, reach INT, place INT, length INT, mark INT)",
    "CREATE TABLE words (id INTEGER PRIMARY KEY, what INTEGER, text TEXT, UNIQUE (what, text))",
    "CREATE TABLE records (file INTEGER, place INTEGER, length INTEGER, mark INTEGER, at REAL, uid INTEGER, "
    + ", ".join(f"{word} INTEGER" for word in WORDS)
    + ", PRIMARY KEY (file, place)) WITHOUT ROWID",
    f"PRAGMA user_version = {SCHEMA}",
)
_INSERT = f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * (6 + len(WORDS)))})"  # noqa: S608 (marks)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record's line stands in a file; `mark` is the beginning of the hash it had then."""

    offset: int
    length: int
    mark: int


def mark_of(line: bytes) -> int | None:
    """Return the first eight bytes of a whole record's own hash, or None where its bytes don't match it."""
    link = link_of(line)
    return None if link is None or link.fault is not None else _mark(link.hash)


def _mark(digest: str) -> int:
    return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)


class AuditIndex:
    """An open index of one log directory."""

    __slots__ = ("_connection", "_words")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._words: dict[tuple[int, str], int] = {}

    @classmethod
    def open(cls, directory: Path, *, write: bool) -> "AuditIndex | None":
        """Return the index, or None where there is none that may be used; `write` makes one.

        One that belongs to somebody else, that others may write, or that is damaged is not used, and is
        replaced where we write. Raises OSError and RecordError.
        """
        path = directory / INDEX_NAME
        if _is_ours(path):
            with suppress(sqlite3.Error):
                return cls(_connected(path, write=write))
        if not write:
            return None
        try:
            _make(path)
            return cls(_connected(path, write=True))
        except sqlite3.Error as error:
            raise index_error(path, error) from error

    def close(self) -> None:
        """Let go of it."""
        self._connection.close()

    def indexed_bytes(self, file: LogFile) -> int:
        """Return how far a file is indexed, 0 where what is there is not what was indexed.

        The last indexed line is read and compared: a file that was cut or written anew shows there.
        """
        row = self._connection.execute(
            "SELECT reach, place, length, mark FROM files WHERE file = ?", (file.key,)
        ).fetchone()
        if row is None or file.content.size < row[0]:
            return 0
        return row[0] if mark_of(file.content.read_at(row[1], row[2])) == row[3] else 0

    def update(self, directory: Path) -> int:
        """Bring it up to date with the log, a file at a time; return how many records were added.

        Raises OSError for the log, RecordError for the index.
        """
        added = 0
        keys: set[int] = set()
        try:
            for file in each_file(directory):
                keys.add(file.key)
                added += self._add(file)
            known = {int(row[0]) for row in self._connection.execute("SELECT file FROM files")}
            self._forget(known - keys)
        except sqlite3.Error as error:
            raise index_error(directory / INDEX_NAME, error) from error
        return added

    def _forget(self, gone: set[int]) -> None:
        """Remove files that are no longer in the log, and the words that only they had."""
        if not gone:
            return
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for table in ("files", "records"):
                statement = f"DELETE FROM {table} WHERE file = ?"  # noqa: S608 (names of ours)
                self._connection.executemany(statement, [(key,) for key in gone])
            for number, word in enumerate(WORDS):
                statement = f"DELETE FROM words WHERE what = ? AND id NOT IN (SELECT {word} FROM records)"  # noqa: S608 (the same)
                self._connection.execute(statement, (number,))

    def _add(self, file: LogFile) -> int:
        """Index what is new in one file, all of it or nothing."""
        start = self.indexed_bytes(file)
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            if not start:
                self._connection.execute("DELETE FROM records WHERE file = ?", (file.key,))
            self._words.clear()
            added, last = 0, None
            rows: list[tuple[Any, ...]] = []
            for place, line, whole in lines_forward(file.content, start):
                link = link_of(line) if whole else None
                record = record_of(line) if link is not None else None
                if link is None or record is None:
                    continue
                stands = (place, len(line), _mark(link.hash) if link.fault is None else 0)
                last = stands if link.fault is None else last
                rows.append((file.key, *stands, *self._columns(record)))
                added += 1
                if len(rows) >= _BATCH:
                    self._connection.executemany(_INSERT, rows)
                    rows.clear()
            self._connection.executemany(_INSERT, rows)
            if last is not None:
                row = (file.key, last[0] + last[1] + 1, *last)
                self._connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", row)
        return added

    def _columns(self, record: dict[str, Any]) -> tuple[Any, ...]:
        at, uid, *words = keys_of(record)
        return (at, uid, *(self._word(number, _storable(str(word))) for number, word in enumerate(words)))

    def _word(self, what: int, text: str) -> int:
        """Return the number of a word, which it gets when it is new."""
        key = (what, text)
        number = self._words.get(key)
        if number is not None:
            return number
        row = self._connection.execute("SELECT id FROM words WHERE what = ? AND text = ?", key).fetchone()
        if row is None:
            row = (self._connection.execute("INSERT INTO words (what, text) VALUES (?, ?)", key).lastrowid,)
        if len(self._words) >= _MOST_CACHED_WORDS:
            self._words.clear()
        self._words[key] = int(row[0])
        return int(row[0])

    def prepare(self, wanted: Filter) -> None:
        """Choose the words that have what is asked for, once for all files; raises sqlite3.Error."""
        self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS chosen (what INTEGER, id INTEGER)")
        self._connection.execute("DELETE FROM chosen")
        self._connection.create_function("takes", 2, lambda what, text: wanted.takes_word(WORDS[what], text))
        for word in wanted.word_tests():
            condition, values = _condition(word, wanted)
            statement = f"INSERT INTO chosen SELECT what, id FROM words WHERE what = ? AND {condition}"  # noqa: S608 (ours)
            self._connection.execute(statement, (WORDS.index(word), *values))

    def places(self, file: LogFile, wanted: Filter, before: int, *, newest_first: bool) -> Iterator[Place]:
        """Return where a file's records stand that have what is asked for; the text is not looked at.

        `before` is what `indexed_bytes` said: what lies behind it is read from the log. `prepare` comes
        first. Raises sqlite3.Error when the index turns out to be damaged.
        """
        conditions = ["file = ?", "place < ?"]
        values: list[float] = [file.key, before]
        bounds = (("at >= ?", wanted.since), ("at < ?", wanted.until), ("uid = ?", wanted.uid))
        for condition, value in bounds:
            if value is not None:
                conditions.append(condition)
                values.append(value)
        conditions.extend(
            f"{word} IN (SELECT id FROM chosen WHERE what = {WORDS.index(word)})"  # noqa: S608 (ours)
            for word in wanted.word_tests()
        )
        order = "DESC" if newest_first else "ASC"
        query = (
            f"SELECT place, length, mark FROM records WHERE {' AND '.join(conditions)} ORDER BY place {order}"  # noqa: S608 (the same)
        )
        for row in self._connection.execute(query, values):
            yield Place(*row)


def index_error(path: Path, error: sqlite3.Error) -> RecordError:
    """Return the error for an index that can't be made; the log itself can be read all the same."""
    return RecordError(
        f"the index {path} can't be made: {error}", "look at its disk; the log is not concerned"
    )


def _storable(text: str) -> str:
    """Return a word as SQLite takes it: JSON, and a shell's argument, may hold half a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _condition(word: str, wanted: Filter) -> tuple[str, tuple[str, ...]]:
    """Return how SQL finds the words of one field: as `Filter.takes_word` does, which is slow for many."""
    match word:
        case "incident" if wanted.incidents:
            return "takes(what, text)", ()
        case "kind" | "incident" | "action":
            return "text = ?", (_storable(str(getattr(wanted, word))),)
        case "pids":
            return "instr(text, ?) AND takes(what, text)", (str(wanted.pid),)
        case "workload":
            return "instr(text, ?) AND takes(what, text)", (_storable(wanted.job or wanted.pod),)
        case _:
            return "takes(what, text)", ()


def _is_ours(path: Path) -> bool:
    """Tell whether there is an index that root or we own and nobody else may write."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    mine = status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(status.st_mode) and mine


def _make(path: Path) -> None:
    """Make an empty index in place of what is there; it belongs to the group that may read the log."""
    for each in (path, path.with_name(f"{path.name}-journal")):
        with suppress(FileNotFoundError):
            each.unlink()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
    try:
        os.fchown(descriptor, -1, path.parent.stat().st_gid)
        os.fchmod(descriptor, _MODE)
    finally:
        os.close(descriptor)
    connection = _connected(path, write=True, made=True)
    try:
        for statement in _TABLES:
            connection.execute(statement)
    finally:
        connection.close()


def _connected(path: Path, *, write: bool, made: bool = False) -> sqlite3.Connection:
    """Return a connection to an index of this schema; raises sqlite3.Error."""
    mode = "rw" if write else "ro"
    place = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not made and version != SCHEMA:
            raise sqlite3.DatabaseError("it has another schema")
        # A power cut may cost the index, never a record: it is made again.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
