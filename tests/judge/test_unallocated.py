"""Rules of kind `unallocated`, and what a memory rule must leave alone: by whole evaluations."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.unallocated import allocations_for, evidence_lines
from reclaimerd.model.allocation import AllocationView
from reclaimerd.model.policy import (
    AttributionSettings,
    GpuSpan,
    Per,
    Policy,
    Rule,
    RuleKind,
    Threshold,
    UserProtection,
)
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    OURS,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_row,
    a_rule,
    a_snapshot,
)
from tests.judge.allocation_builders import OTHERS, REPLICA_A, a_pod_process, a_view, given, with_list

CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})
SETTINGS = AttributionSettings()


def a_thief_rule(**fields: Any) -> Rule:
    """Return an enforcing rule that holds at once, also for members of large workloads."""
    kind = {"kind": RuleKind.UNALLOCATED, "above": Threshold(), "large_jobs": True}
    return a_rule("thief", **{**kind, **fields})


def judged(snapshot: Snapshot, *rules: Rule) -> Evaluation:
    """Return the verdicts of one look, by rules that also take members of large workloads."""
    return evaluate(snapshot, a_policy(*(replace(one, large_jobs=True) for one in rules)), (), CONTEXT)


def ruling_on(evaluation: Evaluation, reading: ProcessReading) -> tuple[Ruling, str]:
    """Return the verdict on one process, and the text of its only rule."""
    verdict = evaluation.verdict_of(reading.ref)
    assert verdict is not None
    return verdict.ruling, verdict.reasons[-1].text


THIEF, OWNER = a_pod_process(100), a_pod_process(101, container="main")
LIST = a_view(given("worker"), given("main", GPU_A))


def test_the_thief_is_reclaimed_and_its_neighbour_is_not() -> None:
    """Two containers of one pod, one GPU given to one of them, and a rule that shares nothing in a pod."""
    found = judged(with_list([THIEF, OWNER], LIST), a_thief_rule(pod_shares=False))
    ruling, text = ruling_on(found, THIEF)
    assert ruling is Ruling.RECLAIM
    assert text == f"container worker of pod team/train-0 was given no GPU, and it holds {GPU_A}"
    assert ruling_on(found, OWNER)[0] is Ruling.WATCH
    shared = judged(with_list([THIEF, OWNER], LIST), a_thief_rule())
    assert ruling_on(shared, THIEF)[0] is Ruling.WATCH


@pytest.mark.parametrize(
    "allocations",
    [
        Absent("no kubelet here"),
        Unreadable("it hangs"),
        a_view(),
        a_view(given("worker", claims=("team/x",))),
        a_view(given("worker"), given("main", REPLICA_A, pod="other-0")),
        a_view(given("worker"), steady_since=a_view().read_at),
        a_view(given("worker"), read_at=a_view().read_at - 60),
    ],
)
def test_what_is_not_known_is_undetermined(allocations: AllocationView | Absent | Unreadable) -> None:
    """Kubelet gone, silent, an empty list, DRA, time-slicing, a restart, a stale list: nobody is touched."""
    found = judged(with_list([THIEF], allocations), a_thief_rule())
    assert ruling_on(found, THIEF)[0] is Ruling.UNDETERMINED
    assert found.sustained == ()


def test_one_source_alone_is_watched() -> None:
    """NVML lists it and no open node shows it: as for memory, one source is no target."""
    snapshot = with_list([THIEF], a_view(given("worker"), OTHERS))
    alone = replace(snapshot, holders=tuple(replace(row, node=False) for row in snapshot.holders))
    ruling, text = ruling_on(judged(alone, a_thief_rule()), THIEF)
    assert ruling is Ruling.WATCH
    assert text.endswith("but only one source shows it")


def test_the_rule_must_hold_as_long_as_it_says() -> None:
    """`for` and `readings` count as for every other kind."""
    patient = a_thief_rule(for_seconds=2.0, readings=2)
    first = with_list([THIEF], a_view(given("worker"), OTHERS))
    before = judged(first, patient)
    assert ruling_on(before, THIEF)[0] is Ruling.WATCH
    later = replace(first, at=first.at + 2.0)
    after = evaluate(later, a_policy(patient), before.sustained, CONTEXT, before.past)
    assert ruling_on(after, THIEF)[0] is Ruling.RECLAIM


def test_a_protected_program_is_spared() -> None:
    """A protection stands before every kind of rule."""
    keep = UserProtection("keep", uids=((1000, 1000),))
    policy = a_policy(a_thief_rule(pod_shares=False), protections=(keep,))
    found = evaluate(with_list([THIEF], LIST), policy, (), CONTEXT)
    assert ruling_on(found, THIEF)[0] is Ruling.SPARE


ALONE = a_view(given("worker", GPU_A), OTHERS)


def test_a_memory_rule_leaves_alone_who_has_the_gpu_for_itself() -> None:
    """It does not hold, and says why; `even_if_allocated` makes it hold."""
    snapshot = with_list([THIEF], ALONE)
    ruling, text = ruling_on(judged(snapshot, a_rule()), THIEF)
    assert ruling is Ruling.WATCH
    assert text.endswith(f"but it was given nvidia.com/gpu {GPU_A}, and nobody else was")
    assert ruling_on(judged(snapshot, a_rule(even_if_allocated=True)), THIEF)[0] is Ruling.RECLAIM


@pytest.mark.parametrize("view", [a_view(given("worker", REPLICA_A)), a_view(given("worker"), OTHERS)])
def test_a_memory_rule_holds_for_who_shares_the_gpu_or_was_not_given_it(view: AllocationView) -> None:
    """A share in turns, and a thief."""
    assert ruling_on(judged(with_list([THIEF], view), a_rule()), THIEF)[0] is Ruling.RECLAIM


@pytest.mark.parametrize("reading", [Absent("no kubelet here"), Unreadable("it hangs"), a_view()])
def test_a_memory_rule_in_a_pod_needs_to_know(reading: AllocationView | Absent | Unreadable) -> None:
    """Where it can't be known whether the pod has the GPU for itself nobody acts, unless the rule says so."""
    snapshot = with_list([THIEF], reading)
    assert ruling_on(judged(snapshot, a_rule()), THIEF)[0] is Ruling.UNDETERMINED
    assert ruling_on(judged(snapshot, a_rule(even_if_allocated=True)), THIEF)[0] is Ruling.RECLAIM
    unit = a_process(100)
    assert ruling_on(judged(with_list([unit], reading), a_rule()), unit)[0] is Ruling.RECLAIM


