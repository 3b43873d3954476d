"""The look between pidfd and signal: any change, any doubt and any protection is a no."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import pytest

from reclaimerd.daemon.last_look import Judged, LastLooker
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import Selector, UserProtection
from reclaimerd.model.ports import LastLook, NoLongerRight, StillRight
from reclaimerd.model.process import (
    ProcessLook,
    ProcessReading,
    Workload,
    WorkloadKind,
    WorkloadNames,
)
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.observe.probe import Gone, LookAnswer, Probe, UnreadableProcess
from tests.builders import (
    JUDGE,
    OPERATOR,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_step,
    a_target,
    a_task,
    a_workload,
    an_incident,
)

GUARD = UserProtection("db", unit="train-100.service")


@dataclass(slots=True)
class FakeEyes:
    """A procfs worker that sees what the test set."""

    answers: Mapping[int, LookAnswer]
    asked: list[int] = field(default_factory=list)

    async def ask_each(self, pids: Sequence[int], _whole: Sequence[int]) -> Mapping[int, LookAnswer]:
        """Note who is asked about."""
        self.asked += pids
        return self.answers


def looker(answers: Mapping[int, LookAnswer], *, hold: str = "", guarded: bool = False) -> LastLooker:
    """Return a looker that judged a healthy pid 100 in unit train-100."""
    policy = replace(a_policy(), protections=(GUARD,) if guarded else ())
    judged = Judged(policy, a_busy_snapshot(), JUDGE, hold)
    return LastLooker(cast("Probe", FakeEyes(answers)), lambda: judged)


def seen(reading: ProcessReading) -> dict[int, LookAnswer]:
    """Return the worker's answer for this reading."""
    return {reading.ref.pid: ProcessLook(reading, Known(()))}


def look(looked: LastLooker, *, by_hand: bool = False) -> LastLook:
    """Look at pid 100 for a rule's or an operator's SIGTERM."""
    incident = an_incident(actor=OPERATOR) if by_hand else an_incident()
    return asyncio.run(looked(a_step(incident), a_ref()))


def test_the_same_process_is_still_right() -> None:
    """Nothing changed: go."""
    assert look(looker(seen(a_process()))) == StillRight()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"uids": (0, 0, 0, 0)}, "uids"),
        ({"exe_file": Known(FileIdentity(1, 8))}, "program"),
        ({"workload": a_workload("other.service")}, "workload"),
    ],
)
def test_a_change_since_the_verdict_withholds_the_signal(changed: dict[str, object], what: str) -> None:
    """It dropped its rights, ran another program, or moved: what was judged is not what is there."""
    answer = look(looker(seen(replace(a_process(), **changed))))  # type: ignore[arg-type]
    assert answer == NoLongerRight(f"its {what} changed since it was judged")


def test_another_start_is_another_process() -> None:
    """The pid was reused: changed, so that the outcome says identity."""
    answer = look(looker(seen(a_process(start=2))))
    assert isinstance(answer, NoLongerRight)
    assert answer.changed


def test_a_protection_that_came_meanwhile_holds_for_everyone() -> None:
    """By rule and by hand."""
    for by_hand in (False, True):
        answer = look(looker(seen(a_process()), guarded=True), by_hand=by_hand)
        assert isinstance(answer, NoLongerRight)
        assert "protected" in answer.why


def test_a_process_in_its_exit_path_may_have_lost_its_program() -> None:
    """The exe of a dying task is gone: that is no other program."""
    leaving = a_process(tasks=(a_task(state="D", flags=0x4),), exe_file=Known(FileIdentity(9, 9)))
    assert look(looker(seen(leaving))) == StillRight()


def test_one_that_is_gone_may_be_signalled_and_is_found_gone() -> None:
    """The kernel's ESRCH is the truth; the look need not know."""
    assert look(looker({100: Gone()})) == StillRight()


