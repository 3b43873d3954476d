"""What a save replaced, so that a change whose commit failed can be taken back; when, the recorder says.

A commit may fail after its save: then who asked was told that nothing was done, and the next start must not
find an incident, a pause or a reset in the store that nobody else knows of.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows as they stood before a save, whose records are `batch`; a ledger of None was not changed."""

    ids: tuple[str, ...]
    incidents: tuple[tuple[Any, ...], ...]
    ledger: tuple[tuple[Any, ...], ...] | None
    batch: int = 0


def read_replaced(connection: sqlite3.Connection, ids: Sequence[str], *, with_ledger: bool) -> Replaced:
    """Return what stands where these incidents, and the ledger, are about to be put."""
    found = (connection.execute("SELECT * FROM incidents WHERE id = ?", (one,)).fetchall() for one in ids)
    ledger = connection.execute("SELECT * FROM ledger").fetchall() if with_ledger else None
    rows = tuple(row for rows in found for row in rows)
    return Replaced(tuple(ids), rows, None if ledger is None else tuple(ledger))


def put_back(connection: sqlite3.Connection, replaced: Replaced) -> None:
    """Put the rows back as they were; the records of what is taken back are nobody's any more."""
    connection.executemany("DELETE FROM incidents WHERE id = ?", [(one,) for one in replaced.ids])
    connection.executemany("INSERT INTO incidents VALUES (?, ?, ?, ?, ?)", replaced.incidents)
    if replaced.ledger is not None:
        connection.execute("DELETE FROM ledger")
        connection.executemany("INSERT INTO ledger VALUES (?, ?)", replaced.ledger)
    connection.execute("DELETE FROM unsaid WHERE batch = ?", (replaced.batch,))
