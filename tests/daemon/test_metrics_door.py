"""Metrics over TCP: one path for anybody, nothing else for nobody, and no start that fails for it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.http_server import MOST_HEAD_BYTES, HttpServer
from reclaimerd.daemon.metrics_door import open_metrics
from reclaimerd.daemon.metrics_text import CONTENT_TYPE
from tests.daemon.test_api import MEMBER, NOBODY, ROOT, Desk, a_story

BOUND = 20.0
TEXT = "# HELP x A thing.\n# TYPE x gauge\nx 1.0\n"


def free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0), family=family) as one:
        return int(one.getsockname()[1])


def serving(work: Callable[[int], Awaitable[None]], text: Callable[[], str] = lambda: TEXT) -> None:
    """Do the work against a door on a free port."""

    async def all_of_it() -> None:
        port = free_port()
        server = await open_metrics(f"127.0.0.1:{port}", text)
        assert isinstance(server, HttpServer)
        try:
            async with asyncio.timeout(BOUND):
                await work(port)
        finally:
            await server.close()

    asyncio.run(all_of_it())


async def talk(port: int, sent: bytes, host: str = "127.0.0.1") -> bytes:
    """Send bytes and return all that comes back."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def request(line: str) -> bytes:
    """Return a whole request."""
    return f"{line} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_a_scrape_gets_the_text() -> None:
    """With the content type that every Prometheus knows, each time anew."""
    counts = iter(range(9))

    async def work(port: int) -> None:
        for count in range(2):
            head, _, body = (await talk(port, request("GET /metrics"))).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert f"content-type: {CONTENT_TYPE}".encode() in head.lower()
            assert body == f"x {count}\n".encode()
        head, _, body = (await talk(port, request("HEAD /metrics"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert body == b""

    serving(work, lambda: f"x {next(counts)}\n")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /", 404),
        ("GET /v1/status", 404),
        ("POST /v1/reclaims", 404),
        ("GET /metrics/", 404),
        ("POST /metrics", 405),
        ("DELETE /metrics", 405),
    ],
)
def test_there_is_nothing_else(line: str, status: int) -> None:
    """No call of the control socket can be made here, whoever asks."""

    async def work(port: int) -> None:
        answer = await talk(port, request(line))
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert TEXT.encode() not in answer

    serving(work)


def test_the_control_socket_s_bounds_hold() -> None:
    """A head without end is cut, rubbish is refused, and a scrape after it works."""

    async def work(port: int) -> None:
        flood = await talk(port, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (2 * MOST_HEAD_BYTES))
        assert b" 200 " not in flood
        assert b" 400 " in await talk(port, b"\x16\x03\x01 hello\r\n\r\n")
        assert TEXT.encode() in await talk(port, request("GET /metrics"))

    serving(work)


def test_without_an_address_nothing_listens() -> None:
    """The default."""
    assert asyncio.run(open_metrics("", lambda: TEXT)) is None


def test_an_address_of_ipv6() -> None:
    """In brackets, and on that family alone."""

    async def work() -> None:
        try:
            port = free_port(socket.AF_INET6)
        except OSError:
            pytest.skip("no IPv6 on the loopback here")
        server = await open_metrics(f"[::1]:{port}", lambda: TEXT)
        assert server is not None
        try:
            assert TEXT.encode() in await talk(port, request("GET /metrics"), "::1")
        finally:
            await server.close()

    asyncio.run(work())


def test_a_port_that_is_taken_is_said_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon has more to do than to be watched."""
    said: list[dict[str, object]] = []
    monkeypatch.setattr(
        "reclaimerd.daemon.metrics_door.logs.error", lambda _name, **fields: said.append(fields)
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        assert asyncio.run(open_metrics(listen, lambda: TEXT)) is None
    (fields,) = said
    assert fields["listen"] == listen
    assert str(fields["error"]).startswith("Address already in use")


@pytest.mark.parametrize(("caller", "status"), [(ROOT, 200), (MEMBER, 200), (NOBODY, 403)])
def test_on_the_control_socket_it_is_a_viewer_s(
    caller: Caller, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other reading; who has no role gets no figure."""
    monkeypatch.setattr(Desk, "outlets", SimpleNamespace(text=lambda: TEXT), raising=False)
    answer = asyncio.run(a_story().call("GET", "/metrics", caller))
    assert answer.status == status
    assert (answer.text == TEXT) is (status == 200)
