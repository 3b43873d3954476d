"""Where orders wait, and with which code they end."""

from typing import Any

import pytest

from reclaimerd.daemon.desk import MOST_EVENTS, Desk, Ticket, exit_code_of, gravest
from reclaimerd.daemon.opening import Order
from reclaimerd.errors import ExitCode
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Recipient, Stage
from tests.builders import OPERATOR, WALL, a_ref, an_incident


def a_ticket(pid: int = 100, members: tuple[int, ...] = ()) -> Ticket:
    """Return an order for one process."""
    return Ticket(Order(pid, OPERATOR), members)


def test_an_order_is_taken_only_by_a_look_that_was_asked_about_its_pid() -> None:
    """An order that came after the look began waits for the next one."""
    desk = Desk()
    early, late = a_ticket(100, (101, 102)), a_ticket(200)
    desk.place(early)
    assert desk.pids() == (100, 101, 102)
    desk.place(late)
    assert desk.take(frozenset({100, 101, 102})) == [early]
    assert desk.waiting == [late]
    assert desk.under_way == [early]


def test_the_orders_of_one_incident_are_found_and_the_finished_are_forgotten() -> None:
    """An end ends its orders, and nobody else's."""
    desk = Desk()
    one, two = a_ticket(100), a_ticket(200)
    desk.under_way = [one, two]
    one.incident = IncidentId("inc-1")
    assert desk.of(IncidentId("inc-1")) == [one]
    one.finish(ExitCode.OK, "done")
    desk.clear_finished()
    assert desk.under_way == [two]


def test_a_dropped_order_is_nowhere_any_more() -> None:
    """By identity: an equal order of somebody else stays."""
    desk = Desk()
    gone, twin = a_ticket(), a_ticket()
    desk.waiting, desk.under_way = [gone, twin], [gone]
    desk.drop(gone)
    assert len(desk.waiting) == 1
    assert desk.waiting[0] is twin
    assert desk.under_way == []


def test_a_reader_that_does_not_read_loses_the_oldest_lines_and_never_the_end() -> None:
    """The queue is bounded; the newest line is there."""
    ticket = a_ticket()
    for number in range(MOST_EVENTS + 10):
        ticket.tell({"n": number})
    assert ticket.events.qsize() == MOST_EVENTS
    lines = [ticket.events.get_nowait() for _ in range(MOST_EVENTS)]
    assert (lines[0]["n"], lines[-1]["n"]) == (10, MOST_EVENTS + 9)


@pytest.mark.parametrize(
    ("codes", "together"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 6], 6),
        ([6, 8], 8),
        ([8, 5], 5),
        ([5, 3], 3),
        ([3, 4], 4),
        ([4, 1], 1),
    ],
)
def test_several_targets_end_with_the_gravest_in_the_documented_order(
    codes: list[int], together: int
) -> None:
    """1, 4, 3, 5, 8, 6, 0."""
    assert gravest([ExitCode(code) for code in codes]) == together


def handed(**overrides: object) -> ExitCode:
    """Return the code of a handed-over incident."""
    given: dict[str, Any] = {"stage": Stage.HANDED_OVER, "handed_to": Recipient.OPERATOR} | overrides
    return exit_code_of(an_incident(**given))


def test_each_end_has_its_exit_code() -> None:
    """Proven 0, unmeasured 8, time up 5, refused 3, EPERM 4; the scheduler's is no refusal."""
    denied = Attempt(
        AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.NOT_PERMITTED)
    )
    assert exit_code_of(an_incident(stage=Stage.RECLAIMED)) is ExitCode.OK
    assert exit_code_of(an_incident(stage=Stage.UNVERIFIED)) is ExitCode.UNVERIFIED
    assert exit_code_of(an_incident(stage=Stage.STOOD_DOWN)) is ExitCode.OK
    assert exit_code_of(an_incident(stage=Stage.STOOD_DOWN, last_refusal="no")) is ExitCode.REFUSED
    assert handed() is ExitCode.TIME_UP
    assert handed(last_refusal="protected") is ExitCode.REFUSED
    assert handed(last_refusal="old", handed_to=Recipient.SCHEDULER) is ExitCode.TIME_UP
    assert handed(attempts=(denied,)) is ExitCode.NOT_ALLOWED


def test_orders_that_no_pass_will_take_get_their_end_and_a_line() -> None:
    """Whoever reads the lines hears of it; nothing waits any more."""
    desk = Desk()
    ticket = a_ticket()
    desk.place(ticket)
    desk.refuse_waiting("the driver can't be worked with")
    assert desk.waiting == []
    assert ticket.exit_code is ExitCode.REFUSED
    assert ticket.events.get_nowait()["event"] == "declined"
