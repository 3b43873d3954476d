"""Short builders of pods and jobs that run, end and are gone, and of the looks that show it over time."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reclaimerd.judge.departures import advance_departures
from reclaimerd.model.allocation import ClusterView, Departure, PodState, SlurmJob, SlurmView
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Known, Reading
from reclaimerd.model.snapshot import Snapshot
from tests.builders import MONO, WALL, a_busy_snapshot, a_process
from tests.judge.allocation_builders import POD_UID

OTHER_UID = "00000000-c152-46b9-96e0-d57032629e1f"
JOB_PATH = "/system.slice/slurmstepd.scope/job_{}"


def a_pod(uid: str = POD_UID, **fields: Any) -> PodState:
    """Return `team/train-0`, which runs and has 30 s of grace."""
    return replace(PodState(uid, "team", "train-0", "Running", grace_seconds=30.0), **fields)


BYSTANDER = a_pod(OTHER_UID, name="dns")


def a_cluster(*pods: PodState, at: float = MONO, **fields: Any) -> ClusterView:
    """Return the list of this node's pods as it was read at this moment."""
    return replace(ClusterView(at, WALL + (at - MONO), (*pods, BYSTANDER)), **fields)


def a_job(name: str = "12", **fields: Any) -> SlurmJob:
    """Return a running job of uid 1000 with the first GPU of Slurm's."""
    job = SlurmJob(name, "RUNNING", user="alice", uid=1000, hosts=1, gpu_indices=(0,))
    return replace(job, **fields)


def a_slurm(*jobs: SlurmJob, at: float = MONO, **fields: Any) -> SlurmView:
    """Return what Slurm said at this moment, on a node whose GPUs A and B it gives as 1 and 0."""
    return replace(SlurmView(at, WALL + (at - MONO), jobs, devices=((0, 1), (1, 0))), **fields)


def a_job_process(pid: int = 200, job: str = "12", **fields: Any) -> ProcessReading:
    """Return a process of a job, ten minutes old."""
    path = JOB_PATH.format(job)
    names = WorkloadNames(job_id=job, user="alice", hosts=1)
    workload = Workload(WorkloadKind.SLURM_JOB, f"slurm job {job}", path=path, names=names)
    return a_process(pid, **{"workload": workload, "age_seconds": 600.0, **fields})


def a_session_process(pid: int = 300, uid: int = 1000, **fields: Any) -> ProcessReading:
    """Return a process of a login session that has lost its parent."""
    path = f"/user.slice/user-{uid}.slice/session-42.scope"
    workload = Workload(WorkloadKind.SESSION, f"session 42 of uid {uid}", path=path)
    whole = {"workload": workload, "uids": (uid,) * 4, "ppid": 1, "age_seconds": 600.0, **fields}
    return a_process(pid, **whole)


def seen_at(
    at: float,
    *readings: ProcessReading,
    cluster: Reading[ClusterView] | ClusterView | None = None,
    slurm: Reading[SlurmView] | SlurmView | None = None,
    **fields: Any,
) -> Snapshot:
    """Return a look at this moment in which each of these processes holds 8 GiB of GPU A."""
    known: dict[str, Any] = {}
    if cluster is not None:
        known["cluster"] = Known(cluster) if isinstance(cluster, ClusterView) else cluster
    if slurm is not None:
        known["slurm"] = Known(slurm) if isinstance(slurm, SlurmView) else slurm
    return a_busy_snapshot(*readings, at=at, **known, **fields)


def remembered(looks: Iterable[Snapshot], before: tuple[Departure, ...] = ()) -> list[Snapshot]:
    """Return the looks as the cycle has them: each with what is remembered up to it."""
    found = []
    for look in looks:
        before = advance_departures(before, look)
        found.append(replace(look, departures=before))
    return found


def last_of(*looks: Snapshot) -> Snapshot:
    """Return the last look with what is remembered of all."""
    return remembered(looks)[-1]
