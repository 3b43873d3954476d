"""The scheduler's fence: a program of root's asks the scheduler to keep this host free, and reads it back.

`HOOK ask|read|release NODE INCIDENT`, run as root within a bound. It exits with 0 when the scheduler gives
this host no new work (`ask`, `read`) or when what was asked FOR THIS INCIDENT is taken back (`release`); its
first line of output is recorded. A fence that somebody else asked for is not the hook's to release.
Never NVML's drain state: it would lock out the vendor's reset tool too.
"""

import asyncio
import re
from dataclasses import dataclass

from reclaimerd.act.programs import Said, ask, program_fault, sentence
from reclaimerd.model.ports import ChangeFailed, ChangeMade

FENCE_SECONDS = 60.0
_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,252}")
"""A host's or an incident's name: never an option, never empty."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The hook; `any_owner` is for the simulation's."""

    hook: str
    any_owner: bool = False
    seconds: float = FENCE_SECONDS

    async def ask(self, node: str, incident: str) -> ChangeMade | ChangeFailed:
        """Ask, then read back: both must say that the host is kept free."""
        asked = await self._call("ask", node, incident)
        if isinstance(asked, ChangeFailed):
            return asked
        return await self._call("read", node, incident)

    async def release(self, node: str, incident: str) -> ChangeMade | ChangeFailed:
        """Take back what was asked for this incident; the hook takes a second time as well."""
        return await self._call("release", node, incident)

    async def _call(self, verb: str, node: str, incident: str) -> ChangeMade | ChangeFailed:
        """Run the hook once, and return its first line."""
        if not self.hook:
            return ChangeFailed(
                "no fence_hook is set, so nothing can ask the scheduler to keep this host free"
            )
        fault = await asyncio.to_thread(program_fault, self.hook, any_owner=self.any_owner)
        if fault:
            return ChangeFailed(f"{fault}; set fence_hook to a program that is root's alone")
        if not _WORD.fullmatch(node) or not _WORD.fullmatch(incident):
            return ChangeFailed(f"{node!r} and {incident!r} are no names that the fence hook is given")
        said = await ask((self.hook, verb, node, incident), self.seconds)
        match said:
            case Said(code=0, out=out):
                return ChangeMade(sentence(out))
            case Said(code=code, words=words):
                return ChangeFailed(f"the fence hook's `{verb}` ended with {code} and said: {words}")
            case why:
                return ChangeFailed(f"the fence hook: {why}")
