"""Claims about killing a whole workload, on real cgroups of our own with real children in them."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.act import cgroup as groups
from reclaimerd.act.cgroup import Cgroup, Forbidden, members_now
from reclaimerd.act.members import (
    Admitted,
    FirstSights,
    JudgeMembersPort,
    MemberHands,
    MembersOutcome,
    NotAdmitted,
    kill_members,
)
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import OutcomeKind, Stage
from reclaimerd.model.process import Workload
from reclaimerd.model.step import Step
from tests.act.children import IGNORES, Child, children, look_at_ticks
from tests.builders import BOOT, a_step, a_workload
from tests.fakes_act import FakeJudge

UNIFIED = next(
    (
        path
        for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
        if (path / "cgroup.procs").exists()
    ),
    None,
)
FREEZER = Path("/sys/fs/cgroup/freezer")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or UNIFIED is None or not os.access(UNIFIED, os.W_OK),
        reason="needs root and a writable cgroup v2 hierarchy",
    ),
]


@dataclass(frozen=True, slots=True)
class Box:
    """One cgroup of our own with two children at its top and one in a directory below."""

    directory: Path
    workload: Workload
    members: tuple[Child, ...]

    @property
    def judge(self) -> FakeJudge:
        """Return a judge who knows every member."""
        return FakeJudge({member.ref.pid: member.ref for member in self.members})

    def all_live(self) -> bool:
        """Tell whether every member runs on, not frozen."""
        return all(member.alive() for member in self.members) and "frozen 0" in self.events()

    def events(self) -> str:
        """Return the cgroup's events."""
        return (self.directory / "cgroup.events").read_text()


@contextmanager
def _box(root: Path | None = UNIFIED, controller: str = "") -> Iterator[Box]:
    """Make a cgroup with three stubborn children, and remove both at the end."""
    assert root is not None
    name = f"reclaimerd-test-{os.getpid()}"
    directory = root / name
    below = directory / "below"
    with children(3, *IGNORES) as members:
        below.mkdir(parents=True)
        try:
            for member, place in zip(members, (directory, directory, below), strict=True):
                (place / "cgroup.procs").write_text(str(member.ref.pid))
            yield Box(directory, a_workload(path=f"/{name}", controller=controller), members)
        finally:
            freeze = directory / "cgroup.freeze"
            if freeze.exists():
                freeze.write_text("0")
            for member in members:
                member.process.kill()
                member.end()
            below.rmdir()
            directory.rmdir()


def _kill(box: Box, judge: JudgeMembersPort, *, dry_run: bool = False, **hands: Any) -> MembersOutcome:
    """Open the box's cgroup and kill its members."""
    found = groups.open_cgroup(box.workload)
    assert isinstance(found, Cgroup)
    step = a_step(stage=Stage.SIGKILL)
    try:
        ports = MemberHands(look_at_ticks, judge, BOOT, **hands)
        return asyncio.run(kill_members(step, found, ports, dry_run=dry_run))
    finally:
        groups.close(found)


def test_every_member_is_judged_and_killed() -> None:
    """Members in directories below are listed and judged too; then all are gone by SIGKILL, and thawed."""
    with _box() as box:
        judge = box.judge
        outcome = _kill(box, judge)
        assert outcome.kind is None
        assert {target.kind for target in outcome.targets} == {OutcomeKind.SENT}
        assert {target.ref for target in outcome.targets} == {member.ref for member in box.members}
        assert set(judge.asked[0]) == {member.ref.pid for member in box.members}
        assert [member.end() for member in box.members] == [-9, -9, -9]
        assert (box.directory / "cgroup.freeze").read_text() == "0\n"


def test_members_are_held_still_while_they_are_judged() -> None:
    """During the judging cgroup.freeze is set; a refusal lets everyone go, unharmed."""
    with _box() as box:
        frozen: list[str] = []

        async def look_then_refuse(step: Step, pids: tuple[int, ...]) -> NotAdmitted:
            del step, pids
            frozen.append((box.directory / "cgroup.freeze").read_text())
            return NotAdmitted("sshd is a member")

        outcome = _kill(box, look_then_refuse)
        assert frozen == ["1\n"]
        assert outcome == MembersOutcome((), OutcomeKind.WITHHELD, "sshd is a member")
        assert box.all_live()


_DIES_WHILE_IT_JUDGES = """
import asyncio, os, sys
from reclaimerd.act import cgroup as groups
from reclaimerd.act.members import MemberHands, kill_members
from reclaimerd.model.incident import Stage
from tests.act.children import look_at_ticks
from tests.builders import BOOT, a_step, a_workload

async def die(step, pids):
    assert (directory := sys.argv[2]) and open(directory + "/cgroup.freeze").read() == "1\\n"
    os.kill(os.getpid(), 9)

found = groups.open_cgroup(a_workload(path=sys.argv[1], controller=""))
hands = MemberHands(look_at_ticks, die, BOOT)
asyncio.run(kill_members(a_step(stage=Stage.SIGKILL), found, hands, dry_run=False))
"""


