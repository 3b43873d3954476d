"""What a drain request's asks become by their targets' answers, and when each is due again.

Pure but for the spread of the retries: of many nodes that wait for one server not all come back at once.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from reclaimerd.model.drain import Ask, AskState, NodeDrain
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

FIRST_RETRY_SECONDS = 15.0
LAST_RETRY_SECONDS = 600.0
_JITTER = 0.2
IDLE_SECONDS = 60.0
"""How often what stands is looked at again for something to do, without a word from anybody."""


def is_due(ask: Ask, now: float) -> bool:
    """Tell whether a target is to be asked now (wall-clock seconds)."""
    return ask.state in (AskState.DUE, AskState.FAILED) and seconds_until(ask.retry_at, now) <= 0


def with_tries(drain: NodeDrain, names: Collection[str], now: float) -> NodeDrain:
    """Return the request with one more try of these targets: durable before they are asked."""
    asks = tuple(
        replace(ask, tries=ask.tries + 1, at=now) if ask.target in names else ask for ask in drain.asks
    )
    return replace(drain, asks=asks)


def with_answers(drain: NodeDrain, answers: Mapping[str, TargetAnswer], now: float) -> NodeDrain:
    """Return the request with what its targets answered."""
    asks = tuple(
        _answered(ask, answers[ask.target], now) if ask.target in answers else ask for ask in drain.asks
    )
    return replace(drain, asks=asks)


def _answered(ask: Ask, answer: TargetAnswer, now: float) -> Ask:
    match answer:
        case Asked(text=text, place=place):
            asked = replace(ask, state=AskState.ASKED, text=text, at=now, retry_at=None)
            return replace(asked, place=place or ask.place)
        case Foreign(text=text):
            return replace(ask, state=AskState.FOREIGN, text=text, at=now, retry_at=None)
        case NotAsked(text=text, lasting=lasting):
            state = AskState.FAILED if lasting else AskState.DUE
            pause = LAST_RETRY_SECONDS if lasting else _backoff(ask.tries)
            return replace(ask, state=state, text=text, at=now, retry_at=now + pause)


def with_withdrawals(drain: NodeDrain, answers: Mapping[str, TargetAnswer], now: float) -> NodeDrain:
    """Return the request with what its targets answered when it was taken back."""
    asks = tuple(
        _taken(ask, answers[ask.target], now) if ask.target in answers else ask for ask in drain.asks
    )
    return replace(drain, asks=asks)


def _taken(ask: Ask, answer: TargetAnswer, now: float) -> Ask:
    if isinstance(answer, NotAsked):
        tries = ask.tries + 1
        return replace(ask, text=answer.text, tries=tries, at=now, retry_at=now + _backoff(tries))
    return replace(ask, state=AskState.WITHDRAWN, text=answer.text, at=now, retry_at=None)


def asked_anew(drain: NodeDrain, boot_id: str) -> NodeDrain:
    """Return the request with everybody to be asked again: a boot may have undone what stood on the host."""
    asks = tuple(
        replace(ask, state=AskState.DUE, retry_at=None) if ask.state is AskState.ASKED else ask
        for ask in drain.asks
    )
    return replace(drain, asks=asks, asked_boot=boot_id)


def at_once(drain: NodeDrain) -> NodeDrain:
    """Return the request with nobody waited for."""
    asks = tuple(replace(ask, retry_at=None) for ask in drain.asks)
    return replace(drain, asks=asks, slot_retry_at=None)


def waits_for_first(drain: NodeDrain, first: str) -> bool:
    """Tell whether the target by which the arbiter counts this node has not taken the request yet."""
    return any(
        ask.target == first and ask.state not in (AskState.ASKED, AskState.FOREIGN) for ask in drain.asks
    )


def told_to_wait(drain: NodeDrain, first: str, reports: Collection[str]) -> NodeDrain:
    """Return the request with all others waiting for that target: it may lose the place to another node."""
    text = f"waits for {first}, which counts the fleet's nodes"
    again_at = next((ask.retry_at for ask in drain.asks if ask.target == first), None)
    asks = tuple(
        ask
        if ask.target == first or ask.target in reports
        else replace(ask, text=ask.text if ask.tries else text, retry_at=again_at)
        for ask in drain.asks
    )
    return replace(drain, asks=asks)


def owes_verified(drain: NodeDrain, now: float) -> bool:
    """Tell whether it is to be said now that a boot ended every cause: not while one of this boot stands."""
    is_well = bool(drain.verified_boot) and all(one.well_at is not None for one in drain.joined)
    return is_well and not drain.verified_told and seconds_until(drain.slot_retry_at, now) <= 0


def without_slot(drain: NodeDrain, reports: Collection[str], text: str, now: float) -> NodeDrain:
    """Return the request with all targets but the reports not asked: nobody counts the fleet's nodes."""
    asks = tuple(
        ask
        if ask.target in reports
        else replace(ask, state=AskState.FAILED, text=text, at=now, retry_at=now + LAST_RETRY_SECONDS)
        for ask in drain.asks
    )
    return replace(drain, asks=asks, slot=text)


def _backoff(tries: int) -> float:
    pause = min(FIRST_RETRY_SECONDS * 2.0 ** max(0, tries - 1), LAST_RETRY_SECONDS)
    return pause * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)  # noqa: S311  # no secret: it spreads a fleet


def slot_pause(began_at: float, now: float) -> float:
    """Return when a full fleet is asked again: soon at first, then every ten minutes."""
    waited = max(0.0, now - began_at)
    pause = min(max(waited, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)
    return pause * random.uniform(1.0 - _JITTER, 1.0 + _JITTER)  # noqa: S311  # as above


def seconds_until(at: float | None, now: float) -> float:
    """Return how long that still is; what lies further off than any retry was set before the clock went back.

    Then it is due: nobody waits for hours until the clock is there again.
    """
    if at is None or at - now > LAST_RETRY_SECONDS * (1.0 + _JITTER):
        return 0.0
    return max(0.0, at - now)


def next_due(asks: Iterable[Ask], now: float) -> float:
    """Return in how many seconds a target is to be asked again."""
    open_asks = [ask for ask in asks if ask.state in (AskState.DUE, AskState.FAILED)]
    return min((seconds_until(ask.retry_at, now) for ask in open_asks), default=IDLE_SECONDS)
