"""When the owner of a target is warned, when again, when in vain, and what the warning says. Pure.

A plan that warns has nothing else done before its warning was delivered: the log alone is no delivery.
"""

from dataclasses import replace

from reclaimerd.judge.ladder import next_stage
from reclaimerd.model.incident import ActorKind, Fact, Incident, Outcome, OutcomeKind, Plan, Stage
from reclaimerd.model.policy import ListedStage
from reclaimerd.model.step import OwnerWarning

RETRY_SECONDS = 60.0
"""From a warning that reached nobody to the next try."""
MOST_TRIES = 3
"""After so many that reached nobody a person is asked, and nothing is done."""


def warns(plan: Plan) -> bool:
    """Tell whether this plan has its owner warned before anything else."""
    return plan.only_warns or plan.warn_seconds is not None


def needs_warning(incident: Incident) -> bool:
    """Tell whether the owner must still be warned before anything else."""
    return warns(incident.plan) and incident.stage is Stage.PENDING


def was_warned(incident: Incident) -> bool:
    """Tell whether a warning was really delivered."""
    outcomes = (one.outcome for one in incident.attempts if one.stage is Stage.WARNED)
    return any(one is not None and one.kind is OutcomeKind.DELIVERED for one in outcomes)


def is_being_warned(incident: Incident) -> bool:
    """Tell whether a warning was begun whose outcome is not known yet."""
    return any(one.stage is Stage.WARNED and one.outcome is None for one in incident.attempts)


def next_try_at(incident: Incident) -> float:
    """Return from when on the next warning is due (monotonic): at once, or a while after the last try."""
    return incident.stage_mono + RETRY_SECONDS if _tries(incident) else incident.opened_mono


def vain_text(incident: Incident) -> str:
    """Return why no further warning is tried, or "": every try reached nobody."""
    tries = _tries(incident)
    if len(tries) < MOST_TRIES:
        return ""
    return f"nobody could be warned in {len(tries)} tries, so nothing is done: {tries[-1]}"


def after_warning(incident: Incident, outcome: Outcome, now: float) -> Incident:
    """Return the incident after a warning: WARNED where it was delivered, else the next try waits."""
    if incident.stage is not Stage.PENDING:
        return incident  # a person took it over, or it ended, while the owner was being warned
    if outcome.kind not in (OutcomeKind.DELIVERED, OutcomeKind.DRY_RUN):
        return replace(incident, stage_mono=now)
    stage = next_stage(incident.stage, Fact.WARNING_DELIVERED)
    # Whoever goes on without a real warning stays a dry run, though its rule may enforce later.
    dry_run = incident.plan.dry_run or outcome.kind is OutcomeKind.DRY_RUN
    return replace(incident, stage=stage, stage_mono=now, plan=replace(incident.plan, dry_run=dry_run))


def only_warned(incident: Incident) -> bool:
    """Tell whether nothing but warnings was tried: no signal, no reset, no drain request."""
    return all(attempt.stage is Stage.WARNED for attempt in incident.attempts)


def warning_of(incident: Incident) -> OwnerWarning:
    """Return what the owner is told: our own words, and no word of the process's."""
    plan, target = incident.plan, incident.target
    gpus = ", ".join(target.gpus) or "a GPU"
    holds = f'holds {gpus} of this host, and its administrators\' rule "{incident.actor.name}" is about that'
    lines = [f"Your process {target.root.pid} {holds}.", _consequence(plan)]
    if not plan.only_warns:
        lines.append("To lose nothing: save your work, then end the process or let it give the GPU back.")
    lines.append(f"If it must go on, ask the administrators of this host, and name {incident.id}.")
    return OwnerWarning(tuple(lines), None if plan.only_warns else plan.warn_seconds)


def what_follows(incident: Incident, now: float) -> str:
    """Return what an incident does after its warning, and when (`now` is monotonic); "" without one."""
    plan = incident.plan
    if incident.ended or incident.actor.kind is not ActorKind.RULE or not warns(plan):
        return ""
    if incident.stage is Stage.PENDING:
        return "its owner is to be warned first, and without a delivered warning nothing is done"
    if incident.stage is not Stage.WARNED:
        return ""
    warned = "dry run: its owner would have been warned" if plan.dry_run else "its owner was warned"
    if plan.only_warns:
        return f"{warned}; nothing follows"
    left = max(0.0, incident.stage_mono + (plan.warn_seconds or 0.0) - now)
    first = plan.stages[0].value if plan.stages else "nothing"
    return f"{warned}; {first} follows in {span(left)} at the earliest"


def span(seconds: float) -> str:
    """Return a time in words, never longer than it is."""
    for size, word in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {word}"
    return f"{int(seconds)} s"


def _tries(incident: Incident) -> list[str]:
    """Return what came of each warning that reached nobody, or of which nobody knows (a crash)."""
    return [
        "its outcome is not known" if one.outcome is None else one.outcome.detail
        for one in incident.attempts
        if one.stage is Stage.WARNED
    ]


def _consequence(plan: Plan) -> str:
    if plan.only_warns:
        return "This is a warning only: the rule does nothing to your process."
    when = f"in {span(plan.warn_seconds or 0.0)} at the earliest"
    if ListedStage.SIGTERM in plan.stages:
        later = f", and {span(plan.sigterm_seconds)} later it will be ended (SIGKILL) if it still runs"
        killed = later if ListedStage.SIGKILL in plan.stages else ""
        return f"It will be asked to end (SIGTERM) {when}{killed}."
    if ListedStage.SIGKILL in plan.stages:
        return f"It will be ended (SIGKILL) {when}."
    return f"The GPU may be reset, or this host be taken out of service, {when}."
