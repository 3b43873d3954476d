"""The daemon's log: short constant events with fields, as JSON lines or as entries of the journal.

structlog stands behind it and brings rich along, a tenth of a second: it is imported at the first
line, so that a command in the foreground does not pay for it. Lines go through a bounded queue to a
thread of their own: a full journal socket must not stop the loop, and what does not fit is counted
and reported, never waited for.
"""

import json
import os
import queue
import re
import socket
import sys
import threading
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from reclaimerd.record.journal import SOCKET, connected, entry

if TYPE_CHECKING:
    from structlog.types import Processor

_MOST_WAITING = 2000
_CLOSE_SECONDS = 1.0
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+,-]+")
"""Values that are shown as they are; all others are JSON strings, with control characters escaped."""
_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""sd-daemon(3): what `<N>` before a line means to the journal."""


class LineQueue:
    """Writes lines to one descriptor from its own thread; drops them, counted, when it falls behind."""

    __slots__ = ("_dropped", "_fd", "_lines", "_lock", "_reopen", "_report", "_thread")

    def __init__(
        self,
        descriptor: int,
        report: Callable[[int], str],
        most_waiting: int = _MOST_WAITING,
        *,
        reopen: Callable[[], socket.socket | None] | None = None,
    ) -> None:
        self._fd = descriptor
        self._reopen = reopen
        self._report = report
        self._lines: queue.Queue[str | None] = queue.Queue(most_waiting)
        self._dropped = 0
        self._lock = threading.Lock()
        # A daemon thread: a reader of the log that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._serve, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Queue one line, or count it as dropped; never waits."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            with self._lock:
                self._dropped += 1

    # structlog calls the method that is named like the level.
    debug = info = warning = error = critical = put

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Write what is queued, for at most this long."""
        try:
            self._lines.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _serve(self) -> None:
        """Write line after line; a descriptor that fails loses lines, and the daemon goes on."""
        while (line := self._lines.get()) is not None:
            self._write(line)
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(self._report(dropped))

    def _write(self, line: str) -> None:
        """Write one line whole, after a failure once more to a reader that came in the old one's place."""
        left = memoryview(line.encode("ascii", "backslashreplace") + b"\n")
        # Nobody is left to tell: the log itself is what failed. Records are in the audit log.
        with suppress(OSError):
            try:
                self._write_all(left)
            except OSError:  # of the socket alone, whose every write is whole or not at all
                if self._reopened():
                    self._write_all(left)

    def _write_all(self, left: memoryview) -> None:
        while left:
            left = left[os.write(self._fd, left) :]

    def _reopened(self) -> bool:
        """Put a new end in the place of one whose reader went away; tell whether there is one."""
        end = None if self._reopen is None else self._reopen()
        if end is None:
            return False
        with end:
            os.dup2(end.fileno(), self._fd, inheritable=False)
        return True


def journal_attached(stream: TextIO) -> bool:
    """Tell whether the stream goes to the journal: JOURNAL_STREAM names it (systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM", "") == f"{status.st_dev}:{status.st_ino}"


def configure(stream: TextIO = sys.stderr, *, journal: bool, at: Path = SOCKET) -> LineQueue:
    """Send every event to the stream as JSON lines, or to the journal as entries with fields.

    Where the journal's own socket can't be had, it gets priority-prefixed lines by the stream. The
    returned queue is to be closed at the end, so that the last lines are written.
    """
    import structlog  # noqa: PLC0415  # see above

    native = connected(at) if journal else None
    render = (journal_line if native is None else journal_entry) if journal else json_line
    lines = LineQueue(
        stream.fileno() if native is None else native.detach(),  # open as long as the process is
        lambda count: render(None, "warning", {"event": "log_lines_dropped", "count": count}),
        # Journald's socket made anew (a restart of its socket unit): without this, silence until our end.
        reopen=None if native is None else lambda: connected(at),
    )
    processors: list[Processor] = [structlog.contextvars.merge_contextvars]
    if not journal:
        processors.append(structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"))
    processors.append(render)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    return lines


def event(name: str, **fields: object) -> None:
    """Log one event at level info: `event("pass_slow", seconds=3.2)`."""
    _logger().info(name, **fields)


def warning(name: str, **fields: object) -> None:
    """Log one event that a person should look at some time."""
    _logger().warning(name, **fields)


def error(name: str, **fields: object) -> None:
    """Log one event that a person should look at now."""
    _logger().error(name, **fields)


def _logger() -> Any:  # noqa: ANN401  # structlog's own type for a logger of any class
    import structlog  # noqa: PLC0415  # see above

    if not structlog.is_configured():
        # A command in the foreground: stdout is its answer, maybe JSON, so a line goes to stderr.
        return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), processors=[json_line])
    return structlog.get_logger()


def json_line(_logger: object, method: str, event_dict: MutableMapping[str, Any]) -> str:
    """Return one JSON object with `level` and `event` first; every odd character is escaped."""
    name = event_dict.pop("event", "")
    return json.dumps({"level": method, "event": name, **event_dict}, default=str, separators=(",", ":"))


def journal_line(_logger: object, method: str, event_dict: MutableMapping[str, Any]) -> str:
    """Return `<N>event key=value ...`; values with blanks or odd characters are JSON strings."""
    return f"<{_PRIORITIES.get(method, 6)}>{_message(event_dict)}"


def journal_entry(_logger: object, method: str, event_dict: MutableMapping[str, Any]) -> str:
    """Return the lines of one entry: the message as in a plain line, and each field by itself."""
    fields = {key: _value(value) for key, value in event_dict.items() if key != "event"}
    name = _value(event_dict.get("event", ""))
    return entry(_PRIORITIES.get(method, 6), name, _message(event_dict), fields)


def _message(event_dict: MutableMapping[str, Any]) -> str:
    name = _value(event_dict.pop("event", ""))
    return name + "".join(f" {_value(key)}={_value(value)}" for key, value in event_dict.items())


def _value(value: object) -> str:
    """Return a value that can't break out of its line or pretend to be another field."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
