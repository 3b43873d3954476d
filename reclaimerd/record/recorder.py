"""Memory's front: one writer thread, so that no disk can hang the loop, and a limit on each commit.

The order is the promise: store first, then audit (fsynced), then the anchor. `commit` returns only
when all three are durable; otherwise it raises, and no act may follow. The store keeps a change's records
until the log has them, so that a death between the two loses none; what a failed commit left there is taken
back before the next one. It decides on no act.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from reclaimerd.errors import ReclaimerdError, RecordError
from reclaimerd.host.files import write_durably
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.incident import ActorKind
from reclaimerd.model.ports import Batch
from reclaimerd.record.chain import Head
from reclaimerd.record.faults import NoSpaceError, record_error
from reclaimerd.record.recorder_ports import Opened
from reclaimerd.record.store import Remembered, Stored, Unsaid
from reclaimerd.record.unsaid import late_entries

LIMIT_SECONDS = 5.0
"""How long a commit may take; past it no acts, and the loop goes on."""
OPENING_SECONDS = 30.0
"""How long opening may take: every page of the store is checked, on a disk that was just mounted."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecorderLimits:
    """The recorder's limit, and its clocks: wall seconds and monotonic seconds."""

    limit_seconds: float = LIMIT_SECONDS
    wall: Callable[[], float] = time.time
    mono: Callable[[], float] = field(default=time.monotonic)


@dataclass(slots=True)
class _Turn:
    """One commit, and whether who asked was told that it failed: the loop says so, the thread reads it."""

    failed: bool = False


