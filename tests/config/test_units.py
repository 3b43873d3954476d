"""Sizes, durations and percents: what people write, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaimerd.config.units import (
    BadValueError,
    format_duration,
    format_percent,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
    quoted,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 * 2**30), ("0B", 0), ("512 MiB", 2**29), ("1.5KiB", 1536), ("2TiB", 2**41)],
)
def test_a_size_is_bytes(text: str, size: int) -> None:
    """A binary unit gives exactly its bytes."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["8GB", "8", "GiB", "-1GiB", "8 gib", "1e9B", "٣GiB", "", "9999999999TiB"])
def test_a_size_without_a_binary_unit_is_refused(text: str) -> None:
    """Decimal units, bare numbers, negative and absurd sizes are refused with a mend."""
    with pytest.raises(BadValueError) as caught:
        parse_size(text)
    assert caught.value.mend


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("2m", 120),
        ("1h", 3600),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("0s", 0),
        ("1d", 86400),
        ("1.5h", 5400),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """Units add up."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["30", "s", "", "-3s", "30s2m", "1s1s", "1y", "3 s", "1m 30s", "inf", "400d", "٣s"]
)
def test_a_duration_that_is_unclear_is_refused(text: str) -> None:
    """Missing, repeated, unknown or disordered units and negative times are refused with a mend."""
    with pytest.raises(BadValueError) as caught:
        parse_duration(text)
    assert caught.value.mend


def test_a_percentage_lies_between_0_and_100() -> None:
    """A share is taken as written, and beyond 100 % refused."""
    assert parse_percent("70%") == 70
    assert parse_percent("12.5 %") == 12.5
    for text in ("101%", "-1%", "70", "%", "nan%"):
        with pytest.raises(BadValueError):
            parse_percent(text)


@settings(database=None)
@given(st.integers(min_value=0, max_value=366 * 86400 * 1000))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    """Formatting loses nothing down to the millisecond."""
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@settings(database=None)
@given(st.integers(min_value=0, max_value=2**60))
def test_a_formatted_size_is_near(size: int) -> None:
    """A size for people is rounded by less than five percent."""
    assert abs(parse_size(format_size(size)) - size) <= 0.05 * size


def test_figures_for_people_are_short() -> None:
    """No needless decimals, and a sign where there is one."""
    assert [format_size(size) for size in (0, 1023, 8 * 2**30, 1536)] == ["0B", "1023B", "8GiB", "1.5KiB"]
    assert [format_duration(seconds) for seconds in (0, 90, 0.25, -1)] == ["0s", "1m30s", "250ms", "-1s"]
    assert [format_percent(percent) for percent in (70.0, 12.5)] == ["70%", "12.5%"]


def test_a_quoted_value_stays_on_one_line() -> None:
    """Newlines and escape codes in a value can't forge a line of output."""
    shown = quoted("a\nb\x1b[31m" + "x" * 500)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) < 120
