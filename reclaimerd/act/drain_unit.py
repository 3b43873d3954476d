"""Ask for a drain by starting a systemd target, on which the site hangs units of its own.

`systemctl` is asked in bounded children, and what it says of a job is read back. A target that runs already
without our note of it is somebody else's: it is neither started nor ever stopped.
"""

import asyncio
import re
import time
from dataclasses import dataclass

from reclaimerd.act.programs import Said, ask, program_fault
from reclaimerd.act.unit_mark import Mark, UnitMark
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import UnitTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

CALL_SECONDS = 10.0
SETTLE_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z:_.@\\-]{0,240}\.target")
_LOADED = "loaded"
_RUNS = frozenset({"active", "activating", "reloading"})
_RESTS = frozenset({"inactive", "failed"})
_SHOWN = "LoadState,ActiveState,Job"
_NO_BLOCK = "--no-block"


@dataclass(frozen=True, slots=True)
class _State:
    """What systemd says of the unit; `job`: one is queued for it."""

    load: str
    active: str
    job: bool

    @property
    def runs(self) -> bool:
        """Tell whether it runs, or is on its way."""
        return self.active in _RUNS or (self.job and self.active in _RESTS)


@dataclass(frozen=True, slots=True)
class DrainUnit:
    """The policy's target; `any_owner`: systemctl is a simulated host's."""

    systemctl: str
    settings: UnitTarget
    mark: UnitMark
    any_owner: bool = False
    name: str = "unit"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Start the target, unless it runs already."""
        unit = self.settings.name
        state = await self._state(unit)
        if isinstance(state, NotAsked):
            return state
        if state.load != _LOADED:
            return _not_loaded(unit, state.load)
        wanted = Mark(unit, request.id)
        try:
            mark = await self.mark.read()
            if state.runs and (mark is None or mark.unit != unit):
                return Foreign(f"{unit} is {state.active} already, and not by us")
            if mark != wanted:
                await self.mark.set(wanted)
        except (OSError, ReclaimerdError) as error:
            return NotAsked(f"{unit} is not started without a note of it: {error}")
        if state.runs:
            return Asked(f"{unit} is {state.active} already")
        return await self._job("start", unit) or await self._started(unit)

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Stop the target that was started for this request, and no other."""
        try:
            mark = await self.mark.read()
        except OSError as error:
            return NotAsked(f"whether {self.settings.name} was started by us can't be read: {error}")
        unit = self.settings.name if mark is None else mark.unit
        state = await self._state(unit)
        if isinstance(state, NotAsked):
            return state
        if mark is None or mark.request != request.id:
            if state.runs:
                return Foreign(f"{unit} is {state.active}, and not by this request: it is left as it is")
            return Asked(f"nothing of ours stands: {unit} is {state.active}")
        return await self._take_back(unit, state)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Return whether the target runs, and by whom."""
        unit = self.settings.name
        state = await self._state(unit)
        if isinstance(state, NotAsked):
            return state
        try:
            ours = await self.mark.read() == Mark(unit, request.id)
        except OSError as error:
            return NotAsked(f"whether {unit} was started by us can't be read: {error}")
        if not state.runs:
            return NotAsked(f"{unit} is {state.active}")
        return Asked(f"{unit} is {state.active}") if ours else Foreign(f"{unit} is {state.active}, not by us")

    def plan(self, request: DrainRequest) -> str:
        """Return what would be run."""
        del request
        return f"{self.systemctl} start {_NO_BLOCK} -- {self.settings.name}"

    async def _take_back(self, unit: str, state: _State) -> TargetAnswer:
        """Stop the target and forget that it was ours; in this order, so that it is stopped for sure."""
        if state.active not in _RESTS or state.job:
            refused = await self._job("stop", unit) or await self._stopped(unit)
            if refused is not None:
                return refused
        try:
            await self.mark.clear()
        except OSError as error:
            return NotAsked(f"{unit} is stopped, but the note of it stays: {error}")
        return Asked(f"{unit} is stopped")

    async def _started(self, unit: str) -> TargetAnswer:
        """Return whether the start took effect; a job that waits for the site's own units has."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            state = await self._state(unit)
            if isinstance(state, NotAsked):
                return state
            if state.active in _RUNS:
                return Asked(f"{unit} is {state.active}")
            if not state.runs:
                return NotAsked(f"{unit} was started and is {state.active}: see journalctl -u {unit}")
            if time.monotonic() >= until:
                return Asked(f"the start of {unit} waits for the units that hang on it")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _stopped(self, unit: str) -> NotAsked | None:
        """Return why it is not stopped yet, None when it is."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            state = await self._state(unit)
            if isinstance(state, NotAsked):
                return state
            if state.active in _RESTS and not state.job:
                return None
            if time.monotonic() >= until:
                return NotAsked(f"{unit} was stopped and is {state.active} still")
            await asyncio.sleep(_LOOK_SECONDS)

    async def _state(self, unit: str) -> _State | NotAsked:
        said = await self._ask("show", "-p", _SHOWN, "--", unit)
        if isinstance(said, NotAsked):
            return said
        told = dict(line.split("=", 1) for line in said.out.splitlines() if "=" in line)
        if said.code != 0 or "LoadState" not in told or "ActiveState" not in told:
            return NotAsked(f"the state of {unit} can't be read: {said.words}")
        return _State(told["LoadState"], told["ActiveState"], told.get("Job", "") not in ("", "0"))

    async def _job(self, verb: str, unit: str) -> NotAsked | None:
        """Queue a job and wait for nothing; return why it was not queued."""
        said = await self._ask(verb, _NO_BLOCK, "--", unit)
        if isinstance(said, NotAsked):
            return said
        if said.code == 0:
            return None
        return NotAsked(f"`systemctl {verb} {unit}` ended with {said.code} and said: {said.words}")

    async def _ask(self, *words: str) -> Said | NotAsked:
        """Run systemctl once within its bound, on a name that can be nothing else."""
        if not _NAME.fullmatch(words[-1]):
            return NotAsked(f"{words[-1]!r} is no name of a target; set [drain.unit] name", lasting=True)
        fault = await asyncio.to_thread(program_fault, self.systemctl, any_owner=self.any_owner)
        if fault:
            return NotAsked(f"{fault}; without systemd take [drain.unit] out", lasting=True)
        said = await ask((self.systemctl, *words), CALL_SECONDS)
        return NotAsked(said) if isinstance(said, str) else said


def _not_loaded(unit: str, load: str) -> NotAsked:
    mend = {
        "not-found": "install it in /etc/systemd/system and run systemctl daemon-reload",
        "masked": f"run systemctl unmask {unit}",
    }
    return NotAsked(f"{unit} is {load}; {mend.get(load, 'see systemctl status ' + unit)}", lasting=True)
