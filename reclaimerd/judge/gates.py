"""Give leave for one step, or refuse it with every reason at once; the only maker of a Permit.

Some gates bind acts by rule, some every reset, some everyone. `--force` cuts an operator's budget and
cool-down for a reset, and nothing else: never protection, identity, record or the reset gate.
"""

from dataclasses import replace

from reclaimerd.judge import budgets
from reclaimerd.judge.allocation_gate import allocation_reasons
from reclaimerd.judge.companions import companion_reasons
from reclaimerd.judge.drain_steps import is_leaving
from reclaimerd.judge.evaluate import effective_mode, rule_named
from reclaimerd.judge.extent import mps_reasons
from reclaimerd.judge.gate_context import GateContext, NewlyDue, workload_key
from reclaimerd.judge.modes import suspension_of, suspension_text
from reclaimerd.judge.reset_gate import reset_gpus, reset_reasons
from reclaimerd.judge.reset_plan import ResetAnswer, plan_of
from reclaimerd.judge.reset_question import asked_for
from reclaimerd.judge.target_gates import TargetFindings, target_findings
from reclaimerd.judge.warning_gate import warning_reasons
from reclaimerd.judge.warnings import warns
from reclaimerd.model.drain import DrainCode
from reclaimerd.model.identity import GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Stage, Subject
from reclaimerd.model.policy import FaultRule, ListedStage, Mode, Rule
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.step import GateAnswer, Permit, Reason, ReasonKind, Refusal, Step

__all__ = ["GateContext", "NewlyDue", "admit", "again", "explain", "workload_key"]

_STAGES = {Stage(stage.value): stage for stage in ListedStage}


def admit(step: Step, incident: Incident, context: GateContext) -> Permit | Refusal:
    """Return leave to perform exactly this step once, or every reason against it.

    The permit is a dry run when the step, its incident or the rule's effective mode says so.
    """
    dry_run = _is_dry_run(step, incident, context)
    targets = target_findings(step, incident, context)
    reasons = _reasons(step, incident, context, targets)
    if reasons:
        return Refusal(step, reasons)
    first = budgets.is_first_signal(step, incident, dry_run=dry_run) and _by_rule(step)
    answers = (
        GateAnswer("mode", "dry run" if dry_run else f"{step.actor.kind}: acts"),
        GateAnswer("targets", f"{len(step.targets)} looked at, the same, none protected"),
        GateAnswer("budget", "counts as one workload" if first else "no workload counted"),
        *targets.answers,
    )
    return Permit(step, answers, dry_run)


def explain(gpu: GpuUuid, context: GateContext, *, force: bool = False) -> ResetAnswer:
    """Return the gates' whole answer for one GPU as for an operator who asks now.

    `force` leaves out budget and cool-down, and nothing else.
    """
    step, incident = asked_for(IncidentId("asked"), (gpu,), frozenset(), context, force=force)
    reasons = _reasons_against(step, incident, context)
    plan = plan_of(gpu, context)
    return ResetAnswer(not reasons, reasons, plan.steps, plan.gpus)


def again(
    run: ResetRun, targets: frozenset[ProcessRef], context: GateContext, *, stopped: bool
) -> tuple[Reason, ...]:
    """Return what the whole gate has against a reset that is under way.

    The run itself, its incident and what it spent are no reasons. `stopped`: its clients are stopped by
    now, and no unit is excused any more.
    """
    policy = context.policy
    settings = replace(policy.reset, stop_units=()) if stopped else policy.reset
    others = tuple(one for one in context.ledger.resets if one.id != run.id)
    after = replace(
        context,
        policy=replace(policy, reset=settings),
        ledger=replace(context.ledger, resets=others),
    )
    step, incident = asked_for(run.incident, run.gpus, targets, after, force=True)
    grown = {uuid for gpu in run.gpus for uuid in reset_gpus(gpu, context)} - set(run.gpus)
    peers = tuple(
        Reason(ReasonKind.PEERS, f"{uuid} must be reset with them by now, and was not asked about", gpu=uuid)
        for uuid in sorted(grown)
    )
    return (*_reasons_against(step, incident, after), *peers)


def _reasons_against(step: Step, incident: Incident, context: GateContext) -> tuple[Reason, ...]:
    found = _reasons(step, incident, context, target_findings(step, incident, context))
    return tuple(dict.fromkeys(found))


def _reasons(
    step: Step, incident: Incident, context: GateContext, targets: TargetFindings
) -> tuple[Reason, ...]:
    dry_run = _is_dry_run(step, incident, context)
    return (
        *_standing_reasons(step, incident, context),
        *targets.reasons,
        *_stop_reasons(step, incident, context, dry_run=dry_run),
        *_rule_reasons(step, incident, context),
        *_count_reasons(step, incident, context, dry_run=dry_run),
        *_stage_reasons(step, incident, context),
    )


