"""Who was given a GPU by Slurm: by the job alone; a verdict against somebody needs every doubt excluded."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as example
from hypothesis import strategies

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.job_allocation import job_allocation
from reclaimerd.model.allocation import Allocation, AllocationRuling, AllocationTerms, SlurmJob, SlurmView
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GPU_A, GPU_B, MONO, WALL, a_gpu, a_process, a_row, a_snapshot
from tests.judge.allocation_builders import OTHERS, a_view, given
from tests.judge.ending_builders import a_job, a_job_process, a_session_process, a_slurm, last_of, seen_at

JOB = a_job_process()
SSH = a_session_process(uid=2000)
OUTSIDE = AllocationTerms(outside_jobs=True)
ALLOWED, UNALLOCATED, UNKNOWN = (
    AllocationRuling.ALLOWED,
    AllocationRuling.UNALLOCATED,
    AllocationRuling.UNKNOWN,
)
ON_A = a_job(gpu_indices=(1,))
"""A job whose GPU is A: Slurm counts the two the other way round."""
ON_B = a_job(gpu_indices=(0,))


def asked(
    view: Any,
    reading: ProcessReading = JOB,
    gpu: GpuUuid = GPU_A,
    terms: AllocationTerms = OUTSIDE,
    **fields: Any,
) -> Allocation:
    """Return the answer on a process that holds GPU A, 5 s after Slurm's."""
    late = replace(view, read_at=MONO - 5.0) if isinstance(view, SlurmView) else view
    look = last_of(seen_at(MONO, reading, slurm=late, **fields))
    return allocation_of(reading, gpu, look, MONO, terms)


def test_a_jobs_process_may_hold_what_its_job_was_given() -> None:
    """By Slurm's own index and its map to device nodes, with the evidence."""
    answer = asked(a_slurm(ON_A))
    assert (answer.ruling, answer.exclusive) == (ALLOWED, True)
    assert answer.text == "job 12 was given this GPU (/dev/nvidia0)"
    assert answer.evidence == (
        "Slurm's answer of 5 s ago names 1 jobs",
        "job 12 has the GPUs 1 of this node",
    )
    assert asked(a_slurm(replace(ON_A, state="SUSPENDED"))).ruling is ALLOWED


@pytest.mark.parametrize(
    ("indices", "what"),
    [((0,), "job 12 was given the GPUs 0 of this node, not this one"), ((), "job 12 was given no GPU")],
)
def test_a_job_that_holds_what_it_was_not_given(indices: tuple[int, ...], what: str) -> None:
    """Another GPU than its own, or none at all."""
    answer = asked(a_slurm(a_job(gpu_indices=indices)))
    assert (answer.ruling, answer.text) == (UNALLOCATED, what)
    assert answer.evidence[0].startswith("Slurm's answer of 5 s ago")


def test_a_gpu_that_two_jobs_were_given_is_nobodys_alone() -> None:
    """Two jobs of one index; another index, an ended job and an untold one change nothing."""
    assert not asked(a_slurm(ON_A, a_job("13", gpu_indices=(1,)))).exclusive
    for other in (
        a_job("13", gpu_indices=(0,)),
        a_job("13", gpu_indices=(1,), ended_at=WALL),
        a_job("13", gpu_indices=None),
    ):
        assert asked(a_slurm(ON_A, other)).exclusive


