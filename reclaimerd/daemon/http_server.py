"""HTTP/1.1 on the control socket: h11 parses, asyncio carries, and every bound is here.

Knows nothing of the daemon: it hands a call to a function and writes what it returns. One call per
connection; a slow or flooding peer is cut, and a traceback never leaves the process.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import h11

from reclaimerd.daemon.access import Peer, read_peer

MOST_BODY_BYTES = 64 * 1024
MOST_HEAD_BYTES = 16 * 1024
MOST_CONNECTIONS = 64
READ_SECONDS = 5.0
WRITE_SECONDS = 10.0
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
    """One JSON object with its HTTP status; `lines` streams NDJSON instead."""

    status: int
    body: Body
    lines: AsyncIterator[Body] | None = None


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

    __slots__ = ("_handle", "_open", "_server")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Begin to serve."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=MOST_HEAD_BYTES)

    async def close(self) -> None:
        """Stop serving and cut what is open."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            await self._talk(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._open.discard(writer)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)
        peer = read_peer(writer.get_extra_info("socket"))
        try:
            async with asyncio.timeout(READ_SECONDS):
                call = await _read_call(http, reader, peer)
        except (h11.RemoteProtocolError, ValueError) as error:
            answer = refusal(400, f"this is no request that we understand: {error}")
        else:
            answer = await self._handle(call)
        if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        if answer.lines is None:
            await _write_whole(http, writer, answer)
        else:
            await _write_lines(http, writer, answer.lines)


async def _read_call(http: h11.Connection, reader: asyncio.StreamReader, peer: Peer) -> Call:
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
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


async def _write_whole(http: h11.Connection, writer: asyncio.StreamWriter, answer: Answer) -> None:
    content = json.dumps(answer.body).encode() + b"\n"
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(content))),
        ("Connection", "close"),
    ]
    await _send(http, writer, h11.Response(status_code=answer.status, headers=headers))
    await _send(http, writer, h11.Data(data=content))
    await _send(http, writer, h11.EndOfMessage())


async def _write_lines(
    http: h11.Connection, writer: asyncio.StreamWriter, lines: AsyncIterator[Body]
) -> None:
    headers = [
        ("Content-Type", "application/x-ndjson"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
    ]
    await _send(http, writer, h11.Response(status_code=200, headers=headers))
    async for line in lines:
        await _send(http, writer, h11.Data(data=json.dumps(line).encode() + b"\n"))
    await _send(http, writer, h11.EndOfMessage())


async def _send(http: h11.Connection, writer: asyncio.StreamWriter, event: h11.Event) -> None:
    sent = http.send(event)
    if sent:
        writer.write(sent)
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
