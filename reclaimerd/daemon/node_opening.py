"""How a drain by hand begins: an operator's order about this very node becomes an incident of its own.

No process and no GPU is its target, so nothing that happens on the host ends it. The gates judge it, as any
other drain request; a second one beside the first would only hide who wants what.
"""

from dataclasses import replace

from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.opening import Moment, Order, new_incident
from reclaimerd.judge.drain_steps import is_leaving
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident, Plan, Subject, Target
from reclaimerd.model.policy import ListedStage, Policy, Scope
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.snapshot import Snapshot

WAIT_SECONDS = 60.0
"""How long an order waits until everybody was asked, where it names no time: a fleet may be full long."""


def standing_text(draft: Draft) -> str:
    """Return why no further drain by hand is opened now, or ""."""
    drain = draft.ledger.drain
    if drain is not None and is_leaving(drain):
        # Nobody knows when it is gone: until then the order could not be taken back, and would bind after.
        return f"drain request {drain.id} is being taken back; ask again when it is gone; nothing was added"
    if drain is not None and drain.by_hand:
        return f"drain request {drain.id} has a person's word already; nothing was added"
    for one in draft.incidents.values():
        if one.subject is Subject.NODE and not one.ended:
            return f"incident {one.id} asks for it already ({one.stage}); nothing was added"
    return ""


def ordered_drain(order: Order, seen: tuple[Snapshot, Policy], now: Moment) -> Incident:
    """Return the incident of a drain by hand: PENDING, nothing asked yet."""
    snapshot, policy = seen
    target = Target(
        scope=Scope.PROCESS,
        root=ProcessRef(snapshot.boot_id, 0, 0),
        members=(),
        gpus=(),
        uid=0,
        exe="",
        command="this node",
        workload=Workload(WorkloadKind.NONE, "no workload"),
    )
    ladder = policy.ladder
    plan = Plan(
        stages=(ListedStage.DRAIN,),
        sigterm_seconds=ladder.sigterm_seconds,
        sigkill_seconds=ladder.sigkill_seconds,
        exit_grace_seconds=ladder.exit_grace_seconds,
        proof_seconds=ladder.proof_seconds,
        dry_run=order.dry_run,
    )
    return replace(new_incident(order.actor, order.reason, target, plan, now), subject=Subject.NODE)
