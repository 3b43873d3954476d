"""Say of a process whether its pod or job ends, and whether the time that its owner gave it is over.

ENDING is nobody's business: a pod with 900 s of grace may take them. LINGERING needs a fresh list of the
owner, the end seen in it, and the owner's own time and a margin over by our own clock (`departures`).
Whatever is not known is UNKNOWN. Pure.
"""

import re
from datetime import UTC, datetime

from reclaimerd.judge.departures import departure_of
from reclaimerd.model.allocation import (
    Allocation,
    AllocationRuling,
    AllocationTerms,
    ClusterView,
    Departure,
    OwnerKind,
    PodState,
    SlurmJob,
    SlurmView,
)
from reclaimerd.model.process import ProcessReading, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

RUNS = frozenset({"RUNNING", "SUSPENDED"})
"""States in which a job keeps what it was given (squeue(1), JOB STATE CODES)."""
_FINAL_PHASES = frozenset({"Succeeded", "Failed"})
_STATIC_POD = re.compile(r"[0-9a-f]{32}", re.ASCII)
_ONE_SLURMD = re.compile(r"(?:/.+)?/slurmstepd\.scope/[^/]+|/slurm/uid_\d+/[^/]+", re.ASCII)
"""A job's directory where one slurmd runs: several name it by their node's name."""


def unknown(why: str) -> Allocation:
    """Return that nothing is known, and why."""
    return Allocation(AllocationRuling.UNKNOWN, why)


def ending_of(reading: ProcessReading, snapshot: Snapshot, terms: AllocationTerms) -> Allocation | None:
    """Return ENDING, LINGERING or UNKNOWN of a process by its pod or job.

    None: its pod or job is known to run, or it belongs to neither.
    """
    workload = reading.workload
    if workload.kind not in {WorkloadKind.POD, WorkloadKind.SLURM_JOB}:
        return None
    if not workload.trusted:
        return unknown("its cgroup path proves nothing: not all of it is root's")
    names = workload.names or WorkloadNames()
    if workload.kind is WorkloadKind.POD:
        return _of_pod(names, snapshot, terms)
    return _of_job(reading, names.job_id, snapshot, terms)


def _of_pod(names: WorkloadNames, snapshot: Snapshot, terms: AllocationTerms) -> Allocation | None:
    view = fresh_cluster(snapshot, terms)
    if isinstance(view, str):
        return unknown(view)
    uid = names.pod_uid
    if uid is None:
        return unknown("its pod's UID is not known")
    pod = view.pod(uid)
    if _STATIC_POD.fullmatch(uid) or (pod is not None and pod.mirror):
        runs = pod is not None and pod.deletes_at is None
        return None if runs else unknown("its pod is a static one, and the API only mirrors it")
    return _absent_pod(names, uid, snapshot, terms) if pod is None else _listed_pod(pod, snapshot, terms)


def _listed_pod(pod: PodState, snapshot: Snapshot, terms: AllocationTerms) -> Allocation | None:
    if pod.deletes_at is not None:
        return _deleted_pod(pod, pod.deletes_at, snapshot, terms)
    if pod.phase in _FINAL_PHASES:
        name = f"{pod.namespace}/{pod.name}"
        return unknown(f"pod {name} is {pod.phase} and not deleted: since when is not told")
    return None


def _absent_pod(names: WorkloadNames, uid: str, snapshot: Snapshot, terms: AllocationTerms) -> Allocation:
    name = f"pod {_pod_name(names)}"
    was = departure_of(OwnerKind.POD, uid, snapshot)
    if was is None or not was.gone:
        return unknown(f"{name} is not in the cluster's list, and was in none since our start")
    return _by_time(f"{name} is not in the cluster's list any more", was, snapshot, terms)


def _deleted_pod(pod: PodState, deletes_at: float, snapshot: Snapshot, terms: AllocationTerms) -> Allocation:
    what = f"pod {pod.namespace}/{pod.name} was deleted, to end by {_instant(deletes_at)}"
    was = departure_of(OwnerKind.POD, pod.uid, snapshot)
    if was is None:
        return unknown(f"{what}; since when we know it is not remembered")
    margin = terms.past_deadline_seconds
    if snapshot.taken_at <= deletes_at + margin:
        return Allocation(AllocationRuling.ENDING, f"{what}; that, and {margin:.0f} s more, are not over")
    return _by_time(what, was, snapshot, terms)


