"""Count what was done and say when it is enough: budgets, cool-downs, and the breaker.

Dry runs spend from budgets of their own. Times are wall-clock seconds, since they bind across
restarts; an entry from the future (the clock went back) counts as recent.
"""

from collections.abc import Iterable

from reclaimerd.judge.drain_steps import may_join
from reclaimerd.judge.gate_context import GateContext, NewlyDue, workload_key
from reclaimerd.judge.reset_gate import reset_gpus
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import ActorKind, Incident, OutcomeKind, Stage, Subject
from reclaimerd.model.ledger import Spend, SpendKind
from reclaimerd.model.policy import Policy
from reclaimerd.model.reset_run import ResetResult
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, Reason, ReasonKind, Step

_DAY_SECONDS = 86400.0
_SIGNALS = frozenset({Stage.SIGTERM, Stage.SIGKILL})


def is_first_signal(step: Step, incident: Incident, *, dry_run: bool) -> bool:
    """Tell whether this step is the incident's first signal: budgets and cool-downs bind only that one.

    Attempts of a dry run don't make a later real signal the second one.
    """
    tried = [attempt for attempt in incident.attempts if attempt.stage in _SIGNALS]
    real = [a for a in tried if a.outcome is None or a.outcome.kind is not OutcomeKind.DRY_RUN]
    return step.stage in _SIGNALS and not (tried if dry_run else real)


def spends_of(permit: Permit, incident: Incident, context: GateContext) -> tuple[Spend, ...]:
    """Return what a permitted step costs: the ledger must hold it before the act, and the next gate see it.

    An operator's signals are recorded and never counted; resets, and drains by hand, count whoever asked. A
    member of a workload whose spend is in force costs nothing more.
    """
    step, wall = permit.step, context.wall
    by_rule = step.actor.kind is ActorKind.RULE
    if by_rule and is_first_signal(step, incident, dry_run=permit.dry_run):
        key = workload_key(step.target)
        if _spend_in_force(key, context, dry_run=permit.dry_run):
            return ()
        return (Spend(SpendKind.WORKLOAD, key, wall, permit.dry_run),)
    if step.stage is Stage.RESET:
        gpus = dict.fromkeys(peer for uuid in step.target.gpus for peer in reset_gpus(uuid, context))
        return tuple(Spend(SpendKind.RESET, uuid, wall, permit.dry_run) for uuid in gpus)
    by_us = step.actor.kind is not ActorKind.OPERATOR  # a rule, or the watch over the driver
    counted = by_us or (incident.subject is Subject.NODE and not permit.dry_run)
    if step.stage is Stage.DRAIN and counted and not may_join(context.ledger.drain):
        causes = (Spend(SpendKind.CAUSE, key, wall, permit.dry_run) for key in causes_of(incident))
        return (Spend(SpendKind.DRAIN, step.incident, wall, permit.dry_run), *causes)
    return ()


