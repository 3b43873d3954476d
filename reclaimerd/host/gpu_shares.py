"""What each process uses of its GPU, from the driver's samples; a figure that is missing is not zero.

Pure: both the real and the simulated driver's answers are joined here.
"""

from collections.abc import Mapping
from dataclasses import replace

from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.snapshot import ContextKind, GpuProcess, Utilisation

Samples = Mapping[int, int | None]
"""What each pid with a sample used, in percent; None: the driver gave no percentage."""


def with_shares(
    processes: Reading[tuple[GpuProcess, ...]],
    samples: Reading[Samples],
    utilisation: Reading[Utilisation],
) -> Reading[tuple[GpuProcess, ...]]:
    """Return the process list with what each uses of the GPU.

    The driver samples only who was at work (nvml.h, nvmlDeviceGetProcessUtilization). So no sample is
    zero where the GPU itself is idle, or where others' samples account for what it does; else it is
    unknown.
    """
    if not isinstance(processes, Known):
        return processes
    rows = processes.value
    return Known(tuple(replace(row, sm_percent=_share(row, rows, samples, utilisation)) for row in rows))


def _share(
    row: GpuProcess,
    rows: tuple[GpuProcess, ...],
    samples: Reading[Samples],
    utilisation: Reading[Utilisation],
) -> Reading[int]:
    if not isinstance(samples, Known) or row.context is ContextKind.MPS:
        mps = Unreadable("its work may be counted as the MPS server's")
        return mps if isinstance(samples, Known) else samples
    told = samples.value
    if row.pid in told:
        own = told[row.pid]
        return Unreadable("the driver gives no percentage") if own is None else Known(own)
    if None in told.values():
        return Unreadable("the driver's samples make no sense")
    others = [told[other.pid] or 0 for other in rows if other.pid in told]
    return _without_sample(sum(others), utilisation)


def _without_sample(others_percent: int, utilisation: Reading[Utilisation]) -> Reading[int]:
    if not isinstance(utilisation, Known):
        return Known(0) if others_percent else Unreadable("whether the GPU is idle can't be read")
    busy_percent = utilisation.value.gpu_percent
    # Both are read over other stretches: others account for it when they have the better half of it.
    if 2 * others_percent >= busy_percent:
        return Known(0)
    return Unreadable(f"the GPU is {busy_percent} % busy, and no sample says with what")
