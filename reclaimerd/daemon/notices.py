"""Which durable records people are told of besides the log, how grave each is, and in which words. Pure.

Only what is on record is told, and no command line: a notice leaves the host. What operators do themselves is
told to nobody: they know.
"""

from collections.abc import Iterator, Mapping

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.incident import ActorKind, Incident, Stage
from reclaimerd.model.outlets import Notice, NoticeKind, Severity
from reclaimerd.model.ports import Batch

_WELL = frozenset({Stage.RECLAIMED, Stage.STOOD_DOWN, Stage.EVICTED})
"""Ends that leave nothing to do."""


def notices_of(
    batch: Batch, host: str, wall: float, known: Mapping[IncidentId, Incident], *, dry_run: bool
) -> Iterator[Notice]:
    """Yield a notice for each record of a durable batch that is worth one, in their order.

    `known` are incidents that the batch may not have; `dry_run` is the daemon's own, for everybody.
    """
    incidents = {**known, **{incident.id: incident for incident in batch.incidents}}
    for entry in batch.entries:
        told = _told(entry)
        if told is None:
            continue
        kind, severity = told
        incident = None if entry.incident is None else incidents.get(entry.incident)
        yield Notice(
            kind=kind,
            severity=severity,
            host=host,
            reason=_words(kind, entry),
            at=wall,
            incident=entry.incident or "",
            rule=entry.actor.name if entry.actor is not None and _is_rule(entry) else "",
            pid=_pid(entry),
            gpus=_gpus(entry, incident),
            end=entry.end,
            dry_run=dry_run or (incident is not None and incident.plan.dry_run),
        )


def record_fault(why: str, host: str, wall: float) -> Notice:
    """Return the notice that nothing can be put on record any more; it can't be on record itself."""
    text = f"nothing can be put on record, so nothing is done: {why}"
    return Notice(NoticeKind.RECORD_FAULT, Severity.CRITICAL, host, text, wall)


def anchor_fault(why: str, host: str, wall: float) -> Notice:
    """Return the notice that the audit's head can't be kept elsewhere; nothing else is hindered by it."""
    text = f"the audit log's head can't be kept elsewhere: {why}"
    return Notice(NoticeKind.ANCHOR_FAULT, Severity.WARNING, host, text, wall)


def _told(entry: AuditEntry) -> tuple[NoticeKind, Severity] | None:
    by_operator = entry.actor is not None and entry.actor.kind is ActorKind.OPERATOR
    match entry.kind:
        case RecordKind.ALARM:
            return NoticeKind.ALARM, Severity.CRITICAL
        case RecordKind.BREAKER_TRIPPED:
            return NoticeKind.BREAKER_TRIPPED, Severity.CRITICAL
        case RecordKind.INTENT if entry.action == Stage.DRAIN:
            return NoticeKind.DRAIN_REQUESTED, Severity.CRITICAL
        case RecordKind.INCIDENT_OPENED if not by_operator:
            return NoticeKind.INCIDENT_OPENED, Severity.WARNING
        case RecordKind.INCIDENT_ENDED if not by_operator:
            well = entry.end in _WELL
            return NoticeKind.INCIDENT_ENDED, Severity.INFO if well else Severity.WARNING
        case _:
            return None


def _words(kind: NoticeKind, entry: AuditEntry) -> str:
    if kind is NoticeKind.DRAIN_REQUESTED:
        return f"a drain of this node is asked for: {entry.reason}"
    return entry.reason


def _is_rule(entry: AuditEntry) -> bool:
    return entry.actor is not None and entry.actor.kind is not ActorKind.OPERATOR


def _pid(entry: AuditEntry) -> int:
    return 0 if entry.target is None else entry.target.root.pid


def _gpus(entry: AuditEntry, incident: Incident | None) -> tuple[GpuUuid, ...]:
    target = entry.target or (None if incident is None else incident.target)
    return () if target is None else target.gpus
