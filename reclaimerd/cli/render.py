"""What reaches the terminal: lines, tables, JSON, and how figures are written.

Every word of another process passes `printable` here, so no control character gets through. rich
is imported only for a table on a terminal.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import click

from reclaimerd.cli.http_socket import Json
from reclaimerd.errors import ReclaimerdError

KIB = 1024
MINUTE, HOUR, DAY = 60, 3600, 86400
UNKNOWN = "unknown"
LATEST = 253_402_300_800
"""The year 10000: past it the calendar's own functions raise, and a damaged file may say anything."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; a cell may hold anything, it is made printable when shown."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block: TypeAlias = str | Table


def printable(text: str) -> str:
    """Return the text with every control, bidirectional or invisible character as an escape."""
    if text.isprintable():
        return text
    # Its masks cost 10 ms to import: not before a kill's request, and only for who needs them.
    from reclaimerd.host.proc_text import printable as escaped  # noqa: PLC0415 - see above

    return escaped(text)


def say(line: str, *, to_stderr: bool = False) -> None:
    """Print one line for people; whatever it holds, it stays one line."""
    click.echo(printable(line), err=to_stderr)


def show(blocks: Iterable[Block]) -> None:
    """Print lines and tables for people."""
    for block in blocks:
        if isinstance(block, str):
            say(block)
        elif sys.stdout.isatty():
            _show_on_terminal(block)
        else:
            for line in plain_lines(block):
                click.echo(line)


def show_json(body: Json) -> None:
    """Print one object; non-ASCII is escaped, so no name can steer the terminal."""
    click.echo(json.dumps(with_utc_times(body), indent=2, ensure_ascii=True))


def complain(error: ReclaimerdError, *, as_json: bool) -> None:
    """Say one error on stderr, a sentence with its mend; in JSON also as an object on stdout."""
    for line in str(error).splitlines():
        say(f"reclaimctl: {line}", to_stderr=True)
    if as_json:
        show_json({"error": error.message, "mend": error.mend, "exit_code": int(error.exit_code)})


def stop_printing() -> None:
    """Let further output go nowhere: the reader of our output went away, the work goes on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def plain_lines(table: Table) -> list[str]:
    """Return the table as aligned lines without colour."""
    rows = [table.headings, *(tuple(printable(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headings))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _show_on_terminal(table: Table) -> None:
    """Print the table with rich; never cut: a shortened PID would name another process."""
    # Only a terminal pays for rich.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    needed = max(len(line) for line in plain_lines(table)) + 2 * len(table.headings)
    console = Console(highlight=False)
    console.width = max(console.width, needed)
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for heading in table.headings:
        grid.add_column(heading, no_wrap=True)
    for row in table.rows:
        grid.add_row(*(Text(printable(cell)) for cell in row))
    console.print(grid, soft_wrap=True)


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
