"""Joins the kubelet's list to each look, and never makes a look wait for the kubelet.

The list is asked for beside the passes: at its interval, and early when somebody new holds a GPU. What was
read stays until the next answer; how old it may be is the judge's to say. A failure is a reading.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.host.wire import Decoder
from reclaimerd.model.allocation import (
    AllocatedDevice,
    AllocationView,
    ContainerAllocation,
    KubeletAnswer,
    SocketMark,
)
from reclaimerd.model.identity import FileIdentity, ProcessRef
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.kernel_looks import why_not
from reclaimerd.observe.probe import Answered, Failed, Probe
from reclaimerd.observe.recent import Recent

EARLY_SECONDS = 5.0
"""A new holder makes the list be read early, at most this often: the kubelet refuses floods."""
FIRST_SECONDS = 2.0
"""How long the very first look waits for the first list, so that one command has something to say."""
_CALL_SHARE = 0.8
"""The call's own deadline, of `answer_within`: the kubelet's silence must not look like the worker's."""
_ANSWER: Decoder[KubeletAnswer] = Decoder(KubeletAnswer)


_MOST_GIVEN = 4096
"""Containers whose devices are remembered: far more than one host runs at a time."""
_Name = tuple[str, str, str]
"""A container: namespace, pod, name."""


@dataclass(slots=True)
class _Past:
    """What one reading leaves for the next: when it was asked, for whom, and the sockets it saw."""

    asked_at: float | None = None
    refs: frozenset[ProcessRef] = frozenset()
    marks: dict[str, tuple[tuple[FileIdentity, int], float]] | None = None
    """Each socket's identity and last change, and since when (monotonic) it is this one."""
    given: Recent[_Name, frozenset[AllocatedDevice]] = field(default_factory=lambda: Recent(_MOST_GIVEN))
    """All devices that each container was ever given."""


class AllocationEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with the kubelet's list in it."""

    __slots__ = ("_clock", "_kubelet", "_past", "_reading", "_sampler", "_settings", "_task", "_within")

    def __init__(
        self,
        sampler: SamplerPort,
        kubelet: Probe,
        settings: Callable[[], AttributionSettings],
        within: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._sampler = sampler
        self._kubelet = kubelet
        self._settings = settings
        self._within = within
        self._clock = clock
        self._past = _Past()
        self._reading: Reading[AllocationView] | None = None
        self._task: asyncio.Task[None] | None = None

    async def sample(self, look: Look) -> Snapshot:
        """Return the look with the newest list there is; raises what the sampler raises."""
        snapshot = await self._sampler.sample(look)
        return replace(snapshot, allocations=await self._current(snapshot))

    async def _current(self, snapshot: Snapshot) -> Reading[AllocationView]:
        socket = self._settings().kubelet_socket
        if not socket:
            return Absent("the kubelet is not asked: [attribution] kubelet_socket is empty")
        refs = frozenset(holder.ref for holder in snapshot.holders)
        if self._task is None and self._is_due(refs):
            self._past.asked_at, self._past.refs = self._clock(), refs
            self._task = asyncio.ensure_future(self._refresh(socket))
        if self._task is not None and self._reading is None:
            await asyncio.wait({self._task}, timeout=FIRST_SECONDS)
        return Unreadable("the kubelet has not answered yet") if self._reading is None else self._reading

    def _is_due(self, refs: frozenset[ProcessRef]) -> bool:
        if self._past.asked_at is None:
            return True
        every = self._settings().refresh_seconds
        if not refs <= self._past.refs:
            every = min(every, EARLY_SECONDS)
        return self._clock() >= self._past.asked_at + every

    async def _refresh(self, socket: str) -> None:
        try:
            self._reading = await self._read(socket)
        finally:
            self._task = None

    async def _read(self, socket: str) -> Reading[AllocationView]:
        gone = self._why_no_socket(socket)
        if gone is not None:
            return gone
        runtimes = list(self._settings().runtime_sockets)
        question = {"socket": socket, "runtimes": runtimes, "seconds": self._within() * _CALL_SHARE}
        answer = await self._kubelet.ask("list", question)
        match answer:
            case Answered(parts=({"kubelet": told}, *_), sent_at=sent_at):
                try:
                    return Known(self._view(_ANSWER.from_object(told), sent_at))
                except ValueError as error:
                    return Unreadable(str(error))
            case Failed(message=message, mend=mend):
                return Unreadable(f"{message}; {mend}" if mend else message)
            case _:
                return Unreadable(why_not(answer))

    def _why_no_socket(self, socket: str) -> Absent | Unreadable | None:
        """Return None when the socket stands: no worker is started for a host without a kubelet."""
        try:
            Path(socket).lstat()
        except (FileNotFoundError, NotADirectoryError):
            if self._past.marks is None:
                return Absent(f"no kubelet here: there is no {socket}")
            return Unreadable(f"the kubelet's socket {socket} is gone")
        except OSError as error:
            return Unreadable(f"{socket}: {error.strerror or error}")
        return None

    def _view(self, answer: KubeletAnswer, read_at: float) -> AllocationView:
        known = {} if self._past.marks is None else self._past.marks
        now = {mark.path: self._standing(mark, known, read_at) for mark in answer.sockets}
        lost = [path for path in answer.missing if path in known]
        why = ""
        if lost:
            why = f"the socket {lost[0]} is gone: its runtime is not running"
        elif len(answer.sockets) == 1:
            why = "no container runtime's socket was found: name it in [attribution] runtime_sockets"
        # A runtime's socket that is gone is remembered: back again it counts as a start.
        self._past.marks = {**known, **now}
        steady_since = max(since for _, since in now.values())
        formerly = tuple(filter(None, map(self._lost, answer.containers)))
        return AllocationView(read_at, answer.containers, steady_since, why, formerly)

    def _lost(self, container: ContainerAllocation) -> ContainerAllocation | None:
        """Return a container with the devices that it had before and has no more; None: it lost none."""
        name = (container.namespace, container.pod, container.container)
        now = frozenset(container.devices)
        ever = (self._past.given.get(name) or frozenset()) | now
        self._past.given.put(name, ever)
        return replace(container, devices=tuple(sorted(ever - now))) if ever - now else None

    def _standing(
        self, mark: SocketMark, known: dict[str, tuple[tuple[FileIdentity, int], float]], read_at: float
    ) -> tuple[tuple[FileIdentity, int], float]:
        """Return a socket's identity and since when it is this one; one seen changed is as of now."""
        identity = (mark.file, mark.changed_ns)
        before = known.get(mark.path)
        if before is None:  # a clock that was set back makes it look younger than nothing: as of now
            return identity, read_at - max(0.0, mark.age_seconds)
        return before if before[0] == identity else (identity, read_at)
