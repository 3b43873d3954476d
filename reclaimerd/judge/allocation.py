"""Say whether a process was given the GPU that it holds: by all who give GPUs on this host together.

What the kubelet gave a pod is asked in `pod_allocation`, what Slurm gave a job in `job_allocation`, and
whether a pod or a job ends in `lingering`. Whatever is left over is UNKNOWN, which leads to no act. Pure.
"""

from reclaimerd.judge.job_allocation import job_allocation, outside_jobs
from reclaimerd.judge.lingering import ending_of
from reclaimerd.judge.pod_allocation import outside_pods, pod_allocation
from reclaimerd.model.allocation import Allocation, AllocationRuling, AllocationTerms
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Absent
from reclaimerd.model.snapshot import Snapshot

DEFAULT_TERMS = AllocationTerms()


def allocation_of(
    reading: ProcessReading,
    gpu: GpuUuid,
    snapshot: Snapshot,
    now: float,
    terms: AllocationTerms = DEFAULT_TERMS,
) -> Allocation:
    """Return whether the process was given this GPU (`now` is monotonic), with the evidence.

    ENDING and LINGERING come before all else. ALLOWED needs a fresh list that says so. UNALLOCATED needs
    that, and no doubt at all: where a cluster is asked and its answer is missing or in doubt, that is one.
    """
    ending = ending_of(reading, snapshot, terms)
    if ending is not None and ending.ruling is not AllocationRuling.UNKNOWN:
        return ending
    match reading.workload.kind:
        case WorkloadKind.POD:
            answer = pod_allocation(reading, gpu, (snapshot, now), terms)
            asked = not isinstance(snapshot.cluster, Absent)
            return ending if ending and asked and answer.ruling is AllocationRuling.UNALLOCATED else answer
        case WorkloadKind.SLURM_JOB:
            return ending or job_allocation(reading, gpu, snapshot, terms)
        case _:
            return _elsewhere(reading, gpu, (snapshot, now), terms)


def _elsewhere(
    reading: ProcessReading, gpu: GpuUuid, seen: tuple[Snapshot, float], terms: AllocationTerms
) -> Allocation:
    """Return the answer on a process of no pod and no job: by all who give GPUs on this host together."""
    snapshot, _ = seen
    answers = []
    if not isinstance(snapshot.slurm, Absent):
        answers.append(outside_jobs(reading, gpu, snapshot, terms))
    if not answers or not isinstance(snapshot.allocations, Absent):
        answers.append(outside_pods(reading, seen, terms))
    doubtful = next((one for one in answers if one.ruling is AllocationRuling.UNKNOWN), None)
    if doubtful is not None:
        return doubtful
    text = "; ".join(one.text for one in answers)
    evidence = tuple(line for one in answers for line in one.evidence)
    return Allocation(AllocationRuling.UNALLOCATED, text, evidence)
