"""The reading side of the audit log: list, verify, and where it lies. It writes nothing.

It works beside a running writer: the last line may be half written, and a file may be rotated away
in mid-reading; neither is a fault.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from reclaimerd.host.files import open_below, opened_directory
from reclaimerd.record.audit_check import ChainCheck, Verification
from reclaimerd.record.chain import CURRENT_NAME, Head, rotated_files

__all__ = ["Verification", "current_path", "read_records", "verify"]

MOST_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is no record of ours; it is read in pieces, so memory stays bounded."""
_BLOCK_BYTES = 64 * 1024


def current_path(directory: Path) -> Path:
    """Return the absolute path of the file that is being written."""
    return directory.absolute() / CURRENT_NAME


def verify(directory: Path, anchor: Head | None) -> Verification:
    """Return whether every record stands as it was written, from the oldest file kept to the anchor.

    Read the anchor before calling, since the log goes on. Without one, records cut off the end can't
    be noticed. Raises OSError when the log can't be read.
    """
    check = ChainCheck(anchor)
    with ExitStack() as opened:
        for name, stream in _open_files(directory, opened):
            check.begin(name)
            while line := stream.readline(MOST_LINE_BYTES):
                check.take(line)
    return check.finished()


def _open_files(directory: Path, opened: ExitStack) -> Iterator[tuple[str, BinaryIO]]:
    """Return each file open, oldest first; the current one is opened first, lest rotation hides it."""
    if not directory.exists():
        return
    folder = opened.enter_context(opened_directory(directory))
    try:
        current = opened.enter_context(os.fdopen(open_below(folder, CURRENT_NAME, os.O_RDONLY), "rb"))
    except FileNotFoundError:
        current = None
    inode = None if current is None else os.fstat(current.fileno()).st_ino
    for path in rotated_files(directory):
        with os.fdopen(open_below(folder, path.name, os.O_RDONLY), "rb") as stream:
            if os.fstat(stream.fileno()).st_ino != inode:
                yield path.name, stream
    if current is not None:
        yield CURRENT_NAME, current


def read_records(
    directory: Path,
    *,
    newest_first: bool = False,
    limit: int | None = None,
    where: Callable[[dict[str, object]], bool] | None = None,
) -> Iterator[dict[str, object]]:
    """Return the records that `where` takes, at most `limit`; torn lines are stepped over.

    Nothing is checked here: that is `verify`. Raises OSError when the log can't be read.
    """
    left = limit
    with ExitStack() as opened:
        for line in _backwards(directory) if newest_first else _forwards(directory, opened):
            if left is not None and left <= 0:
                return
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and (where is None or where(record)):
                left = None if left is None else left - 1
                yield record


def _forwards(directory: Path, opened: ExitStack) -> Iterator[bytes]:
    """Return each line, oldest first."""
    for _, stream in _open_files(directory, opened):
        while line := stream.readline(MOST_LINE_BYTES):
            yield line


def _backwards(directory: Path) -> Iterator[bytes]:
    """Return each line, newest first, without reading what nobody asks for."""
    if not directory.exists():
        return
    with opened_directory(directory) as folder:
        for name in (CURRENT_NAME, *(path.name for path in reversed(rotated_files(directory)))):
            try:
                descriptor = open_below(folder, name, os.O_RDONLY)
            except FileNotFoundError:
                continue
            with os.fdopen(descriptor, "rb") as stream:
                yield from _lines_backwards(stream)


def _lines_backwards(stream: BinaryIO) -> Iterator[bytes]:
    """Return a file's lines from its end; a line longer than any record of ours is dropped."""
    position = stream.seek(0, os.SEEK_END)
    rest = b""
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        stream.seek(start)
        block = stream.read(position - start) + rest
        position = start
        first, *lines = block.split(b"\n")
        yield from reversed(lines)
        rest = first if len(first) <= MOST_LINE_BYTES else b""
    if rest:
        yield rest
