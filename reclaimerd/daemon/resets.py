"""Join resets and incidents: a permit becomes a run in the ledger, its result the attempt's outcome.

Pure: a draft goes in and is brought up to date. The run itself is `daemon.reset_procedure`'s.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.opening import Moment
from reclaimerd.judge.endings import handed_over, recipient_of, reset_verified
from reclaimerd.judge.evaluate import effective_mode, rule_named
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.reset_plan import plan_of
from reclaimerd.judge.steps import with_outcome
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.incident import ActorKind, Attempt, Incident, Outcome, OutcomeKind, Stage, Subject
from reclaimerd.model.ledger import Ledger, SpendKind
from reclaimerd.model.policy import Mode, Policy
from reclaimerd.model.reset_run import Change, GpuBefore, ResetPhase, ResetResult, ResetRun
from reclaimerd.model.step import Permit

_OUTCOMES = {
    ResetResult.VERIFIED: OutcomeKind.RESET_DONE,
    ResetResult.REFUSED: OutcomeKind.RESET_REFUSED,
    ResetResult.FAILED: OutcomeKind.FAILED,
    ResetResult.NOT_VERIFIED: OutcomeKind.RESET_NOT_VERIFIED,
    ResetResult.ABANDONED: OutcomeKind.RESET_ABANDONED,
}
MANY_RESETS = 3
_HOUR_SECONDS = 3600.0
_TOLD_IN = (ResetPhase.DONE, ResetPhase.LEFT_ALONE)


def run_of(permit: Permit, attempt: Attempt, context: GateContext) -> ResetRun:
    """Return the run of a permitted reset: every GPU that must go with it, and all that will be changed."""
    gpus: dict[GpuUuid, None] = {}
    changes: dict[Change, None] = {}
    before: dict[GpuBefore, None] = {}
    for uuid in permit.step.target.gpus:
        plan = plan_of(uuid, context)
        gpus |= dict.fromkeys(plan.gpus)
        changes |= dict.fromkeys(plan.changes)
        before |= dict.fromkeys(plan.before)
    return ResetRun(
        id=attempt.id,
        incident=permit.step.incident,
        boot_id=context.snapshot.boot_id,
        actor=permit.step.actor,
        gpus=tuple(gpus),
        began_at=context.wall,
        force=permit.step.force,
        phase_at=context.wall,
        changes=tuple(changes),
        before=tuple(before),
    )


def is_reset(permit: Permit) -> bool:
    """Tell whether this permit is for a real reset, which is the procedure's and no step of a pass."""
    return permit.step.stage is Stage.RESET and not (permit.dry_run or permit.step.dry_run)


def open_gpus(incidents: Iterable[Incident], policy: Policy) -> Mapping[GpuUuid, tuple[IncidentId, ...]]:
    """Return which open incidents concern each GPU: of two on one GPU neither may reset it."""
    found: dict[GpuUuid, tuple[IncidentId, ...]] = {}
    for incident in incidents:
        if not incident.ended and not only_watches(incident, policy):
            found |= {uuid: (*found.get(uuid, ()), incident.id) for uuid in incident.target.gpus}
    return found


def only_watches(incident: Incident, policy: Policy) -> bool:
    """Tell whether a rule that only observes opened this for a GPU: it does nothing, and holds up nobody."""
    by_rule = incident.subject is Subject.GPU and incident.actor.kind is ActorKind.RULE
    if not by_rule or incident.ended or incident.attempts:
        return False
    rule = rule_named(policy, incident.actor.name)
    return rule is not None and effective_mode(policy, rule) is Mode.OBSERVE


def in_flight(incident: IncidentId, ledger: Ledger) -> bool:
    """Tell whether a reset of this incident is under way: until its result nothing else is due for it."""
    return any(run.incident == incident and not run.told for run in ledger.resets)


def reset_since(handed: Mapping[IncidentId, Incident], ledger: Ledger) -> list[tuple[Incident, str]]:
    """Return the GPUs' own incidents, handed over, whose GPUs a later and verified reset made well."""
    well = {
        uuid: past.at
        for past in ledger.past_resets
        if past.result is ResetResult.VERIFIED and not past.dry_run
        for uuid in past.gpus
    }
    return [
        (one, f"a later reset of {', '.join(one.target.gpus)} was verified")
        for one in handed.values()
        if one.subject is Subject.GPU
        and all(well.get(uuid, 0.0) > (one.ended_at or 0.0) for uuid in one.target.gpus)
    ]


def take_results(draft: Draft, now: Moment, *, foreground: bool = False) -> None:
    """Give each incident whose reset has its result the outcome, and drop runs with nothing left to do.

    One command knows its own incidents alone: the result of any other waits for the daemon that has it.
    """
    kept: list[ResetRun] = []
    for run in draft.ledger.resets:
        ours = not foreground or run.incident in draft.incidents
        if ours and run.result is not None and run.phase in _TOLD_IN and not run.told:
            _tell(draft, run, run.result, now)
            _alarm_of_many(draft, run, now)
            run = replace(run, told=True)  # noqa: PLW2901  # the same run, told
        if not (run.is_done and run.told):
            kept.append(run)
    if tuple(kept) != draft.ledger.resets:
        draft.put_ledger(replace(draft.ledger, resets=tuple(kept)))


def _alarm_of_many(draft: Draft, run: ResetRun, now: Moment) -> None:
    """Tell a person when so many resets were made within an hour: one cause more often than many faults."""
    if run.result is ResetResult.REFUSED:
        return
    made = {past.at for past in draft.ledger.past_resets if past.result is not ResetResult.REFUSED}
    recent = sum(1 for at in made if now.wall - at < _HOUR_SECONDS)
    if recent >= MANY_RESETS:
        text = f"{recent} resets were made on this host within an hour: look for one cause of them all"
        draft.note(entries.of_host(RecordKind.ALARM, text))


def _tell(draft: Draft, run: ResetRun, result: ResetResult, now: Moment) -> None:
    incident = draft.incidents.get(run.incident)
    attempt = None if incident is None else next((one for one in incident.attempts if one.id == run.id), None)
    if incident is None or attempt is None or incident.ended or attempt.outcome is not None:
        return
    outcome = Outcome(_OUTCOMES[result], run.text)
    incident = with_outcome(incident, attempt, outcome, now.mono)
    draft.put(incident, [entries.outcome(incident, attempt, outcome)])
    if result is ResetResult.REFUSED:
        draft.put_ledger(_without_spend(draft.ledger, run))
    ended = _after(incident, run, result, now)
    if ended is not None:
        draft.put(ended, [entries.ended(ended)])


def _without_spend(ledger: Ledger, run: ResetRun) -> Ledger:
    """Return the ledger with the budget of a reset that was refused given back: nothing was reset."""
    spends = tuple(
        one
        for one in ledger.spends
        if not (one.kind is SpendKind.RESET and one.key in run.gpus and one.at == run.began_at)
    )
    return replace(ledger, spends=spends)


def _after(incident: Incident, run: ResetRun, result: ResetResult, now: Moment) -> Incident | None:
    """Return a GPU's own incident with its end; a process's incident is proven by its own look."""
    if incident.subject is not Subject.GPU:
        return None
    match result:
        case ResetResult.VERIFIED:
            return reset_verified(incident, run.text, now.wall)
        case ResetResult.REFUSED:
            refused = replace(incident, last_refusal=run.text)
            return handed_over(refused, recipient_of(incident), f"refused: {run.text}", now.wall)
        case ResetResult.FAILED | ResetResult.NOT_VERIFIED | ResetResult.ABANDONED:
            return None
