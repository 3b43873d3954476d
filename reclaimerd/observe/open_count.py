"""How many open files on the driver's nodes can be seen: what its module counts beyond has no visible owner.

Open files and not descriptors: a forked child and a duplicate share one, and the module counts it once
(kcmp(2) tells). Too few only makes a gate refuse; too many would hide somebody. Mappings whose
descriptor was closed are not counted, for that reason.
"""

import functools
from collections.abc import Iterable, Mapping

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.open_nodes import Places
from reclaimerd.observe.statx import order_of_files

MOST_FILES = 8192
"""Past these the count is not made: a flood of descriptors costs a bounded amount."""

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
    try:
        return order_of_files(one, one) == 0
    except ProcessLookupError:
        return False


def _order(one: _Descriptor, other: _Descriptor) -> int:
    """Return how two descriptors stand in the kernel's order; one that vanished is taken for the other."""
    try:
        return order_of_files(one, other)
    except ProcessLookupError:
        return 0
