"""What each role of a probe worker answers: `nvml` the driver, `procfs` other processes.

One request at a time, and any of them may hang for ever: this runs in `daemon.worker` alone, never
in the main process.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.ports import NvmlPort
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_EXITING,
    PF_POSTCOREDUMP,
)

if TYPE_CHECKING:
    from reclaimerd.observe.known_looks import SentLooks
    from reclaimerd.observe.place_records import PlaceRecords
    from reclaimerd.observe.processes import ProcessReader
    from reclaimerd.observe.program_signs import SignReader

Args = Mapping[str, object]
Emit = Callable[[object], None]

_BEAT_SECONDS = 0.1


class Desk(Protocol):
    """What one role answers."""

    def answer(self, op: str, args: Args, emit: Emit) -> None:
        """Answer one request in parts; raises ValueError for one that it does not know."""
        ...


class NvmlDesk:
    """Role nvml: the driver, opened at the first question and let go on `close`."""

    __slots__ = ("_open", "_port")

    def __init__(self, open_port: Callable[[], NvmlPort]) -> None:
        self._open = open_port
        self._port: NvmlPort | None = None

    def answer(self, op: str, args: Args, emit: Emit) -> None:
        """Answer `host` (utilisation), `host_twice` (apart_ms), `reset_facts` and `close`."""
        match op:
            case "host" if args.get("utilisation") is True:
                emit(to_wire(self._opened().read_host(utilisation=True)))
            case "host":
                emit(self._host())
            case "host_twice":
                emit(self._host())
                time.sleep(_number(args, "apart_ms") / 1000)
                emit(self._host())
            case "reset_facts":
                for facts in self._opened().read_reset_facts():
                    emit(to_wire(facts))
            case "close":
                if self._port is not None:
                    self._port.close()
                    self._port = None
            case _:
                raise ValueError(f"the nvml worker knows no {op!r}")

    def _host(self) -> object:
        return to_wire(self._opened().read_host())

    def _opened(self) -> NvmlPort:
        if self._port is None:
            self._port = self._open()
        return self._port


class Heartbeat:
    """Says where a long search stands, from a thread of its own: the search itself may be stuck there."""

    __slots__ = ("_at", "_emit", "_stop", "_thread")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._at: int | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._stop.set()
        self._thread.join()

    def at(self, pid: int) -> None:
        """Note the process that is looked at next (cheap: called for each)."""
        self._at = pid

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            if self._at is not None:
                self._emit({"progress": self._at})


class ProcfsDesk:
    """Role procfs: reads of other processes that may hang, one process at a time."""

    __slots__ = ("_reader", "_records", "_sent", "_signs")

    def __init__(self, reader: "ProcessReader", sent: "SentLooks") -> None:
        self._reader = reader
        self._sent = sent
        self._records: PlaceRecords | None = None
        self._signs: SignReader | None = None

    def answer(self, op: str, args: Args, emit: Emit) -> None:
        """Answer one question about other processes, or about the cgroups and containers they are in."""
        match op:
            case "watch":
                self._reader.watch_devices(_devices(args))
            case "look":
                self._looks(args, emit)
            case "scan":
                self._scan(args, emit)
            case "descendants":
                # Lazy: the nvml worker runs this same file and never needs the scan.
                from reclaimerd.observe.holders import descendants  # noqa: PLC0415

                emit({"pids": list(descendants(_number(args, "pid")))})
            case "start_of":
                emit(self._start_of(_number(args, "pid")))
            case "stack":
                emit({"stack": read_stack(_number(args, "pid"))})
            case "kernel" | "kernel_scan" | "kernel_log" | "kernel_facts" | "kernel_threads":
                from reclaimerd.daemon.worker_kernel import answer_kernel  # noqa: PLC0415  # lazy as above

                with Heartbeat(emit) as beat:
                    answer_kernel(op, args, emit, beat.at)
            case "signs":
                self._answer_signs(args, emit)
            case "hidden":
                from reclaimerd.daemon.worker_signs import answer_hidden  # noqa: PLC0415  # lazy as above

                emit(answer_hidden(_numbers(args, "pids")))
            case _:
                self._answer_of_places(op, args, emit)

    def _answer_of_places(self, op: str, args: Args, emit: Emit) -> None:
        """Answer what is not about one process: program files, callers, cgroups, names."""
        match op:
            case "host_files":
                from reclaimerd.observe.processes import read_host_files  # noqa: PLC0415  # lazy as above

                found = read_host_files(_texts(args, "globs"))
                emit({"files": [[path, file.device, file.inode] for path, file in found.items()]})
            case "peer" | "members":
                emit(_of_peers(op, args))
            case "freezers":
                from reclaimerd.observe.freezers import read_freezers  # noqa: PLC0415  # lazy as above

                emit(read_freezers(_texts(args, "cgroups")))
            case "names" | "scontrol" | "slurm":
                if self._records is None:
                    from reclaimerd.observe.place_records import PlaceRecords  # noqa: PLC0415  # lazy as above

                    self._records = PlaceRecords()
                for part in self._records.answer(op, args):
                    emit(part)
            case _:
                raise ValueError(f"the procfs worker knows no {op!r}")

    def _answer_signs(self, args: Args, emit: Emit) -> None:
        from reclaimerd.daemon.worker_signs import answer_signs  # noqa: PLC0415  # lazy as above
        from reclaimerd.observe.program_signs import SignReader  # noqa: PLC0415  # the same

        self._signs = self._signs or SignReader()
        with Heartbeat(emit) as beat:
            answer_signs(self._signs, args, emit, beat.at)

    def _looks(self, args: Args, emit: Emit) -> None:
        whole, known = frozenset(_numbers(args, "whole")), _known(args)
        for pid in _numbers(args, "pids"):
            emit(self._look(pid, known.get(pid), whole=pid in whole))

    def _look(self, pid: int, known: int | None, *, whole: bool) -> object:
        try:
            return self._sent.told(self._reader.look(pid, whole=whole), known)
        except ProcessLookupError:
            return {"pid": pid, "gone": True}
        except (OSError, ValueError) as error:
            return {"pid": pid, "unreadable": f"{type(error).__name__}: {error}"}

    def _scan(self, args: Args, emit: Emit) -> None:
        from reclaimerd.observe.holders import scan  # noqa: PLC0415  # lazy as above

        root = None if args.get("root") is None else _number(args, "root")
        with Heartbeat(emit) as beat:
            result = scan(
                self._reader,
                root=root,
                deep=args.get("deep") is True,
                progress=beat.at,
                without=frozenset(_numbers(args, "without")),
            )
        emit({"scan": to_wire(result)})

    def _start_of(self, pid: int) -> object:
        try:
            reading = self._reader.look(pid, whole=True).reading
        except ProcessLookupError:
            return {"gone": True, "all_exiting": True}
        leaving = [
            task.state in DEAD_STATES or bool(task.flags & (PF_EXITING | PF_POSTCOREDUMP))
            for task in reading.tasks
        ]
        return {"start_ticks": reading.ref.start_ticks, "all_exiting": all(leaving)}


def _of_peers(op: str, args: Args) -> object:
    from reclaimerd.observe.peers import read_members, read_peer_place  # noqa: PLC0415  # lazy as above

    if op == "peer":
        return read_peer_place(_number(args, "pid"))
    controller, path = _texts(args, "cgroup")
    return {"pids": list(read_members(controller, path))}


def read_stack(pid: int) -> str:
    """Return where in the kernel each task of a process sleeps (root only; "" when nothing shows)."""
    lines = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                wchan = (task / "wchan").read_text(encoding="ascii", errors="replace")
                stack = (task / "stack").read_text(encoding="ascii", errors="replace")
                frames = [line.split(" ", 1)[-1].split("+")[0] for line in stack.splitlines()]
                lines.append(f"task {task.name}: {wchan or '-'}: {' < '.join(frames) or 'no stack'}")
    return "; ".join(lines)


def _number(args: Args, key: str) -> int:
    value = args.get(key)
    if isinstance(value, int):
        return value
    raise ValueError(f"`{key}` must be a whole number")


def _list(args: Args, key: str) -> list[object]:
    value = args.get(key)
    if isinstance(value, list):
        return value
    raise ValueError(f"`{key}` must be a list")


def _numbers(args: Args, key: str) -> list[int]:
    return [value for value in _list(args, key) if isinstance(value, int)]


def _texts(args: Args, key: str) -> list[str]:
    return [value for value in _list(args, key) if isinstance(value, str)]


def _known(args: Args) -> dict[int, int]:
    """Return the number of the look that the parent has of each pid; none where it says nothing."""
    known = {}
    for pair in _list(args, "known") if "known" in args else ():
        match pair:
            case [int(pid), int(number)]:
                known[pid] = number
            case _:
                raise ValueError("`known` must be pairs of a pid and a number")
    return known


def _devices(args: Args) -> list[DeviceNumber]:
    found = []
    for pair in _list(args, "devices"):
        match pair:
            case [int(major), int(minor)]:
                found.append(DeviceNumber(major, minor))
            case _:
                raise ValueError("`devices` must be pairs of major and minor")
    return found
