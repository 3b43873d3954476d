"""What an incident's attempts came to: whom a step addressed, and whether it had any effect. Pure."""

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage


def took_effect(outcome: Outcome) -> bool:
    """Tell whether a signal was, or may have been, sent to any target, or found one gone already."""
    kinds = {target.kind for target in outcome.targets} | {outcome.kind}
    return bool(kinds & _EFFECTIVE)


_EFFECTIVE = frozenset({OutcomeKind.SENT, OutcomeKind.ALREADY_GONE, OutcomeKind.UNKNOWN})


def addressed(incident: Incident, stage: Stage) -> frozenset[ProcessRef]:
    """Return the targets that need this stage no more: all it was tried on but those it was withheld from."""
    return frozenset(
        ref
        for attempt in incident.attempts
        if attempt.stage is stage
        for ref in attempt.targets
        if not _was_withheld(attempt, ref)
    )


def _was_withheld(attempt: Attempt, ref: ProcessRef) -> bool:
    if attempt.outcome is None:
        return False
    kinds = [target.kind for target in attempt.outcome.targets if target.ref == ref]
    return OutcomeKind.WITHHELD in (kinds or [attempt.outcome.kind])
