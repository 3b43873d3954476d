"""What one pass would change: kept apart until it is durable, dropped when it can't be made so."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Actor, ActorKind, Incident
from reclaimerd.model.ledger import Ledger, SpendKind
from reclaimerd.model.ports import Batch


@dataclass(frozen=True, slots=True)
class Owed:
    """What happened and could not be written: it goes into the next batch that becomes durable."""

    entries: tuple[AuditEntry, ...] = ()
    incidents: frozenset[IncidentId] = frozenset()
    ledger: bool = False

    def less(self, draft: "Draft") -> "Owed":
        """Return what is still owed after this draft became durable."""
        return Owed(
            tuple(entry for entry in self.entries if entry not in draft.entries),
            self.incidents - draft.changed,
            self.ledger and not draft.ledger_changed,
        )


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

    def owe(self, owed: Owed) -> None:
        """Take along what earlier passes could not write, before anything new."""
        self.entries[:0] = owed.entries
        self.changed |= owed.incidents & self.incidents.keys()
        self.ledger_changed = self.ledger_changed or owed.ledger

    def unwritten(self) -> Owed:
        """Return all of this draft as owed."""
        return Owed(tuple(self.entries), frozenset(self.changed), self.ledger_changed)

    def operators_alone(self, before: Mapping[IncidentId, Incident], ledger: Ledger) -> "Draft":
        """Return what operators alone asked for of this draft, over the state as it was before it.

        On a full disk only such a batch may use the room that is kept for it.
        """
        alone = Draft(dict(before), ledger)
        for name in self.changed:
            incident = self.incidents[name]
            if _is_operators(incident.actor) and incident.released_at is None:
                alone.incidents[name] = incident
                alone.changed.add(name)
        alone.put_ledger(_with_resets_of(self, alone.changed, ledger))
        alone.entries = [
            entry
            for entry in self.entries
            if _is_operators(entry.actor) and entry.kind is not RecordKind.LATE_RELEASE
        ]
        return alone


def _with_resets_of(draft: Draft, incidents: set[IncidentId], ledger: Ledger) -> Ledger:
    """Return the ledger with the resets of these incidents that the draft adds, and what they cost."""
    runs = tuple(run for run in draft.ledger.resets if run.incident in incidents)
    fresh = tuple(run for run in runs if all(run.id != kept.id for kept in ledger.resets))
    if not fresh:
        return ledger
    costs = {(uuid, run.began_at) for run in fresh for uuid in run.gpus}
    spends = tuple(
        one for one in draft.ledger.spends if one.kind is SpendKind.RESET and (one.key, one.at) in costs
    )
    return replace(ledger, resets=ledger.resets + fresh, spends=ledger.spends + spends)


def _is_operators(actor: Actor | None) -> bool:
    return actor is not None and actor.kind is ActorKind.OPERATOR


def _same_but_progress(before: Incident, after: Incident) -> bool:
    """Tell whether two states differ by progress marks alone: those are not worth a write each pass."""
    marks = {
        "release": after.release,
        "gone_mono": after.gone_mono,
        "residual_ok_mono": after.residual_ok_mono,
    }
    return replace(before, **marks) == after  # type: ignore[arg-type]  # three fields of their own types