def a_mig_gpu() -> Any:
    """Return GPU A with MIG on, and B, as the driver shows them."""
    return (a_gpu(GPU_A, processes=[a_row(200)], mig=Known(value=True)), a_gpu(GPU_B))


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (Unreadable("scontrol hangs"), "scontrol hangs"),
        (replace(a_slurm(ON_B), why="gres.conf can't be read"), "gres.conf can't be read"),
        (a_slurm(), "not asked about job 12"),
        (a_slurm(a_job(gpu_indices=None)), "which GPUs job 12 has is not told"),
        (a_slurm(a_job(gpu_indices=(7,))), "the index 7 of Slurm's can't be told"),
        (replace(a_slurm(ON_B), devices=((0, 1),)), "Slurm does not know this GPU"),
        (replace(a_slurm(a_job(gpu_indices=())), devices=()), "Slurm does not know this GPU"),
        (replace(a_slurm(ON_B), devices=((0, 1), (1, 0), (2, 0))), "several devices on one GPU"),
        (replace(a_slurm(ON_B), devices=((0, 1), (1, 0), (0, 2))), "several devices on one GPU"),
        (a_slurm(replace(ON_B, state="SUSPENDED")), "job 12 is SUSPENDED"),
        (a_slurm(replace(ON_B, state="COMPLETING")), "job 12 is COMPLETING"),
        (a_slurm(replace(ON_B, state="PENDING")), "job 12 is PENDING"),
    ],
)
def test_a_doubt_about_slurms_answer_is_unknown(view: Any, why: str) -> None:
    """Each by itself; the same job of the same answer would be convicted without it."""
    assert asked(a_slurm(ON_B)).ruling is UNALLOCATED
    answer = asked(view)
    assert answer.ruling is UNKNOWN
    assert why in answer.text


def test_a_doubt_about_the_process_or_the_gpu_is_unknown() -> None:
    """A stale answer, one older than the process, an unproven path, no job id, MIG, a GPU not seen."""
    fresh = replace(a_slurm(ON_B), read_at=MONO - 5)
    stale = last_of(seen_at(MONO, JOB, slurm=replace(fresh, read_at=MONO - 61)))
    assert "61 s old" in allocation_of(JOB, GPU_A, stale, MONO, OUTSIDE).text
    young = a_job_process(age_seconds=4.0)
    assert "older than the process" in asked(fresh, young).text
    untrusted = replace(JOB, workload=replace(JOB.workload, trusted=False))
    assert "proves nothing" in asked(fresh, untrusted).text
    nameless = replace(JOB, workload=replace(JOB.workload, names=None))
    assert "job's id is not known" in asked(fresh, nameless).text
    gone = GpuUuid("GPU-cccccccc-0000-0000-0000-000000000000")
    assert asked(fresh, gpu=gone).text == f"{gone} was not seen"
    mig = a_snapshot(gpus=a_mig_gpu(), processes=[JOB], slurm=Known(fresh))
    assert "MIG mode" in allocation_of(JOB, GPU_A, last_of(mig), MONO, OUTSIDE).text
    unread = tuple(replace(one, mig=Unreadable("it hangs")) for one in a_mig_gpu())
    blind = a_snapshot(gpus=unread, processes=[JOB], slurm=Known(fresh))
    assert allocation_of(JOB, GPU_A, last_of(blind), MONO, OUTSIDE).ruling is UNKNOWN
    without = tuple(replace(one, mig=Absent("Not Supported")) for one in a_mig_gpu())
    older = a_snapshot(gpus=without, processes=[JOB], slurm=Known(fresh))
    assert allocation_of(JOB, GPU_A, last_of(older), MONO, OUTSIDE).ruling is UNALLOCATED


def test_without_slurm_a_job_is_unknown_whatever_the_kubelet_says() -> None:
    """A host with both: that it belongs to no pod says nothing of a job."""
    terms = AllocationTerms(outside_jobs=True, outside_pods=True)
    answer = asked(Absent("no Slurm node here"), terms=terms, allocations=Known(a_view(OTHERS)))
    assert (answer.ruling, answer.text) == (UNKNOWN, "no Slurm node here")


def test_a_login_session_beside_the_jobs_is_convicted_only_where_the_rule_says_so() -> None:
    """Another user's GPU, or nobody's; a session, or a user's own units."""
    answer = asked(a_slurm(ON_A), SSH)
    assert answer.ruling is UNALLOCATED
    assert answer.text == (
        "it belongs to no Slurm job (session 42 of uid 2000), and Slurm gives this GPU to jobs alone"
    )
    assert answer.evidence == ("Slurm's answer of 5 s ago names 1 jobs",)
    assert asked(a_slurm(ON_A), SSH, terms=AllocationTerms()).ruling is UNKNOWN
    assert asked(a_slurm(ON_B), SSH).ruling is UNALLOCATED
    assert asked(a_slurm(), SSH).ruling is UNALLOCATED
    units = replace(SSH.workload, path="/user.slice/user-2000.slice/user@2000.service")
    assert asked(a_slurm(ON_A), replace(SSH, workload=units)).ruling is UNALLOCATED


