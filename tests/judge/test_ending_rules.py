"""What an end, and what Slurm gave, mean for rules of other kinds and for the gates at each signal."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.gates import admit
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.unallocated import allocations_for, evidence_lines, terms_of
from reclaimerd.model.allocation import AllocationView, ClusterView, SlurmView
from reclaimerd.model.incident import Actor, ActorKind, Stage
from reclaimerd.model.policy import AttributionSettings, ListedStage, Per, Rule, RuleKind, Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    GIB,
    GPU_A,
    MONO,
    OURS,
    WALL,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_rule,
    a_step,
    a_target,
    an_incident,
)
from tests.judge.allocation_builders import OTHERS, a_pod_process, a_view, given
from tests.judge.ending_builders import (
    a_cluster,
    a_job,
    a_job_process,
    a_pod,
    a_session_process,
    a_slurm,
    last_of,
    seen_at,
)

CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})
POD = a_pod_process(labels_whole=True)
JOB = a_job_process()
SETTINGS = AttributionSettings()
LINGERING = a_rule("lingering", kind=RuleKind.LINGERING, large_jobs=True)
THIEF = a_rule("thief", kind=RuleKind.UNALLOCATED, large_jobs=True)
OUTSIDE = replace(THIEF, outside_jobs=True)
DELETED = a_pod(deletes_at=WALL - 5, grace_seconds=30.0)
ENDED = a_job(state="COMPLETED", ended_at=WALL - 5)


def a_memory_rule(**fields: Any) -> Rule:
    """Return an enforcing cap of 4 GiB for large workloads too."""
    return a_rule("cap", large_jobs=True, **fields)


def pods_over(seconds: float, listing: AllocationView, *pods: Any, reading: ProcessReading = POD) -> Snapshot:
    """Return the second of two looks, so long after the first, with the same pods and the same list."""
    looks = []
    for at in (MONO, MONO + seconds):
        cluster: ClusterView = a_cluster(*pods, at=at)
        looks.append(seen_at(at, reading, cluster=cluster, allocations=Known(replace(listing, read_at=at))))
    return last_of(*looks)


def jobs_over(seconds: float, *jobs: Any, readings: tuple[ProcessReading, ...] = (JOB,)) -> Snapshot:
    """Return the second of two looks, so long after the first, with the same jobs."""
    looks = (seen_at(at, *readings, slurm=a_slurm(*jobs, at=at)) for at in (MONO, MONO + seconds))
    return last_of(*looks)


def judged(look: Snapshot, rule: Rule) -> tuple[Ruling, str]:
    """Return the verdict on the first holder, and the rule's sentence."""
    verdict = evaluate(look, a_policy(rule), (), CONTEXT).verdicts[0]
    return verdict.ruling, verdict.reasons[-1].text


UNGIVEN, GIVEN = a_view(given("worker"), OTHERS), a_view(given("worker", GPU_A))


def test_a_thief_whose_pod_ends_is_not_the_thief_rules_affair() -> None:
    """Neither while it ends nor after: for the latter there is a rule of its own."""
    assert judged(pods_over(1, UNGIVEN, a_pod()), THIEF)[0] is Ruling.RECLAIM
    ruling, text = judged(pods_over(100, UNGIVEN, DELETED), THIEF)
    assert ruling is Ruling.WATCH
    assert text.endswith("are not over")
    assert judged(pods_over(999, UNGIVEN, DELETED), THIEF)[0] is Ruling.WATCH
    assert judged(pods_over(999, UNGIVEN, DELETED), LINGERING)[0] is Ruling.RECLAIM


@pytest.mark.parametrize("seconds", [100, 999])
@pytest.mark.parametrize(
    "listing", [UNGIVEN, GIVEN, a_view(given("worker", GPU_A), given("main", GPU_A, pod="b"))]
)
def test_a_memory_rule_leaves_alone_whoever_ends(listing: AllocationView, seconds: float) -> None:
    """Who had the GPU can't be known of it any more; it is a lingering rule's to take."""
    ruling, text = judged(pods_over(seconds, listing, DELETED), a_memory_rule())
    assert ruling is Ruling.UNDETERMINED
    assert "whether it has the GPU for itself is not known" in text
    summed = judged(pods_over(seconds, listing, DELETED), a_memory_rule(per=Per.USER))
    assert summed[0] is not Ruling.RECLAIM
    always = a_memory_rule(even_if_allocated=True)
    assert judged(pods_over(seconds, listing, DELETED), always)[0] is Ruling.RECLAIM


