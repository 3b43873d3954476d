"""What was agreed to binds all that goes along: so many at most, and nobody of a user who was not shown."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.asking import OrderFault, consent_of
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.opening import Consent, Order
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.policy import Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GIB, OPERATOR, a_busy_snapshot, a_holder, a_policy, a_process, a_rule, a_snapshot
from tests.daemon.test_api import ROOT, a_story
from tests.fakes import Rig, a_rig

UID = 1000
NO_RULE = a_policy(a_rule(above=70 * GIB))


def a_tree(children: int, **overrides: Any) -> Snapshot:
    """Return a holder, pid 100, with so many children; `overrides` are the last one's."""
    root = a_process(100)
    others: list[ProcessReading] = [a_process(101 + number, ppid=100) for number in range(children)]
    if overrides:
        others[-1] = replace(others[-1], **overrides)
    return replace(a_busy_snapshot(root), processes={one.ref.pid: one for one in (root, *others)})


def ordered(seen: Snapshot, consent: Consent, *pids: int, **words: object) -> tuple[Rig, list[Ticket]]:
    """Order these with their trees by one call, and make a pass."""
    rig = a_rig(seen, NO_RULE)
    given = replace(Order(100, OPERATOR, scope=Scope.TREE), **words)  # type: ignore[arg-type]
    tickets = [Ticket(replace(given, pid=pid), consent=consent) for pid in pids or (100,)]
    for ticket in tickets:
        rig.cycle.desk.place(ticket)
    asyncio.run(rig.passes())
    return rig, tickets


def assert_untouched(rig: Rig, tickets: list[Ticket], words: str) -> None:
    """Assert that each was refused, on record, and nobody was signalled."""
    for ticket in tickets:
        assert ticket.exit_code is ExitCode.REFUSED
        assert words in ticket.text, ticket.text
    assert (rig.executor.permits, rig.cycle.state.incidents) == ([], {})
    assert {entry.kind for entry in rig.recorder.entries} == {RecordKind.REFUSED}


def test_max_targets_counts_all_that_would_be_signalled() -> None:
    """Nine with eight along is refused, and by how much it must be raised is said; eight are not."""
    rig, tickets = ordered(a_tree(8), Consent(8))
    assert_untouched(rig, tickets, "9 processes would be signalled, more than 8; nothing was done")
    assert "--max-targets 9" in tickets[0].text
    rig, (ticket,) = ordered(a_tree(7), Consent(8))
    assert ticket.incident is not None
    assert len(rig.executor.sent) == 8


def test_a_process_that_goes_along_twice_counts_once() -> None:
    """Two targets of one tree: the union is what is signalled."""
    seen = a_tree(3)
    seen = replace(seen, holders=(*seen.holders, a_holder(seen.processes[101].ref)))
    rig, tickets = ordered(seen, Consent(4), 100, 101)
    assert all(ticket.incident is not None for ticket in tickets)
    rig, tickets = ordered(seen, Consent(3), 100, 101)
    assert_untouched(rig, tickets, "4 processes would be signalled")


def test_who_is_only_shown_why_it_is_refused_counts_not() -> None:
    """A target that is asked for as a dry run beside a real one gets no signal."""
    root, other = a_process(100), a_process(200)
    seen = a_snapshot(
        gpus=a_busy_snapshot().gpus,
        processes=(root, other),
        holders=(a_holder(root.ref), a_holder(other.ref)),
    )
    rig = a_rig(seen, NO_RULE)
    consent = Consent(1)
    tickets = [Ticket(Order(pid, OPERATOR, dry_run=pid == 200), consent=consent) for pid in (100, 200)]
    for ticket in tickets:
        rig.cycle.desk.place(ticket)
    asyncio.run(rig.passes())
    assert [permit.step.target.root.pid for permit in rig.executor.permits if not permit.step.dry_run] == [
        100
    ]


def test_a_dry_run_of_all_tells_what_the_order_would_meet() -> None:
    """The same refusal."""
    rig, tickets = ordered(a_tree(8), Consent(8), dry_run=True)
    assert_untouched(rig, tickets, "9 processes would be signalled")


def test_a_tree_that_grew_to_more_than_twice_what_was_shown_is_refused() -> None:
    """A job that forks a little meanwhile is not: three shown, six are taken, seven are not."""
    shown = Consent(100, shown=3, uids=frozenset({UID}))
    rig, (ticket,) = ordered(a_tree(5), shown)
    assert (ticket.incident is not None, len(rig.executor.sent)) == (True, 6)
    rig, tickets = ordered(a_tree(6), shown)
    assert_untouched(rig, tickets, "3 processes were shown, and 7 would be signalled")


def test_a_user_who_was_not_shown_is_not_taken_along() -> None:
    """One process of another user that joined the tree refuses it; who was shown may have more."""
    rig, tickets = ordered(a_tree(2, uids=(4321,) * 4), Consent(100, shown=3, uids=frozenset({UID})))
    assert_untouched(rig, tickets, "pid 102 of uid 4321 goes along, and nobody of that user was shown")
    rig, (ticket,) = ordered(a_tree(2, uids=(4321,) * 4), Consent(100, shown=3, uids=frozenset({UID, 4321})))
    assert ticket.incident is not None


def test_calls_of_two_people_are_counted_each_by_itself() -> None:
    """What one agreed to does not bind the other, though both are taken up by one pass."""
    one, two = a_process(100), a_process(200)
    seen = a_snapshot(
        gpus=a_busy_snapshot().gpus, processes=(one, two), holders=(a_holder(one.ref), a_holder(two.ref))
    )
    rig = a_rig(seen, NO_RULE)
    for pid in (100, 200):
        rig.cycle.desk.place(Ticket(Order(pid, OPERATOR), consent=Consent(1)))
    asyncio.run(rig.passes())
    assert len(rig.executor.permits) == 2


def test_the_order_s_words_are_read() -> None:
    """Eight without a number; what was shown is bound only where it is said."""
    assert consent_of({}) == Consent(8)
    assert consent_of({"max_targets": 40}) == Consent(40)
    shown = {"processes": 3, "uids": [0, UID]}
    assert consent_of({"shown": shown}) == Consent(8, 3, frozenset({0, UID}))


@pytest.mark.parametrize(
    "shown",
    [1, [], {}, {"processes": 3}, {"processes": "3", "uids": []}, {"processes": True, "uids": []},
     {"processes": 3, "uids": ["0"]}, {"processes": 3, "uids": 0}, {"processes": -1, "uids": []},
     {"processes": 3, "uids": [0] * 5000}],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_was_shown_is_no_guess(shown: object) -> None:
    """A fault that names the field."""
    with pytest.raises(OrderFault, match="shown"):
        consent_of({"shown": shown})


def test_the_call_brings_what_was_agreed_to() -> None:
    """Over the API: a tree larger than the default is refused as a whole, with the mend."""
    story = a_story(a_rig(a_tree(8), NO_RULE))

    async def ask() -> dict[str, Any]:
        body = {"targets": [{"pid": 100}], "scope": "tree"}
        answer = await story.call("POST", "/v1/reclaims", ROOT, None, **body)
        assert answer.lines is not None
        lines: list[Any] = []

        async def read() -> None:
            assert answer.lines is not None
            lines.extend([line async for line in answer.lines])

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        await story.rig.passes()
        await asyncio.wait_for(reading, 20)
        return dict(lines[-1])

    result = asyncio.run(ask())
    assert result["exit_code"] == ExitCode.REFUSED
    assert "--max-targets 9" in result["targets"][0]["text"]
    assert story.rig.executor.permits == []
