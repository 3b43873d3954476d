"""Say whether one user holds more GPUs than a rule allows, and whose going would give one back.

A user is a real uid of this host. Inside a container a uid is nobody's in particular, root has no limit,
and what Slurm gave a user by a job is his: none of that is counted. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.conditions import Condition, DoesNotHold, Holds, UnknownCondition
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.unallocated import terms_of
from reclaimerd.model.allocation import AllocationRuling
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.policy import Rule
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.snapshot import Holder, Snapshot

_ROOT_UID = 0
_OF_CONTAINERS = frozenset(
    {WorkloadKind.POD, WorkloadKind.CONTAINER, WorkloadKind.NOMAD, WorkloadKind.MACHINE}
)


@dataclass(frozen=True, slots=True)
class Counted:
    """What counts of one process: its rows; why one of them is unknown; and why none counts at all."""

    rows: tuple[Holder, ...]
    unknown: str = ""
    left_out: str = ""


def counted_of(reading: ProcessReading, rows: Sequence[Holder], basis: Basis) -> Counted:
    """Return what counts of a process towards its user's limit."""
    workload = reading.workload
    if workload.kind in _OF_CONTAINERS:
        return Counted((), left_out="it is in a container, where a uid is no user of this host: not counted")
    if reading.uids[0] == _ROOT_UID:
        return Counted((), left_out="root has no limit")
    if workload.kind is not WorkloadKind.SLURM_JOB or isinstance(basis.snapshot.slurm, Absent):
        return Counted(tuple(rows))
    snapshot, terms = basis.snapshot, terms_of(None, basis.attribution)
    answers = [(row, allocation_of(reading, row.gpu, snapshot, snapshot.at, terms)) for row in rows]
    unknown = next((one.text for _, one in answers if one.ruling is AllocationRuling.UNKNOWN), "")
    own = {AllocationRuling.ALLOWED, AllocationRuling.ENDING, AllocationRuling.UNKNOWN}
    taken = tuple(row for row, one in answers if one.ruling not in own)
    return Counted(taken, f"whether its job was given its GPU is not known: {unknown}" if unknown else "")


def user_limit_condition(rule: Rule, rows: Sequence[Holder], snapshot: Snapshot) -> Condition:
    """Return whether these rows of one user are on more GPUs than the rule allows.

    What is known to be too many stands by itself; a GPU whose processes the driver does not list may be held
    by whoever has its node open.
    """
    if rule.gpus_at_most is None:
        return DoesNotHold("the rule has no limit")
    gpus = tuple(sorted({row.gpu for row in rows}))
    blind = [gpu for gpu in gpus if not _is_listed(gpu, snapshot)]
    seen = tuple(gpu for gpu in gpus if gpu not in blind)
    if len(seen) > rule.gpus_at_most:
        text = f"holds {len(seen)} GPUs, more than {rule.gpus_at_most}"
        return Holds(text, seen, len(seen) - rule.gpus_at_most)
    if len(gpus) > rule.gpus_at_most:
        return UnknownCondition(f"the process list of {blind[0]} is not known")
    return DoesNotHold(f"holds {len(gpus)} GPUs, not more than {rule.gpus_at_most}")


def _is_listed(gpu: GpuUuid, snapshot: Snapshot) -> bool:
    reading = snapshot.gpu(gpu)
    return reading is not None and isinstance(reading.processes, Known)


def freed_gpus(own: Sequence[Holder], of_user: Sequence[Holder]) -> frozenset[GpuUuid]:
    """Return the GPUs that the user would hold no more if this process went.

    `own` are its rows, `of_user` those of all of the user's processes.
    """
    refs = {row.ref for row in own}
    return frozenset(row.gpu for row in own) - {row.gpu for row in of_user if row.ref not in refs}