def _on_two_gpus(view: AllocationView) -> Snapshot:
    gpus = [a_gpu(uuid, processes=[a_row(100)]) for uuid in (GPU_A, GPU_B)]
    holders = [a_holder(100, GPU_A), a_holder(100, GPU_B)]
    return a_snapshot(gpus=gpus, processes=[THIEF], holders=holders, allocations=Known(view))


def test_of_two_gpus_the_one_of_its_own_is_left_out() -> None:
    """On one GPU the other still counts; over all GPUs a sum that has its own in it does not hold."""
    snapshot = _on_two_gpus(a_view(given("worker", GPU_A)))
    verdict = judged(snapshot, a_rule()).verdict_of(THIEF.ref)
    assert verdict is not None
    assert (verdict.ruling, verdict.gpus) == (Ruling.RECLAIM, (GPU_B,))
    together = a_rule(span=GpuSpan.ALL, above=10 * GIB)
    assert ruling_on(judged(snapshot, together), THIEF)[0] is Ruling.WATCH


@pytest.mark.parametrize("view", [a_view(given("worker", GPU_A), OTHERS), a_view()])
@pytest.mark.parametrize("span", GpuSpan)
def test_nobody_answers_in_a_sum_for_what_a_pod_has_or_may_have_for_itself(
    view: AllocationView, span: GpuSpan
) -> None:
    """A process of the same uid outside the pod, small by itself: only what others hold too counts."""
    unit = a_process(102)
    rule = a_rule("sum", per=Per.USER, span=span, above=12 * GIB)
    found = judged(with_list([THIEF, unit], view), rule)
    assert ruling_on(found, unit)[0] is Ruling.WATCH
    assert ruling_on(found, THIEF)[0] is not Ruling.RECLAIM
    counting = judged(with_list([THIEF, unit], view), replace(rule, even_if_allocated=True))
    assert Ruling.RECLAIM in {verdict.ruling for verdict in counting.verdicts}
    both = judged(with_list([THIEF, unit, a_process(103)], view), rule)
    assert sorted(one.ref.pid for one in both.verdicts if one.ruling is Ruling.RECLAIM) == [102]


def test_the_record_has_the_evidence_once() -> None:
    """A line for each GPU and each piece of evidence; nothing at all on a host without a kubelet."""
    snapshot = _on_two_gpus(a_view(given("worker", GPU_A)))
    lines = evidence_lines(allocations_for(a_thief_rule(), SETTINGS, THIEF, [GPU_A, GPU_B], snapshot))
    assert lines[0].startswith(f"{GPU_A}: allocated for itself alone: ")
    assert f"{GPU_B}: not allocated: " in "\n".join(lines)
    assert len(set(lines)) == len(lines)
    unknown = allocations_for(None, SETTINGS, THIEF, [GPU_A], with_list([THIEF], a_view()))
    assert evidence_lines(unknown) == (f"{GPU_A}: allocation unknown: the kubelet's list is empty",)
    assert allocations_for(None, SETTINGS, THIEF, [GPU_A], with_list([THIEF], Absent("none"))) == ()
    shared = allocations_for(
        None, SETTINGS, THIEF, [GPU_A], with_list([THIEF], a_view(given("worker", REPLICA_A)))
    )
    assert evidence_lines(shared)[0].startswith(f"{GPU_A}: allocated: ")


def test_how_it_came_by_the_gpu_is_evidence_and_never_the_verdict() -> None:
    """What its runtime recorded stands in the record of one who took a GPU, and changes no answer."""
    names = THIEF.workload.names
    assert names is not None
    grants = replace(names, grants=("NVIDIA_VISIBLE_DEVICES=all", "device nodes /dev/nvidia0"))
    telling = replace(THIEF, workload=replace(THIEF.workload, names=grants))
    for view, is_told in ((a_view(given("worker"), OTHERS), True), (a_view(given("worker", GPU_A)), False)):
        before, after = (
            allocations_for(a_thief_rule(), SETTINGS, one, [GPU_A], with_list([one], view))
            for one in (THIEF, telling)
        )
        assert [answer.ruling for _, answer in before] == [answer.ruling for _, answer in after]
        line = "its runtime's record: NVIDIA_VISIBLE_DEVICES=all; device nodes /dev/nvidia0"
        assert (line in evidence_lines(after)) is is_told
        assert line not in evidence_lines(before)


def test_a_policys_namespaces_are_spared() -> None:
    """Pods of the administrator's system namespaces are never convicted."""
    snapshot = with_list([THIEF], a_view(given("worker"), OTHERS))
    policy: Policy = a_policy(a_thief_rule(), attribution=AttributionSettings(system_namespaces=("team",)))
    assert ruling_on(evaluate(snapshot, policy, (), CONTEXT), THIEF)[0] is Ruling.UNDETERMINED
