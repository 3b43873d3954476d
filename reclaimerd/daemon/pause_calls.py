"""The calls that stop acts by rule and let them go on: pause, resume, and the breakers that a person closes.

An operator ends a pause; a breaker says that something went wrong on a large scale, and only an
administrator closes it.
"""

from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import pause_seconds, reason_of, resumed_gpu
from reclaimerd.daemon.breaker_calls import close_gpu, closing
from reclaimerd.daemon.denials import NeedsRoleError
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.service import Service
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Ledger, Pause


async def pause_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Stop acts by rule for a time or until resumed. Raises OrderFault, RecordError."""
    seconds, reason = pause_seconds(call.body), reason_of(call.body)
    wall = service.wall()
    until = None if seconds is None else wall + seconds
    pause = Pause(caller.actor.name, reason, wall, until)
    record = entries.of_host(RecordKind.PAUSED, reason or "no reason given", caller.actor)
    await service.cycle.write(lambda ledger: replace(ledger, pause=pause), (record,))
    return Answer(200, {"paused": {"by": pause.by, "reason": reason, "since": wall, "until": until}})


async def resume_call(service: Service, call: Call, caller: Caller) -> Answer:
    """End a pause, and as an administrator close a breaker that tripped; with a GPU close that GPU's alone.

    Raises NeedsRoleError where only a breaker is in the way and the caller may not close it, RecordError.
    """
    cycle = service.cycle
    gpu = resumed_gpu(call.body)
    if gpu is not None:
        if caller.role < Role.ADMIN:
            raise NeedsRoleError("a GPU's breaker follows failed resets", Role.ADMIN)
        return await close_gpu(service, gpu, call, caller)
    breaker, closes = cycle.state.ledger.breaker, caller.role >= Role.ADMIN
    if breaker is not None and not closes and cycle.state.ledger.pause is None:
        raise NeedsRoleError(f"the breaker is open ({breaker.reason})", Role.ADMIN)
    text = reason_of(call.body) or "an operator resumed acts by rule"
    records = [entries.of_host(RecordKind.RESUMED, text, caller.actor)]
    closed = closing(service, call, caller) if closes else None
    if closed is not None:
        records.append(closed[1])

    def resumed(ledger: Ledger) -> Ledger:
        return replace(ledger if closed is None else closed[0](ledger), pause=None)

    await cycle.write(resumed, tuple(records))
    service.pacing.wake()
    left = cycle.state.ledger.breaker
    told = None if left is None else {"reason": left.reason, "since": left.since}
    return Answer(200, {"paused": None, "breaker": told})
