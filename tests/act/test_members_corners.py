"""Corners of killing a whole workload that a changed line would pass through unseen: see docs/mutation.md."""

import asyncio
import os
from pathlib import Path

import pytest

from reclaimerd.act import cgroup as groups
from reclaimerd.act import members
from reclaimerd.act.cgroup import Cgroup, Forbidden, Unusable
from reclaimerd.act.members import Admitted, FirstSights, MemberHands, MembersOutcome, kill_members
from reclaimerd.model.identity import FileIdentity, IncidentId
from reclaimerd.model.incident import OutcomeKind, Stage
from reclaimerd.model.step import Step
from tests.act.children import IGNORES, children, look_at_ticks
from tests.builders import BOOT, a_step, a_workload
from tests.fakes_act import FakeJudge

INCIDENTS = tuple(IncidentId(f"inc-{number}") for number in range(4))
UNIT = a_workload()


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every look at a workload open one directory; return the descriptors, in order."""
    opened: list[int] = []

    def look(_workload: object) -> Cgroup:
        opened.append(os.open(tmp_path, os.O_RDONLY))
        return Cgroup(opened[-1], FileIdentity(1, 2), "/box")

    monkeypatch.setattr(groups, "open_cgroup", look)
    return opened


def is_open(descriptor: int) -> bool:
    """Tell whether it is."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_first_sight_is_noted_and_leaves_no_descriptor_open(directories: list[int]) -> None:
    """One that was made again since is another one; only the one that fits stays open, for its killing."""
    sights = FirstSights()
    assert sights.remember(INCIDENTS[0], UNIT) is None
    assert sights.seen == {INCIDENTS[0]: FileIdentity(1, 2)}
    assert not is_open(directories[-1])
    found = sights.same_as_first(INCIDENTS[0], UNIT)
    assert isinstance(found, Cgroup)
    assert is_open(directories[-1])
    groups.close(found)
    sights.seen[INCIDENTS[0]] = FileIdentity(1, 1)
    assert isinstance(sights.same_as_first(INCIDENTS[0], UNIT), Forbidden)
    assert not is_open(directories[-1])


def test_what_can_not_be_opened_is_no_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM goes on without it, and SIGKILL says why each goes one by one."""
    monkeypatch.setattr(groups, "open_cgroup", lambda _workload: Unusable("gone"))
    sights = FirstSights()
    assert sights.remember(INCIDENTS[0], UNIT) is None
    assert sights.seen == {}


@pytest.mark.usefixtures("directories")
def test_so_many_first_sights_are_kept_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the one that is looked at now."""
    monkeypatch.setattr(members, "KEPT", 2)
    sights = FirstSights()
    for count, incident in enumerate(INCIDENTS, 1):
        sights.remember(incident, UNIT)
        assert tuple(sights.seen) == INCIDENTS[max(0, count - 2) : count]


def kill(directory: Path, judge: object) -> MembersOutcome:
    """Kill what is listed in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        hands = MemberHands(look_at_ticks, judge, BOOT)  # type: ignore[arg-type]  # a judge of the test's own
        box = Cgroup(descriptor, FileIdentity(1, 2), "/box")
        return asyncio.run(kill_members(a_step(stage=Stage.SIGKILL), box, hands, dry_run=False))
    finally:
        os.close(descriptor)


def test_an_empty_workload_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever joins it in that instant was judged by nobody."""
    (tmp_path / "cgroup.kill").touch()
    monkeypatch.setattr(groups, "members_now", lambda _fd: ())
    assert kill(tmp_path, FakeJudge()) == MembersOutcome()
    assert (tmp_path / "cgroup.kill").read_text() == ""


@pytest.mark.process
def test_one_by_one_each_is_signalled_once_and_nobody_who_was_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not end is listed again, and a judge that names too many is not believed."""
    with children(2, *IGNORES) as (member, neighbour):
        monkeypatch.setattr(groups, "members_now", lambda _fd: (member.ref.pid,))
        asked: list[tuple[int, ...]] = []

        async def generous(step: Step, pids: tuple[int, ...]) -> Admitted:
            del step
            asked.append(pids)
            return Admitted((member.ref, neighbour.ref))

        outcome = kill(tmp_path, generous)
        assert asked == [(member.ref.pid,)]
        assert outcome.kind is None
        assert [(one.ref, one.kind) for one in outcome.targets] == [(member.ref, OutcomeKind.SENT)]
        assert member.end() == -9
        assert neighbour.alive()
