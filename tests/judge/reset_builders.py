"""Short builders of what a reset needs to know: a GPU and a host on which nothing forbids one."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId
from reclaimerd.model.policy import ResetSettings
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.reset_facts import (
    ErrorCounters,
    Generation,
    GpuFacts,
    KernelFacts,
    ModuleUse,
    NvLinks,
    ResetFacts,
    UnitFacts,
    UnitState,
    Virtualisation,
)
from reclaimerd.model.reset_run import GpuBefore, ResetRun
from reclaimerd.model.snapshot import GpuReading, Snapshot
from tests.builders import BOOT, GIB, GPU_A, MONO, OPERATOR, WALL, a_context, a_gpu, a_policy, a_snapshot

GPU_C = GpuUuid("GPU-cccccccc-0000-0000-0000-000000000000")
NOT_LOADED = Absent("the module is not loaded")


def gpu_facts(uuid: str = GPU_A, index: int = 0, **overrides: Any) -> GpuFacts:
    """Return a GPU of a late generation, alone, at its defaults."""
    facts = GpuFacts(
        uuid=GpuUuid(uuid),
        pci_address=f"0000:0{index}:00.0",
        generation=Known(Generation.LATER),
        links=Known(NvLinks(0)),
        fabric=Absent("not supported"),
        virtualisation=Known(Virtualisation.NONE),
        display_active=Known(value=False),
        drain_state=Known(value=False),
        mig_pending=Known(value=False),
        counters=ErrorCounters(Known(0), Known(0), Known(value=False)),
    )
    return replace(facts, **overrides)


def modules(**users: Any) -> tuple[ModuleUse, ...]:
    """Return the modules of a host with nobody on the driver; a figure or a `ModuleUse` replaces one."""
    found = {
        "nvidia": ModuleUse("nvidia", Known(2), ("nvidia_uvm", "nvidia_modeset")),
        "nvidia_uvm": ModuleUse("nvidia_uvm", Known(0)),
        "nvidia_drm": ModuleUse("nvidia_drm", Known(0)),
        "nvidia_modeset": ModuleUse("nvidia_modeset", Known(1), ("nvidia_drm",)),
        "nvidia_peermem": ModuleUse("nvidia_peermem", NOT_LOADED),
        "gdrdrv": ModuleUse("gdrdrv", NOT_LOADED),
        "nvidia_fs": ModuleUse("nvidia_fs", NOT_LOADED),
    }
    for name, use in users.items():
        found[name] = use if isinstance(use, ModuleUse) else replace(found[name], users=use)
    return tuple(found.values())


def kernel_facts(gpus: Iterable[GpuReading] = (), **overrides: Any) -> KernelFacts:
    """Return a kernel in which every GPU is there and nothing holds one."""
    present = tuple(gpu.pci_address for gpu in gpus)
    facts = KernelFacts(present, (), modules(), (), (), Known(0))
    return replace(facts, **overrides)


def a_unit(name: str = "nvidia-dcgm.service", active: str = "active", **overrides: Any) -> UnitState:
    """Return a unit that runs and that nothing hangs on."""
    return replace(UnitState(name, loaded=True, active=active), **overrides)


def reset_facts(readings: Iterable[GpuReading], **overrides: Any) -> ResetFacts:
    """Return what a reset needs to know of these GPUs, all of it harmless."""
    seen = tuple(readings)
    facts = ResetFacts(
        at=MONO,
        gpus=Known(tuple(gpu_facts(gpu.uuid, gpu.index) for gpu in seen)),
        kernel=Known(kernel_facts(seen)),
        units=Known(UnitFacts(())),
    )
    return replace(facts, **overrides)


def ready(snapshot: Snapshot | None = None, **overrides: Any) -> Snapshot:
    """Return a look that holds what a reset needs to know, with some of it overridden."""
    seen = a_snapshot() if snapshot is None else snapshot
    return replace(seen, reset_facts=reset_facts(seen.gpus, **overrides))


def with_kernel(snapshot: Snapshot | None = None, **overrides: Any) -> Snapshot:
    """Return such a look whose kernel facts differ."""
    seen = a_snapshot() if snapshot is None else snapshot
    return ready(seen, kernel=Known(kernel_facts(seen.gpus, **overrides)))


def with_units(*units: UnitState, snapshot: Snapshot | None = None, **overrides: Any) -> Snapshot:
    """Return such a look with these units."""
    return ready(snapshot, units=Known(replace(UnitFacts(units), **overrides)))


def with_facts(*facts: GpuFacts, **overrides: Any) -> Snapshot:
    """Return such a look with these GPUs, by their facts."""
    gpus = tuple(
        a_gpu(one.uuid, index=index, pci_address=f"0000{one.pci_address}") for index, one in enumerate(facts)
    )
    return ready(a_snapshot(gpus=gpus), gpus=Known(facts), **overrides)


def asking(snapshot: Snapshot, **overrides: Any) -> GateContext:
    """Return the context in which the gate is asked."""
    return a_context(snapshot=snapshot, **overrides)


def reset_policy(**settings: Any) -> Any:
    """Return a policy whose reset settings differ."""
    return a_policy(reset=replace(ResetSettings(), **settings))


def before(uuid: str = GPU_A, index: int = 0, **overrides: Any) -> GpuBefore:
    """Return what a healthy GPU was before its reset."""
    found = GpuBefore(
        uuid=GpuUuid(uuid),
        pci_address=f"0000:0{index}:00.0",
        uncorrected_ecc=0,
        remapped_rows=0,
        remap_failed=False,
        baseline_bytes=0,
        total_bytes=80 * GIB,
    )
    return replace(found, **overrides)


def a_run(*gpus: str, **overrides: Any) -> ResetRun:
    """Return a reset that is under way for GPU A, or these."""
    uuids = tuple(GpuUuid(uuid) for uuid in gpus or (GPU_A,))
    run = ResetRun(
        id=AttemptId("inc-1.1"),
        incident=IncidentId("inc-1"),
        boot_id=BOOT,
        actor=OPERATOR,
        gpus=uuids,
        began_at=WALL - 60,
        before=tuple(before(uuid, index) for index, uuid in enumerate(uuids)),
        tool_at=WALL - 30,
        kernel_seq=500,
    )
    return replace(run, **overrides)