class Recorder:
    """One writer thread; implements `model.ports.RecorderPort`.

    `opening` runs in the thread, at `load`: SQLite's objects never leave it.
    """

    __slots__ = (
        "_fault",
        "_full",
        "_head",
        "_jobs",
        "_last_saved",
        "_late",
        "_limits",
        "_opened",
        "_opening",
        "_overdue",
        "_thread",
        "_unsaid",
    )

    def __init__(self, opening: Callable[[], Opened], limits: RecorderLimits | None = None) -> None:
        self._opening = opening
        self._limits = limits or RecorderLimits()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], bool]] = queue.SimpleQueue()
        self._opened: Opened | None = None
        self._fault = ""
        self._full = False
        self._head: Head | None = None
        self._unsaid: tuple[Unsaid, ...] = ()
        self._late: tuple[int, ...] = ()
        self._last_saved = _Turn()
        self._overdue: Future[Any] | None = None
        # A daemon thread: one that hangs on a dead disk must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name="recorder", daemon=True)
        self._thread.start()

    async def load(self) -> Stored:
        """Open store and audit, and return what the store held.

        Raises CorruptStoreError or RecordError; then nothing is open.
        """
        limit = max(OPENING_SECONDS, self._limits.limit_seconds)
        return await self.off_loop(self._open, "opening store and audit", limit_seconds=limit)

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable: store, audit, anchor.

        Raises RecordError when it could not or not within the limit, CorruptStoreError when the store
        turned out to be damaged. After a time-out the batch may still become durable late; a batch
        that was still waiting for its turn never will. `fault()` says so until a commit succeeds. The next
        commit takes out of the store what this one left there; the log keeps what it has.
        """
        turn = _Turn()
        try:
            await self.off_loop(lambda: self._commit(batch, turn), "a commit")
        except ReclaimerdError as error:
            turn.failed = True
            self._fault = str(error)
            self._full = isinstance(error, NoSpaceError)
            raise
        self._fault, self._full = "", False

    def fault(self) -> str:
        """Return why nothing could be recorded last time, or "" when records are durable."""
        return self._fault

    def fault_for_operators(self) -> str:
        """Return the fault that binds an operator too: a full disk alone does not, the reserve is theirs.

        The commit before the act still decides: without a durable intent nothing is sent.
        """
        return "" if self._full else self._fault

    def head(self) -> Head | None:
        """Return the last audit record that is durable and anchored, None before the first."""
        return self._head

    def anchor_fault(self) -> str:
        """Return why the audit's head could not be written to its anchor file, or ""; it binds nobody."""
        return "" if self._opened is None else self._opened.audit.anchor_fault()

    async def try_again(self) -> None:
        """Find out, while there is a fault, whether records are durable again; the fault says the rest."""
        if self._fault:
            entry = AuditEntry(RecordKind.NOTE, reason=f"records are durable again; before: {self._fault}")
            with suppress(RecordError):
                await self.commit(Batch(entries=(entry,)))

    async def remember(self, remembered: Remembered) -> None:
        """Keep what was seen while healthy; raises as `commit` does, but is no promise before an act."""
        await self.off_loop(lambda: self._ready().store.remember(remembered), "remembering holders")

    async def write_file(self, path: Path, content: bytes) -> None:
        """Replace one file durably (0600), off the loop; raises RecordError."""

        def write() -> None:
            try:
                write_durably(path, content)
            except OSError as error:
                raise record_error("file", path, error) from error

        await self.off_loop(write, f"writing {path.name}")

    async def off_loop(self, work: Callable[[], T], what: str, *, limit_seconds: float | None = None) -> T:
        """Return what `work` returns, run in the writer thread within the limit (None: the recorder's).

        While an earlier piece of work is overdue nothing is queued behind it: RecordError at once.
        """
        limit = self._limits.limit_seconds if limit_seconds is None else limit_seconds
        if self._overdue is not None and not self._overdue.done():
            raise RecordError(
                "record: the disk has not answered an earlier write", "look at the disk and its mount"
            )
        self._overdue = None
        future: Future[T] = Future()
        self._jobs.put((lambda: _run(work, future), False))
        waiting = asyncio.wrap_future(future)
        try:
            finished, _ = await asyncio.wait([waiting], timeout=limit)
        except asyncio.CancelledError:
            waiting.cancel()  # What has not begun is never written.
            raise
        if not finished:
            if not future.cancel():
                self._overdue = future
            waiting.cancel()
            raise RecordError(
                f"record: {what} took longer than {limit:g} s", "look at the disk and its mount"
            )
        return waiting.result()

    async def close(self) -> None:
        """Close store and audit after what is queued; give up at the limit, for a disk may hang."""
        future: Future[None] = Future()
        self._jobs.put((lambda: _run(self._close, future), True))
        finished, _ = await asyncio.wait(
            [waiting := asyncio.wrap_future(future)], timeout=self._limits.limit_seconds
        )
        if not finished:
            waiting.cancel()

    def _serve(self) -> None:
        """Do one job after the other until the last; a job's errors go to who waits for it."""
        last = False
        while not last:
            job, last = self._jobs.get()
            job()

    def _open(self) -> Stored:
        """Open both, once."""
        if self._opened is None:
            self._opened = self._opening()
            self._head = self._opened.stored.anchor
            self._unsaid = self._opened.stored.unsaid
            try:
                self._catch_up(self._opened, use_reserve=False)
            except ReclaimerdError as error:  # it is kept, and the next commit tries again before its own
                self._fault = str(error)
        return self._opened.stored

    def _catch_up(self, opened: Opened, *, use_reserve: bool) -> None:
        """Write what our last end kept from the log, before anything new; the next anchor forgets it."""
        if not self._unsaid:
            return
        late = late_entries([one.entry for one in self._unsaid], opened.newer)
        wall, mono = self._limits.wall(), self._limits.mono()
        self._head = opened.audit.append(late, wall=wall, mono=mono, use_reserve=use_reserve)
        self._late = tuple(sorted({one.batch for one in self._unsaid}))
        self._unsaid = ()
        opened.store.anchor(self._head, self._late)
        self._late = ()

    def _ready(self) -> Opened:
        """Return what is open."""
        if self._opened is None:
            raise RecordError("record: store and audit are not open", "load() comes first")
        return self._opened

    def _commit(self, batch: Batch, turn: _Turn) -> None:
        """Write store, audit and anchor in this order; an operator's batch may give up the reserve for it."""
        opened = self._ready()
        use_reserve = is_operators(batch)

        def write(work: Callable[[], T]) -> T:
            try:
                return work()
            except NoSpaceError:
                if not (use_reserve and opened.audit.spend_reserve()):
                    raise
                return work()

        if self._last_saved.failed:  # nobody but the store knows of it, and a start would go on with it
            write(opened.store.take_back)
            self._last_saved = _Turn()
        if not use_reserve and batch != Batch() and opened.audit.reserve_is_spent(self._limits.mono()):
            # The room that is left was kept for operators: rules must not live on it.
            raise NoSpaceError(
                "audit: the disk was full and the reserve is spent on an operator's act",
                "free some: four times the reserve must be free before acts by rule go on",
            )
        write(lambda: self._catch_up(opened, use_reserve=use_reserve))
        saved = [*self._late]
        if batch.incidents or batch.ledger is not None:
            saved.append(write(lambda: opened.store.save(batch.incidents, batch.ledger, batch.entries)))
            self._last_saved = turn
        if batch.entries:
            wall, mono = self._limits.wall(), self._limits.mono()
            append = opened.audit.append
            head = append(batch.entries, wall=wall, mono=mono, use_reserve=use_reserve)
            write(lambda: opened.store.anchor(head, saved))
            self._head, self._late = head, ()

    def _close(self) -> None:
        """Close both."""
        if self._opened is not None:
            self._opened.audit.close()
            self._opened.store.close()
            self._opened = None


def is_operators(batch: Batch) -> bool:
    """Tell whether everything in a batch was asked for by an operator, and by nobody else."""
    actors = [one.actor for one in batch.incidents]
    actors.extend(entry.actor for entry in batch.entries if entry.actor is not None)
    return bool(actors) and all(actor.kind is ActorKind.OPERATOR for actor in actors)


def _run(work: Callable[[], T], future: "Future[T]") -> None:
    """Do the work for who waits, unless nobody waits any more."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (it is raised again where the work was asked for)
        future.set_exception(error)
    else:
        future.set_result(result)
