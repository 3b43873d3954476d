"""Mutated requests over a real socket and the real calls: no traceback, no 500, and never a role too high.

Own mutations, not generated from the description: what breaks a server is what no description has. The
seed is printed; RECLAIMERD_SEED makes the same requests again.
"""

import asyncio
import json
import os
import random
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reclaimerd.daemon import http_server
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.http_server import Answer, Call, HttpServer, listen
from tests.builders import GIB, OPERATOR, a_busy_snapshot, a_policy, a_rule
from tests.daemon.test_api import Story, a_story
from tests.daemon.test_roles import NEEDED
from tests.fakes import a_rig

BOUND = 30.0
FORBIDDEN = frozenset({"/v1/stuck", "/v1/evidence/PID", "/v1/snapshot", "/v1/release-driver", "/metrics"})
"""They ask the real host or a whole engine, not fakes: here nobody has the role for them."""
ODD: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, float("inf"), float("nan"), "", " ", "0",
    "\x00", "\ud800", "\u202e", "x" * 5000, "GPU-x", "../../etc/passwd", [], [[]], {}, {"pid": 1},
    [{"pid": 100}], [{"pid": True}], [{"pid": 100, "start_ticks": -1}], [None] * 20, {"a": {"b": {}}},
)  # fmt: skip
FIELDS = ("targets", "scope", "force", "dry_run", "reason", "grace_seconds", "timeout_seconds", "expect_user",
    "max_targets", "gpu", "for_seconds", "incident", "give_up", "job", "step", "pid", "")  # fmt: skip
PIECES = (b"\r\n", b"\n", b"\x00", b"\xff", b" ", b":", b"/", b"//", b"..", b"%00", b"%2f", b"?", b"#", b"&",
    b"=", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/9", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: upgrade\r\n",
    b"Upgrade: websocket\r\n", b"{", b"}", b"[", b'"', b"a" * 3000, b"9" * 300)  # fmt: skip


@dataclass(slots=True)
class Served:
    """The real calls over fakes, behind the real server, for one role."""

    path: Path
    story: Story
    role: Role = Role.NONE
    wrong: list[str] | None = None

    async def handle(self, call: Call) -> Answer:
        """Answer as the door does, for a caller of this role; note a right that was too high."""
        caller = Caller(self.role, replace(OPERATOR, uid=4321), "you are nobody")
        answer = await self.story.api.answer(call, caller)
        route = next(
            (one for one in self.story.api.routes if one.method == call.method and one.fits(call.path)), None
        )
        if (
            route is not None
            and self.role < NEEDED[route.path]
            and answer.status != 403
            and self.wrong is not None
        ):
            self.wrong.append(f"{self.role.word} {call.method} {call.path}: {answer.status}")
        return answer


@contextmanager
def serving() -> Iterator[tuple[Served, list[str]]]:
    """Serve while the block runs; yield what serves, and the faults of the loop."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    faults: list[str] = []
    ready, stop = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory(prefix="mutated-") as folder:
        served = Served(Path(folder) / "s", a_story(rig, Path(folder)), wrong=[])

        async def passes() -> None:
            while True:
                await rig.cycle.run_pass()
                await asyncio.sleep(0.01)

        async def run() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _loop, told: faults.append(str(told)))
            server = HttpServer(served.handle)
            await server.start(listen(served.path, 0o600, None))
            passing = asyncio.ensure_future(passes())
            ready.set()
            await asyncio.to_thread(stop.wait)
            passing.cancel()
            await server.close()

        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        assert ready.wait(BOUND)
        try:
            yield served, faults
        finally:
            stop.set()
            thread.join(BOUND)


def a_request(chance: random.Random, routes: list[tuple[str, str]]) -> bytes:
    """Return one request that is well formed, then bent in up to three places."""
    method, path = chance.choice(routes)
    for word in ("PID", "ID", "NAME"):
        given = chance.choice(["100", "inc-1", "over-cap", "%00", "x" * 300, "\u00b2", "-1", "..", "1@2"])
        path = path.replace(word, given)
    if chance.random() < 0.2:
        path += f"?{chance.choice(FIELDS)}={chance.choice(['1', '', '%ff', 'x' * 900])}"
    if chance.random() < 0.1:
        method = chance.choice(["PUT", "HEAD", "DELETE", "OPTIONS", "get", "PATCH", "TRACE", "CONNECT"])
    body = {chance.choice(FIELDS): chance.choice(ODD) for _ in range(chance.randrange(5))}
    content = json.dumps(body).encode()
    if chance.random() < 0.2:
        content = chance.choice(
            [b"", b"null", b"[]", b"{", b"1", b'{"targets":', b"\xff", b"[" * 3000, content * 2]
        )
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    made = bytearray(head.encode("utf-8", "surrogatepass") + content)
    for _ in range(chance.choice((0, 0, 1, 2, 3))):
        place = chance.randrange(len(made) + 1)
        end = min(len(made), place + chance.choice((0, 0, 1, 4, 20)))
        made[place:end] = chance.choice(PIECES)
    return bytes(made)


def answer_to(path: Path, asked: bytes) -> bytes:
    """Send a request, end our side, and read what comes until the end, or the first line of a stream."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(BOUND)
        channel.connect(str(path))
        found = b""
        try:
            channel.sendall(asked)
            channel.shutdown(socket.SHUT_WR)
            while piece := channel.recv(65536):
                found += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
        return found


def mutate(count: int, monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Send so many; assert what must hold of each answer, and return how often each status came."""
    monkeypatch.setattr(http_server, "READ_SECONDS", 2.0)
    seed = int(os.environ.get("RECLAIMERD_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"RECLAIMERD_SEED={seed}\n")  # pytest shows it where the test fails
    chance = random.Random(seed)  # noqa: S311  # no secret: it must come again
    found: Counter[int] = Counter()
    with serving() as (served, faults):
        everything = [(one.method, one.path) for one in served.story.api.routes]
        for number in range(count):
            served.role = (Role.NONE, Role.VIEWER, Role.OPERATOR, Role.ADMIN)[number % 4]
            routes = [one for one in everything if one[1] not in FORBIDDEN or served.role is Role.NONE]
            asked = a_request(chance, routes)
            answer = answer_to(served.path, asked)
            status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
            found[status] += 1
            assert b"Traceback" not in answer, asked
            assert status < 500, (asked, answer)
        assert served.wrong == []
        assert faults == []
        assert answer_to(served.path, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 ")
    return found


@pytest.mark.slow
def test_three_thousand_mutated_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of answer is among them, so the mutations reach the calls and not the parser alone."""
    found = mutate(3000, monkeypatch)
    assert {200, 400, 403, 404, 405} <= found.keys()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_mutated_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for longer."""
    assert sum(mutate(100_000, monkeypatch).values()) == 100_000
