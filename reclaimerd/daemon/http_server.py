"""HTTP/1.1 on the control socket: h11 parses, asyncio carries, and every bound is here.

Knows nothing of the daemon: it hands a call to a function and writes what it returns. One call per
connection; a slow or flooding peer is cut, and a traceback never leaves the process. Who goes away
while lines are streamed to it is noticed at once, and what made the lines is told to end.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import h11

from reclaimerd.daemon.access import Peer, read_peer
from reclaimerd.daemon.limits import CALLS_PER_SECOND, MOST_CONNECTIONS, Limits
from reclaimerd.errors import ExitCode
from reclaimerd.record import logs

MOST_BODY_BYTES = 64 * 1024
MOST_HEAD_BYTES = 16 * 1024
READ_SECONDS = 5.0
WRITE_SECONDS = 10.0
CLOSE_SECONDS = 1.0
WORKING_SECONDS = 1.0
"""A peer takes 2 s of silence for a daemon that is not there: before that it hears that we work on it."""
_READ_BYTES = 4096
"""h11 bounds a head only while it is incomplete: pieces must be small beside that bound."""
Body = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, parsed; `body` is {} where there is none."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Body
    peer: Peer


@dataclass(frozen=True, slots=True)
class Answer:
    """One JSON object with its HTTP status; `lines` streams NDJSON instead, `text` is no JSON at all."""

    status: int
    body: Body
    lines: AsyncGenerator[Body, None] | None = None
    text: str | None = None
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Handle = Callable[[Call], Awaitable[Answer]]


def refusal(status: int, error: str, mend: str = "", exit_code: int | None = None) -> Answer:
    """Return an error as the API words it."""
    body: dict[str, object] = {"error": error, "mend": mend}
    if exit_code is not None:
        body["exit_code"] = exit_code
    return Answer(status, body)


def listen(path: Path, mode: int, gid: int | None) -> socket.socket:
    """Return a listening socket at `path`; a stale one in its place is removed.

    A stuck old process keeps its listener alive, so binding anew, not locking, is what works.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            path.unlink()
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        if gid is not None and os.geteuid() == 0:
            os.chown(path, 0, gid)
        path.chmod(mode)
        listener.listen(MOST_CONNECTIONS)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class HttpServer:
    """Serves calls on one listening socket."""

    __slots__ = ("_handle", "_limits", "_open", "_server")

    def __init__(self, handle: Handle, limits: Limits | None = None) -> None:
        self._handle = handle
        self._limits = Limits(time.monotonic) if limits is None else limits
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Begin to serve, on a listener of either family; over TCP a peer is nobody."""
        # start_unix_server takes the socket's file away at the end (Python 3.13): it may be the manager's.
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=MOST_HEAD_BYTES)

    async def close(self) -> None:
        """Stop serving and cut what is open."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.transport.abort()
        tasks = [task for task in self._open.values() if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = read_peer(writer.get_extra_info("socket"))
        except OSError:
            writer.transport.abort()
            return
        in_time = self._limits.enter(peer.uid, peer.groups)
        if in_time is None:
            peer.close()
            writer.transport.abort()
            return
        self._open[writer] = asyncio.current_task()
        try:
            await self._talk((reader, writer), peer, in_time=in_time)
        except (OSError, TimeoutError, h11.LocalProtocolError, asyncio.CancelledError):
            # Cancelled is a call at our own end; asyncio would print it as a fault of its own.
            writer.transport.abort()
        finally:
            del self._open[writer]
            self._limits.leave(peer.uid, peer.groups)
            peer.close()
            writer.close()

    async def _talk(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], peer: Peer, *, in_time: bool
    ) -> None:
        reader, writer = streams
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)
        method = ""
        try:
            async with asyncio.timeout(READ_SECONDS):
                call = await _read_call(http, reader, peer)
        except (h11.RemoteProtocolError, ValueError, RecursionError) as error:
            answer = refusal(400, f"this is no request that we understand: {error}", "", ExitCode.USAGE)
        else:
            method = call.method
            answer = await self._answered_in_time(http, writer, call) if in_time else _too_fast()
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        if answer.lines is None:
            await _write_whole(http, writer, answer, method)
            return
        async with aclosing(answer.lines) as lines:
            await _write_lines(http, streams, lines)

    async def _answered_in_time(
        self, http: h11.Connection, writer: asyncio.StreamWriter, call: Call
    ) -> Answer:
        """Return the answer; for one that takes longer, 102 (RFC 2518, 10.1) goes ahead of it."""
        coming = asyncio.ensure_future(self._answered(call))
        try:
            await asyncio.wait((coming,), timeout=WORKING_SECONDS)
            if not coming.done() and http.their_http_version == b"1.1":
                await _send(http, writer, h11.InformationalResponse(status_code=102, headers=[]))
            return await coming
        except (OSError, TimeoutError):  # who asked went away: a pause is not left durable and not in force
            await asyncio.wait((coming,))
            raise
        finally:
            coming.cancel()

    async def _answered(self, call: Call) -> Answer:
        try:
            return await self._handle(call)
        except Exception as error:  # noqa: BLE001  # a bug in a call neither ends the daemon nor is shown
            logs.error("call_failed", call=f"{call.method} {call.path[:64]}", error=repr(error))
            mend = "see its log, and report it"
            return refusal(500, "the daemon has a fault here", mend, ExitCode.INTERNAL)


