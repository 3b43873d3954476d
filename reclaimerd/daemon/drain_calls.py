"""The calls that ask for this node's drain by hand, and that take its request back.

They ask no target themselves: the order becomes durable, and the drain procedure follows it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import drain_order
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.drain_rows import drain_row
from reclaimerd.daemon.http_server import Answer, Body, Call, refusal
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode
from reclaimerd.model.drain import AskState, DrainPhase, Withdrawal
from reclaimerd.model.ledger import Ledger

FOREGROUND_SECONDS = 60.0
"""How long one command without a daemon waits until everybody has let go."""


Followed = Callable[[list[Ticket], Service], AsyncGenerator[Body, None]]


async def drain_call(service: Service, call: Call, caller: Caller, followed: Followed) -> Answer:
    """Order the drain of this node by hand, and follow it until everybody was asked. Raises OrderFault."""
    ticket = Ticket(drain_order(call.body, caller.actor))
    return Answer(200, {}, lines=_ordered(service, ticket, followed))


async def _ordered(service: Service, ticket: Ticket, followed: Followed) -> AsyncGenerator[Body, None]:
    """Yield the order's lines, and its result with this node's request as it stands then."""
    async with aclosing(followed([ticket], service)) as lines:
        async for line in lines:
            drain = service.cycle.state.ledger.drain
            yield {**line, "drain": drain_row(drain)} if line.get("event") == "result" else line


async def undrain_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Order the withdrawal of the request that an incident asked for or joined; ordered twice is once.

    Raises RecordError when the order can't be put on record: then nothing is taken back.
    """
    name = str(call.body.get("incident") or "")
    drain = service.cycle.state.ledger.drain
    if drain is None or drain.phase is DrainPhase.DONE:
        return refusal(
            404, "this node has no drain request of ours", "see reclaimctl status", ExitCode.NO_TARGET
        )
    if name not in {drain.id, *(one.incident for one in drain.joined)}:
        text = f"incident {name[:64]!r} asked for no drain; the request that stands is {drain.id}"
        return refusal(404, text, f"reclaimctl undrain --incident {drain.id}", ExitCode.NO_TARGET)
    given_up = _given_up(call)
    unknown = ", ".join(sorted(given_up - {ask.target for ask in drain.asks}))
    if unknown:
        names = ", ".join(ask.target for ask in drain.asks)
        text = f"the request asks no {unknown[:200]!r}; nothing was taken back"
        return refusal(404, text, f"--give-up one of: {names}", ExitCode.NO_TARGET)
    if service.cycle.joints.dry_run:
        text = "we run with --dry-run: nothing is taken back"
        return refusal(409, text, "start the service without --dry-run", ExitCode.REFUSED)
    if drain.withdrawal is None:
        reason = str(call.body.get("reason") or "")[:500] or "no reason given"
        order = Withdrawal(caller.actor.name, reason, service.wall())

        def ordered(ledger: Ledger) -> Ledger:
            kept = ledger.drain
            if kept is None or kept.id != drain.id or kept.withdrawal is not None:
                return ledger
            return replace(ledger, drain=replace(kept, withdrawal=order))

        record = entries.of_drain(drain, f"an operator takes the request back: {reason}", caller.actor)
        await service.cycle.write(ordered, (record,))
        service.cycle.joints.look_after_drain()
        service.pacing.wake()
    await _give_up(service, given_up, caller, drain.id)
    if service.cycle.joints.foreground:  # nobody goes on with it when this command is over
        await service.engine.drains.rest(FOREGROUND_SECONDS)
    return Answer(200, {"drain": drain_row(service.cycle.state.ledger.drain)})


def _given_up(call: Call) -> frozenset[str]:
    asked = call.body.get("give_up")
    return frozenset(str(one) for one in asked) if isinstance(asked, list) else frozenset()


async def _give_up(service: Service, names: frozenset[str], caller: Caller, drain_id: str) -> None:
    """Leave targets that can't take the request back to a person, on record with who said so."""
    if not names:
        return

    def left(ledger: Ledger) -> Ledger:
        kept = ledger.drain
        if kept is None or kept.id != drain_id:
            return ledger
        asks = tuple(
            replace(ask, state=AskState.WITHDRAWN, text=f"left to a person by {caller.actor.name}")
            if ask.target in names
            else ask
            for ask in kept.asks
        )
        return replace(ledger, drain=replace(kept, asks=asks))

    drain = service.cycle.state.ledger.drain
    if drain is not None:
        text = f"left to a person: {', '.join(sorted(names))}"
        await service.cycle.write(left, (entries.of_drain(drain, text, caller.actor),))
        service.cycle.joints.look_after_drain()