@pytest.mark.parametrize("theirs", [False, True], ids=["ours", "somebody else's"])
def test_our_own_death_while_members_are_judged_leaves_nobody_frozen(theirs: bool) -> None:  # noqa: FBT001  # a case
    """What we hold still is let go when we die by SIGKILL; what somebody else froze stays frozen."""
    with _box() as box:
        freeze = box.directory / "cgroup.freeze"
        freeze.write_text("1" if theirs else "0")
        program = [sys.executable, "-c", _DIES_WHILE_IT_JUDGES, box.workload.path, str(box.directory)]
        assert subprocess.run(program, cwd=ROOT, check=False, timeout=60).returncode == -signal.SIGKILL
        wanted = "frozen 1" if theirs else "frozen 0"
        _await_event(box, wanted)
        assert freeze.read_text() == ("1\n" if theirs else "0\n")
        assert theirs or box.all_live()


def test_nobody_is_held_still_where_our_death_could_not_let_them_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a guard nothing is frozen, judged or sent, and the reason is told."""
    monkeypatch.setattr("reclaimerd.act.thaw_guard.SHELL", "/nonexistent/sh")
    with _box() as box:
        outcome = _kill(box, box.judge)
        assert outcome.kind is OutcomeKind.FAILED
        assert "/nonexistent/sh can't stand by to let it go should we die" in outcome.why
        assert outcome.why.endswith("nothing was sent")
        assert box.all_live()


def _await_event(box: Box, wanted: str) -> None:
    """Wait until the cgroup's events say so, 10 s at most; the kernel wakes us at each change."""
    events = os.open(box.directory / "cgroup.events", os.O_RDONLY)
    try:
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        while wanted not in os.pread(events, 4096, 0).decode():
            assert poll.poll(10_000), f"no {wanted!r} within 10 s: {box.events()}"
    finally:
        os.close(events)


def test_one_member_that_nobody_knows_spares_all() -> None:
    """A single member that can't be judged means that nothing is sent to any."""
    with _box() as box:
        judge = box.judge
        del judge.known[box.members[2].ref.pid]
        assert _kill(box, judge).kind is OutcomeKind.WITHHELD
        assert box.all_live()


