"""Each rule's answer on one process, and the gates' answer to the next step; nothing is decided."""

from dataclasses import replace

import pytest

from reclaimerd.judge.evaluate import Evaluation, JudgeContext, evaluate
from reclaimerd.judge.explaining import (
    Held,
    PlannedStage,
    Standing,
    doubt_of,
    next_step,
    planned_stages,
    rule_accounts,
    spared_by,
)
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage
from reclaimerd.model.policy import (
    DEFAULT_STAGES,
    FaultRule,
    ListedStage,
    Mode,
    Policy,
    RuleAction,
    UserProtection,
)
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    GIB,
    MONO,
    OURS,
    a_busy_snapshot,
    a_context,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    an_incident,
)

CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})


def judged(policy: Policy, *looks: Snapshot) -> Evaluation:
    """Return the evaluation of the last look, with the memory of those before."""
    evaluation = Evaluation((), ())
    for look in looks or (a_busy_snapshot(),):
        evaluation = evaluate(look, policy, evaluation.sustained, CONTEXT)
    return evaluation


def accounts(policy: Policy, *looks: Snapshot) -> dict[str, tuple[Standing, Held | None]]:
    """Return standing and count of each rule on the first holder."""
    evaluation = judged(policy, *looks)
    now = looks[-1].at if looks else MONO
    found = rule_accounts(evaluation.verdicts[0], evaluation, policy, now)
    return {one.rule.name: (one.standing, one.held) for one in found}


def test_a_rule_that_holds_says_since_when_and_how_long_it_must_still() -> None:
    """Seconds and readings, counted and left; both end at zero and never below."""
    policy = a_policy(a_rule(for_seconds=10.0, readings=4))
    looks = [a_busy_snapshot(at=MONO + second) for second in (0, 2, 4)]
    assert accounts(policy, *looks) == {"over-cap": (Standing.HOLDS, Held(4.0, 3, 6.0, 1))}
    long = [a_busy_snapshot(at=MONO + second) for second in range(0, 20, 2)]
    assert accounts(policy, *long) == {"over-cap": (Standing.HOLDS, Held(18.0, 10, 0.0, 0))}


def test_a_rule_that_does_not_hold_counts_nothing() -> None:
    """Under the cap, and every rule has its answer."""
    policy = a_policy(a_rule("low"), a_rule("high", above=70 * GIB))
    found = accounts(policy)
    assert found["high"] == (Standing.DOES_NOT_HOLD, None)
    assert found["low"][0] is Standing.HOLDS


def test_an_unknown_look_keeps_what_was_counted_before() -> None:
    """It can't be known now, and what was counted stays without growing; at first there is nothing."""
    blind = a_busy_snapshot(at=MONO + 2)
    blind = replace(blind, holders=(a_holder(used_bytes=Unreadable("no permission")),))
    policy = a_policy(a_rule(for_seconds=10.0, readings=4))
    assert accounts(policy, blind) == {"over-cap": (Standing.UNKNOWN, None)}
    seen = accounts(policy, a_busy_snapshot(), blind)
    assert seen == {"over-cap": (Standing.UNKNOWN, Held(2.0, 1, 8.0, 3))}


def test_a_protection_is_told_apart_from_a_rule_of_the_same_name() -> None:
    """The rule holds, and is spared; the protection is no rule."""
    guard = UserProtection("over-cap", uids=((1000, 1000),))
    policy = a_policy(protections=(guard,))
    evaluation = judged(policy)
    (verdict,) = evaluation.verdicts
    found = rule_accounts(verdict, evaluation, policy, MONO)
    assert [(one.rule.name, one.standing, one.reason.ruling) for one in found] == [
        ("over-cap", Standing.HOLDS, Ruling.SPARE)
    ]
    spared = spared_by(verdict)
    assert spared is not None
    assert "protects it by uid" in spared.text
    assert doubt_of(verdict) == ""


def test_what_forbids_a_judgement_is_told_apart_from_the_rules() -> None:
    """An exe that can't be read: the rule holds, and the doubt stands beside it."""
    policy = a_policy()
    evaluation = judged(policy, a_busy_snapshot(a_process(exe=Unreadable("no permission"))))
    (verdict,) = evaluation.verdicts
    found = rule_accounts(verdict, evaluation, policy, MONO)
    assert [(one.standing, one.reason.ruling) for one in found] == [(Standing.HOLDS, Ruling.UNDETERMINED)]
    assert doubt_of(verdict) == "exe unreadable (no permission)"
    assert spared_by(verdict) is None


def test_a_rule_that_only_observes_holds_all_the_same() -> None:
    """Its standing is what is seen, not what would be done."""
    assert accounts(a_policy(a_rule(action=RuleAction.OBSERVE)))["over-cap"][0] is Standing.HOLDS


