"""Ask for a drain by a signed POST to whoever keeps the fleet: `DrainTargetPort` over a child that posts.

Nothing of HTTP, TLS or DNS is in this process. It may not decide what the receiver does with the request:
the same one comes again after a death of ours, and the receiver knows it by its key.
"""

import json
import re
import secrets
import sys
from dataclasses import dataclass

from reclaimerd.act.drain_body import Action, action_bytes
from reclaimerd.host.child import Overran, run_bounded
from reclaimerd.host.web_address import shown_host
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.ports import Asked, Foreign, NotAsked, TargetAnswer

TRIES_FOR = 3.0
"""Times the limit of one try: how long it is tried again before the answer is no."""
_START_SECONDS = 10.0
"""For the child's own start, which imports an HTTP client, on a busy host."""
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,127}")
"""What may stand in a header and in a signed id."""


@dataclass(frozen=True, slots=True)
class DrainWebhook:
    """One receiver of the policy's."""

    settings: WebhookTarget
    name: str = "webhook"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Post it until it is taken, refused, or the time is up."""
        return await self._post(Action.REQUEST, request)

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Tell the receiver that it is taken back; whether anything of ours stands there it knows."""
        return await self._post(Action.WITHDRAW, request)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Ask the receiver; a question is a new one each time."""
        return await self._post(Action.STATUS, request)

    def plan(self, request: DrainRequest) -> str:
        """Return what would be posted; a path and a signature may be secrets and are not shown."""
        message = _message(Action.REQUEST, request)
        signed = (
            f"webhook-id: {message}\nwebhook-timestamp: (the time)\nwebhook-signature: v1,(of the three)\n"
        )
        return (
            f"POST to {shown_host(self.settings.url)}\n"
            f"Content-Type: application/json\nIdempotency-Key: {message}\n"
            f"{signed if self.settings.secret_file else ''}\n"
            f"{action_bytes(Action.REQUEST, request).decode()}"
        )

    async def _post(self, action: Action, request: DrainRequest) -> TargetAnswer:
        if not _ID.fullmatch(request.id):
            return NotAsked(f"request {request.id!r} can't stand in a header", lasting=True)
        settings = self.settings
        limit = settings.seconds * TRIES_FOR
        order = {
            "url": settings.url,
            "secret_file": settings.secret_file,
            "ca_file": settings.ca_file,
            "plain_http": settings.plain_http,
            "seconds": settings.seconds,
            "limit_seconds": limit,
            "message": _message(action, request),
            "body": action_bytes(action, request).decode(),
        }
        isolation = "-I" if sys.flags.isolated else "-P"
        argv = (sys.executable, isolation, "-m", "reclaimerd.act.webhook_child")
        try:
            end = await run_bounded(
                argv, deadline_seconds=limit + _START_SECONDS, stdin_text=json.dumps(order)
            )
        except OSError as error:
            return NotAsked(f"the child that posts did not start ({error.strerror})")
        answer = _answer_in(end.out)
        if answer is not None:
            return answer
        if isinstance(end, Overran):
            return NotAsked(f"{shown_host(settings.url)}: no answer within {limit + _START_SECONDS:g} s")
        return NotAsked(f"the child that posts broke off ({_error_in(end.err)}, exit code {end.code})")


def _message(action: Action, request: DrainRequest) -> str:
    """Return the id by which a receiver knows the same message again; each question is another."""
    message = f"{request.id}-{action.value}"
    return f"{message}-{secrets.token_hex(8)}" if action is Action.STATUS else message


def _answer_in(out: str) -> TargetAnswer | None:
    """Return the answer that the child printed, None for anything else."""
    try:
        said = json.loads(out)
    except ValueError:
        return None
    match said:
        case {"kind": "Asked", "text": str(text)}:
            return Asked(text)
        case {"kind": "Foreign", "text": str(text)}:
            return Foreign(text)
        case {"kind": "NotAsked", "text": str(text), "lasting": bool(lasting)}:
            return NotAsked(text, lasting=lasting)
        case _:
            return None


def _error_in(err: str) -> str:
    """Return the kind of the child's error, and nothing of its words: an address may be in them."""
    last = (err.strip().splitlines() or [""])[-1]
    kind = last.partition(":")[0]
    return kind if kind.replace(".", "").isidentifier() else "no error told"
