"""Whom a rule takes along by its scope: never whom it exempts, nor whom an owner's mark spares."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.companions import By, against_member
from reclaimerd.judge.gates import admit
from reclaimerd.model.incident import Actor, ActorKind, Stage
from reclaimerd.model.policy import (
    FaultRule,
    ListedStage,
    OwnerMarks,
    Policy,
    Rule,
    RuleKind,
    Scope,
    Selector,
)
from reclaimerd.model.process import PF_EXITING, ProcessReading, WorkloadNames
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import ContextKind, Snapshot
from reclaimerd.model.step import Permit, Refusal, Step
from tests.builders import (
    GPU_A,
    JUDGE,
    OPERATOR,
    a_busy_snapshot,
    a_context,
    a_gpu,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_row,
    a_rule,
    a_snapshot,
    a_step,
    a_target,
    a_task,
    a_workload,
    an_incident,
)
from tests.judge.allocation_builders import a_pod_process, a_view, given, with_list

HOG, MATE = a_process(100), a_process(101)
KEEP = a_process(101, exe=Known("/opt/keep"))
SPARED = a_process(101, workload=a_workload(names=WorkloadNames(spare_mark="till monday")))
UNASKED = a_process(101, workload=a_workload(names=WorkloadNames()))
MARKS = OwnerMarks(users=("alice",))


def a_scoped_rule(**fields: Any) -> Rule:
    """Return a rule that takes a whole tree."""
    return a_rule("cap", scope=Scope.TREE, **fields)


def the_step(rule_name: str, *targets: ProcessReading, stage: Stage = Stage.SIGTERM) -> Step:
    """Return the rule's step on these, the first of whom broke it."""
    actor = Actor(ActorKind.RULE, rule_name, policy_digest="built-in")
    stages = (ListedStage.SIGTERM, ListedStage.SIGKILL)
    return a_step(an_incident(a_target(*targets), actor=actor, plan=a_plan(stages=stages)), stage)


def said(
    rule: Rule, *targets: ProcessReading, stage: Stage = Stage.SIGTERM, by_hand: bool = False, **policy: Any
) -> list[tuple[str, str]]:
    """Return the kind and text of each reason against a step on these, the first of whom broke the rule."""
    step = the_step(rule.name, *targets, stage=stage)
    actor = OPERATOR if by_hand else step.actor
    incident = an_incident(
        step.target, actor=actor, plan=a_plan(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL))
    )
    context = a_context(policy=a_policy(rule, **policy), snapshot=a_busy_snapshot(*targets))
    match admit(replace(step, actor=actor), incident, context):
        case Permit():
            return []
        case Refusal(reasons=reasons):
            return [(reason.kind.value, reason.text) for reason in reasons]


@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
@pytest.mark.parametrize("gpu_too", [False, True])
def test_an_exempt_process_goes_with_nobody(stage: Stage, *, gpu_too: bool) -> None:
    """The rule says that it never concerns it: so it does not end it as somebody's child either."""
    exempt = Selector(exe=("/opt/keep",), gpus=(GPU_A,) if gpu_too else ())
    by = "exe, gpu" if gpu_too else "exe"
    text = f"pid 101 is not to end with it: rule 'cap' exempts it by {by}"
    assert said(a_scoped_rule(exempt=exempt), HOG, KEEP, stage=stage) == [("protected", text)]
    assert said(a_scoped_rule(exempt=exempt), HOG, MATE, stage=stage) == []


def test_a_person_may_take_it_along() -> None:
    """An exemption is a rule's."""
    rule = a_scoped_rule(exempt=Selector(exe=("/opt/keep",)))
    assert said(rule, HOG, KEEP, by_hand=True) == []


def test_where_the_exemption_can_not_be_read_nothing_is_done() -> None:
    """A companion whose digest nobody read may be the exempt one."""
    rule = a_scoped_rule(exempt=Selector(sha256=("ab",)))
    text = "whether rule 'cap' exempts pid 101 can't be known: sha256"
    assert said(rule, HOG, MATE) == [("undetermined", text)]


def test_of_whoever_broke_the_rule_the_evaluation_tells() -> None:
    """The root is no companion; a single target has none."""
    assert said(a_scoped_rule(exempt=Selector(sha256=("ab",))), HOG) == []


def test_an_exemption_of_gpus_is_none_for_whoever_holds_no_gpu() -> None:
    """A child without a GPU is on none that the rule exempts."""
    rule = a_scoped_rule(exempt=Selector(gpus=(GPU_A,)))
    snapshot = a_snapshot(
        gpus=(a_gpu(processes=[a_row(100)]),), processes=[HOG, MATE], holders=[a_holder(HOG)]
    )
    step = the_step("cap", HOG, MATE)
    incident = an_incident(step.target, actor=step.actor)
    answer = admit(step, incident, a_context(policy=a_policy(rule), snapshot=snapshot))
    assert isinstance(answer, Permit)


def test_one_that_ends_already_or_is_gone_is_asked_nothing() -> None:
    """Its program can't be read any more: that must not save the others from their end."""
    rule = a_scoped_rule(exempt=Selector(exe=("/opt/keep",)))
    ending = a_process(101, exe=Unreadable("gone"), tasks=(a_task(101, "D", PF_EXITING),))
    assert not any("exempt" in text for _, text in said(rule, HOG, ending))
    step, snapshot = the_step("cap", HOG, KEEP), a_busy_snapshot(HOG, KEEP, exited=frozenset({KEEP.ref}))
    incident = an_incident(step.target, actor=step.actor)
    assert isinstance(admit(step, incident, a_context(policy=a_policy(rule), snapshot=snapshot)), Permit)


def test_a_drain_takes_nobody_along() -> None:
    """It touches no process."""
    rule = a_scoped_rule(exempt=Selector(exe=("/opt/keep",)))
    reasons = said(rule, HOG, KEEP, stage=Stage.DRAIN)
    assert not any("exempt" in text for _, text in reasons)


@pytest.mark.parametrize(
    ("mate", "kind", "word"),
    [(SPARED, "protected", "till monday"), (UNASKED, "undetermined", "may have asked to be spared")],
)
def test_whom_an_owner_s_mark_spares_goes_with_nobody(mate: ProcessReading, kind: str, word: str) -> None:
    """A mark that counts, or may: where nobody's counts it is no reason."""
    ((found, text),) = said(a_scoped_rule(), HOG, mate, marks=MARKS)[-1:]
    assert found == kind
    assert word in text
    assert text.startswith("pid 101")
    assert said(a_scoped_rule(), HOG, mate) == []


def against(
    reading: ProcessReading, rule: Rule | None = None, snapshot: Snapshot | None = None, **policy: Any
) -> str:
    """Return what speaks against a member of the hog's workload that came since its target was named."""
    found = a_policy(a_scoped_rule() if rule is None else rule, **policy)
    look = a_busy_snapshot() if snapshot is None else snapshot
    return against_member(the_step("cap", HOG, stage=Stage.SIGKILL), reading, By(look, found, JUDGE))


def test_a_newcomer_that_nothing_speaks_for_goes_with_the_workload() -> None:
    """The hog's own child, born since."""
    assert against(MATE) == ""
    assert against(HOG, a_scoped_rule(exempt=Selector(sha256=("ab",)))) == ""


@pytest.mark.parametrize(
    ("newcomer", "word"),
    [
        (a_process(101, exe=Unreadable("no answer")), "exe unreadable (no answer)"),
        (a_process(101, exe_file=Unreadable("no answer")), "exe unreadable (no answer)"),
        (a_process(101, comm="slurmd"), "looks like slurmd"),
    ],
)
def test_a_newcomer_of_whom_nothing_is_sure_saves_all(newcomer: ProcessReading, word: str) -> None:
    """By rule what can't be read, and what looks protected, is hands off; one that dies may be unreadable."""
    assert word in against(newcomer)
    assert against(replace(newcomer, tasks=(a_task(101, "D", PF_EXITING),))) == ""


def test_a_newcomer_is_asked_what_the_others_were_asked() -> None:
    """Its own GPU, its exemption, and whether others hang on it by MPS."""
    assert "exempts it by exe" in against(KEEP, a_scoped_rule(exempt=Selector(exe=("/opt/keep",))))
    thief, owner = a_pod_process(100), a_pod_process(101, container="main")
    look = with_list([thief, owner], a_view(given("worker"), given("main", GPU_A)))
    rule = a_rule("cap", kind=RuleKind.UNALLOCATED, pod_shares=False)
    assert "is not to end with it" in against(owner, rule, look)
    rows = (a_row(100), replace(a_row(101), context=ContextKind.MPS))
    look = a_snapshot(
        gpus=(a_gpu(processes=rows),), processes=[HOG, MATE], holders=[a_holder(HOG), a_holder(MATE)]
    )
    assert "MPS" in against(MATE, None, look)


def test_a_rule_that_is_gone_by_now_kills_nobody_and_a_fault_s_exempts_nobody() -> None:
    """A reload between the gate and the act; a GPU's own rule has no exemption to ask."""
    assert "no rule 'cap' any more" in against(MATE, a_rule("other"))
    by_fault = Policy(fault_rules=(FaultRule("cap"),))
    step = the_step("cap", HOG, stage=Stage.SIGKILL)
    assert against_member(step, MATE, By(a_busy_snapshot(), by_fault, JUDGE)) == ""
    assert "exe" in against_member(
        step, a_process(101, exe=Unreadable("no")), By(a_busy_snapshot(), by_fault, JUDGE)
    )


def test_a_known_member_is_asked_again_whether_it_is_exempt() -> None:
    """It ran another program since the look."""
    rule = a_scoped_rule(exempt=Selector(exe=("/opt/keep",)))
    step = the_step("cap", HOG, MATE, stage=Stage.SIGKILL)
    by = By(a_busy_snapshot(HOG, MATE), a_policy(rule), JUDGE)
    assert against_member(step, MATE, by) == ""
    assert "exempts it" in against_member(step, KEEP, by)
