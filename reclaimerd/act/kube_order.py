"""What the child that speaks to a Kubernetes cluster is told, and what it answers: one JSON text each.

The HTTP client lives and dies with the child; nothing of it is imported here.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar

from reclaimerd.host.child import Overran, run_bounded
from reclaimerd.host.wire import Decoder, to_json
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, KubernetesTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, SlotTaken, SlotWaits

T = TypeVar("T")

TARGET_SECONDS = 20.0
"""For the some ten calls of one request: each takes 5 ms of an API server that is well."""
FLEET_SECONDS = 45.0
"""The same, with the wait for a Lease whose holder died (15 s)."""
_START_SECONDS = 10.0
"""For the child's own start, which imports an HTTP client, on a busy host."""


class KubeOp(StrEnum):
    """What the child does."""

    REQUEST = "request"
    WITHDRAW = "withdraw"
    STATUS = "status"
    VERIFIED = "verified"
    TAKE = "take"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """As whom the cluster is asked, about which node, and in which boot of this host.

    `credentials` are as in `[cluster]`; `account` is the folder of a pod's own.
    """

    credentials: str
    node: str
    boot_id: str
    account: str = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class KubeOrder:
    """One call: within `seconds`, all of it."""

    op: KubeOp
    access: KubeAccess
    request: DrainRequest
    seconds: float
    target: KubernetesTarget
    fleet: FleetSettings


KubeAnswer = Asked | Foreign | NotAsked | SlotTaken | SlotWaits
_KINDS: Mapping[str, Callable[[str], KubeAnswer]] = {
    kind.__name__: kind for kind in (Asked, Foreign, SlotTaken, SlotWaits)
}


def answer_text(answer: KubeAnswer) -> str:
    """Return an answer as the parent reads it."""
    lasting = isinstance(answer, NotAsked) and answer.lasting
    return json.dumps({"kind": type(answer).__name__, "text": answer.text, "lasting": lasting})


def answer_one(kind: type[T], answer_to: Callable[[T], KubeAnswer]) -> NoReturn:
    """Read one order of this kind, print the answer to it, and end: what a child of ours does."""
    order: T = Decoder(kind).decode(sys.stdin.read())
    print(answer_text(answer_to(order)), flush=True)  # noqa: T201 - the parent reads it
    # A look-up of a name that hangs must not hold up the end.
    os._exit(0)


async def asked_of_child(order: KubeOrder) -> KubeAnswer:
    """Have a child do it; whatever it does wrong is NotAsked, for it is safe to ask again."""
    return await answer_of_child("reclaimerd.act.kube_child", to_json(order), order.seconds)


async def answer_of_child(module: str, text: str, seconds: float) -> KubeAnswer:
    """Have a module of ours read an order and answer it within so many seconds, in a process of its own."""
    isolation = "-I" if sys.flags.isolated else "-P"
    argv = (sys.executable, isolation, "-m", module)
    limit = seconds + _START_SECONDS
    try:
        end = await run_bounded(argv, deadline_seconds=limit, stdin_text=text)
    except OSError as error:
        return NotAsked(f"the child that asks the cluster did not start ({error.strerror})")
    answer = _answer_in(end.out)
    if answer is not None:
        return answer
    if isinstance(end, Overran):
        return NotAsked(f"the cluster gave no answer within {limit:g} s")
    last = (end.err.strip().splitlines() or ["no error told"])[-1]
    return NotAsked(f"the child that asks the cluster broke off ({last[:200]}, exit code {end.code})")


def _answer_in(out: str) -> KubeAnswer | None:
    try:
        said = json.loads(out)
    except ValueError:
        return None
    match said:
        case {"kind": "NotAsked", "text": str(text), "lasting": bool(lasting)}:
            return NotAsked(text, lasting=lasting)
        case {"kind": str(kind), "text": str(text)} if kind in _KINDS:
            return _KINDS[kind](text)
        case _:
            return None
