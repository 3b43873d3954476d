"""Follows the log as it grows, over rotations. It never waits: whoever asks says when to look again."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from reclaimerd.host.files import open_below, opened_directory
from reclaimerd.record.audit_files import each_file, lines_forward
from reclaimerd.record.audit_tail import read_tail
from reclaimerd.record.chain import CURRENT_NAME, link_of
from reclaimerd.record.packed import Plain


class Follower:
    """Where the reading of one log directory stands; it begins after the last record there is."""

    __slots__ = ("_current", "_directory", "_place", "_seq")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._current: Plain | None = None
        self._place = 0
        self._seq = 0
        for file in each_file(directory, newest_first=True):
            head = read_tail(file.content, None).head
            if head is not None:
                self._seq = head.seq
                break

    def news(self) -> Iterator[bytes]:
        """Return each whole record that came since; numbers never go back, so none comes twice.

        Raises OSError when the log can't be read; a log that is not there yet is none.
        """
        descriptor = self._open_current()
        if self._current is not None:
            yield from self._rest(self._current)
            if descriptor is None or self._is_current(descriptor):
                if descriptor is not None:
                    os.close(descriptor)
                return
            self._current.close()
            self._current = None
        if descriptor is None:
            return
        self._current, self._place = Plain(descriptor), 0
        # What was full before we came to it; files that hold only what we have are not read.
        for file in each_file(self._directory):
            if file.name != CURRENT_NAME and file.key > self._seq:
                yield from self._records(lines_forward(file.content))
        yield from self._rest(self._current)

    def _open_current(self) -> int | None:
        with suppress(FileNotFoundError), opened_directory(self._directory) as folder:
            return open_below(folder, CURRENT_NAME, os.O_RDONLY)
        return None

    def _is_current(self, descriptor: int) -> bool:
        """Tell whether this is the file that we follow."""
        ours, there = os.fstat(self._current_fd()), os.fstat(descriptor)
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def _current_fd(self) -> int:
        return -1 if self._current is None else self._current.fileno()

    def _rest(self, content: Plain) -> Iterator[bytes]:
        """Return what is new in the current file; one that was cut is read anew from its beginning."""
        if content.size < self._place:
            self._place = 0
        for begin, line, whole in lines_forward(content, self._place):
            if not whole:
                break
            self._place = begin + len(line) + 1
            yield from self._records(iter([(begin, line, whole)]))

    def _records(self, lines: Iterator[tuple[int, bytes, bool]]) -> Iterator[bytes]:
        """Return the lines that are records we have not had."""
        for _, line, _ in lines:
            link = link_of(line)
            if link is not None and link.seq > self._seq:
                self._seq = link.seq
                yield line

    def close(self) -> None:
        """Let go of the file."""
        if self._current is not None:
            self._current.close()
            self._current = None
