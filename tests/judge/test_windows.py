"""A rule's time windows by the clock of their zone, over both changes of summer time; what shuts a rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.windows import in_windows, shut_rules
from reclaimerd.model.policy import Per, TimeWindow
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling
from tests.builders import MONO, a_busy_snapshot, a_policy, a_rule
from tests.judge.test_evaluate import CONTEXT

BERLIN = "Europe/Berlin"
EVERY = TimeWindow(
    text="* * * * *",
    minutes=frozenset(range(60)),
    hours=frozenset(range(24)),
    days=frozenset(range(1, 32)),
    months=frozenset(range(1, 13)),
    weekdays=frozenset(range(7)),
)


def window(**fields: Any) -> TimeWindow:
    """Return a window that is open at every minute, but for these fields."""
    sets: dict[str, Any] = {
        key: value if key in {"zone", "text"} else frozenset(value) for key, value in fields.items()
    }
    return replace(EVERY, **sets)


def at(*when: int, zone: str = "UTC", fold: int = 0) -> float:
    """Return the wall-clock seconds of a local time."""
    return datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).timestamp()  # type: ignore[arg-type, misc] # year to minute


OFFICE = window(text="* 8-17 * * mon-fri", hours=range(8, 18), weekdays=range(1, 6), zone=BERLIN)


@pytest.mark.parametrize(
    ("one", "when", "is_open"),
    [
        (OFFICE, at(2026, 11, 30, 8, 0, zone=BERLIN), True),
        (OFFICE, at(2026, 11, 30, 7, 59, zone=BERLIN), False),
        (OFFICE, at(2026, 11, 30, 17, 59, zone=BERLIN), True),
        (OFFICE, at(2026, 11, 30, 18, 0, zone=BERLIN), False),
        (OFFICE, at(2026, 11, 29, 12, 0, zone=BERLIN), False),
        (OFFICE, at(2026, 11, 30, 7, 30), True),
        (OFFICE, at(2026, 11, 30, 17, 30), False),
        (window(minutes=[0, 30]), at(2026, 1, 1, 5, 30), True),
        (window(minutes=[0, 30]), at(2026, 1, 1, 5, 31), False),
        (window(months=[2]), at(2026, 2, 28, 5, 30), True),
        (window(months=[2]), at(2026, 3, 1, 0, 0), False),
        (window(weekdays=[0]), at(2026, 11, 29, 0, 0), True),
        (window(weekdays=[0]), at(2026, 11, 30, 0, 0), False),
        (window(days=[1]), at(2026, 12, 1, 0, 0), True),
        (window(days=[1]), at(2026, 12, 2, 0, 0), False),
        (window(days=[1], weekdays=[0]), at(2026, 12, 1, 0, 0), True),
        (window(days=[1], weekdays=[0]), at(2026, 12, 6, 0, 0), True),
        (window(days=[1], weekdays=[0]), at(2026, 12, 2, 0, 0), False),
    ],
)
def test_a_window_is_open_in_its_minutes(one: TimeWindow, when: float, is_open: bool) -> None:  # noqa: FBT001 - a table's column
    """Minute, hour and month must fit, and the day or the weekday where both are restricted (crontab(5))."""
    assert in_windows([one], when) is is_open
    assert in_windows([one, window(months=[])], when) is is_open


def test_no_window_is_always_open() -> None:
    """A rule without windows holds at all times; a window of an unknown zone never opens."""
    assert in_windows([], at(2026, 1, 1))
    for zone in ("Nowhere/City", "", "../etc/passwd"):
        assert not in_windows([window(zone=zone)], at(2026, 1, 1))
        assert in_windows([window(zone=zone), EVERY], at(2026, 1, 1))


def test_the_hour_that_summer_time_leaves_out_never_comes() -> None:
    """On 2026-03-29 in Berlin the clock goes from 01:59 to 03:00: a window from 2 to 3 stays shut all day."""
    night = window(hours=[2], zone=BERLIN)
    begin = at(2026, 3, 29, zone=BERLIN)
    assert not any(in_windows([night], begin + 60 * minute) for minute in range(23 * 60))
    assert in_windows([window(hours=[3], zone=BERLIN)], at(2026, 3, 29, 1, 0))


def test_the_hour_that_comes_twice_is_open_twice() -> None:
    """On 2026-10-25 in Berlin the hour from 2 to 3 comes twice: two hours of real time."""
    night = window(hours=[2], zone=BERLIN)
    begin = at(2026, 10, 25, zone=BERLIN)
    opened = [minute for minute in range(25 * 60) if in_windows([night], begin + 60 * minute)]
    assert opened == list(range(120, 240))


@given(st.integers(0, 4_000_000_000), st.sampled_from([BERLIN, "UTC", "Asia/Kolkata", "Pacific/Apia"]))
def test_the_local_minute_is_the_one_that_opens(seconds: int, zone: str) -> None:
    """A window of just this local minute is open, and one of all others is not."""
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone))
    just = window(
        minutes=[local.minute], hours=[local.hour], days=[local.day], months=[local.month], zone=zone
    )
    assert in_windows([just], float(seconds))
    others = set(range(60)) - {local.minute}
    assert not in_windows([replace(just, minutes=frozenset(others))], float(seconds))


def test_only_shut_rules_are_named() -> None:
    """Each shut rule comes with its windows in words."""
    rules = [a_rule("always"), a_rule("now", windows=(EVERY,)), a_rule("office", windows=(OFFICE,))]
    assert shut_rules(rules, at(2026, 11, 29, 12, 0)) == {
        "office": "it is outside the rule's times (* 8-17 * * mon-fri Europe/Berlin)"
    }


def _look(hour: int, seconds: float) -> Snapshot:
    return a_busy_snapshot(at=MONO + seconds, taken_at=at(2026, 11, 30, hour, 0))


@pytest.mark.parametrize("per", [Per.PROCESS, Per.USER])
def test_outside_its_times_a_rule_does_not_hold_and_starts_anew(per: Per) -> None:
    """The look outside ends the `for`: afterwards the rule waits its whole time again."""
    rule = a_rule(for_seconds=2.0, readings=2, windows=(window(hours=[9]),), per=per)
    policy = a_policy(rule)
    found, rulings, texts = evaluate(_look(9, 0), policy, (), CONTEXT), [], []
    for step, hour in enumerate((9, 10, 9, 9), start=1):
        found = evaluate(_look(hour, 2.0 * step), policy, found.sustained, CONTEXT, found.past)
        rulings.append(found.verdicts[0].ruling)
        texts.append(found.verdicts[0].reasons[0].text)
    assert rulings == [Ruling.RECLAIM, Ruling.WATCH, Ruling.WATCH, Ruling.RECLAIM]
    assert texts[1].startswith("it is outside the rule's times")
    assert "so far for 0 of 2 s" in texts[2]


def test_who_can_not_be_read_is_not_judged_by_a_shut_rule() -> None:
    """A shut rule does not hold of anybody; an open one beside it can't tell, and keeps what it counted."""
    rules = (a_rule("shut", windows=(window(hours=[9]),)), a_rule("open"))
    first = evaluate(_look(9, 0), a_policy(*rules), (), CONTEXT)
    assert {kept.rule for kept in first.sustained} == {"shut", "open"}
    blind = replace(_look(10, 2.0), processes={}, unreadable={100: "hung"})
    found = evaluate(blind, a_policy(*rules), first.sustained, CONTEXT, first.past)
    assert {kept.rule for kept in found.sustained} == {"open"}
    assert [reason.ruling for reason in found.verdicts[0].reasons] == [
        Ruling.UNDETERMINED, Ruling.WATCH, Ruling.UNDETERMINED,
    ]  # fmt: skip
    assert found.verdicts[0].ruling is Ruling.UNDETERMINED


@pytest.mark.parametrize("wall_seconds", [1e300, -1e300, 253_402_300_800.0, float(10**18)])
def test_an_instant_of_no_calendar_is_in_no_window(wall_seconds: float) -> None:
    """A damaged record's clock: nothing holds by it, and nothing breaks."""
    window = TimeWindow(
        "* * * * *",
        frozenset(range(60)),
        frozenset(range(24)),
        frozenset(range(1, 32)),
        frozenset(range(1, 13)),
        frozenset(range(7)),
    )
    assert not in_windows((window,), wall_seconds)
    assert in_windows((), wall_seconds)