@pytest.mark.parametrize("answers", [{}, {100: UnreadableProcess("200 ms are over")}])
def test_no_answer_is_a_no(answers: dict[int, LookAnswer]) -> None:
    """What can't be read is not signalled."""
    assert isinstance(look(looker(answers)), NoLongerRight)


def test_a_hold_file_stops_a_rule_and_not_an_operator() -> None:
    """Read again just before the act; the process is not even looked at."""
    held = looker(seen(a_process()), hold="/run/reclaimerd/HOLD")
    answer = look(held)
    assert isinstance(answer, NoLongerRight)
    assert "HOLD" in answer.why
    assert cast("FakeEyes", held.procfs).asked == []
    assert look(held, by_hand=True) == StillRight()


def members(looked: LastLooker, *pids: int, by_hand: bool = False) -> object:
    """Ask whether these members of a workload may be killed."""
    incident = an_incident(actor=OPERATOR) if by_hand else an_incident()
    return asyncio.run(looked.members(a_step(incident), pids))


def test_living_members_are_named_deepest_first() -> None:
    """Newest first; the gone and the dead are left out."""
    dead = a_process(103, start=4, tasks=(a_task(103, "Z"),))
    answers = {
        **seen(a_process(101, start=2)),
        **seen(a_process(102, start=3)),
        **seen(dead),
        104: Gone(),
    }
    assert members(looker(answers), 101, 102, 103, 104) == (a_ref(102, 3), a_ref(101, 2))


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (seen(a_process(100)), "protected"),
        ({105: UnreadableProcess("stuck")}, "can't be read"),
        ({}, "no answer"),
    ],
)
def test_one_doubtful_member_spares_the_whole_workload(extra: dict[int, LookAnswer], word: str) -> None:
    """A protected, unreadable or unanswered member: a reason, and no list."""
    answers = {**seen(a_process(101, start=2)), **extra}
    pids = (101, *extra) if extra else (101, 105)
    answer = members(looker(answers, guarded=True), *pids, by_hand=True)
    assert isinstance(answer, str)
    assert word in answer


def test_a_hold_file_spares_a_rule_s_workload() -> None:
    """The same file, read again while the members are held still."""
    assert "HOLD" in str(members(looker({}, hold="/etc/reclaimerd/HOLD"), 101))


def test_a_rule_s_workload_spares_all_for_a_newcomer_in_doubt() -> None:
    """Its program can't be read, or it bears a protected name: by rule hands off, by hand the uid decides."""
    for odd in (a_process(101, exe_file=Unreadable("no answer")), a_process(101, comm="slurmd")):
        answer = members(looker(seen(odd)), 101)
        assert isinstance(answer, str)
        assert answer.startswith("member 101 may not go with it: ")
        assert members(looker(seen(odd)), 101, by_hand=True) == (odd.ref,)


def test_a_newcomer_has_the_names_of_its_workload() -> None:
    """The last look asks for none: a pod's namespace is known from the look that was judged."""
    names = WorkloadNames(namespace="keep")
    pod = Workload(WorkloadKind.POD, "pod", path="/kubepods.slice/kubepods-pod1.slice")
    rule = replace(a_policy().rules[0], exempt=Selector(namespaces=("keep",)))
    for known, exempted in ((names, True), (replace(names, namespace="other"), False)):
        root = a_process(workload=replace(pod, names=known))
        judge = partial(Judged, a_policy(rule), a_busy_snapshot(root), JUDGE, "")
        born = a_process(101, workload=pod)
        looked = LastLooker(cast("Probe", FakeEyes(seen(born))), judge)
        step = a_step(an_incident(a_target(root)))
        answer = asyncio.run(looked.members(step, (101,)))
        assert ("exempts it by namespace" in str(answer)) is exempted
        stray = replace(born, workload=replace(pod, path="/kubepods.slice/kubepods-pod2.slice"))
        looked = LastLooker(cast("Probe", FakeEyes(seen(stray))), judge)
        assert "can't be known: namespace" in str(asyncio.run(looked.members(step, (101,))))
