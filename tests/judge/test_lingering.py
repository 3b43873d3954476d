"""Pods and jobs that end: nobody is touched before the owner's own deadline is past, and that is known."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given as example
from hypothesis import strategies

from reclaimerd.judge.allocation import DEFAULT_TERMS, allocation_of
from reclaimerd.judge.departures import advance_departures
from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.lingering import ending_of
from reclaimerd.judge.series import Past
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.unallocated import lingering_condition
from reclaimerd.model.allocation import Allocation, AllocationRuling, ClusterView, Departure, SlurmJob
from reclaimerd.model.policy import Rule, RuleKind, Threshold
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained
from tests.builders import GPU_A, MONO, OURS, WALL, a_policy, a_process, a_rule
from tests.judge.allocation_builders import OTHERS, POD_UID, a_pod_process, a_view, given
from tests.judge.ending_builders import (
    a_cluster,
    a_job,
    a_job_process,
    a_pod,
    a_slurm,
    last_of,
    remembered,
    seen_at,
)

POD = a_pod_process(labels_whole=True)
JOB = a_job_process()
STATIC = "a5363f4f31e043bdae3c93aca4991903"
ENDING, LINGERING, UNKNOWN = AllocationRuling.ENDING, AllocationRuling.LINGERING, AllocationRuling.UNKNOWN


def ending(look: Snapshot, reading: ProcessReading) -> Allocation | None:
    """Return what the end of its pod or job means for a process."""
    return ending_of(reading, look, DEFAULT_TERMS)


def word(look: Snapshot, reading: ProcessReading) -> AllocationRuling | None:
    """Return the ruling alone."""
    found = ending(look, reading)
    return None if found is None else found.ruling


def text(look: Snapshot, reading: ProcessReading) -> str:
    """Return the sentence alone."""
    found = ending(look, reading)
    return "" if found is None else found.text


def of_pods(at: float, *pods: Any, reading: ProcessReading = POD, **fields: Any) -> Snapshot:
    """Return a look with a list of pods that was read just then."""
    return seen_at(at, reading, cluster=a_cluster(*pods, at=at), **fields)


def of_jobs(at: float, *jobs: SlurmJob, reading: ProcessReading = JOB, **fields: Any) -> Snapshot:
    """Return a look with an answer of Slurm's that was got just then."""
    return seen_at(at, reading, slurm=a_slurm(*jobs, at=at, **fields))


def test_a_pod_that_runs_and_a_process_of_none_do_not_end() -> None:
    """None, and no doubt about it."""
    assert ending(last_of(of_pods(MONO, a_pod())), POD) is None
    assert ending(last_of(of_pods(MONO, a_pod(), reading=a_process())), a_process()) is None


def test_a_deleted_pod_ends_for_as_long_as_its_grace_and_lingers_after_it() -> None:
    """Case C92: to the second, with the margin of 120 s; and the text says until when."""
    deleted = a_pod(deletes_at=WALL + 900.0, grace_seconds=900.0)
    looks = [of_pods(MONO + after, deleted) for after in (0.0, 900.0, 1020.0, 1021.0)]
    found = [ending(look, POD) for look in remembered(looks)]
    assert [one.ruling for one in found if one is not None] == [ENDING, ENDING, ENDING, LINGERING]
    lingers = found[-1]
    assert lingers is not None
    what = "pod team/train-0 was deleted, to end by 2027-01-15 08:15:00 UTC"
    assert lingers.text == f"{what}; the 900 s that it may take, and 120 s more, are over"
    assert lingers.evidence == (f"{what}, as first seen 1021 s before this look",)


def test_before_its_wall_clock_deadline_it_ends_whatever_our_clock_says() -> None:
    """The deadline was moved away by whoever deletes it again."""
    first = of_pods(MONO, a_pod(deletes_at=WALL))
    later = of_pods(MONO + 500, a_pod(deletes_at=WALL + 500 - 120), taken_at=WALL + 500.0)
    assert word(last_of(first, later), POD) is ENDING
    assert word(last_of(first, replace(later, taken_at=WALL + 501.0)), POD) is ENDING  # 380 + 120 since then
    much = of_pods(MONO + 501, a_pod(deletes_at=WALL + 380), taken_at=WALL + 501.0)
    assert word(last_of(first, later, much), POD) is LINGERING


