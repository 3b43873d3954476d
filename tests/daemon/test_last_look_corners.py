"""Corners of the last look that a changed line would pass through unseen; docs/mutation.md tells of them."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from reclaimerd.daemon.last_look import Judged, LastLooker
from reclaimerd.model.incident import ActorRole
from reclaimerd.model.policy import Selector
from reclaimerd.model.ports import NoLongerRight, StillRight
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.observe.probe import Probe
from tests.builders import (
    JUDGE,
    OPERATOR,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_step,
    a_target,
    an_incident,
)
from tests.daemon.test_last_look import FakeEyes, looker, members, seen

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


def test_a_member_in_a_directory_of_its_own_has_the_names_that_were_known_of_it() -> None:
    """It was judged where it is, below the target's directory: its own names count, not the target's."""
    names = WorkloadNames(namespace="keep")
    pod = Workload(WorkloadKind.POD, "pod", path="/kubepods.slice/kubepods-pod1.slice")
    below = replace(pod, path=f"{pod.path}/container")
    root = a_process(workload=replace(pod, names=replace(names, namespace="other")))
    known = a_process(101, workload=replace(below, names=names))
    rule = replace(a_policy().rules[0], exempt=Selector(namespaces=("keep",)))
    judged = Judged(a_policy(rule), a_busy_snapshot(root, known), JUDGE, "")
    eyes = FakeEyes(seen(replace(known, workload=below)))
    looked = LastLooker(cast("Probe", eyes), lambda: judged)
    answer = asyncio.run(looked.members(a_step(an_incident(a_target(root))), (101,)))
    assert "exempts it by namespace" in str(answer)
