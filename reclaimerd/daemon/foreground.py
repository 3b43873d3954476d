"""The same engine without a daemon, for one command of root's: one fresh look, the same store and audit.

No rule acts here: only what the operator ordered. A command that only reads opens nothing for writing.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.config.load import load
from reclaimerd.daemon.access import Caller, Peer, Role, local_user_name, login_name
from reclaimerd.daemon.api import Api
from reclaimerd.daemon.engine import Choice, Paths
from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.this_host import on_this_host
from reclaimerd.daemon.wiring import build
from reclaimerd.daemon.wiring_workers import start_workers
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.proc_text import printable
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import Actor, ActorKind, ActorRole
from reclaimerd.record.writer_claim import release

Line = dict[str, object]
EVIDENCE_SECONDS = 3.0
"""How long a command that gave up waits for the evidence of what is stuck."""
FIRST_LOOK_SECONDS = 12.0
"""`answer_within` once for each role (at most 10 s in all), and a margin."""


@dataclass(frozen=True, slots=True)
class ForegroundOptions:
    """Where things lie, and whether a silent writer is to be ended first."""

    config: Path | None
    state_dir: Path
    log_dir: Path
    socket: Path
    simulate: Path | None
    takeover: bool = False


@dataclass(frozen=True, slots=True)
class ForegroundReply:
    """HTTP status and body, as the daemon would have answered; of a stream the last line."""

    status: int
    body: dict[str, object]


def request(  # noqa: PLR0913, PLR0917  # six plain words of one HTTP call, as the socket client has them
    options: ForegroundOptions,
    method: str,
    path: str,
    query: Mapping[str, str],
    body: Mapping[str, object] | None,
    on_line: Callable[[Line], None] | None,
) -> ForegroundReply:
    """Return the answer to one call of the API, computed here and now. Raises ReclaimerdError."""
    peer = Peer(os.getpid(), os.geteuid(), frozenset(os.getgroups()))
    call = Call(method, path, query, dict(body or {}), peer)
    return asyncio.run(_answer(options, call, on_line))


async def _answer(
    options: ForegroundOptions, call: Call, on_line: Callable[[Line], None] | None
) -> ForegroundReply:
    paths = Paths(options.state_dir, options.log_dir, options.socket, options.config, options.simulate)
    probes = await start_workers(paths)
    try:
        loaded = on_this_host(load(options.config, enforce_ownership=True))
    except BaseException:
        for probe in probes:
            await probe.close()
        raise
    pacing = Pacing(asyncio.get_running_loop().time)
    choice = Choice(foreground=True, read_only=call.method == "GET", takeover=options.takeover)
    engine = await build(paths, choice, loaded, pacing.wake, probes)
    service = Service(engine, pacing)
    loop: asyncio.Future[None] | None = None
    try:
        await _record_takeover(service)
        await engine.resets.keep_off(engine.cycle.state.ledger)
        loop = asyncio.ensure_future(service.run())
        return await _before(loop, _answered(service, call, on_line))
    finally:
        await service.finish_evidence(EVIDENCE_SECONDS)
        pacing.stop()
        with suppress(ReclaimerdError):
            if loop is not None:
                await loop
        with suppress(ReclaimerdError):
            await engine.cycle.hand_back(
                "the command was interrupted: no further step is taken", service.wall()
            )
        if not choice.read_only:  # also where that could not be put on record
            with suppress(ReclaimerdError):
                await engine.resets.put_back(engine.cycle.state.ledger)
        await engine.close()
        if not choice.read_only:
            with suppress(ReclaimerdError, OSError):
                release(paths.state_dir, engine.me)


async def _record_takeover(service: Service) -> None:
    """Put on record that a silent writer was ended; raises RecordError, and then nothing is done."""
    ended = service.engine.taken_from
    if ended is not None:
        text = f"pid {ended} wrote here and did not answer: ended with SIGKILL (--takeover)"
        await service.cycle.write(None, (of_host(RecordKind.NOTE, text, _actor()),))


async def _answered(service: Service, call: Call, on_line: Callable[[Line], None] | None) -> ForegroundReply:
    """Answer the call; one that reads waits for the first look, one that acts brings its own."""
    if call.method == "GET":
        await service.pacing.wait_for_pass(0, FIRST_LOOK_SECONDS)
    answer = await Api(service).answer(call, Caller(Role.ADMIN, _actor()))
    return await _read(answer, on_line)


async def _before(
    loop: "asyncio.Future[None]", answering: Coroutine[object, object, ForegroundReply]
) -> ForegroundReply:
    """Return the reply, or raise what ended the passes: a host that can't be worked with, a failed pass."""
    task = asyncio.ensure_future(answering)
    await asyncio.wait((task, loop), return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        loop.result()
    return task.result()


async def _read(answer: Answer, on_line: Callable[[Line], None] | None) -> ForegroundReply:
    if answer.lines is None:
        return ForegroundReply(answer.status, dict(answer.body))
    last: Line = {}
    async for line in answer.lines:
        last = dict(line)
        if on_line is not None:
            on_line(last)
    return ForegroundReply(200, last)


def _actor() -> Actor:
    uid = os.getuid()
    loginuid: int | None = None
    with suppress(OSError, ValueError):
        loginuid = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
    unset = 2**32 - 1
    login = None if loginuid == unset else loginuid
    return Actor(
        ActorKind.OPERATOR,
        local_user_name(uid),
        uid=uid,
        loginuid=login,
        pid=os.getpid(),
        comm=printable(Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")),
        login=login_name(uid, login),
        role=ActorRole.ADMIN,
    )
