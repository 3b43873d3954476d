"""What reaches the terminal: lines, tables, JSON, and how figures are written.

Every word of another process passes `printable` here, so no control character gets through. The colours are
ours, and stand around words that have passed.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

import click

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.tables import Layout, Screen, fitted_lines
from reclaimerd.errors import ReclaimerdError

KIB = 1024
MINUTE, HOUR, DAY = 60, 3600, 86400
UNKNOWN = "unknown"
ATTENTION = "ATTENTION: "
_BOLD, _BOLD_RED = "1", "1;31"
LATEST = 253_402_300_800
"""The year 10000: past it the calendar's own functions raise, and a damaged file may say anything."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; a cell may hold anything, it is made printable when shown."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    layout: Layout = field(default_factory=Layout)


Block: TypeAlias = str | Table


def printable(text: str) -> str:
    """Return the text with every control, bidirectional or invisible character as an escape."""
    if text.isprintable():
        return text
    # Its masks cost 10 ms to import: not before a kill's request, and only for who needs them.
    from reclaimerd.host.proc_text import printable as escaped  # noqa: PLC0415 - see above

    return escaped(text)


def in_charset(text: str) -> str:
    """Return the printable text as the output's charset has it: what that can't say is an ASCII escape."""
    text = printable(text)
    if text.isascii():
        return text
    charset = sys.stdout.encoding or "ascii"
    return text.replace("…", _ellipsis()).encode(charset, "backslashreplace").decode(charset)


def _ellipsis() -> str:
    try:
        "…".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "..."
    return "…"


def say(line: str, *, to_stderr: bool = False) -> None:
    """Print one line for people; whatever it holds, it stays one line."""
    line = in_charset(line)
    if line.startswith(ATTENTION) and not to_stderr:
        line = _styled(line, _BOLD_RED)
    click.echo(line, err=to_stderr)


def show(blocks: Iterable[Block]) -> None:
    """Print lines and tables for people; a table fits the screen as its layout says."""
    for block in blocks:
        if isinstance(block, str):
            say(block)
            continue
        headings, *rows = plain_lines(block, Screen(_screen_width(), _ellipsis()))
        click.echo(_styled(headings, _BOLD))
        for line in rows:
            click.echo(line)


def _screen_width() -> int | None:
    """Return the columns that COLUMNS or the terminal says; None where neither does: no line is too long."""
    named = os.environ.get("COLUMNS", "")
    if named.isascii() and named.isdigit() and int(named) > 0:
        return int(named)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _styled(text: str, code: str) -> str:
    """Return the text in a style, on a terminal that has styles and whose user wants them (NO_COLOR)."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text


def show_json(body: Json) -> None:
    """Print one object; non-ASCII is escaped, so no name can steer the terminal."""
    click.echo(json.dumps(with_utc_times(body), indent=2, ensure_ascii=True))


def complain(error: ReclaimerdError, *, as_json: bool) -> None:
    """Say one error on stderr, a sentence with its mend; in JSON also as an object on stdout."""
    # Only faults are several lines: a line end in any other message came with a foreign word.
    *before, last = error.faults or (error.message,)
    for line in (*before, f"{last}; {error.mend}" if error.mend else last):
        say(f"reclaimctl: {line}", to_stderr=True)
    if as_json:
        show_json({"error": error.message, "mend": error.mend, "exit_code": int(error.exit_code)})


def stop_printing() -> None:
    """Let further output go nowhere: the reader of our output went away, the work goes on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def plain_lines(table: Table, screen: Screen | None = None) -> list[str]:
    """Return the table as aligned lines without colour, its headings first; with a screen they fit it."""
    rows = [table.headings, *(tuple(in_charset(cell) for cell in row) for row in table.rows)]
    return fitted_lines(rows, table.layout, screen or Screen())


def size_text(value: object) -> str:
    """Return bytes for people, such as `8.0 GiB`; what is not known is never zero."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return UNKNOWN
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:.1f} TiB"


def percent_text(value: object) -> str:
    """Return a share for people."""
    return f"{value:.0f} %" if isinstance(value, int | float) else UNKNOWN


def age_text(value: object) -> str:
    """Return a duration in seconds for people, in its two greatest units: `45s`, `3m12s`, `2d04h`."""
    if not isinstance(value, int | float):
        return UNKNOWN
    seconds = int(max(0.0, value))
    if seconds < MINUTE:
        return f"{seconds}s"
    if seconds < HOUR:
        return f"{seconds // MINUTE}m{seconds % MINUTE:02}s"
    if seconds < DAY:
        return f"{seconds // HOUR}h{seconds % HOUR // MINUTE:02}m"
    return f"{seconds // DAY}d{seconds % DAY // HOUR:02}h"


def instant(value: object) -> float | None:
    """Return an instant of the API (wall seconds, or RFC 3339) in wall seconds; None for what is none."""
    if isinstance(value, int | float):
        return float(value) if 0 <= value < LATEST else None
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None


def moment_text(value: object) -> str:
    """Return an instant in local time with its age, for people."""
    at = instant(value)
    if at is None:
        return UNKNOWN
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    away = time.time() - at
    return f"{local} ({age_text(away)} ago)" if away >= 0 else f"{local} (in {age_text(-away)})"


def clock_text(value: object) -> str:
    """Return the local time of day, for a line of progress."""
    at = instant(value)
    return time.strftime("%H:%M:%S", time.localtime(time.time() if at is None else at))


def user_text(value: object) -> str:
    """Return a user's name, or `uid 1234` where nobody knows it."""
    if not isinstance(value, int):
        return UNKNOWN
    import pwd  # noqa: PLC0415 - the name service may be slow: only who shows names pays

    try:
        return pwd.getpwuid(value).pw_name
    except (KeyError, OverflowError):
        return f"uid {value}"


def with_utc_times(value: Json) -> Json:
    """Return the object with its instants (`at`, `*_at`, `since`, `until`) as RFC 3339 in UTC."""
    return {key: _utc(key, item) for key, item in value.items()}


def _utc(key: str, value: object) -> object:
    if isinstance(value, dict):
        return with_utc_times(value)
    if isinstance(value, list | tuple):
        return [with_utc_times(item) if isinstance(item, dict) else item for item in value]
    is_instant = key in {"at", "since", "until"} or key.endswith("_at")
    if is_instant and isinstance(value, int | float) and not isinstance(value, bool):
        at = instant(value)
        if at is None:
            return None
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
