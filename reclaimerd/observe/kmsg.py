"""Follows the kernel's log for the driver's fault lines (Xid).

One descriptor on /dev/kmsg, read without a wait, so much a look and the rest in the next one. What
may have been missed is said and never passed over. It judges no line and writes nothing.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.host.kernel_text import LogRecord, parse_record
from reclaimerd.host.xid_text import parse_xid
from reclaimerd.model.fault import KernelNews, XidLine
from reclaimerd.observe.proc_files import words_of

KMSG = Path("/dev/kmsg")
MOST_RECORDS = 4096
MOST_BYTES = 512 * 1024
"""One look's share: about 10 ms of reading."""
_MOST_OLD_RECORDS = 131_072
"""Records from before our place in the log, passed over at the start; a log of 16 MiB has that many."""
_RECORD_BYTES = 8192
"""A smaller buffer makes read(2) fail with EINVAL for a long record (kernel/printk/printk.c)."""


class KernelLogReader:
    """The kernel's log from our place on.

    `after` is the number of the last record that was read in this boot; None begins at the log's end,
    so that nothing from before our start ever counts. A log that can't be opened or read is said in
    `fault` and in each look's `gap`, and opened again at the next look.
    """

    def __init__(self, after: int | None, path: Path = KMSG) -> None:
        self._path = path
        self._last = after
        self._skips_old = False
        self._descriptor: int | None = None
        self.fault = ""
        self._open()

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there is news; None while the log can't be read."""
        return self._descriptor

    def close(self) -> None:
        """Let go of the log."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self) -> KernelNews:
        """Return the Xids since the last look; never waits and never raises."""
        if self._descriptor is None:
            self._open()
        if self._descriptor is None:
            return KernelNews(last_seq=self._last, gap=self.fault)
        look = _Look()
        while not look.is_full:
            record = self._next(self._descriptor, look)
            if record is None:
                break
            self._take(record, look)
        if look.ended and self._skips_old:
            self._end_of_old(look)
        if self.fault:
            self.close()
        gap = "; ".join(dict.fromkeys(look.gaps))
        return KernelNews(tuple(look.xids), self._last, gap, more=not (look.ended or self.fault))

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.fault = f"the kernel's log can't be read: {words_of(error)}"
            return
        self.fault = ""
        self._skips_old = self._last is not None
        if self._last is None:
            newest = self._pass_over(self._descriptor)
            self._last = None if self.fault else newest
        if self.fault:
            self.close()

    def _pass_over(self, descriptor: int) -> int | None:
        """Go to the log's end, and return the number of its newest record where that was met on the way."""
        look = _Look()
        newest = None
        while (record := self._next(descriptor, look)) is not None:
            newest = record.sequence
        if look.ended or self.fault:
            return newest
        os.lseek(descriptor, 0, os.SEEK_END)
        return None

    def _next(self, descriptor: int, look: "_Look") -> LogRecord | None:
        """Return the next record that can be read as one, or None when there is no more now."""
        while look.tries < _MOST_OLD_RECORDS:
            look.tries += 1
            try:
                piece = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                look.ended = True
                return None
            except BrokenPipeError:  # the next read goes on after what was overwritten: the numbers tell
                continue
            except OSError as error:
                self.fault = f"the kernel's log could not be read to its end: {words_of(error)}"
                look.gaps.append(self.fault)
                return None
            if not piece:
                look.ended = True
                return None
            look.bytes += len(piece)
            record = parse_record(piece.decode("utf-8", "surrogateescape"))
            if record is not None:
                return record
        return None

    def _take(self, record: LogRecord, look: "_Look") -> None:
        if self._skips_old and self._last is not None and record.sequence <= self._last:
            look.newest_old = record.sequence
            look.bytes = 0
            return
        self._skips_old = False
        if self._last is not None and record.sequence > self._last + 1:
            lost = record.sequence - self._last - 1
            look.gaps.append(f"{lost} records of the kernel's log were overwritten before we read them")
        self._last = record.sequence
        look.records += 1
        line = parse_xid(record)
        if line is not None:
            look.xids.append(line)

    def _end_of_old(self, look: "_Look") -> None:
        """Look whether the log reaches to the place that we had in it: else it is another log."""
        self._skips_old = False
        if look.newest_old != self._last:
            look.gaps.append("the kernel's log ends before the place that we had read to")
            self._last = look.newest_old


@dataclass(slots=True)
class _Look:
    """What one look has read so far."""

    xids: list[XidLine] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    tries: int = 0
    newest_old: int | None = None
    ended: bool = False

    @property
    def is_full(self) -> bool:
        return self.records >= MOST_RECORDS or self.bytes >= MOST_BYTES
