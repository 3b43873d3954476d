"""What is remembered of a process from look to look: who of its tasks leaves or waits, and since when.

Time is counted as watched time: a pause of ours (or of the whole machine) counts for one share of the
patience at most, so no verdict comes from looks that were not taken. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from reclaimerd.judge.exit_path import condition_of, process_condition
from reclaimerd.judge.progress import Fingerprint, TaskPrint, least, released, task_moved, task_print
from reclaimerd.judge.signatures import deciding, lock_waited_for
from reclaimerd.judge.stack_frames import GPU_MODULES, certain, inside
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, KernelTask, Signature
from reclaimerd.model.reading import Known, text_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task was seen to be: the frame that decided, its signature, and the lock it waits for."""

    frame: str = ""
    signature: Signature | None = None
    lock: str = ""
    in_driver: bool = False


@dataclass(frozen=True, slots=True)
class Leaver:
    """One task that leaves (`due`), or waits in the kernel although nobody asked it to leave.

    Seconds are watched ones: since first seen so, and since it last moved. `motions` counts its moves
    since the process last let go of anything, `place` is the last that was seen since then.
    """

    tid: int
    due: bool
    since: float
    seen: TaskPrint
    seconds: float = 0.0
    looks: int = 1
    still_seconds: float = 0.0
    motions: int = 0
    place: Place = Place()


@dataclass(frozen=True, slots=True)
class Trail:
    """One process from look to look; `marks` are what it must fall below to count as a release."""

    ref: ProcessRef
    leavers: tuple[Leaver, ...]
    marks: Fingerprint
    at: float
    quiet_seconds: float = 0.0
    quiet_looks: int = 1


@dataclass(frozen=True, slots=True)
class Sight:
    """One look, made ready to be compared: its fingerprint, and which tasks are due or wait."""

    look: KernelLook
    seen: Fingerprint
    due: frozenset[int]
    waiting: frozenset[int]
    signatures: tuple[Signature, ...]
    longest_step_seconds: float
    now: float


def followed(trail: Trail | None, sight: Sight) -> Trail:
    """Return the trail with one more look; a new one when nobody who left or waited is still there."""
    tasks = [task for task in sight.look.tasks if task.tid in sight.due | sight.waiting]
    earlier = {} if trail is None else {leaver.tid: leaver for leaver in trail.leavers}
    if trail is None or not any(task.tid in earlier for task in tasks):
        leavers = tuple(_leaver(None, task, sight, 0.0) for task in tasks)
        return Trail(sight.look.ref, leavers, sight.seen, sight.now)
    step = min(max(0.0, sight.now - trail.at), sight.longest_step_seconds)
    leavers = tuple(_leaver(earlier.get(task.tid), task, sight, step) for task in tasks)
    let_go = released(trail.marks, sight.seen)
    if let_go:
        leavers = tuple(_begun_again(leaver, sight) for leaver in leavers)
    return replace(
        trail,
        leavers=leavers,
        marks=least(trail.marks, sight.seen),
        at=sight.now,
        quiet_seconds=0.0 if let_go else trail.quiet_seconds + step,
        quiet_looks=1 if let_go else trail.quiet_looks + 1,
    )


def quiet(trail: Trail, leavers: Iterable[Leaver]) -> tuple[float, int]:
    """Return for how many watched seconds and looks these have left without any release."""
    group = tuple(leavers)
    seconds = max(leaver.seconds for leaver in group)
    looks = max(leaver.looks for leaver in group)
    return min(trail.quiet_seconds, seconds), min(trail.quiet_looks, looks)


def evidence_of(sight: Sight, chosen: Leaver) -> tuple[str, ...]:
    """Return what was seen, a line each: how many tasks do what, the telling task, what is still held."""
    _, counts = process_condition(sight.look)
    task = next(task for task in sight.look.tasks if task.tid == chosen.tid)
    seen = sight.seen
    unread = "" if isinstance(task.frames, Known) else f", stack {text_of(task.frames)}"
    left = (
        _count(seen.tasks_left),
        _bytes("GPU", seen.gpu_bytes),
        _bytes("cgroup", seen.cgroup_bytes),
        _bytes("resident", seen.resident_bytes),
    )
    place = chosen.place
    return (
        "tasks: " + ", ".join(f"{count} {condition}" for condition, count in counts.items()),
        f"task {task.tid}: state {task.state}, flags {task.flags:#x}, wchan {task.wchan or '-'}{unread}",
        *((f"in {place.frame}",) if place.frame else ()),
        *((f"waits for the lock {place.lock}",) if place.lock else ()),
        f"still for {chosen.still_seconds:.0f} s, moved in {chosen.motions} of {chosen.looks} looks",
        "left: " + ", ".join(left),
    )


def _count(tasks: int) -> str:
    return f"{tasks} task" if tasks == 1 else f"{tasks} tasks"


def _bytes(name: str, figure: int | None) -> str:
    return f"{name} memory unknown" if figure is None else f"{name} memory {figure} bytes"


def _leaver(before: Leaver | None, task: KernelTask, sight: Sight, step: float) -> Leaver:
    due = task.tid in sight.due
    seen = task_print(task)
    fresh = Leaver(task.tid, due, sight.now, seen, place=_place(task, sight))
    if before is None or before.due is not due:
        return fresh
    stirred = task_moved(before.seen, seen)
    if stirred and not due:
        return fresh  # the wait of before is over; this is another one
    return replace(
        before,
        seen=seen,
        seconds=before.seconds + step,
        looks=before.looks + 1,
        still_seconds=0.0 if stirred else before.still_seconds + step,
        motions=before.motions + stirred,
        place=fresh.place if fresh.place.frame else before.place,
    )


def _begun_again(leaver: Leaver, sight: Sight) -> Leaver:
    task = next(task for task in sight.look.tasks if task.tid == leaver.tid)
    return replace(leaver, motions=0, place=_place(task, sight))


def _place(task: KernelTask, sight: Sight) -> Place:
    frames = certain(task.frames)
    signature, frame = deciding(frames, condition_of(task, sight.look), task.comm, sight.signatures)
    return Place(
        frame="" if frame is None else str(frame),
        signature=signature,
        lock=lock_waited_for(frames),
        in_driver=inside(frames, GPU_MODULES),
    )
