"""Collect what shows of one stuck process: its tasks over a second, whom it waits for, the log, the driver.

Bounded in time; whatever can't be had in time is named as missing. It takes no environment, no
memory content and no open file's content, and command lines only masked. It acts on nothing.
"""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from reclaimerd.errors import NoTargetError
from reclaimerd.host.kernel_text import parse_hung_task
from reclaimerd.judge.culprits import waits_for_namespace
from reclaimerd.judge.exit_path import process_condition
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.judge.signatures import lock_waited_for
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, Plight
from reclaimerd.model.policy import Signature
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known
from reclaimerd.observe.answers import UnreadableProcess
from reclaimerd.observe.kernel_log import KernelLog, LogLine
from reclaimerd.observe.kernel_looks import KernelAnswer

T = TypeVar("T")
Json = Mapping[str, object]

SECONDS = 10.0
MOST_BYTES = 1 << 20
SAMPLES = 4
APART_SECONDS = 0.33
LONGER_SAMPLES = 8
LONGER_APART_SECONDS = 0.6
"""Where the engine has no verdict of its own yet: four seconds more."""
_GRACE_SECONDS = 3.0
"""Patience of such a verdict: a healthy exit with a full GPU takes 0.2 s, and its text says how long."""
NEAR_SECONDS = 1800.0
"""How far back a kernel line may lie to count as near: the hung task watch repeats itself for minutes."""
_MOST_LINES = 200
_MOST_PARENTS = 8
_MOST_CHILDREN = 32


@dataclass(frozen=True, slots=True)
class Link:
    """One process that has to do with the wait: its role, what it does, and where it sleeps."""

    role: str
    pid: int
    ref: str
    comm: str
    text: str


