"""A rule that a person suspended only observes, and what it has begun waits as under a pause."""

from dataclasses import replace

from reclaimerd.judge.gates import GateContext, admit
from reclaimerd.judge.modes import effective_mode, in_force, suspension_of, suspension_text
from reclaimerd.model.incident import Stage
from reclaimerd.model.ledger import Ledger, Suspension
from reclaimerd.model.policy import FaultRule, Mode, Rule
from reclaimerd.model.step import Permit, ReasonKind, Refusal
from tests.builders import a_policy, a_rule
from tests.judge.test_gates import by_operator, by_rule, open_for, refused

STANDS = Suspension("over-cap", "ann", "course", 100.0)


def test_without_a_suspension_the_policy_is_the_very_same() -> None:
    """Nothing is copied in a pass."""
    policy = a_policy(a_rule())
    assert in_force(policy, ()) is policy


def test_a_suspended_rule_observes_and_no_other_does() -> None:
    """Rules about holders and about GPUs alike; one that is gone changes nothing."""
    faulty = (FaultRule("sick", mode=Mode.ENFORCE), FaultRule("other", mode=Mode.ENFORCE))
    policy = a_policy(a_rule("over-cap"), a_rule("idle"), fault_rules=faulty)
    suspended = (STANDS, Suspension("sick", "ann", "", 1.0), Suspension("gone", "ann", "", 1.0))
    held = in_force(policy, suspended)
    rules: tuple[Rule | FaultRule, ...] = (*held.rules, *held.fault_rules)
    modes = {rule.name: effective_mode(held, rule) for rule in rules}
    assert modes == {
        "over-cap": Mode.OBSERVE, "idle": Mode.ENFORCE, "sick": Mode.OBSERVE, "other": Mode.ENFORCE,
    }  # fmt: skip


def test_who_suspended_it_is_found_and_told() -> None:
    """With the reason where there is one."""
    assert suspension_of("over-cap", (STANDS,)) == STANDS
    assert suspension_of("idle", (STANDS,)) is None
    assert suspension_text(STANDS) == "rule 'over-cap' was suspended by ann: course"
    assert suspension_text(Suspension("x", "ann", "", 1.0)) == "rule 'x' was suspended by ann"


def under(stage: Stage, suspended: tuple[Suspension, ...]) -> GateContext:
    """Return a context in which nothing else speaks against the step."""
    context = open_for(stage)
    policy = in_force(context.policy, suspended)
    return replace(context, policy=policy, ledger=Ledger(suspended=suspended))


def test_the_gate_refuses_a_suspended_rule_as_a_pause_does_and_says_who() -> None:
    """By the reason `paused`, so that the step keeps its place; the mend names the rule."""
    asked = by_rule()
    stands = replace(STANDS, rule=asked[0].actor.name)
    assert refused(asked, under(Stage.SIGTERM, (stands,))) == [ReasonKind.PAUSED]
    answer = admit(*asked, under(Stage.SIGTERM, (stands,)))
    assert isinstance(answer, Refusal)
    assert answer.reasons[0].text == suspension_text(stands)
    assert answer.reasons[0].mend == f"reclaimctl rules resume {stands.rule}"


def test_another_s_suspension_and_an_operator_s_step_are_let_through() -> None:
    """It binds the one rule that it names."""
    others = (replace(STANDS, rule="another"),)
    assert isinstance(admit(*by_rule(), under(Stage.SIGTERM, others)), Permit)
    stands = (replace(STANDS, rule=by_rule()[0].actor.name),)
    assert isinstance(admit(*by_operator(), under(Stage.SIGTERM, stands)), Permit)
