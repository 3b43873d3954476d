"""What a reset changes besides the GPU, and puts back: units, persistence mode, settings, the fence.

Each is done once, within a bound, and read back: what a program says of itself is no proof. It may not
decide what is ours to stop, try twice, or start what was not running before.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from reclaimerd.act.fence import Fence
from reclaimerd.act.gpu_settings import COMMANDS, PERSISTENCE, GpuCommand, is_same, spoken
from reclaimerd.act.programs import Said, ask, program_fault
from reclaimerd.model.policy import ResetSettings
from reclaimerd.model.ports import ChangeFailed, ChangeMade
from reclaimerd.model.reset_run import Change, ChangeKind

_UNIT = re.compile(r"[0-9A-Za-z_@][0-9A-Za-z:_.@\\-]{0,250}\.[a-z]+")
_UUID = re.compile(r"GPU-[0-9A-Za-z][0-9A-Za-z-]*")
_VALUE = re.compile(r"[0-9][0-9.,]*")
_STOPPED = frozenset({"inactive", "failed"})
_RUNS = frozenset({"active", "reloading"})

Result = ChangeMade | ChangeFailed


@dataclass(frozen=True, slots=True)
class ClientTools:
    """The programs, by absolute path; `any_owner`: they are the simulation's."""

    systemctl: str
    nvidia_smi: str
    any_owner: bool = False


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes and undoes single changes (`ClientsPort`); `settings` is the policy's, as it stands now.

    `incident_of` returns the incident of the reset under way (there is at most one): the fence is its own.
    """

    tools: ClientTools
    settings: Callable[[], ResetSettings]
    incident_of: Callable[[], str]

    async def make(self, change: Change) -> Result:
        """Make one planned change within its bound, and read it back."""
        match change.kind:
            case ChangeKind.FENCE:
                return await self._fence().ask(change.name, self.incident_of())
            case ChangeKind.UNIT:
                return await self._stop(change.name)
            case ChangeKind.PERSISTENCE:
                return await self._set(change.name, PERSISTENCE, "0")
            case ChangeKind.SETTING:
                return ChangeMade("the reset itself changes it")
            case _:
                assert_never(change.kind)

    async def undo(self, change: Change) -> Result:
        """Put back what was before, and read it back; a second time does no harm."""
        match change.kind:
            case ChangeKind.FENCE:
                return await self._fence().release(change.name, self.incident_of())
            case ChangeKind.UNIT if change.before in _RUNS:
                return await self._start(change.name)
            case ChangeKind.UNIT:
                return ChangeMade(f"{change.name} was {change.before} before: it is not started")
            case ChangeKind.PERSISTENCE:
                return await self._set(change.name, PERSISTENCE, change.before)
            case ChangeKind.SETTING:
                uuid, _, kind = change.name.partition(" ")
                command = COMMANDS.get(kind)
                if command is None:
                    return ChangeFailed(f"{kind!r} is no setting that can be put back")
                return await self._set(uuid, command, change.before)
            case _:
                assert_never(change.kind)

    async def ask_starts(self, changes: Sequence[Change]) -> Result:
        """Ask for the start of every unit among these that ran before, in one call that waits for none.

        It proves nothing: `undo` does, which waits for the very same jobs.
        """
        wanted = [each.name for each in changes if each.kind is ChangeKind.UNIT and each.before in _RUNS]
        units = [name for name in wanted if _UNIT.fullmatch(name)]
        if not units:
            return ChangeMade("no unit is to be started")
        said = await self._ask(self.tools.systemctl, "start", "--no-block", "--", *units)
        if isinstance(said, ChangeFailed):
            return said
        if said.code:
            return ChangeFailed(f"`systemctl start --no-block` ended with {said.code}: {said.words}")
        return ChangeMade(f"asked for: {', '.join(units)}")

    def _fence(self) -> Fence:
        """Return the fence as the policy has it now."""
        return Fence(self.settings().fence_hook, any_owner=self.tools.any_owner)

    async def _stop(self, unit: str) -> Result:
        """Stop a unit, and prove it by its state."""
        said = await self._systemctl("stop", unit)
        if isinstance(said, ChangeFailed):
            return said
        state = await self._state_of(unit)
        if isinstance(state, ChangeFailed):
            return state
        if state in _STOPPED:
            return ChangeMade(f"{unit} is {state}")
        return ChangeFailed(
            f"{unit} is {state} after `systemctl stop`, which ended with {said.code}: {said.words}"
        )

    async def _start(self, unit: str) -> Result:
        """Start a unit unless it runs, and prove it by its state."""
        state = await self._state_of(unit)
        if isinstance(state, ChangeFailed):
            return state
        if state in _RUNS:
            return ChangeMade(f"{unit} is {state} already")
        # One that is still on its way down is started when it is down: systemd orders the two jobs.
        said = await self._systemctl("start", unit)
        if isinstance(said, ChangeFailed):
            return said
        state = await self._state_of(unit)
        if isinstance(state, ChangeFailed):
            return state
        if state in _RUNS:
            return ChangeMade(f"{unit} is {state}")
        return ChangeFailed(
            f"{unit} is {state} after `systemctl start`, which ended with {said.code}: {said.words}"
        )

    async def _state_of(self, unit: str) -> str | ChangeFailed:
        """Return the unit's ActiveState (`systemctl is-active` prints it, whatever its exit code)."""
        said = await self._systemctl("is-active", unit)
        if isinstance(said, ChangeFailed):
            return said
        state = said.out.strip()
        return state if state.isalpha() else ChangeFailed(f"the state of {unit} can't be read: {said.words}")

    async def _systemctl(self, verb: str, unit: str) -> Said | ChangeFailed:
        """Call systemctl once for one unit."""
        if not _UNIT.fullmatch(unit):
            return ChangeFailed(f"{unit!r} is no unit's name")
        return await self._ask(self.tools.systemctl, verb, unit)

    async def _set(self, uuid: str, command: GpuCommand, value: str) -> Result:
        """Set one value of one GPU by the vendor's tool, and read it back."""
        if not _UUID.fullmatch(uuid):
            return ChangeFailed(f"{uuid!r} is no UUID of a whole GPU")
        if not _VALUE.fullmatch(value):
            return ChangeFailed(f"{value!r} is no value of {command.title}")
        said = await self._ask(self.tools.nvidia_smi, "-i", uuid, command.option, value)
        if isinstance(said, ChangeFailed):
            return said
        query = (f"--query-gpu={command.query}", "--format=csv,noheader", "-i", uuid)
        now = await self._ask(self.tools.nvidia_smi, *query)
        if isinstance(now, ChangeFailed):
            return now
        if now.code == 0 and is_same(command, now.out, value):
            return ChangeMade(f"{command.title} of {uuid} is {spoken(command, value)}")
        return ChangeFailed(
            f"{command.title} of {uuid} should be {spoken(command, value)} and reads {now.words} "
            f"(`{command.option}` ended with {said.code}: {said.words})"
        )

    async def _ask(self, program: str, *words: str) -> Said | ChangeFailed:
        """Run one of the programs within the policy's bound."""
        fault = program_fault(program, any_owner=self.tools.any_owner)
        if fault:
            return ChangeFailed(fault)
        said = await ask((program, *words), self.settings().unit_seconds)
        return ChangeFailed(said) if isinstance(said, str) else said