def workload_budget_reasons(step: Step, context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return why the host's budget of workloads allows no more now.

    Members of a workload whose spend is in force (its window runs and no incident of it ended since)
    are part of that one spend.
    """
    if _spend_in_force(workload_key(step.target), context, dry_run=dry_run):
        return ()
    budgets = context.policy.budgets
    spends = _spends(context, SpendKind.WORKLOAD, dry_run=dry_run)
    return tuple(
        Reason(ReasonKind.BUDGET, text, "wait, or raise [budgets] in the policy")
        for text in (
            _over(spends, context.wall, budgets.window_seconds, budgets.workloads_per_window),
            _over(spends, context.wall, _DAY_SECONDS, budgets.workloads_per_day),
        )
        if text
    )


def reset_budget_reasons(uuid: GpuUuid, context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return why this GPU may not be reset again yet: its budget, and the time since its last reset."""
    budgets = context.policy.budgets
    spends = [s for s in _spends(context, SpendKind.RESET, dry_run=dry_run) if s.key == uuid]
    over = _over(spends, context.wall, budgets.reset_window_seconds, budgets.resets_per_gpu)
    mend = "wait, or ask with --force"
    budget = (Reason(ReasonKind.BUDGET, f"{uuid}: resets: {over}", mend, gpu=uuid),) if over else ()
    return budget + gpu_cooldown_reasons(uuid, context)


def host_reset_reasons(context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return why this host had enough resets for a day; GPUs that went together count as one reset."""
    # One reset spends for all its GPUs at one instant, and there is only one at a time.
    resets = {spend.at: spend for spend in _spends(context, SpendKind.RESET, dry_run=dry_run)}
    over = _over(resets.values(), context.wall, _DAY_SECONDS, context.policy.budgets.resets_per_day)
    if not over:
        return ()
    return (Reason(ReasonKind.BUDGET, f"resets on this host: {over}", "wait, or ask with --force"),)


def gpu_cooldown_reasons(uuid: GpuUuid, context: GateContext) -> tuple[Reason, ...]:
    """Return why this GPU is left alone after its last reset."""
    wait = context.policy.gates.gpu_cooldown_seconds
    resets = [
        end.at for end in context.ledger.ended if end.was_reset and not end.dry_run and uuid in end.gpus
    ]
    resets += [
        past.at
        for past in context.ledger.past_resets
        if uuid in past.gpus and past.result is not ResetResult.REFUSED and not past.dry_run
    ]
    if not any(_within(at, context.wall, wait) for at in resets):
        return ()
    text = f"{uuid} was reset less than {wait:.0f} s ago"
    return (Reason(ReasonKind.COOL_DOWN, text, "wait, or ask with --force", gpu=uuid),)


def workload_cooldown_reasons(step: Step, context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return why this workload is left alone after its last incident; dry runs cool down only dry runs."""
    wait = context.policy.gates.workload_cooldown_seconds
    key = workload_key(step.target)
    ends = [e.at for e in context.ledger.ended if e.workload_key == key and e.dry_run == dry_run]
    if not any(_within(at, context.wall, wait) for at in ends):
        return ()
    text = f"an incident of the same workload ({key}) ended less than {wait:.0f} s ago"
    return (Reason(ReasonKind.COOL_DOWN, text, "wait"),)


def causes_of(incident: Incident) -> tuple[str, ...]:
    """Return who may be the cause of a drain by this incident: its namespace or account, else its user.

    The driver's own silence and a fault of a GPU are nobody's. One such cause drains a node once a day: a
    user must not be able to empty a fleet by leaving stuck tasks behind.
    """
    if incident.subject is not Subject.PROCESS:
        return ()
    target = incident.target
    names = target.workload.names if target.workload.trusted else None
    if names is not None and names.namespace is not None:
        return (f"namespace {names.namespace}",)
    if names is not None and names.account:
        return (f"account {names.account}", f"uid {target.uid}")
    return (f"uid {target.uid}",)


def cause_reasons(incident: Incident, context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return whose drain of today it was already."""
    if may_join(context.ledger.drain):
        return ()
    spends = [s for s in _spends(context, SpendKind.CAUSE, dry_run=dry_run) if s.key in causes_of(incident)]
    recent = [s for s in spends if _within(s.at, context.wall, _DAY_SECONDS)]
    mend = "drain the node by hand if it must be"
    return tuple(
        Reason(ReasonKind.BUDGET, f"{one.key} was the cause of a drain request within 24 h", mend)
        for one in recent[:1]
    )


def drain_budget_reasons(context: GateContext, *, dry_run: bool) -> tuple[Reason, ...]:
    """Return why no drain may be asked for today; joining a request that stands costs nothing."""
    if may_join(context.ledger.drain):
        return ()
    spends = _spends(context, SpendKind.DRAIN, dry_run=dry_run)
    over = _over(spends, context.wall, _DAY_SECONDS, context.policy.budgets.drains_per_day)
    if not over:
        return ()
    mend = "drain the node at its scheduler if it must be"
    return (Reason(ReasonKind.BUDGET, f"drain requests: {over}", mend),)


def breaker_trip(newly_due: Iterable[NewlyDue], snapshot: Snapshot, policy: Policy) -> str | None:
    """Return why the breaker must trip before anything is done in this pass, or None.

    Too many workloads newly due at once, or holders on too large a share of the host's GPUs, look
    more like a fault of ours, of the policy or of the driver than like so many rogues.
    """
    due = tuple(newly_due)
    limits = policy.breaker
    workloads = {item.workload_key for item in due}
    if len(workloads) > limits.workloads_per_pass:
        return f"{len(workloads)} workloads became due in one pass, more than {limits.workloads_per_pass}"
    gpus = {uuid for item in due for uuid in item.gpus}
    share = 100.0 * len(gpus) / max(1, len(snapshot.gpus))
    if len(gpus) >= limits.gpus_at_least and share > limits.gpu_percent:
        seen = len(snapshot.gpus)
        return f"holders on {len(gpus)} of {seen} GPUs became due in one pass, over {limits.gpu_percent:g} %"
    return None


def _spend_in_force(key: str, context: GateContext, *, dry_run: bool) -> bool:
    window = context.policy.budgets.window_seconds
    ends = (e.at for e in context.ledger.ended if e.workload_key == key and e.dry_run == dry_run)
    last_end = max(ends, default=None)
    return any(
        spend.key == key
        and _within(spend.at, context.wall, window)
        and (last_end is None or last_end < spend.at)
        for spend in _spends(context, SpendKind.WORKLOAD, dry_run=dry_run)
    )


def _spends(context: GateContext, kind: SpendKind, *, dry_run: bool) -> list[Spend]:
    return [spend for spend in context.ledger.spends if spend.kind is kind and spend.dry_run == dry_run]


def _over(spends: Iterable[Spend], wall: float, window_seconds: float, most: int) -> str:
    done = sum(1 for spend in spends if _within(spend.at, wall, window_seconds))
    return f"{done} of {most} spent in the last {window_seconds:.0f} s" if done >= most else ""


def _within(at: float, wall: float, window_seconds: float) -> bool:
    return wall - at < window_seconds
