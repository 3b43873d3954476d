"""How long one process may keep a worker: 200 ms each, more only while the worker really works.

A process can make the reader of its /proc files hang (an execve that waits on a dirty FUSE mapping
holds the lock that the reader needs), so each gets its own small limit. A worker that burns CPU
meanwhile is not stuck, only slow: it gets up to four limits more. One that waits for a CPU (runnable,
which nobody's lock makes it) is not to blame either, nor whom it looks at: it gets all the time there is.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reclaimerd.observe.worker_link import CpuTime, Link, Pending

EACH_SECONDS = 0.2
FIRST_SECONDS, MOST_SECONDS = 5.0, 60.0
"""How long a process is not asked again the first time; each further time twice as long, up to the most.

A reader that waits for its own pages from a slow disk looks the same, and a target that is not read is not
signalled: the first time may be no fault of the process.
"""
FORGET_AFTER_SECONDS = 600.0
SEARCHES = frozenset({"scan", "kernel", "kernel_scan", "kernel_facts", "signs"})
"""Questions whose answer says which process it is at, and that can be asked again without that one."""
_EXTENSIONS = 4
_WORKING_SHARE = 0.25
_POLL_SECONDS = 0.1


@dataclass(slots=True)
class _Window:
    """One process's time: since when, how often extended (`worked`: for work), and the CPU time by then."""

    at: int | None
    since: float | None
    began: float
    cpu: CpuTime
    extended: int = 0
    worked: int = 0


def _standing_at(link: Link, pending: Pending, asked: Sequence[int]) -> tuple[int | None, float | None]:
    """Return the process that the worker is looking at, and since when (None: not begun, or not known)."""
    if not asked:
        return pending.at, pending.moved_at
    at = asked[len(pending.parts)] if len(pending.parts) < len(asked) else None
    if pending.moved_at is not None or link.hello_at is None:
        return at, pending.moved_at
    return at, max(pending.sent_at, link.hello_at)


def _may_go_on(window: _Window, link: Link, now: float) -> bool:
    """Extend the window while the worker works or waits for a CPU; tell whether it did."""
    cpu = link.read_cpu_time()
    enough = _WORKING_SHARE * max(now - window.began, 0.001)
    ran = cpu.ran_seconds - window.cpu.ran_seconds
    # The kernel counts a wait for a CPU only when it is over: one that lasts shows as runnable.
    starved = ran < enough and (
        cpu.waited_seconds - window.cpu.waited_seconds >= enough or link.is_runnable()
    )
    if not starved and (ran < enough or window.worked >= _EXTENSIONS):
        return False
    window.worked += not starved
    window.extended += 1
    window.began, window.cpu = now, cpu
    return True


async def wait_for_answer(
    link: Link,
    pending: Pending,
    until: float,
    clock: Callable[[], float],
    asked: Sequence[int] = (),
) -> int | None:
    """Wait until the answer ended or the time is up; return the pid where the worker is stuck, if it is.

    `asked` are the pids of a `look`, answered in order; without them a search's own progress counts.
    """
    window = _Window(None, None, clock(), CpuTime(0.0, 0.0))
    per_process = bool(asked) or pending.op in SEARCHES
    while not pending.ended.done():
        now = clock()
        if now >= until:
            return None
        at, since = _standing_at(link, pending, asked) if per_process else (None, None)
        if (at, since) != (window.at, window.since):
            window = _Window(at, since, now, link.read_cpu_time())
        due = now + _POLL_SECONDS if per_process else until
        if at is not None and since is not None:
            due = since + EACH_SECONDS * (1 + window.extended)
            if due <= now and not _may_go_on(window, link, now):
                return at
            due = max(due, now + EACH_SECONDS / 4)
        await asyncio.wait({pending.ended}, timeout=min(due, until) - now)
    return None


@dataclass(frozen=True, slots=True)
class _Kept:
    until: float
    seconds: float
    why: str


class Unanswered:
    """Processes that made a worker hang, not asked again for a time that doubles when it happens again."""

    __slots__ = ("_clock", "_kept")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[int, _Kept] = {}

    def note(self, pid: int, why: str) -> None:
        """Remember that looking at this process failed."""
        before = self._kept.get(pid)
        seconds = FIRST_SECONDS if before is None else min(2 * before.seconds, MOST_SECONDS)
        self._kept[pid] = _Kept(self._clock() + seconds, seconds, why)

    def current(self) -> dict[int, str]:
        """Return those that are not asked now, each with why; forgets who made nobody hang for long."""
        now = self._clock()
        self._kept = {pid: one for pid, one in self._kept.items() if now < one.until + FORGET_AFTER_SECONDS}
        return {pid: one.why for pid, one in self._kept.items() if now < one.until}
