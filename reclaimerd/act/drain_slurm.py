"""Ask Slurm to drain this node, in Slurm's own words, and take back what is ours by its id.

It may not touch another's drain, reason, or a node that is down or in maintenance: it reads before it
asks, and after. Slurm has no compare-and-set: who drains the node within the some 20 ms between our look
and our order loses their reason to ours.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from reclaimerd.act.drain_body import request_line
from reclaimerd.act.fleet_limit import Fleet
from reclaimerd.act.programs import sentence
from reclaimerd.act.slurm_calls import ENV, SlurmCalls, drain_words
from reclaimerd.host.slurm_drain_text import NodeStands, SlurmPlace
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, SlurmTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer

FindPlace = Callable[[], Awaitable[SlurmPlace | NotAsked]]
PAUSES_SECONDS = (0.5, 1.0, 2.0)
"""How long the first of too many wait for the others to go, before they go too."""
_PASSING = frozenset(
    {
        "MAINT", "MAINTENANCE", "UNKNOWN", "FUTURE", "ERROR", "INVAL", "POWERED_DOWN", "POWERING_DOWN",
        "POWER_DOWN", "POWERING_UP",
    }
)  # fmt: skip
"""Words of a state that is over by itself (scontrol(1)): then the node would take jobs again."""
_TAKEN_AWAY = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
"""Words of a state that lasts until somebody ends it."""


@dataclass(frozen=True, slots=True)
class DrainSlurm:
    """The node's drain in Slurm. `fleet`: Slurm is the arbiter, and its limit is looked at after asking."""

    find: FindPlace
    settings: SlurmTarget
    fleet: FleetSettings | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    name: str = "slurm"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Drain the node once; another's drain is kept, and a drain over the fleet's limit is taken back."""
        found = await self._look()
        if isinstance(found, NotAsked):
            return found
        calls, stands = found
        answer = standing(stands, request)
        if answer is None:
            answer = await self._drain(calls, request)
        if isinstance(answer, Asked) and self.fleet is not None:
            return await self._within_limit(calls, self.fleet, request) or answer
        return answer

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Undrain the node if its reason is still this request's, and touch nothing else."""
        found = await self._look()
        if isinstance(found, NotAsked):
            return found
        calls, stands = found
        if not _is_ours(stands, request):
            return Asked(f"nothing of ours stands: {_told(stands)}")
        return await self._undrain(calls, request)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Return whether the node is drained by this request; changes nothing."""
        found = await self._look()
        if isinstance(found, NotAsked):
            return found
        _, stands = found
        return standing(stands, request) or NotAsked(f"nothing of ours stands: {_told(stands)}")

    def plan(self, request: DrainRequest) -> str:
        """Return the command; without `[drain.slurm] node` the name is found when Slurm is asked."""
        node = self.settings.node or "<this host's node>"
        return shlex.join((*ENV, *drain_words("scontrol", node, request_line(request))))

    async def _look(self) -> tuple[SlurmCalls, NodeStands] | NotAsked:
        place = await self.find()
        if isinstance(place, NotAsked):
            return place
        calls = SlurmCalls(place, self.settings.seconds)
        stands = await calls.stands()
        return stands if isinstance(stands, NotAsked) else (calls, stands)

    async def _drain(self, calls: SlurmCalls, request: DrainRequest) -> TargetAnswer:
        """Drain a node that nobody has drained, where the fleet has room, and read it back."""
        if self.fleet is not None and (why := await _why_full(calls, self.fleet, request)):
            return NotAsked(f"not asked: {why}")
        failed = await calls.drain(request_line(request))
        if failed is not None:
            return failed
        stands = await calls.stands()
        if isinstance(stands, NotAsked):
            return NotAsked(f"asked, and not read back: {stands.text}")
        if not _is_ours(stands, request):
            return NotAsked(f"asked, and our drain does not stand: {_told(stands)}")
        return Asked(_told(stands))

    async def _within_limit(
        self, calls: SlurmCalls, settings: FleetSettings, request: DrainRequest
    ) -> NotAsked | None:
        """Count again with our own mark set, and stay only on a count that has room for it (None).

        Of many that asked at once the last one to ask sees all the others, so those that stay are never
        more than the limit. The first ones look again a few times, so that not all of them go.
        """
        why = ""
        for pause in (*PAUSES_SECONDS, None):
            fleet = await calls.fleet(settings)
            if isinstance(fleet, NotAsked):
                return NotAsked(f"the node is drained, and not counted: {fleet.text}")
            why = fleet.why_full(calls.place.node, request.code)
            if not why:
                return None
            if pause is None or not fleet.comes_first(calls.place.node, request.code):
                break
            await self.sleep(pause)
        undone = await self._undrain(calls, request)
        word = "taken back" if isinstance(undone, Asked) else f"and not taken back ({undone.text})"
        return NotAsked(f"over the fleet's limit after all, {word}: {why}")

    async def _undrain(self, calls: SlurmCalls, request: DrainRequest) -> TargetAnswer:
        """Undrain the node, with one more look just before: a reason of somebody else's stays."""
        stands = await calls.stands()
        if isinstance(stands, NotAsked):
            return stands
        if not _is_ours(stands, request):
            return Asked(f"nothing of ours stands: {_told(stands)}")
        failed = await calls.undrain()
        if failed is not None:
            return failed
        stands = await calls.stands()
        if isinstance(stands, NotAsked):
            return NotAsked(f"undrained, and not read back: {stands.text}")
        if _is_ours(stands, request):
            return NotAsked(f"our drain stands still: {_told(stands)}")
        return Asked(f"undrained: {_told(stands)}")


async def _why_full(calls: SlurmCalls, settings: FleetSettings, request: DrainRequest) -> str:
    """Return why there is no room for one more drained node; no count is no room."""
    fleet = await calls.fleet(settings)
    if isinstance(fleet, Fleet):
        return fleet.why_full(calls.place.node, request.code)
    return f"the drained nodes can't be counted: {fleet.text}"


def standing(stands: NodeStands, request: DrainRequest) -> TargetAnswer | None:
    """Return what stands at the node already, None when it may be drained; pure.

    What lasts until somebody ends it is theirs. What is over by itself is no drain: it is asked again.
    """
    told = _told(stands)
    ours = stands.ours
    if _is_ours(stands, request):
        return Asked(f"it stands already: {told}")
    if stands.words & _TAKEN_AWAY:
        return Foreign(f"kept as it is: {told}" + (", an earlier request of ours" if ours else ""))
    if "DOWN" in stands.words:
        passing = "NOT_RESPONDING" in stands.words or ours is not None
        return (
            NotAsked(f"asked when it is up again: {told}") if passing else Foreign(f"kept as it is: {told}")
        )
    if stands.words & _PASSING:
        return NotAsked(f"asked when that is over: {told}")
    if stands.reason and ours is None:
        mend = "a person clears that reason, or drains the node"
        return NotAsked(f"somebody's reason stands, and it is not drained: {told}: {mend}", lasting=True)
    return None


def _is_ours(stands: NodeStands, request: DrainRequest) -> bool:
    return stands.drained and stands.ours is not None and stands.ours.id == request.id


def _told(stands: NodeStands) -> str:
    by = f" by {sentence(stands.by)}" if stands.by else ""
    reason = f"{by}: {sentence(stands.reason)}" if stands.reason else ""
    return f"node {stands.node} is {stands.state}{reason}"
