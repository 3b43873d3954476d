"""What must hold between passes, whatever happened: read from the daemon's state, its files and the host."""

from collections.abc import Iterator

from reclaimerd.daemon.drains import under_way
from reclaimerd.daemon.past import read_stored
from reclaimerd.judge.steps import OutOfSteps, Wait, due_step
from reclaimerd.model.incident import Incident
from reclaimerd.model.step import Step
from reclaimerd.record.audit_read import read_records, verify
from tests.machine.host import Host
from tests.machine.life import Life

_TOLD = 25


def breaches(life: Life) -> tuple[str, ...]:
    """Return what is not as it must be after a pass."""
    state = life.service.cycle.state
    found = [*_standing(life)]
    if life.service.last_error:
        found.append(f"the pass failed: {life.service.last_error}")
    elif not state.record_fault:
        found += _open_attempts(life)
        for incident in state.incidents.values():
            why = _idle(incident, life)
            if why:
                found.append(f"{incident.id} ({incident.stage}) is open and {why}")
    return tuple(found)


def _standing(life: Life) -> Iterator[str]:
    stands = life.host.scheduler.stands
    if len(stands) > 1:
        yield f"{len(stands)} drain requests stand: {', '.join(stands)}"
    runs = [run for run in life.service.cycle.state.ledger.resets if run.result is None]
    if len(runs) > 1:
        yield f"{len(runs)} resets are under way at once"


def _open_attempts(life: Life) -> Iterator[str]:
    """Yield each act without an outcome that nothing under way will give it."""
    state, mirror = life.service.cycle.state, life.host.oracle.mirror
    for incident in mirror.incidents.values():
        for attempt in incident.attempts:
            if attempt.id not in mirror.intents and not state.record_fault:
                yield f"{attempt.id} ({attempt.stage}) is in the store, and no intent of it in the log"
            if attempt.outcome is not None and attempt.id not in mirror.outcomes and not state.record_fault:
                yield f"{attempt.id} ({attempt.stage}) has an outcome in the store alone"
            open_now = attempt.outcome is None and attempt.id not in mirror.outcomes
            if open_now and attempt.id in mirror.intents and not under_way(incident.id, state.ledger):
                yield f"{attempt.id} ({attempt.stage}) has an intent and no outcome"


def _idle(incident: Incident, life: Life) -> str:
    """Return why nothing will come of an open incident, "" where it waits for something that is said."""
    state = life.service.cycle.state
    if incident.ended or state.snapshot is None or under_way(incident.id, state.ledger):
        return ""
    match due_step(incident, state.snapshot):
        case Wait(until=None):
            return "waits for nothing that is said"
        case Wait():
            return ""
        case Step(stage=stage):
            is_told = bool(state.said.get(incident.id)) or state.wants_reset_look
            return "" if is_told or incident.attempts else f"its step {stage} is due, and nobody says why not"
        case OutOfSteps(why=why):
            return f"has run out of steps: {why}"


def record_faults(host: Host) -> tuple[str, ...]:
    """Return what the real verifier finds in the files that stand now."""
    if not host.log_dir.exists():
        return ()
    found = verify(host.log_dir, read_stored(host.folder / "state").anchor)
    return () if found.ok else found.faults


def story_of(host: Host) -> tuple[str, ...]:
    """Return the newest records, oldest first, a line each: what a failure is read by."""
    if not host.log_dir.exists():
        return ()
    newest = list(read_records(host.log_dir, newest_first=True, limit=_TOLD, where=lambda _record: True))
    keys = ("kind", "incident", "attempt", "action", "end", "reason")
    said = tuple(
        "  " + " ".join(str(record[key]) for key in keys if record.get(key)) for record in reversed(newest)
    )
    opened = tuple(f"  {one}" for one in host.oracle.mirror.incidents.values() if not one.ended)
    return said + opened
