"""Unknown is a value: it has no truth, is never mixed up with zero, and says why."""

import pytest

from reclaimerd.model.reading import Absent, Known, Reading, Unreadable, known_or_none, text_of

_THREE: tuple[Reading[int], ...] = (Known(0), Unreadable("no permission"), Absent("not offered"))


@pytest.mark.parametrize("reading", _THREE, ids=lambda reading: reading.kind)
def test_no_reading_has_a_truth_value(reading: Reading[int]) -> None:
    """`if reading:` can't slip through, in whatever form it is written."""
    with pytest.raises(TypeError, match="no truth value"):
        bool(reading)
    with pytest.raises(TypeError):
        assert not reading


def test_only_a_known_reading_gives_a_value() -> None:
    """Zero is a value; unreadable and absent are none."""
    assert [known_or_none(reading) for reading in _THREE] == [0, None, None]


def test_each_reads_as_words() -> None:
    """A person sees the value, or why there is none."""
    assert [text_of(reading) for reading in _THREE] == [
        "0",
        "unreadable (no permission)",
        "absent (not offered)",
    ]


def test_the_three_never_compare_equal() -> None:
    """Also with the same words."""
    assert len({Known("x"), Unreadable("x"), Absent("x")}) == 3
    assert Known("x") == Known("x")
