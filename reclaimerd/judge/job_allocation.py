"""Say whether a process on a Slurm node was given the GPU that it holds: by its job, or by none.

As for pods a verdict against somebody needs every doubt excluded. Slurm names GPUs by indices of its own;
what they stand for is its own map to device nodes. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.judge.lingering import RUNS, fresh_slurm, unknown
from reclaimerd.judge.orphans import is_ordinary
from reclaimerd.model.allocation import (
    Allocation,
    AllocationRuling,
    AllocationTerms,
    SlurmJob,
    SlurmView,
)
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.process import ProcessReading, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.snapshot import GpuReading, Snapshot

_RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True)
class _Case:
    """One process on one GPU of a Slurm node, with a fresh answer of Slurm's."""

    reading: ProcessReading
    gpu: GpuReading
    snapshot: Snapshot
    view: SlurmView


def job_allocation(
    reading: ProcessReading, gpu: GpuUuid, snapshot: Snapshot, terms: AllocationTerms
) -> Allocation:
    """Return whether a process of a job was given this GPU; of a job that ends ask `ending_of` first."""
    case = _case(reading, gpu, snapshot, terms)
    return unknown(case) if isinstance(case, str) else _by_job(case)


def _by_job(case: _Case) -> Allocation:
    reading = case.reading
    job_id = (reading.workload.names or WorkloadNames()).job_id
    job = None if job_id is None else case.view.job(job_id)
    if job is None:
        return unknown(f"Slurm says nothing of its job ({reading.workload.name})")
    if job.ended_at is not None or job.state not in RUNS:
        return unknown(f"job {job.id} is {job.state}")
    minors = _minors(job, case.view)
    if isinstance(minors, str):
        return unknown(minors)
    evidence = (_answer_text(case), f"job {job.id} has the GPUs {_listed(job)} of this node")
    if case.gpu.minor in minors:
        text = f"job {job.id} was given this GPU (/dev/nvidia{case.gpu.minor})"
        own = not _is_given_twice(job, case.view)
        return Allocation(AllocationRuling.ALLOWED, text, evidence, exclusive=own)
    doubt = next(_doubts(case, job), "")
    if doubt:
        return unknown(doubt)
    what = f"was given the GPUs {_listed(job)} of this node, not this one" if minors else "was given no GPU"
    return Allocation(AllocationRuling.UNALLOCATED, f"job {job.id} {what}", evidence)


def outside_jobs(
    reading: ProcessReading, gpu: GpuUuid, snapshot: Snapshot, terms: AllocationTerms
) -> Allocation:
    """Return the answer on a process of no job on a Slurm node: only a login session's is ever convicted."""
    workload = reading.workload
    of_user = workload.kind is WorkloadKind.SESSION and workload.path.startswith("/user.slice/user-")
    if not (terms.outside_jobs and of_user and is_ordinary(reading)):
        return unknown(f"it belongs to no job ({workload.name})")
    case = _case(reading, gpu, snapshot, terms)
    if isinstance(case, str):
        return unknown(case)
    doubt = next(_outside_doubts(case), "")
    if doubt:
        return unknown(doubt)
    text = f"it belongs to no Slurm job ({workload.name}), and Slurm gives this GPU to jobs alone"
    return Allocation(AllocationRuling.UNALLOCATED, text, (_answer_text(case),))


def _case(reading: ProcessReading, gpu: GpuUuid, snapshot: Snapshot, terms: AllocationTerms) -> _Case | str:
    """Return what is judged, or why nothing can be."""
    view = fresh_slurm(snapshot, terms)
    if isinstance(view, str):
        return view
    if not reading.workload.trusted:
        return "its cgroup path proves nothing: not all of it is root's"
    if view.why:
        return view.why
    seen = snapshot.gpu(gpu)
    return f"{gpu} was not seen" if seen is None else _Case(reading, seen, snapshot, view)


def _minors(job: SlurmJob, view: SlurmView) -> frozenset[int] | str:
    """Return the device minors of a job's GPUs, or why they can't be told."""
    if job.gpu_indices is None:
        return f"which GPUs job {job.id} has is not told"
    devices = dict(view.devices)
    missing = [index for index in job.gpu_indices if index not in devices]
    if missing:
        return f"which GPU has the index {missing[0]} of Slurm's can't be told"
    return frozenset(devices[index] for index in job.gpu_indices)


def _doubts(case: _Case, job: SlurmJob) -> Iterator[str]:
    if job.state != _RUNNING:
        yield f"job {job.id} is {job.state}"
    yield from _common_doubts(case)


def _common_doubts(case: _Case) -> Iterator[str]:
    """Yield what speaks against any verdict about this process and this GPU."""
    view, gpu = case.view, case.gpu
    minors = [minor for _, minor in view.devices]
    indices = [index for index, _ in view.devices]
    if gpu.minor not in minors:
        yield f"Slurm does not know this GPU (/dev/nvidia{gpu.minor})"
    if len(set(minors)) < len(minors) or len(set(indices)) < len(indices):
        yield "Slurm has several devices on one GPU, and which is whose can't be told"
    if gpu.mig != Known(value=False) and not isinstance(gpu.mig, Absent):
        yield "the GPU may be in MIG mode, where Slurm's indices tell no instance"
    if case.view.read_at < case.snapshot.at - case.reading.age_seconds:
        yield "Slurm's answer is older than the process"


def _outside_doubts(case: _Case) -> Iterator[str]:
    yield from _common_doubts(case)
    for job in case.view.jobs:
        if job.ended_at is None and _may_be_of(job, case):
            minors = _minors(job, case.view)
            if isinstance(minors, str) or case.gpu.minor in minors:
                yield f"its user may have been given this GPU by job {job.id}"


def _may_be_of(job: SlurmJob, case: _Case) -> bool:
    """Tell whether a job may belong to the user of this process; by its processes where that is not told."""
    uid = case.reading.uids[0]
    if job.uid is not None:
        return job.uid == uid
    readings = case.snapshot.processes.values()
    members = {
        one.uids[0]
        for one in readings
        if one.workload.names is not None and one.workload.names.job_id == job.id and is_ordinary(one)
    }
    return not members or uid in members


def _is_given_twice(job: SlurmJob, view: SlurmView) -> bool:
    """Tell whether another job has one of this job's indices too."""
    own = frozenset(job.gpu_indices or ())
    others = (one for one in view.jobs if one.id != job.id and one.ended_at is None)
    return any(own & frozenset(one.gpu_indices or ()) for one in others)


def _listed(job: SlurmJob) -> str:
    return ", ".join(str(index) for index in job.gpu_indices or ())


def _answer_text(case: _Case) -> str:
    seconds = case.snapshot.at - case.view.read_at
    return f"Slurm's answer of {seconds:.0f} s ago names {len(case.view.jobs)} jobs"
