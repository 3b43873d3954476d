"""Fingerprints of a process that leaves; of two of them it is asked whether it moved, and released.

Progress is release: fewer tasks, less GPU memory, less memory charged to the cgroup, more of a core
written. Motion (CPU time, switches, another stack) is none: it is the same in a healthy exit and in a
driver that spins. Pure; what can't be read is None, and None never counts as a fall.
"""

from dataclasses import dataclass, replace

from reclaimerd.judge.exit_path import condition_of
from reclaimerd.judge.stack_frames import bare, certain, is_scheduler
from reclaimerd.model.kernel import KernelLook, KernelTask, TaskCondition
from reclaimerd.model.process import DEAD_STATES
from reclaimerd.model.reading import known_or_none

TOP_FRAMES = 4
"""How many frames below the scheduler's tell whether a task waits in the same place."""


@dataclass(frozen=True, slots=True)
class TaskPrint:
    """What moves when one task moves; `top` is empty in state R and where stacks can't be read."""

    tid: int
    state: str
    flags: int
    cpu_ticks: int
    voluntary_switches: int
    involuntary_switches: int
    wchan: str
    top: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One process at one look; bytes of None were not readable.

    `tasks_left` counts those beyond the look's bound too, dead or not: they can't be told apart.
    `written_bytes` is a core's progress, None while no core is written. `resident_bytes` is for
    people: it is 0 from the start of an exit on, stuck or not.
    """

    tasks: tuple[TaskPrint, ...]
    tasks_left: int
    gpu_bytes: int | None
    resident_bytes: int
    cgroup_bytes: int | None
    written_bytes: int | None


def task_print(task: KernelTask) -> TaskPrint:
    """Return the fingerprint of one task."""
    frames = [frame for frame in certain(task.frames) if not is_scheduler(frame)]
    return TaskPrint(
        tid=task.tid,
        state=task.state,
        flags=task.flags,
        cpu_ticks=task.cpu_ticks,
        voluntary_switches=task.voluntary_switches,
        involuntary_switches=task.involuntary_switches,
        wchan=task.wchan,
        top=tuple(bare(frame.symbol) for frame in frames[:TOP_FRAMES]),
    )


def fingerprint(look: KernelLook, gpu_bytes: int | None) -> Fingerprint:
    """Return the fingerprint of a process; `gpu_bytes` is what it holds on all GPUs, None for unknown."""
    live = [task for task in look.tasks if task.state not in DEAD_STATES]
    dumping = any(condition_of(task, look) is TaskCondition.DUMPING_CORE for task in live)
    return Fingerprint(
        tasks=tuple(task_print(task) for task in live),
        tasks_left=len(live) + max(0, look.task_count - len(look.tasks)),
        gpu_bytes=gpu_bytes,
        resident_bytes=look.resident_bytes,
        cgroup_bytes=known_or_none(look.cgroup_bytes),
        written_bytes=known_or_none(look.written_bytes) if dumping else None,
    )


def task_moved(before: TaskPrint, now: TaskPrint) -> bool:
    """Tell whether a task did anything between two looks; a stack that one look lacks tells nothing."""
    same_top = before.top == now.top or not before.top or not now.top
    return not same_top or replace(before, top=()) != replace(now, top=())


def moved(before: Fingerprint, now: Fingerprint) -> bool:
    """Tell whether any task moved, came or went between two looks."""
    earlier = {task.tid: task for task in before.tasks}
    if earlier.keys() != {task.tid for task in now.tasks}:
        return True
    return any(task_moved(earlier[task.tid], task) for task in now.tasks)


def released(before: Fingerprint, now: Fingerprint) -> bool:
    """Tell whether anything was let go of: tasks, GPU memory, the cgroup's memory, or a core got longer.

    A cgroup has other members, whose memory falls too: its figure counts only when one of the tasks
    moved since, or a stuck exit in a busy cgroup would never be found.
    """
    return (
        now.tasks_left < before.tasks_left
        or _fell(before.gpu_bytes, now.gpu_bytes)
        or (_fell(before.cgroup_bytes, now.cgroup_bytes) and moved(before, now))
        or _fell(now.written_bytes, before.written_bytes)
    )


def least(before: Fingerprint, now: Fingerprint) -> Fingerprint:
    """Return the marks to fall below next: growth by others in the same cgroup sets no new mark."""
    return replace(
        now,
        tasks_left=min(before.tasks_left, now.tasks_left),
        gpu_bytes=_lower(before.gpu_bytes, now.gpu_bytes),
        cgroup_bytes=_lower(before.cgroup_bytes, now.cgroup_bytes),
        written_bytes=now.written_bytes if now.written_bytes is not None else before.written_bytes,
    )


def _fell(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now < before


def _lower(before: int | None, now: int | None) -> int | None:
    return min((figure for figure in (before, now) if figure is not None), default=None)
