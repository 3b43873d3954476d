"""Windows of time as a rule has them: the five fields of crontab(5), written out by croniter.

Only what crontab(5) itself has: no seconds, no @words, no random, hashed, last or nth days. Whether a
time zone exists is `known_here`'s business.
"""

import re
from collections.abc import Sequence

from reclaimerd.config.units import BadValueError, quoted
from reclaimerd.config.values import shape_of
from reclaimerd.model.policy import TimeWindow

_MEND = 'write minute, hour, day, month and weekday, such as "* 8-17 * * mon-fri" for office hours'
_FIELDS = 5
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_WEEKDAYS = "sun|mon|tue|wed|thu|fri|sat"
_NAMES = ("", "", "", _MONTHS, _WEEKDAYS)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_DAYS_OF = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}", re.ASCII)
MOST_LENGTH = 256


def window(value: object) -> TimeWindow:
    """Return a window with all its minutes, hours, days, months and weekdays written out."""
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a window of time", _MEND)
    fields = value.lower().split()
    if value.strip().startswith("@"):
        raise BadValueError(f"{quoted(value)} is a moment and no window", _MEND)
    if len(fields) != _FIELDS or len(value) > MOST_LENGTH:
        raise BadValueError(f"{quoted(value)} has not five fields", _MEND)
    for field, names in zip(fields, _NAMES, strict=True):
        _refuse_strangers(value, field, names)
    sets = [_numbers(each, *span) for each, span in zip(_expanded(value, fields), _RANGES, strict=True)]
    minutes, hours, days, months, weekdays = sets
    if len(weekdays) == len(range(7)) and min(days) > max(_DAYS_OF[month - 1] for month in months):
        raise BadValueError(f"{quoted(value)} never comes: no such month has such a day", _MEND)
    return TimeWindow(" ".join(value.split()), minutes, hours, days, months, weekdays)


def _expanded(value: str, fields: Sequence[str]) -> Sequence[Sequence[int | str]]:
    """Return what each field stands for; raise for one that is out of range."""
    # Imported here, not above: it costs 30 ms that a policy without windows need not pay.
    from croniter import CroniterError, croniter  # noqa: PLC0415 - see the comment above

    try:
        expanded, _ = croniter.expand(" ".join(fields))
    except CroniterError as error:
        said = " ".join(str(error).split())
        raise BadValueError(f"{quoted(value)} is no window: {said}", _MEND) from error
    return expanded


def _refuse_strangers(value: str, field: str, names: str) -> None:
    """Raise for anything that crontab(5) has not: croniter knows more, some of it drawn by lot."""
    number = rf"(?:\d{{1,2}}|{names})" if names else r"\d{1,2}"
    part = rf"(?:\*|{number}(?:-{number})?)(?:/\d{{1,2}})?"
    if re.fullmatch(rf"{part}(?:,{part})*", field, re.ASCII) is None:
        raise BadValueError(f"{quoted(value)} is no window: {quoted(field)} is not known there", _MEND)


def _numbers(expanded: Sequence[int | str], least: int, most: int) -> frozenset[int]:
    if "*" in expanded:
        return frozenset(range(least, most + 1))
    return frozenset(each for each in expanded if isinstance(each, int))


def zone(value: object) -> str:
    """Return a text that can be a time zone's name."""
    mend = 'write a name of the time zone database, such as "Europe/Berlin" or "UTC"'
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a time zone", mend)
    if _ZONE.fullmatch(value) is None:
        raise BadValueError(f"{quoted(value)} is not a time zone's name", mend)
    return value
