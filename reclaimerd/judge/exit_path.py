"""Say of a task, from one look, whether it lives, is leaving, or is dead; never from its letter alone.

A task is in the exit path when PF_EXITING or PF_POSTCOREDUMP is set (kernel/exit.c, kernel/signal.c),
in any state letter: measured on Linux 6.18, tasks leave in D, R, S and I.
"""

from reclaimerd.model.snapshot import (
    PF_DUMPCORE,
    PF_KTHREAD,
    ProcessReading,
    TaskReading,
)


def is_dead(task: TaskReading) -> bool:
    """Tell whether the task holds nothing any more (Z, X): it waits at most to be reaped."""
    return task.is_dead


def is_exiting(task: TaskReading) -> bool:
    """Tell whether the task is in the exit path and not yet dead."""
    return task.is_exiting


def live_tasks(reading: ProcessReading) -> tuple[TaskReading, ...]:
    """Return the tasks that were seen and are not dead."""
    return tuple(task for task in reading.tasks if not is_dead(task))


def any_exiting(reading: ProcessReading) -> bool:
    """Tell whether any task that was seen is in the exit path."""
    return reading.is_leaving


def is_dumping(reading: ProcessReading) -> bool:
    """Tell whether the process writes a core: it still holds the GPU, maybe for minutes."""
    return reading.dumping_core or any(task.flags & PF_DUMPCORE for task in live_tasks(reading))


def is_kernel_thread(reading: ProcessReading) -> bool:
    """Tell whether this is a kernel thread."""
    return any(task.flags & PF_KTHREAD for task in reading.tasks)


def is_released(reading: ProcessReading) -> bool:
    """Tell whether every task was listed and all are dead: a zombie that waits for its parent."""
    return reading.is_released


def is_zombie_leader(reading: ProcessReading) -> bool:
    """Tell whether the leader is dead while other threads live: the process still holds all it had."""
    leader = next((task for task in reading.tasks if task.tid == reading.ref.pid), None)
    return leader is not None and is_dead(leader) and bool(live_tasks(reading))


_LETTERS = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked in the kernel",
    "T": "stopped",
    "t": "traced",
    "I": "idle in the kernel",
}


def state_word(reading: ProcessReading) -> str:
    """Return the state in words a person understands, worst first."""
    if is_released(reading):
        return "dead, not yet reaped by its parent"
    if is_dumping(reading):
        return "dumping core"
    live = live_tasks(reading)
    leaving = [task for task in live if is_exiting(task)]
    if leaving:
        letters = "".join(sorted({task.state for task in leaving}))
        noun = "task" if len(leaving) == 1 else "tasks"
        return f"exiting ({len(leaving)} {noun} in {letters})"
    if is_zombie_leader(reading):
        noun = "thread lives" if len(live) == 1 else "threads live"
        return f"leader dead, {len(live)} {noun}"
    if not live:
        return "dead"
    return _LETTERS.get(live[0].state, f"state {live[0].state}")
