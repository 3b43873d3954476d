"""Motion and release are two things, and what can't be read is neither."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.progress import Fingerprint, fingerprint, least, moved, released, task_moved, task_print
from reclaimerd.model.process import (
    PF_DUMPCORE,
    PF_EXITING,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.builders import GIB
from tests.judge.kernel_builders import a_ktask, a_look, stack

BASE = Fingerprint((), 4, 8 * GIB, 0, 9 * GIB, None)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "R"},
        {"flags": 4},
        {"cpu_ticks": 51},
        {"voluntary_switches": 11},
        {"involuntary_switches": 2},
        {"wchan": "do_wait"},
        {"frames": Known(stack("uvm_spin_loop"))},
    ],
)
def test_any_sign_of_life_is_motion(change: dict[str, Any]) -> None:
    """State, flags, CPU time, switches, wchan and the inner frames each tell of motion."""
    before = a_ktask(frames="uvm_release")
    assert task_moved(task_print(before), task_print(replace(before, **change)))
    assert not task_moved(task_print(before), task_print(before))


def test_a_look_without_a_stack_tells_no_motion_of_the_stack() -> None:
    """In state R, or without the right to read it, the stack is empty."""
    seen, unread = a_ktask(frames="uvm_release"), a_ktask(frames="", tid=100)
    assert not task_moved(task_print(seen), task_print(unread))
    assert not task_moved(task_print(unread), task_print(seen))
    assert task_print(replace(seen, frames=Unreadable("no right"))).top == ()


def test_only_the_inner_frames_below_the_scheduler_are_compared() -> None:
    """Four of them; what the scheduler adds is no motion."""
    assert task_print(a_ktask(frames="__schedule schedule a.cold b c d e")).top == ("a", "b", "c", "d")


def test_a_process_moves_when_a_task_moves_comes_or_goes() -> None:
    """The dead ones are not counted."""
    one, two = a_ktask(100), a_ktask(101)
    whole = fingerprint(a_look(100, one, two), None)
    assert not moved(whole, whole)
    assert moved(whole, fingerprint(a_look(100, one, replace(two, cpu_ticks=99)), None))
    assert moved(whole, fingerprint(a_look(100, one, replace(two, state="Z")), None))
    assert moved(fingerprint(a_look(100, one), None), whole)


@pytest.mark.parametrize(
    ("change", "is_release"),
    [
        ({}, False),
        ({"tasks_left": 3}, True),
        ({"gpu_bytes": 7 * GIB}, True),
        ({"cgroup_bytes": 8 * GIB}, False),
        ({"resident_bytes": 1}, False),
        ({"tasks_left": 5, "gpu_bytes": 9 * GIB, "cgroup_bytes": 10 * GIB}, False),
        ({"gpu_bytes": None, "cgroup_bytes": None}, False),
    ],
)
def test_a_fall_is_release_and_growth_or_silence_is_none(change: dict[str, Any], *, is_release: bool) -> None:
    """Tasks and GPU memory count; the cgroup's memory alone does not; unknown never counts as a fall."""
    assert released(BASE, replace(BASE, **change)) is is_release


def test_the_cgroups_memory_counts_only_with_motion() -> None:
    """A busy neighbour in the same cgroup must not make a motionless exit look like progress for ever."""
    still = fingerprint(a_look(100, a_ktask(100)), None)
    stirred = fingerprint(a_look(100, a_ktask(100, cpu_ticks=99)), None)
    before = replace(still, cgroup_bytes=9 * GIB)
    assert not released(before, replace(still, cgroup_bytes=8 * GIB))
    assert released(before, replace(stirred, cgroup_bytes=8 * GIB))


def test_tasks_beyond_the_bound_of_a_look_count_as_left() -> None:
    """The dead ones that are shown are not; those beyond it may be either, and one less is release."""
    shown = (a_ktask(100), a_ktask(101, "Z"))
    before = fingerprint(a_look(100, *shown, task_count=1000), None)
    now = fingerprint(a_look(100, *shown, task_count=700), None)
    assert (before.tasks_left, now.tasks_left) == (999, 699)
    assert released(before, now)
    assert not released(now, before)
    assert not moved(before, now)


def test_a_core_that_grows_is_release() -> None:
    """And one that stays as it is, or can't be read, is none."""
    core = replace(BASE, written_bytes=100)
    assert released(core, replace(core, written_bytes=101))
    assert not released(core, core)
    assert not released(core, BASE)
    assert not released(BASE, core)


def test_marks_only_fall() -> None:
    """Growth by others sets no new mark, and an unreadable figure keeps the old one."""
    now = replace(BASE, tasks_left=9, gpu_bytes=None, cgroup_bytes=1, written_bytes=7)
    assert least(BASE, now) == replace(BASE, tasks_left=4, cgroup_bytes=1, written_bytes=7)
    assert least(now, BASE).gpu_bytes == BASE.gpu_bytes
    assert least(now, BASE).written_bytes == 7


def test_a_fingerprint_takes_what_the_look_has() -> None:
    """Live tasks only; the written bytes only while a core is written; unreadable is None."""
    dumping = a_look(100, a_ktask(100, "D", PF_DUMPCORE), a_ktask(101, "Z"), written_bytes=Known(5))
    found = fingerprint(dumping, 3)
    assert (found.tasks_left, found.gpu_bytes, found.written_bytes) == (1, 3, 5)
    leaving = a_look(100, a_ktask(100, "D", PF_EXITING), written_bytes=Known(5), cgroup_bytes=Absent("none"))
    assert fingerprint(leaving, None).written_bytes is None
    assert fingerprint(leaving, None).cgroup_bytes is None
    assert fingerprint(replace(dumping, written_bytes=Unreadable("no right")), None).written_bytes is None
