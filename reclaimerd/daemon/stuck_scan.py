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
from reclaimerd.daemon.stuck_rows import StuckReport, Watched, row_of
from reclaimerd.daemon.worker import command_for
from reclaimerd.errors import ReclaimerdError
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.judge.signatures import ab_ba
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, Plight
from reclaimerd.model.policy import Signature, WorkerSettings
from reclaimerd.observe.answers import UnreadableProcess
from reclaimerd.observe.kernel_looks import Asking, ask_kernel_looks, ask_kernel_scan
from reclaimerd.observe.kernel_scan import KernelScan, Suspect, Touch
from reclaimerd.observe.probe import Probe

SCAN_SECONDS = 8.0
_SAMPLES = 3
_SCAN_TRIES = 4
_MORE_ROUNDS = 3
"""For suspects that could not be looked at in each round."""


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

    def of(self, ref: ProcessRef, wanted: int, seconds: float) -> Watched:
        """Return one suspect as it is judged at the end."""
        looks, why = tuple(self.looks[ref]), self.unread.get(ref, "")
        return Watched(self.suspects[ref], looks, wanted, self.plights.get(ref), seconds, why)


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
    scan = await _searched(probe, devices, sleep)
    watch = _Watch({one.look.ref: one for one in scan.suspects if one.touch is not Touch.NONE})
    _take(watch, [one.look for one in watch.suspects.values()], settings)
    for _ in range(settings.looks - 1 + _MORE_ROUNDS):
        if not watch.lacks(settings.looks):
            break
        await sleep(settings.apart_seconds)
        _take(watch, await _look_again(probe, watch), settings)
    watched = clock() - began
    rows = [row_of(watch.of(ref, settings.looks, watched)) for ref in watch.suspects]
    latest = {ref.pid: looks[-1] for ref, looks in watch.looks.items() if ref in watch.suspects}
    deadlock = ab_ba([watch.plights[ref] for ref in watch.suspects if ref in watch.plights], latest)
    notes = () if deadlock is None else (deadlock,)
    found = tuple(row for row in rows if row is not None)
    return StuckReport(found, watched, scan.processes, scan.tasks, scan.skipped, notes)


async def _searched(
    probe: Asking, devices: Sequence[tuple[int, int]], sleep: Callable[[float], Awaitable[None]]
) -> KernelScan:
    """Return the search of the host, tried again on one that is too busy; raises ReclaimerdError."""
    why = ""
    for attempt in range(_SCAN_TRIES):
        if attempt:
            await sleep(1.0)
        scan = await ask_kernel_scan(probe, seconds=SCAN_SECONDS, devices=devices)
        if isinstance(scan, KernelScan):
            return scan
        why = scan
    raise ReclaimerdError(f"the tasks of this host could not be searched: {why}", "try it again as root")


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


def simulated_devices(directory: Path) -> tuple[tuple[int, int], ...]:
    """Return the device numbers of a simulated host; raises ReclaimerdError when it is none."""
    from reclaimerd.simulation.host import read_simulated_host  # noqa: PLC0415  # only for --simulate

    numbers = []
    for gpu in read_simulated_host(directory).gpus:
        with suppress(OSError):
            device = Path(gpu.device).stat().st_rdev
            numbers.append((os.major(device), os.minor(device)))
    return tuple(numbers)