def _too_fast() -> Answer:
    text = f"more than {CALLS_PER_SECOND:.0f} calls a second from your uid"
    return refusal(429, text, "wait a moment, and ask less often", ExitCode.REFUSED)


async def _read_call(http: h11.Connection, reader: asyncio.StreamReader, peer: Peer) -> Call:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MOST_BODY_BYTES:
                raise ValueError(f"the body is larger than {MOST_BODY_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            raise ConnectionResetError("the peer went away")
    if head is None:
        raise ValueError("no request line")
    return _call(head, bytes(body), peer)


def _call(head: h11.Request, body: bytes, peer: Peer) -> Call:
    target = urlsplit(head.target.decode("ascii", "replace"))
    content = json.loads(body) if body else {}
    if not isinstance(content, dict):
        raise ValueError("the body must be a JSON object")  # noqa: TRY004  # the peer's fault, answered with 400
    query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=32))
    return Call(head.method.decode("ascii"), target.path, query, content, peer)


async def _write_whole(
    http: h11.Connection, writer: asyncio.StreamWriter, answer: Answer, method: str
) -> None:
    content = (json.dumps(answer.body) + "\n" if answer.text is None else answer.text).encode()
    own = (("Content-Type", answer.content_type), ("Content-Length", str(len(content))))
    headers = [*own, ("Connection", "close"), *answer.headers]
    await _send(http, writer, h11.Response(status_code=answer.status, headers=headers))
    # The answer to HEAD has the length and no body (RFC 9110, 9.3.2); h11 enforces it.
    if method != "HEAD":
        await _send(http, writer, h11.Data(data=content))
    await _send(http, writer, h11.EndOfMessage())


async def _write_lines(
    http: h11.Connection,
    peer: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    lines: AsyncGenerator[Body, None],
) -> None:
    reader, writer = peer
    headers = [
        ("Content-Type", "application/x-ndjson"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
    ]
    await _send(http, writer, h11.Response(status_code=200, headers=headers))
    gone = asyncio.ensure_future(_until_gone(reader))
    try:
        while (line := await _next_line(lines, gone)) is not None:
            await _send(http, writer, h11.Data(data=json.dumps(line).encode() + b"\n"))
        await _send(http, writer, h11.EndOfMessage())
    finally:
        gone.cancel()


async def _next_line(lines: AsyncGenerator[Body, None], gone: "asyncio.Future[None]") -> Body | None:
    """Return the next line, None after the last. Raises ConnectionResetError when the peer is gone first."""

    async def line_or_none() -> Body | None:
        return await anext(lines, None)

    coming = asyncio.ensure_future(line_or_none())
    try:
        await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise ConnectionResetError("the peer went away")
    finally:
        if not coming.done():
            coming.cancel()
            with suppress(asyncio.CancelledError):
                await coming
    return coming.result()


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Return when the peer ended its side, or floods us: what it still sends is no call of ours."""
    left = MOST_BODY_BYTES
    with suppress(OSError):
        while left > 0 and (piece := await reader.read(_READ_BYTES)):
            left -= len(piece)


async def _send(http: h11.Connection, writer: asyncio.StreamWriter, event: h11.Event) -> None:
    sent = http.send(event)
    if sent:
        writer.write(sent)
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
