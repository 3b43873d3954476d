"""What is said of tasks from flags and letters, in every combination that a kernel shows."""

import pytest

from reclaimerd.judge.exit_path import (
    any_exiting,
    is_dead,
    is_dumping,
    is_exiting,
    is_kernel_thread,
    is_released,
    is_zombie_leader,
    live_tasks,
    state_word,
)
from reclaimerd.model.process import (
    PF_DUMPCORE,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
    TaskReading,
)
from tests.builders import a_process, a_task


@pytest.mark.parametrize("state", list("DRSItT"))
@pytest.mark.parametrize("flag", [PF_EXITING, PF_POSTCOREDUMP, PF_EXITING | PF_POSTCOREDUMP])
def test_a_flag_says_exiting_in_whatever_letter(state: str, flag: int) -> None:
    """The flags decide, never the letter."""
    task = a_task(100, state, flag)
    assert is_exiting(task)
    assert not is_dead(task)
    assert any_exiting(a_process(tasks=(a_task(100), task)))


@pytest.mark.parametrize("state", list("ZXx"))
def test_a_dead_task_is_not_exiting_although_its_flag_stands(state: str) -> None:
    """A zombie keeps PF_EXITING and holds nothing any more."""
    task = a_task(100, state, PF_EXITING)
    assert is_dead(task)
    assert not is_exiting(task)
    assert is_released(a_process(tasks=(task,)))


def test_a_healthy_task_is_neither_dead_nor_exiting() -> None:
    """Asleep without a flag is alive."""
    reading = a_process()
    assert not any_exiting(reading)
    assert not is_released(reading)
    assert live_tasks(reading) == reading.tasks


def test_one_living_thread_or_an_incomplete_listing_is_never_released() -> None:
    """All tasks must be dead, and all must have been listed."""
    leader = a_task(100, "Z", PF_EXITING)
    assert not is_released(a_process(tasks=(leader, a_task(101))))
    assert not is_released(a_process(tasks=(leader,), whole=False))


def test_a_zombie_leader_has_a_dead_leader_and_a_living_thread() -> None:
    """Neither a dead process, nor a living leader, nor a look without the leader is one."""
    dead = a_task(100, "Z", PF_EXITING)
    assert is_zombie_leader(a_process(tasks=(dead, a_task(101))))
    assert not is_zombie_leader(a_process(tasks=(dead,)))
    assert not is_zombie_leader(a_process(tasks=(a_task(100), a_task(101))))
    assert not is_zombie_leader(a_process(tasks=(a_task(101),)))


def test_a_dump_is_known_by_the_status_line_or_by_a_living_tasks_flag() -> None:
    """A dead task's old flag is no dump."""
    assert is_dumping(a_process(dumping_core=True))
    assert is_dumping(a_process(tasks=(a_task(100), a_task(101, "D", PF_DUMPCORE))))
    assert not is_dumping(a_process(tasks=(a_task(100), a_task(101, "Z", PF_DUMPCORE))))


def test_a_kernel_thread_is_known_by_its_flag() -> None:
    """PF_KTHREAD, and nothing else."""
    assert is_kernel_thread(a_process(tasks=(a_task(100, "I", PF_KTHREAD),)))
    assert not is_kernel_thread(a_process(tasks=(a_task(100, "I"),)))


@pytest.mark.parametrize(
    ("tasks", "word"),
    [
        ((a_task(100, "Z"),), "dead, not yet reaped by its parent"),
        ((a_task(100, "D", PF_DUMPCORE),), "dumping core"),
        ((a_task(100, "D", PF_EXITING),), "exiting (1 task in D)"),
        (
            (a_task(100, "Z"), a_task(101, "S", PF_EXITING), a_task(102, "D", PF_EXITING)),
            "exiting (2 tasks in DS)",
        ),
        ((a_task(100, "Z"), a_task(101)), "leader dead, 1 thread lives"),
        ((a_task(100, "Z"), a_task(101), a_task(102)), "leader dead, 2 threads live"),
        ((a_task(100, "R"),), "running"),
        ((a_task(100, "S"),), "sleeping"),
        ((a_task(100, "D"),), "blocked in the kernel"),
        ((a_task(100, "T"),), "stopped"),
        ((a_task(100, "t"),), "traced"),
        ((a_task(100, "I"),), "idle in the kernel"),
        ((a_task(100, "W"),), "state W"),
    ],
)
def test_the_state_is_said_in_words_worst_first(tasks: tuple[TaskReading, ...], word: str) -> None:
    """A person reads what is wrong first, and an unknown letter is shown as it is."""
    assert state_word(a_process(tasks=tasks)) == word


def test_a_dead_leader_seen_alone_is_called_dead_and_no_more() -> None:
    """Without the other tasks nobody can say that the process waits to be reaped."""
    assert state_word(a_process(tasks=(a_task(100, "Z"),), whole=False)) == "dead"
