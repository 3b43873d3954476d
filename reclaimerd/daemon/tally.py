"""What was counted since our start: every durable record once, and every pass.

Counters begin at 0 with each start, as Prometheus allows; what must survive is in ledger and audit log.
May not decide anything, and takes nothing into a label that has no bound.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from reclaimerd.daemon.metric_families import PASS_BUCKETS, RECLAIM_BUCKETS
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident, OutcomeKind, Stage
from reclaimerd.model.ports import Batch

OTHER = "other"
RESET_OUTCOMES = (
    OutcomeKind.RESET_DONE.value,
    OutcomeKind.RESET_REFUSED.value,
    OutcomeKind.RESET_ABANDONED.value,
    OutcomeKind.RESET_NOT_VERIFIED.value,
    OutcomeKind.FAILED.value,
)
NOTICE_RESULTS = ("sent", "failed", "dropped")
MOST_GPUS = 64
"""GPUs that are told apart: more than any host has, and cards that are swapped don't pile up."""


@dataclass(slots=True)
class Buckets:
    """A histogram: how many fell into each bucket (the last has no upper bound), and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def add(self, value: float) -> None:
        """Take one value."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Tally:
    """The counts, by the labels of their metric."""

    acts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    dry_run_acts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    refusals: Counter[tuple[str, ...]] = field(default_factory=Counter)
    resets: Counter[tuple[str, ...]] = field(default_factory=Counter)
    reset_refusals: Counter[tuple[str, ...]] = field(default_factory=Counter)
    opened: Counter[tuple[str, ...]] = field(default_factory=Counter)
    ended: Counter[tuple[str, ...]] = field(default_factory=Counter)
    notices: Counter[tuple[str, ...]] = field(default_factory=Counter)
    reclaims: Buckets = field(default_factory=lambda: Buckets(RECLAIM_BUCKETS))
    passes: Buckets = field(default_factory=lambda: Buckets(PASS_BUCKETS))
    alarms: int = 0
    denied: int = 0
    failed_passes: int = 0
    _gpus: set[str] = field(default_factory=set)

    def take(self, batch: Batch) -> None:
        """Count what a durable batch says."""
        incidents = {incident.id: incident for incident in batch.incidents}
        for entry in batch.entries:
            self._take(entry, incidents)

    def _take(self, entry: AuditEntry, incidents: dict[IncidentId, Incident]) -> None:
        match entry.kind:
            case RecordKind.OUTCOME:
                self._take_outcome(entry)
            case RecordKind.REFUSED:
                self._take_refusal(entry)
            case RecordKind.INCIDENT_OPENED if entry.actor is not None:
                self.opened[entry.actor.kind.value,] += 1
            case RecordKind.INCIDENT_ENDED if entry.incident in incidents:
                self._take_end(incidents[entry.incident])
            case RecordKind.ALARM | RecordKind.BREAKER_TRIPPED:
                self.alarms += 1
            case RecordKind.DENIED:
                self.denied += 1
            case _:
                pass

    def _take_outcome(self, entry: AuditEntry) -> None:
        if entry.outcome is None:
            return
        kind = entry.outcome.kind
        if kind is OutcomeKind.DRY_RUN:
            self.dry_run_acts[entry.action,] += 1
            return
        self.acts[entry.action, kind.value] += 1
        if entry.action == Stage.RESET:
            for gpu in self._gpus_of(entry):
                self.resets[gpu, kind.value] += 1

    def _take_refusal(self, entry: AuditEntry) -> None:
        reasons = {reason.kind.value for reason in entry.refusals}
        for reason in reasons:
            self.refusals[entry.action, reason] += 1
            for gpu in self._gpus_of(entry) if entry.action == Stage.RESET else ():
                self.reset_refusals[gpu, reason] += 1

    def _take_end(self, incident: Incident) -> None:
        self.ended[incident.stage.value,] += 1
        if incident.stage is Stage.RECLAIMED and incident.ended_at is not None and not incident.plan.dry_run:
            self.reclaims.add(max(0.0, incident.ended_at - incident.opened_at))

    def _gpus_of(self, entry: AuditEntry) -> Iterable[str]:
        for gpu in () if entry.target is None else entry.target.gpus:
            if len(self._gpus) < MOST_GPUS:
                self._gpus.add(gpu)
            yield gpu if gpu in self._gpus else OTHER
