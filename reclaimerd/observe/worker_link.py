"""One worker process and the socket to it: at most one request in flight, never a wait.

It knows the protocol (see `daemon.worker`) and nothing of deadlines: those are `observe.probe`'s.
Of the worker itself it reads only `status` and `schedstat`, which can't hang.
"""

import asyncio
import json
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from reclaimerd.host.child import Child, spawn
from reclaimerd.model.identity import ProcessRef
from reclaimerd.observe.answers import Failed, SilentCause

ANSWER_LIMIT_BYTES = 64 * 1024 * 1024
"""A worker that says more than this in one answer is out of order."""
_CHUNK_BYTES = 256 * 1024
_OVERLOADED_SHARE = 0.5
"""Of the time it was silent, what a worker must have waited for a CPU to be called overloaded."""


@dataclass(slots=True, eq=False)
class Pending:
    """One request in flight; `ended` gets None for a whole answer. Times are monotonic seconds.

    `at` is the process that a search says it is looking at, `moved_at` when that or a part last came.
    """

    number: int
    op: str
    args: Mapping[str, object]
    sent_at: float
    ended: "asyncio.Future[Failed | None]"
    parts: list[Any] = field(default_factory=list)
    at: int | None = None
    moved_at: float | None = None
    ended_at: float = 0.0
    size_bytes: int = 0

    def is_same(self, op: str, args: Mapping[str, object]) -> bool:
        """Tell whether an answer to this answers that."""
        return self.op == op and self.args == args

    def end(self, failed: Failed | None, now: float) -> None:
        """Note the answer's end, once."""
        if not self.ended.done():
            self.ended_at = now
            self.ended.set_result(failed)

    def take(self, part: object, now: float) -> None:
        """Keep one part; a sign of progress is not a part."""
        match part:
            case {"progress": int(pid)}:
                if pid != self.at:
                    self.at, self.moved_at = pid, now
            case _:
                self.parts.append(part)
                self.moved_at = now


@dataclass(frozen=True, slots=True)
class CpuTime:
    """What schedstat says of a worker's main thread: seconds on a CPU, seconds waiting for one."""

    ran_seconds: float
    waited_seconds: float


class Link:
    """The parent's end of one worker."""

    __slots__ = (
        "_buffer", "_clock", "_cpu_at_send", "_number", "_sock",
        "child", "hello_at", "lost", "pending", "ref",
    )  # fmt: skip

    def __init__(self, child: Child, sock: socket.socket, clock: Callable[[], float]) -> None:
        self.child = child
        self.ref: ProcessRef | None = None
        self.hello_at: float | None = None
        self.pending: Pending | None = None
        self.lost = ""
        self._sock = sock
        self._clock = clock
        self._buffer = bytearray()
        self._number = 0
        self._cpu_at_send = CpuTime(0.0, 0.0)
        asyncio.get_running_loop().add_reader(sock, self._receive)

    @classmethod
    def start(cls, command: Callable[[int], list[str]], clock: Callable[[], float]) -> Self:
        """Start a worker; raises OSError when it can't be started."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                child = spawn(
                    command(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdout=subprocess.DEVNULL,  # ours may be a command's JSON
                )
            except (OSError, ValueError):
                ours.close()
                raise
        ours.setblocking(False)
        return cls(child, ours, clock)

    def send(self, op: str, args: Mapping[str, object]) -> Pending:
        """Send one request; nothing may be in flight. A request that does not fit loses the link."""
        self._number += 1
        self._cpu_at_send = self.read_cpu_time()
        now = self._clock()
        ended = asyncio.get_running_loop().create_future()
        self.pending = Pending(self._number, op, args, now, ended, moved_at=None)
        self._write(self._number, op, args)
        return self.pending

    def send_unasked(self, op: str, args: Mapping[str, object]) -> None:
        """Send a request whose answer nobody needs."""
        self._write(0, op, args)

    def _write(self, number: int, op: str, args: Mapping[str, object]) -> None:
        line = json.dumps({"id": number, "op": op, "args": args}, separators=(",", ":")).encode() + b"\n"
        try:
            sent = self._sock.send(line)
        except OSError as error:
            self.lose(f"its socket is closed ({error.strerror})")
        else:
            if sent < len(line):
                self.lose("a request was too long for its socket")

    def _receive(self) -> None:
        try:
            chunk = self._sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(f"its socket failed ({error.strerror})")
            return
        if not chunk:
            self.lose("it ended")
            return
        self._buffer += chunk
        if b"\n" in chunk:
            *lines, rest = self._buffer.split(b"\n")
            self._buffer = rest
            for line in lines:
                if not self.lost:
                    self._take(bytes(line))
        if len(self._buffer) > ANSWER_LIMIT_BYTES:
            self.lose("it answered without end")

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        now, pending = self._clock(), self.pending
        match message:
            case {"hello": {"boot_id": str(boot_id), "pid": int(pid), "start_ticks": int(ticks)}}:
                self.ref, self.hello_at = ProcessRef(boot_id, pid, ticks), now
            case {"id": int(number)} if pending is None or number != pending.number:
                pass  # the answer to a request that nobody waits for
            case {"id": int(), "parts": [*parts]} if pending is not None:
                pending.size_bytes += len(line)
                if pending.size_bytes > ANSWER_LIMIT_BYTES:
                    self.lose("it answered without end")
                for part in parts:
                    pending.take(part, now)
            case {"id": int(), "done": True} if pending is not None:
                pending.end(None, now)
            case {"id": int(), "error": {"kind": str(kind), "message": str(text), **rest}} if (
                pending is not None
            ):
                pending.end(Failed(kind, text, str(rest.get("mend", ""))), now)
            case _:
                self.lose("it answered garbage")

    def lose(self, why: str) -> None:
        """Note that this worker is of no use any more, and why (the first reason stays)."""
        if not self.lost:
            self.lost = why
            asyncio.get_running_loop().remove_reader(self._sock)
        if self.pending is not None:
            self.pending.end(Failed("failed", why), self._clock())

    def close(self) -> None:
        """Close our end: a worker that still runs then leaves at once."""
        self.lose("it was closed")
        self._sock.close()

    def read_cpu_time(self) -> CpuTime:
        """Return the worker's CPU time so far; zeros when the kernel does not tell."""
        with suppress(OSError, ValueError, IndexError):
            words = Path(f"/proc/{self.child.pid}/schedstat").read_text(encoding="ascii").split()
            return CpuTime(int(words[0]) / 1e9, int(words[1]) / 1e9)
        return CpuTime(0.0, 0.0)

    def is_runnable(self) -> bool:
        """Tell whether the worker's main thread runs or waits for a CPU, and for nothing else."""
        with suppress(OSError):
            status = Path(f"/proc/{self.child.pid}/status").read_text(encoding="utf-8", errors="replace")
            return "\nState:\tR" in status
        return False

    def read_cause(self) -> SilentCause:
        """Return why the worker does not answer the request in flight."""
        with suppress(OSError):
            status = Path(f"/proc/{self.child.pid}/status").read_text(encoding="utf-8", errors="replace")
            if "\nState:\tT" in status or "\nState:\tt" in status:
                return SilentCause.STOPPED
        if self.pending is not None:
            silent_for = self._clock() - self.pending.sent_at
            waited = self.read_cpu_time().waited_seconds - self._cpu_at_send.waited_seconds
            if waited > _OVERLOADED_SHARE * silent_for:
                return SilentCause.OVERLOADED
        return SilentCause.UNRESPONSIVE
