"""Say whether a GPU could be reset now, naming every reason against it; nothing here can be waived.

A reset while a task is inside the kernel's exit path for this GPU can hang the host: so any such task
refuses, stuck or not, in any state letter, and so does everything that can't be read.
"""

from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.exit_path import is_exiting, is_released, state_word
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import (
    DriverState,
    GpuReading,
    RecoveryAction,
    Snapshot,
)
from reclaimerd.model.step import Reason, ReasonKind

_RESETTABLE = frozenset({RecoveryAction.NONE, RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET})
_STEPS = (
    "look again at every holder and every exiting task, at most 200 ms before",
    "close our own probes of the driver",
    "run the vendor's tool: nvidia-smi --gpu-reset -i {gpu}",
    "verify: the GPU is back under its UUID, its memory at the baseline, its recovery action none",
)


@dataclass(frozen=True, slots=True)
class ResetAnswer:
    """Whether a reset would be permitted, why not, and the steps it would take."""

    permitted: bool
    reasons: tuple[Reason, ...]
    steps: tuple[str, ...]


def explain_reset(gpu: GpuUuid, context: GateContext) -> ResetAnswer:
    """Return the reset gate's answer for a GPU with nobody named as the target."""
    reasons = reset_reasons(gpu, frozenset(), context)
    return ResetAnswer(not reasons, reasons, tuple(step.format(gpu=gpu) for step in _STEPS))


def reset_reasons(gpu: GpuUuid, targets: frozenset[ProcessRef], context: GateContext) -> tuple[Reason, ...]:
    """Return every reason why this GPU may not be reset now; none is an answer of yes.

    A reset needs nobody on the GPU: the target itself, alive or leaving, refuses it too.
    """
    snapshot = context.snapshot
    reading = snapshot.gpu(gpu)
    driver = _driver_reasons(snapshot)
    scan = _scan_reasons(snapshot)
    if reading is None:
        mend = "reclaimctl status lists the GPUs by UUID"
        unknown = Reason(ReasonKind.GPU_UNKNOWN, f"no GPU with the UUID {gpu} was seen", mend)
        return (*driver, unknown, *scan)
    return (
        *driver,
        *_holder_reasons(gpu, targets, snapshot),
        *_listed_reasons(reading, snapshot),
        *_dead_listing_reasons(gpu, snapshot),
        *_field_reasons(reading),
        *scan,
        *_recovery_reasons(reading),
        *_mig_reasons(reading),
    )


def _driver_reasons(snapshot: Snapshot) -> tuple[Reason, ...]:
    driver = snapshot.driver
    if driver.state is DriverState.RESPONSIVE:
        return ()
    words = f"the driver is {driver.state}: {driver.why}" if driver.why else f"the driver is {driver.state}"
    return (Reason(ReasonKind.DRIVER_UNRESPONSIVE, words, "a reset waits until the driver answers"),)


def _holder_reasons(
    gpu: GpuUuid,
    targets: frozenset[ProcessRef],
    snapshot: Snapshot,
) -> tuple[Reason, ...]:
    refs = dict.fromkeys(holder.ref for holder in snapshot.holders_of(gpu))
    # A target that lost its descriptors in the exit path is no holder any more, and still inside.
    refs.update(dict.fromkeys(sorted(targets)))
    found = (_one_holder(ref, gpu, targets, snapshot) for ref in refs if not _is_gone(ref, snapshot))
    return tuple(reason for reasons in found for reason in reasons)


def _is_gone(ref: ProcessRef, snapshot: Snapshot) -> bool:
    """Tell whether a process is proven gone: seen to end, of another boot, or its pid is another's now."""
    now = snapshot.processes.get(ref.pid)
    reused = now is not None and now.ref != ref
    return ref in snapshot.exited or ref.boot_id != snapshot.boot_id or reused


