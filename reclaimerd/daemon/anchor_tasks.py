"""Sends the audit log's head to who keeps it off this host; neither a pass nor an act waits for it.

One head is under way at a time, and only the newest is ever sent. What could not be sent is told as a fault,
and tried again; it binds nobody. Decides nothing.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from reclaimerd.daemon.notice_tasks import Post
from reclaimerd.model.drain_ports import Asked
from reclaimerd.model.outlets import AnchorWebhook
from reclaimerd.record import logs
from reclaimerd.record.audit_anchors import anchor_fields
from reclaimerd.record.chain import Head

KIND = "audit_head"
SCHEMA = 1


@dataclass(slots=True)
class AnchorSender:
    """The last head that the receiver took, and the one that is under way.

    `settings` are those of the policy in force, `clock` is monotonic and `wall` Unix time, in seconds.
    """

    settings: Callable[[], AnchorWebhook]
    post: Post
    clock: Callable[[], float]
    wall: Callable[[], float]
    boot_id: str
    sent: Head | None = None
    """The last head that was taken, None before the first."""
    _fault: str = ""
    _tried_mono: float = float("-inf")
    _task: asyncio.Task[None] | None = field(default=None)

    def look(self, head: Head | None) -> None:
        """Send the head where that is due; returns at once."""
        settings = self.settings()
        if head is None or self._task is not None or not self._is_due(head, settings):
            return
        self._tried_mono = self.clock()
        self._task = asyncio.get_running_loop().create_task(self._send(head, settings))

    def fault(self) -> str:
        """Return why the last head was not taken, or ""; nothing when nobody is to get one."""
        return self._fault if self.settings().url else ""

    async def stop(self) -> None:
        """Let go of what is under way; the child that posts is ended with its task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_due(self, head: Head, settings: AnchorWebhook) -> bool:
        if not settings.url or head == self.sent:
            return False
        if self.clock() >= self._tried_mono + settings.every_seconds:
            return True
        # Many records bring it forward, but not while the receiver refuses: it would be asked in each pass.
        grown = self.sent is not None and head.seq - self.sent.seq >= settings.every_records
        return grown and not self._fault

    async def _send(self, head: Head, settings: AnchorWebhook) -> None:
        body = {"schema": SCHEMA, "kind": KIND, "boot": self.boot_id, **anchor_fields(head, self.wall())}
        # The id names the record: whoever gets it twice keeps it once.
        message = f"audit-head-{head.seq}-{head.hash[:16]}"
        try:
            answer = await self.post(settings.webhook, message, json.dumps(body) + "\n")
        finally:
            self._task = None
        if not isinstance(answer, Asked):
            if not self._fault:
                logs.error("audit_anchor_not_sent", why=answer.text, seq=head.seq)
            self._fault = answer.text
            return
        if self._fault:
            logs.event("audit_anchor_sent_again", seq=head.seq)
        self._fault, self.sent = "", head
