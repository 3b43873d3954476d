"""The calls of the control API: each names its path, its least role, and what it does.

Handlers read the last look or ask the loop for a pass; none touches NVML or another process, none
blocks. Every denied call and every act is on record.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import OrderFault, orders_of, pause_seconds, resumed_gpu
from reclaimerd.daemon.desk import Ticket, gravest
from reclaimerd.daemon.drain_calls import undrain_call
from reclaimerd.daemon.evidence_wiring import Investigator
from reclaimerd.daemon.explain_calls import explain_process, snapshot_call
from reclaimerd.daemon.http_server import Answer, Body, Call, refusal
from reclaimerd.daemon.past import read_incident, read_incidents
from reclaimerd.daemon.release_calls import release_call
from reclaimerd.daemon.reset_calls import explain_call, reset_call
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.slurm_calls import unkillable_call
from reclaimerd.daemon.telling import result_row
from reclaimerd.daemon.views import process_view, ps_view, status_view
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Pause

LOOK_SECONDS = 12.0
"""A fresh look: `answer_within` once for each worker, and a margin."""
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_DENIED_EVERY_SECONDS = 3600.0
_MOST_DENIED_UIDS = 256
"""Uids whose denials are told apart in one hour: one user namespace can bring 65536 of them."""

Handler = Callable[[Call, Caller], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: str
    role: Role
    handler: Handler


class Api:
    """The calls, over one service."""

    __slots__ = ("_denied", "_investigator", "_routes", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._denied: dict[int, float] = {}
        self._investigator = Investigator(service.engine)
        self._routes = (
            _Route("GET", "/v1/status", Role.VIEWER, self._status),
            _Route("GET", "/v1/ps", Role.VIEWER, self._ps),
            _Route("GET", "/v1/processes/", Role.VIEWER, self._process),
            _Route("GET", "/v1/incidents", Role.VIEWER, self._incidents),
            _Route("GET", "/v1/incidents/", Role.VIEWER, self._incident),
            _Route("GET", "/v1/explain/reset", Role.VIEWER, self._explain_reset),
            _Route("GET", "/v1/explain/pid/", Role.VIEWER, self._explain_pid),
            # Kernel stacks and other users' command lines: not for everybody who may look.
            _Route("GET", "/v1/evidence/", Role.OPERATOR, self._evidence),
            _Route("GET", "/v1/stuck", Role.OPERATOR, self._stuck),
            _Route("GET", "/v1/snapshot", Role.OPERATOR, self._snapshot),
            _Route("POST", "/v1/reclaims", Role.OPERATOR, self._reclaim),
            _Route("POST", "/v1/resets", Role.OPERATOR, self._reset),
            _Route("POST", "/v1/pause", Role.OPERATOR, self._pause),
            _Route("POST", "/v1/resume", Role.OPERATOR, self._resume),
            _Route("POST", "/v1/release-driver", Role.OPERATOR, self._release_driver),
            _Route("POST", "/v1/undrain", Role.OPERATOR, self._undrain),
            _Route("POST", "/v1/unkillable", Role.OPERATOR, self._unkillable),
        )

    async def answer(self, call: Call, caller: Caller) -> Answer:
        """Return the answer to one call; our own errors become an error body, never a traceback."""
        fitting = [route for route in self._routes if _fits(route.path, call.path)]
        if not fitting:
            return refusal(404, f"there is no call {call.path}", "see docs/architecture.md", ExitCode.USAGE)
        route = next((one for one in fitting if one.method == call.method), None)
        if route is None:
            return refusal(405, f"{call.path} takes {fitting[0].method}", exit_code=ExitCode.USAGE)
        if caller.role < route.role:
            await self._note_denied(call, caller)
            mend = f"it needs the role {route.role.name.lower()}: ask root"
            return refusal(
                403, f"not allowed: {caller.why or 'you may only read'}", mend, ExitCode.NOT_ALLOWED
            )
        try:
            return await route.handler(call, caller)
        except OrderFault as fault:
            return refusal(400, fault.message, fault.mend, fault.exit_code)
        except ReclaimerdError as error:
            return refusal(409, error.message, error.mend, error.exit_code)

    async def _status(self, _call: Call, _caller: Caller) -> Answer:
        return Answer(200, status_view(self._service.cycle, self._service.facts()))

    async def _ps(self, _call: Call, _caller: Caller) -> Answer:
        return Answer(200, ps_view(self._service.cycle))

    async def _process(self, call: Call, _caller: Caller) -> Answer:
        text = call.path.rpartition("/")[2]
        if not _NUMBER.fullmatch(text):
            return refusal(400, f"{text[:64]!r} is no pid", "give a number", ExitCode.USAGE)
        view = process_view(self._service.cycle, int(text))
        if view is None:
            await self._service.look(pids=(int(text),), seconds=LOOK_SECONDS)
            view = process_view(self._service.cycle, int(text))
        if view is None:
            return refusal(404, f"there is no process {text}", exit_code=ExitCode.NO_TARGET)
        return Answer(200, view)

    async def _evidence(self, call: Call, _caller: Caller) -> Answer:
        text = call.path.rpartition("/")[2]
        if not _NUMBER.fullmatch(text):
            return refusal(400, f"{text[:64]!r} is no pid", "give a number", ExitCode.USAGE)
        return Answer(200, await self._investigator.evidence(int(text)))

    async def _stuck(self, _call: Call, _caller: Caller) -> Answer:
        return Answer(200, await self._investigator.stuck())

    async def _incidents(self, call: Call, _caller: Caller) -> Answer:
        text = call.query.get("limit", "50")
        limit = min(1000, int(text)) if _NUMBER.fullmatch(text) else 50
        paths = self._service.engine.paths
        rows = await self._service.off_loop(
            lambda: read_incidents(paths.state_dir, limit), "reading incidents"
        )
        return Answer(200, {"incidents": rows})

    async def _incident(self, call: Call, _caller: Caller) -> Answer:
        name = call.path.rpartition("/")[2]
        paths = self._service.engine.paths
        found = await self._service.off_loop(
            lambda: read_incident(paths.state_dir, paths.log_dir, name), "reading the incident"
        )
        if found is None:
            return refusal(
                404, f"there is no incident {name}", "see reclaimctl incidents", ExitCode.NO_TARGET
            )
        return Answer(200, found)

    async def _explain_reset(self, call: Call, _caller: Caller) -> Answer:
        return await explain_call(self._service, call)

    async def _explain_pid(self, call: Call, _caller: Caller) -> Answer:
        return await explain_process(self._service, call)

    async def _snapshot(self, _call: Call, _caller: Caller) -> Answer:
        return await snapshot_call(self._service)

    async def _reset(self, call: Call, caller: Caller) -> Answer:
        return await reset_call(self._service, call, caller, followed)

    async def _reclaim(self, call: Call, caller: Caller) -> Answer:
        orders = orders_of(call.body, caller.actor)
        tickets = [Ticket(order, await self._service.family(order)) for order in orders]
        return Answer(200, {}, lines=followed(tickets, self._service))

    async def _pause(self, call: Call, caller: Caller) -> Answer:
        seconds = pause_seconds(call.body)
        reason = str(call.body.get("reason") or "")[:500]
        wall = self._service.wall()
        until = None if seconds is None else wall + seconds
        pause = Pause(caller.actor.name, reason, wall, until)
        cycle = self._service.cycle
        record = entries.of_host(RecordKind.PAUSED, reason or "no reason given", caller.actor)
        await cycle.write(lambda ledger: replace(ledger, pause=pause), (record,))
        return Answer(200, {"paused": {"by": pause.by, "reason": reason, "since": wall, "until": until}})

    async def _resume(self, call: Call, caller: Caller) -> Answer:
        """End a pause, and close a breaker that tripped: a person says that acts by rule may go on.

        With a GPU it closes that GPU's own breaker alone: it may be reset again.
        """
        cycle = self._service.cycle
        gpu = resumed_gpu(call.body)
        if gpu is not None:
            return await self._close_gpu_breaker(gpu, caller)
        records = [entries.of_host(RecordKind.RESUMED, "an operator resumed acts by rule", caller.actor)]
        if cycle.state.ledger.breaker is not None:
            why = cycle.state.ledger.breaker.reason
            records.append(entries.of_host(RecordKind.BREAKER_CLOSED, why, caller.actor))
        await cycle.write(lambda ledger: replace(ledger, pause=None, breaker=None), tuple(records))
        self._service.pacing.wake()
        return Answer(200, {"paused": None, "breaker": None})

    async def _release_driver(self, call: Call, caller: Caller) -> Answer:
        return await release_call(self._service, call, caller)

    async def _undrain(self, call: Call, caller: Caller) -> Answer:
        return await undrain_call(self._service, call, caller)

    async def _unkillable(self, call: Call, caller: Caller) -> Answer:
        return await unkillable_call(self._service, call, caller)

    async def _close_gpu_breaker(self, gpu: GpuUuid, caller: Caller) -> Answer:
        cycle = self._service.cycle
        found = next((one for one in cycle.state.ledger.gpu_breakers if one.gpu == gpu), None)
        if found is None:
            return refusal(404, f"no breaker is open for {gpu}", "see reclaimctl status", ExitCode.NO_TARGET)
        record = entries.of_host(RecordKind.BREAKER_CLOSED, f"{gpu}: {found.reason}", caller.actor)
        await cycle.write(
            lambda ledger: replace(
                ledger, gpu_breakers=tuple(one for one in ledger.gpu_breakers if one.gpu != gpu)
            ),
            (record,),
        )
        return Answer(200, {"gpu": gpu, "breaker": None})

    async def _note_denied(self, call: Call, caller: Caller) -> None:
        """Put a denial on record once per uid and hour: a flood of them must cost nothing."""
        uid = caller.actor.uid or 0
        now = self._service.cycle.joints.clock()
        last = self._denied.get(uid)
        if last is not None and now < last + _DENIED_EVERY_SECONDS:
            return
        self._denied = {one: at for one, at in self._denied.items() if now < at + _DENIED_EVERY_SECONDS}
        if len(self._denied) >= _MOST_DENIED_UIDS:
            return
        self._denied[uid] = now
        text = f"{call.method} {call.path[:64]}: {caller.why or 'may only read'}"
        record = entries.of_host(RecordKind.DENIED, text, caller.actor)
        try:
            await self._service.cycle.write(None, (record,))
        except ReclaimerdError:
            self._denied.pop(uid, None)


async def followed(tickets: list[Ticket], service: Service) -> AsyncGenerator[Body, None]:
    """Place the orders, yield their lines as they come, and the result of all when each has its end.

    A reader who goes away leaves nothing here; an incident that was opened goes on, an order that no
    pass has taken up yet is withdrawn.
    """
    yield {"event": "accepted", "text": f"{len(tickets)} to look at"}
    desk = service.cycle.desk
    waiting: dict[asyncio.Task[Mapping[str, object]], Ticket] = {}
    try:
        for ticket in tickets:
            desk.place(ticket)
            waiting[asyncio.ensure_future(ticket.events.get())] = ticket
        service.pacing.wake()
        while waiting:
            ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in ready:
                ticket = waiting.pop(task)
                yield task.result()
                if ticket.exit_code is None or not ticket.events.empty():
                    waiting[asyncio.ensure_future(ticket.events.get())] = ticket
    finally:
        for task in waiting:
            task.cancel()
        for ticket in tickets:
            desk.drop(ticket)
    codes = [ExitCode.INTERNAL if ticket.exit_code is None else ticket.exit_code for ticket in tickets]
    yield {
        "event": "result",
        "exit_code": int(gravest(codes)),
        "targets": [result_row(ticket) for ticket in tickets],
    }


def _fits(path: str, asked: str) -> bool:
    if path.endswith("/"):
        return asked.startswith(path) and "/" not in asked[len(path) :] and len(asked) > len(path)
    return asked == path