def _one_holder(
    ref: ProcessRef,
    gpu: GpuUuid,
    targets: frozenset[ProcessRef],
    snapshot: Snapshot,
) -> tuple[Reason, ...]:
    reading = snapshot.process(ref)
    who = f"the target, pid {ref.pid}," if ref in targets else f"pid {ref.pid}"
    if reading is None:
        why = snapshot.unreadable.get(ref.pid, "it was not seen, and its end is not proven")
        text = f"{who} can't be read: {why}"
        return (Reason(ReasonKind.UNREADABLE, text, "wait for its end", (ref,), gpu),)
    if is_released(reading):
        return ()
    leaving = [task for task in reading.tasks if is_exiting(task)]
    if leaving:
        tasks = ", ".join(f"{task.tid} in {task.state}" for task in leaving)
        text = f"{who} is {state_word(reading)} inside the kernel: tasks {tasks}"
        return (Reason(ReasonKind.EXIT_PATH, text, "wait for its end, else reboot the node", (ref,), gpu),)
    shared = any(h.ref == ref and h.shared_node_only for h in snapshot.holders_of(gpu))
    how = "may hold it (a node shared by all GPUs is open)" if shared else "is alive and holds it"
    mend = f"end it first: reclaimctl kill --pid {ref}"
    return (Reason(ReasonKind.HOLDERS, f"{who} {how}", mend, (ref,), gpu),)


def _listed_reasons(reading: GpuReading, snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return the pids that NVML lists and that no holder or dead listing accounts for."""
    if not isinstance(reading.processes, Known):
        return ()
    named = {holder.ref.pid for holder in snapshot.holders_of(reading.uuid)}
    named |= {dead.pid for dead in snapshot.dead_listings if dead.gpu == reading.uuid}
    pids = sorted({row.pid for row in reading.processes.value} - named)
    return tuple(
        Reason(ReasonKind.HOLDERS, f"NVML lists pid {pid}, and who that is is not known", gpu=reading.uuid)
        for pid in pids
    )


def _dead_listing_reasons(gpu: GpuUuid, snapshot: Snapshot) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            ReasonKind.HOLDERS,
            f"NVML still lists pid {dead.pid}, which is dead: somebody holds its context",
            "reclaimctl ps shows the living holders",
            gpu=gpu,
        )
        for dead in snapshot.dead_listings
        if dead.gpu == gpu
    )


def _field_reasons(gpu: GpuReading) -> tuple[Reason, ...]:
    fields: tuple[tuple[str, object], ...] = (
        ("process list", gpu.processes),
        ("memory", gpu.memory),
        ("MIG mode", gpu.mig),
        ("recovery action", gpu.recovery_action),
    )
    return tuple(
        Reason(ReasonKind.UNREADABLE, f"the {name} of {gpu.uuid} is unreadable: {field.why}", gpu=gpu.uuid)
        for name, field in fields
        if isinstance(field, Unreadable)
    )


def _scan_reasons(snapshot: Snapshot) -> tuple[Reason, ...]:
    texts: list[str] = []
    if not snapshot.scan.full_now:
        texts.append("this look has no full scan of all descriptors")
    texts += [f"the scan skipped {what}" for what in snapshot.scan.skipped]
    texts += [f"pid {pid} can't be read: {why}" for pid, why in sorted(snapshot.unreadable.items())]
    return tuple(Reason(ReasonKind.UNREADABLE, text, "look again") for text in texts)


def _recovery_reasons(gpu: GpuReading) -> tuple[Reason, ...]:
    match gpu.recovery_action:
        case Known(value=action) if action not in _RESETTABLE:
            text = f"the driver's recovery action for {gpu.uuid} is {action}: a reset does not mend that"
            return (Reason(ReasonKind.RECOVERY_ACTION, text, "follow the vendor's action", gpu=gpu.uuid),)
        case Known() | Unreadable() | Absent():
            return ()
        case _:
            assert_never(gpu.recovery_action)


def _mig_reasons(gpu: GpuReading) -> tuple[Reason, ...]:
    if not (isinstance(gpu.mig, Known) and gpu.mig.value):
        return ()
    text = f"{gpu.uuid} is in MIG mode: a reset would end every instance on it"
    return (Reason(ReasonKind.MIG, text, "empty its instances and leave MIG mode first", gpu=gpu.uuid),)
