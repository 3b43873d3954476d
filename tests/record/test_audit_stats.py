"""record/audit_stats: figures by rule, user, GPU and day, worked out by hand."""

from pathlib import Path

import pytest

from reclaimerd.record import audit_stats
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.audit_stats import OTHERS, Statistics, Tally
from tests.record.review_rig import GPU_A, stories


def counted(directory: Path) -> Statistics:
    """Return the figures of a whole log."""
    found = Statistics()
    for record in read_records(directory):
        found.take(record)
    return found


def test_figures_of_known_incidents(tmp_path: Path) -> None:
    """Four incidents that took 5, 6, 7 and 8 s, each refused once and killed once."""
    found = counted(stories(tmp_path / "log", 4).directory)
    total = found.total
    assert (total.incidents, total.refusals, total.acts, total.failures, total.reclaimed) == (4, 4, 4, 0, 4)
    assert [round(total.percentile(percent) or 0, 3) for percent in (50, 95)] == [6, 8]
    assert set(found.groups["rule"]) == {"leak"}
    assert {name: one.incidents for name, one in found.groups["user"].items()} == {
        "1001": 2,
        "1002": 1,
        "1000": 1,
    }
    assert found.groups["gpu"][str(GPU_A)].incidents == 2
    assert {name: one.acts for name, one in found.groups["day"].items()} == {"2027-01-15": 4}


def test_outcomes_are_told_apart() -> None:
    """Sent is an act, failed a failure, a dry run neither; an end is reclaimed or handed over."""
    found = Statistics()
    for kind in ("sent", "failed", "dry_run", "already_gone", "unknown", "delivered"):
        found.take({"kind": "outcome", "outcome": {"kind": kind}, "at": "2027-01-15T08:00:00Z"})
    found.take({"kind": "incident_ended", "end": "handed_over to operator"})
    total = found.total
    assert (total.acts, total.failures, total.dry_runs, total.handed_over) == (2, 2, 1, 1)
    assert total.percentile(95) is None
    assert set(found.groups["rule"]) == {"(nobody)"}


def test_memory_is_bounded_whatever_the_log_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limits groups are counted together, and the oldest open incident is let go."""
    monkeypatch.setattr(audit_stats, "MOST_GROUPS", 2)
    monkeypatch.setattr(audit_stats, "MOST_OPEN", 2)
    monkeypatch.setattr(audit_stats, "MOST_TIMES", 1)
    found = Statistics()
    for number in range(5):
        actor = {"kind": "rule", "name": f"r{number}"}
        found.take(
            {"kind": "incident_opened", "incident": str(number), "actor": actor, "at": "2027-01-15T08:00:00Z"}
        )
    assert set(found.groups["rule"]) == {"r0", "r1", OTHERS}
    assert found.groups["rule"][OTHERS].incidents == 3
    for number in range(5):
        found.take(
            {
                "kind": "incident_ended",
                "incident": str(number),
                "end": "reclaimed",
                "at": "2027-01-15T08:00:09Z",
            }
        )
    assert list(found.total.seconds) == [9.0]
    assert found.total.reclaimed == 5


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 10.0), (95, 19.0), (100, 20.0)])
def test_percentiles_are_by_nearest_rank(percent: int, expected: float) -> None:
    """Of twenty times the 19th is what 95 percent stay within."""
    tally = Tally()
    tally.seconds.extend(float(number) for number in range(20, 0, -1))
    assert tally.percentile(percent) == expected


def test_rubbish_is_counted_by_what_it_says_and_raises_nothing() -> None:
    """A forged record of odd forms does not stop the count."""
    found = Statistics()
    found.take(
        {"kind": "outcome", "outcome": [], "actor": 3, "target": {"gpus": "x", "uid": None}, "at": None}
    )
    found.take({"kind": 7})
    found.take({"kind": "outcome", "target": {"gpus": [[], {}, 3, GPU_A]}})
    assert found.total.acts == 0
