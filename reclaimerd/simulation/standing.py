"""What stands in a simulated host's directory while it lives: made by the keeper, and removed by it."""

import json
import os
import pty
import shutil
import socket
import sys
import tty
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.simulation.claims import CLAIMS, read_start_ticks
from reclaimerd.simulation.clients import NVML_CLIENTS
from reclaimerd.simulation.host import HOST_FILE, HOST_LOCK, SimulatedGpu, SimulatedHost, write_simulated_host
from reclaimerd.simulation.keeper_door import DOOR, open_door
from reclaimerd.simulation.kernel_log import KERNEL_LOG
from reclaimerd.simulation.nvml import KEEPER_FILE
from reclaimerd.simulation.smi_reset import RESETS_LOG
from reclaimerd.simulation.sys_tree import SYS, build_sys_tree
from reclaimerd.simulation.units import UNITS_FILE, UNITS_LOCK, UNITS_LOG

TOOLS = {"nvidia-smi": "smi", "systemctl": "systemctl"}
"""Each program in the directory, and the module that it runs."""
TOOL_TEXT = '#!/bin/sh\nexec {python} -m reclaimerd.simulation.{module} {directory} "$@"\n'
FOLDERS = (CLAIMS, NVML_CLIENTS)
FILES = (KEEPER_FILE, DOOR, HOST_FILE, HOST_LOCK, KERNEL_LOG, RESETS_LOG, UNITS_FILE, UNITS_LOCK, UNITS_LOG)


@dataclass(slots=True)
class Keeping:
    """What the keeper holds: its directory, the masters of the terminals, whether it reaps, its door."""

    directory: Path
    masters: list[int] = field(default_factory=list)
    reaps: bool = True
    door: socket.socket | None = None


def build_host(keeping: Keeping, gpus: Sequence[SimulatedGpu]) -> None:
    """Make the directory with its terminals, description, tools, /sys and keeper file."""
    directory = keeping.directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (directory / HOST_FILE).exists():
        raise FileExistsError(f"{directory} already holds a simulated host")
    directory.chmod(0o700)
    for name in FOLDERS:
        (directory / name).mkdir(mode=0o700)
    placed = []
    for index, gpu in enumerate(gpus):
        master, slave = pty.openpty()
        tty.setraw(slave)
        device = os.ttyname(slave)
        os.close(slave)  # whoever has the slave open is a holder: not the keeper
        keeping.masters.append(master)
        placed.append(replace(gpu, device=device, pci=gpu.pci or f"0000:{index + 1:02x}:00.0"))
    build_sys_tree(directory, [gpu.pci for gpu in placed if not gpu.lost])
    write_simulated_host(directory, SimulatedHost(gpus=tuple(placed)))
    for name, module in TOOLS.items():
        tool = directory / name
        words = {"python": _quoted(sys.executable), "directory": _quoted(str(directory)), "module": module}
        tool.write_text(TOOL_TEXT.format(**words), encoding="utf-8")
        tool.chmod(0o755)
    keeping.door = open_door(directory)
    own = {"pid": os.getpid(), "start_ticks": read_start_ticks(os.getpid())}
    (directory / KEEPER_FILE).write_text(json.dumps(own), encoding="utf-8")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def tear_down(keeping: Keeping) -> None:
    """Remove what we made, and the directory if nothing else is in it."""
    for name in (*FOLDERS, SYS):
        shutil.rmtree(keeping.directory / name, ignore_errors=True)
    for name in (*FILES, *TOOLS):
        (keeping.directory / name).unlink(missing_ok=True)
    for master in keeping.masters:
        os.close(master)
    if keeping.door is not None:
        keeping.door.close()
    try:
        keeping.directory.rmdir()
    except OSError:  # somebody else's files are in it: theirs to remove
        return
