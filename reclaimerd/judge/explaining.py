"""Say what each rule makes of one holder, and what the gates would say to the next step; pure.

It decides nothing and gives leave for nothing: a permit that is asked for here is looked at and dropped.
It goes by the evaluation's own answers, whatever the kinds of the rules.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.gates import admit
from reclaimerd.judge.steps import OutOfSteps, Wait, due_step, later_stages, step_of
from reclaimerd.judge.warnings import needs_warning, what_follows
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident, Stage
from reclaimerd.model.policy import FaultRule, ListedStage, Policy, Rule, RuleAction
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, Refusal, Step
from reclaimerd.model.verdict import RuleReason, Ruling, Sustained, Verdict


class Standing(StrEnum):
    """Whether a rule's condition holds for a process in this look."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does_not_hold"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Held:
    """How long, and over how many readings, a condition has held, and what its rule still waits for."""

    seconds: float
    readings: int
    seconds_left: float
    readings_left: int


@dataclass(frozen=True, slots=True)
class RuleAccount:
    """One rule's answer on one process. `held` is None where nothing is counted.

    Where the answer is unknown now, `held` is what was counted before: such a look adds nothing to it.
    """

    rule: Rule
    standing: Standing
    reason: RuleReason
    held: Held | None


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """One step that a rule would take, and how long after the one before it (seconds)."""

    stage: Stage
    after_seconds: float


@dataclass(frozen=True, slots=True)
class NextStep:
    """The step that comes next for an incident, and what the gates say to it now.

    `due_seconds` is from now, None where only an event can bring it. `answer` is None where the gates
    can't be asked now; `text` says why, or what happens instead.
    """

    stage: Stage | None
    due_seconds: float | None
    answer: Permit | Refusal | None
    text: str = ""


def rule_accounts(
    verdict: Verdict, evaluation: Evaluation, policy: Policy, now: float
) -> tuple[RuleAccount, ...]:
    """Return every rule's answer on one process, in the policy's order; `now` is the look's (monotonic)."""
    rules = {rule.name: rule for rule in policy.rules}
    kept = {item.rule: item for item in evaluation.sustained if item.ref == verdict.ref}
    return tuple(
        _account(rules[reason.rule], reason, kept.get(reason.rule), now)
        for reason in _by_rules(verdict)
        if reason.rule in rules
    )


def spared_by(verdict: Verdict) -> RuleReason | None:
    """Return what protects a process from every rule, or None."""
    return verdict.reasons[0] if verdict.ruling is Ruling.SPARE else None


def doubt_of(verdict: Verdict) -> str:
    """Return what forbids any judgement of a process, whatever the rules say, or ""."""
    return next((reason.text for reason in verdict.reasons if not reason.rule), "")


def planned_stages(
    rule: Rule | FaultRule, policy: Policy, stages: tuple[ListedStage, ...]
) -> tuple[PlannedStage, ...]:
    """Return these stages of a rule in order, each with how long the one before it is waited for.

    The warning to the owner comes first where the rule has one, and alone where it only warns.
    """
    ladder = policy.ladder
    warning = rule.warn_before_seconds if isinstance(rule, Rule) else None
    waits = {
        Stage.WARNED: warning or 0.0,
        Stage.SIGTERM: _or_else(rule.sigterm_seconds, ladder.sigterm_seconds),
        Stage.SIGKILL: _or_else(rule.sigkill_seconds, ladder.sigkill_seconds),
    }
    steps: tuple[Stage, ...] = tuple(Stage(stage.value) for stage in stages)
    if rule.action is RuleAction.WARN:
        steps = (Stage.WARNED,)
    elif warning is not None:
        steps = (Stage.WARNED, *steps)
    before = (None, *steps)
    return tuple(
        PlannedStage(step, 0.0 if last is None else waits.get(last, 0.0))
        for last, step in zip(before, steps, strict=False)
    )


def next_step(incident: Incident, context: GateContext) -> NextStep:
    """Return what an open incident would do next, with the gates' answer as of now."""
    snapshot = context.snapshot
    match due_step(incident, snapshot):
        case Step() as step:
            return _asked(step, 0.0, incident, context)
        case Wait(until=until):
            due = None if until is None else max(0.0, until - snapshot.at)
            later = _step_after(incident, snapshot)
            if later is None:
                follows = what_follows(incident, snapshot.at) or "no further step: it waits for its end"
                return NextStep(None, due, None, follows)
            return _asked(later, due, incident, context)
        case OutOfSteps(why=why):
            return NextStep(None, 0.0, None, why)
        case due_now:
            assert_never(due_now)


def _by_rules(verdict: Verdict) -> tuple[RuleReason, ...]:
    """Return the rules' own reasons: a protection stands first, and may bear a rule's name."""
    return verdict.reasons[1:] if verdict.ruling is Ruling.SPARE else verdict.reasons


def _account(rule: Rule, reason: RuleReason, kept: Sustained | None, now: float) -> RuleAccount:
    if kept is not None and kept.last == now:
        standing = Standing.HOLDS
    elif reason.ruling is Ruling.UNDETERMINED:
        standing = Standing.UNKNOWN
    else:
        standing = Standing.DOES_NOT_HOLD
    return RuleAccount(rule, standing, reason, None if kept is None else _held(rule, kept, now))


def _held(rule: Rule, kept: Sustained, now: float) -> Held:
    seconds = max(0.0, now - kept.since)
    return Held(
        seconds=seconds,
        readings=kept.readings,
        seconds_left=max(0.0, rule.for_seconds - seconds),
        readings_left=max(0, rule.readings - kept.readings),
    )


def _asked(step: Step, due_seconds: float | None, incident: Incident, context: GateContext) -> NextStep:
    if step.stage is Stage.RESET and context.snapshot.reset_facts is None:
        named = ", ".join(f"reclaimctl explain reset --gpu {uuid}" for uuid in step.target.gpus)
        text = f"a reset is judged by a whole look of its own: {named}"
        return NextStep(step.stage, due_seconds, None, text)
    why = drain_reason_of(incident, context.snapshot, context.ledger)
    return NextStep(step.stage, due_seconds, admit(step, incident, replace(context, drain_reason=why)))


def _step_after(incident: Incident, snapshot: Snapshot) -> Step | None:
    """Return the step that follows the one in force, as it would be taken now."""
    alive = tuple(ref for ref in incident.processes if ref not in snapshot.exited)
    return next((step_of(incident, stage, alive) for stage in _left(incident, alive)), None)


def _left(incident: Incident, alive: tuple[ProcessRef, ...]) -> tuple[Stage, ...]:
    if needs_warning(incident):
        return (Stage.WARNED,)
    passed = {note.split(":", 1)[0] for note in incident.passed_over}
    later = (stage for stage in later_stages(incident) if stage.value not in passed)
    return tuple(stage for stage in later if alive or stage not in (Stage.SIGTERM, Stage.SIGKILL))


def _or_else(own: float | None, ladder: float) -> float:
    return ladder if own is None else own
