"""Corners of who goes along that a changed line would pass through unseen: see docs/mutation.md."""

from dataclasses import replace
from typing import Any

from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.members import unagreed
from reclaimerd.daemon.opening import Consent, Order
from tests.builders import OPERATOR, a_process, a_snapshot, a_task

UID = 1000


def tickets_of(consent: Consent, *orders: dict[str, Any]) -> list[Ticket]:
    """Return one call's orders."""
    return [Ticket(replace(Order(100, OPERATOR), **one), consent=consent) for one in orders]


def test_two_that_would_be_signalled_are_counted_beside_one_that_would_not() -> None:
    """A dry one is not; the refusal is of all, the dry one's too."""
    seen = a_snapshot(processes=[a_process(pid) for pid in (100, 200, 300)])
    orders = ({"pid": 100}, {"pid": 200}, {"pid": 300, "dry_run": True})
    tickets = tickets_of(Consent(1), *orders)
    why = unagreed(tickets, seen)
    assert list(why) == [id(one) for one in tickets]
    assert all(text.startswith("2 processes would be signalled, more than 1") for text in why.values())
    assert unagreed(tickets_of(Consent(2), *orders), seen) == {}


def test_who_is_gone_counts_for_nobody() -> None:
    """Neither a pid that was not seen nor a process that is wholly dead keeps the rest from its end."""
    dead = a_process(200, tasks=(a_task(200, state="Z"),))
    seen = a_snapshot(processes=[a_process(), dead])
    assert unagreed(tickets_of(Consent(1), {"pid": 100}, {"pid": 200}, {"pid": 4242}), seen) == {}


def test_the_user_who_was_shown_is_the_real_one() -> None:
    """As ps shows it: a set-uid program is its caller's."""
    seen = a_snapshot(processes=[a_process(uids=(UID, 0, 0, 0))])
    assert unagreed(tickets_of(Consent(9, shown=1, uids=frozenset({UID})), {}), seen) == {}
    (why,) = unagreed(tickets_of(Consent(9, shown=1, uids=frozenset({0})), {}), seen).values()
    assert why.startswith(f"pid 100 of uid {UID} goes along")
