"""Sends notices, each receiver by a task of its own beside the passes: no pass waits for any of them.

What a receiver can't take is dropped and counted, in memory alone: a notice is a word to people, and the
record of what happened is the audit log's. Decides nothing.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from reclaimerd.daemon.tally import Tally
from reclaimerd.host.notice_text import notice_text
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import NotAsked, TargetAnswer
from reclaimerd.model.outlets import Notice, NotifyTarget
from reclaimerd.record import logs

MOST_WAITING = 32
"""Notices that wait for one receiver."""
_HOUR_SECONDS = 3600.0

Post = Callable[[WebhookTarget, str, str], Awaitable[TargetAnswer]]
"""Posts a body under an id; never raises for what the receiver does."""


@dataclass(slots=True)
class _Lane:
    """One receiver's notices: those that wait, when the last hour's were taken, how many were dropped."""

    waiting: deque[tuple[NotifyTarget, Notice]] = field(default_factory=deque)
    taken_at: deque[float] = field(default_factory=deque)
    dropped: int = 0
    task: asyncio.Task[None] | None = None


class Notifier:
    """Notices on their way, by receiver."""

    __slots__ = ("_clock", "_lanes", "_post", "_tally", "_targets")

    def __init__(
        self,
        targets: Callable[[], tuple[NotifyTarget, ...]],
        post: Post,
        tally: Tally,
        clock: Callable[[], float],
    ) -> None:
        self._targets = targets
        self._post = post
        self._tally = tally
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}

    @property
    def has_receivers(self) -> bool:
        """Tell whether the policy in force names anybody."""
        return bool(self._targets())

    def tell(self, notice: Notice) -> None:
        """Take a notice for each receiver that wants it; returns at once."""
        targets = self._targets()
        for name in self._lanes.keys() - {target.name for target in targets}:
            if not self._lanes[name].waiting and self._lanes[name].task is None:
                del self._lanes[name]
        for target in targets:
            if target.wants(notice):
                self._take(target, notice)

    async def stop(self) -> None:
        """Let go of all of them where they stand; a child that posts is ended with its task."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, target: NotifyTarget, notice: Notice) -> None:
        lane = self._lanes.setdefault(target.name, _Lane())
        now = self._clock()
        while lane.taken_at and lane.taken_at[0] <= now - _HOUR_SECONDS:
            lane.taken_at.popleft()
        if len(lane.taken_at) >= target.per_hour or len(lane.waiting) >= MOST_WAITING:
            lane.dropped += 1
            self._tally.notices[target.name, "dropped"] += 1
            return
        lane.taken_at.append(now)
        lane.waiting.append((target, notice))
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._send(lane))

    async def _send(self, lane: _Lane) -> None:
        """Send what waits, one after the other, until nothing does."""
        try:
            while lane.waiting:
                target, notice = lane.waiting.popleft()
                await self._send_one(lane, target, notice)
        finally:
            lane.task = None

    async def _send_one(self, lane: _Lane, target: NotifyTarget, notice: Notice) -> None:
        dropped = lane.dropped
        body = notice_text(notice, target.template, dropped)
        answer = await self._post(target.webhook, f"notice-{secrets.token_hex(12)}", body)
        if isinstance(answer, NotAsked):
            self._tally.notices[target.name, "failed"] += 1
            logs.warning("notice_not_sent", notify=target.name, kind=notice.kind.value, why=answer.text)
            return
        lane.dropped -= dropped
        self._tally.notices[target.name, "sent"] += 1
