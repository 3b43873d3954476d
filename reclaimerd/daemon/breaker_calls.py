"""The calls about breakers: which are open, why and what closes them; and an administrator who closes one.

The host's breaker trips before a pass does too much at once, a GPU's own after failed resets. `resume` closes
them by the same functions; nothing here ends a pause. Whoever says which opening they saw (`since`) closes
no newer one.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import reason_of, resumed_gpu, seen_opening
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Breaker, Ledger
from reclaimerd.model.reset_run import GpuBreaker

CLOSES_HOST = (
    "an administrator, who looked at what became due at once: reclaimctl breaker close --reason TEXT"
)
CLOSES_GPU = "an administrator, who looked at the GPU: reclaimctl breaker close --reason TEXT --gpu"

SEEN_SECONDS = 1.0
"""People and commands name an opening by its whole second."""
Change = Callable[[Ledger], Ledger]


class NewerOpeningError(ReclaimerdError):
    """The breaker opened once more after the caller had looked."""

    exit_code = ExitCode.REFUSED


def breakers_call(service: Service) -> Answer:
    """Return the host's breaker and each GPU's: its state, since when, why, and what closes it."""
    state = service.cycle.state
    host = state.ledger.breaker
    seen = () if state.snapshot is None else state.snapshot.gpus
    open_gpus = {one.gpu: one for one in state.ledger.gpu_breakers}
    uuids = dict.fromkeys((*(gpu.uuid for gpu in seen), *open_gpus))
    rows = [_row("host", None, host, CLOSES_HOST)]
    rows += [_row("gpu", uuid, open_gpus.get(uuid), f"{CLOSES_GPU} {uuid}") for uuid in uuids]
    return Answer(200, {"breakers": rows})


def _row(scope: str, gpu: GpuUuid | None, tripped: Breaker | GpuBreaker | None, closes: str) -> Json:
    return {
        "scope": scope,
        "gpu": gpu,
        "open": tripped is not None,
        "since": None if tripped is None else tripped.since,
        "reason": "" if tripped is None else tripped.reason,
        "closes": "" if tripped is None else f"{closes} --since {_second(tripped.since)}",
    }


def _second(wall: float) -> str:
    """Return the whole second of an opening, as `breaker close --since` takes it."""
    return datetime.fromtimestamp(math.floor(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refuse_newer(tripped: Breaker | GpuBreaker, call: Call) -> None:
    """Raise NewerOpeningError where it opened after the opening that the caller saw."""
    seen = seen_opening(call.body)
    if seen is not None and tripped.since >= seen + SEEN_SECONDS:
        text = (
            f"the breaker opened again since, at {_second(tripped.since)} ({tripped.reason}); it stays open"
        )
        raise NewerOpeningError(text, "look at what became due then: reclaimctl breaker")


async def close_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Close the host's breaker, or with a GPU that GPU's; a pause stays.

    Raises OrderFault, NewerOpeningError, RecordError.
    """
    gpu = resumed_gpu(call.body)
    if gpu is not None:
        return await close_gpu(service, gpu, call, caller)
    found = closing(service, call, caller)
    if found is None:
        return refusal(404, "the host's breaker is not open", "see reclaimctl breaker", ExitCode.NO_TARGET)
    change, record = found
    await service.cycle.write(change, (record,))
    service.pacing.wake()
    return Answer(200, {"gpu": None, "breaker": None})


def closing(service: Service, call: Call, caller: Caller) -> tuple[Change, AuditEntry] | None:
    """Return what closes the host's breaker, and the record of it; None where none is open.

    Raises OrderFault and NewerOpeningError.
    """
    breaker = service.cycle.state.ledger.breaker
    if breaker is None:
        return None
    _refuse_newer(breaker, call)
    record = entries.of_host(RecordKind.BREAKER_CLOSED, _closed(breaker.reason, call), caller.actor)
    return lambda ledger: replace(ledger, breaker=None), record


async def close_gpu(service: Service, gpu: GpuUuid, call: Call, caller: Caller) -> Answer:
    """Close one GPU's breaker, on record. Raises OrderFault, NewerOpeningError, RecordError."""
    cycle = service.cycle
    found = next((one for one in cycle.state.ledger.gpu_breakers if one.gpu == gpu), None)
    if found is None:
        return refusal(404, f"no breaker is open for {gpu}", "see reclaimctl breaker", ExitCode.NO_TARGET)
    _refuse_newer(found, call)
    record = entries.of_host(RecordKind.BREAKER_CLOSED, _closed(f"{gpu}: {found.reason}", call), caller.actor)
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
