"""What the procfs worker answers of the kernel's own view: tasks and stacks, a search of them, its log.

Runs in `daemon.worker` alone: any of these reads may hang for ever. The desk hears which process is
looked at before it is, so that the parent can tell which one made us hang.
"""

from collections.abc import Callable, Mapping

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.kernel_log import read_kernel_log
from reclaimerd.observe.kernel_scan import read_driver_devices, scan_leaving
from reclaimerd.observe.kernel_stacks import read_kernel_look
from reclaimerd.observe.open_nodes import NodeFinder

Args = Mapping[str, object]
Emit = Callable[[object], None]


def answer_kernel(op: str, args: Args, emit: Emit, at: Callable[[int], None]) -> None:
    """Answer kernel (pids), kernel_scan (seconds, devices) and kernel_log; ValueError for another.

    `at` hears each pid before it is looked at.
    """
    without = frozenset(_whole_numbers(args.get("without")))
    match op:
        case "kernel":
            for pid in _whole_numbers(args.get("pids")):
                at(pid)
                emit(_look(pid, left_out=pid in without))
        case "kernel_scan":
            seconds = args.get("seconds")
            result = scan_leaving(
                _driver_finder(args),
                progress=at,
                without=without,
                seconds=float(seconds) if isinstance(seconds, int | float) else 8.0,
            )
            emit({"kernel_scan": to_wire(result)})
        case "kernel_log":
            emit({"kernel_log": to_wire(read_kernel_log())})
        case _:
            raise ValueError(f"the procfs worker knows no {op!r}")


def _look(pid: int, *, left_out: bool) -> object:
    if left_out:
        return {"pid": pid, "unreadable": "it did not answer before"}
    try:
        return {"pid": pid, "kernel": to_wire(read_kernel_look(pid))}
    except ProcessLookupError:
        return {"pid": pid, "gone": True}
    except (OSError, ValueError) as error:
        return {"pid": pid, "unreadable": f"{type(error).__name__}: {error}"}


def _driver_finder(args: Args) -> NodeFinder:
    """Return a finder for every device of the driver and those of the question (a simulated host's)."""
    devices = set(read_driver_devices())
    pairs = args.get("devices")
    for pair in pairs if isinstance(pairs, list) else ():
        match pair:
            case [int(major), int(minor)]:
                devices.add(DeviceNumber(major, minor))
            case _:
                raise ValueError("`devices` must be pairs of major and minor")
    finder = NodeFinder(b"/proc/")
    finder.watch(devices)
    return finder


def _whole_numbers(value: object) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []
