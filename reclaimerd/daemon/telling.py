"""Tell whoever waits for an order what happened to it, line by line, and its end."""

from collections.abc import Mapping

from reclaimerd.daemon.desk import Desk, Ticket, exit_code_of
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.rows import reason_row
from reclaimerd.errors import ExitCode
from reclaimerd.judge.exit_path import live_tasks, state_word
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Attempt, Incident, Subject
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Refusal


def tell_all(
    desk: Desk,
    incidents: Mapping[IncidentId, Incident],
    seen: tuple[Snapshot, Moment, Ledger],
    refused: Mapping[IncidentId, Refusal],
) -> None:
    """Give each order under way its new lines; an ended incident ends its orders."""
    for ticket in desk.under_way:
        incident = incidents.get(ticket.incident) if ticket.incident is not None else None
        if incident is None:
            if ticket.exit_code is None:
                text = "the pass that took this order up failed: see the daemon's log"
                ticket.finish(ExitCode.INTERNAL, text)
            if not ticket.last_word:
                ticket.tell(_line("declined", ticket, None, ticket.text))
                ticket.last_word = "declined"
            continue
        if incident.id in refused:
            ticket.reasons = refused[incident.id].reasons
        _tell(ticket, incident, seen)
    desk.clear_finished()


def stages_of(incident: Incident) -> list[dict[str, object]]:
    """Return the stages an incident took, each with when and what came of it, and its end last."""
    rows: list[dict[str, object]] = [
        {
            "stage": attempt.stage.value,
            "at": attempt.intent_at,
            "outcome": attempt.outcome.kind.value if attempt.outcome is not None else "none yet",
        }
        for attempt in incident.attempts
    ]
    for mark in incident.passed_over:
        stage, _, why = mark.partition(": ")
        rows.append({"stage": stage, "at": None, "outcome": f"passed over: {why}"})
    return rows


def task_lines(incident: Incident, snapshot: Snapshot) -> list[dict[str, object]]:
    """Return the state of every process of the incident that is not gone, in words and by task."""
    lines: list[dict[str, object]] = []
    for ref in incident.processes:
        reading = snapshot.process(ref)
        if ref in snapshot.exited or reading is None:
            continue
        tasks = [
            {"tid": task.tid, "state": task.state, "exiting": task.is_exiting} for task in live_tasks(reading)
        ]
        line: dict[str, object] = {"pid": ref.pid, "ref": str(ref), "text": state_word(reading)}
        plight = snapshot.plights.get(ref)
        if plight is not None:
            line["plight"] = plight.text
        lines.append(line | {"tasks": tasks[:64]})
    return lines


def _waits_for(incident: Incident, snapshot: Snapshot, ledger: Ledger) -> str:
    """Return what an open incident waits for now, in words."""
    run = next((one for one in ledger.resets if one.incident == incident.id and not one.told), None)
    if run is not None:
        return f"reset: {run.phase.replace('_', ' ')}" + (f": {run.text}" if run.text else "")
    texts = "; ".join(str(line["text"]) for line in task_lines(incident, snapshot))
    if texts:
        return texts
    if incident.subject is Subject.NODE:
        drain = ledger.drain
        return "the gate is asked" if drain is None else f"drain request: {drain.slot or drain.phase}"
    return "the gate is asked" if incident.subject is Subject.GPU else "gone; waiting for proof"


def _tell(ticket: Ticket, incident: Incident, seen: tuple[Snapshot, Moment, Ledger]) -> None:
    snapshot, now, ledger = seen
    told = ticket.told
    if told == 0:
        ticket.tell(_line("opened", ticket, incident, f"incident {incident.id}: {incident.target.command}"))
    for attempt in incident.attempts[max(0, told - 1) :]:
        if attempt.outcome is None:
            break
        ticket.tell(_attempt_line(ticket, incident, attempt))
        told = max(told, 1) + 1
    ticket.told = max(told, 1)
    if incident.ended:
        ticket.finish(exit_code_of(incident), incident.end_text, ticket.reasons)
        ticket.stages = tuple(stages_of(incident))
        ticket.tasks = tuple(task_lines(incident, snapshot))
        ticket.end = incident.stage.value
        ticket.tell(_line("ended", ticket, incident, incident.end_text, now))
        return
    if ticket.until is not None and now.mono >= ticket.until:
        ticket.finish(ExitCode.TIME_UP, f"the time that was given is up; incident {incident.id} goes on")
        ticket.stages = tuple(stages_of(incident))
        ticket.tasks = tuple(task_lines(incident, snapshot))
        ticket.tell(_line("left", ticket, incident, ticket.text, now))
        return
    word = _waits_for(incident, snapshot, ledger)
    if word != ticket.last_word:
        ticket.last_word = word
        ticket.tell(_line("waiting", ticket, incident, word, now))


def _attempt_line(ticket: Ticket, incident: Incident, attempt: Attempt) -> dict[str, object]:
    outcome = attempt.outcome
    line = _line("step", ticket, incident, outcome.detail if outcome is not None else "")
    line["stage"] = attempt.stage.value
    line["outcome"] = outcome.kind.value if outcome is not None else ""
    line["at"] = attempt.intent_at
    return line


def _line(
    event: str, ticket: Ticket, incident: Incident | None, text: str, now: Moment | None = None
) -> dict[str, object]:
    line: dict[str, object] = {"event": event, "pid": ticket.order.pid, "text": text}
    if incident is not None:
        line["incident"] = incident.id
        line["stage"] = incident.stage.value
    if now is not None and incident is not None:
        line["at"] = now.wall
        line["elapsed_seconds"] = round(now.mono - incident.opened_mono, 3)
    return line


def result_row(ticket: Ticket) -> dict[str, object]:
    """Return one order's part of the final result."""
    code = ExitCode.INTERNAL if ticket.exit_code is None else ticket.exit_code
    return {
        "pid": ticket.order.pid,
        "exit_code": int(code),
        "end": ticket.end,
        "text": ticket.text,
        "incident": ticket.incident,
        "stages": list(ticket.stages),
        "tasks": list(ticket.tasks),
        "reasons": [reason_row(reason) for reason in ticket.reasons],
    }
