"""The newest lines of the kernel's log that speak of stuck tasks, the driver, or the kernel's own faults.

For evidence: one bounded reading of /dev/kmsg that waits for nothing and changes nothing. What a
program wrote there is left out: only the kernel's own lines count.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.kernel_text import LogRecord, parse_record, topic_of
from reclaimerd.observe.proc_files import words_of

KMSG = Path("/dev/kmsg")
MOST_BYTES = 256 * 1024
_RECORD_BYTES = 8192
"""A smaller buffer makes read(2) fail with EINVAL for a long record (kernel/printk/printk.c)."""
_MOST_RECORDS = 200_000
_LINE_CHARACTERS = 1024
_FOLLOWING = 24
"""Lines after a report that belong to it: its stack."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One kernel line: `at` in monotonic seconds, `topic` as `topic_of` has it ("" follows such a line)."""

    at: float
    topic: str
    text: str


@dataclass(frozen=True, slots=True)
class KernelLog:
    """The newest lines that matter, oldest first, and in words what is missing ("" for nothing)."""

    lines: tuple[LogLine, ...]
    missing: str = ""


def read_kernel_log(path: Path = KMSG, *, most_bytes: int = MOST_BYTES) -> KernelLog:
    """Return the newest matching lines, at most `most_bytes` of text; what can't be read is said."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return KernelLog((), f"the kernel log can't be read: {words_of(error)}")
    try:
        return _read(descriptor, most_bytes)
    finally:
        os.close(descriptor)


def _read(descriptor: int, most_bytes: int) -> KernelLog:
    kept: deque[LogLine] = deque()
    size, cut, following = 0, False, 0
    missing: list[str] = []
    for record in _records(descriptor, missing):
        topic = topic_of(record.text)
        following = _FOLLOWING if topic in {"hung_task", "trouble"} else max(0, following - 1)
        if topic or following:
            kept.append(_line(record, topic))
            size += len(kept[-1].text)
        while size > most_bytes:
            size -= len(kept.popleft().text)
            cut = True
    if cut:
        missing.append(f"only the newest {most_bytes >> 10} KiB of the kernel log are kept")
    return KernelLog(tuple(kept), "; ".join(dict.fromkeys(missing)))


def _records(descriptor: int, missing: list[str]) -> Iterator[LogRecord]:
    """Yield the kernel's own records until there is no more now; say in `missing` what was lost."""
    for _ in range(_MOST_RECORDS):
        try:
            piece = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:  # records were overwritten while we read: the next read goes on after them
            missing.append("records of the kernel log were overwritten while we read")
            continue
        except OSError as error:
            missing.append(f"the kernel log could not be read to its end: {words_of(error)}")
            return
        if not piece:
            return
        record = parse_record(piece.decode("utf-8", "surrogateescape"))
        if record is not None and record.from_kernel:
            yield record


def _line(record: LogRecord, topic: str) -> LogLine:
    """Return a line on the monotonic clock (the kernel stamps with it, but for suspended time)."""
    return LogLine(min(record.stamp_seconds, time.monotonic()), topic, record.text[:_LINE_CHARACTERS])