def test_a_memory_rule_leaves_alone_what_slurm_gave_a_job_for_itself() -> None:
    """As for pods, where Slurm is asked; unknown is no act, and a job without a GPU is over the cap."""
    own = jobs_over(1, a_job(gpu_indices=(1,)))
    ruling, text = judged(own, a_memory_rule())
    assert ruling is Ruling.WATCH
    assert text.endswith("but job 12 was given this GPU (/dev/nvidia0), and nobody else was")
    assert judged(own, a_memory_rule(even_if_allocated=True))[0] is Ruling.RECLAIM
    assert judged(jobs_over(1, a_job(gpu_indices=None)), a_memory_rule())[0] is Ruling.UNDETERMINED
    assert judged(jobs_over(1, a_job(gpu_indices=())), a_memory_rule())[0] is Ruling.RECLAIM
    shared = jobs_over(1, a_job(gpu_indices=(1,)), a_job("13", gpu_indices=(1,)))
    assert judged(shared, a_memory_rule())[0] is Ruling.RECLAIM
    assert judged(seen_at(MONO, JOB), a_memory_rule())[0] is Ruling.RECLAIM  # nobody can be asked at all
    assert judged(jobs_over(1, readings=(a_process(),)), a_memory_rule())[0] is Ruling.RECLAIM


def test_a_session_on_a_slurm_node_is_taken_only_by_a_rule_for_it() -> None:
    """`outside_jobs` of the rule; by everybody else's terms it is unknown."""
    ssh = a_session_process(uid=2000)
    look = jobs_over(1, a_job(gpu_indices=(1,)), readings=(ssh,))
    ruling, text = judged(look, OUTSIDE)
    assert ruling is Ruling.RECLAIM
    assert text.endswith(f"Slurm gives this GPU to jobs alone, and it holds {GPU_A}")
    assert judged(look, THIEF)[0] is Ruling.UNDETERMINED
    assert judged(replace(look, slurm=Unreadable("away")), OUTSIDE)[0] is Ruling.UNDETERMINED
    assert terms_of(OUTSIDE, SETTINGS).outside_jobs
    assert not terms_of(None, SETTINGS).outside_jobs


def test_answers_are_given_wherever_anybody_gives_gpus() -> None:
    """A kubelet, Slurm or a cluster; the record has a line of each answer, and of an end what was seen."""
    job = jobs_over(1, ENDED)
    lines = evidence_lines(allocations_for(None, SETTINGS, JOB, (GPU_A,), job))
    assert lines[0].startswith(f"{GPU_A}: allocation ending: job 12 ended at")
    assert lines[1].endswith("as first seen 1 s before this look")
    pod = seen_at(MONO, POD, cluster=a_cluster(a_pod()))
    ((_, answer),) = allocations_for(None, SETTINGS, POD, (GPU_A,), pod)
    assert answer.text == "no kubelet here"
    assert allocations_for(None, SETTINGS, POD, (GPU_A,), seen_at(MONO, POD)) == ()


def answer_to(look: Snapshot, rule: Rule, *targets: ProcessReading) -> Permit | Refusal:
    """Return what the gates say to SIGKILL by this rule for these processes."""
    scope = Scope.WORKLOAD if len(targets) > 1 else Scope.PROCESS
    incident = an_incident(
        replace(a_target(*targets), scope=scope),
        actor=Actor(ActorKind.RULE, rule.name, policy_digest="built-in"),
        plan=a_plan(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL)),
    )
    context = a_context(policy=a_policy(rule), snapshot=look, now=look.at)
    return admit(a_step(incident, Stage.SIGKILL), incident, context)


