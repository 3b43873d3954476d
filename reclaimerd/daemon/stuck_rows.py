"""What is said of the suspects of a search for stuck tasks: who is a row, and the report as JSON. Pure.

A suspect is a row only for what it did through every look; one that could not be looked at again is a
row too, because unknown is never "nothing stuck".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, KernelTask, Leaving, Plight, TaskCondition
from reclaimerd.model.process import DEAD_STATES, PF_DUMPCORE, PF_EXITING, PF_POSTCOREDUMP
from reclaimerd.model.reading import Known
from reclaimerd.observe.kernel_scan import Suspect, Touch, busy_frame

Json = dict[str, object]
_SHOWN_FRAMES = 24
_LEAVING = PF_EXITING | PF_POSTCOREDUMP | PF_DUMPCORE
_TROUBLE = frozenset(
    {Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING, Leaving.NO_RELEASE, Leaving.UNDETERMINED}
)


@dataclass(frozen=True, slots=True)
class Watched:
    """One suspect after the last look: its looks, how many there should be, what is said of it."""

    suspect: Suspect
    looks: tuple[KernelLook, ...]
    wanted: int
    plight: Plight | None
    seconds: float
    unread: str = ""


@dataclass(frozen=True, slots=True)
class StuckRow:
    """One process or kernel thread that is stuck or leaves for too long; `text` is for people."""

    ref: ProcessRef
    comm: str
    kernel_thread: bool
    condition: str
    leaving: str
    watched_seconds: float
    text: str
    touch: Touch
    touch_text: str
    signature: str = ""
    fault_domain: str = ""
    tasks: int = 1
    states: str = ""
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StuckReport:
    """What was found, what the whole host shows, and what was not looked at."""

    rows: tuple[StuckRow, ...]
    watched_seconds: float
    processes: int
    tasks: int
    skipped: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """Return the report as plain JSON."""
        return {
            "rows": [_row_json(row) for row in self.rows],
            "watched_seconds": round(self.watched_seconds, 3),
            "processes": self.processes,
            "tasks": self.tasks,
            "skipped": list(self.skipped),
            "notes": list(self.notes),
        }


def row_of(watched: Watched) -> StuckRow | None:
    """Return the row of a suspect that stayed in trouble through every look; None for the others."""
    suspect, looks, plight = watched.suspect, watched.looks, watched.plight
    leaving, text = "", ""
    if len(looks) < watched.wanted:
        leaving = Leaving.UNDETERMINED.value
        text = f"it could not be looked at again: {watched.unread or 'no time'}; hands off"
    elif suspect.kernel_thread and (plight is None or plight.leaving is Leaving.NOT_LEAVING):
        return _busy_thread(suspect, looks, watched.seconds)
    elif plight is None or not _is_trouble(plight, looks):
        return None
    return StuckRow(
        suspect.look.ref,
        looks[-1].comm,
        suspect.kernel_thread,
        condition="unknown" if plight is None else plight.condition.value,
        leaving=leaving or ("" if plight is None else plight.leaving.value),
        watched_seconds=watched.seconds,
        text=text or ("" if plight is None else plight.text),
        touch=suspect.touch,
        touch_text=suspect.touch_text,
        signature="" if plight is None else plight.signature,
        fault_domain="" if plight is None or not plight.signature else plight.fault_domain.value,
        tasks=suspect.look.task_count,
        states=_states(looks[-1]),
        stack=_stack(looks),
    )


def _is_trouble(plight: Plight, looks: Sequence[KernelLook]) -> bool:
    """Tell whether it is stuck, or has been leaving or in one and the same wait through every look."""
    if plight.leaving in _TROUBLE:
        return True
    if plight.leaving is Leaving.PROGRESSING:
        return _leaves_throughout(looks)
    return plight.condition is TaskCondition.BLOCKED and _waits_still(looks)


def _leaves_throughout(looks: Sequence[KernelLook]) -> bool:
    """Tell whether one and the same task was leaving in every look, however it moved."""

    def leaving(look: KernelLook) -> set[int]:
        return {task.tid for task in look.tasks if task.flags & _LEAVING and task.state not in DEAD_STATES}

    return bool(set.intersection(*map(leaving, looks)))


def _waits_still(looks: Sequence[KernelLook]) -> bool:
    """Tell whether a task was blocked in every look and was never once scheduled between them."""

    def blocked(look: KernelLook) -> set[tuple[int, int, int, int]]:
        return {
            (task.tid, task.cpu_ticks, task.voluntary_switches, task.involuntary_switches)
            for task in look.tasks
            if task.state == "D"
        }

    return bool(set.intersection(*map(blocked, looks)))


def _busy_thread(suspect: Suspect, looks: Sequence[KernelLook], watched: float) -> StuckRow | None:
    """Return the row of a kernel thread that was at work in the driver in each of the looks."""
    frames = [busy_frame(look.tasks[0]) for look in looks]
    runs = all(look.tasks[0].state == "R" for look in looks)
    if not all(frames) and not (suspect.touch is Touch.UNKNOWN and runs):
        return None
    where = f"in {frames[-1]}" if frames[-1] is not None else "running, and no stack shows"
    text = f"a kernel thread of the driver, at work for {watched:.0f} s {where}; it may hold a GPU for nobody"
    return StuckRow(
        suspect.look.ref, suspect.look.comm, kernel_thread=True, condition="busy", leaving="",
        watched_seconds=watched, text=text, touch=suspect.touch, touch_text=suspect.touch_text,
        states=looks[-1].tasks[0].state, stack=_stack(looks),
    )  # fmt: skip


def _states(look: KernelLook) -> str:
    return "".join(sorted({task.state for task in look.tasks}))


def _stack(looks: Sequence[KernelLook]) -> tuple[str, ...]:
    """Return the newest stack of the worst task that shows one."""

    def rank(task: KernelTask) -> int:
        return 0 if task.state in "DR" else 1

    for look in reversed(looks):
        for task in sorted(look.tasks, key=rank):
            if isinstance(task.frames, Known) and task.frames.value:
                return tuple(str(frame) for frame in task.frames.value[:_SHOWN_FRAMES])
    return ()


def _row_json(row: StuckRow) -> Json:
    return {
        "pid": row.ref.pid,
        "ref": str(row.ref),
        "comm": row.comm,
        "kernel_thread": row.kernel_thread,
        "condition": row.condition,
        "leaving": row.leaving,
        "watched_seconds": round(row.watched_seconds, 3),
        "text": row.text,
        "driver": row.touch.value,
        "driver_text": row.touch_text,
        "signature": row.signature,
        "fault_domain": row.fault_domain,
        "tasks": row.tasks,
        "states": row.states,
        "stack": list(row.stack),
    }
