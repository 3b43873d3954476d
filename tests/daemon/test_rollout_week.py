"""A dry run's report against what enforcing really does: the same week, lived twice by a real cycle."""

from dataclasses import replace

import pytest

from reclaimerd.judge.rollout import Period, rollout_of
from reclaimerd.judge.rollout_targets import Told
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import BreakerSettings, BudgetSettings, GateSettings, Mode, Policy
from reclaimerd.model.rollout import AdviceWord, Fate, RuleReport
from reclaimerd.model.step import ReasonKind
from tests.builders import WALL, a_policy, a_rule
from tests.daemon.rollout_rig import WEEK_SECONDS, Lived, Stay, live

HOUR, DAY = 3600.0, 86400.0
ENFORCING = a_policy(gates=GateSettings(settling_seconds=0.0))
DRY = a_policy(a_rule(mode=Mode.DRY_RUN), gates=ENFORCING.gates)


def report_of(lived: Lived, policy: Policy) -> RuleReport:
    """Return the report on the one rule."""
    told = Told()
    for at, entry in lived.record:
        told.take(at, entry)
    (report,) = rollout_of(told, policy, Period(WALL, lived.until))
    return report


def acted_on(report: RuleReport) -> set[str]:
    """Return who would have been acted on, by identity."""
    fates = {Fate.AT_ONCE, Fate.LATER, Fate.ACTED}
    return {story.name for story in report.stories if story.fate in fates}


def names(refs: frozenset[ProcessRef]) -> set[str]:
    """Return identities as the report has them."""
    return {str(ref) for ref in refs}


@pytest.mark.slow
def test_a_week_of_dry_runs_says_what_enforcing_does() -> None:
    """One job that stays all week, a busy day beyond the budget, brief ones: the same are taken.

    A dry run spends its own budget on the one that stays, again and again; the report must not count that.
    """
    forever = Stay(100, 0.0, WEEK_SECONDS)
    busy = [Stay(200 + number, DAY + number * HOUR, DAY + (number + 3) * HOUR) for number in range(6)]
    spread = [Stay(300 + day, day * DAY + 6 * HOUR, day * DAY + 20 * HOUR) for day in range(3, 7)]
    brief = Stay(400, 2 * DAY + 12 * HOUR, 2 * DAY + 12 * HOUR + 1200.0)
    stays = [forever, *busy, *spread, brief]
    enforced, dry = live(stays, ENFORCING), live(stays, DRY)
    report = report_of(dry, DRY)
    assert dry.signalled == frozenset()
    assert report.targets == len(stays)
    assert acted_on(report) == names(enforced.signalled)
    assert enforced.signalled == {one.ref for one in (forever, *busy[:3], *spread, brief)}
    assert report.count(Fate.STOPPED) == 3
    assert dict(report.stopped_by) == {"budget": 3}


def test_the_record_of_a_dry_run_has_what_its_own_budget_refused() -> None:
    """The spends of a dry run are its own: refusals by budget stand on record, of a budget of its own."""
    stays = [Stay(100, 0.0, WEEK_SECONDS), Stay(200, 3 * HOUR, 9 * HOUR)]
    dry = live(stays, DRY, seconds=DAY)
    refused = [entry for _, entry in dry.record if entry.kind is RecordKind.REFUSED]
    assert {reason.kind for entry in refused for reason in entry.refusals} >= {ReasonKind.BUDGET}
    report = report_of(dry, DRY)
    assert report.count(Fate.AT_ONCE) == 2
    assert report.incidents > report.targets


def test_those_who_end_by_themselves_in_the_grace_are_told() -> None:
    """Enforcing gains nothing of a process that is gone 10 minutes after its SIGTERM would have been sent."""
    rule = a_rule(mode=Mode.DRY_RUN, sigterm_seconds=1800.0)
    policy = a_policy(rule, gates=ENFORCING.gates)
    stays = [Stay(100 + day, day * DAY, day * DAY + 1200.0, uid=1000 + day) for day in range(7)]
    report = report_of(live(stays, policy), policy)
    assert report.in_grace == len(stays)
    assert report.advice.word is AdviceWord.GAINS_NOTHING
    longer = [replace(one, left=one.came + HOUR) for one in stays]
    report = report_of(live(longer, policy), policy)
    assert report.in_grace == 0
    assert report.advice.word is AdviceWord.READY


def test_an_observing_rule_has_its_report_too() -> None:
    """In observe mode nothing is planned, and yet the record says whom the rule would have wanted."""
    policy = a_policy(a_rule(mode=Mode.OBSERVE), gates=ENFORCING.gates)
    stays = [Stay(100 + day, day * DAY, day * DAY + 5 * HOUR, uid=1000 + day) for day in range(7)]
    lived = live(stays, policy)
    assert not any(entry.kind is RecordKind.INTENT for _, entry in lived.record)
    report = report_of(lived, policy)
    assert report.count(Fate.AT_ONCE) == len(stays)
    assert report.advice.word is AdviceWord.READY


def test_the_breaker_s_trip_is_foreseen() -> None:
    """Two workloads due in one pass: enforcing trips the breaker there, and the report says so."""
    stays = [Stay(100, 0.0, HOUR), Stay(101, 0.0, HOUR)]
    enforced, dry = live(stays, ENFORCING, seconds=DAY), live(stays, DRY, seconds=DAY)
    assert [entry.kind for _, entry in enforced.record].count(RecordKind.BREAKER_TRIPPED) == 1
    assert enforced.signalled == frozenset()
    assert report_of(dry, DRY).breaker_trips == 1


def test_budgets_are_those_of_the_policy_in_force() -> None:
    """The same record read with a wider budget lets all of the busy day through."""
    stays = [Stay(200 + number, number * HOUR, (number + 3) * HOUR) for number in range(6)]
    dry = live(stays, DRY, seconds=DAY)
    assert report_of(dry, DRY).count(Fate.STOPPED) == 3
    wide = a_policy(
        a_rule(mode=Mode.DRY_RUN),
        gates=ENFORCING.gates,
        budgets=BudgetSettings(workloads_per_window=6, workloads_per_day=6),
        breaker=BreakerSettings(workloads_per_pass=6),
    )
    assert report_of(dry, wide).count(Fate.STOPPED) == 0


def test_a_rule_that_acts_already_is_reported_by_what_it_did() -> None:
    """Real acts are counted as such; who found no room in the budget was stopped by it."""
    stays = [Stay(200 + number, number * HOUR, (number + 3) * HOUR) for number in range(6)]
    lived = live(stays, ENFORCING, seconds=DAY)
    report = report_of(lived, ENFORCING)
    assert report.count(Fate.ACTED) == len(lived.signalled) == 3
    assert dict(report.stopped_by) == {"budget": 3}