def test_after_our_start_the_whole_grace_counts_anew() -> None:
    """A deadline that is long past by the wall clock, seen for the first time: nothing is remembered yet."""
    deleted = a_pod(deletes_at=WALL - 5000.0, grace_seconds=900.0)
    assert word(last_of(of_pods(MONO, deleted)), POD) is ENDING
    assert word(last_of(of_pods(MONO, deleted), of_pods(MONO + 1020, deleted)), POD) is ENDING
    assert word(last_of(of_pods(MONO, deleted), of_pods(MONO + 1021, deleted)), POD) is LINGERING
    assert word(of_pods(MONO, deleted), POD) is UNKNOWN
    assert "not remembered" in text(of_pods(MONO, deleted), POD)


def test_a_pod_deleted_by_force_lingers_after_the_grace_that_it_had() -> None:
    """Cases C92: it vanishes from the list while its process lives on."""
    there, gone = of_pods(MONO, a_pod(grace_seconds=60.0)), of_pods(MONO + 30)
    assert word(last_of(there, gone, of_pods(MONO + 210)), POD) is ENDING
    lingers = ending(last_of(there, gone, of_pods(MONO + 211)), POD)
    assert lingers is not None
    assert lingers.ruling is LINGERING
    assert lingers.text.startswith("pod team/train-0 is not in the cluster's list any more; the 60 s")


def test_a_pod_that_was_never_listed_or_has_no_known_grace_is_unknown() -> None:
    """A restart of ours, a pod that is newer than the list, a grace that nobody told."""
    assert word(last_of(of_pods(MONO), of_pods(MONO + 9999)), POD) is UNKNOWN
    assert "in none since our start" in text(last_of(of_pods(MONO)), POD)
    graceless = of_pods(MONO, a_pod(grace_seconds=None))
    assert "not known" in text(last_of(graceless, of_pods(MONO + 30), of_pods(MONO + 9999)), POD)
    listed = Departure(*_pod_key(), takes_seconds=30.0)
    assert word(replace(of_pods(MONO), departures=(listed,)), POD) is UNKNOWN
    nameless = a_pod_process(namespace=None)
    assert POD_UID in text(last_of(of_pods(MONO, reading=nameless)), nameless)


def _pod_key() -> tuple[Any, str]:
    (kept,) = (one for one in last_of(of_pods(MONO, a_pod())).departures if one.id == POD_UID)
    return kept.owner, kept.id


def test_a_finished_pod_that_nobody_deleted_is_unknown() -> None:
    """Its phase has no time; deleted it has one."""
    for phase in ("Succeeded", "Failed"):
        assert word(last_of(of_pods(MONO, a_pod(phase=phase))), POD) is UNKNOWN
        deleted = a_pod(phase=phase, deletes_at=WALL)
        assert word(last_of(of_pods(MONO, deleted), of_pods(MONO + 999, deleted)), POD) is LINGERING


def test_a_static_pod_neither_ends_nor_lingers() -> None:
    """Case C85: by its hash; a mirror that is deleted, or was never there, ends nothing."""
    static = a_pod_process(pod_uid=STATIC)
    mirrored = a_pod("33333333-c152-46b9-96e0-d57032629e1f", mirror=STATIC)
    assert ending(last_of(of_pods(MONO, mirrored, reading=static)), static) is None
    deleted = replace(mirrored, deletes_at=WALL - 9999)
    looks = [of_pods(MONO + after, deleted, reading=static) for after in (0.0, 9999.0)]
    assert word(last_of(*looks), static) is UNKNOWN
    there = of_pods(MONO, mirrored, reading=static)
    assert word(last_of(there, of_pods(MONO + 30), of_pods(MONO + 9999)), static) is UNKNOWN
    by_uid = a_pod_process(pod_uid=mirrored.uid)
    assert word(last_of(of_pods(MONO, deleted), of_pods(MONO + 9999, deleted)), by_uid) is UNKNOWN


