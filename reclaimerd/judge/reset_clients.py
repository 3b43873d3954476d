"""Say which clients of the driver forbid a reset though no holder shows them: units, modules, displays.

A listed unit is ours to stop and start again, and no refusal; whatever else its stop would reach is.
What the kernel itself holds has no process: it is named, and never unloaded by us.
"""

from typing import assert_never

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.standing_xids import address_of
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import KernelFacts, ModuleUse, ResetFacts, UnitFacts, UnitState
from reclaimerd.model.snapshot import GpuReading
from reclaimerd.model.step import Reason, ReasonKind

ACTIVE = "active"
_AT_REST = frozenset({ACTIVE, "inactive", "failed"})
COUNTED = ("nvidia", "nvidia_uvm")
"""Modules whose use count is opened nodes and the modules on top: any more is hidden."""
KERNEL_CLIENTS = ("nvidia_drm", "nvidia_modeset", "nvidia_peermem", "gdrdrv", "nvidia_fs")
"""Modules that hold GPUs for displays, RDMA and storage, without a process that shows it."""


def units_of(facts: ResetFacts | None) -> UnitFacts | None:
    """Return what systemd says, None where it was not read."""
    return facts.units.value if facts is not None and isinstance(facts.units, Known) else None


def stoppable_units(policy: Policy, facts: ResetFacts | None) -> tuple[UnitState, ...]:
    """Return the listed units that are active now, in the order in which they are to be stopped.

    What starts another goes first, else it would start it again; then those whose stop reaches fewest.
    """
    units = units_of(facts)
    states = () if units is None else tuple(units.unit(name) for name in policy.reset.stop_units)
    active = [unit for unit in states if unit is not None and unit.loaded and unit.active == ACTIVE]
    starters = {trigger for unit in active for trigger in unit.triggers}
    ordered = sorted(active, key=lambda unit: (unit.name not in starters, len(unit.stops_too)))
    return tuple(dict.fromkeys(ordered))


def stoppable_unit_of(reading: ProcessReading, context: GateContext) -> UnitState | None:
    """Return the unit whose stop ends this process and is ours to order, None when there is none."""
    workload = reading.workload
    if workload.kind is not WorkloadKind.UNIT or not workload.trusted:
        return None
    units = stoppable_units(context.policy, context.snapshot.reset_facts)
    return next((unit for unit in units if unit.name == workload.unit), None)


def unit_reasons(context: GateContext) -> tuple[Reason, ...]:
    """Return why units that we would stop can't be, and whether a scheduler's fence is missing."""
    facts = context.snapshot.reset_facts
    if facts is None:
        return ()
    match facts.units:
        case Unreadable(why=why):
            text = f"which units run can't be read: {why}"
            return (Reason(ReasonKind.UNREADABLE, text, "look again"),)
        case Absent():
            return ()
        case Known(value=units):
            listed = tuple(dict.fromkeys(context.policy.reset.stop_units))
            found = (units.unit(name) for name in listed)
            loaded = [unit for unit in found if unit is not None and unit.loaded]
            reasons = tuple(reason for unit in loaded for reason in _one_unit(unit, frozenset(listed)))
            return reasons + _fence_reasons(units, context.policy)
        case _:
            assert_never(facts.units)


def _one_unit(unit: UnitState, listed: frozenset[str]) -> tuple[Reason, ...]:
    if unit.active not in _AT_REST:
        text = f"the unit {unit.name} is {unit.active}: it may open the GPU at any moment"
        return (Reason(ReasonKind.CLIENT_UNIT, text, f"wait, or stop it: systemctl stop {unit.name}"),)
    if unit.active != ACTIVE:
        return ()
    mend = "list it under [reset] stop_units if it is ours to stop, or stop it by hand"
    reached = [name for name in dict.fromkeys(unit.stops_too) if name not in listed]
    starters = [name for name in dict.fromkeys(unit.triggers) if name not in listed]
    return (
        *(
            Reason(ReasonKind.CLIENT_UNIT, f"stopping {unit.name} would stop {name} too", mend)
            for name in reached
        ),
        *(
            Reason(ReasonKind.CLIENT_UNIT, f"{name} would start {unit.name} again at any moment", mend)
            for name in starters
        ),
    )


