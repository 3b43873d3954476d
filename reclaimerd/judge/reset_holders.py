"""Say who on a GPU forbids its reset: holders, exits, tasks in the driver, and whoever can't be read.

A reset needs nobody on the GPU. Only two kinds of living holder are no refusal, since the reset's own
steps make them go: a unit that the policy lists as ours to stop, and nvidia-persistenced while it keeps
the persistence mode. At the last look even those must be gone.
"""

from dataclasses import dataclass, field

from reclaimerd.judge.driver_blocks import driver_blocks
from reclaimerd.judge.exit_path import (
    condition_of,
    is_dumping,
    is_exiting,
    is_released,
    live_tasks,
    state_word,
)
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.protections import looks_protected, protection_of
from reclaimerd.judge.reset_clients import stoppable_unit_of
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.kernel import TaskCondition
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Known, text_of
from reclaimerd.model.snapshot import Holder, Snapshot
from reclaimerd.model.step import Reason, ReasonKind

PERSISTENCED_UNIT = "nvidia-persistenced.service"
_PERSISTENCED = "nvidia-persistenced"


@dataclass(frozen=True, slots=True)
class Asked:
    """One GPU that is asked about, whose processes the incident is, and whether this is the last look.

    At the last look nobody is excused: our steps are done, and what they should have ended must be gone.
    """

    gpu: GpuUuid
    targets: frozenset[ProcessRef] = field(default=frozenset())
    last: bool = False


def holder_reasons(asked: Asked, context: GateContext) -> tuple[Reason, ...]:
    """Return what every holder and every target means for a reset of this GPU."""
    snapshot = context.snapshot
    refs = dict.fromkeys(holder.ref for holder in snapshot.holders_of(asked.gpu))
    # A target that lost its descriptors in the exit path is no holder any more, and still inside.
    refs.update(dict.fromkeys(sorted(asked.targets)))
    found = (_one_holder(ref, asked, context) for ref in refs if not is_gone(ref, snapshot))
    return tuple(reason for reasons in found for reason in reasons)


def is_gone(ref: ProcessRef, snapshot: Snapshot) -> bool:
    """Tell whether a process is proven gone: seen to end, of another boot, or its pid is another's now."""
    now = snapshot.processes.get(ref.pid)
    reused = now is not None and now.ref != ref
    return ref in snapshot.exited or ref.boot_id != snapshot.boot_id or reused


def _one_holder(ref: ProcessRef, asked: Asked, context: GateContext) -> tuple[Reason, ...]:
    snapshot = context.snapshot
    reading = snapshot.process(ref)
    who = f"the target, pid {ref.pid}," if ref in asked.targets else f"pid {ref.pid}"
    if reading is None:
        why = snapshot.unreadable.get(ref.pid, "it was not seen, and its end is not proven")
        text = f"{who} can't be read: {why}"
        return (Reason(ReasonKind.UNREADABLE, text, "wait for its end", (ref,), asked.gpu),)
    if is_released(reading):
        return ()
    leaving = _leaving_tasks(reading, snapshot)
    if leaving:
        text = f"{who} is {state_word(reading)} inside the kernel: tasks {', '.join(leaving)}"
        mend = "wait for its end, else reboot the node"
        return (Reason(ReasonKind.EXIT_PATH, text, mend, (ref,), asked.gpu),)
    return (*_blind_task_reasons(reading, who, asked.gpu, snapshot), *_living(reading, who, asked, context))


