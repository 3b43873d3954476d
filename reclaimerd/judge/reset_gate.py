"""Say whether a GPU could be reset now, naming every reason against it; nothing here can be waived.

A reset while a task is inside the kernel's exit path for this GPU can hang the host: so any such task
refuses, stuck or not, in any state letter, and so does everything that can't be read.
"""

from typing import assert_never

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.reset_clients import kernel_reasons, unit_reasons
from reclaimerd.judge.reset_holders import (
    Asked,
    blind_reasons,
    blocked_reasons,
    holder_reasons,
    listed_reasons,
)
from reclaimerd.judge.reset_peers import Alone, Joint, Unknown, group_of
from reclaimerd.judge.reset_state import (
    device_reasons,
    driver_reasons,
    facts_reasons,
    fault_reasons,
    in_flight_reasons,
    ledger_reasons,
    reading_reasons,
    scan_reasons,
)
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import GpuReading
from reclaimerd.model.step import Reason, ReasonKind


def reset_gpus(gpu: GpuUuid, context: GateContext) -> tuple[GpuUuid, ...]:
    """Return every GPU that one reset of this one takes with it; it alone unless the policy lets peers go."""
    facts = context.snapshot.reset_facts
    group = Alone() if facts is None else group_of(gpu, facts)
    if isinstance(group, Joint) and context.policy.reset.peers:
        return (gpu, *(peer for peer in group.gpus if peer != gpu))
    return (gpu,)


def reset_reasons(gpu: GpuUuid, targets: frozenset[ProcessRef], context: GateContext) -> tuple[Reason, ...]:
    """Return every reason why this GPU may not be reset now; none is an answer of yes.

    A reset needs nobody on the GPU: the target itself, alive or leaving, refuses it too. Where peers
    must go with it and may, each of them is asked about.
    """
    members = reset_gpus(gpu, context)
    reasons = [*driver_reasons(context.snapshot)]
    for member in members:
        reasons += _one_gpu(Asked(member, targets), context)
    reasons += [
        *_blocked(reasons, context),
        *blind_reasons(members, targets, context),
        *scan_reasons(context.snapshot),
        *_host_facts(members, context),
        *unit_reasons(context),
        *in_flight_reasons(context),
    ]
    return tuple(dict.fromkeys(reasons))


def last_reasons(gpus: tuple[GpuUuid, ...], context: GateContext) -> tuple[Reason, ...]:
    """Return what the last look, the one without the driver, has against these GPUs' reset.

    Nobody may be left, whatever was excused before; NVML is closed by then and not asked. Who is in a
    descriptor, a mapping, the exit path, the driver, a kernel thread or a module's count is.
    """
    reasons: list[Reason] = []
    if context.hold_file:
        mend = "remove the file when acts may go on"
        reasons.append(Reason(ReasonKind.HOLD, f"the file {context.hold_file} says hold", mend))
    for gpu in gpus:
        reasons += holder_reasons(Asked(gpu, last=True), context)
        seen = context.snapshot.gpu(gpu) is not None
        reasons += device_reasons(gpu, context) if seen else (_not_seen(gpu),)
    reasons += [
        *_blocked(reasons, context),
        *blind_reasons(gpus, frozenset(), context),
        *scan_reasons(context.snapshot),
        *_kernel(gpus, context),
    ]
    return tuple(dict.fromkeys(reasons))


def _one_gpu(asked: Asked, context: GateContext) -> tuple[Reason, ...]:
    uuid, snapshot = asked.gpu, context.snapshot
    reading = snapshot.gpu(uuid)
    if reading is None:
        return (_not_seen(uuid), *ledger_reasons(uuid, context))
    return (
        *holder_reasons(asked, context),
        *listed_reasons(uuid, context),
        *reading_reasons(reading, asked.targets),
        *fault_reasons(uuid, context),
        *_facts(reading, context),
        *ledger_reasons(uuid, context),
    )


def _not_seen(uuid: GpuUuid) -> Reason:
    mend = "reclaimctl status lists the GPUs by UUID"
    return Reason(ReasonKind.GPU_UNKNOWN, f"no GPU with the UUID {uuid} was seen", mend)


def _blocked(told: list[Reason], context: GateContext) -> tuple[Reason, ...]:
    named = frozenset(ref for one in told if one.kind is ReasonKind.EXIT_PATH for ref in one.processes)
    return blocked_reasons(context, named)


def _facts(gpu: GpuReading, context: GateContext) -> tuple[Reason, ...]:
    """Return what NVML's facts for a reset say of one GPU, its peers with them."""
    facts = context.snapshot.reset_facts
    own = None if facts is None else facts.gpu(gpu.uuid)
    if facts is None or own is None:
        return ()
    return (*facts_reasons(own, gpu), *_peer_reasons(gpu.uuid, context))


def _peer_reasons(uuid: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    facts = context.snapshot.reset_facts
    match Alone() if facts is None else group_of(uuid, facts):
        case Joint(gpus=gpus, why=why) if not context.policy.reset.peers:
            text = f"{uuid} can only be reset together with {', '.join(g for g in gpus if g != uuid)}: {why}"
            mend = "set [reset] peers = true to let them go together when all are free"
            return (Reason(ReasonKind.PEERS, text, mend, gpu=uuid),)
        case Unknown(why=why):
            text = f"which GPUs must be reset together with {uuid} is not known: {why}"
            return (Reason(ReasonKind.PEERS, text, "look again", gpu=uuid),)
        case _:
            return ()


def _host_facts(gpus: tuple[GpuUuid, ...], context: GateContext) -> tuple[Reason, ...]:
    """Return which facts were not read at all, and what the kernel's have against these GPUs."""
    facts = context.snapshot.reset_facts
    if facts is None:
        return (Reason(ReasonKind.UNREADABLE, "the facts for a reset were not read", "look again"),)
    reasons: list[Reason] = []
    match facts.gpus:
        case Unreadable(why=why) | Absent(why=why):
            text = f"what NVML knows for a reset was not read: {why}"
            reasons.append(Reason(ReasonKind.UNREADABLE, text, "look again"))
        case Known():
            reasons += [
                Reason(ReasonKind.UNREADABLE, f"the facts for a reset of {uuid} were not read", gpu=uuid)
                for uuid in gpus
                if facts.gpu(uuid) is None and context.snapshot.gpu(uuid) is not None
            ]
        case _:
            assert_never(facts.gpus)
    return (*reasons, *_kernel(gpus, context))


def _kernel(gpus: tuple[GpuUuid, ...], context: GateContext) -> tuple[Reason, ...]:
    facts = context.snapshot.reset_facts
    kernel = Unreadable("not in this look") if facts is None else facts.kernel
    match kernel:
        case Known(value=value):
            return kernel_reasons(value, tuple(gpu for gpu in context.snapshot.gpus if gpu.uuid in gpus))
        case Unreadable(why=why) | Absent(why=why):
            text = f"what the kernel knows for a reset was not read: {why}"
            return (Reason(ReasonKind.UNREADABLE, text, "look again"),)
        case _:
            assert_never(kernel)
