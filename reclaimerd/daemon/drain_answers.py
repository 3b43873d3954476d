"""What targets and the fleet's arbiter answer: a fault of one is its answer, and breaks nothing off."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from reclaimerd.model.drain_ports import DrainTargetPort, NotAsked, TargetAnswer
from reclaimerd.record import logs

Call = Callable[[DrainTargetPort], Awaitable[TargetAnswer]]
T = TypeVar("T")


async def answers_of(
    names: Sequence[str], targets: Mapping[str, DrainTargetPort], call: Call
) -> dict[str, TargetAnswer]:
    """Return what each target answers, side by side."""
    known = [name for name in names if name in targets]
    ends = await asyncio.gather(*(answer_of(name, call(targets[name])) for name in known))
    gone = NotAsked("the policy names no such target any more", lasting=True)
    return dict.fromkeys(names, gone) | dict(zip(known, ends, strict=True))


async def answer_of(name: str, call: Awaitable[T]) -> T | NotAsked:
    """Return what one answers."""
    (end,) = await asyncio.gather(call, return_exceptions=True)
    if isinstance(end, Exception):
        logs.error("drain_target_failed", target=name, error=f"{type(end).__name__}: {end}")
        return NotAsked(f"a fault of ours: {type(end).__name__}: {end}")
    if isinstance(end, BaseException):
        raise end
    return end