def _fence_reasons(units: UnitFacts, policy: Policy) -> tuple[Reason, ...]:
    if not units.schedulers or policy.reset.fence_hook:
        return ()
    text = f"{', '.join(units.schedulers)} gives this host work, and nothing can fence the host from it"
    mend = "set [reset] fence_hook, or take the node out of service and stop its agent first"
    return (Reason(ReasonKind.FENCE, text, mend),)


def kernel_reasons(facts: KernelFacts, gpus: tuple[GpuReading, ...]) -> tuple[Reason, ...]:
    """Return what only the kernel knows against a reset of these GPUs."""
    return (
        *(Reason(ReasonKind.UNREADABLE, f"not looked at: {what}", "look again") for what in facts.skipped),
        *_deferred_reasons(facts),
        *_module_reasons(facts),
        *_display_reasons(facts, gpus),
        *_other_tool_reasons(facts),
    )


def _deferred_reasons(facts: KernelFacts) -> tuple[Reason, ...]:
    mend = "wait until the kernel has finished it, else reboot the node"
    return tuple(
        Reason(
            ReasonKind.DEFERRED_CLOSE,
            f"the kernel thread {thread.comm} (pid {thread.pid}) is at work in {thread.frame}: "
            "a close of the driver is still under way",
            mend,
        )
        for thread in facts.busy_threads
    )


def _module_reasons(facts: KernelFacts) -> tuple[Reason, ...]:
    by_name = {module.name: module for module in facts.modules}
    reasons: list[Reason] = []
    for name in (*COUNTED, *KERNEL_CLIENTS):
        module = by_name.get(name, ModuleUse(name, Unreadable("it was not looked at")))
        match module.users:
            case Unreadable(why=why):
                text = f"the use count of the module {name} can't be read: {why}"
                reasons.append(Reason(ReasonKind.UNREADABLE, text, "look again"))
            case Absent():
                pass
            case Known(value=users):
                reasons += _count_reasons(module, users - len(module.used_by), facts.opens)
            case _:
                assert_never(module.users)
    return tuple(reasons)


def _count_reasons(module: ModuleUse, users: int, opens: Reading[int]) -> tuple[Reason, ...]:
    """Return what the uses of one module mean that no other module accounts for."""
    if module.name in KERNEL_CLIENTS:
        if users <= 0:
            return ()
        text = f"{module.name} is in use ({users}), and which GPU it holds can't be told"
        mend = "end what displays, or moves memory, through it; reclaimerd unloads no module"
        return (Reason(ReasonKind.KERNEL_CLIENT, text, mend),)
    match opens:
        case Unreadable(why=why) | Absent(why=why):
            # A count with nothing to hold it against says nothing, whyever that is.
            text = f"how many descriptors account for the uses of {module.name} is not known: {why}"
            return (Reason(ReasonKind.UNREADABLE, text, "look again"),)
        case Known(value=seen):
            if users <= seen:
                return ()
            text = f"{module.name} is in use {users} times and only {seen} are seen: somebody hidden holds it"
            mend = "look for descriptors in flight, other namespaces and kernel clients"
            return (Reason(ReasonKind.KERNEL_CLIENT, text, mend),)
        case _:
            assert_never(opens)


def _display_reasons(facts: KernelFacts, gpus: tuple[GpuReading, ...]) -> tuple[Reason, ...]:
    by_address = {address_of(gpu.pci_address): gpu.uuid for gpu in gpus}
    mend = "move the display or console to another GPU; reclaimerd unloads no module"
    return tuple(
        Reason(ReasonKind.KERNEL_CLIENT, f"a display uses it: {display.text}", mend, gpu=by_address[address])
        for display in facts.displays
        if (address := address_of(display.pci_address)) in by_address
    )


def _other_tool_reasons(facts: KernelFacts) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            ReasonKind.RESET_IN_FLIGHT,
            f"pid {pid} is another reset tool under way",
            "wait for its end, and ask who started it",
        )
        for pid in facts.other_resets
    )