def _by_rule(step: Step) -> bool:
    """Tell whether no person asked: a rule, or the daemon's own watch."""
    return step.actor.kind is not ActorKind.OPERATOR


def _rule_of(step: Step, context: GateContext) -> Rule | FaultRule | None:
    return rule_named(context.policy, step.actor.name)


def _is_dry_run(step: Step, incident: Incident, context: GateContext) -> bool:
    rule = _rule_of(step, context) if _by_rule(step) else None
    by_mode = rule is not None and effective_mode(context.policy, rule) is Mode.DRY_RUN
    if step.actor.kind is ActorKind.WATCH:
        by_mode = context.policy.mode is Mode.DRY_RUN
    if incident.subject is Subject.NODE:  # a drain by hand leaves the host where incidents' drains may
        by_mode = context.policy.mode is not Mode.ENFORCE
    return step.dry_run or incident.plan.dry_run or by_mode


def _standing_reasons(step: Step, incident: Incident, context: GateContext) -> tuple[Reason, ...]:
    """Return what forbids every act by anyone: no record, or not the host's own pids."""
    reasons: list[Reason] = []
    if context.record_fault:
        text = f"nothing can be put on record: {context.record_fault}"
        reasons.append(Reason(ReasonKind.RECORD, text, "mend the store or the audit log first"))
    if not context.host_namespace and not context.snapshot.simulated:
        text = "we run in a PID namespace that is not the host's: pids here are not the driver's"
        reasons.append(Reason(ReasonKind.WRONG_NAMESPACE, text, "run on the host, or with hostPID"))
    if step.stage not in _STAGES and not (step.stage is Stage.WARNED and warns(incident.plan)):
        reasons.append(Reason(ReasonKind.MODE, f"no act is known for the stage {step.stage}"))
    return tuple(reasons)


def _stop_reasons(
    step: Step,
    incident: Incident,
    context: GateContext,
    *,
    dry_run: bool,
) -> tuple[Reason, ...]:
    """Return what a person or the breaker stopped: acts by rule, every reset, every drain request."""
    if not _by_rule(step) and step.stage not in (Stage.RESET, Stage.DRAIN):
        return ()
    reasons: list[Reason] = []
    pause = context.ledger.pause
    if pause is not None and (pause.until is None or context.wall < pause.until):
        text = f"paused by {pause.by}: {pause.reason}" if pause.reason else f"paused by {pause.by}"
        reasons.append(Reason(ReasonKind.PAUSED, text, "reclaimctl resume"))
    if context.hold_file:
        mend = "remove the file when acts may go on"
        reasons.append(Reason(ReasonKind.HOLD, f"the file {context.hold_file} says hold", mend))
    first = budgets.is_first_signal(step, incident, dry_run=dry_run)
    # A warning that nothing follows is no act; one that announces an act must not, while none can follow.
    tripped = None if incident.plan.only_warns else _breaker_text(step, context, first=first)
    if tripped:
        mend = "a person looks at it and closes it: reclaimctl breaker close --reason TEXT"
        reasons.append(Reason(ReasonKind.BREAKER, f"the breaker is open: {tripped}", mend))
    return tuple(reasons)


def _breaker_text(step: Step, context: GateContext, *, first: bool) -> str | None:
    if context.ledger.breaker is not None:
        return context.ledger.breaker.reason
    if not (_by_rule(step) and first):
        return None
    own = NewlyDue(workload_key(step.target), step.target.gpus)
    return budgets.breaker_trip((*context.newly_due, own), context.snapshot, context.policy)


def _rule_reasons(step: Step, incident: Incident, context: GateContext) -> tuple[Reason, ...]:
    """Return what binds acts by rule alone: mode, listed stages, and the settling time."""
    if not _by_rule(step):
        return ()
    reasons: list[Reason] = []
    rule = _rule_of(step, context)
    if step.actor.kind is ActorKind.WATCH:
        if context.policy.mode is Mode.OBSERVE:
            text = "the global mode is observe: the watch only raises its alarm"
            reasons.append(Reason(ReasonKind.MODE, text, "set [daemon] mode to enforce if a drain is wanted"))
    elif rule is None:
        text = f"the policy has no rule {step.actor.name!r} any more"
        reasons.append(Reason(ReasonKind.WITHDRAWN, text, "the incident stands down"))
    elif (stands := suspension_of(rule.name, context.ledger.suspended)) is not None:
        # As a pause binds, not as a mode: what stands open keeps its place.
        mend = f"reclaimctl rules resume {rule.name}"
        reasons.append(Reason(ReasonKind.PAUSED, suspension_text(stands), mend))
    elif effective_mode(context.policy, rule) is Mode.OBSERVE:
        text = f"rule {rule.name!r} is {rule.mode} under the global mode {context.policy.mode}"
        reasons.append(Reason(ReasonKind.MODE, text, "set both modes to enforce if acts are wanted"))
    if isinstance(rule, Rule):
        reasons += allocation_reasons(step, rule, context)
        reasons += mps_reasons(step, context.snapshot)
        reasons += companion_reasons(step, rule, context)
        reasons += warning_reasons(step, incident, rule, context)
    if step.stage in _STAGES and _STAGES[step.stage] not in incident.plan.stages:
        text = f"the plan does not list the stage {step.stage}"
        reasons.append(Reason(ReasonKind.MODE, text, "list it under `stages` if it is wanted"))
    settling = context.policy.gates.settling_seconds
    left = context.started_mono + settling - context.now
    if not context.foreground and left > 0:
        text = f"started less than {settling:.0f} s ago: {left:.0f} s of settling are left"
        reasons.append(Reason(ReasonKind.SETTLING, text, "wait"))
    return tuple(reasons)


