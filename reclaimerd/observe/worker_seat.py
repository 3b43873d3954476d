"""The one place of a role's worker: start it when due, judge its silence, bury it, abandon it.

At most one worker works, and at most one abandoned worker lives; while it does, no other is started.
Nothing here waits for a worker's end longer than 0.2 s, and nothing sleeps: a restart has a due time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from reclaimerd.host.child import abandon, kill, send_kill, wait
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.abandoned import Abandoned, adopt_abandoned
from reclaimerd.observe.answers import Answer, Answered, Failed, ProbeKind, ProbeState, Silent, SilentCause
from reclaimerd.observe.patience import wait_for_answer
from reclaimerd.observe.worker_link import Link, Pending

_BURY_SECONDS = 0.2
_CLOSE_SECONDS = 0.5
_BACK_OFF_FIRST_SECONDS, _BACK_OFF_MOST_SECONDS = 0.5, 60.0


def back_off_seconds(failures: int) -> float:
    """Return how long after the n-th failure in a row the next start is due (0.5 s, doubled, to 60 s)."""
    # Here and not above: it imports asyncio's and more for one formula that a healthy daemon never needs.
    from tenacity import RetryCallState, Retrying, wait_exponential  # noqa: PLC0415

    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = failures
    return wait_exponential(multiplier=_BACK_OFF_FIRST_SECONDS, max=_BACK_OFF_MOST_SECONDS)(state)


class Seat:
    """One role's worker and what became of those before it."""

    __slots__ = (
        "_abandoned", "_answered_at", "_clock", "_command", "_due_at", "_evidence", "_explained", "_failed",
        "_failures", "_late", "_limits", "_link", "_role", "_silent_since", "_tasks", "stack_of", "sticky",
    )  # fmt: skip

    def __init__(
        self,
        role: str,
        command: Callable[[int], list[str]],
        limits: WorkerSettings,
        clock: Callable[[], float],
    ) -> None:
        self.sticky: tuple[str, Mapping[str, object]] | None = None
        """A request that each new worker gets first: what a worker forgets when it is replaced."""
        self.stack_of: Callable[[int], Awaitable[str]] | None = None
        self._role = role
        self._command = command
        self._limits = limits
        self._clock = clock
        self._link: Link | None = None
        self._abandoned: Abandoned | None = None
        self._silent_since: float | None = None
        self._answered_at = 0.0
        self._late = False
        self._failed: Failed | None = None
        self._failures = 0
        self._due_at = 0.0
        self._evidence = ""
        self._explained: int | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ready(self, until: float) -> Link | Silent | Failed:
        """Return a worker that is free to be asked (started if due), or why there is none."""
        if (left := self._still_abandoned()) is not None:
            pid = left.child.pid
            return self._silent(f"the {self._role} worker (pid {pid}) was killed and has not ended", pid)
        link = self._link
        if link is not None and link.pending is not None:
            silent = await self._settled(link, link.pending, until)
            if silent is not None:
                return silent
        if self._link is not None and self._link.lost:
            await self._bury(self._link)
        if self._link is not None:
            return self._link
        if self._failed is not None and self._clock() < self._due_at:
            return self._failed
        return self._start()

    async def _settled(self, link: Link, pending: Pending, until: float) -> Silent | None:
        """Return None when no request is in flight any more; past the second limit abandon the worker."""
        first_limit = pending.sent_at + self._limits.answer_within_seconds
        if self._silent_since is None:  # whoever asked was cancelled: its answer may still come in time
            await wait_for_answer(link, pending, min(until, first_limit), self._clock)
        if pending.ended.done():
            await self.answer(link, pending, late=False)
            return None
        if self._clock() - pending.sent_at <= self._limits.hung_after_seconds:
            return self.silence(link, pending)
        silent = self.silence(link, pending)
        self._abandon(link)
        return silent

    def late_answer_to(self, op: str, args: Mapping[str, object]) -> Pending | None:
        """Return the request whose answer came late, if it answers this question."""
        pending = None if self._link is None else self._link.pending
        if pending is None or not pending.ended.done() or not pending.is_same(op, args):
            return None
        return pending

    async def late_answer(self, pending: Pending) -> Answer | None:
        """Return an answer that came late; None when its worker was lost instead."""
        link = self._link
        if link is None or link.lost:
            return None
        return await self.answer(link, pending, late=True)

    async def answer(self, link: Link, pending: Pending, *, late: bool = False) -> Answer:
        """Return what the worker answered; any answer ends its silence, its own death does not."""
        link.pending = None
        failed = pending.ended.result()
        if link.lost:
            return await self._bury(link)
        self._silent_since, self._explained, self._evidence = None, None, ""
        self._failed, self._failures = None, 0
        self._late, self._answered_at = late, pending.ended_at
        return failed or Answered(tuple(pending.parts), pending.sent_at, pending.ended_at, late)

    def silence(self, link: Link, pending: Pending) -> Silent:
        """Return that there is no answer, and why as far as it shows from outside."""
        silent_for = self._clock() - pending.sent_at
        if self._silent_since is None:
            self._silent_since = pending.sent_at
        self._explain(link.child.pid)
        cause, role = link.read_cause(), self._role
        match cause:
            case SilentCause.STOPPED:
                why = f"the {role} worker is stopped (state T)"
            case SilentCause.OVERLOADED:
                why = f"host overloaded: the {role} worker waits for a CPU since {silent_for:.1f} s"
            case _:
                who = (
                    "driver unresponsive: no answer"
                    if role == "nvml"
                    else f"no answer from the {role} worker"
                )
                why = f"{who} to `{pending.op}` for {silent_for:.1f} s"
        return Silent(why, self._silent_since, self._evidence, cause)

    def _silent(self, why: str, pid: int) -> Silent:
        self._explain(pid)
        if self._silent_since is None:
            self._silent_since = self._clock()
        why = f"driver unresponsive: {why}" if self._role == "nvml" else why
        return Silent(why, self._silent_since, self._evidence)

    def _explain(self, pid: int) -> None:
        """Have the silent worker's kernel stack read, once, in the background."""
        if self.stack_of is None or self._explained == pid:
            return
        self._explained = pid
        task = asyncio.ensure_future(self._read_evidence(self.stack_of, pid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_evidence(self, stack_of: Callable[[int], Awaitable[str]], pid: int) -> None:
        evidence = await stack_of(pid)
        if evidence:
            self._evidence = evidence
        elif self._explained == pid:
            self._explained = None  # ask again at the next silence

    def _start(self) -> Link | Failed:
        try:
            self._link = Link.start(self._command, self._clock)
        except (OSError, ValueError) as error:
            return self._fail(f"the {self._role} worker can't be started: {error}")
        if self.sticky is not None:
            self._link.send_unasked(*self.sticky)
        return self._link

    def _fail(self, message: str) -> Failed:
        self._failures += 1
        after = back_off_seconds(self._failures)
        self._due_at = self._clock() + after
        self._failed = Failed(
            "failed", message, f"it is started again in {after:.1f} s; its own words are in the log"
        )
        return self._failed

    async def _bury(self, link: Link) -> Failed:
        """See a lost worker off and set when the next is due."""
        why, pid = link.lost, link.child.pid
        link.close()
        code = await wait(link.child, _BURY_SECONDS)
        end = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
        await self._remove(link)
        return self._fail(f"the {self._role} worker (pid {pid}) is lost: {why}{end}")

    async def _remove(self, link: Link) -> None:
        """Kill the worker, wait a moment, and abandon it if it stays."""
        self._link = None
        link.close()
        if await kill(link.child, _BURY_SECONDS) is None:
            self._abandoned = Abandoned(link.child, link.ref)

    async def replace(self, link: Link) -> None:
        """Kill a worker that is stuck; the next question starts another at once."""
        await self._remove(link)

    def _abandon(self, link: Link) -> None:
        """Kill a hung worker and wait not at all."""
        send_kill(link.child)
        abandon(link.child)
        link.close()
        self._link = None
        self._abandoned = Abandoned(link.child, link.ref)

    def _still_abandoned(self) -> Abandoned | None:
        if self._abandoned is not None and self._abandoned.is_gone():
            self._abandoned = None
        return self._abandoned

    @property
    def abandoned(self) -> ProcessRef | None:
        """The worker that was killed and lives on."""
        left = self._still_abandoned()
        return None if left is None else left.ref

    @property
    def left_if_we_end(self) -> ProcessRef | None:
        """The worker that may outlive us: the abandoned one, else the one at work (it may hang)."""
        left = self._still_abandoned()
        if left is not None:
            return left.ref
        return None if self._link is None else self._link.ref

    def take_limits(self, limits: WorkerSettings) -> None:
        """Let a policy's limits hold from now on."""
        self._limits = limits

    @property
    def silent_since(self) -> float | None:
        """When the worker, and those before it, ceased to answer (monotonic); None: it answers."""
        return self._silent_since

    async def adopt(self, ref: ProcessRef, silent_since: float | None) -> None:
        """Take over the worker that was abandoned before our restart, if it still lives, and its silence."""
        if (found := await adopt_abandoned(ref)) is not None:
            if self._link is not None:  # started ahead, before we knew: none works beside an abandoned one
                await self._remove(self._link)
            self._abandoned = found
            told = (self._clock(), self._silent_since, silent_since)
            self._silent_since = min(since for since in told if since is not None)

    def pids(self) -> tuple[int, ...]:
        """Return our living workers of this role, the abandoned one too."""
        left = self._still_abandoned()
        working = () if self._link is None else (self._link.child.pid,)
        return working if left is None else (*working, left.child.pid)

    def state(self) -> ProbeState:
        """Return how the worker does, without asking it."""
        since, link, left = self._silent_since, self._link, self._still_abandoned()
        if left is not None:
            return ProbeState(
                ProbeKind.ABANDONED, since or 0.0, left.child.pid, "killed, and it has not ended"
            )
        if link is None:
            why = self._failed.message if self._failed is not None else ""
            return ProbeState(ProbeKind.IDLE, self._answered_at, None, why)
        came = link.pending is not None and link.pending.ended.done()
        if since is not None and not came:
            return ProbeState(
                ProbeKind.SILENT, since, link.child.pid, f"the {self._role} worker does not answer"
            )
        if came or self._late:
            return ProbeState(ProbeKind.SLOW, self._answered_at, link.child.pid, "its last answer came late")
        return ProbeState(ProbeKind.OK, self._answered_at, link.child.pid)

    async def close(self) -> None:
        """End the worker: its socket closes, after 0.5 s SIGKILL, then it is abandoned."""
        for task in tuple(self._tasks):
            task.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.close()
            if await wait(link.child, _CLOSE_SECONDS) is None:
                await self._remove(link)
