"""A rule that means something else since a reload has held for no time: `for` begins anew."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.model.policy import ListedStage, Mode, Per, Rule, RuleKind, Scope, Selector, Threshold
from reclaimerd.model.reading import Known
from reclaimerd.model.verdict import Ruling
from tests.builders import GIB, MONO, a_busy_snapshot, a_policy, a_process, a_ref, a_rule
from tests.judge.test_evaluate import CONTEXT

LOW = a_rule("cap", above=4 * GIB, for_seconds=4.0, readings=3)


def look(rule: Rule, before: Evaluation | None, at: float, used: int = 8 * GIB) -> Evaluation:
    """Return what one look makes of the one holder."""
    snapshot = a_busy_snapshot(used=used, at=at)
    if before is None:
        return evaluate(snapshot, a_policy(rule), (), CONTEXT)
    return evaluate(snapshot, a_policy(rule), before.sustained, CONTEXT, before.past)


def held_for_long(rule: Rule) -> Evaluation:
    """Return the third look of a rule that held in all of them, and would act now."""
    found = None
    for step in (0.0, 2.0, 4.0):
        found = look(rule, found, MONO + step)
    assert found is not None
    assert found.verdicts[0].ruling is Ruling.RECLAIM
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"above": Threshold(above_bytes=6 * GIB)},
        {"match": Selector(uids=((1000, 1000),))},
        {"exempt": Selector(exe=("/opt/keep",))},
        {"per": Per.WORKLOAD, "large_jobs": True},
        {"kind": RuleKind.AGE, "older_than_seconds": 1.0},
    ],
)
def test_what_held_by_the_old_rule_has_not_held_by_the_new_one(change: dict[str, Any]) -> None:
    """One name, another condition: a process that meets it now has met it for one look, not for long."""
    before = held_for_long(LOW)
    anew = replace(LOW, **change)
    snapshot = a_busy_snapshot(at=MONO + 6.0, frozen={100: Known(value=False)})
    found = evaluate(snapshot, a_policy(anew), before.sustained, CONTEXT, before.past)
    assert found.verdicts[0].ruling is Ruling.WATCH
    assert [(one.since, one.readings) for one in found.sustained] == [(MONO + 6.0, 1)]


@pytest.mark.parametrize(
    "change",
    [
        {"mode": Mode.DRY_RUN},
        {"stages": (ListedStage.SIGTERM,), "scope": Scope.TREE, "priority": 7},
        {"for_seconds": 6.0, "readings": 4},
    ],
)
def test_how_far_a_rule_goes_and_how_long_it_waits_changes_nothing_of_what_held(
    change: dict[str, Any],
) -> None:
    """The condition is the same one: what was seen of it stays seen."""
    before = held_for_long(LOW)
    found = look(replace(LOW, **change), before, MONO + 6.0)
    assert found.verdicts[0].ruling is Ruling.RECLAIM


def test_whom_the_old_rule_chose_the_new_one_has_not_chosen() -> None:
    """Of a group that is over a cap the one goes that the rule would take now."""
    rule = a_rule("cap", above=4 * GIB, per=Per.USER, large_jobs=True)
    first, second = a_process(100, age_seconds=9.0), a_process(101, age_seconds=90.0)
    before = evaluate(a_busy_snapshot(first, second), a_policy(rule), (), CONTEXT)
    assert before.past.chosen == {("cap", "uid 1000"): a_ref(100)}
    older = replace(first, age_seconds=900.0)
    snapshot = a_busy_snapshot(older, second, at=MONO + 2.0)
    for changed, chosen in (
        (rule, a_ref(100)),
        (replace(rule, above=Threshold(above_bytes=5 * GIB)), a_ref(101)),
    ):
        found = evaluate(snapshot, a_policy(changed), before.sustained, CONTEXT, before.past)
        assert found.past.chosen == {("cap", "uid 1000"): chosen}


def test_other_rules_keep_what_held() -> None:
    """A changed rule takes nothing from its neighbour."""
    other = replace(LOW, name="other")
    before = evaluate(a_busy_snapshot(), a_policy(LOW, other), (), CONTEXT)
    changed = replace(LOW, above=Threshold(above_bytes=6 * GIB))
    found = evaluate(
        a_busy_snapshot(at=MONO + 2.0), a_policy(changed, other), before.sustained, CONTEXT, before.past
    )
    assert {(one.rule, one.readings) for one in found.sustained} == {("cap", 1), ("other", 2)}
