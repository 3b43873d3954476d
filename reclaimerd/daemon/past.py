"""Read what was: incidents from the store, their story from the audit. Blocks on the disk.

So it is read in a thread of its own, never in the recorder's: there a viewer's question about a long log
would make a record late, and nothing is done without a record.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.views import incident_row
from reclaimerd.errors import RecordError
from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.store import STORE_NAME, Store, Stored

T = TypeVar("T")
READING_SECONDS = 30.0
"""How long one question waits, with those before it."""


class Reader:
    """Answers one question at a time, in a thread; one that hangs is left alone, none beside it."""

    __slots__ = ("_last", "_turn")

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._last: Future[Any] | None = None

    async def read(self, work: Callable[[], T], what: str) -> T:
        """Return what `work` returns. Raises RecordError when it takes too long, or an earlier one does."""
        try:
            async with asyncio.timeout(READING_SECONDS), self._turn:
                return await self._read(work, what)
        except TimeoutError:
            why = f"record: {what} took longer than {READING_SECONDS:g} s"
            raise RecordError(why, "ask again later, or look at the disk") from None

    async def _read(self, work: Callable[[], T], what: str) -> T:
        if self._last is not None and not self._last.done():
            raise RecordError(
                f"record: {what} waits for an earlier reading", "look at the disk and its mount"
            )
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # Whoever stops waiting does not stop the thread.
        self._last = future
        Thread(target=_fulfil, args=(work, future), name="reading", daemon=True).start()
        return await asyncio.wrap_future(future)


def _fulfil(work: Callable[[], T], future: "Future[T]") -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001  # whoever asked gets it, and judges it
        future.set_exception(error)


def read_incidents(state_dir: Path, limit: int) -> list[Json]:
    """Return the newest incidents in rows; none when nothing was ever recorded."""
    path = state_dir / STORE_NAME
    if not path.exists():
        return []
    store = Store.open(path, read_only=True)
    try:
        return [incident_row(one, None) for one in store.incidents(limit=limit)]
    finally:
        store.close()


def read_last_by_rule(state_dir: Path) -> dict[str, float]:
    """Return when each rule opened its newest incident that the store still has (wall-clock seconds)."""
    path = state_dir / STORE_NAME
    if not path.exists():
        return {}
    store = Store.open(path, read_only=True)
    try:
        return store.last_by_rule()
    finally:
        store.close()


def read_incident(state_dir: Path, log_dir: Path, name: str) -> Json | None:
    """Return one incident with its story, None when there is none of this name."""
    path = state_dir / STORE_NAME
    if not path.exists():
        return None
    store = Store.open(path, read_only=True)
    try:
        incident = store.incident(IncidentId(name))
    finally:
        store.close()
    if incident is None:
        return None
    return {"incident": _whole(incident), "timeline": _timeline(log_dir, name)}


def _whole(incident: Incident) -> Json:
    wire = to_wire(incident)
    return {**incident_row(incident, None), "record": wire}


def _timeline(log_dir: Path, name: str) -> list[Json]:
    if not log_dir.is_dir():
        return []
    mark = json.dumps(name).encode("ascii")
    records = read_records(log_dir, where=lambda record: record.get("incident") == name, holding=mark)
    return [
        {"at": record.get("at"), "kind": record.get("kind"), "text": _sentence(record)} for record in records
    ]


def _sentence(record: dict[str, object]) -> str:
    words = [str(record[key]) for key in ("action", "end", "reason") if record.get(key)]
    outcome = record.get("outcome")
    if isinstance(outcome, dict):
        words.insert(1, str(outcome.get("kind", "")))
    return ": ".join(words)


def read_stored(state_dir: Path) -> Stored:
    """Return what the store holds for an engine that only reads; nothing where it may not be read.

    Raises CorruptStoreError: a store that can't be trusted is told, also to a reader.
    """
    try:
        store = Store.open(state_dir / STORE_NAME, read_only=True)
    except RecordError:
        return Stored()
    try:
        return store.load()
    finally:
        store.close()
