"""Who was given the GPU is asked again at each signal by rule, and of everybody whom it would end."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.gates import admit
from reclaimerd.model.allocation import AllocationView
from reclaimerd.model.incident import Actor, ActorKind, Incident, Stage
from reclaimerd.model.policy import ListedStage, Rule, RuleKind, Scope, Threshold
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from tests.builders import (
    GPU_A,
    GPU_B,
    OPERATOR,
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
    an_incident,
)
from tests.judge.allocation_builders import OTHERS, REPLICA_A, a_pod_process, a_view, given, with_list

THIEF, OWNER = a_pod_process(100), a_pod_process(101, container="main")
RULE = a_rule("thief", kind=RuleKind.UNALLOCATED, pod_shares=False)
THIEVES_LIST = a_view(given("worker"), given("main", GPU_A))


def answer_to(
    snapshot: Snapshot, rule: Rule, *targets: ProcessReading, stage: Stage = Stage.SIGKILL, **step: Any
) -> Permit | Refusal:
    """Return what the gates say to a step of this rule's on these processes."""
    incident: Incident = an_incident(
        replace(a_target(*targets), scope=Scope.WORKLOAD if len(targets) > 1 else Scope.PROCESS),
        actor=Actor(ActorKind.RULE, rule.name, policy_digest="built-in"),
        plan=a_plan(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN)),
    )
    asked: Step = a_step(incident, stage, **step)
    return admit(asked, incident, a_context(policy=a_policy(rule), snapshot=snapshot))


def kinds_of(answer: Permit | Refusal) -> set[ReasonKind]:
    """Return the kinds of a refusal's reasons, none of a permit."""
    return set() if isinstance(answer, Permit) else {reason.kind for reason in answer.reasons}


def test_the_thief_may_be_signalled() -> None:
    """While the list says so, with SIGTERM and with SIGKILL."""
    snapshot = with_list([THIEF, OWNER], THIEVES_LIST)
    assert isinstance(answer_to(snapshot, RULE, THIEF, stage=Stage.SIGTERM), Permit)
    assert isinstance(answer_to(snapshot, RULE, THIEF), Permit)


@pytest.mark.parametrize(
    "now", [Unreadable("it hangs"), a_view(), a_view(OTHERS), replace(THIEVES_LIST, steady_since=9990.0)]
)
def test_what_is_not_known_any_more_holds_back_the_next_signal(now: AllocationView | Unreadable) -> None:
    """Kubelet silent, list empty, the pod gone from it, restarted: no SIGKILL follows a SIGTERM."""
    refusal = answer_to(with_list([THIEF, OWNER], now), RULE, THIEF)
    assert kinds_of(refusal) == {ReasonKind.UNDETERMINED}


def test_a_neighbour_that_was_given_its_gpu_does_not_go_with_the_thief() -> None:
    """A target that is the whole pod is refused, naming the owner."""
    refusal = answer_to(with_list([THIEF, OWNER], THIEVES_LIST), RULE, THIEF, OWNER)
    assert isinstance(refusal, Refusal)
    assert kinds_of(refusal) == {ReasonKind.PROTECTED}
    assert [ref.pid for reason in refusal.reasons for ref in reason.processes] == [101]


CAP = a_rule("cap")


@pytest.mark.parametrize(
    ("view", "kinds"),
    [
        (a_view(given("worker", GPU_A)), {ReasonKind.PROTECTED}),
        (a_view(given("worker", REPLICA_A)), set()),
        (a_view(given("worker"), OTHERS), set()),
        (a_view(), {ReasonKind.UNDETERMINED}),
        (Unreadable("it hangs"), {ReasonKind.UNDETERMINED}),
    ],
)
def test_a_rule_about_memory_asks_again_too(
    view: AllocationView | Unreadable, kinds: set[ReasonKind]
) -> None:
    """Of a process in a pod, unless the rule says `even_if_allocated`; of another kind of rule nothing."""
    snapshot = with_list([THIEF], view)
    assert kinds_of(answer_to(snapshot, CAP, THIEF)) == kinds
    assert kinds_of(answer_to(snapshot, replace(CAP, even_if_allocated=True), THIEF)) == set()
    old = replace(CAP, kind=RuleKind.AGE, above=Threshold(), older_than_seconds=1.0)
    assert kinds_of(answer_to(snapshot, old, THIEF)) == set()
    unit = a_process(100)
    assert kinds_of(answer_to(with_list([unit], view), CAP, unit)) == set()


def test_one_shared_gpu_beside_one_of_its_own_is_enough_for_a_rule_about_memory() -> None:
    """The rule held on the shared one; that the other is its own does not stand against it."""
    gpus = [a_gpu(uuid, processes=[a_row(100)]) for uuid in (GPU_A, GPU_B)]
    snapshot = a_snapshot(
        gpus=gpus,
        processes=[THIEF],
        holders=[a_holder(100, GPU_A), a_holder(100, GPU_B)],
        allocations=Known(a_view(given("worker", GPU_B, REPLICA_A))),
    )
    assert kinds_of(answer_to(snapshot, CAP, THIEF)) == set()


def test_who_holds_nothing_any_more_is_no_question() -> None:
    """A target without a GPU in this look is left to the other gates."""
    snapshot = replace(with_list([THIEF], a_view()), holders=())
    assert kinds_of(answer_to(snapshot, RULE, THIEF)) == set()
    unseen = replace(with_list([THIEF], a_view()), processes={})
    assert ReasonKind.PROTECTED not in kinds_of(answer_to(unseen, RULE, THIEF))


def test_a_drain_and_an_operator_are_not_asked() -> None:
    """A drain touches no process, and a person may judge by themselves."""
    snapshot = with_list([THIEF], a_view())
    assert ReasonKind.UNDETERMINED not in kinds_of(answer_to(snapshot, RULE, THIEF, stage=Stage.DRAIN))
    assert kinds_of(answer_to(snapshot, RULE, THIEF, actor=OPERATOR)) == set()
