"""A real HTTP server on a UNIX socket, in a thread, with canned answers; h11 reads what we write by hand."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Answer:
    """One canned answer: an object, or lines in chunks of `piece` bytes; `cut` leaves the end out.

    With `hold` the server waits for it between the first line and the rest.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Mapping[str, Any], ...] = ()
    status: int = 200
    piece: int = 0
    cut: bool = False
    hold: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as h11 understood it."""

    method: str
    target: str
    body: Any


@dataclass(slots=True)
class Server:
    """What the canned server answers and what it was asked."""

    path: Path
    answers: Mapping[str, Answer]
    asked: list[Asked] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Answer one connection after the other until the listener is shut."""
        while True:
            try:
                channel, _ = listener.accept()
            except OSError:
                return
            with channel, contextlib.suppress(ConnectionError):
                channel.settimeout(20)
                try:
                    self._answer(channel)
                except h11.RemoteProtocolError as error:
                    self.faults.append(str(error))

    def _answer(self, channel: socket.socket) -> None:
        talk = h11.Connection(h11.SERVER)
        head, body = _read_request(talk, channel)
        target = head.target.decode()
        method = head.method.decode()
        self.asked.append(Asked(method, target, json.loads(body) if body else None))
        answer = self.answers[f"{method} {target.split('?')[0]}"]
        if answer.lines:
            _send_lines(talk, channel, answer)
            return
        content = json.dumps(answer.body).encode()
        headers = [("content-length", str(len(content))), ("connection", "close")]
        channel.sendall(talk.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
        channel.sendall(content[: len(content) // 2] if answer.cut else content)


def _read_request(talk: h11.Connection, channel: socket.socket) -> tuple[h11.Request, bytes]:
    head, body = None, b""
    while True:
        event = talk.next_event()
        match event:
            case h11.Request():
                head = event
            case h11.Data():
                body += bytes(event.data)
            case h11.EndOfMessage():
                assert head is not None
                return head, body
            case _:
                talk.receive_data(channel.recv(65536))


def _send_lines(talk: h11.Connection, channel: socket.socket, answer: Answer) -> None:
    headers = [("transfer-encoding", "chunked"), ("content-type", "application/x-ndjson")]
    channel.sendall(talk.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
    for number, line in enumerate(answer.lines):
        content = json.dumps(line).encode() + b"\n"
        size = answer.piece or len(content)
        for start in range(0, len(content), size):
            channel.sendall(talk.send(h11.Data(data=content[start : start + size])) or b"")
        if number == 0 and answer.hold is not None:
            answer.hold.wait(20)
    if not answer.cut:
        channel.sendall(talk.send(h11.EndOfMessage()) or b"")


@contextlib.contextmanager
def canned(path: Path, answers: Mapping[str, Answer]) -> Iterator[Server]:
    """Serve on the socket `path` while the block runs; no thread outlives it."""
    server = Server(path, answers)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(16)
        thread = threading.Thread(target=server.serve, args=(listener,))
        thread.start()
        try:
            yield server
        finally:
            for answer in answers.values():
                if answer.hold is not None:
                    answer.hold.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
            assert not thread.is_alive()
            assert server.faults == []


def command(*arguments: str) -> list[str]:
    """Return the command line of one call of reclaimctl."""
    return [sys.executable, "-m", "reclaimerd.cli.main", *arguments]


def environment() -> dict[str, str]:
    """Return the environment of a call: this checkout, and no trace left in it."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC"}


AS_NOBODY = (
    "import os, sys\nfrom reclaimerd.cli.main import run\n"
    "os.setgroups([])\nos.setresgid(65534, 65534, 65534)\nos.setresuid(65534, 65534, 65534)\n"
    "sys.exit(run(sys.argv[1:]))"
)
"""Rights are dropped after the imports: another user may not be able to read this checkout."""


def reclaimctl(*arguments: str, as_nobody: bool = False) -> subprocess.CompletedProcess[str]:
    """Run reclaimctl as a real process, if wanted as another user, and return what it printed."""
    call = [sys.executable, "-c", AS_NOBODY, *arguments] if as_nobody else command(*arguments)
    return subprocess.run(
        call, env=environment(), cwd="/", capture_output=True, text=True, timeout=30, check=False
    )