def _leaving_tasks(reading: ProcessReading, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the tasks in the exit path, by their flags or by a frame of do_exit, in any state letter."""
    found = {task.tid: task.state for task in reading.tasks if is_exiting(task)}
    look = snapshot.kernel.get(reading.ref.pid)
    if look is not None and look.ref == reading.ref:
        found |= {
            task.tid: task.state
            for task in look.tasks
            if condition_of(task, look) is TaskCondition.EXITING and task.tid not in found
        }
    return tuple(f"{tid} in {state}" for tid, state in found.items())


def _blind_task_reasons(
    reading: ProcessReading, who: str, gpu: GpuUuid | None, snapshot: Snapshot
) -> tuple[Reason, ...]:
    """Return which tasks wait in D with nobody able to tell whether they wait inside the driver."""
    blocked = [task.tid for task in live_tasks(reading) if task.state == "D"]
    look = snapshot.kernel.get(reading.ref.pid)
    shown = {} if look is None or look.ref != reading.ref else {task.tid: task.frames for task in look.tasks}
    reasons = []
    for tid in blocked:
        frames = shown.get(tid)
        if isinstance(frames, Known):
            continue
        why = "its kernel stack was not read" if frames is None else f"its kernel stack is {text_of(frames)}"
        text = f"{who} has task {tid} in D, and whether it waits in the driver is not known: {why}"
        reasons.append(Reason(ReasonKind.UNREADABLE, text, "look again", (reading.ref,), gpu))
    return tuple(reasons)


def _living(reading: ProcessReading, who: str, asked: Asked, context: GateContext) -> tuple[Reason, ...]:
    ref, snapshot = reading.ref, context.snapshot
    rows = [holder for holder in snapshot.holders_of(asked.gpu) if holder.ref == ref]
    if rows and all(_only_remembered(row) for row in rows) and reading.whole and ref not in asked.targets:
        return ()
    if not asked.last and ref not in asked.targets and _is_excused(reading, asked, context):
        return ()
    unit = reading.workload.unit if reading.workload.kind is WorkloadKind.UNIT else ""
    name = f"{who} ({unit})" if unit else who
    guard = protection_of(reading, host_files=snapshot.host_files, policy=context.policy, ours=context.ours)
    if guard is not None:
        text = f"{name} holds it, is known and not ours to stop: {guard.text}"
        mend = "stop it by its own means; list its unit under [reset] stop_units if it is ours to stop"
        return (Reason(ReasonKind.PROTECTED, text, mend, (ref,), asked.gpu),)
    shared = any(row.shared_node_only for row in rows)
    how = "may hold it (a node shared by all GPUs is open)" if shared else "is alive and holds it"
    how += ", dumping core" if is_dumping(reading) else ""
    mend = f"end it first: reclaimctl kill --pid {ref}"
    alike = looks_protected(reading, host_files=snapshot.host_files, policy=context.policy, ours=context.ours)
    if alike is not None:
        how, mend = f"{how}, and {alike}", "stop it by its own means: whoever started it starts it again"
    return (Reason(ReasonKind.HOLDERS, f"{name} {how}", mend, (ref,), asked.gpu),)


def _only_remembered(row: Holder) -> bool:
    """Tell whether nothing shows that it holds the GPU now: it did once, and it can be read again."""
    return row.remembered and not (row.listed or row.node or row.shared_node_only)


def _is_excused(reading: ProcessReading, asked: Asked, context: GateContext) -> bool:
    """Tell whether the reset's own steps make this living holder go."""
    pid = reading.ref.pid
    if pid == context.ours.pid or pid in context.ours.workers:
        return True
    return stoppable_unit_of(reading, context) is not None or _keeps_persistence(reading, asked, context)


def _keeps_persistence(reading: ProcessReading, asked: Asked, context: GateContext) -> bool:
    """Tell whether this is the daemon that holds the GPU for the sake of its persistence mode alone."""
    gpu = context.snapshot.gpu(asked.gpu)
    if gpu is None or not (isinstance(gpu.persistence, Known) and gpu.persistence.value):
        return False
    workload = reading.workload
    if workload.kind is WorkloadKind.UNIT and workload.trusted and workload.unit == PERSISTENCED_UNIT:
        return True
    guard = protection_of(
        reading, host_files=context.snapshot.host_files, policy=context.policy, ours=context.ours
    )
    return guard is not None and guard.text.startswith(_PERSISTENCED)


def blocked_reasons(context: GateContext, told: frozenset[ProcessRef]) -> tuple[Reason, ...]:
    """Return every task blocked inside the driver, whatever GPU it is for; `told` have their reason."""
    mend = "wait until it returns; one that does not needs a reboot of the node"
    why = "whatever GPU that is for, the driver's locks are of all: a reset would wait behind it"
    return tuple(
        Reason(ReasonKind.DRIVER_BLOCKED, f"pid {block.ref.pid}: {block.text}; {why}", mend, (block.ref,))
        for block in driver_blocks(context.snapshot)
        if block.ref not in told
    )


def blind_reasons(
    gpus: tuple[GpuUuid, ...], targets: frozenset[ProcessRef], context: GateContext
) -> tuple[Reason, ...]:
    """Return which holders of other GPUs wait in D with nobody able to tell whether inside the driver."""
    snapshot = context.snapshot
    told = {holder.ref for gpu in gpus for holder in snapshot.holders_of(gpu)} | targets
    reasons: list[Reason] = []
    for ref in dict.fromkeys(holder.ref for holder in snapshot.holders):
        reading = snapshot.process(ref)
        if reading is not None and ref not in told and ref not in snapshot.exited:
            reasons += _blind_task_reasons(reading, f"pid {ref.pid}, on another GPU,", None, snapshot)
    return tuple(reasons)


def listed_reasons(gpu: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    """Return what NVML lists on this GPU that is dead, or that no holder accounts for."""
    snapshot = context.snapshot
    reading = snapshot.gpu(gpu)
    dead = [listing for listing in snapshot.dead_listings if listing.gpu == gpu]
    reasons = [
        Reason(
            ReasonKind.HOLDERS,
            f"NVML still lists pid {listing.pid}, which is dead: somebody holds its context",
            "reclaimctl ps shows the living holders",
            gpu=gpu,
        )
        for listing in dead
    ]
    if reading is None or not isinstance(reading.processes, Known):
        return tuple(reasons)
    named = {holder.ref.pid for holder in snapshot.holders_of(gpu)} | {listing.pid for listing in dead}
    named |= {context.ours.pid, *context.ours.workers}
    pids = sorted({row.pid for row in reading.processes.value} - named)
    return (
        *(
            Reason(ReasonKind.HOLDERS, f"NVML lists pid {pid}, and who that is is not known", gpu=gpu)
            for pid in pids
        ),
        *reasons,
    )
