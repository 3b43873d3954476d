"""Finds records: by the index where there is one, and by reading the log where there is none.

A record is handed out only after its own line was read and its hash compared; one that does not agree
is handed out too, and says so. It changes nothing but the index, and that only when asked.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.record.audit_files import LogFile, each_file, lines_backward, lines_forward
from reclaimerd.record.audit_filter import Filter, Json
from reclaimerd.record.audit_index import INDEX_NAME, AuditIndex, Place, mark_of
from reclaimerd.record.audit_read import record_of
from reclaimerd.record.chain import LineFault, kind_of, link_of

MOST_BEHIND_BYTES = 4 << 20
"""As much that is not indexed yet is quicker to read than to index."""
MOST_AT_ONCE_BYTES = 128 << 20
"""What a question may index by the way; more takes so long that a person should ask for it."""
CHANGED = "its bytes are not those that were indexed (edited, `audit verify` says where)"
NO_RECORD = "its place holds no record any more (edited, `audit verify` says where)"


@dataclass(frozen=True, slots=True)
class Found:
    """One record: its parsed form, its line as it stands, and why it can't be trusted ("": it can)."""

    record: Json
    line: bytes
    fault: str


def review(
    directory: Path, wanted: Filter, index: AuditIndex | None, *, newest_first: bool
) -> Iterator[Found]:
    """Return each record that is asked for, in the order of the log or against it.

    What the index does not reach is read. Raises OSError when the log can't be read.
    """
    if index is not None and not wanted.narrows():
        index = None  # All lines are read anyway: one after the other is the quickest.
    if index is not None:
        try:
            index.prepare(wanted)
        except sqlite3.Error:
            index = None
    for file in each_file(directory, newest_first=newest_first):
        indexed = 0
        if index is not None:
            with suppress(sqlite3.Error):
                indexed = index.indexed_bytes(file)
        if newest_first:
            yield from _read(file, wanted, indexed, newest_first=True)
        if index is not None and indexed:
            yield from _looked_up(file, wanted, index, indexed, newest_first)
        if not newest_first:
            yield from _read(file, wanted, indexed, newest_first=False)
        if file.content.damage:
            yield Found({"file": file.name}, b"", f"a part can't be read: {file.content.damage}")


def _read(file: LogFile, wanted: Filter, start: int, *, newest_first: bool) -> Iterator[Found]:
    """Return what is asked for from the lines after an offset."""
    sieve = wanted.sieve()
    if newest_first:
        lines = lines_backward(file.content, start, file.content.size, sieve)
    else:
        lines = (line for _, line, _ in lines_forward(file.content, start, sieve))
    return _scanned(lines, wanted)


def _scanned(lines: Iterator[bytes], wanted: Filter) -> Iterator[Found]:
    sieve = wanted.sieve()
    kinds = {kind.encode() for kind in wanted.kinds}
    for line in lines:
        if not sieve(line) or (kinds and kind_of(line) not in kinds):
            continue
        record = record_of(line)
        if record is not None and wanted.takes(record):
            yield Found(record, line, fault_of(line))


def fault_of(line: bytes) -> str:
    """Return why a line is no record that stands as it was written, or ""."""
    link = link_of(line)
    if link is None:
        return str(LineFault.NO_RECORD)
    return str(link.fault or "")


def _looked_up(
    file: LogFile,
    wanted: Filter,
    index: AuditIndex,
    indexed: int,
    newest_first: bool,  # noqa: FBT001 (private)
) -> Iterator[Found]:
    """Return what the index names in one file; where the index fails half-way, the rest is read."""
    seen: Place | None = None
    try:
        for place in index.places(file, wanted, indexed, newest_first=newest_first):
            seen = place
            found = _at(file, place, wanted)
            if found is not None:
                yield found
    except sqlite3.Error:
        if newest_first:
            end = indexed if seen is None else seen.offset
            yield from _scanned(lines_backward(file.content, 0, end), wanted)
        else:
            start = 0 if seen is None else seen.offset + seen.length + 1
            lines = lines_forward(file.content, start)
            yield from _scanned((line for begin, line, _ in lines if begin < indexed), wanted)


def _at(file: LogFile, place: Place, wanted: Filter) -> Found | None:
    """Return the record at a place, with what is wrong with it; None when its words are not as asked."""
    line = file.content.read_at(place.offset, place.length)
    if wanted.text and not wanted.sieve()(line):
        return None
    record = record_of(line)
    if record is None:
        return Found({"file": file.name}, line, NO_RECORD)
    if mark_of(line) != place.mark:
        return Found(record, line, fault_of(line) or CHANGED)
    return Found(record, line, "") if wanted.takes(record) else None


def behind_bytes(directory: Path, index: AuditIndex | None) -> int:
    """Return how much of the log the index does not reach; raises OSError."""
    behind = 0
    for file in each_file(directory):
        indexed = 0
        if index is not None:
            with suppress(sqlite3.Error):
                indexed = index.indexed_bytes(file)
        behind += file.content.size - indexed
    return behind


@dataclass(frozen=True, slots=True)
class Readiness:
    """An index to ask (None: the log itself is read), and how much of the log it does not reach."""

    index: AuditIndex | None
    behind_bytes: int


def ready_index(directory: Path, *, may_write: bool, at_most: int = MOST_AT_ONCE_BYTES) -> Readiness:
    """Return the index, brought up to date first where we may write and little enough is missing.

    An index that can't be made, or is being written by another, is no fault: the log is read.
    """
    index = AuditIndex.open(directory, write=False)
    behind = behind_bytes(directory, index)
    if behind <= MOST_BEHIND_BYTES or behind > at_most or not may_write:
        return Readiness(index, behind)
    if index is not None:
        index.close()
    try:
        writing = AuditIndex.open(directory, write=True)
        if writing is not None:
            writing.update(directory)
            return Readiness(writing, 0)
    except (OSError, ReclaimerdError):
        pass
    return Readiness(AuditIndex.open(directory, write=False), behind)


__all__ = ["INDEX_NAME", "Found", "Readiness", "behind_bytes", "fault_of", "ready_index", "review"]