def test_what_is_not_known_of_pods() -> None:
    """No cluster, a silent one, a stale or an empty list, no UID, a path that proves nothing."""
    deleted = a_pod(deletes_at=WALL - 9999)
    first, fresh = of_pods(MONO, deleted), a_cluster(deleted, at=MONO + 9999)
    for cluster, why in (
        (Absent("no cluster is asked"), "no cluster is asked"),
        (Unreadable("it hangs"), "it hangs"),
        (replace(fresh, read_at=MONO + 9938), "61 s old"),
        (replace(fresh, read_at=float("nan")), "s old"),
        (replace(fresh, pods=()), "names no pod"),
    ):
        found = ending(last_of(first, seen_at(MONO + 9999, POD, cluster=cluster)), POD)
        assert found is not None
        assert (found.ruling, why in found.text) == (UNKNOWN, True)
    late = last_of(first, seen_at(MONO + 9999, POD, cluster=fresh))
    assert word(late, POD) is LINGERING
    assert word(late, a_pod_process(pod_uid=None)) is UNKNOWN
    assert word(late, replace(POD, workload=replace(POD.workload, names=None))) is UNKNOWN
    assert word(late, replace(POD, workload=replace(POD.workload, trusted=False))) is UNKNOWN


def test_an_ended_job_ends_for_kill_wait_and_unkillable_and_then_lingers() -> None:
    """30 + 60 s of its own, and 120 s more, since the first answer that showed it."""
    ended = a_job(state="COMPLETING", ended_at=WALL - 1)
    looks = [of_jobs(MONO + after, ended) for after in (0.0, 210.0, 211.0)]
    found = [ending(look, JOB) for look in remembered(looks)]
    assert [one.ruling for one in found if one is not None] == [ENDING, ENDING, LINGERING]
    assert found[-1] is not None
    assert found[-1].text == (
        "job 12 ended at 2027-01-15 07:59:59 UTC (COMPLETING); "
        "the 90 s that it may take, and 120 s more, are over"
    )
    patient = [of_jobs(MONO + after, ended, kill_wait_seconds=600.0) for after in (0.0, 211.0)]
    assert word(last_of(*patient), JOB) is ENDING


def test_a_job_that_runs_does_not_end_and_one_between_is_unknown() -> None:
    """Also suspended it has what it was given; a state that says neither decides nothing."""
    assert ending(last_of(of_jobs(MONO, a_job())), JOB) is None
    assert ending(last_of(of_jobs(MONO, a_job(state="SUSPENDED"))), JOB) is None
    for state in ("COMPLETING", "PENDING", "REQUEUED", "COMPLETED", "RESIZING"):
        assert word(last_of(of_jobs(MONO, a_job(state=state))), JOB) is UNKNOWN
    assert word(of_jobs(MONO, a_job(state="COMPLETED", ended_at=WALL)), JOB) is UNKNOWN


def test_a_job_that_the_controller_forgot_lingers_after_the_same_time() -> None:
    """From the first answer that says so; known before, or beside other jobs of this node."""
    runs, gone = of_jobs(MONO, a_job()), of_jobs(MONO + 30, gone=("12",))
    assert word(last_of(runs, gone, of_jobs(MONO + 240, gone=("12",))), JOB) is ENDING
    lingers = last_of(runs, gone, of_jobs(MONO + 241, gone=("12",)))
    assert word(lingers, JOB) is LINGERING
    assert text(lingers, JOB).startswith("Slurm does not know job 12 any more; the 90 s")
    never = last_of(gone, of_jobs(MONO + 999, a_job("13"), gone=("12",)))
    assert word(never, JOB) is LINGERING
    assert word(of_jobs(MONO, gone=("12",)), JOB) is UNKNOWN


