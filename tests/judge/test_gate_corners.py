"""Corners of the gates that a changed line would pass through unseen: each stands for such a change.

What they were found by, and which changes nothing notices because they change nothing: docs/mutation.md.
"""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.budgets import causes_of
from reclaimerd.judge.gate_context import GateContext, workload_key
from reclaimerd.judge.gates import admit
from reclaimerd.judge.target_gates import namespace_members
from reclaimerd.model.drain import DrainCode, DrainReason
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Actor, ActorKind, Attempt, Incident, Outcome, OutcomeKind, Stage
from reclaimerd.model.kernel import Leaving, Plight, TaskCondition
from reclaimerd.model.ledger import Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import FaultDomain, ListedStage, Mode, RuleKind
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from reclaimerd.model.verdict import RuleReason, Ruling
from tests.builders import (
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_step,
    a_target,
    a_workload,
    an_incident,
)
from tests.judge.allocation_builders import a_pod_process, with_list

STUCK = DrainReason(FaultDomain.DRIVER, "stuck in nvidia_close", DrainCode.STUCK_EXIT)
EVERY = a_plan(stages=tuple(ListedStage))
SENT = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), 1.0, Outcome(OutcomeKind.SENT))
ME = a_process()


def asked(stage: Stage = Stage.SIGTERM, **incident: Any) -> tuple[Step, Incident]:
    """Return a step and its incident, by rule unless an actor is given."""
    found = an_incident(**{"plan": EVERY, **incident})
    return a_step(found, stage), found


def permitted(question: tuple[Step, Incident], context: GateContext) -> dict[str, str]:
    """Return a permit's answers by gate; anything but a permit fails."""
    answer = admit(*question, context)
    assert isinstance(answer, Permit)
    return {one.gate: one.text for one in answer.answers}


def kinds(question: tuple[Step, Incident], context: GateContext) -> list[ReasonKind]:
    """Return the kinds of a refusal's reasons, none for a permit."""
    answer = admit(*question, context)
    return [one.kind for one in answer.reasons] if isinstance(answer, Refusal) else []


@pytest.mark.parametrize(
    ("question", "budget", "mode"),
    [
        (asked(), "counts as one workload", "rule: acts"),
        (asked(attempts=(SENT,)), "no workload counted", "rule: acts"),
        (asked(actor=OPERATOR), "no workload counted", "operator: acts"),
        (asked(plan=replace(EVERY, dry_run=True)), "counts as one workload", "dry run"),
    ],
)
def test_a_permit_says_what_it_costs_and_whether_it_acts(
    question: tuple[Step, Incident], budget: str, mode: str
) -> None:
    """Only a rule's first signal counts; an ordinary process has nothing else to be said of."""
    said = permitted(question, a_context())
    assert said == {"mode": mode, "targets": "1 looked at, the same, none protected", "budget": budget}


def test_a_plan_that_is_a_dry_run_is_one_whatever_the_step_says() -> None:
    """The plan binds each of its steps."""
    step, incident = asked(plan=replace(EVERY, dry_run=True))
    answer = admit(replace(step, dry_run=False), incident, a_context())
    assert isinstance(answer, Permit)
    assert answer.dry_run


def test_a_person_who_is_called_like_a_rule_is_bound_by_no_rules_mode() -> None:
    """An operator's name is free text: it makes no dry run of his order."""
    rule = a_rule(mode=Mode.DRY_RUN)
    question = asked(actor=replace(OPERATOR, name=rule.name))
    answer = admit(*question, a_context(policy=a_policy(rule)))
    assert isinstance(answer, Permit)
    assert not answer.dry_run


def test_a_plan_that_warns_makes_no_act_of_a_stage_that_has_none() -> None:
    """Only the warning itself is an act without a listed stage."""
    plan = replace(EVERY, warn_seconds=600.0)
    assert kinds(asked(Stage.PENDING, actor=OPERATOR, plan=plan), a_context()) == [ReasonKind.MODE]


