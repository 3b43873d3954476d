"""What an incident's next step is, and what a look at the host or an outcome makes of it.

Pure: an incident, a snapshot and the time go in, a new incident or a step comes out. Waiting is a
deadline here, never a sleep; the ladder's table alone changes a stage.
"""

from dataclasses import dataclass, replace

from reclaimerd.judge.attempts import addressed, took_effect
from reclaimerd.judge.exit_path import any_exiting
from reclaimerd.judge.ladder import next_stage
from reclaimerd.judge.plight import DRAIN_FACTOR
from reclaimerd.judge.release import release_of, released_since
from reclaimerd.judge.warnings import (
    after_warning,
    is_being_warned,
    needs_warning,
    next_try_at,
    vain_text,
    warning_of,
)
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import (
    Attempt,
    Fact,
    Incident,
    Outcome,
    OutcomeKind,
    Stage,
    Subject,
)
from reclaimerd.model.kernel import Leaving
from reclaimerd.model.policy import ListedStage
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Step

_ORDER = (ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET, ListedStage.DRAIN)
_POSITION = {
    Stage.PENDING: 0,
    Stage.WARNED: 0,
    Stage.SUSPENDED: 0,
    Stage.SIGTERM: 1,
    Stage.SIGKILL: 2,
    Stage.RESET: 3,
    Stage.DRAIN: 4,
}
_TRIED = {
    Stage.SIGTERM: Fact.TERM_SENT,
    Stage.SIGKILL: Fact.KILL_SENT,
    Stage.RESET: Fact.RESET_TRIED,
    Stage.DRAIN: Fact.DRAIN_ASKED,
}
_SENT = (Stage.SIGTERM, Stage.SIGKILL)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due before `until` (monotonic seconds; None: only an event can bring more)."""

    until: float | None


@dataclass(frozen=True, slots=True)
class OutOfSteps:
    """No step is left that this incident may take."""

    why: str


Due = Step | Wait | OutOfSteps


def due_step(incident: Incident, snapshot: Snapshot) -> Due:
    """Return what is due for an open incident at the snapshot's time."""
    now = snapshot.at
    timeout = incident.plan.timeout_seconds
    if timeout is not None and now >= incident.opened_mono + timeout:
        return OutOfSteps("the time that was given is up")
    alive = _alive(incident, snapshot)
    if needs_warning(incident):
        return _due_warning(incident, alive, snapshot)
    if alive and incident.stage is Stage.WARNED and incident.plan.only_warns:
        return Wait(None)
    if incident.stage in _SENT and incident.stage.value in incident.plan.stages:
        unsent = tuple(ref for ref in alive if ref not in addressed(incident, incident.stage))
        if unsent:
            return _step(incident, incident.stage, unsent)
    expiry = stage_expiry(incident, snapshot)
    if expiry is not None and now < expiry:
        return Wait(_earlier(expiry, incident))
    return _next_listed(incident, alive)


def _due_warning(incident: Incident, alive: tuple[ProcessRef, ...], snapshot: Snapshot) -> Due:
    """Return the warning that is due; without one that was delivered nothing else ever is."""
    if not alive:
        expiry = stage_expiry(incident, snapshot)
        if expiry is not None and snapshot.at < expiry:
            return Wait(expiry)
        return OutOfSteps("it ended before its owner could be warned, so nothing is done")
    if is_being_warned(incident):
        return Wait(None)
    vain = vain_text(incident)
    if vain:  # a dry run has nobody to hand over to a person: it waits, and says so
        return Wait(None) if incident.plan.dry_run else OutOfSteps(vain)
    at = next_try_at(incident)
    return Wait(at) if snapshot.at < at else _step(incident, Stage.WARNED, alive)


def stage_expiry(incident: Incident, snapshot: Snapshot) -> float | None:
    """Return when the present stage's patience ends (monotonic), None when it has none."""
    plan = incident.plan
    if not _alive(incident, snapshot) and incident.gone_mono is not None:
        # A GPU's own incident has no memory of a process to wait for: its reset is due at once.
        return None if incident.subject is Subject.GPU else incident.gone_mono + plan.proof_seconds
    match incident.stage:
        case Stage.WARNED | Stage.SIGTERM | Stage.RESET:
            return incident.stage_mono + _plain_patience(incident)
        case Stage.SIGKILL:
            patience = incident.stage_mono + plan.sigkill_seconds
            if incident.release is not None and _leaving(incident, snapshot):
                return max(patience, _exit_patience(incident, incident.release.at, snapshot))
            return patience
        case _:
            return None


def _plain_patience(incident: Incident) -> float:
    plan = incident.plan
    waits = {Stage.WARNED: plan.warn_seconds or 0.0, Stage.SIGTERM: plan.sigterm_seconds}
    return waits.get(incident.stage, plan.proof_seconds)


def with_look(incident: Incident, snapshot: Snapshot) -> Incident:
    """Return the incident with what this look shows of its release: fewer tasks, less memory."""
    alive = _alive(incident, snapshot)
    if not alive:
        return incident if incident.gone_mono is not None else replace(incident, gone_mono=snapshot.at)
    incident = incident if incident.gone_mono is None else replace(incident, gone_mono=None)
    seen = release_of(incident, snapshot)
    if seen is not None and (incident.release is None or released_since(incident.release, seen)):
        return replace(incident, release=seen)
    return incident


def with_heirs(incident: Incident, heirs: tuple[ProcessRef, ...], now: float) -> Incident:
    """Return the incident with heirs of its dead members joined; its clock restarts thrice at most."""
    joins = incident.joins + 1
    joined = replace(incident, survivors=incident.survivors + heirs, joins=joins, gone_mono=None)
    if joins > MOST_CLOCK_RESTARTS:
        return joined
    # What the dead had left says nothing of the heirs' progress: theirs is measured from their own.
    return replace(joined, stage_mono=now, release=None)


