"""What a task is doing, whatever its letter says, and the worst of a process's tasks."""

from dataclasses import replace

import pytest

from reclaimerd.judge.exit_path import condition_of, process_condition
from reclaimerd.model.kernel import TaskCondition
from reclaimerd.model.process import (
    PF_DUMPCORE,
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.judge.kernel_builders import EXIT, a_ktask, a_look

FROZEN = Known(value=True)


def condition(state: str, flags: int = 0, frames: str = "", **look: object) -> TaskCondition:
    """Return the condition of one task that is the second of its process."""
    task = a_ktask(101, state, flags, frames)
    return condition_of(task, a_look(100, a_ktask(100), task, **look))


@pytest.mark.parametrize("state", list("RSDIt"))
@pytest.mark.parametrize("flag", [PF_EXITING, PF_POSTCOREDUMP])
def test_flags_say_exiting_in_any_letter(state: str, flag: int) -> None:
    """Only the stop for a tracer is told apart: there the tracer is the one to look at."""
    wanted = TaskCondition.TRACED if state == "t" else TaskCondition.EXITING
    assert condition(state, flag) is wanted


def test_a_do_exit_frame_says_exiting_without_any_flag() -> None:
    """The first steps of do_exit come before the flags; an uncertain frame says nothing."""
    assert condition("D", 0, EXIT) is TaskCondition.EXITING
    assert condition("D", 0, "?do_exit schedule") is TaskCondition.BLOCKED


@pytest.mark.parametrize("state", list("DSRTt"))
def test_a_frozen_cgroup_decides_before_letters_and_tracers(state: str) -> None:
    """Frozen is decided from the cgroup's files, first."""
    assert condition(state, frozen=FROZEN) is TaskCondition.FROZEN
    assert condition(state, PF_POSTCOREDUMP, frozen=FROZEN) is TaskCondition.FROZEN


def test_a_task_past_its_last_freezing_point_is_exiting_although_the_cgroup_freezes() -> None:
    """A v1 cgroup that is still FREEZING hides no exit."""
    assert condition("D", PF_EXITING, frozen=FROZEN) is TaskCondition.EXITING


@pytest.mark.parametrize("frozen", [Known(value=False), Unreadable("no"), Absent("none")])
def test_what_is_not_known_to_be_frozen_is_judged_by_the_rest(frozen: object) -> None:
    """Unreadable is not frozen."""
    assert condition("D", frozen=frozen) is TaskCondition.BLOCKED


def test_a_stop_with_a_tracer_is_a_trace_and_without_one_a_stop() -> None:
    """State T tells both apart by TracerPid."""
    assert condition("T", tracer_pid=7) is TaskCondition.TRACED
    assert condition("T") is TaskCondition.STOPPED
    assert condition("t") is TaskCondition.TRACED


def test_a_dump_is_told_from_the_exit_after_it() -> None:
    """PF_DUMPCORE is never cleared: with a later flag beside it the dump is over."""
    assert condition("S", PF_DUMPCORE) is TaskCondition.DUMPING_CORE
    assert condition("D", PF_DUMPCORE | PF_EXITING) is TaskCondition.EXITING
    assert condition("D", PF_DUMPCORE | PF_POSTCOREDUMP) is TaskCondition.EXITING


def test_threads_parked_until_the_core_is_written_are_dumping() -> None:
    """State I in do_exit, flags without PF_EXITING; one that was on its way out before still is."""
    assert condition("I", PF_POSTCOREDUMP | 0x440, EXIT, dumping_core=True) is TaskCondition.DUMPING_CORE
    assert condition("D", PF_EXITING, dumping_core=True) is TaskCondition.EXITING


def test_the_plain_letters() -> None:
    """Asleep, on a CPU and idle are all running; D is blocked; dead is gone."""
    assert [condition(state) for state in "SRIDZXx"] == [
        *[TaskCondition.RUNNING] * 3,
        TaskCondition.BLOCKED,
        *[TaskCondition.GONE] * 3,
    ]


def test_a_dead_leader_with_living_threads_is_no_dead_process() -> None:
    """The leader is told apart; the worst of the others is the process's."""
    leader = a_ktask(100, "Z", PF_EXITING)
    worst, counts = process_condition(a_look(100, leader, a_ktask(101), a_ktask(102)))
    assert worst is TaskCondition.ZOMBIE_LEADER
    assert counts == {TaskCondition.ZOMBIE_LEADER: 1, TaskCondition.RUNNING: 2}
    worst, counts = process_condition(a_look(100, leader, a_ktask(101, "D")))
    assert worst is TaskCondition.BLOCKED
    assert counts[TaskCondition.ZOMBIE_LEADER] == 1


def test_a_process_whose_tasks_are_all_dead_is_gone_and_one_without_any_is_not() -> None:
    """What was not seen is not gone."""
    assert process_condition(a_look(100, a_ktask(100, "Z", 4)))[0] is TaskCondition.GONE
    worst, counts = process_condition(replace(a_look(100), tasks=()))
    assert worst is TaskCondition.RUNNING
    assert not counts


def test_the_worst_of_the_tasks_is_the_processs() -> None:
    """Exiting before dumping before blocked before held before running."""
    exiting, blocked, healthy = a_ktask(101, "R", PF_EXITING), a_ktask(102, "D"), a_ktask(100)
    assert process_condition(a_look(100, healthy, blocked, exiting))[0] is TaskCondition.EXITING
    assert process_condition(a_look(100, healthy, blocked))[0] is TaskCondition.BLOCKED
    assert process_condition(a_look(100, healthy, a_ktask(103, "T")))[0] is TaskCondition.STOPPED
