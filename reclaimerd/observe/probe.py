"""The parent's end of a disposable worker: every question has two limits, and no pass waits twice.

No answer within `answer_within`: Silent, the request stays in flight, and later questions are Silent
at once; an answer that comes after all is used and counts as slow. Past `hung_after` the worker is
killed and abandoned without a wait, and while it lives no other of its role is started. A worker
that dies is started again when it is due. This may not call the driver or read another process:
whatever can hang is in the worker.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.answers import (
    Answer,
    Answered,
    Failed,
    Gone,
    LookAnswer,
    ProbeKind,
    ProbeState,
    Silent,
    SilentCause,
    UnreadableProcess,
)
from reclaimerd.observe.known_looks import KnownLooks
from reclaimerd.observe.patience import SEARCHES, Unanswered, wait_for_answer
from reclaimerd.observe.worker_link import Link, Pending
from reclaimerd.observe.worker_seat import Seat

__all__ = [
    "Answer", "Answered", "Failed", "Gone", "LookAnswer", "Probe", "ProbeKind", "ProbeState", "Silent",
    "SilentCause", "UnreadableProcess",
]  # fmt: skip

_LOOK_CHUNK = 512
"""Pids of one request: its line must fit the socket's buffer."""
_SCAN_TRIES = 3
_TIME_UP = "not looked at: the time for this pass is up"