def _count_reasons(
    step: Step,
    incident: Incident,
    context: GateContext,
    *,
    dry_run: bool,
) -> tuple[Reason, ...]:
    """Return which budgets and cool-downs are spent; an operator's signals are not counted."""
    if step.stage is Stage.RESET:
        if step.force and not _by_rule(step):
            return ()
        gpus = dict.fromkeys(peer for uuid in step.target.gpus for peer in reset_gpus(uuid, context))
        found = (budgets.reset_budget_reasons(uuid, context, dry_run=dry_run) for uuid in gpus)
        host = budgets.host_reset_reasons(context, dry_run=dry_run)
        return (*(reason for reasons in found for reason in reasons), *host)
    if not _by_rule(step):
        by_hand = step.stage is Stage.DRAIN and incident.subject is Subject.NODE
        # A person's dry run asks what would be so: it is held against the real budget, and spends nothing.
        return budgets.drain_budget_reasons(context, dry_run=False) if by_hand else ()
    if step.stage is Stage.DRAIN:
        return (
            *budgets.drain_budget_reasons(context, dry_run=dry_run),
            *budgets.cause_reasons(incident, context, dry_run=dry_run),
        )
    if not budgets.is_first_signal(step, incident, dry_run=dry_run):
        return ()
    cooling = (budgets.gpu_cooldown_reasons(uuid, context) for uuid in step.target.gpus)
    return (
        *budgets.workload_budget_reasons(step, context, dry_run=dry_run),
        *budgets.workload_cooldown_reasons(step, context, dry_run=dry_run),
        *(reason for reasons in cooling for reason in reasons),
    )


def _stage_reasons(step: Step, incident: Incident, context: GateContext) -> tuple[Reason, ...]:
    """Return the refusals of the stage's own gate."""
    match step.stage:
        case Stage.RESET:
            if not step.target.gpus:
                return (Reason(ReasonKind.GPU_UNKNOWN, "the step names no GPU"),)
            targets = frozenset((*step.targets, *incident.processes))
            context = without_own(incident.id, context)
            found = (reset_reasons(uuid, targets, context) for uuid in step.target.gpus)
            return tuple(dict.fromkeys(reason for reasons in found for reason in reasons))
        case Stage.DRAIN:
            return (*_leaving_reasons(context), *_drain_reasons(context))
        case _:
            return ()


def without_own(incident: IncidentId, context: GateContext) -> GateContext:
    """Return the context as one incident must see it: itself is no other incident on its GPU."""
    others: dict[GpuUuid, tuple[IncidentId, ...]] = {
        uuid: tuple(one for one in ids if one != incident) for uuid, ids in context.open_gpus.items()
    }
    return replace(context, open_gpus=others)


def _leaving_reasons(context: GateContext) -> tuple[Reason, ...]:
    drain = context.ledger.drain
    if drain is None or not is_leaving(drain):
        return ()
    text = f"drain request {drain.id} of this node is being taken back: the next one waits until it is gone"
    return (Reason(ReasonKind.DRAIN_LEAVING, text, "reclaimctl status says what it waits for"),)


def _drain_reasons(context: GateContext) -> tuple[Reason, ...]:
    reason = context.drain_reason
    mend = "a person looks at the node"
    if reason is None:
        text = "nothing that happened here is a reason to drain the node"
        return (Reason(ReasonKind.NO_DRAIN_REASON, text, mend),)
    if reason.code is DrainCode.BY_HAND:
        return ()
    if reason.domain not in context.policy.drain.fault_domains:
        text = f"the fault lies with the {reason.domain}, and the policy drains not for that: {reason.text}"
        return (Reason(ReasonKind.NO_DRAIN_REASON, text, mend),)
    return ()
