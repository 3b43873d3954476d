"""The call that closes our own view of the driver, so that a person may reset, unload or upgrade it by hand.

It asks nothing of the driver and touches no other client of it.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict

from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import OrderFault
from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.released import Released
from reclaimerd.daemon.service import Service
from reclaimerd.errors import CorruptStoreError, ExitCode, ReclaimerdError, RecordError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import Actor
from reclaimerd.model.ledger import Ledger
from reclaimerd.record import logs

DEFAULT_SECONDS = 600.0
MOST_SECONDS = 86400.0
TAKE_BACK = "`reclaimctl release-driver --end` takes it back"


class ReleaseRefusedError(ReclaimerdError):
    """The driver is not released, and nothing was changed."""

    exit_code = ExitCode.REFUSED


async def release_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Close our view of the driver for a time, or take it back; on record with who asked.

    Raises OrderFault, ReleaseRefusedError while a reset of ours is under way, RecordError.
    """
    if service.engine.choice.foreground:
        text = "no daemon runs, so nothing of ours holds the driver between two commands"
        return refusal(409, text, "there is nothing to release", ExitCode.REFUSED)
    if call.body.get("end") is True:
        return await _take_back(service, caller.actor)
    seconds = release_seconds(call.body)
    reason = str(call.body.get("reason") or "")[:500]
    text = f"our own client of the driver is closed for {seconds:g} s: {reason or 'no reason given'}"
    await service.cycle.write(_unless_reset, (of_host(RecordKind.NOTE, text, caller.actor),))
    since = service.wall()
    released = Released(caller.actor.name, reason, since, since + seconds)
    left = await service.engine.release.begin(released, _why(released), lambda: _is_over(service, released))
    service.pacing.wake()
    if left:
        pids = ", ".join(map(str, left))
        text = f"not released: our worker (pid {pids}) was killed and has not ended, so it holds the driver"
        await service.cycle.write(None, (of_host(RecordKind.NOTE, text, caller.actor),))
        raise ReleaseRefusedError(text, "see reclaimctl doctor --stuck")
    return Answer(200, {"released": asdict(released)})


def release_seconds(body: Mapping[str, object]) -> float:
    """Return how long the driver is to be released. Raises OrderFault that names the field."""
    value = body.get("for_seconds")
    if value is None:
        return DEFAULT_SECONDS
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not is_number or not 0 < value <= MOST_SECONDS:
        raise OrderFault(
            f"for_seconds must be over 0 and at most {MOST_SECONDS:.0f}", "name at most 24 h, and ask again"
        )
    return float(value)


def _unless_reset(ledger: Ledger) -> Ledger:
    """Return the ledger as it is; raises ReleaseRefusedError while a reset is under way."""
    for run in ledger.resets:
        if not run.is_done:
            text = f"a reset of {', '.join(run.gpus)} is under way ({run.phase}, incident {run.incident})"
            raise ReleaseRefusedError(text, "wait until it has ended; see reclaimctl status")
    return ledger


def _why(released: Released) -> str:
    """Return what looks and `status` say meanwhile, without the reason: those are the caller's own words."""
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(released.until))
    return f"released by {released.by} until {until}; {TAKE_BACK}"


async def _take_back(service: Service, actor: Actor) -> Answer:
    """Open our view first and say so after: it must not stay closed because a disk is full."""
    ended = service.engine.release.end()
    service.pacing.wake()
    if ended is not None:
        text = f"our own client of the driver may be opened again, before the time that {ended.by} named"
        await service.cycle.write(None, (of_host(RecordKind.NOTE, text, actor),))
    return Answer(200, {"released": None})


async def _is_over(service: Service, released: Released) -> None:
    service.pacing.wake()
    text = f"the time is over for which {released.by} had our own client of the driver closed"
    try:
        await service.cycle.write(None, (of_host(RecordKind.NOTE, text),))
    except (RecordError, CorruptStoreError) as error:
        logs.error("release_end_not_recorded", text=text, error=str(error))