def test_a_member_that_joins_after_the_judging_is_judged_too() -> None:
    """Nobody is killed unjudged: a newcomer means another round."""
    with _box() as box, children(1, *IGNORES) as (late,):
        judge = FakeJudge(box.judge.known | {late.ref.pid: late.ref})

        async def joined_meanwhile(step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
            answer = await judge(step, pids)
            (box.directory / "cgroup.procs").write_text(str(late.ref.pid))
            return answer

        outcome = _kill(box, joined_meanwhile)
        assert len(judge.asked) == 2
        assert late.ref.pid in judge.asked[1]
        assert late.ref in {target.ref for target in outcome.targets}
        assert late.end() == -9


@pytest.mark.parametrize("how", ["silent", "broken"])
def test_a_judge_that_gives_no_answer_spares_all(how: str) -> None:
    """Silence past the limit or a bug in the judging is a no, and nobody stays frozen."""
    with _box() as box:

        async def no_answer(step: Step, pids: tuple[int, ...]) -> Admitted:
            del step, pids
            if how == "broken":
                raise RuntimeError("worker gone")
            await asyncio.sleep(60)
            return Admitted(())

        outcome = _kill(box, no_answer, judge_seconds=0.05)
        assert outcome.kind is OutcomeKind.WITHHELD
        assert ("within 0.05 s" if how == "silent" else "worker gone") in outcome.why
        assert box.all_live()


def test_a_dry_run_neither_freezes_nor_kills() -> None:
    """A dry run lists and judges, and changes nothing, not even for a moment."""
    with _box() as box:
        before = box.events()
        frozen: list[str] = []

        async def look(step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
            frozen.append((box.directory / "cgroup.freeze").read_text())
            return await box.judge(step, pids)

        outcome = _kill(box, look, dry_run=True)
        assert frozen == ["0\n"]
        assert {target.kind for target in outcome.targets} == {OutcomeKind.DRY_RUN}
        assert box.all_live()
        assert box.events() == before


def test_what_somebody_else_froze_stays_frozen_when_we_refuse() -> None:
    """We undo only what we did."""
    with _box() as box:
        (box.directory / "cgroup.freeze").write_text("1")
        assert _kill(box, FakeJudge(refusal="no")).kind is OutcomeKind.WITHHELD
        assert (box.directory / "cgroup.freeze").read_text() == "1\n"


def test_what_somebody_else_froze_dies_all_the_same() -> None:
    """SIGKILL by cgroup.kill ends frozen members too."""
    with _box() as box:
        (box.directory / "cgroup.freeze").write_text("1")
        assert _kill(box, box.judge).kind is None
        assert [member.end() for member in box.members] == [-9, -9, -9]


@pytest.mark.parametrize("pid", [0, 1, os.getpid()], ids=["none", "init", "ourselves"])
def test_a_member_beyond_judging_spares_all(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """A pid of 0 (the kernel's word for what we can't see), init, or ourselves: nothing is sent."""
    with _box() as box:
        monkeypatch.setattr(groups, "members_now", lambda _fd: (pid, box.members[0].ref.pid))
        judge = box.judge
        assert _kill(box, judge).kind is OutcomeKind.WITHHELD
        assert judge.asked == []
        assert box.all_live()


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs a writable cgroup v1 hierarchy")
def test_on_v1_each_member_is_signalled_until_nobody_new_appears() -> None:
    """Without cgroup.kill every member goes through its pidfd, and one that joins meanwhile too."""
    with _box(FREEZER, "freezer") as box, children(1, *IGNORES) as (late,):
        judge = FakeJudge(box.judge.known | {late.ref.pid: late.ref})

        async def joined_meanwhile(step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
            with suppress(ProcessLookupError):
                (box.directory / "cgroup.procs").write_text(str(late.ref.pid))
            return await judge(step, pids)

        outcome = _kill(box, joined_meanwhile)
        assert outcome.kind is None
        assert {target.ref for target in outcome.targets} == set(judge.known.values())
        assert {target.kind for target in outcome.targets} == {OutcomeKind.SENT}
        assert [member.end() for member in (*box.members, late)] == [-9, -9, -9, -9]


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs a writable cgroup v1 hierarchy")
def test_on_v1_a_refusal_sends_nothing() -> None:
    """A refused member means that none gets a signal."""
    with _box(FREEZER, "freezer") as box:
        assert _kill(box, FakeJudge(refusal="protected")).kind is OutcomeKind.WITHHELD
        assert all(member.alive() for member in box.members)


def test_a_cgroup_made_again_under_its_path_is_another() -> None:
    """The path alone proves nothing: a directory made again since first sight is refused."""
    with _box() as box:
        sights = FirstSights()
        incident = IncidentId("inc-1")
        path = box.directory / "again"
        workload = replace(box.workload, path=f"{box.workload.path}/again")
        path.mkdir()
        try:
            sights.remember(incident, workload)
            same = sights.same_as_first(incident, workload)
            assert isinstance(same, Cgroup)
            groups.close(same)
            path.rmdir()
            path.mkdir()
            found = sights.same_as_first(incident, workload)
            assert isinstance(found, Forbidden)
            assert "made again" in found.why
            sights.forget(incident)
            fresh = sights.same_as_first(incident, workload)
            assert isinstance(fresh, Cgroup)
            groups.close(fresh)
        finally:
            path.rmdir()


def test_a_directory_below_one_of_a_user_is_forbidden() -> None:
    """A user can give any name below a directory of his own: it is not believed."""
    with _box() as box:
        os.chown(box.directory, 65534, 65534)
        found = groups.open_cgroup(replace(box.workload, path=f"{box.workload.path}/below"))
        assert isinstance(found, Forbidden)
        assert "not root's" in found.why


def test_a_listing_is_whole_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound nothing is listed at all, so nothing is killed half judged."""
    with _box() as box:
        monkeypatch.setattr(groups, "MAX_MEMBERS", 2)
        directory_fd = os.open(box.directory, os.O_RDONLY)
        try:
            with pytest.raises(OSError, match="too many"):
                members_now(directory_fd)
        finally:
            os.close(directory_fd)
        outcome = _kill(box, box.judge)
        assert outcome.kind is OutcomeKind.FAILED
        assert "nothing was sent" in outcome.why
        assert box.all_live()


def test_members_that_keep_appearing_are_not_killed_unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """When every listing shows somebody new the kill is withheld after a bounded number of rounds."""
    with _box() as box:
        known = {member.ref.pid: member.ref for member in box.members}
        listings = [tuple(known)[: 1 + n % 3] for n in range(20, 0, -1)]
        shown = iter(listings)

        async def one_too_few(step: Step, pids: tuple[int, ...]) -> Admitted:
            del step
            return Admitted(tuple(known[pid] for pid in pids[1:]))

        monkeypatch.setattr(groups, "members_now", lambda _fd: next(shown))
        outcome = _kill(box, one_too_few)
        assert outcome.kind is OutcomeKind.WITHHELD
        assert "kept appearing" in outcome.why
        assert len(list(shown)) == len(listings) - 8
        assert box.all_live()


def test_a_thaw_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A workload that we could not let go again is never silent: the words say where to write 0."""
    with _box() as box:
        real = groups._write

        def fail_to_thaw(found: Cgroup, name: str, value: bytes) -> None:
            if value == b"0":
                raise PermissionError(13, "Permission denied")
            real(found, name, value)

        monkeypatch.setattr(groups, "_write", fail_to_thaw)
        outcome = _kill(box, FakeJudge(refusal="protected"))
        assert outcome.kind is OutcomeKind.WITHHELD
        assert "protected" in outcome.why
        assert "write 0 to its cgroup.freeze" in outcome.why
