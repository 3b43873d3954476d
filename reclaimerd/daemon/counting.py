"""What a pass adds to the ledger and lets go of: ends for the cool-downs, and what binds no more. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.following import acted, dry_run
from reclaimerd.judge.gate_context import workload_key
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident, OutcomeKind, Stage
from reclaimerd.model.ledger import Ended, Ledger

_NO_RESET = frozenset({OutcomeKind.RESET_REFUSED, OutcomeKind.DRY_RUN})
LEDGER_DAYS = 7
"""Older spends and ends bind nothing any more."""


def with_ends(
    ledger: Ledger, after: Mapping[IncidentId, Incident], before: Mapping[IncidentId, Incident]
) -> Ledger:
    """Return the ledger with an end for each incident that did something and ended since `before`."""
    ends = []
    for one in after.values():
        earlier = before.get(one.id)
        fresh = one.released_at is None and (earlier is None or not earlier.ended)
        # An owner's order cools nothing down: they could keep every rule away from their own process.
        if one.ended and fresh and acted(one) and not one.actor.is_owner:
            was_reset = any(
                attempt.stage is Stage.RESET
                and (attempt.outcome is None or attempt.outcome.kind not in _NO_RESET)
                for attempt in one.attempts
            )
            at = one.ended_at if one.ended_at is not None else one.opened_at
            ends.append(Ended(workload_key(one.target), one.target.gpus, at, was_reset, dry_run(one)))
    return replace(ledger, ended=ledger.ended + tuple(ends)) if ends else ledger


def pruned(ledger: Ledger, wall: float) -> Ledger:
    """Return the ledger without what is too old to bind (wall-clock seconds)."""
    oldest = wall - LEDGER_DAYS * 86400.0
    kept = replace(
        ledger,
        spends=tuple(spend for spend in ledger.spends if spend.at >= oldest),
        ended=tuple(end for end in ledger.ended if end.at >= oldest),
        past_resets=tuple(past for past in ledger.past_resets if past.at >= oldest),
    )
    return ledger if kept == ledger else kept


def after_boot(ledger: Ledger, boot_id: str) -> tuple[Ledger, list[AuditEntry]]:
    """Return the ledger as a start must see it: a reboot ends every DO NOT TOUCH, on record."""
    left = tuple(one for one in ledger.untouchable if one.boot_id == boot_id)
    records = [
        entries.of_host(RecordKind.NOTE, f"the host was booted: {', '.join(one.gpus)} may be touched again")
        for one in ledger.untouchable
        if one not in left
    ]
    return (replace(ledger, untouchable=left), records) if records else (ledger, [])
