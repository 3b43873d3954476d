"""Have one body posted by a child, signed as the policy says: for drain requests and for notices.

Nothing of HTTP, TLS or DNS is in this process. It may not decide what is said, nor whether it is said again.
"""

import json
import re
import sys

from reclaimerd.host.child import Overran, run_bounded
from reclaimerd.host.web_address import shown_host
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

TRIES_FOR = 3.0
"""Times the limit of one try: how long it is tried again before the answer is no."""
_START_SECONDS = 10.0
"""For the child's own start, which imports an HTTP client, on a busy host."""
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,159}")
"""What may stand in a header and in a signed id."""


async def post(settings: WebhookTarget, message: str, body: str) -> TargetAnswer:
    """Post it until it is taken, refused, or the time is up.

    `message` is the id by which the receiver knows it again. Never raises for what the network does.
    """
    if not _ID.fullmatch(message):
        return NotAsked(f"the id {message!r} can't stand in a header", lasting=True)
    limit = settings.seconds * TRIES_FOR
    order = {
        "url": settings.url,
        "secret_file": settings.secret_file,
        "ca_file": settings.ca_file,
        "plain_http": settings.plain_http,
        "seconds": settings.seconds,
        "limit_seconds": limit,
        "message": message,
        "body": body,
    }
    isolation = "-I" if sys.flags.isolated else "-P"
    argv = (sys.executable, isolation, "-m", "reclaimerd.act.webhook_child")
    try:
        end = await run_bounded(argv, deadline_seconds=limit + _START_SECONDS, stdin_text=json.dumps(order))
    except OSError as error:
        return NotAsked(f"the child that posts did not start ({error.strerror})")
    answer = _answer_in(end.out)
    if answer is not None:
        return answer
    if isinstance(end, Overran):
        return NotAsked(f"{shown_host(settings.url)}: no answer within {limit + _START_SECONDS:g} s")
    return NotAsked(f"the child that posts broke off ({_error_in(end.err)}, exit code {end.code})")


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