def _of_job(
    reading: ProcessReading, job_id: str | None, snapshot: Snapshot, terms: AllocationTerms
) -> Allocation | None:
    view = fresh_slurm(snapshot, terms)
    if isinstance(view, str):
        return unknown(view)
    if job_id is None:
        return unknown("its job's id is not known")
    job = view.job(job_id)
    was = departure_of(OwnerKind.JOB, job_id, snapshot)
    if job is not None:
        return _listed_job(job, was, snapshot, terms)
    if job_id not in view.gone:
        return unknown(f"Slurm was not asked about job {job_id} yet")
    what = f"Slurm does not know job {job_id} any more"
    if was is None:
        return unknown(f"{what}; since when is not remembered")
    doubt = "" if was.listed else _stranger(reading, view)
    return unknown(f"{what}, or never did: {doubt}") if doubt else _by_time(what, was, snapshot, terms)


def _listed_job(
    job: SlurmJob, was: Departure | None, snapshot: Snapshot, terms: AllocationTerms
) -> Allocation | None:
    if job.ended_at is None:
        return None if job.state in RUNS else unknown(f"job {job.id} is {job.state}")
    what = f"job {job.id} ended at {_instant(job.ended_at)} ({job.state})"
    if was is None:
        return unknown(f"{what}; since when we know it is not remembered")
    return _by_time(what, was, snapshot, terms)


def _stranger(reading: ProcessReading, view: SlurmView) -> str:
    """Return why a job that was never listed may be another controller's, "" when it is ours."""
    if not _ONE_SLURMD.fullmatch(reading.workload.path):
        return "several slurmd may run here"
    return "" if view.jobs else "it knows no job of this node at all"


def _by_time(what: str, was: Departure, snapshot: Snapshot, terms: AllocationTerms) -> Allocation:
    """Return ENDING or LINGERING by how long the end has been seen, UNKNOWN where its time is not known."""
    if was.ends_since is None or was.takes_seconds is None:
        return unknown(f"{what}; how long it may take to end is not known")
    margin = terms.past_deadline_seconds
    takes = f"the {was.takes_seconds:.0f} s that it may take, and {margin:.0f} s more"
    evidence = (f"{what}, as first seen {snapshot.at - was.ends_since:.0f} s before this look",)
    if snapshot.at - was.ends_since <= was.takes_seconds + margin:
        return Allocation(AllocationRuling.ENDING, f"{what}; {takes}, are not over", evidence)
    return Allocation(AllocationRuling.LINGERING, f"{what}; {takes}, are over", evidence)


def fresh_cluster(snapshot: Snapshot, terms: AllocationTerms) -> ClusterView | str:
    """Return the cluster's list of this node's pods, or why it can convict nobody."""
    if not isinstance(snapshot.cluster, Known):
        return snapshot.cluster.why
    view = snapshot.cluster.value
    if not snapshot.at - view.read_at <= terms.stale_seconds:
        return f"the cluster's list is {snapshot.at - view.read_at:.0f} s old"
    return view if view.pods else "the cluster's list names no pod of this node"


def fresh_slurm(snapshot: Snapshot, terms: AllocationTerms) -> SlurmView | str:
    """Return what Slurm says of this node's jobs, or why it can convict nobody."""
    if not isinstance(snapshot.slurm, Known):
        return snapshot.slurm.why
    view = snapshot.slurm.value
    if not snapshot.at - view.read_at <= terms.stale_seconds:
        return f"Slurm's answer is {snapshot.at - view.read_at:.0f} s old"
    return view.unfit or view


def _pod_name(names: WorkloadNames) -> str:
    if names.namespace is not None and names.pod is not None:
        return f"{names.namespace}/{names.pod}"
    return names.pod_uid or "?"


def _instant(wall: float) -> str:
    """Return an instant for people, in UTC; one that no calendar has in seconds."""
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{wall:.0f} s"