class Probe:
    """One role's worker, started at the first question or by `start`. For one event loop; questions queue."""

    __slots__ = ("_clock", "_known", "_limits", "_lock", "_role", "_seat", "_shut_why", "_unanswered")

    def __init__(
        self,
        role: str,
        command: Callable[[int], list[str]],
        limits: WorkerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._limits = limits
        self._clock = clock
        self._lock = asyncio.Lock()
        self._seat = Seat(role, command, limits, clock)
        self._known = KnownLooks()
        self._unanswered = Unanswered(clock)
        self._shut_why = ""

    def explain_by(self, stack_of: Callable[[int], Awaitable[str]]) -> None:
        """Let this read the kernel stack of a silent worker of ours (the procfs probe's `read_stack`)."""
        self._seat.stack_of = stack_of

    @property
    def abandoned(self) -> ProcessRef | None:
        """The worker that was killed and lives on."""
        return self._seat.abandoned

    @property
    def left_if_we_end(self) -> ProcessRef | None:
        """The worker that may outlive us, killed or at work; keep it in the store for the next start."""
        return self._seat.left_if_we_end

    @property
    def silent_since(self) -> float | None:
        """When this role ceased to answer (monotonic), None: it answers; keep it for the next start."""
        return self._seat.silent_since

    async def adopt_abandoned(self, ref: ProcessRef, silent_since: float | None = None) -> None:
        """Take over the worker that an earlier start of ours left behind, if it still lives.

        One at its work leaves with its parent; one that did not hangs, and its silence goes on. When it
        is gone the role may have answered since: its silence is forgotten.
        """
        await self._seat.adopt(ref, silent_since)

    def worker_pids(self) -> tuple[int, ...]:
        """Return our living workers of this role, the abandoned one too."""
        return self._seat.pids()

    def state(self) -> ProbeState:
        """Return how the worker does, without asking it."""
        return self._seat.state()

    def take_limits(self, limits: WorkerSettings) -> None:
        """Let a policy's limits hold from the next question on."""
        self._limits = limits
        self._seat.take_limits(limits)

    async def start(self) -> None:
        """Start the worker ahead of the first question, which then need not wait for it to be ready.

        A start that fails is told by the first question.
        """
        async with self._lock:
            if not self._shut_why:
                await self._seat.ready(self._clock())

    async def close(self) -> None:
        """End the worker within a second; a later question starts another."""
        await self._seat.close()

    async def shut(self, why: str) -> bool:
        """End the worker and start none until `reopen`; tell whether none of this role is left.

        A question in flight gets its own time first (`answer_within`); later ones are Silent, cause
        closed, with this `why`.
        """
        self._shut_why = why
        acquired = await self._acquire(self._limits.answer_within_seconds)
        try:
            await self._seat.close()
        finally:
            if acquired:
                self._lock.release()
        return not self._seat.pids()

    def reopen(self) -> None:
        """Let the next question start a worker again."""
        self._shut_why = ""

    async def ask(
        self, op: str, args: Mapping[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the answer to one question, or why there is none; never raises for the worker's faults.

        Waits at most `answer_within` seconds (default: the policy's), and not at all while an earlier
        question is unanswered.
        """
        within = self._limits.answer_within_seconds if answer_within is None else answer_within
        until = self._clock() + within
        if not await self._enter(within):
            return self._busy()
        try:
            if op == "watch":
                self._seat.sticky = (op, args or {})
            if op in SEARCHES:
                return await self._search(op, args or {}, until)
            return await self._ask(op, args or {}, until)
        finally:
            self._lock.release()

    async def read_stack(self, pid: int) -> str:
        """Return the kernel stacks of one process's tasks ("" when they can't be had); role procfs."""
        answer = await self.ask("stack", {"pid": pid})
        match answer:
            case Answered(parts=({"stack": str(stack)}, *_)):
                return stack
            case _:
                return ""

    async def ask_each(self, pids: Sequence[int], whole: Iterable[int] = ()) -> dict[int, LookAnswer]:
        """Return a look at each process, or why there is none; role procfs.

        One that makes the worker hang costs 200 ms and a new worker, is unreadable for a while, and
        the others are looked at all the same. The whole takes at most `answer_within`.
        """
        until = self._clock() + self._limits.answer_within_seconds
        if not await self._enter(self._limits.answer_within_seconds):
            return {pid: UnreadableProcess(self._busy().why) for pid in pids}
        try:
            skipped = self._unanswered.current()
            found: dict[int, LookAnswer] = {
                pid: UnreadableProcess(skipped[pid]) for pid in pids if pid in skipped
            }
            left = [pid for pid in dict.fromkeys(pids) if pid not in skipped]
            wanted = frozenset(whole)
            while left:
                left = await self._look(left, wanted, until, found)
        finally:
            self._lock.release()
        return found

    async def _enter(self, within: float) -> bool:
        """Wait for our turn to ask; tell whether it came, and the probe is not shut."""
        if self._shut_why or not await self._acquire(within):
            return False
        is_open = not self._shut_why  # it may have been shut while we waited
        if not is_open:
            self._lock.release()
        return is_open

    async def _acquire(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    def _busy(self) -> Silent:
        if self._shut_why:
            return Silent(self._shut_why, self._clock(), cause=SilentCause.CLOSED)
        return Silent(f"the {self._role} worker is busy", self._clock(), cause=SilentCause.BUSY)

    async def _ask(self, op: str, args: Mapping[str, object], until: float) -> Answer:
        pending = self._seat.late_answer_to(op, args)
        late = None if pending is None else await self._seat.late_answer(pending)
        if late is not None:
            return late
        link = await self._seat.ready(until)
        if not isinstance(link, Link):
            return link
        pending = link.send(op, args)
        stuck = await wait_for_answer(link, pending, until, self._clock)
        if pending.ended.done():
            return await self._seat.answer(link, pending)
        if stuck is None:
            return self._seat.silence(link, pending)
        return Failed("stuck", await self._blame(link, stuck))

    async def _search(self, op: str, args: Mapping[str, object], until: float) -> Answer:
        """Search, and again without the process that made the reader hang."""
        answer: Answer = Failed("failed", "nothing was asked")
        for _ in range(_SCAN_TRIES):
            without = sorted(self._unanswered.current())
            answer = await self._ask(op, {**args, "without": without}, until)
            if not (isinstance(answer, Failed) and answer.kind == "stuck"):
                break
        return answer

    async def _blame(self, link: Link, pid: int) -> str:
        """Replace a worker that hangs on one process, and remember which, unless it was the worker itself."""
        why = f"looking at pid {pid} made the {self._role} worker hang"
        if link.read_cause() is SilentCause.UNRESPONSIVE:
            self._unanswered.note(pid, why)
        else:
            why = f"the {self._role} worker was stopped or got no CPU"
        await self._seat.replace(link)
        return why

    async def _look(
        self, left: list[int], whole: frozenset[int], until: float, found: dict[int, LookAnswer]
    ) -> list[int]:
        """Ask once, put the answers into `found`, and return the pids that are still to be asked."""
        link = await self._seat.ready(until) if self._clock() < until else Failed("failed", _TIME_UP)
        if not isinstance(link, Link):
            why = link.why if isinstance(link, Silent) else link.message
            found.update((pid, UnreadableProcess(why)) for pid in left)
            return []
        asked = left[:_LOOK_CHUNK]
        told = {"pids": asked, "whole": [pid for pid in asked if pid in whole]}
        pending = link.send("look", {**told, "known": self._known.numbers(link, asked)})
        stuck = await wait_for_answer(link, pending, until, self._clock, asked)
        answered = _looks(pending, asked, self._known)
        found.update(answered)
        rest = [pid for pid in left if pid not in answered]
        why = _TIME_UP
        if pending.ended.done():
            answer = await self._seat.answer(link, pending)
            why = answer.message if isinstance(answer, Failed) else "the worker left it out"
        elif stuck is not None:
            why = await self._blame(link, stuck)
            if stuck not in self._unanswered.current():
                return rest
        elif link.hello_at is None:
            why = self._seat.silence(link, pending).why  # still starting: a new one would be no quicker
        else:
            await self._seat.replace(link)
        found.update((pid, UnreadableProcess(why)) for pid in rest[:1])
        return rest[1:]


def _looks(pending: Pending, asked: Sequence[int], known: KnownLooks) -> dict[int, LookAnswer]:
    """Return the answers that came, in the order asked; one that can't be decoded is unreadable."""
    found: dict[int, LookAnswer] = {}
    for pid, part in zip(asked, pending.parts, strict=False):
        match part:
            case {"pid": named, "same": _} | {"pid": named, "look": _} if named == pid:
                try:
                    found[pid] = known.look_of(part)
                except ValueError as error:
                    found[pid] = UnreadableProcess(str(error))
            case {"pid": named, "gone": True} if named == pid:
                found[pid] = Gone()
            case {"pid": named, "unreadable": str(why)} if named == pid:
                found[pid] = UnreadableProcess(why)
            case _:
                found[pid] = UnreadableProcess("the worker answered for another process")
    return found
