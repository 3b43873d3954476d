"""Claims about the fleet's limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.model.drain_policy import FleetMark, FleetSettings

NOW = 1_800_000_000.0
ME = ("me", "stuck_exit")


@pytest.mark.parametrize(
    ("nodes", "limit"), [(0, 1), (1, 1), (2, 1), (3, 1), (100, 1), (199, 1), (200, 2), (400, 4), (10_000, 5)]
)
def test_the_limit_is_the_smaller_of_both_and_at_least_one(nodes: int, limit: int) -> None:
    """As shipped: 5 nodes or 1 %; a small fleet may have one drained."""
    assert FleetSettings().limit(nodes) == limit


def test_a_node_that_has_its_place_keeps_it() -> None:
    """Its own mark counts not against it."""
    settings = FleetSettings(nodes=1)
    assert settings.why_full(*ME, [FleetMark("me", "gpu_lost", NOW - 5.0)], 10) == ""
    assert "1 of 10 nodes are drained by us (other), and the limit is 1" in settings.why_full(
        *ME, [FleetMark("other", "gpu_lost", NOW)], 10
    )


@pytest.mark.parametrize(
    ("ages", "full"),
    [
        ((0.0, 0.0, 0.0), True),
        ((0.0, 900.0, 1799.0), True),
        ((86400.0, 87000.0, 88000.0), True),
        ((0.0, 900.0, 1801.0), False),
        ((0.0, 3600.0, 7200.0, 7300.0), False),
        ((-3600.0, -3600.0, -3600.0), True),
        ((0.0, 0.0), False),
    ],
)
def test_one_code_on_many_nodes_waits_for_a_person(ages: tuple[float, ...], *, full: bool) -> None:
    """Three that came within half an hour stop every further one, as long as they stand; not other codes."""
    settings = FleetSettings(nodes=100, percent=100.0)
    alike = [FleetMark(f"n{number}", "stuck_exit", NOW - age) for number, age in enumerate(ages)]
    why = settings.why_full(*ME, alike, 1000)
    assert bool(why) is full
    assert not settings.why_full("me", "gpu_lost", alike, 1000)
    assert not settings.why_full(*ME, alike[1:3], 1000)
    if full:
        assert "a person looks first" in why


@given(
    nodes=st.integers(1, 20_000),
    most=st.integers(1, 50),
    percent=st.floats(0.1, 100.0),
    same=st.integers(1, 50),
)
def test_no_order_of_askers_goes_over_the_limit(nodes: int, most: int, percent: float, same: int) -> None:
    """Whoever asks one after another, with all before them marked: never more than the limit."""
    settings = FleetSettings(nodes=most, percent=percent, same_code_nodes=same)
    marks: list[FleetMark] = []
    for number in range(min(nodes, 60)):
        own = FleetMark(f"n{number}", "gpu_lost", NOW)
        if not settings.why_full(own.node, own.code, marks, nodes):
            marks.append(own)
    assert 1 <= len(marks) <= settings.limit(nodes) <= max(1, nodes)