def test_a_job_that_may_be_another_controllers_is_unknown() -> None:
    """Never known, and the controller knows no job of this node, or several slurmd run here."""
    looks = [of_jobs(MONO + after, gone=("12",)) for after in (0.0, 999.0)]
    assert word(last_of(*looks), JOB) is UNKNOWN
    assert "knows no job of this node" in text(last_of(*looks), JOB)
    looks = [of_jobs(MONO + after, a_job("13"), gone=("12",)) for after in (0.0, 999.0)]
    for path, found in (
        ("/system.slice/n1_slurmstepd.scope/job_12", UNKNOWN),
        ("/slurm_n1/uid_1000/job_12", UNKNOWN),
        ("/slurm/uid_1000/job_12", LINGERING),
        ("/system.slice/slurmstepd.scope/job_12", LINGERING),
    ):
        assert word(last_of(*looks), replace(JOB, workload=replace(JOB.workload, path=path))) is found


def test_what_is_not_known_of_jobs() -> None:
    """No Slurm, silence, a stale answer, no job id, a job that was not asked about, an unproven path."""
    ended = a_job(state="COMPLETED", ended_at=WALL)
    first, fresh = of_jobs(MONO, ended), a_slurm(ended, at=MONO + 999)
    for slurm, why in (
        (Absent("no Slurm node here"), "no Slurm node here"),
        (Unreadable("scontrol hangs"), "scontrol hangs"),
        (replace(fresh, read_at=MONO + 938), "61 s old"),
        (a_slurm(at=MONO + 999), "not asked about job 12"),
        (replace(fresh, unfit="the node is in maintenance"), "in maintenance"),
    ):
        found = ending(last_of(first, seen_at(MONO + 999, JOB, slurm=slurm)), JOB)
        assert found is not None
        assert (found.ruling, why in found.text) == (UNKNOWN, True)
    late = last_of(first, seen_at(MONO + 999, JOB, slurm=fresh))
    assert word(late, JOB) is LINGERING
    assert word(late, replace(JOB, workload=replace(JOB.workload, names=None))) is UNKNOWN
    assert word(late, replace(JOB, workload=replace(JOB.workload, trusted=False))) is UNKNOWN


def test_another_clusters_controller_ends_no_job_of_this_node() -> None:
    """It knows none of them, and may answer for long: what it says neither convicts nor starts the time."""
    runs, other = of_jobs(MONO, a_job()), "the controller knows another slurmd of this name"
    wrong = [of_jobs(MONO + after, gone=("12",), unfit=other, why=other) for after in (30.0, 600.0)]
    assert [word(look, JOB) for look in remembered([runs, *wrong])] == [None, UNKNOWN, UNKNOWN]
    again = of_jobs(MONO + 630, a_job(state="COMPLETING", ended_at=WALL + 630))
    assert word(last_of(runs, *wrong, again), JOB) is ENDING
    forgot = [of_jobs(MONO + after, gone=("12",), why="no map of GPUs") for after in (30.0, 241.0)]
    assert word(last_of(runs, *forgot), JOB) is LINGERING, "which GPU is which is not asked here"


def test_another_clusters_list_ends_no_pod_of_this_node() -> None:
    """New credentials lead to a node of the same name elsewhere: its list has none of the pods of before."""
    there, stranger = of_pods(MONO, a_pod()), a_pod("11111111-c152-46b9-96e0-d57032629e1f", name="other")
    looks = [of_pods(MONO + after, stranger) for after in (30.0, 600.0)]
    elsewhere = [
        replace(one, cluster=Known(replace(a_cluster(at=one.at), pods=(stranger,)))) for one in looks
    ]
    assert [word(look, POD) for look in remembered([there, *elsewhere])] == [None, UNKNOWN, UNKNOWN]
    assert word(last_of(there, *looks), POD) is LINGERING, "one of the pods of before is in this one"
    back = of_pods(MONO + 630, a_pod(deletes_at=WALL + 660))
    assert word(last_of(there, *elsewhere, back), POD) is ENDING


def test_an_instant_that_no_calendar_has_is_said_in_seconds() -> None:
    """A controller's nonsense stops no look."""
    assert "1e" not in text(last_of(of_jobs(MONO, a_job(state="FAILED", ended_at=1e18))), JOB)
    assert word(last_of(of_jobs(MONO, a_job(state="FAILED", ended_at=-1e18))), JOB) is ENDING


CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})


def a_lingering_rule(**fields: Any) -> Rule:
    """Return an enforcing rule that holds at once, for large workloads too."""
    whole = {"kind": RuleKind.LINGERING, "above": Threshold(), "large_jobs": True, **fields}
    return a_rule("lingering", **whole)


def a_thief_rule(**fields: Any) -> Rule:
    """Return an enforcing rule against what was not given."""
    whole = {"kind": RuleKind.UNALLOCATED, "above": Threshold(), "large_jobs": True, **fields}
    return a_rule("thief", **whole)


def rulings_over(looks: list[Snapshot], *rules: Rule) -> Iterator[tuple[float, Ruling, str]]:
    """Yield when each look was, the verdict on its holder and the rule that decided, as the daemon would."""
    policy, past = a_policy(*rules), Past()
    sustained: tuple[Sustained, ...] = ()
    departures: tuple[Departure, ...] = ()
    for look in looks:
        departures = advance_departures(departures, look)
        found = evaluate(replace(look, departures=departures), policy, sustained, CONTEXT, past)
        sustained, past = found.sustained, found.past
        yield look.at, found.verdicts[0].ruling, found.verdicts[0].rule


def test_a_pod_with_900_s_of_grace_is_never_signalled_within_it() -> None:
    """Two enforcing rules, a look every 10 s: not before grace and margin are over, and then it is.

    All the time the kubelet's list has given its GPU to nobody in its pod, so it would be a thief's.
    """
    deleted = a_pod(deletes_at=WALL + 950.0, grace_seconds=900.0)
    listing = a_view(given("worker"), OTHERS)
    looks = []
    for after in range(0, 1400, 10):
        at = MONO + after
        pod = a_pod(grace_seconds=900.0) if after < 50 else deleted
        allocations = Known(replace(listing, read_at=at))
        looks.append(
            of_pods(at, pod, reading=replace(POD, age_seconds=600.0 + after), allocations=allocations)
        )
    found = list(rulings_over(looks, a_lingering_rule(), a_thief_rule()))
    deadline = MONO + 950 + 120
    before = {ruling for at, ruling, _ in found if MONO + 50 <= at <= deadline}
    assert Ruling.RECLAIM not in before
    after_it = {(ruling, rule) for at, ruling, rule in found if at > deadline}
    assert after_it == {(Ruling.RECLAIM, "lingering")}
    first = {(ruling, rule) for at, ruling, rule in found if at < MONO + 50}
    assert first == {(Ruling.RECLAIM, "thief")}


def test_a_job_that_ended_is_reclaimed_only_when_it_lingers() -> None:
    """While it runs, and until its time is over, it is watched."""
    states = [(0, a_job()), (30, a_job()), (60, a_job(state="COMPLETING", ended_at=WALL + 50))]
    looks = [of_jobs(MONO + after, job) for after, job in states]
    looks += [of_jobs(MONO + after, states[-1][1]) for after in range(90, 360, 30)]
    found = [(at - MONO, ruling) for at, ruling, _ in rulings_over(looks, a_lingering_rule())]
    assert {ruling for at, ruling in found if at <= 270} == {Ruling.WATCH}
    assert {ruling for at, ruling in found if at > 270} == {Ruling.RECLAIM}


def test_a_lingering_rule_where_it_cant_be_known() -> None:
    """UNDETERMINED with the reason; of a process of no pod or job it is not asked."""
    for reading, ruling, why in (
        (POD, Ruling.UNDETERMINED, "whether its pod or job ended is not known: no cluster is asked"),
        (a_process(), Ruling.WATCH, "its pod or job runs, or it belongs to none"),
    ):
        (verdict,) = evaluate(seen_at(MONO, reading), a_policy(a_lingering_rule()), (), CONTEXT).verdicts
        assert (verdict.ruling, verdict.reasons[-1].text) == (ruling, why)


