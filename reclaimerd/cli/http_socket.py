"""One call of the control API over its UNIX socket: HTTP/1.1 by hand.

Imports the standard library only, because `kill` must not pay for a client library before it acts.
Knows nothing of commands; may not decide what to do when nobody answers.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from reclaimerd.errors import NotAllowedError, ReclaimerdError

Json: TypeAlias = dict[str, Any]
OnLine: TypeAlias = Callable[[Json], None]

SILENT_SECONDS = 2.0
"""Connect, send and the first byte of the answer together; past it nobody is there."""
IDLE_SECONDS = 30.0
"""Between two pieces of an answer that has begun."""
RETRY_SECONDS = 0.02
"""A full backlog answers EAGAIN at once: try again so often within SILENT_SECONDS."""
MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024
"""A guard against a peer that never ends; `ps` of a large host is some hundred KiB."""
HTTP_OK = 200
_WORKING = 102
"""The daemon is there and works on a longer answer, which follows."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of the API; `acts` changes the host, so an answer that stays away is told apart."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    acts: bool = False
    idle_seconds: float = IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer: HTTP status and the object; of a stream, its last line."""

    status: int
    body: Json


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nobody answered; `sent` is true when the request may have been read all the same."""

    why: str
    sent: bool = False


class Interrupted(Exception):  # noqa: N818 - Ctrl-C is no error: it says what goes on without us
    """The person pressed Ctrl-C; the text says what becomes of the request."""


class BrokenAnswerError(ReclaimerdError):
    """An answer began and did not end, or makes no sense."""


def ask_daemon(path: Path, asked: Request, on_line: OnLine | None) -> Reply | NoAnswer:
    """Return the daemon's answer, or why there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        try:
            begun = _begin(channel, path, asked)
            return begun if isinstance(begun, NoAnswer) else _read_reply(begun, on_line)
        except KeyboardInterrupt:
            text = "interrupted: an incident that was opened goes on in the daemon (reclaimctl incidents)"
            raise Interrupted(text if asked.acts else "interrupted") from None
        except TimeoutError:
            raise _broken(f"the daemon fell silent for {asked.idle_seconds:g} s in mid-answer") from None
        except OSError as error:
            raise _broken(f"the daemon went away in mid-answer ({error.strerror or error})") from None


def _broken(what: str) -> BrokenAnswerError:
    return BrokenAnswerError(
        what, "look at it with `reclaimctl status` and `reclaimctl incidents`, and at the daemon's log"
    )


def _begin(channel: socket.socket, path: Path, asked: Request) -> "_Incoming | NoAnswer":
    """Connect, send, and wait for the first byte: all of it within SILENT_SECONDS."""
    until = time.monotonic() + SILENT_SECONDS
    refused = _connect(channel, path, until)
    if refused is not None:
        return refused
    silent = NoAnswer(f"the daemon did not answer within {SILENT_SECONDS:g} s", sent=True)
    try:
        _send(channel, _encoded(asked), until)
        channel.settimeout(max(0.001, until - time.monotonic()))
        first = channel.recv(65536)
    except TimeoutError:
        return silent
    except ConnectionError as error:
        return NoAnswer(f"the daemon closed the connection ({error.strerror})", sent=True)
    if not first:
        return NoAnswer("the daemon closed the connection without an answer", sent=True)
    channel.settimeout(asked.idle_seconds)
    return _Incoming(channel, first)


def _connect(channel: socket.socket, path: Path, until: float) -> NoAnswer | None:
    """Connect, or return why nobody is there; EACCES is a refusal of its own (exit 4)."""
    while True:
        channel.settimeout(max(0.001, until - time.monotonic()))
        try:
            channel.connect(str(path))
        except PermissionError:
            raise NotAllowedError(
                f"you may not use the control socket {path}",
                "join the group reclaimerd, or run this as root",
            ) from None
        except (BlockingIOError, TimeoutError):
            if time.monotonic() >= until:
                return NoAnswer(f"the daemon accepted no connection within {SILENT_SECONDS:g} s")
            time.sleep(RETRY_SECONDS)
        except OSError as error:
            return NoAnswer(f"no daemon is running: {error.strerror or error}")
        else:
            return None


def _encoded(asked: Request) -> bytes:
    """Return the request as HTTP/1.1 bytes."""
    target = asked.path + (f"?{urlencode(asked.query)}" if asked.query else "")
    body = b"" if asked.body is None else json.dumps(asked.body).encode()
    head = (
        f"{asked.method} {target} HTTP/1.1\r\nHost: reclaimerd\r\nConnection: close\r\n"
        f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body


def _send(channel: socket.socket, content: bytes, until: float) -> None:
    channel.settimeout(max(0.001, until - time.monotonic()))
    try:
        channel.sendall(content)
    except BrokenPipeError:
        # It answered before it read everything (too large, not allowed): the answer says why.
        return


@dataclass(slots=True)
class _Incoming:
    """Bytes as they come; `buffer` holds what was read and not yet used."""

    channel: socket.socket
    buffer: bytes

    def more(self) -> bool:
        """Read once; tell whether anything came."""
        piece = self.channel.recv(65536)
        self.buffer += piece
        return bool(piece)

    def through(self, mark: bytes) -> bytes:
        """Return what stands before the mark, and step over it."""
        while mark not in self.buffer:
            if len(self.buffer) > MAX_HEAD_BYTES:
                raise _broken("the answer has no end of its head")
            if not self.more():
                raise _broken("the daemon went away in mid-answer")
        before, _, self.buffer = self.buffer.partition(mark)
        return before

    def pieces(self, count: int | None) -> Iterator[bytes]:
        """Yield the next `count` bytes in pieces as they come; None is up to the end."""
        left = count
        while left is None or left > 0:
            if not self.buffer and not self.more():
                if left is None:
                    return
                raise _broken("the daemon went away in mid-answer")
            piece = self.buffer if left is None else self.buffer[:left]
            self.buffer = self.buffer[len(piece) :]
            left = None if left is None else left - len(piece)
            yield piece


def _read_reply(incoming: _Incoming, on_line: OnLine | None) -> Reply:
    """Read status, headers and body; hand a stream's lines over as they come."""
    try:
        status, lines = _WORKING, [""]
        while status == _WORKING:
            lines = incoming.through(b"\r\n\r\n").decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ", 2)[1])
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        streamed = on_line is not None and status == HTTP_OK
        body: Json = {}
        for line in _lines(_body(incoming, headers), split=streamed):
            parsed = json.loads(line)
            if not isinstance(parsed, dict):
                raise _broken("the answer is no JSON object")
            body = parsed
            if streamed and on_line is not None:
                on_line(body)
    except (ValueError, IndexError) as error:
        raise _broken(f"the answer is not the control API's ({error})") from None
    return Reply(status, body)


def _body(incoming: _Incoming, headers: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the body in pieces: chunked, of a stated length, or up to the end."""
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        length = headers.get("content-length")
        yield from incoming.pieces(None if length is None else int(length))
        return
    while size := int(incoming.through(b"\r\n").split(b";")[0], 16):
        yield from incoming.pieces(size)
        incoming.through(b"\r\n")


def _lines(pieces: Iterator[bytes], *, split: bool) -> Iterator[bytes]:
    """Yield the lines of a stream, or the whole body as one; blank ones are left out."""
    rest, total = b"", 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_BODY_BYTES:
            raise _broken(f"the answer is longer than {MAX_BODY_BYTES} bytes")
        rest += piece
        while split and b"\n" in rest:
            line, _, rest = rest.partition(b"\n")
            if line.strip():
                yield line
    if rest.strip():
        yield rest
