"""What must survive a restart, in SQLite: incidents, ledger, remembered holders, the audit's anchor.

It runs in the recorder's thread, or read-only in a client. A store that can't be trusted raises
CorruptStoreError and is never taken as empty; only a store that is not there at all is new.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from reclaimerd.errors import RecordError
from reclaimerd.host.wire import Decoder, to_json
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Incident, Stage, newest_acted
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.memory import Baseline, RememberedHolder
from reclaimerd.record.chain import Head
from reclaimerd.record.faults import corrupt_store, lost_store, record_error, store_error
from reclaimerd.record.store_file import (
    LAST_BY_RULE,
    connected,
    file_at,
    make_store,
    migrate,
    refuse_untrusted,
)
from reclaimerd.record.store_undo import Replaced, put_back, read_replaced

STORE_NAME = "store.sqlite"
_MOST_ENDED = 2000
"""Ended incidents that are kept for `incidents list`; the audit log has them all."""
_FORGET_OLDEST = (
    "DELETE FROM incidents WHERE ended = 1 AND id NOT IN "
    "(SELECT id FROM incidents WHERE ended = 1 ORDER BY opened_at DESC LIMIT ?)"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AbandonedWorker:
    """A probe worker that SIGKILL could not end; while it lives no other of its role is started.

    `silent_since` (monotonic of its boot, None: it answered) and `alarmed` let the next start go on
    with the clock of its silence.
    """

    role: str
    ref: ProcessRef
    silent_since: float | None = None
    alarmed: bool = False


@dataclass(frozen=True, slots=True)
class Unsaid:
    """A record that the store was told of and the audit log may not have: we ended between the two."""

    batch: int
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class Stored:
    """All that a start needs to know of the time before."""

    open_incidents: tuple[Incident, ...] = ()
    handed_over: tuple[Incident, ...] = ()
    """Newest first: those whose target may still die late."""
    ledger: Ledger = field(default_factory=Ledger)
    remembered: tuple[RememberedHolder, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    anchor: Head | None = None
    abandoned: tuple[AbandonedWorker, ...] = ()
    last_acted: Incident | None = None
    """Of the newest incidents the one whose last step is the newest."""
    unsaid: tuple[Unsaid, ...] = ()
    """In the order in which they were to be written."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What to keep of healthy times; None leaves a part as it is."""

    holders: tuple[RememberedHolder, ...] | None = None
    baselines: tuple[Baseline, ...] | None = None
    abandoned: tuple[AbandonedWorker, ...] | None = None


_NEWEST_ENDED = "SELECT doc FROM incidents WHERE ended = 1 ORDER BY opened_at DESC, id DESC LIMIT ?"
_MOST_HANDED_OVER = 256
"""How many ended incidents are looked through at a start."""
_INCIDENT = Decoder(Incident)
_LEDGER = Decoder(Ledger)
_HOLDER = Decoder(RememberedHolder)
_WORKER = Decoder(AbandonedWorker)
_ENTRY = Decoder(AuditEntry)


