"""Perform what was permitted and durable, and put what came of it on record."""

from collections.abc import Sequence
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.admission import MOST_WITHHELD, Work
from reclaimerd.daemon.draft import Draft
from reclaimerd.judge.endings import handed_over, recipient_of, withdrawn
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.gates import admit
from reclaimerd.judge.steps import later_stages, step_of, with_outcome
from reclaimerd.model.incident import Incident, Outcome, OutcomeKind, Recipient, Stage
from reclaimerd.model.step import GateAnswer, Permit, Refusal


def take_outcomes(
    draft: Draft, work: Sequence[Work], outcomes: Sequence[Outcome], context: GateContext
) -> None:
    """Bring the draft up to what came of this pass's acts."""
    for item, outcome in zip(work, outcomes, strict=True):
        found = draft.incidents.get(item.incident)
        if found is None:  # a warning takes its time, and its incident may be over meanwhile
            draft.note(entries.late_outcome(item.permit.step, item.attempt, outcome))
            continue
        incident = found
        if incident.ended:
            incident = with_outcome(incident, item.attempt, outcome, context.now)
            draft.put(incident, [entries.outcome(incident, item.attempt, outcome)])
            continue
        is_dry = item.permit.dry_run or item.permit.step.dry_run
        if is_dry and item.attempt.stage is not Stage.WARNED:  # after a warning it goes on, as if delivered
            _take_dry_run(draft, incident, item, (outcome, context))
            continue
        incident = with_outcome(incident, item.attempt, outcome, context.now)
        draft.put(incident, [entries.outcome(incident, item.attempt, outcome)])
        after = _after(incident, outcome, context.wall)
        if after is not incident:
            draft.put(after, [entries.ended(after)])


def _after(incident: Incident, outcome: Outcome, wall: float) -> Incident:
    match outcome.kind:
        case OutcomeKind.ACCEPTED:
            return handed_over(incident, Recipient.SCHEDULER, f"drain requested: {outcome.detail}", wall)
        case OutcomeKind.NOT_PERMITTED:
            return handed_over(incident, recipient_of(incident), outcome.detail, wall)
        case OutcomeKind.FAILED if incident.stage is Stage.DRAIN:
            return handed_over(incident, recipient_of(incident), f"no drain: {outcome.detail}", wall)
        case OutcomeKind.WITHHELD | OutcomeKind.FAILED if _withheld(incident) >= MOST_WITHHELD:
            return handed_over(incident, recipient_of(incident), f"withheld: {outcome.detail}", wall)
        case _:
            return incident


def _withheld(incident: Incident) -> int:
    kinds = (OutcomeKind.WITHHELD, OutcomeKind.FAILED)
    signals = (attempt for attempt in incident.attempts if attempt.stage is not Stage.WARNED)
    return sum(1 for attempt in signals if attempt.outcome is not None and attempt.outcome.kind in kinds)


def _take_dry_run(draft: Draft, incident: Incident, item: Work, seen: tuple[Outcome, GateContext]) -> None:
    """Record the outcome, then the whole plan: each later stage, when, and what its gate says now."""
    outcome, context = seen
    attempts = tuple(
        replace(kept, outcome=outcome) if kept.id == item.attempt.id else kept for kept in incident.attempts
    )
    incident = replace(incident, attempts=attempts)
    records = [entries.outcome(incident, item.attempt, outcome)]
    at = 0.0
    for stage in later_stages(replace(incident, stage=item.attempt.stage)):
        if stage is item.attempt.stage:
            continue
        at += _patience(incident, stage)
        said = _gate_says(incident, stage, context)
        records.append(entries.planned(incident, stage, said, f"would follow {at:.0f} s later"))
    text = "dry run: nothing was sent"
    if incident.stage in (Stage.PENDING, Stage.WARNED, Stage.SUSPENDED, Stage.SIGTERM):
        ended = withdrawn(incident, text, context.wall)
    else:
        ended = handed_over(incident, recipient_of(incident), text, context.wall)
    draft.put(ended, [*records, entries.ended(ended)])


def _patience(incident: Incident, stage: Stage) -> float:
    plan = incident.plan
    if stage is Stage.SIGKILL:
        return plan.sigterm_seconds
    return plan.sigkill_seconds if stage is Stage.RESET else plan.proof_seconds


def _gate_says(incident: Incident, stage: Stage, context: GateContext) -> tuple[GateAnswer, ...]:
    answer = admit(step_of(incident, stage, incident.processes), incident, context)
    match answer:
        case Permit(answers=answers):
            return (GateAnswer("all", "would be permitted now"), *answers)
        case Refusal(reasons=reasons):
            return tuple(
                GateAnswer(reason.kind.value, f"would refuse now: {reason.text}") for reason in reasons
            )
