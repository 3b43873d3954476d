"""What a probe child runs: the calls that can hang, answered one at a time over a socket.

JSON lines on one descriptor. A request is `{"id": 1, "op": "host", "args": {}}`; its answer any number
of `{"id": 1, "parts": [...]}`, then `{"id": 1, "done": true}` or `{"id": 1, "error": {...}}`. The real or
the simulated NVML is chosen here, because observe and simulation never import each other. It may
hang for ever: the parent's end (`observe.probe`) has the deadlines. It never writes anything but
its answers, and ends with its parent: at the socket's end it leaves at once, even while a call
hangs. It imports neither pydantic nor structlog, rich or click: each costs megabytes.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from reclaimerd.daemon.worker_desks import Desk, NvmlDesk, ProcfsDesk
from reclaimerd.errors import DriverAbsentError, ReclaimerdError, UnsuitableHostError

ROLES = ("nvml", "procfs", "kubelet", "cluster", "cri")
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_WAIT_SECONDS = 0.02
_FULL_BYTES = 64 * 1024
_STAT_START_TICKS = 19  # proc(5) stat, field 22, counted after the comm's last bracket
_USAGE = "usage: worker --role nvml|procfs|kubelet|cluster|cri --fd N [--simulate DIR]"


def command_for(role: str, simulate: Path | None = None) -> Callable[[int], list[str]]:
    """Return what starts a worker of this role on a given descriptor, as isolated as we are ourselves.

    Never with the current directory on the import path; the environment is inherited unchanged.
    """
    isolation = "-I" if sys.flags.isolated else "-P"
    tail = [] if simulate is None else ["--simulate", str(simulate)]

    def command(fd: int) -> list[str]:
        head = [sys.executable, isolation, "-m", "reclaimerd.daemon.worker"]
        return [*head, "--role", role, "--fd", str(fd), *tail]

    return command


class Channel:
    """Our end of the socket; answers may come from several threads.

    Parts wait at most 20 ms for company (a wake-up of the parent costs more than a look), and a thread
    of its own sends them: when the next look hangs, the parent must know which were answered.
    """

    __slots__ = ("_lines", "_lock", "_number", "_parts", "_size", "_sock", "_waiting")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._lines = sock.makefile("rb")
        self._number: object = None
        self._parts: list[str] = []
        self._size = 0
        self._waiting = threading.Event()
        threading.Thread(target=self._send_waiting, daemon=True).start()

    def send(self, message: object) -> None:
        """Write one line, and the parts that wait before it."""
        self._flush(_ENCODER.encode(message) + "\n")

    def send_part(self, number: object, part: object) -> None:
        """Write one part of an answer, now or within 20 ms."""
        text = _ENCODER.encode(part)
        with self._lock:
            self._number = number
            self._parts.append(text)
            self._size += len(text)
            is_full = self._size > _FULL_BYTES
        if is_full:
            self._flush()
        elif not self._waiting.is_set():
            self._waiting.set()

    def _flush(self, line: str = "") -> None:
        """Send the parts that wait as one line, and `line` after it; a parent that is gone ends us."""
        try:
            with self._lock:
                if self._parts:
                    line = (
                        f'{{"id":{_ENCODER.encode(self._number)},"parts":[{",".join(self._parts)}]}}\n{line}'
                    )
                    self._parts.clear()
                    self._size = 0
                self._sock.sendall(line.encode())
        except OSError:
            os._exit(0)

    def _send_waiting(self) -> NoReturn:
        while True:
            self._waiting.wait()
            self._waiting.clear()
            time.sleep(_WAIT_SECONDS)
            self._flush()

    def receive(self) -> Mapping[str, object] | None:
        """Return the next request, None at the end; raises ValueError for what is no JSON object."""
        line = self._lines.readline()
        if not line:
            return None
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a request must be an object")  # noqa: TRY004  # one kind of error for the border
        return message


def _leave_at_end(fd: int) -> NoReturn:
    """End this process when the parent's end closes, whatever the main thread is stuck in."""
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    while True:
        if poll.poll():
            os._exit(0)


def _error(error: Exception) -> dict[str, str]:
    """Return an error as the parent reads it: its kind decides what the daemon says of the driver."""
    match error:
        case DriverAbsentError():
            kind = "driver_absent"
        case UnsuitableHostError():
            kind = "unsuitable"
        case _:
            kind = "failed"
    if isinstance(error, ReclaimerdError):
        return {"kind": kind, "message": error.message, "mend": error.mend}
    return {"kind": kind, "message": f"{type(error).__name__}: {error}", "mend": ""}


def serve(channel: Channel, desk: Desk) -> None:
    """Answer requests until the parent's end closes."""
    while (request := channel.receive()) is not None:
        number = request.get("id")
        args = request.get("args")

        def emit(part: object, number: object = number) -> None:
            channel.send_part(number, part)

        try:
            desk.answer(str(request.get("op")), args if isinstance(args, dict) else {}, emit)
        except Exception as error:  # noqa: BLE001  # the border: whatever a vendor's library raises becomes a value
            channel.send({"id": number, "error": _error(error)})
        else:
            channel.send({"id": number, "done": True})


def hello() -> dict[str, object]:
    """Return who we are: the parent may not read a process's start ticks itself."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    ticks = int(stat.rpartition(")")[2].split()[_STAT_START_TICKS])
    return {"pid": os.getpid(), "start_ticks": ticks, "boot_id": boot_id}


def _desk(role: str, simulate: str | None) -> Desk:
    """Return the desk of this role; only what it needs is imported."""
    if role == "procfs":
        from reclaimerd.observe.known_looks import SentLooks  # noqa: PLC0415  # by role, to save memory
        from reclaimerd.observe.processes import ProcessReader  # noqa: PLC0415  # the same

        return ProcfsDesk(ProcessReader(), SentLooks())
    if role == "kubelet":
        from reclaimerd.daemon.worker_kubelet import KubeletDesk  # noqa: PLC0415  # by role, to save memory

        return KubeletDesk()
    if role == "cluster":
        from reclaimerd.daemon.worker_cluster import ClusterDesk  # noqa: PLC0415  # by role, to save memory

        return ClusterDesk()
    if role == "cri":
        from reclaimerd.daemon.worker_cri import CriDesk  # noqa: PLC0415  # by role, to save memory

        return CriDesk()
    if simulate is not None:
        from reclaimerd.simulation.nvml import SimulatedNvml  # noqa: PLC0415  # by role, to save memory

        return NvmlDesk(lambda: SimulatedNvml(Path(simulate)))
    from reclaimerd.observe.nvml import RealNvml  # noqa: PLC0415  # by role, to save memory

    return NvmlDesk(RealNvml)


def main() -> None:
    """Serve one role on an inherited descriptor until its other end closes."""
    words = sys.argv[1:]
    given = dict(zip(words[::2], words[1::2], strict=False))
    role, fd = given.get("--role", ""), given.get("--fd", "")
    if role not in ROLES or not fd.isdigit() or len(words) % 2:
        sys.exit(_USAGE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us
    try:
        channel = Channel(socket.socket(fileno=int(fd)))
    except OSError as error:
        sys.exit(f"--fd {fd}: not a socket that we inherited: {error}")
    threading.Thread(target=_leave_at_end, args=(int(fd),), daemon=True).start()
    channel.send({"hello": hello()})
    serve(channel, _desk(role, given.get("--simulate")))


if __name__ == "__main__":
    main()