@pytest.mark.parametrize(
    ("reason", "says"), [("maintenance", "paused by ann: maintenance"), ("", "paused by ann")]
)
def test_a_pause_says_why_where_that_was_said(reason: str, says: str) -> None:
    """And nothing behind a colon where it was not."""
    context = a_context(ledger=Ledger(pause=Pause("ann", reason, WALL - 5)))
    answer = admit(*asked(), context)
    assert isinstance(answer, Refusal)
    assert [one.text for one in answer.reasons] == [says]


@pytest.mark.parametrize(
    ("kind", "keyed"),
    [(kind, kind not in (WorkloadKind.NONE, WorkloadKind.SESSION)) for kind in WorkloadKind],
)
def test_which_workloads_count_as_one(kind: WorkloadKind, keyed: bool) -> None:  # noqa: FBT001  # a column
    """Whatever a manager made counts by its boundary; a login, or nothing, by its process."""
    target = replace(a_target(ME), workload=a_workload("x", kind=kind, path="/x"))
    assert (workload_key(target) != str(target.root)) is keyed


@pytest.mark.parametrize("kind", list(WorkloadKind))
def test_one_that_entered_a_container_belongs_to_its_init(kind: WorkloadKind) -> None:
    """Its parent, seen, is outside; only a container's cgroup says where it belongs."""
    place: dict[str, Any] = {"cgroup": "0::/c", "workload": a_workload("c", kind=kind)}
    init = a_process(100, ns_pids=(100, 1), **place)
    entered = a_process(101, ns_pids=(101, 9), ppid=50, **place)
    outside = a_process(50, ppid=1)
    snapshot = a_snapshot(processes=(init, entered, outside))
    contained = kind in (
        WorkloadKind.POD, WorkloadKind.CONTAINER, WorkloadKind.NOMAD, WorkloadKind.MACHINE,
    )  # fmt: skip
    assert namespace_members(init, snapshot) == ((entered.ref,) if contained else ())


def test_sigterm_to_an_init_asks_for_nobody_else() -> None:
    """Only SIGKILL ends the others with it; and those that are gone are not ended."""
    init = a_process(100, ns_pids=(100, 1))
    inside = a_process(101, ns_pids=(101, 2), ppid=100)
    look = a_busy_snapshot(init, inside)
    assert kinds(asked(actor=OPERATOR), a_context(snapshot=look)) == []
    assert kinds(asked(Stage.SIGKILL, actor=OPERATOR), a_context(snapshot=look)) == [ReasonKind.HOLDERS]
    gone = replace(look, exited=frozenset({inside.ref}))
    assert kinds(asked(Stage.SIGKILL, actor=OPERATOR), a_context(snapshot=gone)) == []


@pytest.mark.parametrize(
    ("condition", "refusal"),
    [(TaskCondition.EXITING, [ReasonKind.WAITS_FOR_OTHER]), (TaskCondition.BLOCKED, [])],
)
def test_only_one_that_leaves_waits_in_vain(condition: TaskCondition, refusal: list[ReasonKind]) -> None:
    """One that is merely blocked behind another may still be asked to end."""
    plight = Plight(ME.ref, condition, Leaving.STUCK_BLOCKED, MONO, MONO, 5, "waits", culprit=a_ref(7))
    look = a_busy_snapshot(ME, plights={ME.ref: plight})
    assert kinds(asked(), a_context(snapshot=look)) == refusal


def test_a_core_is_spared_from_signals_of_the_living_only() -> None:
    """A drain cuts no core, and one that is gone writes none."""
    dumping = replace(ME, dumping_core=True)
    look = a_busy_snapshot(dumping)
    open_to_drain = a_context(snapshot=look, drain_reason=STUCK)
    assert kinds(asked(), open_to_drain) == [ReasonKind.CORE_DUMP]
    assert kinds(asked(Stage.DRAIN), open_to_drain) == []
    assert kinds(asked(), a_context(snapshot=replace(look, exited=frozenset({ME.ref})))) == []


