"""The calls that stop acts by rule and let them go on: pause, resume, and the breakers that a person closes.

An operator ends a pause; a breaker says that something went wrong on a large scale, and only an
administrator closes it.
"""

from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import pause_seconds, reason_of, resumed_gpu
from reclaimerd.daemon.denials import NeedsRoleError
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Pause


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
        return await _close_gpu_breaker(service, gpu, call, caller)
    breaker, closes = cycle.state.ledger.breaker, caller.role >= Role.ADMIN
    if breaker is not None and not closes and cycle.state.ledger.pause is None:
        raise NeedsRoleError(f"the breaker is open ({breaker.reason})", Role.ADMIN)
    text = reason_of(call.body) or "an operator resumed acts by rule"
    records = [entries.of_host(RecordKind.RESUMED, text, caller.actor)]
    if breaker is not None and closes:
        why = _closed(breaker.reason, call)
        records.append(entries.of_host(RecordKind.BREAKER_CLOSED, why, caller.actor))
    await cycle.write(
        lambda ledger: replace(ledger, pause=None, breaker=None if closes else ledger.breaker), tuple(records)
    )
    service.pacing.wake()
    left = cycle.state.ledger.breaker
    told = None if left is None else {"reason": left.reason, "since": left.since}
    return Answer(200, {"paused": None, "breaker": told})


async def _close_gpu_breaker(service: Service, gpu: GpuUuid, call: Call, caller: Caller) -> Answer:
    if caller.role < Role.ADMIN:
        raise NeedsRoleError("a GPU's breaker follows failed resets", Role.ADMIN)
    cycle = service.cycle
    found = next((one for one in cycle.state.ledger.gpu_breakers if one.gpu == gpu), None)
    if found is None:
        return refusal(404, f"no breaker is open for {gpu}", "see reclaimctl status", ExitCode.NO_TARGET)
    why = _closed(f"{gpu}: {found.reason}", call)
    record = entries.of_host(RecordKind.BREAKER_CLOSED, why, caller.actor)
    await cycle.write(
        lambda ledger: replace(
            ledger, gpu_breakers=tuple(one for one in ledger.gpu_breakers if one.gpu != gpu)
        ),
        (record,),
    )
    return Answer(200, {"gpu": gpu, "breaker": None})


def _closed(why: str, call: Call) -> str:
    """Return why a breaker was open, and why it is closed where that was said."""
    reason = reason_of(call.body)
    return f"{why}; closed: {reason}" if reason else why