@dataclass(frozen=True, slots=True)
class EvidencePorts:
    """Where evidence comes from. `looks`, `process`, `children` and `log` are the procfs worker's.

    `driver` is what the last pass saw of it (state, version, GPUs, holders); `plight` the engine's
    own verdict, "" where it has none.
    """

    looks: Callable[[Sequence[int]], Awaitable[Mapping[int, KernelAnswer]]]
    process: Callable[[int], Awaitable[ProcessReading | str]]
    children: Callable[[int], Awaitable[Sequence[int]]]
    log: Callable[[], Awaitable[KernelLog]]
    driver: Callable[[], Json]
    plight: Callable[[ProcessRef], Plight | None] = lambda _ref: None
    signatures: tuple[Signature, ...] = ()
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was collected of one process; times are monotonic but for `taken_at`."""

    ref: ProcessRef
    taken_at: float
    looks: tuple[KernelLook, ...]
    plight: Plight | None
    process: ProcessReading | None
    chain: tuple[Link, ...]
    locks: tuple[str, ...]
    log: KernelLog
    driver: Json
    host: str = field(default_factory=platform.node)
    kernel: str = field(default_factory=platform.release)
    missing: tuple[str, ...] = ()


@dataclass(slots=True)
class _Clerk:
    """Waits for one thing after the other while there is time, and writes down what did not come."""

    ports: EvidencePorts
    until: float
    missing: list[str] = field(default_factory=list)

    async def get(self, what: str, coming: Awaitable[T], otherwise: T) -> T:
        """Return what comes in time, else the other value."""
        left = self.until - self.ports.clock()
        try:
            async with asyncio.timeout(max(0.05, left)):
                return await coming
        except TimeoutError:
            self.missing.append(f"{what}: it took longer than the time for evidence")
            return otherwise

    def has_time(self, seconds: float) -> bool:
        """Tell whether there is time to wait that long for another look."""
        return self.ports.clock() + seconds < self.until


async def collect(pid: int, ports: EvidencePorts, *, seconds: float = SECONDS) -> Evidence:
    """Return the evidence of one process, within about `seconds`.

    Raises NoTargetError when there is no such process, or it can't be looked at.
    """
    clerk = _Clerk(ports, ports.clock() + seconds)
    looks = await _sampled(pid, clerk)
    kin = await _kin(looks[-1], clerk)
    plight = ports.plight(looks[-1].ref) or _judged(looks, kin, ports.signatures)
    if plight is not None and ports.plight(plight.ref) is None:
        await _take(looks, pid, clerk, (LONGER_SAMPLES, LONGER_APART_SECONDS))
        plight = _judged(looks, kin, ports.signatures)
    last = looks[-1]
    nothing = KernelLog((), "not read")
    log = await clerk.get("the kernel log", ports.log(), nothing)
    process = await clerk.get("the process", ports.process(pid), "it was not read in time")
    if isinstance(process, str):
        clerk.missing.append(f"program, command line and workload: {process}")
    elif process.ref != last.ref:
        clerk.missing.append("program, command line and workload: the pid is another process's by now")
        process = "another process"
    if log.missing:
        clerk.missing.append(log.missing)
    _note_unread(last, clerk.missing)
    return Evidence(
        ref=last.ref,
        taken_at=ports.wall(),
        looks=tuple(looks),
        plight=plight,
        process=None if isinstance(process, str) else process,
        chain=await _chain(last, clerk),
        locks=_locks(looks),
        log=KernelLog(near(log.lines, last), log.missing),
        driver=ports.driver(),
        missing=tuple(dict.fromkeys(clerk.missing)),
    )


async def _sampled(pid: int, clerk: _Clerk) -> list[KernelLook]:
    """Return several looks over about a second; fewer when the process goes meanwhile.

    Raises NoTargetError when there is none at all.
    """
    looks: list[KernelLook] = []
    await _take(looks, pid, clerk, (1, 0.0))
    if looks:
        await _take(looks, pid, clerk, (SAMPLES - 1, APART_SECONDS))
        return looks
    why = f": {'; '.join(clerk.missing)}" if clerk.missing else ""
    raise NoTargetError(f"there is no process {pid} that can be looked at{why}", "`reclaimctl ps` shows some")


async def _take(looks: list[KernelLook], pid: int, clerk: _Clerk, plan: tuple[int, float]) -> None:
    """Add so many looks, so far apart, while there is time and the process is there."""
    count, apart = plan
    for _ in range(count):
        if apart and not clerk.has_time(apart):
            clerk.missing.append("further samples: the time for evidence is up")
            return
        if apart:
            await clerk.ports.sleep(apart)
        answers: Mapping[int, KernelAnswer] = await clerk.get("a look", clerk.ports.looks([pid]), {})
        match answers.get(pid):
            case KernelLook() as look if not looks or look.ref == looks[0].ref:
                looks.append(look)
            case UnreadableProcess(why=why):
                clerk.missing.append(f"a sample: {why}")
            case None:
                pass
            case _:
                if looks:
                    clerk.missing.append("further samples: the process ended meanwhile")
                return


async def _kin(look: KernelLook, clerk: _Clerk) -> tuple[KernelLook, ...]:
    """Return looks at those whom the init of a PID namespace may wait for, none for any other process."""
    if not waits_for_namespace(look):
        return ()
    below: Sequence[int] = await clerk.get("its members", clerk.ports.children(look.ref.pid), ())
    empty: Mapping[int, KernelAnswer] = {}
    found = await clerk.get("its members", clerk.ports.looks(below[:_MOST_CHILDREN]), empty)
    return tuple(one for one in found.values() if isinstance(one, KernelLook))


def _judged(
    looks: Sequence[KernelLook], kin: Sequence[KernelLook], signatures: tuple[Signature, ...]
) -> Plight | None:
    """Return what these looks alone amount to; `kin` are those whom it may wait for."""
    settings = PlightSettings(_GRACE_SECONDS, signatures=signatures)
    memory, plights = PlightMemory(), tuple[Plight, ...]()
    for look in looks:
        plights, memory = advance(memory, [look, *kin], Beside(), settings, look.at)
    return next((plight for plight in plights if plight.ref == looks[-1].ref), None)


async def _chain(look: KernelLook, clerk: _Clerk) -> tuple[Link, ...]:
    """Return the tracer, the parents, and the children that leave: those who wait and are waited for."""
    links: list[Link] = []
    if look.tracer_pid:
        links += await _links("tracer", [look.tracer_pid], clerk)
    pid = look.ppid
    for _ in range(_MOST_PARENTS):
        found = await clerk.get("a parent", clerk.ports.looks([pid]), {}) if pid > 0 else {}
        parent = found.get(pid)
        if not isinstance(parent, KernelLook):
            break
        links.append(_link("parent", parent))
        pid = parent.ppid
    with suppress(OSError):
        below = list(await clerk.get("its children", clerk.ports.children(look.ref.pid), ()))
        links += await _links("child", below[:_MOST_CHILDREN], clerk)
        if len(below) > _MOST_CHILDREN:
            clerk.missing.append(f"{len(below) - _MOST_CHILDREN} more descendants")
    return tuple(links)


async def _links(role: str, pids: Sequence[int], clerk: _Clerk) -> list[Link]:
    found: Mapping[int, KernelAnswer] = await clerk.get(f"the {role}", clerk.ports.looks(pids), {})
    return [_link(role, one) for one in found.values() if isinstance(one, KernelLook)]


def _link(role: str, look: KernelLook) -> Link:
    condition, _ = process_condition(look)
    worst = min(look.tasks, key=lambda task: "DRtTSIZX".find(task.state), default=None)
    where = "" if worst is None or not worst.wchan else f", in {worst.wchan}"
    states = "".join(sorted({task.state for task in look.tasks}))
    text = f"{condition.value.replace('_', ' ')} (state {states}){where}"
    return Link(role, look.ref.pid, str(look.ref), look.comm, text)


def _locks(looks: Sequence[KernelLook]) -> tuple[str, ...]:
    """Return which task waits for which lock, as its newest stack shows."""
    found: dict[int, str] = {}
    for look in looks:
        for task in look.tasks:
            lock = lock_waited_for(task.frames.value) if isinstance(task.frames, Known) else ""
            if lock:
                found[task.tid] = lock
    return tuple(f"task {tid} waits for the lock {lock}" for tid, lock in found.items())


def near(lines: Sequence[LogLine], look: KernelLook) -> tuple[LogLine, ...]:
    """Return the kernel's lines of the last half hour, and those older that name a task of this process."""
    tids = {task.tid for task in look.tasks}

    def names_us(line: LogLine) -> bool:
        hung = parse_hung_task(line.text)
        return hung is not None and hung.pid in tids

    kept = [line for line in lines if line.at >= look.at - NEAR_SECONDS or names_us(line)]
    return tuple(kept[-_MOST_LINES:])


def _note_unread(look: KernelLook, missing: list[str]) -> None:
    """Say which stacks are not there, and what would help."""
    running = [str(task.tid) for task in look.tasks if task.state == "R"]
    if running:
        what = f"no stack shows for a task in R ({', '.join(running[:8])})"
        missing.append(f"{what}: `reclaimctl evidence {look.ref.pid} --perf` as root samples it")
    unread = {task.frames.why for task in look.tasks if not isinstance(task.frames, Known)}
    missing.extend(f"kernel stacks: {why}" for why in sorted(unread))
