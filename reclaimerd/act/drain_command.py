"""Ask for a drain by a program of root's: `PROGRAM request|withdraw|status`, the request as JSON on stdin.

No shell, and a bound on its time. It exits with 0 when it took it, 3 when somebody else's drain stands and
was kept, 75 (EX_TEMPFAIL) when it is to be tried again; any other code is a no that a person must mend. The
same request may come twice, and the program knows it by its id.
"""

import asyncio
import os
from dataclasses import dataclass

from reclaimerd.act.drain_body import MOST_LINE, Action, action_bytes
from reclaimerd.act.programs import Said, ask, program_fault, sentence
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import CommandTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

TAKEN = os.EX_OK
FOREIGN = 3
AGAIN = os.EX_TEMPFAIL


@dataclass(frozen=True, slots=True)
class DrainCommand:
    """The policy's program; `any_owner` is for a simulated host's."""

    settings: CommandTarget
    any_owner: bool = False
    name: str = "command"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Run it with `request`."""
        return await self._run(Action.REQUEST, request)

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Run it with `withdraw`."""
        return await self._run(Action.WITHDRAW, request)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Run it with `status`, which changes nothing."""
        return await self._run(Action.STATUS, request)

    def plan(self, request: DrainRequest) -> str:
        """Return what would be run, and what it would read."""
        text = action_bytes(Action.REQUEST, request).decode()
        return f"{self.settings.program} {Action.REQUEST.value}\n\n{text}"

    async def _run(self, action: Action, request: DrainRequest) -> TargetAnswer:
        program = self.settings.program
        fault = await asyncio.to_thread(program_fault, program, any_owner=self.any_owner)
        if fault:
            mend = "set [drain.command] program to a program that is root's alone"
            return NotAsked(f"{fault}; {mend}", lasting=True)
        text = action_bytes(action, request).decode()
        said = await ask((program, action.value), self.settings.seconds, text)
        match said:
            case Said(code=code) if code == TAKEN:
                return Asked(_words(said, f"{program} {action.value}: took it"))
            case Said(code=code) if code == FOREIGN:
                return Foreign(_words(said, f"{program} {action.value}: another's drain stands"))
            case Said(code=code, words=words):
                passing = code == AGAIN or code < 0
                end = f"signal {-code}" if code < 0 else f"exit code {code}"
                return NotAsked(f"{program} {action.value}: {end}, and it said: {words}", lasting=not passing)
            case why:
                return NotAsked(why)


def _words(said: Said, otherwise: str) -> str:
    """Return the first line that it printed, cut and printable."""
    return sentence(said.out)[:MOST_LINE] if said.out.strip() else otherwise
