"""What one pass would change: kept apart until it is durable, dropped when it can't be made so."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.ports import Batch


@dataclass(slots=True)
class Draft:
    """Incidents and ledger as they will be, and the records that say so."""

    incidents: dict[IncidentId, Incident]
    ledger: Ledger
    entries: list[AuditEntry] = field(default_factory=list)
    changed: set[IncidentId] = field(default_factory=set)
    ledger_changed: bool = False

    def put(self, incident: Incident, entries: Iterable[AuditEntry] = ()) -> None:
        """Take an incident's new state and the records of it."""
        before = self.incidents.get(incident.id)
        self.incidents[incident.id] = incident
        if before is None or not _same_but_progress(before, incident):
            self.changed.add(incident.id)
        self.entries.extend(entries)

    def put_ledger(self, ledger: Ledger) -> None:
        """Take a new ledger."""
        self.ledger_changed = self.ledger_changed or ledger != self.ledger
        self.ledger = ledger

    def note(self, entry: AuditEntry) -> None:
        """Take a record that changes no incident."""
        self.entries.append(entry)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing that people must be able to read later."""
        return not (self.entries or self.ledger_changed or self.changed)

    def batch(self) -> Batch:
        """Return what must become durable together."""
        return Batch(
            incidents=tuple(self.incidents[one] for one in sorted(self.changed)),
            ledger=self.ledger if self.ledger_changed else None,
            entries=tuple(self.entries),
        )

    def written(self) -> "Draft":
        """Return the draft after its batch became durable: the same state, nothing left to write."""
        return Draft(dict(self.incidents), self.ledger)


def _same_but_progress(before: Incident, after: Incident) -> bool:
    """Tell whether two states differ by progress marks alone: those are not worth a write each pass."""
    marks = {
        "release": after.release,
        "gone_mono": after.gone_mono,
        "residual_ok_mono": after.residual_ok_mono,
    }
    return replace(before, **marks) == after  # type: ignore[arg-type]  # three fields of their own types
