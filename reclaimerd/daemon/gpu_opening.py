"""How an incident begins whose subject is a GPU itself: an operator's reset, or a rule of kind `fault`."""

from dataclasses import replace

from reclaimerd.daemon.opening import Moment, Order, new_incident
from reclaimerd.judge.evaluate import effective_mode
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, Incident, Plan, Subject, Target
from reclaimerd.model.policy import FaultRule, ListedStage, Mode, Policy, Scope
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.snapshot import Snapshot

_ASKED = (ListedStage.RESET, ListedStage.DRAIN)
"""An operator's reset that fails leads to one drain request: a GPU in an unknown state is nobody's to use."""


def gpu_target(uuid: GpuUuid, members: tuple[ProcessRef, ...], snapshot: Snapshot) -> Target:
    """Return a GPU as the target; `members` are the holders that are told to go first, if any."""
    gpu = snapshot.gpu(uuid)
    roots = [snapshot.process(ref) for ref in members]
    root = next((one for one in roots if one is not None), None)
    return Target(
        scope=Scope.PROCESS,
        root=ProcessRef(snapshot.boot_id, 0, 0) if root is None else root.ref,
        members=members,
        gpus=(uuid,),
        uid=0 if root is None else root.uids[0],
        exe="",
        command=f"GPU {'?' if gpu is None else gpu.index} ({uuid})",
        workload=Workload(WorkloadKind.NONE, "no workload") if root is None else root.workload,
        unmeasured=(uuid,),
    )


def ordered_reset(order: Order, uuid: GpuUuid, seen: tuple[Snapshot, Policy], now: Moment) -> Incident:
    """Return the incident of an operator's reset: the gate first, no holder is told to go."""
    snapshot, policy = seen
    plan = _plan(policy, _ASKED, dry_run=order.dry_run, force=order.force)
    reason = order.reason or "an operator asked for a reset"
    return _incident(order.actor, reason, gpu_target(uuid, (), snapshot), plan, now)


def fault_incident(
    rule: FaultRule,
    found: tuple[GpuUuid, str, tuple[ProcessRef, ...]],
    seen: tuple[Snapshot, Policy],
    now: Moment,
) -> Incident:
    """Return the incident that a fault rule opens; `found` is the GPU, why, and who is told to go first."""
    snapshot, policy = seen
    uuid, why, members = found
    actor = Actor(ActorKind.RULE, rule.name, policy_digest=policy.digest)
    dry_run = effective_mode(policy, rule) is Mode.DRY_RUN
    plan = _plan(policy, rule.stages, dry_run=dry_run, force=False, rule=rule)
    return _incident(actor, why, gpu_target(uuid, members, snapshot), plan, now)


def _plan(
    policy: Policy,
    stages: tuple[ListedStage, ...],
    *,
    dry_run: bool,
    force: bool,
    rule: FaultRule | None = None,
) -> Plan:
    ladder = policy.ladder
    term = None if rule is None else rule.sigterm_seconds
    kill = None if rule is None else rule.sigkill_seconds
    return Plan(
        stages=stages,
        sigterm_seconds=ladder.sigterm_seconds if term is None else term,
        sigkill_seconds=ladder.sigkill_seconds if kill is None else kill,
        exit_grace_seconds=ladder.exit_grace_seconds,
        proof_seconds=ladder.proof_seconds,
        dry_run=dry_run,
        force=force,
    )


def _incident(actor: Actor, reason: str, target: Target, plan: Plan, now: Moment) -> Incident:
    return replace(new_incident(actor, reason, target, plan, now), subject=Subject.GPU)
