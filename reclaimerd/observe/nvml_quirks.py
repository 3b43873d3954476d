"""What nvidia-ml-py and the driver get wrong or leave open, turned into readings.

Pure but for `load_pynvml`, which imports the vendor's module. Everything compares NVML's error
number, never its text (the module hard-codes some wrongly) and never an error with `==` (its
`__eq__` raises on anything that is no NVMLError).
"""

import importlib
import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    ContextKind,
    GpuProcess,
    RecoveryAction,
)

T = TypeVar("T")

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
ERROR_WORDS: Mapping[int, str] = {
    UNINITIALIZED: "NVML is not initialised",
    2: "invalid argument",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    INSUFFICIENT_SIZE: "the list grew while it was read",
    DRIVER_NOT_LOADED: "driver not loaded",
    10: "the driver gave no answer in time",
    11: "the GPU's interrupts do not work",
    LIBRARY_NOT_FOUND: "library not found",
    FUNCTION_NOT_FOUND: "the library lacks this call",
    15: "GPU is lost",
    16: "the GPU needs a reset",
    17: "blocked by the operating system",
    LIB_RM_VERSION_MISMATCH: "library and driver have different versions",
    19: "in use by another client",
    ARGUMENT_VERSION_MISMATCH: "the library does not know this version of the call",
    999: "unknown error",
}
STALE = frozenset({UNINITIALIZED, LIB_RM_VERSION_MISMATCH})
"""Errors that say our own connection is void: it must be made anew, no GPU is at fault."""
NOT_OFFERED = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH})
"""Errors that say the vendor does not offer the value here."""
NOT_AVAILABLE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE as an unsigned 64-bit number (nvml.h)."""
NO_INSTANCE = 0xFFFFFFFF
"""GPU and compute instance id of a process outside MIG (nvml.h, nvmlProcessInfo_t)."""
OLDEST_DRIVER = (535, 113)
"""Before it, process lists gave pids of the host to callers in other pid namespaces."""
NEEDED_FUNCTIONS = (
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlMemory_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetProcessUtilization",
)
MEND_PACKAGE = "remove the package `pynvml` and install `nvidia-ml-py` (its module is named pynvml)"
RECOVERY_ACTIONS: Mapping[int, RecoveryAction] = {
    0: RecoveryAction.NONE,
    1: RecoveryAction.GPU_RESET,
    2: RecoveryAction.NODE_REBOOT,
    3: RecoveryAction.DRAIN_P2P,
    4: RecoveryAction.DRAIN_AND_RESET,
    5: RecoveryAction.RECOVER_IMEX_DOMAIN,
    6: RecoveryAction.BUS_RESET,
    7: RecoveryAction.SYSTEM_REBOOT,
}
FIELD_VALUE_KINDS: Mapping[int, str] = {
    1: "uiVal",
    2: "ulVal",
    3: "ullVal",
    4: "sllVal",
    5: "siVal",
    6: "usVal",
}


class StaleConnectionError(Exception):
    """Our NVML connection is void: shut down and initialise once more."""


def load_pynvml() -> ModuleType:
    """Return nvidia-ml-py's module; raises UnsuitableHostError for any other package."""
    try:
        module = importlib.import_module("pynvml")
        distribution = importlib.metadata.distribution("nvidia-ml-py")
    except ImportError as error:  # PackageNotFoundError is one too
        raise UnsuitableHostError("the package nvidia-ml-py is not installed", MEND_PACKAGE) from error
    expected = Path(str(distribution.locate_file("pynvml.py")))
    fault = package_fault(module, expected)
    if fault:
        raise UnsuitableHostError(fault, MEND_PACKAGE)
    return module


def package_fault(module: ModuleType, expected: Path) -> str:
    """Return why this module is not the one that `nvidia-ml-py` installed, or ""."""
    found = Path(module.__file__ or "")
    if found.resolve() != expected.resolve():
        return f"the module pynvml comes from {found}, not from the package nvidia-ml-py"
    missing = [name for name in NEEDED_FUNCTIONS if not hasattr(module, name)]
    return f"nvidia-ml-py is too old: it lacks {', '.join(missing)}" if missing else ""


def driver_fault(version: str) -> str:
    """Return why this driver version can't be worked with, or ""."""
    match = re.match(r"([0-9]{1,5})\.([0-9]{1,5})(?![0-9])", version)
    if match is None:
        return f"the driver's version {version!r} is not understood"
    if (int(match[1]), int(match[2])) < OLDEST_DRIVER:
        return f"driver {version} is older than 535.113: its process lists mix pid namespaces"
    return ""


