"""What the procfs worker answers of the kernel's own view: tasks and stacks, a search of them, its log.

Runs in `daemon.worker` alone: any of these reads may hang for ever. The desk hears which process is
looked at before it is, so that the parent can tell which one made us hang.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.kernel_facts import KernelQuestion, read_kernel_facts
from reclaimerd.observe.kernel_log import read_kernel_log
from reclaimerd.observe.kernel_scan import read_driver_devices, scan_leaving
from reclaimerd.observe.kernel_stacks import read_kernel_look
from reclaimerd.observe.kernel_threads import read_busy_threads
from reclaimerd.observe.open_nodes import NodeFinder

Args = Mapping[str, object]
Emit = Callable[[object], None]


def answer_kernel(op: str, args: Args, emit: Emit, at: Callable[[int], None]) -> None:
    """Answer kernel, kernel_scan, kernel_log, kernel_facts and kernel_threads; ValueError for another.

    Of kernel and kernel_threads the arguments are pids, of kernel_scan seconds and devices; those of
    kernel_facts make a KernelQuestion. `at` hears each pid before it is looked at.
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
        case "kernel_facts":
            emit({"kernel_facts": to_wire(read_kernel_facts(_question(args, without), at))})
        case "kernel_threads":
            busy, skipped = read_busy_threads(Path("/proc"), _whole_numbers(args.get("pids")))
            emit({"busy": to_wire(busy), "skipped": list(skipped)})
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


def _question(args: Args, without: frozenset[int]) -> KernelQuestion:
    root, sys_root, addresses = args.get("root"), args.get("sys_root"), args.get("addresses")
    return KernelQuestion(
        addresses=tuple(one for one in addresses if isinstance(one, str))
        if isinstance(addresses, list)
        else (),
        devices=tuple(sorted(_devices(args))),
        ours=tuple(_whole_numbers(args.get("ours"))),
        root=root if isinstance(root, int) else None,
        sys_root=Path(sys_root) if isinstance(sys_root, str) else None,
        without=without,
    )


def _driver_finder(args: Args) -> NodeFinder:
    """Return a finder for every device of the driver and those of the question (a simulated host's)."""
    finder = NodeFinder(b"/proc/")
    finder.watch(set(read_driver_devices()) | _devices(args))
    return finder


def _devices(args: Args) -> set[DeviceNumber]:
    devices = set()
    pairs = args.get("devices")
    for pair in pairs if isinstance(pairs, list) else ():
        match pair:
            case [int(major), int(minor)]:
                devices.add(DeviceNumber(major, minor))
            case _:
                raise ValueError("`devices` must be pairs of major and minor")
    return devices


def _whole_numbers(value: object) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []
