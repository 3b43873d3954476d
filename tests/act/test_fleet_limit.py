"""How many nodes may be drained by us at once, and who stays where too many asked at once."""

import pytest

from reclaimerd.act.fleet_limit import Fleet
from reclaimerd.model.drain_policy import FleetMark, FleetSettings

SETTINGS = FleetSettings(nodes=5, percent=1.0, same_code_nodes=3, same_code_seconds=1800.0)


def fleet(*marks: FleetMark, nodes: int = 1000, settings: FleetSettings = SETTINGS) -> Fleet:
    """Return a fleet with these marks."""
    return Fleet(marks, nodes, settings)


def marks(count: int, code: str = "", apart: float = 3600.0) -> tuple[FleetMark, ...]:
    """Return marks of nodes n00, n01, each so long after the one before, of one code or of one each."""
    return tuple(FleetMark(f"n{place:02}", code or f"code{place}", place * apart) for place in range(count))


@pytest.mark.parametrize(
    ("nodes", "limit"), [(0, 1), (1, 1), (3, 1), (100, 1), (199, 1), (200, 2), (499, 4), (500, 5), (10000, 5)]
)
def test_the_limit_is_the_smaller_figure_and_at_least_one(nodes: int, limit: int) -> None:
    """Five nodes, or one in a hundred: a small fleet may lose one."""
    assert fleet(nodes=nodes).limit == limit


def test_a_full_fleet_has_no_room_and_says_who_is_in_it() -> None:
    """The fifth mark fits, the sixth does not; a node's own mark is not in its way."""
    assert fleet(*marks(4)).why_full("n99", "gpu_lost") == ""
    text = fleet(*marks(5)).why_full("n99", "gpu_lost")
    assert text.startswith("5 of 1000 nodes are drained by us (n00, n01, n02, n03, n04), and the limit is 5")
    assert fleet(*marks(5)).why_full("n02", "gpu_lost") == ""


@pytest.mark.parametrize(
    ("apart", "code", "is_full"),
    [(900.0, "gpu_lost", True), (900.1, "gpu_lost", False), (900.0, "stuck_exit", False)],
)
def test_three_nodes_with_one_code_stop_the_next(apart: float, code: str, is_full: bool) -> None:  # noqa: FBT001  # a table's column
    """Within half an hour of each other, however long ago: only a person ends it."""
    text = fleet(*marks(3, "gpu_lost", apart)).why_full("n99", code)
    assert ("3 nodes asked for gpu_lost within 30 min: a person looks first" in text) == is_full


def test_the_first_stay_where_too_many_asked_at_once() -> None:
    """By time, then by name; of one code no more than may have it."""
    crowd = fleet(
        *(FleetMark(f"n{place}", "gpu_lost", 7.0) for place in range(9)), FleetMark("zz", "stuck_exit", 1.0)
    )
    assert [mark.node for mark in crowd.marks if crowd.comes_first(mark.node, mark.code)] == [
        "n0",
        "n1",
        "n2",
        "zz",
    ]
    assert not crowd.comes_first("elsewhere", "gpu_lost")
