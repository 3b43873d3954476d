"""Ask for each open incident what is due and whether the gates let it through."""

from dataclasses import dataclass, field, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drain_request import request_of
from reclaimerd.daemon.drains import is_drain, under_way, with_request
from reclaimerd.daemon.opening import Moment, new_attempt_id
from reclaimerd.daemon.resets import is_reset, run_of
from reclaimerd.judge.budgets import breaker_trip, spends_of
from reclaimerd.judge.drain_steps import may_join
from reclaimerd.judge.endings import drain_reason_of, handed_over, recipient_of, second_look_at, withdrawn
from reclaimerd.judge.evaluate import effective_mode, rule_named
from reclaimerd.judge.gate_context import GateContext, NewlyDue, workload_key
from reclaimerd.judge.gates import admit
from reclaimerd.judge.proof import StillHeld, finding_of
from reclaimerd.judge.steps import (
    OutOfSteps,
    Wait,
    due_step,
    unlisted_stages,
    with_intent,
    with_passed_over,
)
from reclaimerd.judge.warnings import only_warned
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import ActorKind, Attempt, Incident, Recipient, Stage, Subject
from reclaimerd.model.ledger import Breaker, Ledger
from reclaimerd.model.policy import Mode, Policy
from reclaimerd.model.reset_run import ResetPhase
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step

MOST_WITHHELD = 5
"""A signal that the last look withheld so often goes to a person instead of being tried for ever."""


PASSING = frozenset(
    {
        ReasonKind.HOLD,
        ReasonKind.PAUSED,
        ReasonKind.SETTLING,
        ReasonKind.RECORD,
        ReasonKind.CORE_DUMP,
        ReasonKind.DRAIN_LEAVING,
    },
)
"""What stops for a while: the step waits and keeps its place; any other refusal passes it over."""


STANDING = frozenset(
    {
        ReasonKind.HOLD,
        ReasonKind.PAUSED,
        ReasonKind.SETTLING,
        ReasonKind.RECORD,
        ReasonKind.MODE,
        ReasonKind.RESET_IN_FLIGHT,
    },
)
"""What forbids a reset whatever the host looks like: while one stands, no whole search of it is made."""


_LEAVING_SECONDS = 5.0
"""How soon a drain is looked at again while this node's request is being taken back."""

