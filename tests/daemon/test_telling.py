"""What who waits for an order is told: each line once, the end always, with what still holds."""

from dataclasses import replace

from reclaimerd.daemon.desk import Desk, Ticket
from reclaimerd.daemon.opening import Moment, Order
from reclaimerd.daemon.telling import result_row, stages_of, task_lines, tell_all
from reclaimerd.errors import ExitCode
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Recipient, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind, Refusal
from tests.builders import (
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_process,
    a_ref,
    a_step,
    a_task,
    an_incident,
)

SENT = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT, "sent"))


def a_story() -> tuple[Desk, Ticket]:
    """Return a desk with one order that follows inc-1."""
    ticket = Ticket(Order(100, OPERATOR), incident=IncidentId("inc-1"))
    return Desk(under_way=[ticket]), ticket


def told(
    desk: Desk, ticket: Ticket, incident: Incident, snapshot: Snapshot | None = None, at: float = MONO
) -> list[str]:
    """Tell once, and return the events that came."""
    seen = a_busy_snapshot() if snapshot is None else snapshot
    tell_all(desk, {incident.id: incident}, (seen, Moment(at, WALL), Ledger()), {})
    return [str(ticket.events.get_nowait()["event"]) for _ in range(ticket.events.qsize())]


def test_each_step_is_told_once_and_waiting_only_when_it_changes() -> None:
    """Opened, step, waiting; then nothing until the state changes; then the end."""
    desk, ticket = a_story()
    assert told(desk, ticket, an_incident(attempts=(SENT,), stage=Stage.SIGTERM)) == [
        "opened",
        "step",
        "waiting",
    ]
    assert told(desk, ticket, an_incident(attempts=(SENT,), stage=Stage.SIGTERM)) == []
    stuck = a_busy_snapshot(a_process(tasks=(a_task(state="D", flags=0x4),)))
    assert told(desk, ticket, an_incident(attempts=(SENT,), stage=Stage.SIGTERM), stuck) == ["waiting"]
    again = replace(SENT, id=AttemptId("inc-1.2"), stage=Stage.SIGKILL)
    both = an_incident(attempts=(SENT, again), stage=Stage.SIGKILL)
    assert told(desk, ticket, both, stuck) == ["step"]
    end = replace(both, stage=Stage.RECLAIMED, ended_at=WALL, end_text="proven")
    assert told(desk, ticket, end) == ["ended"]
    assert (ticket.exit_code, ticket.end, desk.under_way) == (ExitCode.OK, "reclaimed", [])


def test_a_step_without_its_outcome_is_not_told_yet() -> None:
    """The line comes with what came of it."""
    desk, ticket = a_story()
    open_attempt = replace(SENT, outcome=None)
    assert told(desk, ticket, an_incident(attempts=(open_attempt,))) == ["opened", "waiting"]
    assert told(desk, ticket, an_incident(attempts=(SENT,))) == ["step"]


def test_a_refusal_comes_with_every_reason_in_the_result() -> None:
    """Kind, text, mend and whom it concerns."""
    desk, ticket = a_story()
    reason = Reason(ReasonKind.PROTECTED, "pid 100 is protected", "change it", (a_ref(),))
    end = an_incident(stage=Stage.STOOD_DOWN, last_refusal="protected", end_text="refused: protected")
    refused = {end.id: Refusal(a_step(), (reason,))}
    tell_all(desk, {end.id: end}, (a_busy_snapshot(), Moment(MONO, WALL), Ledger()), refused)
    row = result_row(ticket)
    assert row["exit_code"] == ExitCode.REFUSED
    assert row["reasons"] == [
        {
            "kind": "protected",
            "text": "pid 100 is protected",
            "mend": "change it",
            "gpu": None,
            "pids": [100],
            "refs": [str(a_ref())],
        }
    ]


def test_an_order_that_was_declined_is_told_and_ends() -> None:
    """No incident: one line, the code and the text."""
    ticket = Ticket(Order(100, OPERATOR))
    desk = Desk(under_way=[ticket])
    ticket.finish(ExitCode.NO_TARGET, "there is no process 100")
    tell_all(desk, {}, (a_busy_snapshot(), Moment(MONO, WALL), Ledger()), {})
    line = ticket.events.get_nowait()
    assert (line["event"], line["text"]) == ("declined", "there is no process 100")
    assert result_row(ticket)["exit_code"] == ExitCode.NO_TARGET
    assert desk.under_way == []


def test_an_order_whose_pass_failed_does_not_wait_for_ever() -> None:
    """Taken up, and nothing came of it: an internal error, told."""
    desk, ticket = a_story()
    tell_all(desk, {}, (a_busy_snapshot(), Moment(MONO, WALL), Ledger()), {})
    assert ticket.exit_code is ExitCode.INTERNAL
    assert ticket.events.qsize() == 1
    assert desk.under_way == []


def test_the_time_of_a_joined_order_is_its_own() -> None:
    """Before its time nothing; at it exit 5 with the tasks, while the incident goes on."""
    desk, ticket = a_story()
    ticket.until = MONO + 5.0
    incident = an_incident(attempts=(SENT,), stage=Stage.SIGTERM)
    assert "left" not in told(desk, ticket, incident, at=MONO + 4.9)
    assert told(desk, ticket, incident, at=MONO + 5.0) == ["left"]
    row = result_row(ticket)
    assert row["exit_code"] == ExitCode.TIME_UP
    assert row["tasks"]


def test_time_up_names_the_state_of_each_task_that_is_left() -> None:
    """Exit 5 shows who still holds, task by task; a process that is gone is not listed."""
    left = a_process(101, start=2, tasks=(a_task(101, "D", 0x4), a_task(102, "Z")))
    target = replace(an_incident().target, members=(a_ref(), left.ref))
    snapshot = a_busy_snapshot(a_process(), left, exited=frozenset({a_ref()}))
    (line,) = task_lines(an_incident(target=target), snapshot)
    assert line["pid"] == 101
    assert line["tasks"] == [{"tid": 101, "state": "D", "exiting": True}]


def test_the_stages_name_outcomes_and_what_was_passed_over() -> None:
    """Each attempt with its outcome, each stage passed over with why and no time."""
    incident = an_incident(attempts=(SENT, replace(SENT, outcome=None)), passed_over=("reset: not listed",))
    assert stages_of(incident) == [
        {"stage": "sigterm", "at": WALL, "outcome": "sent"},
        {"stage": "sigterm", "at": WALL, "outcome": "none yet"},
        {"stage": "reset", "at": None, "outcome": "passed over: not listed"},
    ]


def test_an_order_without_an_end_reads_as_an_internal_error() -> None:
    """A result is never taken for success by default."""
    assert result_row(Ticket(Order(1000, OPERATOR)))["exit_code"] == ExitCode.INTERNAL


def test_handed_over_to_the_scheduler_is_time_up_for_who_waits() -> None:
    """The node is asked to drain: the GPU is not back."""
    desk, ticket = a_story()
    told(desk, ticket, an_incident(stage=Stage.HANDED_OVER, handed_to=Recipient.SCHEDULER))
    assert ticket.exit_code is ExitCode.TIME_UP
