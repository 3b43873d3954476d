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
from reclaimerd.model.reading import Known
from reclaimerd.observe.kernel_looks import Asking, ask_kernel_looks, ask_kernel_scan
from reclaimerd.observe.kernel_scan import Suspect, Touch, busy_frame
from reclaimerd.observe.probe import Probe

Json = dict[str, object]
SCAN_SECONDS = 8.0
_SHOWN_FRAMES = 24
_SAMPLES = 3
_TROUBLE = frozenset(
    {Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING, Leaving.NO_RELEASE, Leaving.UNDETERMINED}
)


@dataclass(frozen=True, slots=True)
class StuckSettings:
    """How often and how far apart to look, and the known places."""

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
    """The looks so far, of those suspects that are still the same process."""

    suspects: dict[ProcessRef, Suspect]
    looks: dict[ProcessRef, list[KernelLook]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    memory: PlightMemory = field(default_factory=PlightMemory)
    plights: tuple[Plight, ...] = ()


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
    for _ in range(settings.looks - 1):
        if not watch.suspects:
            break
        await sleep(settings.apart_seconds)
        _take(watch, await _look_again(probe, watch), settings)
    watched = clock() - began
    rows = tuple(row for ref in watch.suspects if (row := _row(ref, watch, settings, watched)) is not None)
    latest = {ref.pid: looks[-1] for ref, looks in watch.looks.items() if ref in watch.suspects}
    deadlock = ab_ba(watch.plights, latest)
    notes = () if deadlock is None else (deadlock,)
    return StuckReport(rows, watched, scan.processes, scan.tasks, (*scan.skipped, *watch.skipped), notes)


async def _look_again(probe: Asking, watch: _Watch) -> list[KernelLook]:
    """Return a new look at each suspect; one that is gone, or another process by now, is let go."""
    answers = await ask_kernel_looks(probe, [ref.pid for ref in watch.suspects])
    found: list[KernelLook] = []
    for ref in list(watch.suspects):
        answer = answers[ref.pid]
        if isinstance(answer, KernelLook) and answer.ref == ref:
            found.append(answer)
            continue
        why = getattr(answer, "why", "")
        if why:
            watch.skipped.append(f"pid {ref.pid}: {why}")
        del watch.suspects[ref]
    return found


def _take(watch: _Watch, looks: Sequence[KernelLook], settings: StuckSettings) -> None:
    """Judge one round of looks; a SIGKILL that is pending since the first of them counts as sent."""
    for look in looks:
        watch.looks.setdefault(look.ref, []).append(look)
    killed = {ref: seen[0].at for ref, seen in watch.looks.items() if _kill_pending(seen[0])}
    now = max((look.at for look in looks), default=0.0)
    watch.plights, watch.memory = advance(
        watch.memory, looks, Beside(killed_at=killed), settings.plights(), now
    )


def _kill_pending(look: KernelLook) -> bool:
    return any(task.kill_pending for task in look.tasks)


def _row(ref: ProcessRef, watch: _Watch, settings: StuckSettings, watched: float) -> StuckRow | None:
    """Return the row of a suspect that stayed in trouble through every look; None for the others."""
    suspect, looks = watch.suspects[ref], watch.looks[ref]
    plight = next((one for one in watch.plights if one.ref == ref), None)
    if len(looks) < settings.looks or (plight is None and not suspect.kernel_thread):
        return None
    if plight is None or (suspect.kernel_thread and plight.leaving is Leaving.NOT_LEAVING):
        return _busy_thread(suspect, looks, watched)
    if not _is_trouble(plight, settings):
        return None
    return StuckRow(
        ref, looks[-1].comm, suspect.kernel_thread, plight.condition.value, plight.leaving.value,
        watched, plight.text, suspect.touch, suspect.touch_text, plight.signature,
        plight.fault_domain.value if plight.signature else "", suspect.task_count,
        _states(looks[-1]), _stack(looks),
    )  # fmt: skip


def _is_trouble(plight: Plight, settings: StuckSettings) -> bool:
    """Tell whether it is stuck, or has been leaving or in one wait through every look."""
    if plight.leaving in _TROUBLE:
        return True
    lasting = plight.looks >= settings.looks
    leaves = plight.leaving is Leaving.PROGRESSING
    waits = plight.leaving is Leaving.NOT_LEAVING and plight.condition is TaskCondition.BLOCKED
    return lasting and (leaves or waits)


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
