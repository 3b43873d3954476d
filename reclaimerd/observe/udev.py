"""Watches for GPUs that come, go, or change hands: the kernel's own device events, through pyudev.

The kernel's source and not udevd's: it needs no daemon, and only the kernel can send there. Only what
the event itself says is used; no file of the device is read. It judges nothing.
"""

import errno
import re
from collections.abc import Collection, Mapping
from itertools import pairwise

import pyudev

from reclaimerd.model.fault import DeviceAction, DeviceEvent
from reclaimerd.observe.proc_files import words_of

SUBSYSTEMS = ("pci", "drm")
MOST_EVENTS = 256
"""One look's share; the rest waits in the socket."""
_QUEUE_BYTES = 1024 * 1024
_NVIDIA = "10de"
_DISPLAY_CLASS = 0x03
"""PCI base class of display controllers, 3D controllers among them (a GPU's audio function is 0x04)."""
_ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_WORDS = frozenset(str(action) for action in DeviceAction)


class DeviceWatch:
    """A standing subscription to the kernel's device events.

    Where it can't be had (no libudev, no netlink), `fault` says so and every look is empty. `gap` says
    what the last look may have missed.
    """

    def __init__(self, subsystems: Collection[str] = SUBSYSTEMS) -> None:
        self.fault = ""
        self.gap = ""
        self._ours: set[str] = set()
        self._monitor: pyudev.Monitor | None = None
        try:
            self._monitor = _monitor(subsystems)
        except ImportError as error:
            self.fault = f"device events can't be watched: {error}"
        except OSError as error:
            self.fault = f"device events can't be watched: {words_of(error)}"

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when there is news, or None without a subscription."""
        return None if self._monitor is None else int(self._monitor.fileno())

    def read(self, ours: Collection[str] = ()) -> tuple[DeviceEvent, ...]:
        """Return the events of our GPUs since the last look; never waits and never raises.

        `ours` are PCI addresses (`0000:3b:00.0`) of GPUs, remembered from look to look; NVIDIA's display
        controllers count without.
        """
        self.gap = ""
        self._ours.update(address.lower() for address in ours)
        events: list[DeviceEvent] = []
        for properties in self._news():
            event = device_event(properties, self._ours)
            if event is not None:
                self._ours.add(event.pci)
                events.append(event)
        return tuple(events)

    def _news(self) -> list[Mapping[str, str]]:
        """Return the properties of what came, at most one look's share."""
        found: list[Mapping[str, str]] = []
        if self._monitor is None:
            return found
        for _ in range(MOST_EVENTS):
            try:
                device = self._monitor.poll(timeout=0)
                if device is None:
                    break
                found.append(dict(device.properties))
            except (OSError, ValueError) as error:
                full = isinstance(error, OSError) and error.errno == errno.ENOBUFS
                self.gap = "device events were lost: " + ("too many came at once" if full else str(error))
                if not full:
                    break
        return found


def _monitor(subsystems: Collection[str]) -> pyudev.Monitor:
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    for subsystem in subsystems:
        monitor.filter_by(subsystem)
    monitor.start()
    try:
        monitor.set_receive_buffer_size(_QUEUE_BYTES)
    except OSError:
        return monitor  # without CAP_NET_ADMIN the kernel's default size holds
    return monitor


def device_event(properties: Mapping[str, str], ours: Collection[str]) -> DeviceEvent | None:
    """Return the event of a GPU of ours, or None for any other; pure.

    The address is the event's own, or that of the nearest PCI device above a drm device in its path.
    An Xid in it (the driver's `XID`, or what root gave with a change by hand) is a hint.
    """
    subsystem, action = properties.get("SUBSYSTEM", ""), properties.get("ACTION", "")
    pci = _address(properties, subsystem)
    if subsystem not in SUBSYSTEMS or action not in _WORDS or pci is None:
        return None
    if pci not in ours and not _is_nvidia_gpu(properties):
        return None
    xid = properties.get("XID") or properties.get("SYNTH_ARG_XID") or ""
    return DeviceEvent(
        action=DeviceAction(action),
        subsystem=subsystem,
        pci=pci,
        driver=properties.get("DRIVER", ""),
        xid=int(xid) if xid.isascii() and xid.isdigit() and len(xid) <= 5 else None,  # noqa: PLR2004  # digits
    )


def _address(properties: Mapping[str, str], subsystem: str) -> str | None:
    parts = properties.get("DEVPATH", "").split("/")
    if subsystem == "pci":
        own = properties.get("PCI_SLOT_NAME") or parts[-1]
        return own.lower() if _ADDRESS.fullmatch(own) else None
    above = [part for part, below in pairwise(parts) if below == "drm" and _ADDRESS.fullmatch(part)]
    return above[-1].lower() if above else None


def _is_nvidia_gpu(properties: Mapping[str, str]) -> bool:
    kind = properties.get("PCI_CLASS", "")
    is_display = bool(re.fullmatch(r"[0-9a-fA-F]{5,6}", kind)) and int(kind, 16) >> 16 == _DISPLAY_CLASS
    return is_display and properties.get("PCI_ID", "").lower().startswith(f"{_NVIDIA}:")