def error_number(error: Exception) -> int | None:
    """Return NVML's number of an error, None for one that has none (NVMLLibraryMismatchError)."""
    number = getattr(error, "value", None)
    return number if isinstance(number, int) else None


def error_text(error: Exception) -> str:
    """Return an NVML error in our words; never asks the library for its own."""
    number = error_number(error)
    if number is None:
        return f"nvidia-ml-py: {type(error).__name__}"
    return ERROR_WORDS.get(number, f"NVML error {number}")


def reading_of(
    module: ModuleType, call: Callable[[], T], *, absent: frozenset[int] = NOT_OFFERED
) -> Reading[T]:
    """Call NVML and return what came of it; errors in `absent` say that the vendor offers no value.

    Raises StaleConnectionError where our own connection is at fault.
    """
    try:
        return Known(call())
    except (module.NVMLError, module.NVMLLibraryMismatchError, ValueError) as error:
        number = error_number(error)
        if number in STALE:
            raise StaleConnectionError(error_text(error)) from error
        return Absent(error_text(error)) if number in absent else Unreadable(error_text(error))


def pci_address(bus_id: str | bytes) -> str:
    """Return NVML's `00000000:3B:00.0` as the kernel writes it: `0000:3b:00.0`.

    Structures give text or bytes, by the module's version.
    """
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def recovery_action(nvml_return: int, value_kind: int, value: object) -> Reading[RecoveryAction]:
    """Return field 230's reading: each field has a return code of its own beside the call's."""
    if nvml_return in NOT_OFFERED:
        return Absent(ERROR_WORDS[nvml_return])
    if nvml_return:
        return Unreadable(ERROR_WORDS.get(nvml_return, f"NVML error {nvml_return}"))
    name = FIELD_VALUE_KINDS.get(value_kind)
    number = getattr(value, name) if name else None
    if number is None:
        return Unreadable(f"the recovery action has the unknown value type {value_kind}")
    return Known(RECOVERY_ACTIONS.get(number, RecoveryAction.UNKNOWN))


def process_row(row: object, context: ContextKind) -> GpuProcess:
    """Return one row of a process list; memory that is not available is unreadable, never 0."""
    used_bytes: int | None = getattr(row, "usedGpuMemory", None)
    known = used_bytes is not None and used_bytes != NOT_AVAILABLE
    return GpuProcess(
        pid=int(getattr(row, "pid", None) or 0),
        used_bytes=Known(used_bytes) if used_bytes is not None and known else Unreadable("not available"),
        context=context,
        gpu_instance=_instance(getattr(row, "gpuInstanceId", None)),
        compute_instance=_instance(getattr(row, "computeInstanceId", None)),
    )


def _instance(number: int | None) -> int | None:
    return None if number in {None, NO_INSTANCE} else number


def merged_lists(
    lists: Mapping[ContextKind, Reading[tuple[GpuProcess, ...]]],
) -> Reading[tuple[GpuProcess, ...]]:
    """Return all process lists of a GPU as one: a row for each pid and instance.

    The driver's figure is the sum over all of a process's clients on the GPU (NV2080 GET_PID_INFO
    goes by pid), so a process in two lists has the same figure in both: it counts once, under the
    first list that names it. One unreadable list makes the whole unreadable; graphics and MPS lists
    that the vendor does not offer add nothing, but without the compute list there is no list.
    """
    rows: list[GpuProcess] = []
    absent: dict[ContextKind, str] = {}
    for context, reading in lists.items():
        match reading:
            case Unreadable(why=why):
                return Unreadable(f"{context.value} processes: {why}")
            case Absent(why=why):
                absent[context] = why
            case Known(value=listed):
                rows += listed
    if ContextKind.COMPUTE in absent:
        return Absent(absent[ContextKind.COMPUTE])
    if any(row.pid <= 0 for row in rows):
        return Unreadable("a listed process has no pid in our namespace")
    return Known(_merged(rows))


def _merged(rows: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
    kept: dict[tuple[int, int | None, int | None], GpuProcess] = {}
    for row in rows:
        key = (row.pid, row.gpu_instance, row.compute_instance)
        before = kept.get(key)
        if before is None or _bytes(row) > _bytes(before):
            context = row.context if before is None else before.context
            kept[key] = GpuProcess(row.pid, row.used_bytes, context, row.gpu_instance, row.compute_instance)
    return tuple(kept.values())


def _bytes(row: GpuProcess) -> int:
    return row.used_bytes.value if isinstance(row.used_bytes, Known) else -1