@pytest.mark.parametrize(
    "reading",
    [
        a_process(),
        a_process(uids=(0, 0, 0, 0)),
        a_session_process(uid=0),
        a_session_process(uids=(2000, 0, 0, 0)),
        a_session_process(uid=107),
        a_session_process(uid=65534),
        a_session_process(workload=Workload(WorkloadKind.SESSION, "user slice", path="/user.slice")),
        a_session_process(workload=replace(SSH.workload, trusted=False)),
        a_process(workload=Workload(WorkloadKind.CONTAINER, "container x", path="/docker/x")),
        a_process(workload=Workload(WorkloadKind.NONE, "no workload")),
    ],
)
def test_units_root_system_users_containers_and_what_is_unproven_are_unknown(
    reading: ProcessReading,
) -> None:
    """On a Slurm node too: what the host itself runs, and a greeter's session, was never Slurm's to give."""
    assert asked(a_slurm(ON_A), reading).ruling is UNKNOWN


@pytest.mark.parametrize(
    "view",
    [
        Unreadable("scontrol hangs"),
        replace(a_slurm(ON_B), why="gres.conf can't be read"),
        replace(a_slurm(ON_B), devices=()),
        replace(a_slurm(ON_B), devices=((0, 1), (1, 0), (2, 0))),
    ],
)
def test_a_doubt_about_slurm_convicts_no_session(view: Any) -> None:
    """Silent, without its map, a GPU that it does not know, shares."""
    assert asked(view, SSH).ruling is UNKNOWN
    assert asked(a_slurm(ON_B), replace(SSH, age_seconds=4.0)).ruling is UNKNOWN


def test_a_user_whose_job_may_have_the_gpu_is_not_convicted_beside_it() -> None:
    """By the job's uid; where that is not told by its processes, and where there are none by nothing."""
    own, others = a_session_process(), a_session_process(uid=2000)
    assert asked(a_slurm(ON_A), own).ruling is UNKNOWN
    assert "by job 12" in asked(a_slurm(ON_A), own).text
    assert asked(a_slurm(ON_B), own).ruling is UNALLOCATED
    assert asked(a_slurm(a_job(gpu_indices=())), own).ruling is UNALLOCATED
    assert asked(a_slurm(a_job(gpu_indices=None)), own).ruling is UNKNOWN
    assert asked(a_slurm(replace(ON_A, ended_at=WALL)), own).ruling is UNALLOCATED
    untold = a_slurm(replace(ON_A, uid=None))
    assert asked(untold, others).ruling is UNKNOWN
    look = seen_at(MONO, others, JOB, slurm=untold)
    assert allocation_of(others, GPU_A, look, MONO, OUTSIDE).ruling is UNALLOCATED
    assert allocation_of(own, GPU_A, seen_at(MONO, own, JOB, slurm=untold), MONO, OUTSIDE).ruling is UNKNOWN
    stranger = seen_at(MONO, others, a_job_process(job="13"), slurm=untold)
    assert allocation_of(others, GPU_A, stranger, MONO, OUTSIDE).ruling is UNKNOWN


