"""Whether a process list of NVML can be true: library and driver may have rows of different sizes.

Public reports tell of drivers 440, 535.54 and 550.127: bytes stand where pids belong then, and the names of
the library's symbols tell nothing of it. Pure.
"""

from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.snapshot import GpuMemory, GpuProcess

LOWEST_PID, LARGEST_PID = 2, 4_194_304
"""Pids that a process with a GPU can have: not init's, and up to PID_MAX_LIMIT (include/linux/threads.h)."""
MOST_INSTANCE = 255
"""Far above any id of a GPU or compute instance (at most 7 of each on a GPU, ids below 16)."""
_MOST_TENTHS_OF_TOTAL = 11
"""The lists and the total are read at different instants: 10 % over is no contradiction."""


def plausible_list(
    listed: Reading[tuple[GpuProcess, ...]], memory: Reading[GpuMemory]
) -> Reading[tuple[GpuProcess, ...]]:
    """Return a process list, or that it is unreadable as a whole: one row that can't be true spoils all.

    Without a known memory of the GPU only pids and instances are judged.
    """
    if not isinstance(listed, Known):
        return listed
    total = memory.value.total_bytes if isinstance(memory, Known) else None
    fault = next((text for row in listed.value if (text := _row_fault(row, total))), "")
    held = sum(_bytes_of(row) for row in listed.value)
    if not fault and total is not None and held * 10 > total * _MOST_TENTHS_OF_TOTAL:
        fault = f"its processes have {held} bytes of {total}"
    if fault:
        return Unreadable(f"the layout of the driver's list is not the library's: {fault}")
    return listed


def _row_fault(row: GpuProcess, total: int | None) -> str:
    """Return why a row can't be true, or ""."""
    if not LOWEST_PID <= row.pid <= LARGEST_PID:
        return f"no process has pid {row.pid}"
    if total is not None and _bytes_of(row) > total:
        return f"pid {row.pid} has {_bytes_of(row)} bytes of {total}"
    odd = [one for one in (row.gpu_instance, row.compute_instance) if one is not None and one > MOST_INSTANCE]
    return f"pid {row.pid} is on an instance {odd[0]}" if odd else ""


def _bytes_of(row: GpuProcess) -> int:
    return row.used_bytes.value if isinstance(row.used_bytes, Known) else 0
