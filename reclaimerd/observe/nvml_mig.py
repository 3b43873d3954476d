"""The MIG devices of one GPU through pynvml: which UUID is which instance.

The kubelet names MIG devices by UUID, the process lists by instance. The module is handed in by
`observe.nvml`, the one door to it.
"""

from functools import partial
from types import ModuleType

from reclaimerd.model.allocation import MigDevice
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe import nvml_quirks as quirks

_MOST_DEVICES = 64
"""More than any GPU has (7 instances today): a senseless count must not make us ask for ever."""


def read_mig_devices(
    module: ModuleType, handle: object, mig: Reading[bool]
) -> Reading[tuple[MigDevice, ...]]:
    """Return the GPU's MIG devices; Absent while MIG is off, which costs no call."""
    match mig:
        case Known(value=True):
            pass
        case Known():
            return Absent("MIG is off")
        case Unreadable() | Absent():
            return mig
    match quirks.reading_of(module, partial(module.nvmlDeviceGetMaxMigDeviceCount, handle)):
        case Known(value=most):
            found = [_device(module, handle, index) for index in range(min(most, _MOST_DEVICES))]
        case (Unreadable() | Absent()) as failed:
            return failed
    return Known(tuple(one.value for one in found if isinstance(one, Known)))


def _device(module: ModuleType, handle: object, index: int) -> Reading[MigDevice]:
    """Return one device; most places are empty, and NVML says so by an error."""
    return quirks.reading_of(module, partial(_read_device, module, handle, index))


def _read_device(module: ModuleType, handle: object, index: int) -> MigDevice:
    device = module.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    return MigDevice(
        uuid=module.nvmlDeviceGetUUID(device),
        gpu_instance=module.nvmlDeviceGetGpuInstanceId(device),
        compute_instance=module.nvmlDeviceGetComputeInstanceId(device),
    )
