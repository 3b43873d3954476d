"""Windows of time and their zones in the policy file."""

import zoneinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.config.check import check
from reclaimerd.config.load import load
from reclaimerd.config.time_windows import window
from reclaimerd.config.units import BadValueError
from reclaimerd.model.policy import Policy, TimeWindow

RULE = '[[rule]]\nname = "x"\nabove = "8GiB"\n'
OFFICE = "* 8-17 * * mon-fri"
EVERY = frozenset[int]


def of(text: str) -> tuple[int, int, int, int, int]:
    """Return how many values each field of a window has."""
    got = window(text)
    return len(got.minutes), len(got.hours), len(got.days), len(got.months), len(got.weekdays)


def loaded(tmp_path: Path, text: str) -> Policy:
    """Return the policy of a text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, enforce_ownership=False).policy


def only_fault(tmp_path: Path, text: str) -> tuple[int, str, str, str]:
    """Return line, key, what and mend of the one fault of a text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    (fault,) = check(path)
    return fault.line, fault.key, fault.what, fault.mend


def test_a_window_is_written_out() -> None:
    """Each field becomes the set of its numbers; a star is all of them, Sunday is 0 in either spelling."""
    assert window(OFFICE) == TimeWindow(
        OFFICE,
        EVERY(range(60)),
        EVERY(range(8, 18)),
        EVERY(range(1, 32)),
        EVERY(range(1, 13)),
        EVERY(range(1, 6)),
    )
    assert window("0,30 */6 1-7 jan,DEC 7").weekdays == {0}
    assert window("0,30 */6 1-7 jan,DEC 7").months == {1, 12}
    assert window("0,30 */6 1-7 jan,DEC 7").hours == {0, 6, 12, 18}
    assert window("* 22-6 * * *").hours == {22, 23, 0, 1, 2, 3, 4, 5, 6}
    assert window("* * * * fri-mon").weekdays == {5, 6, 0, 1}
    assert of("*  *\t* * 0-7") == (60, 24, 31, 12, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "* * * * * 2030 *",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "* * l * *",
        "* * * * l5",
        "* * * * 1#2",
        "? * * * *",
        "* * ? * *",
        "r * * * *",
        "h * * * *",
        "r(1-3) * * * *",
        "* * * foo *",
        "* * * * mon,",
        "* mon * * *",
        "-1 * * * *",
        "*/0 * * * *",
        "* * 31 2 *",
        "* * 30 feb *",
        "* * 31 4,6,9,11 *",
        "1_0 * * * *",
        "\u0663 * * * *",
        "* * * * mon-fri-sat",
        "99999999999999999999 * * * *",
        "1," * 500 + "1 * * * *",
    ],
)
def test_what_crontab_has_not_is_refused(text: str) -> None:
    """Seconds, words, lots, hashes, last days, days that never come: each with a mend."""
    with pytest.raises(BadValueError) as caught:
        window(text)
    assert "write minute, hour, day" in caught.value.mend


def test_a_day_that_some_month_has_is_a_window() -> None:
    """The 29th of February comes, and the 31st in some months; with a weekday either day counts."""
    assert window("* * 29 2 *").days == {29}
    assert window("* * 31 * *").days == {31}
    assert window("* * 31 2 mon").weekdays == {1}


@given(
    st.text(max_size=40)
    | st.from_regex(r"([0-9*,/a-z#?@()-]{1,6} ){4}[0-9*,/a-z#?@()-]{1,6}", fullmatch=True)
)
def test_no_text_raises_anything_else(text: str) -> None:
    """A window is refused or whole: no field is empty, and every number is in its range."""
    try:
        got = window(text)
    except BadValueError:
        return
    assert got.minutes <= set(range(60))
    assert got.hours <= set(range(24))
    assert got.days <= set(range(1, 32))
    assert got.months <= set(range(1, 13))
    assert got.weekdays <= set(range(7))
    assert all((got.minutes, got.hours, got.days, got.months, got.weekdays))
    assert window(got.text) == got


def test_a_rule_has_its_windows_in_its_zone(tmp_path: Path) -> None:
    """Each window carries the rule's zone; one text stands for a list of one; left out there are none."""
    (rule,) = loaded(tmp_path, RULE + f'windows = ["{OFFICE}", "* * * * sun"]\nzone = "Europe/Berlin"').rules
    assert [(each.text, each.zone) for each in rule.windows] == [
        (OFFICE, "Europe/Berlin"),
        ("* * * * sun", "Europe/Berlin"),
    ]
    (rule,) = loaded(tmp_path, RULE + f'windows = "{OFFICE}"').rules
    assert [each.zone for each in rule.windows] == ["UTC"]
    assert loaded(tmp_path, RULE).rules[0].windows == ()


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [
        ("windows = []", 4, "rule[0].windows", "empty; leave the key out"),
        ("windows = [8]", 4, "rule[0].windows[0]", "the number 8; minute, hour"),
        (f'windows = ["{OFFICE}", "@daily"]', 4, "rule[0].windows[1]", "no window; minute, hour"),
        ('zone = "Europe/Berlin"', 4, "rule[0].zone", "no windows; add windows"),
        (f'windows = "{OFFICE}"\nzone = "Europe/Berln"', 5, "rule[0].zone", "no time zone; Europe/Berlin"),
        (f'windows = "{OFFICE}"\nzone = "Europe"', 5, "rule[0].zone", "no time zone; timedatectl"),
        (f'windows = "{OFFICE}"\nzone = "../x"', 5, "rule[0].zone", "not a time zone; Europe/Berlin"),
        (f'windows = "{OFFICE}"\nzone = 1', 5, "rule[0].zone", "the number 1; Europe/Berlin"),
    ],
)
def test_faults_have_line_and_mend(tmp_path: Path, text: str, line: int, key: str, said: str) -> None:
    """One slip is one fault, in its place."""
    got = only_fault(tmp_path, RULE + text)
    assert got[:2] == (line, key)
    what, mend = said.split("; ")
    assert what in got[2]
    assert mend in got[3]


def test_a_host_without_time_zones_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a database even UTC is unknown: then a rule with windows is a fault, and others are none."""

    def nothing(name: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", nothing)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    got = only_fault(tmp_path, RULE + f'windows = "{OFFICE}"')
    assert got[1] == "rule[0].zone"
    assert "tzdata" in got[3]
    path = tmp_path / "bare.toml"
    path.write_text(RULE, encoding="utf-8")
    assert check(path) == ()


def test_both_kinds_of_day_are_a_warning(tmp_path: Path) -> None:
    """Whoever writes both may mean both, and crontab means either."""
    path = tmp_path / "policy.toml"
    path.write_text(RULE + 'windows = "* * 1-7 * mon"', encoding="utf-8")
    (warning,) = load(path, enforce_ownership=False).warnings
    assert "either" in warning
    path.write_text(RULE + f'windows = "{OFFICE}"', encoding="utf-8")
    assert load(path, enforce_ownership=False).warnings == ()
