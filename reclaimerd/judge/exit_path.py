"""Say of a task, from one look, whether it lives, is leaving, or is dead; never from its letter alone.

A task is in the exit path when PF_EXITING or PF_POSTCOREDUMP is set (kernel/exit.c, kernel/signal.c),
in any state letter: measured on Linux 6.18, tasks leave in D, R, S and I.
"""

from collections.abc import Mapping
from types import MappingProxyType

from reclaimerd.judge.stack_frames import bare, certain
from reclaimerd.model.kernel import KernelLook, KernelTask, TaskCondition
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_DUMPCORE,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
    ProcessReading,
    TaskReading,
)
from reclaimerd.model.reading import Known


def is_dead(task: TaskReading) -> bool:
    """Tell whether the task holds nothing any more (Z, X): it waits at most to be reaped."""
    return task.is_dead


def is_exiting(task: TaskReading) -> bool:
    """Tell whether the task is in the exit path and not yet dead."""
    return task.is_exiting


def live_tasks(reading: ProcessReading) -> tuple[TaskReading, ...]:
    """Return the tasks that were seen and are not dead."""
    return tuple([task for task in reading.tasks if not task.is_dead])


def any_exiting(reading: ProcessReading) -> bool:
    """Tell whether any task that was seen is in the exit path."""
    return reading.is_leaving


def is_dumping(reading: ProcessReading) -> bool:
    """Tell whether the process writes a core: it still holds the GPU, maybe for minutes."""
    writers = (task for task in live_tasks(reading) if task.flags & PF_DUMPCORE)
    return reading.dumping_core or any(not task.is_exiting for task in writers)


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


_WORST_FIRST = (
    TaskCondition.EXITING,
    TaskCondition.DUMPING_CORE,
    TaskCondition.BLOCKED,
    TaskCondition.TRACED,
    TaskCondition.FROZEN,
    TaskCondition.STOPPED,
    TaskCondition.ZOMBIE_LEADER,
    TaskCondition.RUNNING,
    TaskCondition.GONE,
)
_LEAVING = PF_EXITING | PF_POSTCOREDUMP


def condition_of(task: KernelTask, look: KernelLook) -> TaskCondition:
    """Return what one task of this look is doing; flags, cgroup files and the stack decide before the letter.

    A task with PF_EXITING is never frozen: past exit_signals() the kernel has no freezing point, but a
    v1 cgroup that is still FREEZING counts as frozen for its other tasks. PF_DUMPCORE is never cleared,
    so it tells of a dump only until do_exit() sets the next flag.
    """
    if task.state in DEAD_STATES:
        lives = any(other.state not in DEAD_STATES for other in look.tasks)
        return TaskCondition.ZOMBIE_LEADER if task.tid == look.ref.pid and lives else TaskCondition.GONE
    if look.frozen == Known(value=True) and not task.flags & PF_EXITING:
        return TaskCondition.FROZEN
    if task.state == "t" or (task.state == "T" and look.tracer_pid):
        return TaskCondition.TRACED
    if _writes_core(task, look):
        return TaskCondition.DUMPING_CORE
    if task.flags & _LEAVING or any(bare(frame.symbol) == "do_exit" for frame in certain(task.frames)):
        return TaskCondition.EXITING
    return {"T": TaskCondition.STOPPED, "D": TaskCondition.BLOCKED}.get(task.state, TaskCondition.RUNNING)


def _writes_core(task: KernelTask, look: KernelLook) -> bool:
    """Tell whether the task writes the core, or is parked in do_exit (state I) until it is written."""
    if look.dumping_core:
        return not task.flags & PF_EXITING
    return bool(task.flags & PF_DUMPCORE) and not task.flags & _LEAVING


def process_condition(look: KernelLook) -> tuple[TaskCondition, Mapping[TaskCondition, int]]:
    """Return the worst that a task of the process is doing, and how many tasks do what.

    A look without any task is RUNNING with no counts: what was not seen is not gone.
    """
    seen = [condition_of(task, look) for task in look.tasks]
    counts = {condition: seen.count(condition) for condition in _WORST_FIRST if condition in seen}
    worst = next(iter(counts), TaskCondition.RUNNING)
    return worst, MappingProxyType(counts)


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
