"""Tables on screens of every width: rows that fit, identities that stay whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.cli.tables import Layout, Screen, columns_of, fitted_lines, shortened

WORDS = st.text(st.sampled_from("ab é名 "), max_size=40)
LAYOUT = Layout(cut=(("NAME", 6),), drop=("AGE",), folds=True)


@given(WORDS, WORDS, st.integers(40, 120), st.booleans())
def test_rows_fit_and_the_pid_stays_whole(name: str, note: str, width: int, folds: bool) -> None:  # noqa: FBT001  # hypothesis
    """Whatever the letters, no line is wider than the screen, and each row begins with its pid."""
    layout = (
        Layout(LAYOUT.cut, LAYOUT.drop, folds) if folds else Layout((*LAYOUT.cut, ("NOTE", 6)), LAYOUT.drop)
    )
    lines = fitted_lines(
        [("PID", "NAME", "AGE", "NOTE"), ("4242@99", name, "2d", note)], layout, Screen(width)
    )
    assert all(columns_of(line) <= width for line in lines)
    (row,) = [line for line in lines if not re.match(" |PID", line)][:1]
    assert row.startswith("4242@99")
    if folds and "名" not in note:
        assert "".join(note.split()) in "".join("".join(lines).split())


@given(WORDS, st.integers(3, 50))
def test_what_is_cut_says_so(text: str, width: int) -> None:
    """A text that fits is untouched, another ends in the ellipsis and is no wider than asked."""
    for ellipsis in ("…", "..."):
        cut = shortened(text, width, ellipsis)
        assert columns_of(cut) <= width
        assert cut == text or cut.endswith(ellipsis)
        assert cut == text or columns_of(text) > width


@pytest.mark.parametrize("width", [None, 200])
def test_a_wide_screen_changes_nothing(width: int | None) -> None:
    """Where all has room nothing is cut, left out or folded."""
    rows = [("PID", "NAME", "AGE", "NOTE"), ("1@2", "n" * 60, "2d", "some words")]
    assert fitted_lines(rows, LAYOUT, Screen(width))[1].split() == ["1@2", "n" * 60, "2d", "some", "words"]


def test_columns_are_left_out_in_order_and_named() -> None:
    """What gives way last is named below the table; a column that may not give way never does."""
    lines = fitted_lines([("PID", "AGE", "NOTE"), ("4242@99", "2d", "x")], Layout(drop=("AGE",)), Screen(10))
    assert lines == ["PID      NOTE", "4242@99  x", "(no room for AGE: a wider screen or --json has it)"]
