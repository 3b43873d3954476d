"""One GPU's readings through pynvml, each failure a reading of its own.

The module is handed in by `observe.nvml`, the one door to it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType

from reclaimerd.host.gpu_shares import with_shares
from reclaimerd.model.identity import DeviceNumber, GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    ContextKind,
    GpuMemory,
    GpuProcess,
    GpuReading,
    RecoveryAction,
    Utilisation,
)
from reclaimerd.observe import nvml_quirks as quirks
from reclaimerd.observe.nvml_layout import plausible_list
from reclaimerd.observe.nvml_mig import read_mig_devices
from reclaimerd.observe.nvml_nodes import NVIDIA_MAJOR
from reclaimerd.observe.nvml_samples import read_samples

RECOVERY_ACTION_FIELD = 230
MOST_PERCENT = 100
NOT_READ = Unreadable("not read")


def read_gpu(module: ModuleType, index: int) -> GpuReading | str:
    """Return one GPU's readings, or why not even its identity can be read."""
    match quirks.reading_of(module, partial(_read_identity, module, index)):
        case Known(value=(handle, gpu)):
            return _with_readings(module, handle, gpu)
        case Unreadable(why=why) | Absent(why=why):
            return why


def read_with_shares(module: ModuleType, index: int, *, seconds: float) -> GpuReading | str:
    """Return the same with what each listed process used of the GPU over the last so many seconds."""
    match quirks.reading_of(module, partial(_read_identity, module, index)):
        case Known(value=(handle, gpu)):
            whole = _with_readings(module, handle, gpu)
            samples = read_samples(module, handle, whole.mig, seconds)
            return replace(whole, processes=with_shares(whole.processes, samples, whole.utilisation))
        case Unreadable(why=why) | Absent(why=why):
            return why


def _read_identity(module: ModuleType, index: int) -> tuple[object, GpuReading]:
    handle = module.nvmlDeviceGetHandleByIndex(index)
    minor: int = module.nvmlDeviceGetMinorNumber(handle)
    gpu = GpuReading(
        uuid=GpuUuid(module.nvmlDeviceGetUUID(handle)),
        index=index,
        pci_address=quirks.pci_address(module.nvmlDeviceGetPciInfo_v3(handle).busId),
        minor=minor,
        name=module.nvmlDeviceGetName(handle),
        device=DeviceNumber(NVIDIA_MAJOR, minor),
        memory=NOT_READ,
        processes=NOT_READ,
        utilisation=NOT_READ,
        mig=NOT_READ,
        persistence=NOT_READ,
        recovery_action=NOT_READ,
    )
    return handle, gpu


def _with_readings(module: ModuleType, handle: object, gpu: GpuReading) -> GpuReading:
    mig = quirks.reading_of(module, lambda: bool(module.nvmlDeviceGetMigMode(handle)[0]))
    memory = _read_memory(module, handle)
    return GpuReading(
        uuid=gpu.uuid,
        index=gpu.index,
        pci_address=gpu.pci_address,
        minor=gpu.minor,
        name=gpu.name,
        device=gpu.device,
        memory=memory,
        processes=plausible_list(_read_processes(module, handle), memory),
        utilisation=_read_utilisation(module, handle, mig),
        mig=mig,
        persistence=quirks.reading_of(module, lambda: bool(module.nvmlDeviceGetPersistenceMode(handle))),
        recovery_action=_read_recovery_action(module, handle),
        mig_devices=read_mig_devices(module, handle, mig),
    )


def _read_memory(module: ModuleType, handle: object) -> Reading[GpuMemory]:
    """Return memory info v2; v1 is no substitute, as it counts the driver's reserve as used."""
    match quirks.reading_of(module, lambda: module.nvmlDeviceGetMemoryInfo(handle, module.nvmlMemory_v2)):
        case Known(value=memory):
            if quirks.NOT_AVAILABLE in {memory.total, memory.used, memory.reserved}:
                return Unreadable("not available")
            return Known(GpuMemory(memory.total, memory.used, memory.reserved))
        case (Unreadable() | Absent()) as failed:
            return failed


def _read_processes(module: ModuleType, handle: object) -> Reading[tuple[GpuProcess, ...]]:
    calls = {
        ContextKind.COMPUTE: module.nvmlDeviceGetComputeRunningProcesses_v3,
        ContextKind.GRAPHICS: module.nvmlDeviceGetGraphicsRunningProcesses_v3,
        ContextKind.MPS: module.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    }
    return quirks.merged_lists(
        {context: _read_list(module, partial(call, handle), context) for context, call in calls.items()},
    )


def _read_list(
    module: ModuleType,
    call: Callable[[], list[object]],
    context: ContextKind,
) -> Reading[tuple[GpuProcess, ...]]:
    """Return one process list; a library that lacks the call hides holders, so that is unreadable."""
    return quirks.reading_of(
        module,
        lambda: tuple(quirks.process_row(row, context) for row in call()),
        absent=frozenset({quirks.NOT_SUPPORTED}),
    )


def _read_utilisation(module: ModuleType, handle: object, mig: Reading[bool]) -> Reading[Utilisation]:
    if isinstance(mig, Known) and mig.value:
        return Absent("not offered while MIG is enabled")
    match quirks.reading_of(module, lambda: module.nvmlDeviceGetUtilizationRates(handle)):
        case Known(value=rates):
            if max(rates.gpu, rates.memory) > MOST_PERCENT:
                # A driver that has zombies among its clients gives nonsense; cut to 100 it would look busy.
                return Unreadable(f"the driver gives no percentage: {rates.gpu}, {rates.memory}")
            return Known(Utilisation(rates.gpu, rates.memory))
        case (Unreadable() | Absent()) as failed:
            return failed


def _read_recovery_action(module: ModuleType, handle: object) -> Reading[RecoveryAction]:
    """Return field 230 (drivers from 565 on); the call can succeed while the field fails."""
    match quirks.reading_of(module, lambda: module.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION_FIELD])):
        case Known(value=fields):
            return quirks.recovery_action(fields[0].nvmlReturn, fields[0].valueType, fields[0].value)
        case (Unreadable() | Absent()) as failed:
            return failed
