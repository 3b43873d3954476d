"""Budgets and cool-downs held against what was due, as if each target had been acted on once."""

from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.rollout_replay import Admitted, Due, Stopped, replayed
from reclaimerd.model.policy import BudgetSettings, GateSettings
from reclaimerd.model.step import ReasonKind
from tests.builders import a_policy

POLICY = a_policy(
    gates=GateSettings(workload_cooldown_seconds=300.0),
    budgets=BudgetSettings(workloads_per_window=1, window_seconds=1800.0, workloads_per_day=3),
)
DAY = 86400.0
FOREVER = 1e9


def a_due(
    at: float, key: str = "", until: float = FOREVER, lasts: float = 60.0, *, done: bool = False
) -> Due:
    """Return one target; without a key it is a workload of its own."""
    return Due(at, until, key or f"w{at}", lasts, done=done)


def test_the_window_lets_the_second_wait_and_the_day_the_fourth() -> None:
    """One in 30 minutes, three in 24 hours."""
    dues = [a_due(at) for at in (0.0, 60.0, 7200.0, 10000.0)]
    assert replayed(dues, POLICY) == (Admitted(0.0), Admitted(1800.0), Admitted(7200.0), Admitted(DAY))


def test_who_is_over_before_there_is_room_was_stopped() -> None:
    """And has spent nothing."""
    dues = [a_due(0.0), a_due(60.0, until=1000.0), a_due(1800.0)]
    assert replayed(dues, POLICY) == (Admitted(0.0), Stopped(ReasonKind.BUDGET), Admitted(1800.0))


def test_members_of_one_workload_are_one_act_while_it_goes_on() -> None:
    """Within its time they cost nothing; after its end the cool-down counts, and then the budget."""
    dues = [
        a_due(0.0, "job"),
        a_due(30.0, "job"),
        a_due(61.0, "job", until=100.0),
        a_due(2000.0, "job"),
    ]
    assert replayed(dues, POLICY) == (
        Admitted(0.0),
        Admitted(30.0),
        Stopped(ReasonKind.BUDGET),
        Admitted(2000.0),
    )


def test_the_cool_down_of_a_workload_is_told_by_its_name() -> None:
    """Where the budget has room it alone stops it, and lets it wait."""
    wide = a_policy(gates=POLICY.gates, budgets=BudgetSettings(workloads_per_window=9, workloads_per_day=9))
    dues = [a_due(0.0, "job"), a_due(100.0, "job", until=200.0), a_due(100.0, "job"), a_due(100.0)]
    assert replayed(dues, wide) == (
        Admitted(0.0),
        Stopped(ReasonKind.COOL_DOWN),
        Admitted(360.0),
        Admitted(100.0),
    )


def test_what_was_really_done_is_not_asked_about_and_counts() -> None:
    """An act of another policy's budget stands where it stood; what comes after sees it."""
    dues = [a_due(0.0), a_due(10.0, done=True), a_due(20.0)]
    assert replayed(dues, POLICY) == (Admitted(0.0), Admitted(10.0), Admitted(1810.0))


def test_a_budget_of_nothing_lets_nobody_through() -> None:
    """Zero is never."""
    none = a_policy(budgets=BudgetSettings(workloads_per_window=0))
    assert replayed([a_due(0.0)], none) == (Stopped(ReasonKind.BUDGET),)


@given(st.lists(st.floats(0.0, 5 * DAY), max_size=40))
def test_no_window_ever_has_more_acts_than_its_budget(times: list[float]) -> None:
    """Whatever is due when: at most one in each half hour, three in each day."""
    dues = [Due(at, FOREVER, f"w{number}", 60.0) for number, at in enumerate(sorted(times))]
    acts = sorted(one.at for one in replayed(dues, POLICY) if isinstance(one, Admitted))
    assert len(acts) == len(times)
    for most, window in ((1, 1800.0), (3, DAY)):
        assert all(later - first >= window - 1e-3 for first, later in zip(acts, acts[most:], strict=False))