def test_where_kubelet_and_slurm_give_gpus_both_must_convict() -> None:
    """A session is of no pod and of no job; one of the two alone is not enough."""
    listing = Known(a_view(given("worker"), OTHERS))
    both = AllocationTerms(outside_jobs=True, outside_pods=True)
    answer = asked(a_slurm(ON_A), SSH, terms=both, allocations=listing)
    assert answer.ruling is UNALLOCATED
    assert "no Slurm job" in answer.text
    assert "no pod" in answer.text
    assert len(answer.evidence) == 2
    for terms in (OUTSIDE, AllocationTerms(outside_pods=True)):
        assert asked(a_slurm(ON_A), SSH, terms=terms, allocations=listing).ruling is UNKNOWN
    assert asked(Unreadable("away"), SSH, terms=both, allocations=listing).ruling is UNKNOWN
    assert asked(a_slurm(ON_A), SSH, terms=both, allocations=Unreadable("away")).ruling is UNKNOWN
    assert asked(a_slurm(ON_A), a_process(), terms=both, allocations=listing).ruling is UNKNOWN


def test_asked_by_itself_it_says_nothing_of_a_job_that_is_not_there_or_has_ended() -> None:
    """Whoever asks has asked about the end before; this part alone convicts nobody either."""
    for view, why in (
        (a_slurm(), "says nothing of its job"),
        (a_slurm(replace(ON_B, ended_at=WALL)), "job 12 is RUNNING"),
    ):
        answer = job_allocation(JOB, GPU_A, seen_at(MONO, JOB, slurm=view), OUTSIDE)
        assert answer.ruling is UNKNOWN
        assert why in answer.text
    nameless = replace(JOB, workload=replace(JOB.workload, names=None))
    look = seen_at(MONO, nameless, slurm=a_slurm(ON_B))
    assert job_allocation(nameless, GPU_A, look, OUTSIDE).ruling is UNKNOWN


STATES = strategies.sampled_from(["RUNNING", "RUNNING", "SUSPENDED", "COMPLETING", "PENDING", "COMPLETED"])
JOBS = strategies.builds(
    lambda name, state, indices, uid, ended: SlurmJob(
        name, state, gpu_indices=indices, uid=uid, ended_at=ended
    ),
    strategies.sampled_from(["12", "13"]),
    STATES,
    strategies.sampled_from([None, (), (0,), (1,), (0, 1), (7,)]),
    strategies.sampled_from([None, 1000, 2000]),
    strategies.sampled_from([None, None, WALL - 900]),
)
VIEWS = strategies.builds(
    lambda jobs, age, devices, why, gone: SlurmView(
        MONO - age, WALL - age, tuple(jobs), devices, why=why, gone=gone
    ),
    strategies.lists(JOBS, max_size=3, unique_by=lambda job: job.id),
    strategies.floats(0, 120),
    strategies.sampled_from([((0, 1), (1, 0)), ((0, 1), (1, 0)), (), ((0, 1),), ((0, 0), (1, 0))]),
    strategies.sampled_from(["", "", "no map"]),
    strategies.sampled_from([(), ("12",)]),
)  # fmt: skip


@example(
    view=VIEWS,
    reading=strategies.sampled_from([JOB, SSH, a_session_process(), a_process()]),
    silent=strategies.sampled_from([None, None, Unreadable("away"), Absent("no Slurm node here")]),
)
def test_no_look_with_a_stale_missing_or_partial_answer_convicts(
    view: SlurmView, reading: ProcessReading, silent: Unreadable | Absent | None
) -> None:
    """UNALLOCATED: fresh, whole, its map known, the job runs with other GPUs, or no job of his has it."""
    look: Snapshot = last_of(seen_at(MONO, reading, slurm=view if silent is None else silent))
    answer = allocation_of(reading, GPU_A, look, MONO, OUTSIDE).ruling
    assert answer is not AllocationRuling.LINGERING
    if answer is not UNALLOCATED:
        return
    assert silent is None
    assert MONO - view.read_at <= 60
    assert not view.why
    assert view.devices == ((0, 1), (1, 0))
    if reading is JOB:
        job = view.job("12")
        assert job is not None
        assert (job.state, job.ended_at) == ("RUNNING", None)
        assert job.gpu_indices in {(), (0,)}
    else:
        assert reading in {SSH, a_session_process()}
        own = [one for one in view.jobs if one.uid in {None, reading.uids[0]} and one.ended_at is None]
        assert all(one.gpu_indices in {(), (0,)} for one in own)
