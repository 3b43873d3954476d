"""A drain by hand before the gates: its own reason, its mode, and the budget that it spends."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge import budgets
from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.judge.gates import admit
from reclaimerd.model.drain import DrainCode
from reclaimerd.model.incident import Incident, Stage, Subject
from reclaimerd.model.ledger import Ledger, Spend, SpendKind
from reclaimerd.model.policy import BudgetSettings, ListedStage, Mode
from reclaimerd.model.step import Permit, ReasonKind, Refusal
from tests.builders import OPERATOR, WALL, a_busy_snapshot, a_context, a_plan, a_policy, a_step, an_incident

WHY = "fan broken"


def by_hand(*, dry_run: bool = False) -> Incident:
    """Return what an operator's order opens."""
    plan = a_plan(stages=(ListedStage.DRAIN,), dry_run=dry_run)
    return replace(an_incident(actor=OPERATOR, plan=plan), subject=Subject.NODE, reason=WHY)


def asked(incident: Incident, **context: Any) -> Permit | Refusal:
    """Ask the gates for its drain."""
    reason = drain_reason_of(incident, a_busy_snapshot())
    step = a_step(incident, Stage.DRAIN, targets=())
    return admit(step, incident, a_context(drain_reason=reason, **context))


def test_its_reason_is_a_kind_of_its_own_with_who_and_why() -> None:
    """No fault of any domain is claimed, and the policy's fault domains don't bind it."""
    reason = drain_reason_of(by_hand(), a_busy_snapshot())
    assert reason is not None
    assert (reason.code, reason.text) == (DrainCode.BY_HAND, f"by hand: {OPERATOR.name}: {WHY}")
    policy = a_policy()
    assert reason.domain not in policy.drain.fault_domains
    assert isinstance(asked(by_hand(), policy=policy), Permit)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("dry", [True, False])
def test_only_enforcing_asks_in_earnest(mode: Mode, *, dry: bool) -> None:
    """In observe and dry run the same order is planned on record."""
    permit = asked(by_hand(dry_run=dry), policy=a_policy(mode=mode))
    assert isinstance(permit, Permit)
    assert permit.dry_run is (dry or mode is not Mode.ENFORCE)


@pytest.mark.parametrize("dry", [True, False])
def test_the_days_budget_binds_it_and_its_dry_run_is_honest(*, dry: bool) -> None:
    """A dry run is held against the real budget, and spends none."""
    policy = a_policy(budgets=replace(BudgetSettings(), drains_per_day=1))
    spent = Ledger(spends=(Spend(SpendKind.DRAIN, "inc-0", WALL),))
    refusal = asked(by_hand(dry_run=dry), policy=policy, ledger=spent)
    assert isinstance(refusal, Refusal)
    assert [one.kind for one in refusal.reasons] == [ReasonKind.BUDGET]
    permit = asked(by_hand(dry_run=dry), policy=policy)
    assert isinstance(permit, Permit)
    incident = by_hand(dry_run=dry)
    kinds = [one.kind for one in budgets.spends_of(permit, incident, a_context(policy=policy))]
    assert kinds == ([] if dry else [SpendKind.DRAIN])


def test_another_order_of_an_operator_is_not_counted_as_one() -> None:
    """A reset that failed leads to a drain with the reset's own budget: as before."""
    incident = replace(by_hand(), subject=Subject.GPU)
    policy = a_policy(budgets=replace(BudgetSettings(), drains_per_day=0))
    refusal = asked(incident, policy=policy)
    assert isinstance(refusal, Refusal)
    assert [one.kind for one in refusal.reasons] == [ReasonKind.NO_DRAIN_REASON]