class Store:
    """The open store. Every method raises RecordError or CorruptStoreError, never sqlite3's own."""

    __slots__ = ("_connection", "_file", "_path", "_replaced")

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._file = file_at(path)
        self._replaced: Replaced | None = None

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> "Store":
        """Return the store at `path`, made new (0600) when there is none and it may be written.

        Header, pages and every open incident are checked. Raises CorruptStoreError for damage or a
        newer schema, RecordError when it can't be opened.
        """
        try:
            refuse_untrusted(path)
            if not read_only:
                make_store(path)
            elif not path.exists():
                raise RecordError(f"store: there is none at {path}", "nothing was recorded there yet")
            connection = connected(path, read_only=read_only)
        except OSError as error:
            raise record_error("store", path, error) from error
        except sqlite3.Error as error:
            raise store_error(path, error) from error
        store = cls(connection, path)
        try:
            store._prepare("read" if read_only else "write")
            if not read_only:
                store.load()
        except BaseException:
            connection.close()
            raise
        return store

    def close(self) -> None:
        """Close the store; every change is durable already."""
        with suppress(sqlite3.Error):
            self._connection.close()

    def load(self) -> Stored:
        """Return everything a start needs; each row is decoded, and one that can't be is corruption."""
        with self._translated():
            rows = self._connection.execute(
                "SELECT doc FROM incidents WHERE ended = 0 ORDER BY opened_at, id"
            )
            incidents = self._decoded(_INCIDENT, rows)
            ended = self._decoded(_INCIDENT, self._connection.execute(_NEWEST_ENDED, (_MOST_HANDED_OVER,)))
            ledgers = self._decoded(_LEDGER, self._connection.execute("SELECT doc FROM ledger"))
            holders = self._decoded(_HOLDER, self._connection.execute("SELECT doc FROM remembered"))
            workers = self._decoded(_WORKER, self._connection.execute("SELECT doc FROM abandoned"))
            least = self._connection.execute("SELECT gpu, key, bytes FROM baselines").fetchall()
            unsaid = self._connection.execute("SELECT doc FROM unsaid ORDER BY number")
            entries = self._decoded(_ENTRY, unsaid)
            batches = self._connection.execute("SELECT batch FROM unsaid ORDER BY number").fetchall()
        return Stored(
            open_incidents=incidents,
            handed_over=tuple(
                one for one in ended if one.stage is Stage.HANDED_OVER and one.released_at is None
            ),
            ledger=ledgers[0] if ledgers else Ledger(),
            remembered=holders,
            baselines=tuple(Baseline(GpuUuid(gpu), key, used) for gpu, key, used in least),
            anchor=self.read_anchor(),
            abandoned=workers,
            last_acted=newest_acted((*incidents, *ended)),
            unsaid=tuple(Unsaid(int(row[0]), entry) for row, entry in zip(batches, entries, strict=True)),
        )

    def read_anchor(self) -> Head | None:
        """Return the last audit record that was anchored, or None in a new store."""
        with self._translated():
            row = self._connection.execute("SELECT seq, hash FROM anchor").fetchone()
        return None if row is None else Head(int(row[0]), str(row[1]))

    def incident(self, incident: IncidentId) -> Incident | None:
        """Return one incident, or None when it is not known (any more)."""
        with self._translated():
            rows = self._connection.execute("SELECT doc FROM incidents WHERE id = ?", (incident,))
            found = self._decoded(_INCIDENT, rows)
        return found[0] if found else None

    def incidents(self, *, limit: int = 100, open_only: bool = False) -> tuple[Incident, ...]:
        """Return incidents, newest first."""
        wanted = "WHERE ended = 0" if open_only else ""
        # The only text put together here is one of two constants.
        query = f"SELECT doc FROM incidents {wanted} ORDER BY opened_at DESC, id DESC LIMIT ?"  # noqa: S608
        with self._translated():
            return self._decoded(_INCIDENT, self._connection.execute(query, (limit,)))

    def last_by_rule(self) -> dict[str, float]:
        """Return when each rule opened its newest incident that is still here (wall-clock seconds)."""
        with self._translated():
            return dict(self._connection.execute(LAST_BY_RULE).fetchall())

    def save(
        self,
        incidents: Sequence[Incident],
        ledger: Ledger | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """Make incidents and ledger durable in one transaction; a ledger of None stays as it is.

        `entries`, the records of this very change, are kept with it until `anchor` is told the number that
        this returns: a death before the log has them loses none. What is replaced takes its own with it.
        """
        rows = [(one.id, one.boot_id, one.ended, one.opened_at, to_json(one)) for one in incidents]
        ids = [one.id for one in incidents]
        with self._transaction() as connection:
            before = read_replaced(connection, ids, with_ledger=ledger is not None)
            connection.executemany("INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?)", rows)
            if any(one.ended for one in incidents):
                connection.execute(_FORGET_OLDEST, (_MOST_ENDED,))
            if ledger is not None:
                connection.execute("INSERT OR REPLACE INTO ledger VALUES (1, ?)", (to_json(ledger),))
            replaced = [*ids, *([""] if ledger is not None else [])]
            connection.executemany("DELETE FROM unsaid WHERE incident = ?", [(one,) for one in replaced])
            newest = connection.execute("SELECT COALESCE(MAX(batch), 0) FROM unsaid").fetchone()
            batch = int(newest[0]) + 1
            kept = [(batch, entry.incident or "", to_json(entry)) for entry in entries]
            connection.executemany("INSERT INTO unsaid (batch, incident, doc) VALUES (?, ?, ?)", kept)
        self._replaced = replace(before, batch=batch)
        return batch

    def take_back(self) -> None:
        """Undo the last save: what it replaced stands again, and its records are not kept; once."""
        if self._replaced is not None:
            with self._transaction() as connection:
                put_back(connection, self._replaced)
            self._replaced = None

    def anchor(self, head: Head, batches: Sequence[int] = ()) -> None:
        """Make the audit log's head durable; it has the records of these batches now."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO anchor VALUES (1, ?, ?)", (head.seq, head.hash))
            connection.executemany("DELETE FROM unsaid WHERE batch = ?", [(one,) for one in batches])

    def remember(self, remembered: Remembered) -> None:
        """Replace each part that is not None, all in one transaction."""
        with self._transaction() as connection:
            if remembered.holders is not None:
                connection.execute("DELETE FROM remembered")
                docs = [(to_json(one),) for one in remembered.holders]
                connection.executemany("INSERT INTO remembered VALUES (?)", docs)
            if remembered.baselines is not None:
                connection.execute("DELETE FROM baselines")
                least = [(one.gpu, one.key, one.used_bytes) for one in remembered.baselines]
                connection.executemany("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?)", least)
            if remembered.abandoned is not None:
                connection.execute("DELETE FROM abandoned")
                workers = [(one.role, to_json(one)) for one in remembered.abandoned]
                connection.executemany("INSERT OR REPLACE INTO abandoned VALUES (?, ?)", workers)

    def _prepare(self, purpose: str) -> None:
        """Check every page, bring the schema up to date, and set how durable a commit is."""
        with self._translated():
            found = [str(row[0]) for row in self._connection.execute("PRAGMA quick_check(3)")]
        if found != ["ok"]:
            raise corrupt_store(self._path, "; ".join(found))
        with self._translated():
            migrate(self._connection, self._path, purpose)
            if purpose == "write":
                self._connection.execute("PRAGMA synchronous=FULL")
                self._connection.execute(_FORGET_OLDEST, (_MOST_ENDED,))

    def _decoded(self, decoder: Decoder[T], rows: sqlite3.Cursor) -> tuple[T, ...]:
        """Return each row's document; raise CorruptStoreError for one that is none."""
        try:
            return tuple(decoder.decode(str(row[0])) for row in rows.fetchall())
        except ValueError as error:
            raise corrupt_store(self._path, f"a row can't be read: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in one durable transaction, or leave everything as it was."""
        if file_at(self._path) != self._file:  # SQLite would write on into a file that nobody finds again
            raise lost_store(self._path)
        with self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error
