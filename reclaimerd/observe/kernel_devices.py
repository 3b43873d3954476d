"""What sysfs says of the GPUs, of the modules that can hold them, and of displays: holders without a process.

Plain reads below `sys_root`, in the procfs worker. It writes nothing there and never will: reset,
remove and unbind of sysfs are no doors for a reset.
"""

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from reclaimerd.host.proc_text import printable
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import DisplayClient, ModuleUse
from reclaimerd.observe.proc_files import words_of

DRIVER = "nvidia"
MODULES = (
    "nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "gdrdrv", "nvidia_fs",
)  # fmt: skip
"""Modules that can hold a GPU, or what of it others hold."""
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CONNECTOR = re.compile(r"card\d+-(.+)")
_MOST_DISPLAYS = 64


def read_presence(
    sys_root: Path, addresses: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return which PCI addresses are there with the driver bound, which are no device at all, and why not.

    One that another driver has (vfio-pci, say), or none, is neither: it is not lost, and not ours to judge.
    GPUs that the driver has and nobody named count as present too. Raises OSError when PCI devices
    can't be listed at all: then nothing is known of any.
    """
    devices = sys_root / "bus/pci/devices"
    there = set(os.listdir(devices))  # noqa: PTH208  # names are all that is wanted
    present, missing, why = set(_bound(sys_root)), set(), []
    for address in sorted(set(addresses)):
        if address not in there:
            missing.add(address)
            why.append(f"{address}: the PCI device is gone")
            continue
        driver = _link_name(devices / address / "driver")
        if driver == DRIVER:
            present.add(address)
        else:
            why.append(f"{address}: bound to {driver or 'no driver'}, not to {DRIVER}")
    return tuple(sorted(present)), tuple(sorted(missing)), tuple(why)


def _bound(sys_root: Path) -> Iterator[str]:
    """Yield the PCI addresses that the driver has."""
    try:
        names = os.listdir(sys_root / "bus/pci/drivers" / DRIVER)  # noqa: PTH208  # as above
    except FileNotFoundError:
        return
    yield from (name for name in names if _PCI_ADDRESS.fullmatch(name))


def _link_name(link: Path) -> str:
    """Return the last part of where a link leads, "" where there is no link."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def read_modules(sys_root: Path) -> tuple[ModuleUse, ...]:
    """Return each module's use count and users; Absent for one that is not loaded.

    Absent too where it is built in, or the kernel never unloads modules (CONFIG_MODULE_UNLOAD).
    """
    return tuple(_read_module(sys_root / "module" / name, name) for name in MODULES)


def _read_module(folder: Path, name: str) -> ModuleUse:
    try:
        users = _number_in(folder / "refcnt")
        holders = folder / "holders"
        used_by = sorted(entry.name for entry in holders.iterdir()) if holders.is_dir() else []
    except FileNotFoundError:
        why = "this kernel does not count its users" if folder.is_dir() else "not loaded"
        return ModuleUse(name, Absent(why))
    except OSError as error:
        return ModuleUse(name, Unreadable(words_of(error)))
    return ModuleUse(name, users, tuple(map(printable, used_by)))


def _number_in(path: Path) -> Reading[int]:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    # A module on its way out counts -1 (kernel/module/sysfs.c).
    return Known(int(text)) if text.isascii() and text.isdigit() else Unreadable(f"use count {text[:20]!r}")


def read_displays(sys_root: Path, addresses: Collection[str]) -> tuple[DisplayClient, ...]:
    """Return the consoles and lit connectors of these GPUs; a host without drm has none. Raises OSError."""
    found = [
        *_connectors(sys_root, addresses),
        *_consoles(sys_root, addresses),
        *_mode_setting(sys_root, addresses),
    ]
    return tuple(found[:_MOST_DISPLAYS])


def _connectors(sys_root: Path, addresses: Collection[str]) -> Iterator[DisplayClient]:
    for entry in _entries(sys_root / "class/drm"):
        connector = _CONNECTOR.fullmatch(entry.name)
        if connector is None:
            continue
        # A connector's `device` is its card, and the card's is the PCI device.
        address = _link_name(entry / "device/device") or _link_name(
            sys_root / "class/drm" / entry.name.partition("-")[0] / "device"
        )
        if (
            address in addresses
            and _says(entry / "status", "connected")
            and _says(entry / "enabled", "enabled")
        ):
            yield DisplayClient(address, f"a display is on at connector {printable(connector[1])}")


def _consoles(sys_root: Path, addresses: Collection[str]) -> Iterator[DisplayClient]:
    bound = any(
        "frame buffer" in _text(console / "name") and _says(console / "bind", "1")
        for console in _entries(sys_root / "class/vtconsole")
    )
    for entry in _entries(sys_root / "class/graphics"):
        address = _link_name(entry / "device")
        if entry.name.startswith("fb") and address in addresses:
            name = printable(_text(entry / "name") or "unnamed")
            use = "the console is bound to it" if bound else "a frame buffer of the kernel"
            yield DisplayClient(address, f"{entry.name} ({name}): {use}")


def _mode_setting(sys_root: Path, addresses: Collection[str]) -> Iterator[DisplayClient]:
    """Yield the GPUs that nvidia_drm holds itself, without a process or a display: it has mode setting on.

    With modeset=Y it allocates the device when it is loaded (nvidia-drm-drv.c, nv_drm_load).
    """
    if not _says(sys_root / "module/nvidia_drm/parameters/modeset", "Y"):
        return
    for entry in _entries(sys_root / "class/drm"):
        address = _link_name(entry / "device")
        if re.fullmatch(r"card\d{1,4}", entry.name) and address in addresses:
            yield DisplayClient(address, f"nvidia_drm holds it as {entry.name} (it is loaded with modeset=Y)")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""


def _says(path: Path, word: str) -> bool:
    return _text(path) == word