MOST_CLOCK_RESTARTS = 3
"""Beyond this, a target that forks on and on gains no more time."""


def with_intent(incident: Incident, attempt: Attempt) -> Incident:
    """Return the incident with an attempt that has no outcome yet."""
    return replace(incident, attempts=(*incident.attempts, attempt))


def with_outcome(incident: Incident, attempt: Attempt, outcome: Outcome, now: float) -> Incident:
    """Return the incident after an attempt: the outcome kept, the stage moved if anything was done.

    A signal that was withheld, refused by the kernel or found another process moves nothing; nor does a
    warning that reached nobody: the next try is counted from now.
    """
    attempts = tuple(
        replace(kept, outcome=outcome) if kept.id == attempt.id else kept for kept in incident.attempts
    )
    incident = replace(incident, attempts=attempts)
    if attempt.stage is Stage.WARNED:
        return after_warning(incident, outcome, now)
    if attempt.stage in _SENT and not took_effect(outcome):
        return incident
    stage = next_stage(incident.stage, _TRIED[attempt.stage])
    entered = now if stage is not incident.stage else incident.stage_mono
    return replace(incident, stage=stage, stage_mono=entered)


def with_passed_over(incident: Incident, stage: Stage, why: str) -> Incident:
    """Return the incident with a stage marked as passed over."""
    return replace(incident, passed_over=(*incident.passed_over, f"{stage}: {why}"))


def unlisted_stages(incident: Incident) -> tuple[ListedStage, ...]:
    """Return the stages that this incident's plan may not take, in the ladder's order.

    One that only warns goes up no ladder: it passes nothing over.
    """
    if incident.plan.only_warns:
        return ()
    return tuple(stage for stage in _ORDER if stage not in incident.plan.stages)


def was_signalled(incident: Incident) -> bool:
    """Tell whether any signal of ours reached, or may have reached, a target."""
    return any(_may_have_reached(attempt) for attempt in incident.attempts if attempt.stage in _SENT)


def was_killed(incident: Incident) -> bool:
    """Tell whether a SIGKILL of ours reached, or may have reached, a target."""
    return any(_may_have_reached(attempt) for attempt in incident.attempts if attempt.stage is Stage.SIGKILL)


def _may_have_reached(attempt: Attempt) -> bool:
    if attempt.outcome is None:
        return True
    kinds = {target.kind for target in attempt.outcome.targets} | {attempt.outcome.kind}
    return bool(kinds & _REACHED)


_REACHED = frozenset({OutcomeKind.SENT, OutcomeKind.UNKNOWN})


def later_stages(incident: Incident) -> tuple[Stage, ...]:
    """Return the stages that the plan would take after the present one, in order."""
    position = _POSITION[incident.stage]
    return tuple(
        Stage(stage.value)
        for index, stage in enumerate(_ORDER)
        if index >= position and stage in incident.plan.stages
    )


def step_of(incident: Incident, stage: Stage, targets: tuple[ProcessRef, ...]) -> Step:
    """Return the step that takes `stage` for `targets` of this incident."""
    return _step(incident, stage, targets)


def _step(incident: Incident, stage: Stage, targets: tuple[ProcessRef, ...]) -> Step:
    return Step(
        incident=incident.id,
        stage=stage,
        actor=incident.actor,
        target=incident.target,
        targets=targets,
        reason=incident.reason,
        dry_run=incident.plan.dry_run,
        force=incident.plan.force,
        warning=warning_of(incident) if stage is Stage.WARNED else None,
    )


def _next_listed(incident: Incident, alive: tuple[ProcessRef, ...]) -> Due:
    passed = {note.split(":", 1)[0] for note in incident.passed_over}
    for stage in later_stages(incident):
        if stage.value in passed:
            continue
        if stage in _SENT and not alive:
            continue
        return _step(incident, stage, alive)
    timeout = incident.plan.timeout_seconds
    if timeout is not None and (alive or incident.gone_mono is None):
        return Wait(incident.opened_mono + timeout)
    return OutOfSteps("no stage is left that this incident may take")


def _alive(incident: Incident, snapshot: Snapshot) -> tuple[ProcessRef, ...]:
    return tuple(ref for ref in incident.processes if ref not in snapshot.exited)


def _leaving(incident: Incident, snapshot: Snapshot) -> bool:
    alive = _alive(incident, snapshot)
    readings = (snapshot.process(ref) for ref in alive)
    if any(reading is not None and any_exiting(reading) for reading in readings):
        return True
    # Killed and blocked in the kernel before its exit: what that amounts to needs the same patience.
    plights = (snapshot.plights[ref] for ref in alive if ref in snapshot.plights)
    return any(plight.leaving not in (Leaving.NOT_LEAVING, Leaving.HELD) for plight in plights)


def _exit_patience(incident: Incident, released_at: float, snapshot: Snapshot) -> float:
    """Return when the patience with an exit ends: counted from the last release that anything showed.

    Motion without release or a readable stack is no proof of being stuck: five times the grace.
    """
    plights = [snapshot.plights[ref] for ref in _alive(incident, snapshot) if ref in snapshot.plights]
    let_go = max([released_at, *(plight.released_at for plight in plights)])
    unclear = any(plight.leaving in (Leaving.NO_RELEASE, Leaving.UNDETERMINED) for plight in plights)
    return let_go + incident.plan.exit_grace_seconds * (DRAIN_FACTOR if unclear else 1)


def _earlier(expiry: float, incident: Incident) -> float:
    timeout = incident.plan.timeout_seconds
    return expiry if timeout is None else min(expiry, incident.opened_mono + timeout)
