"""What a drain request joins: whom it asks, who counts the fleet, and where it is on record."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.drain import DrainRequest, NodeDrain
from reclaimerd.model.drain_ports import DrainTargetPort, FleetPort, TargetAnswer
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.ledger import Ledger


@dataclass(frozen=True, slots=True)
class DrainJoints:
    """What a drain request joins.

    `targets` and `fleet` are those of the policy in force; `reports` are the targets that only tell this
    host, and `first` the one by which the arbiter counts this node ("": it has marks of its own). `held`
    says why nothing may be asked, or taken back, now: paused, HOLD, a dry run, no cause seen. `write` is
    the cycle's: durable, or it raises RecordError and nothing changed.
    """

    targets: Callable[[], Mapping[str, DrainTargetPort]]
    reports: Callable[[], frozenset[str]]
    fleet: Callable[[], FleetPort]
    first: Callable[[], str]
    held: Callable[[NodeDrain], str]
    write: Callable[[Callable[[Ledger], Ledger] | None, tuple[AuditEntry, ...]], Awaitable[None]]
    ledger: Callable[[], Ledger]
    wall: Callable[[], float]
    wake: Callable[[], None]
    note_verified: Callable[[DrainRequest], Awaitable[TargetAnswer]]
    """Have it said, where it can be without taking the request back, that a boot mended the GPUs."""
    boot_id: str
    release_fence: Callable[[IncidentId], Awaitable[str]]
    """Let go of what a reset of this incident had the scheduler keep; return why that failed, or ""."""