def kinds_of(answer: Permit | Refusal) -> set[ReasonKind]:
    """Return the kinds of a refusal's reasons, none of a permit."""
    return set() if isinstance(answer, Permit) else {reason.kind for reason in answer.reasons}


def test_a_lingering_process_may_be_signalled_and_one_that_ends_may_not() -> None:
    """To the second, of a pod and of a job; one that runs again, or of neither, does not go with it."""
    assert isinstance(answer_to(pods_over(999, GIVEN, DELETED), LINGERING, POD), Permit)
    assert isinstance(answer_to(jobs_over(211, ENDED), LINGERING, JOB), Permit)
    assert kinds_of(answer_to(pods_over(150, GIVEN, DELETED), LINGERING, POD)) == {ReasonKind.UNDETERMINED}
    assert kinds_of(answer_to(jobs_over(210, ENDED), LINGERING, JOB)) == {ReasonKind.UNDETERMINED}
    assert kinds_of(answer_to(jobs_over(211, a_job()), LINGERING, JOB)) == {ReasonKind.PROTECTED}
    child = a_process(201)
    both = jobs_over(211, ENDED, readings=(JOB, child))
    refusal = answer_to(both, LINGERING, JOB, child)
    assert isinstance(refusal, Refusal)
    assert [(one.kind, one.processes) for one in refusal.reasons] == [(ReasonKind.PROTECTED, (child.ref,))]


def test_a_member_without_a_gpu_goes_only_with_its_own_ended_job() -> None:
    """What holds no GPU is asked about all the same."""
    beside = a_job_process(202, job="13")
    look = jobs_over(211, ENDED, a_job("13"))
    whole = replace(look, processes={**look.processes, 202: beside})
    assert kinds_of(answer_to(whole, LINGERING, JOB, beside)) == {ReasonKind.PROTECTED}
    same = replace(look, processes={**look.processes, 202: a_job_process(202)})
    assert isinstance(answer_to(same, LINGERING, JOB, a_job_process(202)), Permit)


@pytest.mark.parametrize(
    "now",
    [Unreadable("away"), Absent("no Slurm node here"), a_slurm(), replace(a_slurm(ENDED), read_at=MONO)],
)
def test_what_is_not_known_any_more_holds_back_the_next_signal(now: Any) -> None:
    """Slurm silent, gone, a job not asked about, a stale answer: no SIGKILL follows a SIGTERM."""
    look = jobs_over(211, ENDED)
    slurm = Known(now) if isinstance(now, SlurmView) else now
    answer = answer_to(replace(look, slurm=slurm), LINGERING, JOB)
    assert kinds_of(answer) == {ReasonKind.UNDETERMINED}


def test_a_thief_or_a_large_one_that_begins_to_end_gets_no_further_signal() -> None:
    """Between SIGTERM and SIGKILL its pod was deleted: its grace is its own."""
    ends = pods_over(100, UNGIVEN, DELETED)
    for rule in (THIEF, a_memory_rule()):
        refusal = answer_to(ends, rule, POD)
        assert isinstance(refusal, Refusal)
        (reason,) = refusal.reasons
        assert reason.kind is ReasonKind.UNDETERMINED
        assert "pid 100 is ending, which is not this rule's affair" in reason.text
    assert isinstance(answer_to(pods_over(1, UNGIVEN, a_pod()), THIEF, POD), Permit)


def test_a_neighbour_of_the_job_that_has_its_gpu_for_itself_is_refused_to_a_memory_rule() -> None:
    """Asked again at each signal; a rule that says otherwise, and a host without Slurm, ask nothing."""
    own = jobs_over(1, a_job(gpu_indices=(1,)))
    assert kinds_of(answer_to(own, a_memory_rule(), JOB)) == {ReasonKind.PROTECTED}
    assert isinstance(answer_to(own, a_memory_rule(even_if_allocated=True), JOB), Permit)
    assert isinstance(answer_to(seen_at(MONO, JOB), a_memory_rule(), JOB), Permit)
    assert isinstance(answer_to(own, a_rule("old", kind=RuleKind.AGE, above=GIB), JOB), Permit)
