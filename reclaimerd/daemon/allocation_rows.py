"""Who was given what it holds, as people and programs read it: one word, or all that is known. Pure."""

from typing import assert_never

from reclaimerd.daemon.rows import Json
from reclaimerd.judge.unallocated import allocations_for
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Holder, Snapshot

NOWHERE = "-"
"""The word on a host without a kubelet."""


def allocation_faults(snapshot: Snapshot | None) -> tuple[str, ...]:
    """Return why nobody can be convicted of holding what it was not given, on a host with a kubelet."""
    if snapshot is None:
        return ()
    match snapshot.allocations:
        case Absent():
            return ()
        case Unreadable(why=why):
            return (f"who was given which GPU: {why}",)
        case Known(value=view):
            why = view.why or ("" if view.containers else "the kubelet's list is empty")
            return (f"who was given which GPU: {why}",) if why else ()
        case reading:
            assert_never(reading)


def allocation_word(holder: Holder, snapshot: Snapshot, policy: Policy) -> str:
    """Return allowed, unallocated, unknown (lingering, ending), or `-` where nobody gives GPUs."""
    if isinstance(snapshot.allocations, Absent):
        return NOWHERE
    reading = snapshot.process(holder.ref)
    if reading is None:
        return "unknown"
    ((_, answer),) = allocations_for(None, policy.attribution, reading, (holder.gpu,), snapshot)
    return answer.ruling.value


def allocation_rows(reading: ProcessReading, snapshot: Snapshot, policy: Policy) -> list[Json]:
    """Return the answer with its evidence for each GPU that the process holds; none without a kubelet."""
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
