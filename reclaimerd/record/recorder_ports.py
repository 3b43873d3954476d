"""What the recorder writes to: store and audit log, as far as it needs them. Nothing is done here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.record.chain import Head
from reclaimerd.record.store import Remembered, Stored


class StorePort(Protocol):
    """The store, as far as the recorder needs it."""

    def load(self) -> Stored:
        """Return all that a start needs."""
        ...

    def save(
        self,
        incidents: Sequence[Incident],
        ledger: Ledger | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """Make incidents and ledger durable, and their records until the log has them: a batch's number."""
        ...

    def take_back(self) -> None:
        """Undo the last save, once; nothing where there was none."""
        ...

    def anchor(self, head: Head, batches: Sequence[int] = ()) -> None:
        """Make the audit's head durable; it has the records of these batches."""
        ...

    def remember(self, remembered: Remembered) -> None:
        """Make what was seen while healthy durable."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class AuditPort(Protocol):
    """The audit log, as far as the recorder needs it."""

    def append(
        self, entries: Sequence[AuditEntry], *, wall: float, mono: float, use_reserve: bool = False
    ) -> Head:
        """Make all entries durable, or none."""
        ...

    def spend_reserve(self) -> bool:
        """Free the reserved room; tell whether there was any."""
        ...

    def reserve_is_spent(self, mono: float) -> bool:
        """Tell whether the reserved room was freed and is not there again."""
        ...

    def anchor_fault(self) -> str:
        """Return why its head could not be written down a second time, or ""; any thread may ask."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """What the thread opened, and what the store held then."""

    store: StorePort
    audit: AuditPort
    stored: Stored
    newer: tuple[dict[str, object], ...] = ()
    """The log's records beyond the store's anchor, where the store holds some that the log may lack."""
