"""Each kind of rule about holders has its condition, and one place knows them all."""

import pytest

from reclaimerd.judge.conditions import DoesNotHold, listed_of
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.kinds import condition_of
from reclaimerd.model.policy import RuleKind
from tests.builders import a_busy_snapshot, a_process, a_rule

ASKED_ELSEWHERE = {
    RuleKind.USER_LIMIT: "the rule is about all of a user's processes together",
    RuleKind.HIDDEN: "the rule is about processes that can't be seen",
    RuleKind.FAULT: "the rule is about GPUs, not processes",
}


@pytest.mark.parametrize("kind", list(RuleKind))
def test_a_rule_of_any_kind_that_concerns_no_gpu_of_a_process_does_not_hold(kind: RuleKind) -> None:
    """Whatever else is known of the process."""
    look = a_busy_snapshot()
    found = condition_of(a_rule(kind=kind), a_process(), (), Basis(look, listed_of(look), {}))
    assert isinstance(found, DoesNotHold)


@pytest.mark.parametrize("kind", list(ASKED_ELSEWHERE))
def test_kinds_that_are_asked_elsewhere_say_so(kind: RuleKind) -> None:
    """A user's limit sums, what is hidden is no holder, and a fault is a GPU's."""
    look = a_busy_snapshot()
    found = condition_of(a_rule(kind=kind), a_process(), look.holders, Basis(look, listed_of(look), {}))
    assert found == DoesNotHold(ASKED_ELSEWHERE[kind])
