"""The control socket's HTTP against real peers: every bound holds, no traceback leaves, it goes on."""

import asyncio
import json
import os
import socket
import stat
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reclaimerd.cli import http_socket
from reclaimerd.cli.http_socket import NoAnswer, Reply, Request, ask_daemon
from reclaimerd.daemon import http_server
from reclaimerd.daemon.http_server import (
    MOST_BODY_BYTES,
    Answer,
    Body,
    Call,
    HttpServer,
    listen,
)
from reclaimerd.daemon.limits import MOST_CONNECTIONS, Limits

BOUND = 20.0
LONG_BYTES = 8 * 1024 * 1024
"""More than the buffers of both ends hold."""


@dataclass(slots=True)
class Served:
    """A server in a thread of its own, and what it was asked."""

    path: Path
    calls: list[Call] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    tick: asyncio.Event | None = None

    async def handle(self, call: Call) -> Answer:
        """Answer by path: an object, a stream without end, or a bug."""
        self.calls.append(call)
        match call.path:
            case "/stream":
                return Answer(200, {}, lines=self.stream())
            case "/three":
                return Answer(200, {}, lines=three())
            case "/slow":
                await asyncio.sleep(0.5)
                self.closed.append("slow")
                return Answer(200, {"slow": True})
            case "/long":
                return Answer(200, {"long": "x" * LONG_BYTES})
            case "/bug":
                raise KeyError("a secret in a traceback")
            case "/busy":
                return Answer(503, {}, headers=(("Retry-After", "1"),))
            case _:
                return Answer(200, {"path": call.path, "body": dict(call.body), "query": dict(call.query)})

    async def stream(self) -> AsyncGenerator[Body, None]:
        """Yield one line, then wait for ever; note when nobody wants more."""
        try:
            yield {"event": "accepted"}
            await asyncio.Event().wait()
        finally:
            self.closed.append("stream")

    def connect(self) -> socket.socket:
        """Return a new connection."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.settimeout(BOUND)
        channel.connect(str(self.path))
        return channel

    def talk(self, *pieces: bytes) -> bytes:
        """Send the pieces, read to the end."""
        with self.connect() as channel:
            for piece in pieces:
                try:
                    channel.sendall(piece)
                except BrokenPipeError:
                    break
            return read_all(channel)

    def works(self) -> bool:
        """Tell whether a plain call is still answered."""
        return status_of(self.talk(get("/ok"))) == 200


async def three() -> AsyncGenerator[Body, None]:
    """Yield three lines."""
    for number in range(3):
        yield {"n": number}


def get(path: str, method: str = "GET", extra: str = "") -> bytes:
    """Return a request without a body."""
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode()


def post(body: bytes, extra: str = "") -> bytes:
    """Return a request with a body of stated length."""
    return get("/ok", "POST", f"Content-Length: {len(body)}\r\n{extra}") + body


def read_all(channel: socket.socket) -> bytes:
    """Read until the peer closes; a reset is an end too."""
    found = b""
    try:
        while piece := channel.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def read_through(channel: socket.socket, mark: bytes) -> None:
    """Read until the mark came."""
    found = b""
    while mark not in found:
        piece = channel.recv(65536)
        assert piece, f"the end came before {mark!r}"
        found += piece


def status_of(answer: bytes) -> int:
    """Return the status, 0 when nothing came."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def body_of(answer: bytes) -> dict[str, object]:
    """Return the JSON of a whole answer."""
    return dict(json.loads(answer.partition(b"\r\n\r\n")[2]))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait with a bound for what happens in the server's thread."""
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def serving(path: Path, limits: Limits | None = None) -> Iterator[Served]:
    """Serve on a socket while the block runs."""
    served = Served(path)
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: served.faults.append(str(context["message"])))
        server = HttpServer(served.handle, limits)
        await server.start(listen(path, 0o600, None))
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(BOUND)
    try:
        yield served
    finally:
        stop.set()
        thread.join(BOUND)
    assert not thread.is_alive()
    assert served.faults == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """Return a running server."""
    with serving(tmp_path / "s") as served:
        yield served


def test_a_call_is_parsed_and_answered_as_json(server: Served) -> None:
    """Path, query and body arrive; the peer is the kernel's word."""
    answer = server.talk(get("/v1/x?limit=5&flag=", "POST", "Content-Length: 9\r\n") + b'{"a": 10}')
    assert status_of(answer) == 200
    assert body_of(answer) == {"path": "/v1/x", "body": {"a": 10}, "query": {"limit": "5", "flag": ""}}
    assert (server.calls[0].peer.pid, server.calls[0].peer.uid) == (os.getpid(), os.geteuid())
    assert b"connection: close" in answer.lower()


