"""Where operators' orders wait for the next pass, and where they are told what came of them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from reclaimerd.daemon.opening import Consent, Order
from reclaimerd.errors import ExitCode
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident, OutcomeKind, Recipient, Stage, Subject
from reclaimerd.model.step import Reason

Event = Mapping[str, object]
MOST_EVENTS = 1024
"""A reader that doesn't keep up loses the oldest lines, never the end."""

GRAVEST_FIRST = (
    ExitCode.INTERNAL,
    ExitCode.NOT_ALLOWED,
    ExitCode.REFUSED,
    ExitCode.TIME_UP,
    ExitCode.UNVERIFIED,
    ExitCode.NO_TARGET,
    ExitCode.OK,
)


@dataclass(slots=True)
class Ticket:
    """One order for one process, its incident once there is one, and how it ended."""

    order: Order
    members: tuple[int, ...] = ()
    consent: Consent | None = None
    """One for all orders of a call: they are counted together."""
    incident: IncidentId | None = None
    until: float | None = None
    """When an order that joined another's incident stops waiting for it (monotonic seconds)."""
    exit_code: ExitCode | None = None
    text: str = ""
    reasons: tuple[Reason, ...] = ()
    events: asyncio.Queue[Event] = field(default_factory=lambda: asyncio.Queue(MOST_EVENTS))
    last_word: str = ""
    told: int = 0
    end: str = ""
    stages: tuple[Event, ...] = ()
    tasks: tuple[Event, ...] = ()
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: Event) -> None:
        """Add a line for the reader; the oldest goes when it doesn't read."""
        if self.events.full():
            self.events.get_nowait()
        self.events.put_nowait(event)

    def finish(self, code: ExitCode, text: str, reasons: tuple[Reason, ...] = ()) -> None:
        """Give the order its end."""
        self.exit_code, self.text, self.reasons = code, text, reasons
        self.done.set()

    def refuse(self, text: str) -> None:
        """End the order as refused."""
        self.finish(ExitCode.REFUSED, text)


@dataclass(slots=True)
class Desk:
    """Orders that wait, and orders that are under way."""

    waiting: list[Ticket] = field(default_factory=list)
    under_way: list[Ticket] = field(default_factory=list)

    def place(self, ticket: Ticket) -> None:
        """Lay an order down for the next pass."""
        self.waiting.append(ticket)

    def take(self, looked: frozenset[int]) -> list[Ticket]:
        """Return the waiting orders whose process this look was asked about, and count them as under way."""
        taken = [ticket for ticket in self.waiting if _was_looked_at(ticket, looked)]
        self.waiting = [ticket for ticket in self.waiting if not _was_looked_at(ticket, looked)]
        self.under_way.extend(taken)
        return taken

    def drop(self, ticket: Ticket) -> None:
        """Forget an order that nobody waits for any more; its incident, once open, goes on."""
        self.waiting = [one for one in self.waiting if one is not ticket]
        self.under_way = [one for one in self.under_way if one is not ticket]

    def pids(self) -> tuple[int, ...]:
        """Return every pid that a waiting order names or takes along."""
        named = (one for one in self.waiting if one.order.names_process)
        return tuple(pid for ticket in named for pid in (ticket.order.pid, *ticket.members))

    def refuse_waiting(self, text: str) -> None:
        """End the orders that no pass will take: there is none to be had now."""
        waiting, self.waiting = self.waiting, []
        for ticket in waiting:
            ticket.refuse(text)
            ticket.tell({"event": "declined", "pid": ticket.order.pid, "text": text})

    def of(self, incident: IncidentId) -> list[Ticket]:
        """Return the orders that follow one incident."""
        return [ticket for ticket in self.under_way if ticket.incident == incident]

    def clear_finished(self) -> None:
        """Forget the orders that have their end."""
        self.under_way = [ticket for ticket in self.under_way if ticket.exit_code is None]


def _was_looked_at(ticket: Ticket, looked: frozenset[int]) -> bool:
    return not ticket.order.names_process or ticket.order.pid in looked


def gravest(codes: list[ExitCode]) -> ExitCode:
    """Return the code that several targets end with together: the gravest in the documented order."""
    return next((code for code in GRAVEST_FIRST if code in codes), ExitCode.OK)


_RESET_IN_DOUBT = frozenset(
    {OutcomeKind.RESET_NOT_VERIFIED, OutcomeKind.RESET_ABANDONED, OutcomeKind.FAILED},
)
"""After these nobody knows how the GPU is."""


def exit_code_of(incident: Incident) -> ExitCode:
    """Return the exit code of an ended incident."""
    if incident.stage is Stage.HANDED_OVER:
        tried = {one.outcome.kind for one in incident.attempts if one.outcome is not None}
        if incident.subject is Subject.GPU and tried & _RESET_IN_DOUBT:
            return ExitCode.UNVERIFIED
        denied = any(
            attempt.outcome is not None and attempt.outcome.kind is OutcomeKind.NOT_PERMITTED
            for attempt in incident.attempts
        )
        if denied:
            return ExitCode.NOT_ALLOWED
        refused = incident.last_refusal and incident.handed_to is not Recipient.SCHEDULER
        as_ordered = incident.subject is Subject.NODE and incident.handed_to is Recipient.SCHEDULER
        otherwise = ExitCode.OK if as_ordered else ExitCode.TIME_UP
        return ExitCode.REFUSED if refused else otherwise
    if incident.stage is Stage.UNVERIFIED:
        return ExitCode.UNVERIFIED
    if incident.stage is Stage.STOOD_DOWN and incident.last_refusal:
        return ExitCode.REFUSED
    return ExitCode.OK
