"""Remember which pods and jobs end, and since when: how long each may take counts from then.

A deadline is another host's wall clock, and a clock may be wrong or be set. So the time is counted by our
own monotonic clock, from the first list that showed the end, and at least as long as the owner's own grace.
After a start of ours that is later than it could be, and never earlier. Pure: the cycle carries it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from reclaimerd.model.allocation import ClusterView, Departure, OwnerKind, PodState, SlurmJob, SlurmView
from reclaimerd.model.process import WorkloadNames
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

KEPT_SECONDS = 3600.0
"""Who is not listed any more is remembered so long, and longer while one of its processes is seen."""
MOST_KEPT = 2048
"""More than a host has pods and jobs at a time; the newest are kept."""


def advance_departures(before: tuple[Departure, ...], snapshot: Snapshot) -> tuple[Departure, ...]:
    """Return what is remembered after this look; a list that could not be read changes nothing.

    An empty list of pods says nothing either: a node that runs a pod has it in its list. Nor does an answer
    that may be another controller's: to that one all jobs of this node are strangers.
    """
    pods = tuple(one for one in before if one.owner is OwnerKind.POD)
    jobs = tuple(one for one in before if one.owner is OwnerKind.JOB)
    here = frozenset(_owners_here(snapshot))
    if isinstance(snapshot.cluster, Known) and snapshot.cluster.value.pods:
        pods = tuple(_of_pods(pods, snapshot.cluster.value))
    if isinstance(snapshot.slurm, Known) and not snapshot.slurm.value.unfit:
        jobs = tuple(_of_jobs(jobs, snapshot.slurm.value))
    kept = [one for one in (*pods, *jobs) if not _is_over(one, here, snapshot.at)]
    kept.sort(key=lambda one: snapshot.at if one.ends_since is None else one.ends_since)
    return tuple(kept[-MOST_KEPT:])


def departure_of(owner: OwnerKind, name: str, snapshot: Snapshot) -> Departure | None:
    """Return what is remembered of a pod (by UID) or a job (by id), None when nothing is."""
    return next((one for one in snapshot.departures if one.owner is owner and one.id == name), None)


def _is_over(one: Departure, here: frozenset[tuple[OwnerKind, str]], now: float) -> bool:
    """Tell whether one may be forgotten: long since not listed, and no process of it is seen."""
    if not one.gone or one.ends_since is None or (one.owner, one.id) in here:
        return False
    return now - one.ends_since > KEPT_SECONDS


def _owners_here(snapshot: Snapshot) -> Iterator[tuple[OwnerKind, str]]:
    for reading in snapshot.processes.values():
        names = reading.workload.names or WorkloadNames()
        if names.pod_uid is not None:
            yield OwnerKind.POD, names.pod_uid
        if names.job_id is not None:
            yield OwnerKind.JOB, names.job_id


def _of_pods(before: Iterable[Departure], view: ClusterView) -> Iterator[Departure]:
    """Yield the pods of the list, and those that it does not name any more.

    A static pod is left out: what the API has of it is a mirror, and deleting that ends nothing. A list that
    has none of the pods of before is another cluster's: what that does not name has not ended.
    """
    known = {one.id: one for one in before}
    there = {one.id for one in before if not one.gone}
    if there and there.isdisjoint(pod.uid for pod in view.pods):
        known = {}
    for pod in view.pods:
        was = known.pop(pod.uid, None)
        if not pod.mirror:
            yield _listed_pod(pod, was, view)
    for one in known.values():
        yield one if one.gone else replace(one, ends_since=view.read_at, gone=True)


def _listed_pod(pod: PodState, was: Departure | None, view: ClusterView) -> Departure:
    if pod.deletes_at is None:
        return Departure(OwnerKind.POD, pod.uid, takes_seconds=pod.grace_seconds)
    left = pod.deletes_at - view.read_wall
    if was is None or was.ends_since is None or was.gone:
        takes = max(left, pod.grace_seconds or 0.0)
        return Departure(OwnerKind.POD, pod.uid, view.read_at, takes)
    # A clock that was set, or a longer deadline, may only move the end away.
    takes = max(was.takes_seconds or 0.0, left + view.read_at - was.ends_since)
    return replace(was, takes_seconds=takes)


def _of_jobs(before: Iterable[Departure], view: SlurmView) -> Iterator[Departure]:
    """Yield the jobs of the answer, those that the controller does not know, and those not asked about."""
    known = {one.id: one for one in before}
    least = view.kill_wait_seconds + view.unkillable_seconds
    for job in view.jobs:
        yield _listed_job(job, known.pop(job.id, None), view)
    for name in view.gone:
        was = known.pop(name, None)
        if was is None:
            yield Departure(OwnerKind.JOB, name, view.read_at, least, gone=True, listed=False)
        elif was.ends_since is None:
            yield Departure(OwnerKind.JOB, name, view.read_at, least, gone=True)
        else:
            yield replace(was, gone=True)
    for one in known.values():
        if one.ends_since is not None:
            yield replace(one, gone=True)


def _listed_job(job: SlurmJob, was: Departure | None, view: SlurmView) -> Departure:
    if job.ended_at is None:
        return Departure(OwnerKind.JOB, job.id)
    least = view.kill_wait_seconds + view.unkillable_seconds
    takes = least + max(0.0, job.ended_at - view.read_wall)
    if was is None or was.ends_since is None or not was.listed:
        return Departure(OwnerKind.JOB, job.id, view.read_at, takes)
    return replace(was, takes_seconds=max(was.takes_seconds or 0.0, least), gone=False)
