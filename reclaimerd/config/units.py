"""Sizes, durations and percents as people write them; pure, and cheap to import.

The command line uses these too, so nothing here may import pydantic or read the world.
"""

import math
import re

_SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)\s?([A-Za-z]*)", re.ASCII)
_SECONDS_PER = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION_PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)([a-z]+)", re.ASCII)
_PERCENT = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)\s?%", re.ASCII)

MOST_BYTES = 2**63 - 1
"""The largest size that SQLite and the kernel's own counters can hold."""
MOST_SECONDS = 366 * 86400.0
"""A year: whatever is longer is a slip of the pen, and no timer overflows below it."""

SIZE_MEND = 'write it with a binary unit (B, KiB, MiB, GiB, TiB), such as "8GiB"'
DURATION_MEND = 'write it with its units (d, h, m, s, ms), largest first, such as "30s", "2m" or "1m30s"'
PERCENT_MEND = 'write it as a share of 100, such as "70%"'


class BadValueError(ValueError):
    """A value that can't be taken: what is wrong with it, and how to mend it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}; {mend}")
        self.what = what
        self.mend = mend


def quoted(value: object) -> str:
    """Return a value as it may be shown on one line: cut to a readable length, control characters escaped."""
    text = str(value)
    return f'"{text[:80].encode("unicode_escape").decode("ascii")}{"..." if len(text) > 80 else ""}"'  # noqa: PLR2004 - 80 columns


def parse_size(text: str) -> int:
    """Return a size in bytes from `8GiB`; raise BadValueError for anything else, decimal units included."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadValueError(f"{quoted(text)} is not a size", SIZE_MEND)
    number, unit = found.groups()
    if unit not in _SIZE_UNITS:
        missing = f"unit {quoted(unit)} is not known" if unit else "its unit is missing"
        raise BadValueError(f"{quoted(text)} is not a size: {missing}", SIZE_MEND)
    size = round(float(number) * _SIZE_UNITS[unit]) if "." in number else int(number) * _SIZE_UNITS[unit]
    if size < 0:
        raise BadValueError(f"{quoted(text)} is negative", 'write a size above zero, such as "8GiB"')
    if size > MOST_BYTES:
        raise BadValueError(f"{quoted(text)} is larger than any memory", SIZE_MEND)
    return size


def parse_duration(text: str) -> float:
    """Return seconds from `30s`, `2m`, `1m30s`, `500ms`; raise BadValueError for anything else."""
    bare = text.strip()
    if bare.startswith("-"):
        raise BadValueError(f"{quoted(text)} is negative", 'write a time of zero or more, such as "30s"')
    parts = _DURATION_PART.findall(bare)
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        raise BadValueError(f"{quoted(text)} is not a duration", DURATION_MEND)
    order = list(_SECONDS_PER)
    units = [unit for _, unit in parts]
    unknown = [unit for unit in units if unit not in _SECONDS_PER]
    if unknown:
        raise BadValueError(
            f"{quoted(text)} is not a duration: unit {quoted(unknown[0])} is not known",
            DURATION_MEND,
        )
    places = [order.index(unit) for unit in units]
    if places != sorted(set(places)):
        raise BadValueError(f"{quoted(text)} repeats a unit or has them out of order", DURATION_MEND)
    seconds = math.fsum(float(number) * _SECONDS_PER[unit] for number, unit in parts)
    if seconds > MOST_SECONDS:
        raise BadValueError(f"{quoted(text)} is longer than a year", DURATION_MEND)
    return seconds


def parse_percent(text: str) -> float:
    """Return percent (0 to 100) from `70%`; raise BadValueError for anything else."""
    found = _PERCENT.fullmatch(text.strip())
    if found is None:
        raise BadValueError(f"{quoted(text)} is not a percentage", PERCENT_MEND)
    percent = float(found[1])
    if not 0 <= percent <= 100:  # noqa: PLR2004 - the meaning of percent
        raise BadValueError(f"{quoted(text)} is not between 0% and 100%", PERCENT_MEND)
    return percent


def format_size(size_bytes: int) -> str:
    """Return a size for people, in the largest fitting unit with at most one decimal: `8GiB`, `1.5MiB`."""
    for unit, worth in reversed(_SIZE_UNITS.items()):
        if abs(size_bytes) >= worth:
            return f"{size_bytes / worth:.1f}".removesuffix(".0") + unit
    return "0B"


def format_duration(seconds: float) -> str:
    """Return a duration for people, to the millisecond: `1m30s`, `500ms`, `0s`."""
    left = round(abs(seconds) * 1000)
    parts: list[str] = []
    for unit, worth in _SECONDS_PER.items():
        count, left = divmod(left, round(worth * 1000))
        if count:
            parts.append(f"{count}{unit}")
    sign = "-" if seconds < 0 and parts else ""
    return sign + ("".join(parts) or "0s")


def format_percent(percent: float) -> str:
    """Return a percentage for people, with at most one decimal: `70%`, `12.5%`."""
    return f"{percent:.1f}".removesuffix(".0") + "%"
