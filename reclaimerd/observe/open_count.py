"""How many open files on the driver's nodes can be seen: what its module counts beyond has no visible owner.

Open files and not descriptors: a forked child and a duplicate share one, and the module counts it once
(kcmp(2) tells). Too few only makes a gate refuse; too many would hide somebody. Mappings whose
descriptor was closed are not counted, for that reason, nor descriptors that are a path alone (O_PATH):
anybody can make them, and the driver hears nothing of it.
"""

import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.open_nodes import Places
from reclaimerd.observe.statx import order_of_files

MOST_FILES = 8192
"""Past these the count is not made: a flood of descriptors costs a bounded amount."""

_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.MULTILINE)
"""proc(5), fdinfo: how the file was opened, in octal."""

_Descriptor = tuple[int, int]
"""A task and a descriptor of its table."""


def descriptors_of(places: Places) -> dict[DeviceNumber, list[_Descriptor]]:
    """Return the descriptors among places, by device; pure."""
    found: dict[DeviceNumber, list[_Descriptor]] = {}
    for place, device in places.items():
        match place.split(b"/"):
            case [pid, b"fd", number]:
                found.setdefault(device, []).append((int(pid), int(number)))
            case [_, b"task", tid, b"fd", number]:
                found.setdefault(device, []).append((int(tid), int(number)))
            case _:
                continue
    return found


def count_files(descriptors: Mapping[DeviceNumber, Iterable[_Descriptor]]) -> dict[DeviceNumber, int]:
    """Return how many open files these descriptors are, by device; one that vanishes counts for nothing.

    Raises OSError where the kernel doesn't compare descriptors, or there are too many.
    """
    wanted = {device: list(each) for device, each in descriptors.items()}
    if sum(map(len, wanted.values())) > MOST_FILES:
        raise OSError(0, f"over {MOST_FILES} descriptors are open on the driver's nodes")
    return {device: _distinct(each) for device, each in wanted.items()}


def _distinct(descriptors: list[_Descriptor]) -> int:
    ordered = sorted(filter(_is_open, descriptors), key=functools.cmp_to_key(_order))
    return sum(index == 0 or _order(ordered[index - 1], one) != 0 for index, one in enumerate(ordered))


def _is_open(one: _Descriptor) -> bool:
    """Tell whether a descriptor is there and is an open file of the driver's; raises OSError."""
    task, number = one
    try:
        text = Path(f"/proc/{task}/fdinfo/{number}").read_text(encoding="ascii", errors="replace")
        found = _FLAGS.search(text)  # none: nothing says that the driver has opened it
        return found is not None and not int(found[1], 8) & os.O_PATH and order_of_files(one, one) == 0
    except (FileNotFoundError, ProcessLookupError):
        return False


def _order(one: _Descriptor, other: _Descriptor) -> int:
    """Return how two descriptors stand in the kernel's order; one that vanished is taken for the other."""
    try:
        return order_of_files(one, other)
    except ProcessLookupError:
        return 0
