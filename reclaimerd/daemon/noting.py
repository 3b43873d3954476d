"""Put on record what a look showed besides the incidents' own steps: late deaths, and alarms that are new."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import taken_back
from reclaimerd.daemon.following import late_releases
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.resets import reset_since
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident
from reclaimerd.model.snapshot import Snapshot


def note_late(
    draft: Draft, handed: Mapping[IncidentId, Incident], snapshot: Snapshot, now: Moment
) -> list[IncidentId]:
    """Record what became well after all of what was handed over: a late death, a later reset, an undrain.

    Their ends stay what they are.
    """
    late = [
        *late_releases(handed, snapshot),
        *reset_since(handed, draft.ledger),
        *taken_back(handed, draft.ledger),
    ]
    for incident, why in late:
        draft.put(replace(incident, released_at=now.wall), [entries.late_release(incident, why)])
    return [incident.id for incident, _ in late]


def note_alarms(draft: Draft, standing: Iterable[str], alarmed: frozenset[str]) -> frozenset[str]:
    """Record each standing alarm that was not raised before; return those that stand."""
    now = frozenset(standing)
    for text in sorted(now - alarmed):
        draft.note(entries.of_host(RecordKind.ALARM, text))
    return now