def test_planned_stages_have_the_rules_times_or_the_ladders() -> None:
    """What each step waits for is the patience of the one before it; after a reset nothing is counted."""
    policy = a_policy()
    rule = a_rule(sigterm_seconds=7.0)
    assert planned_stages(rule, policy, DEFAULT_STAGES) == (
        PlannedStage(Stage.SIGTERM, 0.0),
        PlannedStage(Stage.SIGKILL, 7.0),
        PlannedStage(Stage.DRAIN, policy.ladder.sigkill_seconds),
    )
    mend = FaultRule("mend")
    assert planned_stages(mend, policy, mend.stages) == (
        PlannedStage(Stage.RESET, 0.0),
        PlannedStage(Stage.DRAIN, 0.0),
    )
    assert planned_stages(rule, policy, ()) == ()


def test_the_first_step_of_a_new_incident_is_due_now() -> None:
    """With leave where nothing forbids it; the permit is of that step and of no other."""
    step = next_step(an_incident(), a_context())
    assert (step.stage, step.due_seconds) == (Stage.SIGTERM, 0.0)
    assert isinstance(step.answer, Permit)
    assert step.answer.step.targets == (a_ref(),)


def test_every_reason_of_the_gates_is_there() -> None:
    """Mode, settling and protection at once, as the gates say them."""
    guard = UserProtection("mine", uids=((1000, 1000),))
    policy = a_policy(mode=Mode.OBSERVE, protections=(guard,))
    step = next_step(an_incident(), a_context(policy=policy, started_mono=MONO - 1.0))
    assert isinstance(step.answer, Refusal)
    kinds = {reason.kind for reason in step.answer.reasons}
    assert kinds == {ReasonKind.MODE, ReasonKind.SETTLING, ReasonKind.PROTECTED}


def after_term(**overrides: object) -> Incident:
    """Return an incident whose SIGTERM was sent ten seconds ago."""
    attempt = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), 0.0, Outcome(OutcomeKind.SENT))
    incident = an_incident(stage=Stage.SIGTERM, stage_mono=MONO - 10.0, attempts=(attempt,))
    return replace(incident, **overrides)  # type: ignore[arg-type]  # the test names the fields


def test_while_it_waits_the_step_after_is_asked_about() -> None:
    """SIGKILL, and in how long; its gate's answer is today's."""
    step = next_step(after_term(), a_context())
    assert (step.stage, step.due_seconds) == (Stage.SIGKILL, 20.0)
    assert isinstance(step.answer, Permit)


def test_a_stage_that_was_passed_over_is_not_next() -> None:
    """The one after it is."""
    step = next_step(after_term(passed_over=("sigkill: protected",)), a_context())
    assert step.stage is Stage.DRAIN
    assert isinstance(step.answer, Refusal)
    assert {reason.kind for reason in step.answer.reasons} == {ReasonKind.NO_DRAIN_REASON}


def test_signals_are_not_next_when_nobody_lives() -> None:
    """Everyone is gone and the memory is waited for: what is left is the drain."""
    gone = replace(a_busy_snapshot(), exited=frozenset({a_ref()}))
    step = next_step(after_term(gone_mono=MONO - 1.0), a_context(snapshot=gone))
    assert (step.stage, step.due_seconds) == (Stage.DRAIN, 9.0)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_without_a_further_step_it_says_so(timeout: float | None) -> None:
    """Where only SIGTERM is listed, nothing comes after it but the end."""
    plan = a_plan(stages=(ListedStage.SIGTERM,), timeout_seconds=timeout)
    step = next_step(after_term(plan=plan), a_context())
    assert (step.stage, step.due_seconds, step.answer) == (None, 20.0, None)
    assert "no further step" in step.text


def test_with_nothing_left_but_an_event_no_time_is_named() -> None:
    """A wait that has no end of its own has no number."""
    plan = a_plan(stages=(ListedStage.SIGTERM,), sigterm_seconds=1.0)
    step = next_step(after_term(plan=plan), a_context())
    assert (step.stage, step.due_seconds, step.answer) == (None, 0.0, None)
    assert "no stage is left" in step.text


def test_a_reset_is_not_judged_by_a_look_without_its_facts() -> None:
    """It names the command that takes such a look, and says neither yes nor no."""
    plan = a_plan(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET))
    step = next_step(after_term(plan=plan, passed_over=("sigkill: x",)), a_context())
    assert (step.stage, step.answer) == (Stage.RESET, None)
    assert "reclaimctl explain reset --gpu GPU-aaaaaaaa" in step.text
