"""Who was given what it holds, as people and programs read it: one word, or all that is known. Pure."""

from collections.abc import Callable
from typing import TypeVar, assert_never

from reclaimerd.daemon.rows import Json
from reclaimerd.judge.unallocated import allocations_for, nobody_gives
from reclaimerd.model.allocation import AllocationView
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Holder, Snapshot

T = TypeVar("T")
NOWHERE = "-"
"""The word on a host with neither a kubelet nor Slurm."""


def allocation_faults(snapshot: Snapshot | None) -> tuple[str, ...]:
    """Return why nobody can be convicted of holding what it was not given, or of outstaying its end."""
    if snapshot is None:
        return ()
    given = _fault(snapshot.allocations, _why_no_list)
    jobs = _fault(snapshot.slurm, lambda view: view.why)
    pods = _fault(snapshot.cluster, lambda view: "" if view.pods else "the cluster's list names no pod")
    found = {"who was given which GPU": given, "which job has which GPU": jobs, "which pods end": pods}
    return tuple(f"{what}: {why}" for what, why in found.items() if why)


def _why_no_list(view: AllocationView) -> str:
    return view.why or ("" if view.containers else "the kubelet's list is empty")


def _fault(reading: Reading[T], why_of: Callable[[T], str]) -> str:
    """Return why what is asked here can't be used, "" where it can or where nobody is asked."""
    match reading:
        case Absent():
            return ""
        case Unreadable(why=why):
            return why
        case Known(value=view):
            return why_of(view)
        case _:
            assert_never(reading)


def allocation_word(holder: Holder, snapshot: Snapshot, policy: Policy) -> str:
    """Return allowed, unallocated, lingering, ending or unknown, or `-` where nobody gives GPUs."""
    if nobody_gives(snapshot):
        return NOWHERE
    reading = snapshot.process(holder.ref)
    if reading is None:
        return "unknown"
    ((_, answer),) = allocations_for(None, policy.attribution, reading, (holder.gpu,), snapshot)
    return answer.ruling.value


def allocation_rows(reading: ProcessReading, snapshot: Snapshot, policy: Policy) -> list[Json]:
    """Return the answer with its evidence for each GPU that the process holds; none where nobody gives."""
    answers = allocations_for(None, policy.attribution, reading, snapshot.gpus_of(reading.ref), snapshot)
    return [
        {
            "gpu": gpu,
            "ruling": answer.ruling.value,
            "text": answer.text,
            "exclusive": answer.exclusive,
            "evidence": list(answer.evidence),
        }
        for gpu, answer in answers
    ]
