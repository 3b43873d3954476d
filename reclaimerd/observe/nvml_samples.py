"""The driver's samples of what each process uses of one GPU, through pynvml.

The module is handed in by `observe.nvml`, the one door to it.
"""

import time
from collections.abc import Iterable
from types import ModuleType

from reclaimerd.host.gpu_shares import Samples
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe import nvml_quirks as quirks

LEAST_SECONDS = 2.0
"""Shorter, and a GPU may have no sample at all: it takes one to six a second (nvml.h)."""
FIRST_SECONDS = 10.0
MOST_SECONDS = 60.0
_MOST_PERCENT = 100
_SUCCESS = 0
_TRIES = 2
_UNITS = ("smUtil", "memUtil", "encUtil", "decUtil")


def sampled_seconds(since_last_seconds: float | None) -> float:
    """Return how far back to ask: to the look before and a little more; None: there was none.

    The driver gives one average for each process over the time asked for (measured on an H200, driver
    580): the longer that is, the less a short burst shows.
    """
    if since_last_seconds is None:
        return FIRST_SECONDS
    return min(max(since_last_seconds + 1.0, LEAST_SECONDS), MOST_SECONDS)


def read_samples(module: ModuleType, handle: object, mig: Reading[bool], seconds: float) -> Reading[Samples]:
    """Return what each sampled process used over the last so many seconds, in percent.

    It is the most of multiprocessors, memory, encoder and decoder: who only encodes a video is at work.
    Raises StaleConnectionError where our own connection is at fault.
    """
    if mig == Known(value=True):
        return Absent("not offered while MIG is enabled")
    since = int((time.time() - seconds) * 1_000_000)
    number: int | None = None
    for _ in range(_TRIES):  # nvidia-ml-py leaves no room for one that comes between its two calls
        try:
            return Known(_most_of_each(module.nvmlDeviceGetProcessUtilization(handle, since), since))
        except (module.NVMLError, module.NVMLLibraryMismatchError) as error:
            number, text = quirks.error_number(error), quirks.error_text(error)
        # "Success" with no sample is an error of value 0 in nvidia-ml-py.
        if number in {_SUCCESS, quirks.NOT_FOUND}:
            return Known({})
        if number in quirks.STALE:
            raise quirks.StaleConnectionError(text)
        if number != quirks.INSUFFICIENT_SIZE:
            break
    return Absent(text) if number in quirks.NOT_OFFERED else Unreadable(text)


def _most_of_each(rows: Iterable[object], since: int) -> dict[int, int | None]:
    """Return the largest sample of each pid; one over 100 is none (zombies among the driver's clients)."""
    most: dict[int, int | None] = {}
    for row in rows:
        pid, percent = int(getattr(row, "pid", 0)), max(int(getattr(row, name, 0)) for name in _UNITS)
        if int(getattr(row, "timeStamp", 0)) <= since:
            continue
        before = most.get(pid, 0)
        most[pid] = None if before is None or percent > _MOST_PERCENT else max(before, percent)
    return most