def test_one_of_another_boot_is_another_process_though_nobody_has_its_pid() -> None:
    """An empty pid proves nothing: the number was given out anew since."""
    old = a_ref(boot_id="another-boot")
    question = asked()
    step = replace(question[0], targets=(old,))
    answer = admit(step, replace(question[1], target=replace(question[1].target, members=(old,))), a_context(
        snapshot=a_snapshot()
    ))  # fmt: skip
    assert isinstance(answer, Refusal)
    assert any("is another process now" in one.text for one in answer.reasons)


def test_one_that_is_gone_is_not_asked_about() -> None:
    """Neither what protects it nor that it can't be read: the signal finds it gone."""
    hidden = replace(ME, exe=Unreadable("gone"))
    look = replace(a_busy_snapshot(hidden), exited=frozenset({ME.ref}))
    assert kinds(asked(), a_context(snapshot=look)) == []


def test_a_drain_touches_no_process_so_its_program_is_nobodys_doubt() -> None:
    """Not knowing the exe holds back a signal by rule, and no request for a drain."""
    hidden: ProcessReading = replace(ME, exe=Unreadable("no"))
    context = a_context(snapshot=a_busy_snapshot(hidden), drain_reason=STUCK)
    assert kinds(asked(), context) == [ReasonKind.UNDETERMINED]
    assert kinds(asked(Stage.DRAIN), context) == []


def test_one_inside_a_namespace_who_is_not_its_init_has_nothing_to_be_said_of() -> None:
    """The note is for the init, whom SIGTERM may not reach."""
    inside = a_process(100, ns_pids=(100, 7))
    assert "namespace" not in permitted(asked(actor=OPERATOR), a_context(snapshot=a_busy_snapshot(inside)))


def test_a_cause_drains_a_node_once_a_day() -> None:
    """By rule the second drain for one and the same is refused, also while the host's own budget is whole."""
    question = asked(Stage.DRAIN)
    spent = tuple(Spend(SpendKind.CAUSE, cause, WALL - 10, dry_run=False) for cause in causes_of(question[1]))
    assert spent
    context = a_context(drain_reason=STUCK)
    assert kinds(question, context) == []
    assert kinds(question, replace(context, ledger=Ledger(spends=spent))) == [ReasonKind.BUDGET]


@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
def test_a_rule_that_does_not_ask_in_this_look_signals_nobody(stage: Stage) -> None:
    """Before the first signal each of them is asked anew; a drain was asked for by what came of them."""
    question = asked(stage)
    unsure = {question[1].id: RuleReason("over-cap", Ruling.UNDETERMINED, "the memory can't be read")}
    assert kinds(question, a_context(unsure=unsure)) == [ReasonKind.UNDETERMINED]
    drain = asked(Stage.DRAIN)
    assert kinds(drain, a_context(unsure=unsure, drain_reason=STUCK)) == []


def test_a_plan_that_only_warns_says_so_when_more_is_asked_for() -> None:
    """The reason is the rule's own action, not a warning that is missing."""
    plan = replace(EVERY, warn_seconds=0.0, only_warns=True)
    answer = admit(*asked(plan=plan), a_context())
    assert isinstance(answer, Refusal)
    assert [one.text for one in answer.reasons] == ["rule 'over-cap' only warns"]


@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
def test_who_was_given_what_is_asked_at_both_signals_and_of_the_living(stage: Stage) -> None:
    """While the kubelet hangs no signal of either kind; one that is gone is no question."""
    thief = a_pod_process(100)
    look = with_list([thief], Unreadable("it hangs"))
    rule = a_rule("thief", kind=RuleKind.UNALLOCATED, pod_shares=False)
    actor = Actor(ActorKind.RULE, rule.name, policy_digest="built-in")
    question = asked(stage, target=a_target(thief), actor=actor)
    answer = admit(*question, a_context(policy=a_policy(rule), snapshot=look))
    assert isinstance(answer, Refusal)
    assert [one.text for one in answer.reasons if "is not known now" in one.text]
    gone = replace(look, exited=frozenset({thief.ref}))
    assert kinds(question, a_context(policy=a_policy(rule), snapshot=gone)) == []
