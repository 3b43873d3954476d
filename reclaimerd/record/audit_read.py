"""The reading side of the audit log: list, verify, and where it lies. It writes nothing.

It works beside a running writer: the last line may be half written, and a file may be rotated away
or packed in mid-reading; neither is a fault.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from reclaimerd.record.audit_check import Anchors, ChainCheck, Verification
from reclaimerd.record.audit_files import blocks_forward, each_file, lines_backward, lines_forward
from reclaimerd.record.chain import CURRENT_NAME, Head, rotated_files

__all__ = ["Anchors", "Verification", "current_path", "read_records", "verify"]


def current_path(directory: Path) -> Path:
    """Return the absolute path of the file that is being written."""
    return directory.absolute() / CURRENT_NAME


def verify(directory: Path, anchor: Head | None, anchors: Anchors | None = None) -> Verification:
    """Return whether every record stands as it was written, from the oldest file kept to the anchor.

    Read the anchor before calling, since the log goes on; `anchors` are more of them, kept elsewhere.
    Without any, records cut off the end can't be noticed. Raises OSError when the log can't be read.
    """
    before = rotated_files(directory)
    found = _verified(directory, anchor, anchors)
    if not found.ok and rotated_files(directory) != before:
        # The oldest file was pruned under our eyes: what is there now is the log.
        found = _verified(directory, anchor, anchors)
    return found


def _verified(directory: Path, anchor: Head | None, anchors: Anchors | None) -> Verification:
    check = ChainCheck(anchor, anchors)
    for file in each_file(directory):
        check.begin(file.name)
        for _, lines, whole in blocks_forward(file.content):
            check.take_all(lines, whole=whole)
        if file.content.damage:
            check.damaged(file.content.damage)
    return check.finished()


def read_records(
    directory: Path,
    *,
    newest_first: bool = False,
    limit: int | None = None,
    where: Callable[[dict[str, object]], bool] | None = None,
    holding: bytes = b"",
) -> Iterator[dict[str, object]]:
    """Return the records that `where` takes, at most `limit`; torn lines are stepped over.

    Lines without the bytes `holding` are passed by unparsed. Nothing is checked here: that is
    `verify`. Raises OSError when the log can't be read.
    """
    left = limit
    for line in _lines(directory, holding, newest_first=newest_first):
        if left is not None and left <= 0:
            return
        record = record_of(line) if holding in line else None
        if record is not None and (where is None or where(record)):
            left = None if left is None else left - 1
            yield record


def record_of(line: bytes) -> dict[str, object] | None:
    """Return the object that a line holds, or None when it holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _lines(directory: Path, holding: bytes, *, newest_first: bool) -> Iterator[bytes]:
    """Return the lines, in either direction, without reading what nobody asks for."""

    def sieve(block: bytes) -> bool:
        return holding in block

    for file in each_file(directory, newest_first=newest_first):
        if newest_first:
            yield from lines_backward(file.content, 0, file.content.size, sieve)
        else:
            yield from (text for _, text, _ in lines_forward(file.content, 0, sieve))
