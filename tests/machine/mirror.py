"""What is durable by now, kept beside the files: the oracle asks it what was on record at an act's moment."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId, ProcessRef
from reclaimerd.model.incident import Attempt, Incident, Stage
from reclaimerd.model.ledger import Ledger

SIGNALS = (Stage.SIGTERM, Stage.SIGKILL)


@dataclass(slots=True)
class Mirror:
    """The store's newest state, and the audit's intents and outcomes, over all lives."""

    incidents: dict[IncidentId, Incident] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    intents: dict[AttemptId, AuditEntry] = field(default_factory=dict)
    outcomes: set[AttemptId] = field(default_factory=set)
    kinds: dict[RecordKind, int] = field(default_factory=dict)
    before: tuple[dict[IncidentId, Incident], Ledger] | None = None

    def save(self, incidents: Sequence[Incident], ledger: Ledger | None) -> None:
        """Take what the store has now."""
        self.before = dict(self.incidents), self.ledger
        self.incidents |= {one.id: one for one in incidents}
        self.ledger = self.ledger if ledger is None else ledger

    def take_back(self) -> None:
        """Forget the last save, once."""
        if self.before is not None:
            (self.incidents, self.ledger), self.before = self.before, None

    def append(self, entry: AuditEntry) -> None:
        """Take one record that the audit has now."""
        self.kinds[entry.kind] = self.kinds.get(entry.kind, 0) + 1
        if entry.attempt is None:
            return
        if entry.kind is RecordKind.INTENT:
            self.intents[entry.attempt] = entry
        elif entry.kind is RecordKind.OUTCOME:
            self.outcomes.add(entry.attempt)

    def open_intent(self, incident: IncidentId, stage: Stage, ref: ProcessRef) -> Attempt | None:
        """Return the attempt on this process whose intent is durable, in store and audit, and still open."""
        found = self.incidents.get(incident)
        for attempt in () if found is None else found.attempts:
            entry = self.intents.get(attempt.id)
            is_its = attempt.stage is stage and ref in attempt.targets
            if is_its and entry is not None and attempt.outcome is None and str(ref) in entry.evidence:
                return attempt
        return None

    def first_signal_at(self, incident: IncidentId) -> float | None:
        """Return the wall time of an incident's first intent of a signal."""
        found = self.incidents.get(incident)
        times = [one.intent_at for one in found.attempts if one.stage in SIGNALS] if found else []
        return min(times, default=None)
