"""Joins the cluster's list of this node's pods to each look, and never makes a look wait for the cluster.

It is asked beside the passes: at its interval, and early when somebody new holds a GPU. A failure lets the
view of before age; once that is older than two intervals the failure stands in its place. How old a view may
be is the judge's to say.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from reclaimerd.host.wire import Decoder
from reclaimerd.model.allocation import ClusterAnswer, ClusterView
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import ClusterSettings
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.kernel_looks import why_not
from reclaimerd.observe.probe import Answered, Failed, Probe

EARLY_SECONDS = 10.0
"""A new holder makes the list be read early, at most this often: one API server has thousands of nodes."""
FIRST_SECONDS = 2.0
"""How long the very first look waits for the first list, so that one command has something to say."""
_OWN_SECONDS = 2.0
"""What the worker needs beside the conversation: the cluster's silence must not look like its own."""
_KEPT_INTERVALS = 2
_NOT_ASKED: Reading[ClusterView] = Absent("no cluster is asked: [cluster] credentials is empty")
_NO_ANSWER: Reading[ClusterView] = Unreadable("the cluster has not answered yet")
_ANSWER: Decoder[ClusterAnswer] = Decoder(ClusterAnswer)


@dataclass(slots=True)
class _Past:
    """What one question leaves for the next: when it was asked, for whom, by which settings, what came."""

    asked_at: float | None = None
    refs: frozenset[ProcessRef] = frozenset()
    settings: ClusterSettings | None = None
    view: Known[ClusterView] | None = None
    failure: Unreadable | None = None
    """Of the last question; None: it has an answer, or none was asked."""


class ClusterEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with the cluster's list in it."""

    __slots__ = ("_clock", "_past", "_sampler", "_settings", "_task", "_worker")

    def __init__(
        self,
        sampler: SamplerPort,
        worker: Probe,
        settings: Callable[[], ClusterSettings],
        clock: Callable[[], float],
    ) -> None:
        self._sampler = sampler
        self._worker = worker
        self._settings = settings
        self._clock = clock
        self._past = _Past()
        self._task: asyncio.Task[None] | None = None

    async def sample(self, look: Look) -> Snapshot:
        """Return the look with the newest list there is; raises what the sampler raises."""
        snapshot = await self._sampler.sample(look)
        return replace(snapshot, cluster=await self._current(snapshot))

    async def _current(self, snapshot: Snapshot) -> Reading[ClusterView]:
        settings = self._settings()
        if not settings.credentials:
            self._past = _Past()
            return _NOT_ASKED
        if not _asks_the_same(self._past.settings, settings):
            self._past = _Past(settings=settings)
        refs = frozenset(holder.ref for holder in snapshot.holders)
        if self._task is None and self._is_due(refs, settings):
            self._past.asked_at, self._past.refs = self._clock(), refs
            self._task = asyncio.ensure_future(self._refresh(self._past, settings))
        if self._task is not None and self._past.view is None and self._past.failure is None:
            await asyncio.wait({self._task}, timeout=FIRST_SECONDS)
        return self._reading(settings)

    def _reading(self, settings: ClusterSettings) -> Reading[ClusterView]:
        view, failure = self._past.view, self._past.failure
        if view is None:
            return _NO_ANSWER if failure is None else failure
        is_old = self._clock() - view.value.read_at > _KEPT_INTERVALS * settings.refresh_seconds
        return failure if failure is not None and is_old else view

    def _is_due(self, refs: frozenset[ProcessRef], settings: ClusterSettings) -> bool:
        if self._past.asked_at is None:
            return True
        every = settings.refresh_seconds
        if not refs <= self._past.refs:
            every = min(every, EARLY_SECONDS)
        return self._clock() >= self._past.asked_at + every

    async def _refresh(self, past: _Past, settings: ClusterSettings) -> None:
        """Ask, and note the answer in `past`, which is nobody's any more when the settings changed."""
        try:
            match await self._read(settings):
                case Known() as view:
                    past.view, past.failure = view, None
                case Unreadable() as failure:
                    past.failure = failure
        finally:
            self._task = None

    async def _read(self, settings: ClusterSettings) -> Known[ClusterView] | Unreadable:
        question: dict[str, object] = {
            "credentials": settings.credentials,
            "node": settings.node,
            "seconds": settings.seconds,
        }
        answer = await self._worker.ask("pods", question, answer_within=settings.seconds + _OWN_SECONDS)
        match answer:
            case Answered(parts=({"cluster": told}, *_), sent_at=sent_at):
                try:
                    found = _ANSWER.from_object(told)
                except ValueError as error:
                    return Unreadable(str(error))
                return Known(ClusterView(sent_at, found.began_at, found.pods))
            case Failed(message=message, mend=mend):
                return Unreadable(f"{message}; {mend}" if mend else message)
            case _:
                return Unreadable(why_not(answer))


def _asks_the_same(before: ClusterSettings | None, now: ClusterSettings) -> bool:
    """Tell whether what was read by these settings still counts: the same cluster, and the same node."""
    return before is not None and (before.credentials, before.node) == (now.credentials, now.node)