UNCLEAR = frozenset({ReasonKind.UNDETERMINED, ReasonKind.DRAIN_LEAVING})
"""One slow read on a busy host, or the end of this node's last request: an operator's order that has begun
waits for it, in its time.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """One permitted step with its attempt: the intent that must be durable before it is performed."""

    incident: IncidentId
    attempt: Attempt
    permit: Permit


@dataclass(slots=True)
class Admitted:
    """What a pass may do, and when the next one is due."""

    work: list[Work] = field(default_factory=list)
    wake_at: float | None = None
    again_at_once: bool = False
    wants_reset_look: bool = False
    """A reset is due: the next look must be whole, with all that a reset needs to know."""
    refused: dict[IncidentId, Refusal] = field(default_factory=dict)

    def wake(self, at: float | None) -> None:
        """Ask for a pass no later than `at` (monotonic)."""
        if at is not None:
            self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def trip_breaker(draft: Draft, fresh: list[Incident], context: GateContext) -> None:
    """Trip the breaker before anything is done, when this pass made too much newly due by rule."""
    policy = context.policy
    due = [
        NewlyDue(workload_key(incident.target), incident.target.gpus)
        for incident in fresh
        if not (incident.plan.only_warns or draft.incidents[incident.id].plan.dry_run)
        and _enforces(incident, policy)
    ]
    why = breaker_trip(due, context.snapshot, policy)
    if why is None or draft.ledger.breaker is not None:
        return
    draft.put_ledger(replace(draft.ledger, breaker=Breaker(why, context.wall)))
    draft.note(entries.of_host(RecordKind.BREAKER_TRIPPED, why))


def admit_all(
    draft: Draft, context: GateContext, said: dict[IncidentId, str], operator_fault: str
) -> Admitted:
    """Return the permitted steps of this pass; refusals go on record when they change.

    `operator_fault`: the record fault that binds an operator's step, in place of the context's.
    """
    admitted = Admitted()
    for incident in list(draft.incidents.values()):
        if incident.ended or under_way(incident.id, draft.ledger):
            continue
        now = Moment(context.now, context.wall)
        admitted.wake(second_look_at(incident))
        match due_step(incident, context.snapshot):
            case Wait(until=until):
                admitted.wake(until)
            case OutOfSteps(why=why):
                _run_out(draft, incident, context, why)
            case Step() as step:
                by_rule = incident.actor.kind is ActorKind.RULE
                asked = replace(
                    context,
                    ledger=draft.ledger,
                    drain_reason=drain_reason_of(incident, context.snapshot, draft.ledger),
                    record_fault=context.record_fault if by_rule else operator_fault,
                )
                _consider(step, incident, asked, _Round(draft, admitted, said, now))
    return admitted


@dataclass(frozen=True, slots=True)
class _Round:
    draft: Draft
    admitted: Admitted
    said: dict[IncidentId, str]
    now: Moment


def _consider(step: Step, incident: Incident, context: GateContext, round_: _Round) -> None:
    if step.stage is Stage.RESET and _lacks_look(step, context.snapshot):
        standing = _standing(admit(step, incident, context))
        if standing is None:
            round_.admitted.wants_reset_look = True
            # A look for a reset that could not be whole comes again in its time, not at once for ever.
            round_.admitted.again_at_once |= context.snapshot.reset_facts is None
        else:
            _refuse(standing, incident, context, round_)
        return
    if step.stage is Stage.DRAIN and context.drain_reason is not None:
        step = replace(step, reason=context.drain_reason.text)
    incident = _with_unlisted(round_.draft, incident, step.stage)
    match admit(step, incident, context):
        case Permit() as permit:
            _intend(permit, incident, context, round_)
        case Refusal() as refusal:
            _refuse(refusal, incident, context, round_)


def _lacks_look(step: Step, snapshot: Snapshot) -> bool:
    """Tell whether a reset can't be judged by this look; an operator is told what it lacks, a rule waits."""
    if snapshot.reset_facts is None:
        return True
    by_operator = step.actor.kind is ActorKind.OPERATOR
    return not (by_operator or snapshot.scan.full_now or not snapshot.gpus)


def _standing(answer: Permit | Refusal) -> Refusal | None:
    """Return the refusal by what no look changes, or None."""
    if isinstance(answer, Permit):
        return None
    reasons = tuple(reason for reason in answer.reasons if reason.kind in STANDING)
    return replace(answer, reasons=reasons) if reasons else None


def _intend(permit: Permit, incident: Incident, context: GateContext, round_: _Round) -> None:
    step = permit.step
    attempt = Attempt(new_attempt_id(incident), step.stage, step.targets, intent_at=round_.now.wall)
    ledger = round_.draft.ledger
    spends = spends_of(permit, incident, context)
    runs = (run_of(permit, attempt, context),) if is_reset(permit) else ()
    ledger = replace(ledger, spends=ledger.spends + spends, resets=ledger.resets + runs)
    if is_drain(permit) and context.drain_reason is not None:
        request = request_of(incident, context.drain_reason, context.snapshot, context.host, round_.now)
        if ledger.drain is not None and may_join(ledger.drain):
            text = f"incident {incident.id} joins: {request.reason}"
            round_.draft.note(entries.of_drain(ledger.drain, text))
        ledger = with_request(ledger, request, context.drain_targets, context.snapshot.boot_id)
    round_.draft.put_ledger(ledger)
    incident = replace(with_intent(incident, attempt), last_refusal="")
    round_.draft.put(incident, [entries.intent(incident, attempt, permit)])
    round_.said.pop(incident.id, None)
    round_.admitted.work.append(Work(incident.id, attempt, permit))


