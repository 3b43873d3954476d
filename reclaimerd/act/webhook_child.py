"""The child that posts a drain request: `python -m reclaimerd.act.webhook_child`, an order on its stdin.

A name's look-up or a server may hang, and an HTTP client is much code: both end with this process. It may
follow no redirect, use no proxy, and speak to nobody whom TLS has not proven. What it says has the host and
the status in it, and nothing of the address's path, the key or the signature.
"""

import asyncio
import json
import os
import ssl
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_result,
    stop_before_delay,
    wait_fixed,
    wait_random_exponential,
)

from reclaimerd.act.webhook_signing import read_key, signature_headers
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.web_address import address_fault, plain_fault, shown_host
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

_EXTRA = "pip install reclaimerd[webhook]"
_MOST_BYTES = 64 * 1024
_MOST_SAID = 200
_PASSING = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS},
)
"""Besides 5xx: what another try may mend."""
_BACK_OFF = wait_fixed(0.25) + wait_random_exponential(multiplier=0.5, max=10.0)


@dataclass(frozen=True, slots=True)
class Order:
    """What is sent, and to whom. `seconds` bounds one try, `limit_seconds` all of them."""

    url: str
    secret_file: str
    ca_file: str
    plain_http: bool
    seconds: float
    limit_seconds: float
    message: str
    body: str


@dataclass(frozen=True, slots=True)
class Again:
    """A try that came to nothing; the receiver may have said how long to wait."""

    text: str
    after_seconds: float = 0.0


End = Asked | Foreign | NotAsked | Again


def main() -> NoReturn:
    """Read the order, have it delivered, and print the answer as one JSON object."""
    order = Order(**json.load(sys.stdin))
    loop = asyncio.new_event_loop()
    answer = loop.run_until_complete(deliver(order))
    print(answer_text(answer), flush=True)  # noqa: T201 - the parent reads it
    # A look-up of a name that hangs sits in a thread, and an ordinary end would wait for it.
    os._exit(0)


def answer_text(answer: TargetAnswer) -> str:
    """Return the answer as the parent reads it."""
    lasting = isinstance(answer, NotAsked) and answer.lasting
    return json.dumps({"kind": type(answer).__name__, "text": answer.text, "lasting": lasting})


async def deliver(order: Order) -> TargetAnswer:
    """Post it until somebody took or refused it, or the time is up."""
    fault = address_fault(order.url) or plain_fault(order.url, allowed=order.plain_http)
    if fault:
        return NotAsked(f"the webhook's address can't be used: {fault}", lasting=True)
    try:
        key = read_key(order.secret_file) if order.secret_file else None
        tls = _tls(order.ca_file)
    except ReclaimerdError as error:
        return NotAsked(str(error), lasting=True)
    try:
        # Here and not above: it is an extra of the package, and tests of the rest need none of it.
        import aiohttp  # noqa: PLC0415
    except ImportError:
        return NotAsked(f"a webhook needs aiohttp; {_EXTRA}", lasting=True)
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(),  # each try has its own limit
    ) as session:
        return await _delivered(_Try(order, key, tls, session, time.monotonic() + order.limit_seconds))


def _tls(ca_file: str) -> ssl.SSLContext:
    """Return whom we trust: the host's own authorities, or those of one file. Raises ReclaimerdError."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or type(error).__name__
        raise ReclaimerdError(f"{ca_file} has no certificates: {why}", "set ca_file to a PEM file") from None


@dataclass(frozen=True, slots=True)
class _Try:
    """Everything that one try needs; `until` is monotonic."""

    order: Order
    key: bytes | None
    tls: ssl.SSLContext
    session: "ClientSession"
    until: float

    @property
    def host(self) -> str:
        """Return whom it asks, as it may be told."""
        return shown_host(self.order.url)

    async def __call__(self) -> End:
        """Post it once."""
        import aiohttp  # noqa: PLC0415  # see `deliver`

        seconds = max(0.1, min(self.order.seconds, self.until - time.monotonic()))
        try:
            async with asyncio.timeout(seconds):
                return await self._post()
        except aiohttp.ClientConnectorCertificateError:
            text = f"{self.host} shows a certificate that nobody we trust has signed for it; set ca_file"
            return NotAsked(text, lasting=True)
        except aiohttp.ClientConnectorError as error:
            return Again(f"{self.host} can't be reached ({error.os_error.strerror or type(error).__name__})")
        except TimeoutError:
            return Again(f"{self.host} did not answer within {seconds:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return Again(f"{self.host} gave no answer ({type(error).__name__})")

    async def _post(self) -> End:
        body = self.order.body.encode()
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "reclaimerd",
            "Idempotency-Key": self.order.message,
        }
        if self.key is not None:
            headers |= signature_headers(self.key, self.order.message, int(time.time()), body)
        call = self.session.post(
            self.order.url, data=body, headers=headers, allow_redirects=False, ssl=self.tls
        )
        async with call as reply:
            return await _meaning(reply, self.host)


async def _delivered(one_try: _Try) -> TargetAnswer:
    """Try until there is an answer, or until the next try would come too late."""
    tries = AsyncRetrying(
        retry=retry_if_result(lambda end: isinstance(end, Again)),
        wait=_pause,
        stop=stop_before_delay(one_try.order.limit_seconds),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    end: End = await tries(one_try)
    if isinstance(end, Again):
        made = tries.statistics["attempt_number"]
        return NotAsked(f"{end.text}; {made} {'try' if made == 1 else 'tries'}")
    return end


def _pause(state: RetryCallState) -> float:
    """Return how long to wait: with jitter, and at least as long as the receiver says."""
    end = state.outcome.result() if state.outcome is not None else None
    told = end.after_seconds if isinstance(end, Again) else 0.0
    return max(told, _BACK_OFF(state))


async def _meaning(reply: "ClientResponse", host: str) -> End:
    """Return what a status means; only a conflict's body is read."""
    status = reply.status
    if 200 <= status < 300:  # noqa: PLR2004 - the class of success, RFC 9110 section 15
        return Asked(f"{host} took it ({status})")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING:
        after = _retry_after(reply.headers.get("Retry-After", ""), datetime.now(UTC))
        wish = f" and wants to be asked again in {after:g} s" if after else ""
        return Again(f"{host} answered {status}{wish}", after)
    if status < HTTPStatus.BAD_REQUEST:
        text = f"{host} answered {status}, and no redirect is followed; write the last address as url"
        return NotAsked(text, lasting=True)
    if status == HTTPStatus.CONFLICT and (foreign := await _foreign(reply)) is not None:
        return Foreign(f"{host}: another's drain stands there{foreign}")
    return NotAsked(f"{host} refused it ({status})", lasting=True)


async def _foreign(reply: "ClientResponse") -> str | None:
    """Return what a conflict says of another's drain, None when it says no such thing."""
    content = bytearray()
    while len(content) <= _MOST_BYTES and (chunk := await reply.content.read(_MOST_BYTES)):
        content += chunk
    if len(content) > _MOST_BYTES:
        return None
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("state") != "foreign":
        return None
    text = " ".join(str(said.get("text", "")).split())[:_MOST_SAID]
    return f": {''.join(letter if letter.isprintable() else '?' for letter in text)}" if text else ""


def _retry_after(value: str, now: datetime) -> float:
    """Return the seconds that a Retry-After asks for: a number, or a date; 0 for anything else."""
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (TypeError, ValueError):
        return 0.0


if __name__ == "__main__":
    main()
