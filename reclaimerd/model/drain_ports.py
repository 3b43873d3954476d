"""The protocols of a drain request: who is asked, who counts the fleet, and what they answer."""

from dataclasses import dataclass
from typing import Protocol

from reclaimerd.model.drain import DrainRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """Our request stands at the target (asking again changes nothing), or was withdrawn as asked.

    `place`: where it stands, for a target that the policy could send elsewhere before it is taken back.
    """

    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody else's drain stands at the target: theirs was kept, and nothing of it is ours."""

    text: str


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The target did not take it. `lasting`: asking again changes nothing until a person mends it."""

    text: str
    lasting: bool = False


TargetAnswer = Asked | Foreign | NotAsked


class DrainTargetPort(Protocol):
    """One way to ask that this node be drained; idempotent by the request's id.

    No call raises; each is bounded in time and waits for nothing in the loop. After a death of ours the
    same request comes again: what stands already is answered with Asked.
    """

    @property
    def name(self) -> str:
        """Return what the target is called in the policy and on record."""
        ...

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Ask once."""
        ...

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Take back what is ours, and only that; nothing of ours there is Asked too, and says so."""
        ...

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Return whether our request still stands there; changes nothing."""
        ...

    def plan(self, request: DrainRequest) -> str:
        """Return what would be sent, byte for byte; sends nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SlotTaken:
    """The fleet's limit has room, and this node's mark holds the place until it is released."""

    text: str


@dataclass(frozen=True, slots=True)
class SlotWaits:
    """There is no room now, or nobody who can say: no target is asked. `report_only`: nobody ever can."""

    text: str
    report_only: bool = False


class FleetPort(Protocol):
    """Counts the nodes that we have drained at once, over the whole fleet. No call raises."""

    async def take(self, request: DrainRequest) -> SlotTaken | SlotWaits:
        """Take this node's place, or keep the one that it has."""
        ...

    async def release(self, request: DrainRequest) -> TargetAnswer:
        """Give the place back, when every target was withdrawn."""
        ...
