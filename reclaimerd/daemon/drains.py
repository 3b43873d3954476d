"""Join drain requests and incidents: a permit becomes this node's request in the ledger, or joins it.

Pure: a draft goes in and is brought up to date. The asking itself is `daemon.drain_procedure`'s.
"""

from collections.abc import Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.resets import in_flight
from reclaimerd.judge.drain_steps import may_join
from reclaimerd.judge.endings import handed_over, recipient_of
from reclaimerd.judge.steps import with_outcome
from reclaimerd.model.drain import (
    Ask,
    AskState,
    DrainCode,
    DrainPhase,
    DrainRequest,
    Joined,
    NodeDrain,
)
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Recipient, Stage, Subject
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.step import Permit

OVER = frozenset({Stage.RECLAIMED, Stage.UNVERIFIED, Stage.STOOD_DOWN, Stage.EVICTED})


def is_drain(permit: Permit) -> bool:
    """Tell whether this permit is for a real drain request, which no pass waits for."""
    return permit.step.stage is Stage.DRAIN and not (permit.dry_run or permit.step.dry_run)


def asked_for(incident: IncidentId, ledger: Ledger) -> bool:
    """Tell whether this incident waits for the answer to its drain request: nothing else is due for it."""
    joined = () if ledger.drain is None else ledger.drain.joined
    return any(one.incident == incident and not one.told for one in joined)


def drain_alone(incident: Incident, ledger: Ledger) -> Attempt | None:
    """Return the step of an incident that did nothing but ask for a drain, and has no answer yet."""
    if not asked_for(incident.id, ledger):
        return None
    match incident.attempts:
        case (Attempt(stage=Stage.DRAIN, outcome=None) as only,):
            return only
    return None


def with_drain_given_up(draft: Draft, incident: Incident) -> Incident:
    """Return one whose cause is gone, with an outcome of the drain that it waits for, on record.

    Nobody is asked for a cause that is gone: an answer that was lost with us would be waited for for ever.
    """
    only, drain = drain_alone(incident, draft.ledger), draft.ledger.drain
    if only is None or drain is None:
        return incident
    outcome = _given_up(drain, "its cause was gone")
    draft.put(incident, [entries.outcome(incident, only, outcome)])
    return replace(incident, attempts=(replace(only, outcome=outcome),))


def _given_up(drain: NodeDrain, why: str) -> Outcome:
    """Return what became of a step that waits for nobody any more; where it was asked for it may stand."""
    if drain.is_unasked:
        return Outcome(OutcomeKind.PASSED_OVER, f"{why} before anybody was asked")
    targets = ", ".join(ask.target for ask in drain.asks if ask.tries) or "anybody"
    text = f"{why} before it was known whether {targets} took the drain; see its drain_step records"
    return Outcome(OutcomeKind.UNKNOWN, text)


def under_way(incident: IncidentId, ledger: Ledger) -> bool:
    """Tell whether an act of this incident goes on beside the passes: its record is its own."""
    return in_flight(incident, ledger) or asked_for(incident, ledger)


def with_request(ledger: Ledger, request: DrainRequest, targets: tuple[str, ...], boot_id: str) -> Ledger:
    """Return the ledger with this node's request, or with one more incident joined to the one that stands."""
    by_hand = request.code is DrainCode.BY_HAND
    joined = Joined(request.incident, request.reason, request.asked_at, gpus=request.gpus, by_hand=by_hand)
    drain = ledger.drain
    if drain is not None and may_join(drain):
        return replace(ledger, drain=replace(drain, joined=(*drain.joined, joined)))
    asks = tuple(Ask(target) for target in targets)
    at = request.asked_at
    fresh = NodeDrain(request, boot_id, at, (joined,), asks, phase_at=at, asked_boot=boot_id)
    return replace(ledger, drain=fresh)


def take_answers(draft: Draft, now: Moment, *, foreground: bool = False) -> None:
    """Give each incident its outcome once the targets have answered; drop a request that is over.

    One command knows its own incidents alone: any other is told by the daemon that has it.
    """
    drain = draft.ledger.drain
    if drain is None:
        return
    outcome = _outcome(drain)
    joined = []
    for one in drain.joined:
        told = one
        incident = draft.incidents.get(one.incident)
        if foreground and incident is None:
            joined.append(one)
            continue
        if not one.told and outcome is not None:
            _tell(draft, one, outcome, now)
            told = replace(one, told=True)
        joined.append(told)
    drain = replace(drain, joined=tuple(joined))
    over = drain.phase is DrainPhase.DONE and all(one.told for one in joined)
    after = None if over else drain
    if after != draft.ledger.drain:
        draft.put_ledger(replace(draft.ledger, drain=after))


