"""Device events: ours alone, by what the event itself says, and never a wait."""

import errno
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.model.fault import DeviceAction, DeviceEvent
from reclaimerd.observe import udev
from reclaimerd.observe.udev import DeviceWatch, device_event

GPU = "0000:3b:00.0"
PCI = {
    "ACTION": "remove",
    "DEVPATH": f"/devices/pci0000:3a/0000:3a:00.0/{GPU}",
    "SUBSYSTEM": "pci",
    "PCI_CLASS": "30200",
    "PCI_ID": "10DE:2335",
    "PCI_SLOT_NAME": GPU,
    "DRIVER": "nvidia",
}
DRM = {
    "ACTION": "change",
    "DEVPATH": f"/devices/pci0000:3a/0000:3a:00.0/{GPU}/drm/card1",
    "SUBSYSTEM": "drm",
    "XID": "79",
}
QUIET = Path("/sys/class/mem/null/uevent")
"""A device on which a change by hand means nothing to anybody."""


@pytest.mark.parametrize("action", list(DeviceAction))
def test_each_action_on_our_gpu_is_an_event(action: DeviceAction) -> None:
    """Added, removed, bound, unbound, changed: with the driver that the event names."""
    found = device_event({**PCI, "ACTION": str(action)}, {GPU})
    assert found == DeviceEvent(action, "pci", GPU, "nvidia")


def test_nvidias_gpus_count_before_anybody_named_them() -> None:
    """By vendor and class: a GPU that comes after our start is none that we know."""
    assert device_event(PCI, ()) == DeviceEvent(DeviceAction.REMOVED, "pci", GPU, "nvidia")
    assert device_event({**PCI, "PCI_CLASS": "30000"}, ()) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"PCI_ID": "8086:2335"},
        {"PCI_ID": ""},
        {"PCI_CLASS": "40300"},
        {"PCI_CLASS": "68000"},
        {"PCI_CLASS": "x"},
        {"PCI_CLASS": ""},
        {"SUBSYSTEM": "net"},
        {"SUBSYSTEM": ""},
        {"ACTION": "move"},
        {"ACTION": ""},
        {"PCI_SLOT_NAME": "somewhere"},
        {"PCI_SLOT_NAME": "", "DEVPATH": "/devices/virtual/mem/null"},
    ],
)
def test_everything_else_is_none(change: Mapping[str, str]) -> None:
    """Other vendors, a GPU's audio function, a switch, other subsystems and actions, no address."""
    assert device_event({**PCI, **change}, ()) is None


def test_a_drm_event_is_that_of_the_gpu_above_it() -> None:
    """It says no vendor: only a known address counts. Its Xid is read, and nothing that is none."""
    assert device_event(DRM, ()) is None
    assert device_event(DRM, {GPU}) == DeviceEvent(DeviceAction.CHANGED, "drm", GPU, xid=79)
    by_hand = {key: value for key, value in DRM.items() if key != "XID"} | {"SYNTH_ARG_XID": "48"}
    found = device_event(by_hand, {GPU})
    assert found is not None
    assert found.xid == 48
    for bad in ("", "-1", "x", "9" * 30, "\u0664"):
        event = device_event({**DRM, "XID": bad}, {GPU})
        assert event is not None
        assert event.xid is None
    assert device_event({**DRM, "DEVPATH": "/devices/virtual/drm/card1"}, {GPU}) is None


def test_the_address_is_the_paths_where_the_event_has_none() -> None:
    """In the kernel's form, small letters."""
    without = {key: value for key, value in PCI.items() if key != "PCI_SLOT_NAME"}
    found = device_event({**without, "DEVPATH": "/devices/pci0000:3a/0000:3B:00.0"}, ())
    assert found is not None
    assert found.pci == GPU


