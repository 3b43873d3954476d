"""The machine's news between looks: kept until durable, bounded, and read as soon as they come."""

import asyncio
import os
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from reclaimerd.daemon import news as news_module
from reclaimerd.daemon.news import News, WithNews
from reclaimerd.model.fault import DeviceAction, DeviceEvent, KernelNews, XidLine
from reclaimerd.model.ports import Look
from tests.builders import MONO, a_snapshot
from tests.fakes import FakeSampler

PCI = "0000:3b:00.0"
EVENT = DeviceEvent(DeviceAction.ADDED, "pci", PCI)


@dataclass(slots=True)
class FakeLog:
    """The kernel's log: the news that the test set, one for each reading."""

    coming: list[KernelNews] = field(default_factory=list)
    fault: str = ""
    fd: int | None = None
    closed: bool = False
    reads: int = 0

    def read(self) -> KernelNews:
        """Return the next news."""
        self.reads += 1
        return self.coming.pop(0) if self.coming else KernelNews()

    def fileno(self) -> int | None:
        """Return the descriptor that the test set."""
        return self.fd

    def close(self) -> None:
        """Note it."""
        self.closed = True


@dataclass(slots=True)
class FakeDevices:
    """Device events: those that the test set, one batch for each reading."""

    coming: list[tuple[DeviceEvent, ...]] = field(default_factory=list)
    fault: str = ""
    gap: str = ""
    fd: int | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def read(self, ours: Collection[str] = ()) -> tuple[DeviceEvent, ...]:
        """Return the next events."""
        self.asked.append(tuple(ours))
        return self.coming.pop(0) if self.coming else ()

    def fileno(self) -> int | None:
        """Return the descriptor that the test set."""
        return self.fd


def a_line(seq: int = 1) -> XidLine:
    """Return an Xid."""
    return XidLine(seq, MONO, PCI, 48, "what it says")


def test_lost_device_events_are_told_once() -> None:
    """Those that the socket lost and those that were too many to keep; also when a later reading is whole."""
    devices = FakeDevices(gap="device events were lost: too many came at once")
    news = News(None, devices)
    news.look()
    devices.gap = ""
    news.look()
    assert (news.missed(), news.missed()) == ("device events were lost: too many came at once", "")
    devices.coming.append((EVENT,) * 4097)
    assert len(news.look()[1]) == 4096
    assert news.missed() == "device events were lost: more than are kept"


def test_what_came_stays_until_it_is_taken() -> None:
    """Each look has all that is not durable; what came after a look stays when that look is taken."""
    log = FakeLog([KernelNews((a_line(1),), 1), KernelNews((a_line(2),), 2)])
    devices = FakeDevices([(EVENT,)])
    news = News(log, devices)
    first, events = news.look([PCI])
    assert ([line.seq for line in first.xids], events) == ([1], (EVENT,))
    assert devices.asked == [(PCI,)]
    second, _ = news.look()
    assert ([line.seq for line in second.xids], second.last_seq) == ([1, 2], 2)
    news.taken(first, events)
    third, events = news.look()
    assert ([line.seq for line in third.xids], third.last_seq, events) == ([2], 2, ())


def test_without_sources_there_is_no_news() -> None:
    """A simulated host has none of this machine's."""
    news = News(None, None)
    assert news.look() == (KernelNews(), ())
    assert news.faults() == ()
    news.close()


def test_a_gap_stands_until_its_look_is_durable_and_is_remembered() -> None:
    """For whoever must know whether Xids can have been missed since some moment."""
    log = FakeLog([KernelNews(gap="3 records lost"), KernelNews(gap="9 records lost"), KernelNews(more=True)])
    wall = [100.0]
    news = News(log, None, lambda: wall[0])
    first, _ = news.look()
    assert first.gap == "3 records lost"
    assert news.gap_since(100.0) == "3 records lost"
    assert news.gap_since(100.1) == ""
    wall[0] = 200.0
    both, _ = news.look()
    assert both.gap == "3 records lost; 9 records lost"
    news.taken(first, ())
    last, _ = news.look()
    assert (last.gap, last.more) == ("9 records lost", True)
    news.taken(last, ())
    assert news.look()[0].gap == ""
    assert news.gap_since(150.0) == "9 records lost"


