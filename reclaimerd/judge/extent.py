"""Say how large the workload around a process is: how many GPUs it holds here, and whether it spans hosts.

One member's end is the end of a whole job, so a rule leaves members of large ones to people; what can't be
known counts as large. An MPS client is a member too, of a server that others share. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, assert_never

from reclaimerd.judge.gate_context import boundary_key
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.incident import Stage
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import ContextKind, Holder, Snapshot
from reclaimerd.model.step import Reason, ReasonKind, Step

_Key = TypeVar("_Key")
Group = tuple[str, str]
"""What counts together: a boundary that its cgroup proves, a login session, or one process by itself."""


@dataclass(frozen=True, slots=True)
class Extents:
    """The GPUs that each group holds on this host, and who may hold some for any of them.

    `blind` are those who hold a GPU and could not be read: nobody knows to whom they belong.
    """

    gpus: Mapping[Group, frozenset[GpuUuid]]
    blind: Mapping[ProcessRef, frozenset[GpuUuid]]


def extents_of(snapshot: Snapshot) -> Extents:
    """Return how many GPUs each group holds in this look."""
    silent = {gpu.uuid for gpu in snapshot.gpus if isinstance(gpu.processes, Known)}
    gpus: dict[Group, set[GpuUuid]] = {}
    blind: dict[ProcessRef, set[GpuUuid]] = {}
    for row in snapshot.holders:
        if row.gpu in silent and not _holds(row):
            continue
        reading = snapshot.process(row.ref)
        if reading is None:
            blind.setdefault(row.ref, set()).add(row.gpu)
        else:
            gpus.setdefault(group_around(reading), set()).add(row.gpu)
    return Extents(_frozen(gpus), _frozen(blind))


def _frozen(sets: Mapping[_Key, set[GpuUuid]]) -> dict[_Key, frozenset[GpuUuid]]:
    return {key: frozenset(own) for key, own in sets.items()}


def _holds(row: Holder) -> bool:
    """Tell whether anything but an open node speaks for it: CUDA opens the nodes of GPUs it does not use."""
    return row.listed or row.heir_of is not None or row.remembered


def group_around(reading: ProcessReading) -> Group:
    """Return with whom this process counts as one workload."""
    workload = reading.workload
    key = boundary_key(workload)
    if not key and workload.kind is WorkloadKind.SESSION and workload.trusted and workload.path:
        key = f"{workload.controller}:{workload.path}"
    return ("workload", key) if key else ("process", str(reading.ref))


def large_text(reading: ProcessReading, extents: Extents, most_gpus: int) -> str:
    """Return why this process belongs to a large workload, or may; "" when it is known to be a small one."""
    doubt = _span_text(reading.workload)
    if doubt:
        return doubt
    own = extents.gpus.get(group_around(reading), frozenset())
    if len(own) > most_gpus:
        return f"it holds {len(own)} GPUs of this host"
    if len(own.union(*extents.blind.values())) > most_gpus:
        pid = next(ref.pid for ref, held in extents.blind.items() if not held <= own)
        return f"pid {pid} can't be read and holds GPUs, maybe for it"
    return ""


def _span_text(workload: Workload) -> str:
    """Return why it spans several hosts, or may; "" where it is known to be on this host alone."""
    if not workload.trusted:
        return "how large it is can't be known: nothing proves what it belongs to"
    names = workload.names
    match workload.kind:
        case WorkloadKind.POD:
            if names is None or not (names.labels_whole or names.spread_known):
                return "how large it is can't be known: its labels are not known"
        case WorkloadKind.SLURM_JOB:
            if names is None or names.hosts is None:
                return "how large it is can't be known: over how many hosts its job is spread is not known"
        case (
            WorkloadKind.CONTAINER
            | WorkloadKind.NOMAD
            | WorkloadKind.MACHINE
            | WorkloadKind.UNIT
            | WorkloadKind.SESSION
            | WorkloadKind.NONE
        ):
            pass
        case _:
            assert_never(workload.kind)
    spans = names is not None and names.hosts is not None and names.hosts > 1
    return "its job spans several hosts" if spans else ""


def mps_text(ref: ProcessRef, rows: tuple[Holder, ...], snapshot: Snapshot) -> str:
    """Return why a client of an MPS server is left alone; "" where NVML lists it as none on its GPUs."""
    for row in rows:
        gpu = snapshot.gpu(row.gpu)
        listed = gpu.processes.value if gpu is not None and isinstance(gpu.processes, Known) else ()
        if any(one.pid == ref.pid and one.context is ContextKind.MPS for one in listed):
            return f"it is a client of the MPS server on {row.gpu}: its end may damage the other clients"
    return ""


def mps_reasons(step: Step, snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return which members of a target a signal by rule may not reach: clients of an MPS server.

    The rule was asked of the process that breaks it; a tree or a workload takes others with it.
    """
    if step.stage not in (Stage.SIGTERM, Stage.SIGKILL):
        return ()
    reasons = []
    for ref in step.targets:
        rows = tuple(row for row in snapshot.holders if row.ref == ref)
        if text := mps_text(ref, rows, snapshot):
            mend = "end the MPS server's clients by their own means, or the server by hand"
            reasons.append(Reason(ReasonKind.PROTECTED, f"pid {ref.pid}: {text}", mend, (ref,)))
    return tuple(reasons)