def leave_ended(draft: Draft, now: Moment) -> None:
    """Let the request go on without the incidents that ended by themselves in this pass: their cause is over.

    In the next pass they are not among the open ones any more, and their step would stay without an outcome.
    """
    drain = draft.ledger.drain
    if drain is None:
        return
    joined = tuple(_left(draft, one, drain, now) for one in drain.joined)
    if joined != drain.joined:
        draft.put_ledger(replace(draft.ledger, drain=replace(drain, joined=joined)))


def _left(draft: Draft, one: Joined, drain: NodeDrain, now: Moment) -> Joined:
    incident = draft.incidents.get(one.incident)
    if one.told or incident is None or incident.stage not in OVER:
        return one
    _settle(draft, incident, drain)
    return replace(one, told=True, well_at=one.well_at if one.by_hand else now.wall)


def taken_back(handed: Mapping[IncidentId, Incident], ledger: Ledger) -> list[tuple[Incident, str]]:
    """Return the drains by hand that nobody asks for any more: no person is called for them."""
    joined = () if ledger.drain is None else ledger.drain.joined
    standing = {one.incident for one in joined}
    return [
        (one, "the drain by hand was taken back")
        for one in handed.values()
        if one.subject is Subject.NODE and one.id not in standing
    ]


def _outcome(drain: NodeDrain) -> Outcome | None:
    """Return what an incident that waits is told, or None while the targets were not all asked."""
    texts = "; ".join(f"{ask.target}: {ask.text}" for ask in drain.asks if ask.text)
    match drain.phase:
        case DrainPhase.SLOT | DrainPhase.ASK:
            return None
        case DrainPhase.STANDS:
            if drain.stands_somewhere:
                return Outcome(OutcomeKind.ACCEPTED, texts)
            return Outcome(OutcomeKind.FAILED, texts) if drain.all_failed else None
        case DrainPhase.WITHDRAW | DrainPhase.DONE:
            by = "somebody" if drain.withdrawal is None else drain.withdrawal.by
            return Outcome(OutcomeKind.FAILED, f"the request was taken back by {by}")


def _settle(draft: Draft, incident: Incident, drain: NodeDrain) -> None:
    """Give the open drain step of one that ended by itself its outcome; the request goes on without it."""
    attempt = _open_drain(incident)
    if attempt is None:
        return
    outcome = _given_up(drain, "it ended")
    attempts = tuple(replace(one, outcome=outcome) if one is attempt else one for one in incident.attempts)
    draft.put(replace(incident, attempts=attempts), [entries.outcome(incident, attempt, outcome)])


def _open_drain(incident: Incident) -> Attempt | None:
    attempt = next((kept for kept in reversed(incident.attempts) if kept.stage is Stage.DRAIN), None)
    return None if attempt is None or attempt.outcome is not None else attempt


def _tell(draft: Draft, one: Joined, outcome: Outcome, now: Moment) -> None:
    incident = draft.incidents.get(one.incident)
    if incident is None or incident.ended:
        return
    attempt = _open_drain(incident)
    if attempt is None:
        return
    incident = with_outcome(incident, attempt, outcome, now.mono)
    draft.put(incident, [entries.outcome(incident, attempt, outcome)])
    if outcome.kind is OutcomeKind.ACCEPTED:
        ended = handed_over(incident, Recipient.SCHEDULER, f"drain requested: {outcome.detail}", now.wall)
    else:
        ended = handed_over(incident, recipient_of(incident), f"no drain: {outcome.detail}", now.wall)
    draft.put(ended, [entries.ended(ended)])


def attention_text(drain: NodeDrain | None) -> str:
    """Return what a person must know of this node's request, or ""."""
    if drain is None or drain.phase is DrainPhase.DONE:
        return ""
    failed = [f"{ask.target}: {ask.text}" for ask in drain.asks if ask.state is AskState.FAILED]
    if drain.phase is DrainPhase.SLOT:
        why = drain.slot or "not asked yet"
        return f"drain request {drain.id} waits for a place in the fleet's limit: {why}"
    if drain.all_failed:
        texts = "; ".join(f"{ask.target}: {ask.text}" for ask in drain.asks)
        return f"drain request {drain.id} reached nobody: {texts}"
    if drain.phase is DrainPhase.WITHDRAW:
        return f"drain request {drain.id} is being taken back"
    text = f"drain request {drain.id} {_how_far(drain)}"
    if failed:
        text += f"; not everybody took it: {'; '.join(failed)}"
    return f"{text}; `reclaimctl undrain --incident {drain.id}` takes it back"


def _how_far(drain: NodeDrain) -> str:
    """Return whether what was asked for stands: a try without an answer may have been the last of a life."""
    if drain.is_unasked:
        return f"is not asked for yet: {drain.request.reason}"
    silent = [ask.target for ask in drain.asks if ask.tries and not ask.text]
    if silent and not drain.stands_somewhere:
        return f"may stand: no answer of {', '.join(silent)} is known"
    return f"stands: {drain.request.reason}"
