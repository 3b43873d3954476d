"""Opens the files of the audit log, packed or not, in either direction, and cuts them into lines.

It works beside a running writer: a file may be rotated away, packed or pruned in mid-reading, and the
last line may be half written. It writes nothing but an unnamed temporary file, and that only for what
somebody else's gzip packed.
"""

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from reclaimerd.host.files import open_below, opened_directory
from reclaimerd.record.chain import CURRENT_NAME, PACKED_END, first_seq_of, link_of, rotated_files
from reclaimerd.record.packed import Content, Packed, Plain, is_packed

MOST_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is no record of ours; it is read in pieces, so memory stays bounded."""
BLOCK_BYTES = 256 * 1024
_FIRST_LINE_BYTES = 1 << 20
Sieve: TypeAlias = Callable[[bytes], bool]
"""Tells whether bytes may hold a line that is looked for."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log; `key` is the number of its first record, and orders the files."""

    name: str
    key: int
    content: Content


def each_file(directory: Path, *, newest_first: bool = False) -> Iterator[LogFile]:
    """Return each file open, one after the other; each is closed when the next is asked for.

    The current one is opened before the others are listed, lest a rotation hides it. Raises OSError.
    """
    if not directory.exists():
        return
    with opened_directory(directory) as folder:
        current = _opened(folder, CURRENT_NAME)
        inode = None if current is None else os.fstat(current).st_ino
        full = rotated_files(directory)
        last = (first_seq_of(full[-1].name) or 0) if full else 0
        if current is not None and newest_first:
            yield from _closed_after(_current(current, last))
        for path in reversed(full) if newest_first else full:
            descriptor = _opened_either(folder, path.name)
            if descriptor is None:
                continue  # Pruned since the listing.
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)
                continue  # The current one, rotated since we opened it.
            yield from _closed_after(LogFile(path.name, first_seq_of(path.name) or 0, content_of(descriptor)))
        if current is not None and not newest_first:
            yield from _closed_after(_current(current, last))


def _closed_after(file: LogFile) -> Iterator[LogFile]:
    with closing(file.content):
        yield file


def _current(descriptor: int, after: int) -> LogFile:
    """Return the current file; one that begins with no record stands after all full ones."""
    content = Plain(descriptor)
    first, _, _ = content.read_at(0, _FIRST_LINE_BYTES).partition(b"\n")
    link = link_of(first)
    return LogFile(CURRENT_NAME, after + 1 if link is None else link.seq, content)


def _opened(folder: int, name: str) -> int | None:
    """Return a descriptor, or None where there is no such file."""
    try:
        return open_below(folder, name, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _opened_either(folder: int, name: str) -> int | None:
    """Return a descriptor of a full file, also when it was packed since it was listed."""
    other = name.removesuffix(PACKED_END) if name.endswith(PACKED_END) else name + PACKED_END
    descriptor = _opened(folder, name)
    return _opened(folder, other) if descriptor is None else descriptor


def content_of(descriptor: int) -> Content:
    """Return what a file holds, whoever packed it; the descriptor is closed with it."""
    if is_packed(descriptor):
        return Packed(descriptor)
    if os.pread(descriptor, 2, 0) != b"\x1f\x8b":
        return Plain(descriptor)
    # Not ours: it has no blocks to find a line by, so it is inflated aside.
    damage = ""
    with os.fdopen(descriptor, "rb") as packed, tempfile.TemporaryFile() as aside:
        try:
            with gzip.open(packed) as inflated:
                shutil.copyfileobj(inflated, aside, BLOCK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            damage = f"it can't be inflated ({error})"
        aside.flush()
        return Plain(os.dup(aside.fileno()), damage)


def blocks_forward(
    content: Content, start: int = 0, sieve: Sieve | None = None
) -> Iterator[tuple[int, list[bytes], bool]]:
    """Return the lines from an offset on, many at once: where the first begins, and if newlines end them.

    Blocks that the sieve does not take are left out.
    """
    rest, begin, place = b"", start, start
    while block := content.read_at(place, BLOCK_BYTES):
        place += len(block)
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline and (sieve is None or sieve(whole)):
            yield begin, whole.split(b"\n"), True
        begin = place - len(rest)
        if len(rest) > MOST_LINE_BYTES:
            yield begin, [rest], False
            begin, rest = place, b""
    if rest:
        yield begin, [rest], False


def lines_forward(
    content: Content, start: int = 0, sieve: Sieve | None = None
) -> Iterator[tuple[int, bytes, bool]]:
    """Return each line from an offset on: where it begins, its bytes, and whether its newline is there."""
    for begin, lines, whole in blocks_forward(content, start, sieve):
        place = begin
        for line in lines:
            yield place, line, whole
            place += len(line) + 1


def lines_backward(content: Content, start: int, end: int, sieve: Sieve | None = None) -> Iterator[bytes]:
    """Return the lines between two offsets, last one first; `start` is where a line begins.

    A line longer than any record of ours is dropped, and so are blocks that the sieve does not take.
    """
    place, rest, too_long = end, b"", False
    while place > start:
        begin = max(start, place - BLOCK_BYTES)
        first, newline, others = (content.read_at(begin, place - begin) + rest).partition(b"\n")
        place = begin
        if newline:
            if too_long:  # What stands last is the beginning of the line that was dropped.
                others = others.rpartition(b"\n")[0]
            if sieve is None or sieve(others):
                yield from (line for line in reversed(others.split(b"\n")) if line)
            too_long = False
        too_long = too_long or len(first) > MOST_LINE_BYTES
        rest = b"" if too_long else first
    if rest:
        yield rest