def test_a_flood_that_nobody_takes_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are kept; what was dropped is a gap; a look from before the drop takes only its own."""
    monkeypatch.setattr(news_module, "_MOST_KEPT", 3)
    monkeypatch.setattr(news_module, "_MOST_GAPS", 2)
    log = FakeLog([KernelNews((a_line(1), a_line(2))), KernelNews((a_line(3), a_line(4), a_line(5)))])
    devices = FakeDevices([(EVENT,) * 5])
    news = News(log, devices)
    old, _ = news.look()
    kept, events = news.look()
    assert [line.seq for line in kept.xids] == [3, 4, 5]
    assert len(events) == 3
    assert kept.gap == "more Xids than are kept"
    assert news.gap_since(0.0) == "more Xids than are kept"
    news.taken(old, ())
    assert [line.seq for line in news.look()[0].xids] == [3, 4, 5]
    log.coming = [KernelNews(gap=f"gap {number}") for number in range(5)]
    for _ in range(5):
        gap = news.look()[0].gap
    assert gap == "gap 3; gap 4"


def test_an_event_is_acted_on_once_however_long_it_is_not_durable() -> None:
    """The same look again has nothing fresh; new events are, also after the old were taken."""
    more = DeviceEvent(DeviceAction.REMOVED, "pci", PCI)
    devices = FakeDevices([(EVENT,), (), (more,), (EVENT,)])
    news = News(None, devices)
    assert news.fresh(news.look()[1]) == (EVENT,)
    assert news.fresh(news.look()[1]) == ()
    _, events = news.look()
    assert news.fresh(events) == (more,)
    news.taken(KernelNews(), events)
    assert news.fresh(news.look()[1]) == (EVENT,)


def test_what_cannot_be_watched_is_said() -> None:
    """By each source in its own words."""
    assert News(FakeLog(fault="no log"), FakeDevices(fault="no netlink")).faults() == ("no log", "no netlink")
    assert News(FakeLog(fault="no log"), None).faults() == ("no log",)


def test_a_look_with_news_takes_none_away() -> None:
    """The reset beside the passes sees them, and the pass sees them after it."""
    log = FakeLog([KernelNews((a_line(),), 1)])
    sampler = WithNews(FakeSampler(a_snapshot()), News(log, FakeDevices([(EVENT,)])), lambda: ())
    for _ in range(2):
        snapshot = asyncio.run(sampler.sample(Look()))
        assert [line.seq for line in snapshot.kernel_news.xids] == [1]
        assert snapshot.device_events == (EVENT,)


@dataclass(slots=True)
class Bell:
    """Counts how often it was rung, and can be waited for."""

    count: int = 0
    rung: asyncio.Event = field(default_factory=asyncio.Event)

    def ring(self) -> None:
        """Ring."""
        self.count += 1
        self.rung.set()

    async def heard(self) -> None:
        """Wait for the first ring, at most five seconds."""
        async with asyncio.timeout(5.0):
            await self.rung.wait()


def test_news_wake_the_loop_and_a_flood_does_so_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readable is not enough: only an Xid or an event wakes; then it is quiet for a while."""
    monkeypatch.setattr(news_module, "_QUIET_SECONDS", 0.02)
    end, other = os.pipe()

    async def scene() -> None:
        bell = Bell()
        log = FakeLog(fd=end)
        news = News(log, FakeDevices())
        news.watch(bell.ring)
        log.coming = [KernelNews(), KernelNews((a_line(),), 1)]
        os.write(other, b"x")
        await bell.heard()
        assert log.reads == 2
        await asyncio.sleep(0.1)
        assert bell.count == 1
        assert log.reads < 12
        news.close()
        assert log.closed
        reads = log.reads
        await asyncio.sleep(0.05)
        assert log.reads == reads

    try:
        asyncio.run(scene())
    finally:
        os.close(end)
        os.close(other)


def test_a_log_that_was_closed_and_opened_again_is_watched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its old descriptor is let go of in the same look, before anybody else can have its number."""
    monkeypatch.setattr(news_module, "_QUIET_SECONDS", 0.01)
    first, second = os.pipe(), os.pipe()

    async def scene() -> None:
        bell = Bell()
        log = FakeLog(fd=first[0])
        news = News(log, None)
        news.watch(bell.ring)
        loop = asyncio.get_running_loop()
        os.close(first[0])
        log.fd = None
        news.look()
        assert not loop.remove_reader(first[0])
        log.fd = second[0]
        news.look()
        log.coming = [KernelNews((a_line(),), 1)]
        os.write(second[1], b"x")
        await bell.heard()
        news.close()
        assert not loop.remove_reader(second[0])

    try:
        asyncio.run(scene())
    finally:
        os.close(first[1])
        os.close(second[0])
        os.close(second[1])
