"""The calls of the control API: each names its path, its least role, and what it does.

Handlers read the last look or ask the loop for a pass; none touches NVML or another process, none
blocks. Every denied call and every act is on record.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import OrderFault, consent_of, demand_reason, demand_waiting, orders_of
from reclaimerd.daemon.audit_calls import export_call
from reclaimerd.daemon.breaker_calls import breakers_call, close_call
from reclaimerd.daemon.candidates import candidates_call
from reclaimerd.daemon.denials import Denials, NeedsRoleError, unknown_caller
from reclaimerd.daemon.desk import Ticket, gravest
from reclaimerd.daemon.drain_calls import drain_call, undrain_call
from reclaimerd.daemon.evidence_wiring import Investigator
from reclaimerd.daemon.explain_calls import explain_process, snapshot_call
from reclaimerd.daemon.http_server import Answer, Body, Call, refusal
from reclaimerd.daemon.metrics_door import metrics_answer
from reclaimerd.daemon.owner_calls import Owners, TooManyOrdersError
from reclaimerd.daemon.past import read_incident, read_incidents
from reclaimerd.daemon.pause_calls import pause_call, resume_call
from reclaimerd.daemon.process_calls import process_call
from reclaimerd.daemon.redaction import redacted
from reclaimerd.daemon.release_calls import release_call
from reclaimerd.daemon.reloading import Reload, reload_call
from reclaimerd.daemon.reset_calls import explain_call, reset_call
from reclaimerd.daemon.routes import Route as _Route
from reclaimerd.daemon.rule_calls import resume_rule_call, rules_call, suspend_call
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.slurm_calls import unkillable_call
from reclaimerd.daemon.telling import result_row
from reclaimerd.daemon.views import process_view, ps_view, status_view
from reclaimerd.daemon.why_calls import WhyDesk
from reclaimerd.errors import ExitCode, ReclaimerdError

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


class Api:
    """The calls, over one service."""

    __slots__ = ("_denials", "_investigator", "_owners", "_reload", "_service", "_why_desk", "routes")

    def __init__(self, service: Service, reload: Reload | None = None) -> None:
        self._service = service
        self._reload = reload
        self._denials = Denials(service)
        self._owners = Owners(service)
        self._investigator = Investigator(service.engine)
        self._why_desk = WhyDesk(service)
        self.routes = (
            _Route("GET", "/v1/status", Role.VIEWER, self._status),
            _Route("GET", "/v1/ps", Role.VIEWER, self._ps),
            _Route("GET", "/v1/processes/PID", Role.VIEWER, self._process),
            _Route("GET", "/v1/incidents", Role.VIEWER, self._incidents),
            _Route("GET", "/v1/incidents/ID", Role.VIEWER, self._incident),
            _Route("GET", "/metrics", Role.VIEWER, self._metrics),
            _Route("GET", "/v1/explain/reset", Role.VIEWER, self._explain_reset),
            _Route("GET", "/v1/explain/pid/PID", Role.VIEWER, self._explain_pid),
            # Kernel stacks and other users' command lines: not for everybody who may look.
            _Route("GET", "/v1/evidence/PID", Role.OPERATOR, self._evidence),
            _Route("GET", "/v1/stuck", Role.OPERATOR, self._stuck),
            _Route("GET", "/v1/snapshot", Role.OPERATOR, self._snapshot),
            _Route("GET", "/v1/rules", Role.VIEWER, self._rules),
            _Route("POST", "/v1/reclaims", Role.OPERATOR, self._reclaim, owner=True, acts=True),
            _Route("GET", "/v1/reclaims/candidates", Role.VIEWER, self._candidates, owner=True),
            _Route("POST", "/v1/resets", Role.ADMIN, self._reset, acts=True),
            _Route("POST", "/v1/pause", Role.OPERATOR, self._pause, acts=True),
            # To close a breaker it takes an administrator: the call itself tells the two apart.
            _Route("POST", "/v1/resume", Role.OPERATOR, self._resume, acts=True),
            _Route("GET", "/v1/breakers", Role.VIEWER, self._breakers),
            _Route("POST", "/v1/breakers/close", Role.ADMIN, self._close_breaker, acts=True),
            _Route("POST", "/v1/rules/NAME/suspend", Role.OPERATOR, self._suspend_rule, acts=True),
            _Route("POST", "/v1/rules/NAME/resume", Role.OPERATOR, self._resume_rule, acts=True),
            _Route("POST", "/v1/release-driver", Role.ADMIN, self._release_driver, acts=True),
            _Route("POST", "/v1/reload", Role.ADMIN, self._reload_policy),
            _Route("POST", "/v1/drain", Role.OPERATOR, self._drain, acts=True),
            _Route("POST", "/v1/undrain", Role.OPERATOR, self._undrain, acts=True),
            _Route("POST", "/v1/unkillable", Role.OPERATOR, self._unkillable),
            _Route("POST", "/v1/audit/exports", Role.ADMIN, self._export),
            _Route("GET", "/v1/why", Role.OPERATOR, self._why, owner=True),
        )

    async def answer(self, call: Call, caller: Caller) -> Answer:
        """Return the answer to one call; our own errors become an error body, never a traceback."""
        fitting = [route for route in self.routes if route.fits(call.path)]
        if not fitting:
            return refusal(404, f"there is no call {call.path}", "see docs/architecture.md", ExitCode.USAGE)
        route = next((one for one in fitting if one.method == call.method), None)
        if route is None:
            return refusal(405, f"{call.path} takes {fitting[0].method}", exit_code=ExitCode.USAGE)
        if caller.unknown:
            return unknown_caller()
        try:
            return await self._answered(route, call, caller)
        except NeedsRoleError as error:
            return await self._denials.answer(call, caller, error)
        except ReclaimerdError as error:
            return refusal(_status_of(error), error.message, error.mend, error.exit_code)

    async def _answered(self, route: _Route, call: Call, caller: Caller) -> Answer:
        """Answer who may ask; a viewer reads no command line of others."""
        if caller.role < route.role:
            if not (route.owner and caller.may_own):
                raise NeedsRoleError(caller.why or f"your role is {caller.role.word}", route.role)
            caller = caller.as_owner()
        if route.acts and self._service.cycle.policy.access.require_reason:
            demand_reason(call.body)
        answer = await route.handler(call, caller)
        if caller.role >= Role.OPERATOR or answer.lines is not None:
            return answer
        return replace(answer, body=redacted(answer.body, caller.actor.uid))

    async def _status(self, _call: Call, _caller: Caller) -> Answer:
        return Answer(200, status_view(self._service.cycle, self._service.facts()))

    async def _metrics(self, _call: Call, _caller: Caller) -> Answer:
        return metrics_answer(self._service.engine.outlets.text())

    async def _ps(self, _call: Call, _caller: Caller) -> Answer:
        return Answer(200, ps_view(self._service.cycle))

    async def _process(self, call: Call, _caller: Caller) -> Answer:
        return await process_call(self._service, call, process_view)

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

    async def _candidates(self, call: Call, caller: Caller) -> Answer:
        return Answer(200, await candidates_call(self._service, call.query, caller, self._owners))

    async def _reclaim(self, call: Call, caller: Caller) -> Answer:
        orders = orders_of(call.body, caller.actor)
        waits = call.body.get("wait") is not False
        if not waits and self._service.cycle.joints.foreground:
            demand_waiting()
        if caller.actor.is_owner:
            await self._owners.check(orders, caller)
        consent = consent_of(call.body)
        tickets = [Ticket(order, await self._service.family(order), consent) for order in orders]
        return Answer(200, {}, lines=followed(tickets, self._service, waits=waits))

    async def _pause(self, call: Call, caller: Caller) -> Answer:
        return await pause_call(self._service, call, caller)

    async def _resume(self, call: Call, caller: Caller) -> Answer:
        return await resume_call(self._service, call, caller)

    async def _rules(self, _call: Call, _caller: Caller) -> Answer:
        return await rules_call(self._service)

    async def _suspend_rule(self, call: Call, caller: Caller) -> Answer:
        return await suspend_call(self._service, call, caller)

    async def _resume_rule(self, call: Call, caller: Caller) -> Answer:
        return await resume_rule_call(self._service, call, caller)

    async def _reload_policy(self, _call: Call, caller: Caller) -> Answer:
        return await reload_call(self._reload, caller)

    async def _release_driver(self, call: Call, caller: Caller) -> Answer:
        return await release_call(self._service, call, caller)

    async def _breakers(self, _call: Call, _caller: Caller) -> Answer:
        return breakers_call(self._service)

    async def _close_breaker(self, call: Call, caller: Caller) -> Answer:
        return await close_call(self._service, call, caller)

    async def _drain(self, call: Call, caller: Caller) -> Answer:
        return await drain_call(self._service, call, caller, followed)

    async def _undrain(self, call: Call, caller: Caller) -> Answer:
        return await undrain_call(self._service, call, caller)

    async def _export(self, _call: Call, caller: Caller) -> Answer:
        return await export_call(self._service, caller)

    async def _why(self, call: Call, caller: Caller) -> Answer:
        return await self._why_desk.answer(call.query, caller)

    async def _unkillable(self, call: Call, caller: Caller) -> Answer:
        return await unkillable_call(self._service, call, caller)


def _status_of(error: ReclaimerdError) -> int:
    match error:
        case OrderFault():
            return 400
        case TooManyOrdersError():
            return 429
        case _:
            return 409


async def followed(
    tickets: list[Ticket], service: Service, *, waits: bool = True
) -> AsyncGenerator[Body, None]:
    """Place the orders, yield their lines as they come, and the result of all when each has its end.

    Without `waits` the result comes as soon as each has its incident, which goes on, or was declined.
    A reader who goes away leaves nothing here; an incident that was opened goes on, an order that no
    pass has taken up yet is withdrawn.
    """
    yield {
        "event": "accepted",
        "text": f"{len(tickets)} {'target' if len(tickets) == 1 else 'targets'}: a fresh look first",
    }
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
                follows = ticket.exit_code is None and (waits or ticket.told == 0)
                if follows or not ticket.events.empty():
                    waiting[asyncio.ensure_future(ticket.events.get())] = ticket
    finally:
        for task in waiting:
            task.cancel()
        for ticket in tickets:
            desk.drop(ticket)
    for ticket in tickets:
        if ticket.exit_code is None and ticket.told > 0:
            ticket.finish(ExitCode.OK, f"accepted; incident {ticket.incident} goes on", ticket.reasons)
    codes = [ExitCode.INTERNAL if ticket.exit_code is None else ticket.exit_code for ticket in tickets]
    yield {
        "event": "result",
        "exit_code": int(gravest(codes)),
        "targets": [result_row(ticket) for ticket in tickets],
    }
