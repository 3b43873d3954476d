"""Device nodes of the NVIDIA driver that belong to no GPU alone: whoever has one may hold any GPU.

It reads /proc/devices and /dev, in the NVML worker; it opens no node.
"""

import os
from pathlib import Path

from reclaimerd.model.identity import DeviceNumber

NVIDIA_MAJOR = 195
"""/dev/nvidiaN is 195:N (the driver's nv-chardev-numbers.h)."""
NVIDIACTL = DeviceNumber(NVIDIA_MAJOR, 255)
UVM_MINORS = (0, 1)
"""nvidia-uvm and nvidia-uvm-tools."""


def read_shared_devices(devices_file: Path, caps_directory: Path) -> tuple[DeviceNumber, ...]:
    """Return nvidiactl, and the nodes of nvidia-uvm and nvidia-caps (their majors: /proc/devices).

    nvidia-modeset is left out: it is a display client, which the reset gate judges by itself.
    """
    majors: dict[str, int] = {}
    for line in (
        devices_file.read_text(encoding="ascii", errors="replace").partition("Block devices")[0].splitlines()
    ):
        words = line.split()
        if len(words) == 2 and words[0].isdigit():  # noqa: PLR2004 - "MAJOR NAME"
            majors[words[1]] = int(words[0])
    found = [NVIDIACTL]
    found += [DeviceNumber(majors["nvidia-uvm"], minor) for minor in UVM_MINORS if "nvidia-uvm" in majors]
    if "nvidia-caps" in majors:
        found += _read_nodes(caps_directory, majors["nvidia-caps"])
    return tuple(found)


def _read_nodes(directory: Path, major: int) -> list[DeviceNumber]:
    """Return the device numbers of this major among a directory's nodes."""
    try:
        numbers = [entry.stat(follow_symlinks=False).st_rdev for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []
    return sorted(DeviceNumber(major, os.minor(number)) for number in numbers if os.major(number) == major)
