"""Tell whether a rule's time windows are open at one instant; wall-clock seconds in, pure.

A minute that a change to summer time leaves out never comes, and one that a change back repeats comes
twice: as the clock on the wall shows it. A zone that this host does not know has no minute, and its
windows are never open: such a rule takes nobody.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from reclaimerd.model.policy import Rule, TimeWindow

_EVERY_DAY = frozenset(range(1, 32))
_EVERY_WEEKDAY = frozenset(range(7))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

LocalMinute = Callable[[str], datetime | None]
"""Returns the local time in a zone of the IANA database; None where this host does not know it."""


def in_windows(windows: Iterable[TimeWindow], wall_seconds: float) -> bool:
    """Tell whether one of these windows is open; none at all is always open."""
    return _is_open(tuple(windows), _local_minutes(wall_seconds))


def shut_rules(rules: Iterable[Rule], wall_seconds: float) -> Mapping[str, str]:
    """Return each rule whose windows are all shut, by name, with the sentence that says so."""
    minutes = _local_minutes(wall_seconds)
    return {
        rule.name: _shut_text(rule.windows)
        for rule in rules
        if rule.windows and not _is_open(rule.windows, minutes)
    }


def _shut_text(windows: tuple[TimeWindow, ...]) -> str:
    named = "; ".join(f"{window.text} {window.zone}" for window in windows)
    return f"it is outside the rule's times ({named})"


def _is_open(windows: tuple[TimeWindow, ...], minutes: LocalMinute) -> bool:
    return not windows or any(_has(window, minutes(window.zone)) for window in windows)


def _local_minutes(wall_seconds: float) -> LocalMinute:
    """Return what makes the local time of one instant, once for each zone."""

    @cache
    def local(zone: str) -> datetime | None:
        try:
            return (_EPOCH + timedelta(seconds=wall_seconds)).astimezone(ZoneInfo(zone))
        except (KeyError, ValueError, OSError):  # no such name, no name at all, an unreadable file
            return None
        except OverflowError:  # an instant of no calendar: a damaged record has such
            return None

    return local


def _has(window: TimeWindow, now: datetime | None) -> bool:
    if now is None:
        return False
    at_this_time = now.minute in window.minutes and now.hour in window.hours and now.month in window.months
    return at_this_time and _has_day(window, now)


def _has_day(window: TimeWindow, now: datetime) -> bool:
    """Tell whether the day counts: where day and weekday are both restricted, either does (crontab(5))."""
    day = now.day in window.days
    weekday = now.isoweekday() % 7 in window.weekdays
    both = window.days != _EVERY_DAY and window.weekdays != _EVERY_WEEKDAY
    return day or weekday if both else day and weekday