def test_a_chunked_body_is_a_body(server: Served) -> None:
    """RFC 9112 7.1: in pieces, over several packets."""
    head = get("/ok", "POST", "Transfer-Encoding: chunked\r\n")
    assert body_of(server.talk(head, b'4\r\n{"a"\r\n', b"3\r\n:1}\r\n0\r\n\r\n"))["body"] == {"a": 1}


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"\x00\xff garbage\r\n\r\n", id="garbage"),
        pytest.param(b"GET\r\n\r\n", id="no target"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(get("/ok", extra=f"X: {'x' * 40_000}\r\n"), id="oversize head"),
        pytest.param(get("/" + "x" * 40_000), id="oversize target"),
        pytest.param(post(b"{" + b" " * (MOST_BODY_BYTES + 1) + b"}"), id="oversize body"),
        pytest.param(post(b"not json"), id="no json"),
        pytest.param(post(b"[1]"), id="no object"),
        pytest.param(post(b"[" * 60_000), id="deeply nested"),
        pytest.param(post(b'{"a": ' + b"9" * 5000 + b"}"), id="huge number"),
        pytest.param(post(b"\xff\xfe"), id="no utf-8"),
        pytest.param(get("/ok?" + "&".join("a=1" for _ in range(50))), id="too many fields"),
        pytest.param(
            get("/ok", "POST", "Content-Length: 5\r\nContent-Length: 6\r\n") + b"abcdef", id="two lengths"
        ),
        pytest.param(get("/ok", "POST", "Transfer-Encoding: chunked\r\n") + b"zz\r\n", id="bad chunk"),
        pytest.param(get("//[bad/ok"), id="bad target"),
    ],
)
def test_what_is_no_request_gets_400_and_the_server_goes_on(server: Served, request_bytes: bytes) -> None:
    """One JSON sentence, no call made, no traceback; the next call is answered."""
    answer = server.talk(request_bytes)
    assert status_of(answer) == 400
    assert "no request that we understand" in str(body_of(answer)["error"])
    assert b"Traceback" not in answer
    assert server.calls == []
    assert server.works()


def test_an_oversize_chunked_body_is_cut_at_the_bound(server: Served) -> None:
    """No length is stated: the bound counts what came."""
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    answer = server.talk(get("/ok", "POST", "Transfer-Encoding: chunked\r\n"), *[chunk] * 4)
    assert status_of(answer) == 400
    assert server.works()


def test_a_second_request_on_the_connection_is_not_served(server: Served) -> None:
    """Pipelined requests: the first is answered, then the connection ends."""
    answer = server.talk(get("/one") + get("/two"))
    assert answer.count(b"HTTP/1.1 200") == 1
    assert [call.path for call in server.calls] == ["/one"]


def test_head_gets_the_head_alone(server: Served) -> None:
    """The length of the body and no body (RFC 9110, 9.3.2)."""
    answer = server.talk(get("/ok", "HEAD"))
    assert status_of(answer) == 200
    assert answer.endswith(b"\r\n\r\n")
    assert server.works()


def test_an_answer_s_own_headers_are_sent(server: Served) -> None:
    """Such as when to ask again."""
    answer = server.talk(get("/busy"))
    assert status_of(answer) == 503
    assert b"\r\nRetry-After: 1\r\n" in answer.partition(b"\r\n\r\n")[0] + b"\r\n"


def test_a_bug_in_a_call_is_500_without_its_words(server: Served) -> None:
    """Nothing of the exception leaves the process; the server goes on."""
    answer = server.talk(get("/bug"))
    assert status_of(answer) == 500
    assert b"secret" not in answer
    assert body_of(answer)["exit_code"] == 1
    assert server.works()


def test_a_slow_peer_is_cut(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a connection open past the bound."""
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.3)
    with server.connect() as channel:
        began = time.monotonic()
        for byte in get("/ok")[:-1]:
            try:
                channel.send(bytes([byte]))
            except OSError:
                break
            time.sleep(0.02)
        assert read_all(channel) == b""
        assert time.monotonic() - began < BOUND
    assert server.calls == []
    assert server.works()


def test_one_who_says_nothing_is_cut_and_one_who_hangs_up_is_forgotten(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither holds a place."""
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.1)
    with server.connect() as silent:
        server.connect().close()
        assert read_all(silent) == b""
    assert server.works()


