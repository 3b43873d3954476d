"""A stand-in for the daemon inside a booted systemd: start one reset, or find it again; or change clients.

`starter.py reset DIR` as a unit's program; `starter.py clients SECONDS make|undo|ask UNIT...` by hand. What
it learns it appends to a file as JSON lines, or prints.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from reclaimerd.act.clients import Clients, ClientTools
from reclaimerd.act.placement import SystemdPlace, read_own_cgroup
from reclaimerd.act.reset import ResetTool
from reclaimerd.act.reset_runner import read_self
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.identity import AttemptId, GpuUuid
from reclaimerd.model.policy import ResetSettings
from reclaimerd.model.ports import ToolRuns, ToolState, ToolWaits
from reclaimerd.model.reset_run import Change, ChangeKind

RUN = AttemptId("incident.1")
LONG_SECONDS = 600.0
FRESH_SECONDS = 0.2
WORDS = 3


async def _ticks_of(pid: int) -> int | None:
    stat = Path(f"/proc/{pid}/stat")
    return parse_stat(await asyncio.to_thread(stat.read_text)).start_ticks


async def _stack_of(_pid: int) -> str:
    return ""


async def reset(folder: Path) -> None:
    """Start the reset in the first life, find it in each later one, and wait for its end."""
    own = read_own_cgroup()
    boot_id = read_self().boot_id
    smi = str(folder / "nvidia-smi")
    tool = ResetTool(smi, folder / "resets", SystemdPlace(own), boot_id, _ticks_of, _stack_of)
    first = not (folder / "lives").exists()
    state = await (_start(tool) if first else tool.wait(RUN, 0.0))
    _say(folder, type(state).__name__, own=own, pid=os.getpid(), **asdict(state))
    if isinstance(state, ToolRuns):
        state = await tool.wait(RUN, LONG_SECONDS)
        _say(folder, type(state).__name__, own=own, pid=os.getpid(), **asdict(state))
    await asyncio.sleep(LONG_SECONDS)


async def _start(tool: ResetTool) -> ToolState | ToolWaits:
    """Make it ready and give it the word as after a last look; a word that is late is given again."""
    why = await tool.prepare(RUN, (GpuUuid("GPU-aaaa"),))
    if why:
        return ToolWaits(why)
    state: ToolState | ToolWaits = ToolWaits("no word was given")
    for _ in range(WORDS):
        state = await tool.start(RUN, time.monotonic() + FRESH_SECONDS)
        if not isinstance(state, ToolWaits):
            break
    return state


def _say(folder: Path, state: str, **more: object) -> None:
    with (folder / "lives").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"state": state, **more}) + "\n")


async def clients(seconds: float, verb: str, units: list[str]) -> None:
    """Make or undo the changes of these units in turn, or ask for all at once; print what came of each."""
    settings = ResetSettings(unit_seconds=seconds)
    hands = Clients(ClientTools("/usr/bin/systemctl", "/bin/false"), lambda: settings, lambda: "")
    if verb == "ask":
        answer = await hands.ask_starts([Change(ChangeKind.UNIT, unit, "active") for unit in units])
        print(json.dumps({"unit": "", "came": type(answer).__name__, **asdict(answer)}))  # noqa: T201 (its job)
        return
    for unit in units:
        change = Change(ChangeKind.UNIT, unit, "active")
        answer = await (hands.make(change) if verb == "make" else hands.undo(change))
        print(json.dumps({"unit": unit, "came": type(answer).__name__, **asdict(answer)}))  # noqa: T201 (its job)


def main(words: list[str]) -> None:
    """Do as the first word says."""
    match words:
        case ["reset", folder]:
            asyncio.run(reset(Path(folder)))
        case ["clients", seconds, verb, *units]:
            asyncio.run(clients(float(seconds), verb, units))
        case _:
            sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
