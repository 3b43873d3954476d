"""How an incident begins: its target named whole, its plan taken from the rule or the operator."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from reclaimerd.judge.evaluate import effective_mode
from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, Incident, Plan, Target
from reclaimerd.model.policy import ListedStage, Mode, Policy, Rule, RuleAction, Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, text_of
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, in both clocks."""

    mono: float
    wall: float


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator asked for one process; `grace` and `timeout` in seconds, None for the policy's."""

    pid: int
    actor: Actor
    start_ticks: int | None = None
    force: bool = False
    dry_run: bool = False
    reason: str = ""
    grace_seconds: float | None = None
    timeout_seconds: float | None = None
    scope: Scope = Scope.PROCESS
    expect_uid: int | None = None
    gpu: GpuUuid | None = None
    """A whole GPU is to be reset: then no process is named and `pid` is 0."""
    node: bool = False
    """This node is to be drained: the same."""

    @property
    def names_process(self) -> bool:
        """Tell whether a process is its target, which a look must be asked about."""
        return self.gpu is None and not self.node


@dataclass(frozen=True, slots=True)
class Consent:
    """What whoever made one call agreed to: how many processes at most, all that goes along counted.

    `shown` is how many were shown before a question was answered, `uids` whose; None where none was asked.
    """

    most: int
    shown: int | None = None
    uids: frozenset[int] | None = None


def new_incident_id(wall: float, token: Callable[[], str] = lambda: secrets.token_hex(3)) -> IncidentId:
    """Return a name that sorts by time and fits into a file name, a label and a drain reason."""
    return IncidentId(f"inc-{int(wall):x}-{token()}")


def new_attempt_id(incident: Incident) -> AttemptId:
    """Return the next attempt's name within its incident."""
    return AttemptId(f"{incident.id}.{len(incident.attempts) + 1}")


def target_of(
    root: ProcessReading, scope: Scope, members: tuple[ProcessRef, ...], snapshot: Snapshot
) -> Target:
    """Return the target: every member by identity, the GPUs they hold, and what they held of each."""
    held: dict[str, int] = {}
    unmeasured = set()
    for holder in snapshot.holders:
        if holder.ref not in members:
            continue
        held.setdefault(holder.gpu, 0)
        if isinstance(holder.used_bytes, Known):
            held[holder.gpu] += holder.used_bytes.value
        else:
            unmeasured.add(holder.gpu)
    gpus = tuple(gpu.uuid for gpu in snapshot.gpus if gpu.uuid in held)
    return Target(
        scope=scope,
        root=root.ref,
        members=members,
        gpus=gpus,
        uid=root.uids[0],
        exe=text_of(root.exe),
        command=" ".join(root.cmdline.value)[:512] if isinstance(root.cmdline, Known) else f"[{root.comm}]",
        workload=root.workload,
        held_bytes=tuple((gpu, held[gpu]) for gpu in gpus),
        unmeasured=tuple(gpu for gpu in gpus if gpu in unmeasured),
    )


def rule_incident(verdict: Verdict, rule: Rule, target: Target, policy: Policy, now: Moment) -> Incident:
    """Return the incident that a rule opens: PENDING, nothing done yet."""
    deciding = next(reason for reason in verdict.reasons if reason.rule == rule.name)
    actor = Actor(ActorKind.RULE, rule.name, policy_digest=policy.digest)
    ladder = policy.ladder
    only_warns = rule.action is RuleAction.WARN
    plan = Plan(
        stages=() if only_warns else rule.stages,
        sigterm_seconds=ladder.sigterm_seconds if rule.sigterm_seconds is None else rule.sigterm_seconds,
        sigkill_seconds=ladder.sigkill_seconds if rule.sigkill_seconds is None else rule.sigkill_seconds,
        exit_grace_seconds=ladder.exit_grace_seconds,
        proof_seconds=ladder.proof_seconds,
        dry_run=effective_mode(policy, rule) is Mode.DRY_RUN,
        warn_seconds=(rule.warn_before_seconds or 0.0) if only_warns else rule.warn_before_seconds,
        only_warns=only_warns,
    )
    return new_incident(actor, deciding.text, target, plan, now)


def operator_incident(order: Order, target: Target, policy: Policy, now: Moment) -> Incident:
    """Return the incident that an operator opens: SIGTERM, and with force SIGKILL after it."""
    plan = operator_plan(order, policy)
    return new_incident(order.actor, order.reason or "an operator asked", target, plan, now)


def operator_plan(order: Order, policy: Policy) -> Plan:
    """Return what an order may do: SIGTERM, and with force SIGKILL; 60 s beyond the grace by default."""
    ladder = policy.ladder
    grace = ladder.operator_sigterm_seconds if order.grace_seconds is None else order.grace_seconds
    timeout = grace + 60.0 if order.timeout_seconds is None else order.timeout_seconds
    stages = (ListedStage.SIGTERM, ListedStage.SIGKILL) if order.force else (ListedStage.SIGTERM,)
    return Plan(
        stages=stages,
        sigterm_seconds=grace,
        sigkill_seconds=ladder.sigkill_seconds,
        exit_grace_seconds=ladder.exit_grace_seconds,
        proof_seconds=ladder.proof_seconds,
        timeout_seconds=timeout,
        dry_run=order.dry_run,
        force=order.force,
    )


def new_incident(actor: Actor, reason: str, target: Target, plan: Plan, now: Moment) -> Incident:
    """Return an incident at its beginning: PENDING, nothing done yet."""
    return Incident(
        id=new_incident_id(now.wall),
        boot_id=target.root.boot_id,
        actor=actor,
        reason=reason,
        target=target,
        plan=plan,
        opened_at=now.wall,
        opened_mono=now.mono,
        stage_mono=now.mono,
    )
