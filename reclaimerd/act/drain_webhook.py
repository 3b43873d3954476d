"""Ask for a drain by a signed POST to whoever keeps the fleet: `DrainTargetPort` over a child that posts.

Nothing of HTTP, TLS or DNS is in this process. It may not decide what the receiver does with the request:
the same one comes again after a death of ours, and the receiver knows it by its key.
"""

import secrets
from dataclasses import dataclass

from reclaimerd.act.drain_body import Action, action_bytes
from reclaimerd.act.webhook_post import post
from reclaimerd.host.web_address import shown_host
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import TargetAnswer


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
        body = action_bytes(action, request).decode()
        return await post(self.settings, _message(action, request), body)


def _message(action: Action, request: DrainRequest) -> str:
    """Return the id by which a receiver knows the same message again; each question is another."""
    message = f"{request.id}-{action.value}"
    return f"{message}-{secrets.token_hex(8)}" if action is Action.STATUS else message
