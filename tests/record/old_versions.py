"""State that each released version left behind: killed in mid-ladder, paused, a reclaim before that.

Each was written by that version's own daemon in its simulation. A store is kept as the SQL that makes it.
"""

import shutil
import sqlite3
from pathlib import Path

RELEASED = Path(__file__).with_name("released")
VERSIONS = tuple(sorted(folder.name for folder in RELEASED.iterdir()))


def lay_out(version: str, state: Path, log: Path) -> None:
    """Put a version's store and audit log where a daemon looks for them."""
    state.mkdir(mode=0o700, parents=True)
    log.mkdir(mode=0o750, parents=True)
    store = state / "store.sqlite"
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript((RELEASED / version / "store.sql").read_text(encoding="utf-8"))
    connection.close()
    store.chmod(0o600)
    shutil.copy(RELEASED / version / "audit.jsonl", log / "audit.jsonl")
    (log / "audit.jsonl").chmod(0o640)


def schema_of(state: Path) -> int:
    """Return the schema's version of the store there."""
    connection = sqlite3.connect(state / "store.sqlite")
    try:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    finally:
        connection.close()
