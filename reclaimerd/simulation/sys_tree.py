"""DIR/sys: as much of /sys as tells whether a simulated GPU is on its bus and who uses the driver's modules.

Real links and files, made by the keeper. A GPU that falls off the bus loses its folder. It may not touch
the machine's own /sys.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path

SYS = "sys"
DEVICES = Path("bus/pci/devices")
DRIVER = Path("bus/pci/drivers/nvidia")
MODULES = {"nvidia": ("nvidia_uvm",), "nvidia_uvm": ()}
"""Each module with those on top of it, which its use count contains."""


def build_sys_tree(directory: Path, addresses: Iterable[str]) -> None:
    """Make DIR/sys with a bound device for each PCI address, and the driver's modules."""
    root = directory / SYS
    (root / DRIVER).mkdir(parents=True)
    for address in addresses:
        device = root / DEVICES / address.lower()
        device.mkdir(parents=True)
        (device / "driver").symlink_to(Path("../../drivers/nvidia"))
        (root / DRIVER / address.lower()).symlink_to(Path("../../devices") / address.lower())
        (device / "vendor").write_text("0x10de\n", encoding="ascii")
    for name, users in MODULES.items():
        folder = root / "module" / name
        (folder / "holders").mkdir(parents=True)
        (folder / "refcnt").write_text(f"{len(users)}\n", encoding="ascii")
        for user in users:
            (folder / "holders" / user).symlink_to(Path("../..") / user)


def remove_device(directory: Path, address: str) -> None:
    """Let a device fall off the bus."""
    root = directory / SYS
    (root / DRIVER / address.lower()).unlink(missing_ok=True)
    shutil.rmtree(root / DEVICES / address.lower(), ignore_errors=True)
