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
from reclaimerd.judge.gpu_fault import fault_of
from reclaimerd.judge.steps import with_outcome
from reclaimerd.model.drain import (
    Ask,
    AskState,
    DrainPhase,
    DrainRequest,
    Joined,
    NodeDrain,
    Withdrawal,
)
from reclaimerd.model.fault import FaultClass
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident, Outcome, OutcomeKind, Recipient, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import DrainSettings
from reclaimerd.model.snapshot import DriverState, Snapshot
from reclaimerd.model.step import Permit

ITSELF = "reclaimerd"
"""Who withdraws a request whose causes are all over."""
_OVER = frozenset({Stage.RECLAIMED, Stage.UNVERIFIED, Stage.STOOD_DOWN, Stage.EVICTED})


def is_drain(permit: Permit) -> bool:
    """Tell whether this permit is for a real drain request, which no pass waits for."""
    return permit.step.stage is Stage.DRAIN and not (permit.dry_run or permit.step.dry_run)


def asked_for(incident: IncidentId, ledger: Ledger) -> bool:
    """Tell whether this incident waits for the answer to its drain request: nothing else is due for it."""
    joined = () if ledger.drain is None else ledger.drain.joined
    return any(one.incident == incident and not one.told for one in joined)


def under_way(incident: IncidentId, ledger: Ledger) -> bool:
    """Tell whether an act of this incident goes on beside the passes: its record is its own."""
    return in_flight(incident, ledger) or asked_for(incident, ledger)


def with_request(ledger: Ledger, request: DrainRequest, targets: tuple[str, ...], boot_id: str) -> Ledger:
    """Return the ledger with this node's request, or with one more incident joined to the one that stands."""
    joined = Joined(request.incident, request.reason, request.asked_at)
    drain = ledger.drain
    if drain is not None and may_join(drain):
        return replace(ledger, drain=replace(drain, joined=(*drain.joined, joined)))
    asks = tuple(Ask(target) for target in targets)
    at = request.asked_at
    fresh = NodeDrain(request, boot_id, at, (joined,), asks, phase_at=at, asked_boot=boot_id)
    return replace(ledger, drain=fresh)


def is_leaving(ledger: Ledger) -> bool:
    """Tell whether this node's request is being taken back: a further incident waits until it is gone."""
    drain = ledger.drain
    return drain is not None and drain.withdrawal is not None and drain.phase is not DrainPhase.DONE


def take_answers(draft: Draft, now: Moment) -> None:
    """Give each incident its outcome once the targets have answered; drop a request that is over."""
    drain = draft.ledger.drain
    if drain is None:
        return
    outcome = _outcome(drain)
    joined = []
    for one in drain.joined:
        told = one
        incident = draft.incidents.get(one.incident)
        if not one.told and incident is not None and incident.stage in _OVER:
            told = replace(one, told=True, well_at=now.wall)
        elif not one.told and outcome is not None:
            _tell(draft, one, outcome, now)
            told = replace(one, told=True)
        joined.append(told)
    drain = replace(drain, joined=tuple(joined))
    over = drain.phase is DrainPhase.DONE and all(one.told for one in joined)
    after = None if over else drain
    if after != draft.ledger.drain:
        draft.put_ledger(replace(draft.ledger, drain=after))


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


def _tell(draft: Draft, one: Joined, outcome: Outcome, now: Moment) -> None:
    incident = draft.incidents.get(one.incident)
    if incident is None or incident.ended:
        return
    attempt = next((kept for kept in reversed(incident.attempts) if kept.stage is Stage.DRAIN), None)
    if attempt is None or attempt.outcome is not None:
        return
    incident = with_outcome(incident, attempt, outcome, now.mono)
    draft.put(incident, [entries.outcome(incident, attempt, outcome)])
    if outcome.kind is OutcomeKind.ACCEPTED:
        ended = handed_over(incident, Recipient.SCHEDULER, f"drain requested: {outcome.detail}", now.wall)
    else:
        ended = handed_over(incident, recipient_of(incident), f"no drain: {outcome.detail}", now.wall)
    draft.put(ended, [entries.ended(ended)])


def tend(
    draft: Draft,
    snapshot: Snapshot,
    known: tuple[Mapping[IncidentId, Incident], DrainSettings],
    now: Moment,
) -> None:
    """Note which causes of the request are over, and order its withdrawal when all are."""
    handed, settings = known
    note_wells(draft, snapshot, handed, now)
    withdraw_if_over(draft, snapshot, settings, now)


def note_wells(draft: Draft, snapshot: Snapshot, handed: Mapping[IncidentId, Incident], now: Moment) -> None:
    """Note which causes of the request are over: a task that died late, a GPU that is well, a new boot."""
    drain = draft.ledger.drain
    if drain is None or all(one.well_at is not None for one in drain.joined):
        return
    if drain.boot_id != snapshot.boot_id:
        if not gpus_are_well(drain, snapshot, draft.ledger):
            return
        joined = tuple(replace(one, well_at=now.wall, told=True) for one in drain.joined)
        fresh = replace(drain, joined=joined, verified_boot=snapshot.boot_id)
        draft.put_ledger(replace(draft.ledger, drain=fresh))
        text = f"drain request {drain.id}: after a new boot its GPUs are well again"
        draft.note(entries.of_drain(fresh, text))
        return
    joined = tuple(
        replace(one, well_at=now.wall) if _is_over(one, draft, handed) else one for one in drain.joined
    )
    if joined != drain.joined:
        draft.put_ledger(replace(draft.ledger, drain=replace(drain, joined=joined)))


def _is_over(one: Joined, draft: Draft, handed: Mapping[IncidentId, Incident]) -> bool:
    incident = draft.incidents.get(one.incident) or handed.get(one.incident)
    if one.well_at is not None or incident is None:
        return False
    return incident.released_at is not None or incident.stage in _OVER


def gpus_are_well(drain: NodeDrain, snapshot: Snapshot, ledger: Ledger) -> bool:
    """Tell whether the driver answers and no GPU of the request has a fault, or one that can't be known."""
    if snapshot.driver.state is not DriverState.RESPONSIVE:
        return False
    return all(
        snapshot.gpu(uuid) is not None and fault_of(uuid, snapshot, ledger).fault <= FaultClass.APPLICATION
        for uuid in drain.request.gpus
    )


def withdraw_if_over(draft: Draft, snapshot: Snapshot, settings: DrainSettings, now: Moment) -> None:
    """Order the request's withdrawal when all its causes are over, the GPUs well, and the policy allows it.

    One that no target was asked for yet is dropped without the policy's leave: nothing stands anywhere.
    """
    drain = draft.ledger.drain
    if drain is None or drain.withdrawal is not None or drain.phase is DrainPhase.DONE:
        return
    wells = [one.well_at for one in drain.joined]
    if None in wells or not gpus_are_well(drain, snapshot, draft.ledger):
        return
    last = max((at for at in wells if at is not None), default=now.wall)
    unasked = drain.phase is DrainPhase.SLOT
    if not (unasked or (settings.auto_withdraw and now.wall - last >= settings.settling_seconds)):
        return
    why = "every cause of it is over and the GPUs are well"
    ordered = replace(drain, withdrawal=Withdrawal(ITSELF, why, now.wall))
    draft.put_ledger(replace(draft.ledger, drain=ordered))
    draft.note(entries.of_drain(ordered, f"drain request {drain.id} is taken back: {why}"))


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
    if failed:
        return f"drain request {drain.id} stands; not everybody took it: {'; '.join(failed)}"
    return f"drain request {drain.id} stands: {drain.request.reason}; `reclaimctl undrain` takes it back"
