"""Find every task of the host that is stuck, or leaves for too long, and touches a GPU driver.

Several looks over a few seconds, without NVML and without what a daemon remembers. For `doctor
--stuck` and for the API, with a procfs worker of its own so that no pass waits for it. It acts on
nothing; what it could not look at is named.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.config.signatures import load_signatures
from reclaimerd.daemon.worker import command_for
from reclaimerd.errors import ReclaimerdError
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.judge.signatures import ab_ba
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, KernelTask, Leaving, Plight, TaskCondition
from reclaimerd.model.policy import Signature, WorkerSettings
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_DUMPCORE,
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe.answers import UnreadableProcess
from reclaimerd.observe.kernel_looks import Asking, ask_kernel_looks, ask_kernel_scan
from reclaimerd.observe.kernel_scan import Suspect, Touch, busy_frame
from reclaimerd.observe.probe import Probe

Json = dict[str, object]
SCAN_SECONDS = 8.0
_SHOWN_FRAMES = 24
_SAMPLES = 3
_LEAVING = PF_EXITING | PF_POSTCOREDUMP | PF_DUMPCORE
_MORE_ROUNDS = 3
"""For suspects that could not be looked at in each round."""
_TROUBLE = frozenset(
    {Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING, Leaving.NO_RELEASE, Leaving.UNDETERMINED}
)


@dataclass(frozen=True, slots=True)
class StuckSettings:
    """How often (at least 5 times) and how far apart to look, and the known places.

    A verdict counts a pause between two looks for a third of its patience at most, so fewer looks than
    five never reach it.
    """

    looks: int = 6
    apart_seconds: float = 0.6
    signatures: tuple[Signature, ...] = ()

    def plights(self) -> PlightSettings:
        """Return the patience: a little less than the whole time watched."""
        grace = 0.8 * (self.looks - 1) * self.apart_seconds
        return PlightSettings(grace, _SAMPLES, signatures=self.signatures)


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


@dataclass(slots=True)
class _Watch:
    """The looks so far, of those suspects that are not known to be gone; `unread` is why one failed."""

    suspects: dict[ProcessRef, Suspect]
    looks: dict[ProcessRef, list[KernelLook]] = field(default_factory=dict)
    unread: dict[ProcessRef, str] = field(default_factory=dict)
    memory: PlightMemory = field(default_factory=PlightMemory)
    plights: dict[ProcessRef, Plight] = field(default_factory=dict)

    def lacks(self, count: int) -> bool:
        """Tell whether a suspect has fewer looks than that."""
        return any(len(self.looks[ref]) < count for ref in self.suspects)


async def find_stuck_here(
    simulated: Sequence[tuple[int, int]] = (), settings: StuckSettings | None = None
) -> StuckReport:
    """Return what is stuck on this host, by a procfs worker started for it; raises ReclaimerdError."""
    probe = Probe("procfs", command_for("procfs"), WorkerSettings())
    try:
        chosen = settings or StuckSettings(signatures=load_signatures())
        return await find_stuck(probe, chosen, devices=simulated)
    finally:
        await probe.close()


async def find_stuck(
    probe: Asking,
    settings: StuckSettings,
    *,
    devices: Sequence[tuple[int, int]] = (),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> StuckReport:
    """Return every process that is stuck or leaves for too long; bounded by the looks and 10 s each.

    `devices` are numbers to count as a driver's besides the real ones (a simulated host's). Raises
    ReclaimerdError when the host could not be searched at all.
    """
    began = clock()
    scan = await ask_kernel_scan(probe, seconds=SCAN_SECONDS, devices=devices)
    if isinstance(scan, str):
        raise ReclaimerdError(f"the tasks of this host could not be searched: {scan}", "try it again as root")
    watch = _Watch({one.look.ref: one for one in scan.suspects if one.touch is not Touch.NONE})
    _take(watch, [one.look for one in watch.suspects.values()], settings)
    for _ in range(settings.looks - 1 + _MORE_ROUNDS):
        if not watch.lacks(settings.looks):
            break
        await sleep(settings.apart_seconds)
        _take(watch, await _look_again(probe, watch), settings)
    watched = clock() - began
    rows = tuple(row for ref in watch.suspects if (row := _row(ref, watch, settings, watched)) is not None)
    latest = {ref.pid: looks[-1] for ref, looks in watch.looks.items() if ref in watch.suspects}
    deadlock = ab_ba([watch.plights[ref] for ref in watch.suspects if ref in watch.plights], latest)
    notes = () if deadlock is None else (deadlock,)
    return StuckReport(rows, watched, scan.processes, scan.tasks, scan.skipped, notes)


async def _look_again(probe: Asking, watch: _Watch) -> list[KernelLook]:
    """Return a new look at each suspect; one that is gone, or another process by now, is let go.

    One that could not be looked at stays a suspect: a busy host, or a lock that it holds itself, must
    not make it vanish.
    """
    answers = await ask_kernel_looks(probe, [ref.pid for ref in watch.suspects])
    found: list[KernelLook] = []
    for ref in list(watch.suspects):
        answer = answers[ref.pid]
        match answer:
            case KernelLook() if answer.ref == ref:
                found.append(answer)
            case UnreadableProcess(why=why):
                watch.unread[ref] = why
            case _:
                del watch.suspects[ref]
    return found


def _take(watch: _Watch, looks: Sequence[KernelLook], settings: StuckSettings) -> None:
    """Judge one round of looks; a SIGKILL that is pending since the first of them counts as sent."""
    for look in looks:
        watch.looks.setdefault(look.ref, []).append(look)
    killed = {ref: seen[0].at for ref, seen in watch.looks.items() if _kill_pending(seen[0])}
    now = max((look.at for look in looks), default=0.0)
    found, watch.memory = advance(watch.memory, looks, Beside(killed_at=killed), settings.plights(), now)
    for look in looks:
        watch.plights.pop(look.ref, None)
    watch.plights |= {plight.ref: plight for plight in found}


def _kill_pending(look: KernelLook) -> bool:
    return any(task.kill_pending for task in look.tasks)


def _row(ref: ProcessRef, watch: _Watch, settings: StuckSettings, watched: float) -> StuckRow | None:
    """Return the row of a suspect that stayed in trouble through every look; None for the others."""
    suspect, looks, plight = watch.suspects[ref], watch.looks[ref], watch.plights.get(ref)
    leaving, text = "", ""
    if len(looks) < settings.looks:
        leaving = Leaving.UNDETERMINED.value
        text = f"it could not be looked at again: {watch.unread.get(ref, 'no time')}; hands off"
    elif suspect.kernel_thread and (plight is None or plight.leaving is Leaving.NOT_LEAVING):
        return _busy_thread(suspect, looks, watched)
    elif plight is None or not _is_trouble(plight, looks):
        return None
    return StuckRow(
        ref,
        looks[-1].comm,
        suspect.kernel_thread,
        condition="unknown" if plight is None else plight.condition.value,
        leaving=leaving or ("" if plight is None else plight.leaving.value),
        watched_seconds=watched,
        text=text or ("" if plight is None else plight.text),
        touch=suspect.touch,
        touch_text=suspect.touch_text,
        signature="" if plight is None else plight.signature,
        fault_domain="" if plight is None or not plight.signature else plight.fault_domain.value,
        tasks=suspect.task_count,
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


def simulated_devices(directory: Path) -> tuple[tuple[int, int], ...]:
    """Return the device numbers of a simulated host; raises ReclaimerdError when it is none."""
    from reclaimerd.simulation.host import read_simulated_host  # noqa: PLC0415  # only for --simulate

    numbers = []
    for gpu in read_simulated_host(directory).gpus:
        with suppress(OSError):
            device = Path(gpu.device).stat().st_rdev
            numbers.append((os.major(device), os.minor(device)))
    return tuple(numbers)