def test_a_lingering_rule_concerns_only_gpus_of_its_own() -> None:
    """A process on none of them is none of its business."""
    from reclaimerd.judge.held_conditions import Basis  # noqa: PLC0415  # the condition alone, for one test

    look = last_of(of_pods(MONO, a_pod()))
    found = lingering_condition(a_lingering_rule(), POD, (), Basis(look, {}, {}))
    assert found.text == "the rule does not concern it"


def test_the_end_comes_before_all_that_the_kubelet_says() -> None:
    """Also of one that its list still gives the GPU; a doubt about the end convicts nobody."""
    deleted = a_pod(deletes_at=WALL)
    for listing, plain in (
        (a_view(given("worker", GPU_A)), AllocationRuling.ALLOWED),
        (a_view(given("worker"), OTHERS), AllocationRuling.UNALLOCATED),
    ):

        def look(at: float, *pods: Any, listing: Any = listing, **fields: Any) -> Snapshot:
            known = Known(replace(listing, read_at=at))
            return of_pods(at, *pods, allocations=known, **fields)

        def answer(found: Snapshot) -> AllocationRuling:
            return allocation_of(POD, GPU_A, found, found.at).ruling

        assert answer(last_of(look(MONO, a_pod()))) is plain
        assert answer(replace(look(MONO), cluster=Absent("nobody is asked"))) is plain
        assert answer(last_of(look(MONO, deleted))) is ENDING
        assert answer(last_of(look(MONO, deleted), look(MONO + 151, deleted))) is LINGERING
        doubtful = AllocationRuling.ALLOWED if plain is AllocationRuling.ALLOWED else UNKNOWN
        assert answer(replace(look(MONO), cluster=Unreadable("it hangs"))) is doubtful
        assert answer(last_of(look(MONO))) is doubtful


VIEWS = strategies.sampled_from(["pods", "no pods", "stale", "silent", "nobody"])
PODS = strategies.sampled_from(
    [None, a_pod(), a_pod(grace_seconds=None), a_pod(phase="Failed"), a_pod(deletes_at=WALL + 40),
     a_pod(deletes_at=WALL - 900, grace_seconds=600.0), a_pod(mirror=STATIC, deletes_at=WALL)]
)  # fmt: skip


@example(
    steps=strategies.lists(strategies.tuples(VIEWS, PODS, strategies.floats(1, 400)), min_size=1, max_size=8)
)
def test_no_series_of_looks_convicts_without_a_fresh_whole_list_and_the_time_over(
    steps: list[tuple[str, Any, float]],
) -> None:
    """LINGERING: this list is fresh and whole, and since the first that showed the end the time is over."""
    at, looks = MONO, []
    for kind, pod, wait in steps:
        at += wait
        view = a_cluster(*(() if pod is None else (pod,)), at=at - (90 if kind == "stale" else 0))
        view = replace(view, pods=()) if kind == "no pods" else view
        silent: Reading[ClusterView] = (
            Unreadable("it hangs") if kind == "silent" else Absent("nobody is asked")
        )
        looks.append(seen_at(at, POD, cluster=silent if kind in {"silent", "nobody"} else view))
    found = remembered(looks)
    for number, look in enumerate(found):
        answer = allocation_of(POD, GPU_A, look, look.at).ruling
        assert answer in {UNKNOWN, ENDING, LINGERING}
        if answer is not LINGERING:
            continue
        kind, pod, _ = steps[number]
        assert kind == "pods"
        assert pod is None or (pod.deletes_at is not None and not pod.mirror)
        ends = [
            one.cluster.value.read_at
            for one, (_, there, _) in zip(found, steps[: number + 1], strict=False)
            if isinstance(one.cluster, Known) and (there is None or there.deletes_at is not None)
        ]
        assert look.at - ends[0] > 120.0 + (30.0 if pod is None else pod.grace_seconds)


def test_a_workload_of_another_kind_never_ends() -> None:
    """A container of Docker's, a unit, a session: nobody is asked about them."""
    look = last_of(of_pods(MONO, a_pod()))
    for kind in set(WorkloadKind) - {WorkloadKind.POD, WorkloadKind.SLURM_JOB}:
        assert ending(look, a_process(workload=Workload(kind, "x", path="/x"))) is None