class FakeDevice:
    """One event of a fake subscription."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties


class FakeMonitor:
    """A subscription with these events in it; an error among them is raised."""

    def __init__(self, *news: Mapping[str, str] | OSError | ValueError) -> None:
        self.news = list(news)

    def poll(self, timeout: int) -> FakeDevice | None:
        """Return the next event, and refuse to wait."""
        assert timeout == 0
        if not self.news:
            return None
        one = self.news.pop(0)
        if isinstance(one, OSError | ValueError):
            raise one
        return FakeDevice(one)


def watching(monkeypatch: pytest.MonkeyPatch, monitor: Any) -> DeviceWatch:
    """Return a watch over a fake subscription."""
    monkeypatch.setattr(udev, "_monitor", lambda _subsystems: monitor)
    return DeviceWatch()


def test_an_address_that_was_seen_once_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drm event of a GPU that a PCI event made known, or that the caller named before."""
    watch = watching(monkeypatch, FakeMonitor(DRM, PCI, DRM))
    assert [event.subsystem for event in watch.read()] == ["pci", "drm"]
    named = watching(monkeypatch, FakeMonitor())
    assert named.read([GPU.upper()]) == ()
    named._monitor = FakeMonitor(DRM)
    assert len(named.read()) == 1


def test_one_look_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is more waits for the next look."""
    watch = watching(monkeypatch, FakeMonitor(*[PCI] * (udev.MOST_EVENTS + 1)))
    assert (len(watch.read()), len(watch.read()), len(watch.read())) == (udev.MOST_EVENTS, 1, 0)


def test_lost_events_are_said_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue is a gap of this look; another error ends it."""
    watch = watching(monkeypatch, FakeMonitor(OSError(errno.ENOBUFS, "full"), PCI))
    assert len(watch.read()) == 1
    assert watch.gap == "device events were lost: too many came at once"
    assert watch.read() == ()
    assert watch.gap == ""
    broken = watching(monkeypatch, FakeMonitor(ValueError("not text"), PCI))
    assert broken.read() == ()
    assert "not text" in broken.gap


@pytest.mark.parametrize(
    ("error", "words"),
    [(OSError(errno.EPERM, "no"), "operation not permitted"), (ImportError("No library named udev"), "udev")],
)
def test_a_machine_without_it_says_so(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """No netlink or no libudev: the fault in words, and looks that are empty."""

    def none(_subsystems: object) -> None:
        raise error

    monkeypatch.setattr(udev, "_monitor", none)
    watch = DeviceWatch()
    assert words in watch.fault
    assert watch.fileno() is None
    assert watch.read([GPU]) == ()


def poke(text: str) -> None:
    """Have the kernel send an event of the quiet device."""
    try:
        QUIET.write_text(text, encoding="ascii")
    except OSError as error:
        pytest.skip(f"no event can be sent here: {error.strerror}")


def a_subscription(*subsystems: str) -> DeviceWatch:
    """Return a real subscription, or skip where there is none."""
    watch = DeviceWatch(subsystems)
    if watch.fault:
        pytest.skip(watch.fault)
    return watch


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have the kernel send an event")
def test_the_kernels_own_event_arrives_with_its_arguments() -> None:
    """A real event wakes the descriptor and carries its Xid; nothing but the event is looked at."""
    watch = a_subscription("mem")
    descriptor = watch.fileno()
    assert descriptor is not None
    assert not os.get_blocking(descriptor)
    poke("change 11111111-2222-3333-4444-555555555555 XID=79")
    assert select.select([descriptor], [], [], 5.0)[0]
    (properties,) = [one for one in watch._news() if one.get("SYNTH_ARG_XID")]
    assert (properties["ACTION"], properties["SYNTH_ARG_XID"]) == ("change", "79")
    assert properties["DEVPATH"] == "/devices/virtual/mem/null"
    poke("change")
    assert select.select([descriptor], [], [], 5.0)[0]
    assert watch.read() == ()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have the kernel send an event")
def test_events_of_other_subsystems_never_come_up() -> None:
    """The subscription is for pci and drm: an event of another subsystem is not even handed over."""
    watch, other = a_subscription(*udev.SUBSYSTEMS), a_subscription("mem")
    mark = "22222222-2222-3333-4444-555555555555"
    poke(f"change {mark} XID=79")
    descriptor = other.fileno()
    assert descriptor is not None
    assert select.select([descriptor], [], [], 5.0)[0]
    began = time.monotonic()
    assert [one for one in watch._news() if one.get("SYNTH_UUID") == mark] == []
    assert time.monotonic() - began < 1
