"""Say what the GPU's own state and the ledger have against its reset; each unreadable field is a reason.

Absent fields refuse nothing, but the two without which no reset can be verified. A state that only looks
odd (100 % busy or memory with nobody on it) neither refuses a reset nor asks for one.
"""

from collections.abc import Iterable

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.gpu_fault import Source, fault_of
from reclaimerd.model.fault import FaultClass, FaultSource
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.reading import Known, Reading, Unreadable, text_of
from reclaimerd.model.reset_facts import GpuFacts, Virtualisation
from reclaimerd.model.snapshot import DriverState, GpuProcess, GpuReading, Snapshot
from reclaimerd.model.step import Reason, ReasonKind

_VIRTUAL = {
    Virtualisation.VGPU_GUEST: "it is a virtual GPU in a guest: only its host can reset it",
    Virtualisation.VGPU_HOST: "virtual machines have parts of it: the vendor's tool does not reset it",
}


def driver_reasons(snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return why the driver's answers are not good enough for a reset."""
    driver = snapshot.driver
    if driver.state is DriverState.RESPONSIVE:
        return ()
    words = f"the driver is {driver.state}: {driver.why}" if driver.why else f"the driver is {driver.state}"
    return (Reason(ReasonKind.DRIVER_UNRESPONSIVE, words, "a reset waits until the driver answers"),)


def scan_reasons(snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return each gap in the search for holders: nobody knows who is in it."""
    texts: list[str] = []
    if not snapshot.scan.full_now:
        texts.append("this look has no full scan of all descriptors")
    texts += [f"the scan skipped {what}" for what in snapshot.scan.skipped]
    texts += [f"pid {pid} can't be read: {why}" for pid, why in sorted(snapshot.unreadable.items())]
    return tuple(Reason(ReasonKind.UNREADABLE, text, "look again") for text in texts)


def fault_reasons(uuid: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    """Return each fault of this GPU that a reset does not mend, or that is not known."""
    return tuple(_fault_reason(uuid, source, context.snapshot) for source in _unmended(uuid, context))


def device_reasons(uuid: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    """Return those of them that need no word of the driver: the device is lost, or another driver has it."""
    return tuple(
        _fault_reason(uuid, source, context.snapshot)
        for source in _unmended(uuid, context)
        if source[0] is FaultSource.DEVICE or source[1] is FaultClass.LOST
    )


def _unmended(uuid: GpuUuid, context: GateContext) -> tuple[Source, ...]:
    fault = fault_of(uuid, context.snapshot, context.ledger)
    return tuple(source for source in fault.sources if source[1] >= FaultClass.UNKNOWN)


def _fault_reason(uuid: GpuUuid, source: Source, snapshot: Snapshot) -> Reason:
    origin, fault, text = source
    gpu = snapshot.gpu(uuid)
    if fault is FaultClass.LOST:
        mend = "only a reboot of the node, or its power cycle, brings it back"
        return Reason(ReasonKind.GPU_LOST, f"{uuid} is lost: {text}", mend, gpu=uuid)
    unread = gpu is not None and isinstance(gpu.recovery_action, Unreadable)
    if origin is FaultSource.RECOVERY_ACTION and unread:
        return Reason(ReasonKind.UNREADABLE, f"{uuid}: {text}", "look again", gpu=uuid)
    mend = "follow the vendor's action" if fault > FaultClass.UNKNOWN else "a person looks at what it is"
    text = f"{uuid}: {text}: a reset of ours is not known to mend that"
    return Reason(ReasonKind.RECOVERY_ACTION, text, mend, gpu=uuid)


def reading_reasons(gpu: GpuReading, targets: frozenset[ProcessRef]) -> tuple[Reason, ...]:
    """Return what can't be read of a GPU in every pass, and what MIG has against a reset."""
    compared: tuple[tuple[str, Reading[object]], ...] = (
        ("process list", gpu.processes),
        ("memory", gpu.memory),
    )
    modes: tuple[tuple[str, Reading[object]], ...] = (
        ("MIG mode", gpu.mig),
        ("persistence mode", gpu.persistence),
    )
    return (
        *_not_known(gpu.uuid, compared),
        *_unreadable(gpu.uuid, modes),
        *_mig_reasons(gpu, targets),
    )


def facts_reasons(facts: GpuFacts, gpu: GpuReading) -> tuple[Reason, ...]:
    """Return what the facts read for a reset alone have against it."""
    uuid = facts.uuid
    counters = facts.counters
    fields: tuple[tuple[str, Reading[object]], ...] = (
        ("display state", facts.display_active),
        ("drain state", facts.drain_state),
        ("virtualisation", facts.virtualisation),
        ("pending MIG mode", facts.mig_pending),
        ("count of uncorrected ECC errors", counters.uncorrected_ecc),
        ("count of remapped rows", counters.remapped_rows),
        ("state of row remapping", counters.remap_failed),
    )
    reasons = list(_unreadable(uuid, fields))
    if facts.display_active == Known(value=True):
        text, mend = f"{uuid} drives a display", "move the display to another GPU"
        reasons.append(Reason(ReasonKind.KERNEL_CLIENT, text, mend, gpu=uuid))
    if facts.drain_state == Known(value=True):
        text = f"somebody put {uuid} into the driver's drain state, which refuses the reset tool too"
        mend = "ask who did; nvidia-smi drain -p ADDRESS -m 0 ends it"
        reasons.append(Reason(ReasonKind.DRAIN_STATE, text, mend, gpu=uuid))
    if facts.mig_pending == Known(value=True):
        text = f"the MIG mode of {uuid} would be another after a reset"
        mend = "let whoever changed it finish, or change it back"
        reasons.append(Reason(ReasonKind.MIG, text, mend, gpu=uuid))
    if isinstance(facts.virtualisation, Known) and facts.virtualisation.value in _VIRTUAL:
        text = f"{uuid}: {_VIRTUAL[facts.virtualisation.value]}"
        text += ", and it is in MIG mode" if gpu.mig == Known(value=True) else ""
        reasons.append(
            Reason(ReasonKind.NOT_SUPPORTED, text, "reset it from where it is given out", gpu=uuid)
        )
    return tuple(reasons)


def ledger_reasons(uuid: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    """Return what earlier resets of this GPU, and other incidents on it, have against one more."""
    ledger = context.ledger
    reasons = [
        Reason(
            ReasonKind.DO_NOT_TOUCH,
            f"do not touch {uuid}: {mark.why}",
            "only a reboot of the node ends this",
            () if mark.tool is None else (mark.tool,),
            uuid,
        )
        for mark in ledger.untouchable
        if uuid in mark.gpus and mark.boot_id == context.snapshot.boot_id
    ]
    mend = f"a person looks at the GPU and closes it: reclaimctl breaker close --reason TEXT --gpu {uuid}"
    reasons += [
        Reason(ReasonKind.BREAKER, f"the breaker of {uuid} is open: {breaker.reason}", mend, gpu=uuid)
        for breaker in ledger.gpu_breakers
        if breaker.gpu == uuid
    ]
    reasons += [
        Reason(ReasonKind.OTHER_INCIDENT, f"incident {other} is open on {uuid}", "let it end first", gpu=uuid)
        for other in context.open_gpus.get(uuid, ())
    ]
    return tuple(reasons)


def in_flight_reasons(context: GateContext) -> tuple[Reason, ...]:
    """Return which reset is under way already: one at a time on a host."""
    return tuple(
        Reason(
            ReasonKind.RESET_IN_FLIGHT,
            f"the reset {run.id} of {', '.join(run.gpus)} is under way ({run.phase})",
            "wait for its end",
        )
        for run in context.ledger.resets
        if not run.is_done
    )


def _unreadable(uuid: GpuUuid, fields: Iterable[tuple[str, Reading[object]]]) -> tuple[Reason, ...]:
    return tuple(
        Reason(ReasonKind.UNREADABLE, f"the {name} of {uuid} is unreadable: {field.why}", gpu=uuid)
        for name, field in fields
        if isinstance(field, Unreadable)
    )


def _not_known(uuid: GpuUuid, fields: Iterable[tuple[str, Reading[object]]]) -> tuple[Reason, ...]:
    """Return which of the fields that the verdict after a reset needs are not there, for whatever cause."""
    return tuple(
        Reason(
            ReasonKind.UNREADABLE,
            f"the {name} of {uuid} is {text_of(field)}: without it no reset can be verified",
            gpu=uuid,
        )
        for name, field in fields
        if not isinstance(field, Known)
    )


def _mig_reasons(gpu: GpuReading, targets: frozenset[ProcessRef]) -> tuple[Reason, ...]:
    """Return the refusal for MIG with every instance in use, and by whom: a reset would end them all."""
    if gpu.mig != Known(value=True):
        return ()
    rows = gpu.processes.value if isinstance(gpu.processes, Known) else ()
    mine = {ref.pid for ref in targets}
    used = [f"{_instance(row)} by pid {row.pid}{' (the target)' if row.pid in mine else ''}" for row in rows]
    others = dict.fromkeys(_instance(row) for row in rows if row.pid not in mine)
    text = f"{gpu.uuid} is in MIG mode: a reset would end every instance on it"
    text += f"; in use: {', '.join(used)}" if used else ""
    text += f"; not the target's: {', '.join(others)}" if others else ""
    mend = "end the processes of the one instance, or empty all and leave MIG mode; none is made anew by us"
    refs = tuple(sorted(ref for ref in targets if ref.pid in {row.pid for row in rows}))
    return (Reason(ReasonKind.MIG, text, mend, refs, gpu.uuid),)


def _instance(row: GpuProcess) -> str:
    if row.gpu_instance is None:
        return "an instance that is not told"
    inner = "" if row.compute_instance is None else f"/CI {row.compute_instance}"
    return f"GI {row.gpu_instance}{inner}"