def _refuse(refusal: Refusal, incident: Incident, context: GateContext, round_: _Round) -> None:
    text = "; ".join(reason.text for reason in refusal.reasons)
    key = f"{refusal.step.stage}: " + ",".join(sorted({reason.kind for reason in refusal.reasons}))
    round_.admitted.refused[incident.id] = refusal
    if round_.said.get(incident.id) != key:
        round_.said[incident.id] = key
        incident = replace(incident, last_refusal=text)
        round_.draft.put(incident, [entries.refused(incident, refusal)])
    stage = refusal.step.stage
    kinds = {reason.kind for reason in refusal.reasons}
    if ReasonKind.DRAIN_LEAVING in kinds:
        round_.admitted.wake(context.now + _LEAVING_SECONDS)
    passes = kinds <= _passing(incident, round_.draft.ledger)
    own = (Subject.GPU, Stage.RESET), (Subject.NODE, Stage.DRAIN)
    if (incident.subject, stage) in own and incident.actor.kind is ActorKind.OPERATOR:
        ended = _refused_operator(incident, text, context)
        round_.draft.put(ended, [entries.ended(ended)])
    elif stage in (Stage.RESET, Stage.DRAIN) and not passes:
        passed = with_passed_over(incident, stage, text)
        round_.draft.put(passed, [entries.passed_over(passed, stage, text)])
        round_.admitted.again_at_once = True
    elif incident.actor.kind is ActorKind.OPERATOR and not (incident.attempts and kinds <= UNCLEAR):
        ended = _refused_operator(incident, text, context)
        round_.draft.put(ended, [entries.ended(ended)])


def _passing(incident: Incident, ledger: Ledger) -> frozenset[ReasonKind]:
    """Return what stops this incident for a while only.

    A GPU's own incident waits where its rule only observes, and for another reset's end; but a reset that
    was left alone may have none.
    """
    kinds = PASSING
    if incident.subject is Subject.GPU and not incident.attempts:
        kinds |= {ReasonKind.MODE}
    if all(run.phase is not ResetPhase.LEFT_ALONE for run in ledger.resets):
        kinds |= {ReasonKind.RESET_IN_FLIGHT}
    return kinds


def _refused_operator(incident: Incident, text: str, context: GateContext) -> Incident:
    incident = replace(incident, last_refusal=text)
    if not only_warned(incident):
        return handed_over(incident, Recipient.OPERATOR, f"refused: {text}", context.wall)
    return withdrawn(incident, f"refused: {text}", context.wall)


def _run_out(draft: Draft, incident: Incident, context: GateContext, why: str) -> None:
    incident = _with_unlisted(draft, incident, None)
    finding = finding_of(incident, context.snapshot)
    held = finding.why if isinstance(finding, StillHeld) else finding.proof.text
    ended = handed_over(
        replace(incident, last_refusal=""), recipient_of(incident), f"{why}; {held}", context.wall
    )
    draft.put(ended, [entries.ended(ended)])


def _with_unlisted(draft: Draft, incident: Incident, upto: Stage | None) -> Incident:
    """Return the incident with the stages before `upto` that its plan doesn't list marked, and recorded."""
    if incident.actor.kind is ActorKind.OPERATOR:
        return incident
    marked = {mark.split(":", 1)[0] for mark in incident.passed_over}
    for listed in unlisted_stages(incident):
        if upto is not None and _rank(Stage(listed.value)) >= _rank(upto):
            break
        if listed.value in marked or _rank(Stage(listed.value)) <= _rank(incident.stage):
            continue
        why = "not among the rule's stages"
        incident = with_passed_over(incident, Stage(listed.value), why)
        draft.put(incident, [entries.passed_over(incident, listed.value, why)])
    return incident


_RANKS: tuple[Stage, ...] = (Stage.PENDING, Stage.SIGTERM, Stage.SIGKILL, Stage.RESET, Stage.DRAIN)


def _rank(stage: Stage) -> int:
    return _RANKS.index(stage) if stage in _RANKS else 0


def _enforces(incident: Incident, policy: Policy) -> bool:
    if incident.actor.kind is not ActorKind.RULE:
        return False
    rule = rule_named(policy, incident.actor.name)
    return rule is not None and effective_mode(policy, rule) is Mode.ENFORCE
