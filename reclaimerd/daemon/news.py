"""What the machine says between looks: the kernel's log and device events, kept until they are durable.

Reads only descriptors of our own, and waits for nothing. What was read stays here until a pass has made
it durable, so that neither a failed write nor another reader of it loses a line.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from reclaimerd.model.fault import DeviceEvent, KernelNews, XidLine
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.snapshot import Snapshot

_QUIET_SECONDS = 0.25
"""A log that is flooded wakes us this often at most."""
_MOST_KEPT = 4096
_MOST_GAPS = 16


class LogPort(Protocol):
    """The kernel's log (`observe.kmsg`)."""

    fault: str
    """Why it can't be watched, or ""."""

    def read(self) -> KernelNews:
        """Return the Xids since the last reading."""
        ...

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there is news."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class DevicesPort(Protocol):
    """Device events (`observe.udev`)."""

    fault: str
    """Why they can't be watched, or ""."""
    gap: str
    """What the last reading may have missed, or ""."""

    def read(self, ours: Collection[str] = ()) -> tuple[DeviceEvent, ...]:
        """Return the events of our GPUs since the last reading."""
        ...

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there is news."""
        ...


class News:
    """News that no pass has made durable yet."""

    __slots__ = (
        "_devices", "_events", "_gaps", "_last_seq", "_log", "_lost", "_lost_at", "_missed", "_more",
        "_quiet", "_shown", "_wake", "_wall", "_watched", "_xids",
    )  # fmt: skip

    def __init__(
        self, log: LogPort | None, devices: DevicesPort | None, wall: Callable[[], float] = time.time
    ) -> None:
        self._wall = wall
        self._lost = self._missed = ""
        self._lost_at: float | None = None
        self._more = False
        self._log = log
        self._devices = devices
        self._xids: tuple[XidLine, ...] = ()
        self._events: tuple[DeviceEvent, ...] = ()
        self._shown: tuple[DeviceEvent, ...] = ()
        self._gaps: tuple[str, ...] = ()
        self._last_seq: int | None = None
        self._watched: set[int] = set()
        self._wake: Callable[[], None] | None = None
        self._quiet = False

    def look(self, ours: Collection[str] = ()) -> tuple[KernelNews, tuple[DeviceEvent, ...]]:
        """Return all that is not durable yet; `ours` are the PCI addresses of the GPUs that are known."""
        if self._log is not None:
            news = self._log.read()
            self._xids += news.xids
            self._last_seq = self._last_seq if news.last_seq is None else news.last_seq
            self._note_gap(news.gap)
            self._more = news.more
        if self._devices is not None:
            self._events += self._devices.read(ours)
            self._missed = self._devices.gap or self._missed
        if len(self._events) > _MOST_KEPT:
            self._events = self._events[-_MOST_KEPT:]
            self._missed = "device events were lost: more than are kept"
        if len(self._xids) > _MOST_KEPT:
            self._xids = self._xids[-_MOST_KEPT:]
            self._note_gap("more Xids than are kept")
        self._follow()
        return KernelNews(self._xids, self._last_seq, "; ".join(self._gaps), self._more), self._events

    def fresh(self, events: tuple[DeviceEvent, ...]) -> tuple[DeviceEvent, ...]:
        """Return those of a look's events that were not asked about before: each is acted on once."""
        fresh, self._shown = _after(events, self._shown), events
        return fresh

    def missed(self) -> str:
        """Return which device events were lost since this was last asked, or ""."""
        missed, self._missed = self._missed, ""
        return missed

    def taken(self, news: KernelNews, events: tuple[DeviceEvent, ...]) -> None:
        """Let go of what is durable now, and of nothing that came after that look."""
        self._xids = _after(self._xids, news.xids)
        self._events = _after(self._events, events)
        self._gaps = tuple(gap for gap in self._gaps if gap not in news.gap)

    def gap_since(self, wall: float) -> str:
        """Return what was lost of the kernel's log since then (wall-clock seconds), or ""."""
        return self._lost if self._lost_at is not None and self._lost_at >= wall else ""

    def faults(self) -> tuple[str, ...]:
        """Return in words which of them can't be watched here."""
        return tuple(source.fault for source in (self._log, self._devices) if source and source.fault)

    def watch(self, wake: Callable[[], None]) -> None:
        """Ask for an early pass whenever there is news, not more often than the log deserves."""
        self._wake = wake
        self._follow()

    def close(self) -> None:
        """Stop watching, and let go of the log."""
        self._quiet = True
        self._follow()
        self._wake = None
        if self._log is not None:
            self._log.close()

    def _note_gap(self, gap: str) -> None:
        if not gap:
            return
        self._lost, self._lost_at = gap, self._wall()
        if gap not in self._gaps:
            self._gaps = (*self._gaps, gap)[-_MOST_GAPS:]

    def _follow(self) -> None:
        """Wait at the descriptors that stand now: a source may have closed its own and opened another."""
        if self._wake is None:
            return
        loop = asyncio.get_running_loop()
        sources = () if self._quiet else (self._log, self._devices)
        descriptors = [source.fileno() for source in sources if source is not None]
        standing = {fd for fd in descriptors if fd is not None}
        for fd in self._watched - standing:
            loop.remove_reader(fd)
        for fd in standing - self._watched:
            loop.add_reader(fd, self._ready)
        self._watched = standing

    def _ready(self) -> None:
        wake, before = self._wake, len(self._xids) + len(self._events)
        self._quiet = True
        self.look()
        if wake is not None and len(self._xids) + len(self._events) > before:
            wake()
        asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._listen)

    def _listen(self) -> None:
        self._quiet = False
        self._follow()


T = TypeVar("T")


def _after(kept: tuple[T, ...], gone: tuple[T, ...]) -> tuple[T, ...]:
    """Return what came after the last of `gone`; all of it where that is not there any more."""
    last = gone[-1] if gone else None
    for position in range(min(len(kept), len(gone)) - 1, -1, -1):
        if kept[position] is last:
            return kept[position + 1 :]
    return kept


class WithNews:
    """A sampler for looks beside the passes: they carry the news that no pass has taken, and take none away.

    `watch` are the processes that the passes watch: the sampler forgets the end of one that is left out.
    """

    __slots__ = ("_news", "_sampler", "_watch")

    def __init__(self, sampler: SamplerPort, news: News, watch: Callable[[], Iterable[ProcessRef]]) -> None:
        self._sampler = sampler
        self._news = news
        self._watch = watch

    async def sample(self, look: Look) -> Snapshot:
        """Return one look at the host, and the news as it stands after it."""
        watch = tuple(sorted({*look.watch, *self._watch()}))
        snapshot = await self._sampler.sample(replace(look, watch=watch))
        news, events = self._news.look([gpu.pci_address for gpu in snapshot.gpus])
        return replace(snapshot, kernel_news=news, device_events=events)
