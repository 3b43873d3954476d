"""Say what a reset would change, in which order, and whether the GPU came back as it must; it does nothing.

Each change says what was before in the words that put it back. What does not run is not stopped, and
what can't be read is not written back.
"""

from dataclasses import dataclass

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.reset_clients import stoppable_units, units_of
from reclaimerd.judge.reset_gate import reset_gpus
from reclaimerd.judge.reset_verdict import verified
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Known, Unreadable, known_or_none
from reclaimerd.model.reset_facts import GpuFacts
from reclaimerd.model.reset_run import Change, ChangeKind, GpuBefore
from reclaimerd.model.step import Reason

__all__ = ["HOST", "ResetAnswer", "ResetPlan", "plan_of", "verified"]

HOST = "this host"
"""The name of the change that asks for the scheduler's fence."""


@dataclass(frozen=True, slots=True)
class ResetAnswer:
    """Whether a reset would be permitted, why not, the steps it would take, and every GPU it would reset."""

    permitted: bool
    reasons: tuple[Reason, ...]
    steps: tuple[str, ...]
    gpus: tuple[GpuUuid, ...] = ()


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """All GPUs of one command, what is changed besides them in that order, and the checklist in words."""

    gpus: tuple[GpuUuid, ...]
    changes: tuple[Change, ...]
    before: tuple[GpuBefore, ...]
    steps: tuple[str, ...]


def plan_of(gpu: GpuUuid, context: GateContext) -> ResetPlan:
    """Return what a reset of this GPU would change and put back, whether or not it is permitted."""
    gpus = reset_gpus(gpu, context)
    changes = (
        *_fence(context),
        *_units(context),
        *_persistence(gpus, context),
        *_settings(gpus, context),
    )
    before = tuple(_before(uuid, context) for uuid in gpus)
    return ResetPlan(gpus, changes, before, _steps(gpus, changes, context))


def _fence(context: GateContext) -> tuple[Change, ...]:
    units = units_of(context.snapshot.reset_facts)
    if units is None or not units.schedulers:
        return ()
    return (Change(ChangeKind.FENCE, HOST, "", text=f"host of {', '.join(units.schedulers)}"),)


def _units(context: GateContext) -> tuple[Change, ...]:
    units = stoppable_units(context.policy, context.snapshot.reset_facts)
    return tuple(Change(ChangeKind.UNIT, unit.name, unit.active) for unit in units)


def _persistence(gpus: tuple[GpuUuid, ...], context: GateContext) -> tuple[Change, ...]:
    readings = ((uuid, context.snapshot.gpu(uuid)) for uuid in gpus)
    return tuple(
        Change(ChangeKind.PERSISTENCE, uuid, "1")
        for uuid, gpu in readings
        if gpu is not None and gpu.persistence == Known(value=True)
    )


def _facts(uuid: GpuUuid, context: GateContext) -> GpuFacts | None:
    facts = context.snapshot.reset_facts
    return None if facts is None else facts.gpu(uuid)


def _settings(gpus: tuple[GpuUuid, ...], context: GateContext) -> tuple[Change, ...]:
    return tuple(
        Change(ChangeKind.SETTING, f"{uuid} {setting.kind}", setting.value.value)
        for uuid in gpus
        if (facts := _facts(uuid, context)) is not None
        for setting in facts.settings
        if isinstance(setting.value, Known) and not setting.is_default
    )


def _before(uuid: GpuUuid, context: GateContext) -> GpuBefore:
    snapshot = context.snapshot
    gpu, facts = snapshot.gpu(uuid), _facts(uuid, context)
    memory = None if gpu is None else known_or_none(gpu.memory)
    counters = None if facts is None else facts.counters
    return GpuBefore(
        uuid=uuid,
        pci_address="" if gpu is None else gpu.pci_address,
        uncorrected_ecc=None if counters is None else known_or_none(counters.uncorrected_ecc),
        remapped_rows=None if counters is None else known_or_none(counters.remapped_rows),
        remap_failed=None if counters is None else known_or_none(counters.remap_failed),
        baseline_bytes=snapshot.baselines.get(uuid),
        total_bytes=0 if memory is None else memory.total_bytes,
    )


_DONE = {
    ChangeKind.FENCE: "ask for the scheduler's fence and read it back ({0.text})",
    ChangeKind.UNIT: "stop the unit {0.name}, which is {0.before}, and wait until it holds nothing",
    ChangeKind.PERSISTENCE: "persistence mode off on {0.name}, asked by its UUID",
    ChangeKind.SETTING: "the reset forgets a setting: {0.name} {0.before}",
}
_UNDONE = {
    ChangeKind.FENCE: "let go of the scheduler's fence",
    ChangeKind.UNIT: "start the unit {0.name} again",
    ChangeKind.PERSISTENCE: "persistence mode on again on {0.name}",
    ChangeKind.SETTING: "write back {0.name} {0.before}",
}


_TOOL = (
    "run the vendor's tool outside our unit: nvidia-smi --gpu-reset -i {}, "
    "left alone after {:g} s and never signalled"
)
_VERIFY = (
    "verify within {:g} s: back under the UUID, present on PCI, memory at the baseline, no holder, "
    "recovery action none, no new Xid, error counters not worse"
)


def _steps(gpus: tuple[GpuUuid, ...], changes: tuple[Change, ...], context: GateContext) -> tuple[str, ...]:
    policy = context.policy
    unread = [
        f"{uuid}: its {setting.kind} can't be read, so it is not written back"
        for uuid in gpus
        if (facts := _facts(uuid, context)) is not None
        for setting in facts.settings
        if isinstance(setting.value, Unreadable)
    ]
    return (
        *(_DONE[change.kind].format(change) for change in changes),
        *unread,
        "look again at everything, the driver's own lists with it",
        "close our own probes of the driver",
        "look again at every holder and every exiting task, at most 200 ms before",
        _TOOL.format(",".join(gpus), policy.ladder.reset_seconds),
        _VERIFY.format(policy.reset.verify_seconds),
        *(_UNDONE[change.kind].format(change) for change in reversed(changes)),
    )