def test_the_sixty_fifth_connection_is_cut_and_the_sixty_four_live(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bounded number of peers; when one leaves its place is free again."""
    monkeypatch.setattr(http_server, "READ_SECONDS", BOUND)
    with ExitStack() as stack:
        held = [stack.enter_context(server.connect()) for _ in range(MOST_CONNECTIONS)]
        for channel in held:
            channel.sendall(b"GET /ok HTTP/1.1\r\n")
        wait_until(lambda: server.talk(get("/over")) == b"")
        assert not any(call.path == "/over" for call in server.calls)
        held[0].sendall(b"Host: x\r\n\r\n")
        assert status_of(read_all(held[0])) == 200
        wait_until(server.works)


def test_a_stream_comes_in_lines_and_ends(server: Served) -> None:
    """NDJSON in chunks, each line as it comes."""
    answer = server.talk(get("/three"))
    assert b"application/x-ndjson" in answer
    assert answer.count(b'{"n": ') == 3
    assert answer.endswith(b"0\r\n\r\n")


def test_a_stream_whose_reader_hangs_up_ends_at_once(server: Served) -> None:
    """No line need come for it: the peer's end of file is enough, and what made the lines is told."""
    with server.connect() as channel:
        channel.sendall(get("/stream"))
        read_through(channel, b"accepted")
        assert server.closed == []
    wait_until(lambda: server.closed == ["stream"])
    assert server.works()


def test_a_stream_whose_reader_floods_us_is_cut(server: Served) -> None:
    """What is sent after the request is read for its end alone, and only so much of it."""
    with server.connect() as channel:
        channel.sendall(get("/stream"))
        read_through(channel, b"accepted")
        with suppress(OSError):
            channel.sendall(b"x" * LONG_BYTES)
        wait_until(lambda: server.closed == ["stream"])
    assert server.works()


def test_a_call_is_finished_though_its_caller_went_away(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one would be a pause on record and not in force, or a policy in force and not on record."""
    monkeypatch.setattr(http_server, "WORKING_SECONDS", 0.05)
    channel = server.connect()
    channel.sendall(get("/slow"))
    wait_until(lambda: len(server.calls) == 1)
    channel.close()
    wait_until(lambda: server.closed == ["slow"])
    assert server.works()


def test_a_reader_who_never_reads_does_not_stop_others(server: Served) -> None:
    """An open stream takes one place and no more."""
    with server.connect() as channel:
        channel.sendall(get("/stream"))
        wait_until(lambda: len(server.calls) == 1)
        assert server.works()


def test_closing_the_server_cuts_open_streams(tmp_path: Path) -> None:
    """The daemon's end waits for no reader."""
    with serving(tmp_path / "s") as served:
        channel = served.connect()
        channel.sendall(get("/stream"))
        read_through(channel, b"accepted")
    with channel:
        read_all(channel)
    assert served.closed == ["stream"]


def test_a_stale_socket_is_replaced_and_gets_its_mode(tmp_path: Path) -> None:
    """A dead daemon's socket does not stop a start; the mode is exactly the one asked for."""
    path = tmp_path / "run" / "s"
    first = listen(path, 0o660, None)
    first.close()
    second = listen(path, 0o660, None)
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o022 == 0
    finally:
        second.close()


def test_a_socket_that_can_not_be_made_leaves_nothing_open(tmp_path: Path) -> None:
    """A path that is a directory: OSError, and no descriptor is left."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"."):
        listen(tmp_path, 0o660, None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_longer_answer_is_announced_before_the_peer_takes_us_for_dead(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """102 goes ahead and our client waits on; a quick answer, and a peer of HTTP/1.0, get none."""
    monkeypatch.setattr(http_server, "WORKING_SECONDS", 0.05)
    monkeypatch.setattr(http_socket, "SILENT_SECONDS", 0.3)
    assert server.talk(get("/slow")).startswith(b"HTTP/1.1 102 ")
    assert status_of(server.talk(get("/ok"))) == 200
    assert status_of(server.talk(get("/slow").replace(b"HTTP/1.1", b"HTTP/1.0"))) == 200
    assert ask_daemon(server.path, Request("GET", "/slow"), None) == Reply(200, {"slow": True})
    monkeypatch.setattr(http_server, "WORKING_SECONDS", 60.0)
    assert isinstance(ask_daemon(server.path, Request("GET", "/slow"), None), NoAnswer)
