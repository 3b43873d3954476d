"""Programs that play the vendor's tool, and a ResetTool that runs them as plain children."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from reclaimerd.act.placement import ChildPlace
from reclaimerd.act.reset import ResetTool
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.identity import AttemptId, GpuUuid
from reclaimerd.model.ports import ToolNeverRan, ToolState, ToolWaits

T = TypeVar("T")
RUN = AttemptId("20260101T000000-abcd.1")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
SUCCESS = "GPU 00000000:1A:00.0 was successfully reset.\nAll done.\n"


def program(path: Path, body: str) -> str:
    """Write a shell program and return its path."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


async def ticks_of(pid: int) -> int | None:
    """Return a pid's start ticks, as the procfs worker would."""
    return _ticks(pid)


def _ticks(pid: int) -> int | None:
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")).start_ticks
    except OSError:
        return None


async def no_stack(pid: int) -> str:
    """Return a stack that names the pid it was asked for."""
    return f"stack of {pid}"


def reset_tool(directory: Path, tool: str, place: ChildPlace | None = None) -> ResetTool:
    """Return the real thing over plain children."""
    return ResetTool(
        tool=tool,
        directory=directory,
        place=place or ChildPlace(),
        boot_id=BOOT_ID,
        start_ticks_of=ticks_of,
        stack_of=no_stack,
        any_owner=os.geteuid() != 0,
    )


async def begin(hands: ResetTool, gpus: tuple[GpuUuid, ...], seconds: float = 10.0) -> ToolState:
    """Make the tool ready and give it a word that is good for so long; every test but those of lateness."""
    why = await hands.prepare(RUN, gpus)
    if why:
        return ToolNeverRan(why)
    state = await hands.start(RUN, time.monotonic() + seconds)
    assert not isinstance(state, ToolWaits), state
    return state


def runs(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run one piece of asynchronous work to its end."""
    return asyncio.run(work())


@dataclass(frozen=True, slots=True)
class Gate:
    """A FIFO that holds a tool until it is opened; closing never blocks."""

    path: Path
    fd: int = field(init=False)

    def __post_init__(self) -> None:
        os.mkfifo(self.path)
        object.__setattr__(self, "fd", os.open(self.path, os.O_RDWR))

    def open(self) -> None:
        """Let one reader go on."""
        os.write(self.fd, b"on\n")

    def close(self) -> None:
        """Let whoever waits go, and take the FIFO away."""
        os.write(self.fd, b"on\n")
        os.close(self.fd)
