"""Corners of the last look that a changed line would pass through unseen; docs/mutation.md tells of them."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.model.incident import ActorRole
from reclaimerd.model.ports import NoLongerRight, StillRight
from tests.builders import OPERATOR, a_process, a_ref, a_step, an_incident
from tests.daemon.test_last_look import looker, members, seen

MINE = replace(OPERATOR, uid=1000, role=ActorRole.OWNER)


@pytest.mark.parametrize(
    ("uids", "right"), [((1000,) * 4, True), ((1001,) * 4, False), ((1000, 0, 0, 0), False)]
)
def test_an_owner_may_end_what_is_his_by_all_four_uids(
    uids: tuple[int, int, int, int], *, right: bool
) -> None:
    """Alone and as a member of a workload; what runs with another's rights by now is not his."""
    reading = a_process(700, uids=uids)
    looked = looker(seen(reading))
    step = a_step(an_incident(actor=MINE))
    answer = asyncio.run(looked(step, reading.ref))
    assert (answer == StillRight()) is right
    assert isinstance(answer, StillRight | NoLongerRight)
    named = asyncio.run(looked.members(step, (700,)))
    assert named == ((reading.ref,) if right else "member 700 is not the owner's")


def test_one_that_the_snapshot_did_not_have_is_compared_with_nothing() -> None:
    """A member that was born since: its identity and its protections still count."""
    born = a_process(777)
    assert asyncio.run(looker(seen(born))(a_step(), born.ref)) == StillRight()


def test_a_hold_file_stops_no_operators_workload() -> None:
    """It is for rules; he reads it where it stands."""
    held = looker(seen(a_process()), hold="/run/reclaimerd/HOLD")
    assert members(held, 100, by_hand=True) == (a_ref(),)
