"""Turn verdicts and operators' orders into incidents: who becomes a target, and who does not."""

from dataclasses import replace
from functools import partial

from reclaimerd.daemon import entries
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.gpu_opening import ordered_reset
from reclaimerd.daemon.members import members_of, unagreed
from reclaimerd.daemon.node_opening import WAIT_SECONDS, ordered_drain, standing_text
from reclaimerd.daemon.opening import Moment, operator_incident, operator_plan, rule_incident, target_of
from reclaimerd.daemon.resets import only_watches
from reclaimerd.daemon.standing import displace_owners, make_way
from reclaimerd.errors import ExitCode
from reclaimerd.judge.endings import withdrawn
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.unallocated import allocations_for, evidence_lines
from reclaimerd.judge.warnings import only_warned
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Plan, Subject
from reclaimerd.model.policy import ListedStage, Policy, Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling


def open_by_rule(
    draft: Draft,
    evaluation: Evaluation,
    seen: tuple[Snapshot, Policy],
    handed: frozenset[ProcessRef],
    now: Moment,
) -> list[Incident]:
    """Open an incident for each RECLAIM verdict that has none; one that was handed over stays so."""
    snapshot, policy = seen
    fresh: list[Incident] = []
    for verdict in evaluation.verdicts:
        if verdict.ruling is not Ruling.RECLAIM:
            continue
        rule = next((rule for rule in policy.rules if rule.name == verdict.rule), None)
        reading = snapshot.process(verdict.ref)
        if rule is None or reading is None or verdict.ref in handed:
            continue
        make_way(draft, partial(_concerns, ref=verdict.ref), rule, policy, now)
        displace_owners(draft, verdict.ref, rule, policy, now)
        if verdict.ref in _open_refs(draft):
            continue
        members = members_of(reading, rule.scope, snapshot)
        target = target_of(reading, rule.scope, members, snapshot)
        incident = rule_incident(verdict, rule, target, policy, now)
        given = evidence_lines(allocations_for(rule, policy.attribution, reading, target.gpus, snapshot))
        draft.put(incident, [entries.opened(incident, reading, given)])
        fresh.append(incident)
    return fresh


def open_ordered(draft: Draft, tickets: list[Ticket], seen: tuple[Snapshot, Policy], now: Moment) -> None:
    """Open, or join, an incident for each order; an order that has no target gets its end."""
    snapshot, policy = seen
    beyond = unagreed(tickets, snapshot)
    for ticket in tickets:
        if ticket.order.gpu is not None:
            _open_reset(draft, ticket, ticket.order.gpu, seen, now)
            continue
        if ticket.order.node:
            _open_drain(draft, ticket, seen, now)
            continue
        reading = snapshot.processes.get(ticket.order.pid)
        if reading is None or reading.is_released or _is_someone_else(ticket, reading):
            _no_process(draft, ticket, snapshot)
            continue
        other = _other_than_expected(ticket, reading, snapshot) or beyond.get(id(ticket), "")
        if other:
            _decline(draft, ticket, ExitCode.REFUSED, other)
            continue
        if _reaches_beyond_own(ticket, reading, snapshot):
            why = f"pid {ticket.order.pid} or what goes with it is not yours"
            _decline(draft, ticket, ExitCode.NOT_ALLOWED, why)
            continue
        if not snapshot.gpus_of(reading.ref) and not _family_holds(ticket, reading, snapshot):
            _decline(
                draft, ticket, ExitCode.NO_TARGET, f"pid {ticket.order.pid} holds no GPU that can be seen"
            )
            continue
        members = members_of(reading, ticket.order.scope, snapshot, ticket.members)
        existing = next((one for one in draft.incidents.values() if _is_about(one, reading.ref)), None)
        others = () if existing is None else _taken_along(existing, members, snapshot)
        if existing is not None and not _gives_way(draft, ticket, existing, others, now):
            _join(draft, ticket, existing, others, (policy, now))
            continue
        target = target_of(reading, ticket.order.scope, members, snapshot)
        incident = operator_incident(ticket.order, target, policy, now)
        ticket.incident = incident.id
        given = evidence_lines(allocations_for(None, policy.attribution, reading, target.gpus, snapshot))
        draft.put(incident, [entries.opened(incident, reading, given)])


def _open_reset(
    draft: Draft, ticket: Ticket, uuid: GpuUuid, seen: tuple[Snapshot, Policy], now: Moment
) -> None:
    """Open the incident of an ordered reset; two at once on one GPU can't be."""
    if seen[0].gpu(uuid) is None:
        _decline(draft, ticket, ExitCode.NO_TARGET, f"there is no GPU {uuid}")
        return
    open_now = (one for one in draft.incidents.values() if not one.ended and one.subject is Subject.GPU)
    existing = next((one for one in open_now if uuid in one.target.gpus), None)
    if existing is not None and only_watches(existing, seen[1]):
        ended = withdrawn(existing, f"{ticket.order.actor.name} ordered the reset", now.wall)
        draft.put(ended, [entries.ended(ended)])
    elif existing is not None:
        text = f"incident {existing.id} is about this GPU already ({existing.stage}); nothing was added"
        _decline(draft, ticket, ExitCode.REFUSED, text)
        return
    incident = ordered_reset(ticket.order, uuid, seen, now)
    ticket.incident = incident.id
    draft.put(incident, [entries.opened(incident)])


def _open_drain(draft: Draft, ticket: Ticket, seen: tuple[Snapshot, Policy], now: Moment) -> None:
    """Open the incident of a drain by hand; it is waited for a while, and goes on without whoever waits."""
    standing = standing_text(draft)
    if standing:
        _decline(draft, ticket, ExitCode.REFUSED, standing)
        return
    order = ticket.order
    incident = ordered_drain(order, seen, now)
    ticket.incident = incident.id
    ticket.until = now.mono + (WAIT_SECONDS if order.timeout_seconds is None else order.timeout_seconds)
    draft.put(incident, [entries.opened(incident)])


def _open_refs(draft: Draft) -> set[ProcessRef]:
    return {ref for one in draft.incidents.values() if not one.ended for ref in one.processes}


def _concerns(incident: Incident, ref: ProcessRef) -> bool:
    return ref in incident.processes


def _is_about(incident: Incident, ref: ProcessRef) -> bool:
    return not incident.ended and ref in incident.processes


def _is_someone_else(ticket: Ticket, reading: ProcessReading) -> bool:
    wanted = ticket.order.start_ticks
    return wanted is not None and reading.ref.start_ticks != wanted


def _reaches_beyond_own(ticket: Ticket, reading: ProcessReading, snapshot: Snapshot) -> bool:
    """Tell whether an owner's order would touch a process that is not theirs by all four uids."""
    actor = ticket.order.actor
    if not actor.is_owner:
        return False
    members = members_of(reading, ticket.order.scope, snapshot, ticket.members)
    seen = [snapshot.process(ref) for ref in members]
    return any(one is None or set(one.uids) != {actor.uid} for one in seen)


def _other_than_expected(ticket: Ticket, reading: ProcessReading, snapshot: Snapshot) -> str:
    """Return who of those that an order would touch is not of the user that it expects, or ""."""
    uid = ticket.order.expect_uid
    if uid is None:
        return ""
    for ref in members_of(reading, ticket.order.scope, snapshot, ticket.members):
        one = snapshot.process(ref)
        if one is None or one.uids[0] != uid:
            whose = "belongs to a uid that can't be told" if one is None else f"belongs to uid {one.uids[0]}"
            return f"pid {ref.pid} {whose}, not to the expected {uid}"
    return ""


def _family_holds(ticket: Ticket, reading: ProcessReading, snapshot: Snapshot) -> bool:
    if ticket.order.scope is Scope.PROCESS:
        return False
    members = members_of(reading, ticket.order.scope, snapshot, ticket.members)
    return any(snapshot.gpus_of(ref) for ref in members)


def _no_process(draft: Draft, ticket: Ticket, snapshot: Snapshot) -> None:
    pid = ticket.order.pid
    if pid in snapshot.unreadable:
        _decline(draft, ticket, ExitCode.REFUSED, f"pid {pid} can't be read: {snapshot.unreadable[pid]}")
        return
    listing = next((one for one in snapshot.dead_listings if one.pid == pid), None)
    if listing is None:
        wanted = ticket.order.start_ticks
        text = f"there is no process {pid}" if wanted is None else f"there is no process {pid}@{wanted}"
        _decline(draft, ticket, ExitCode.NO_TARGET, text)
        return
    living = [str(one.ref) for one in snapshot.holders_of(listing.gpu) if one.node or one.remembered]
    if living:
        pids = " ".join(f"--pid {ref}" for ref in living)
        mend = f"its context lives on in {', '.join(living)}: reclaimctl kill {pids}"
    else:
        mend = "nobody is seen to hold its context: see reclaimctl ps"
    _decline(draft, ticket, ExitCode.NO_TARGET, f"pid {pid} is dead, though NVML lists it; {mend}")


def _decline(draft: Draft, ticket: Ticket, code: ExitCode, text: str) -> None:
    draft.note(entries.of_host(RecordKind.REFUSED, text, ticket.order.actor))
    ticket.finish(code, text)


def _taken_along(
    incident: Incident, members: tuple[ProcessRef, ...], snapshot: Snapshot
) -> tuple[ProcessRef, ...]:
    """Return the living processes of an incident that are none of those whom an order names."""
    return tuple(ref for ref in incident.processes if ref not in members and ref not in snapshot.exited)


def _gives_way(
    draft: Draft, ticket: Ticket, incident: Incident, others: tuple[ProcessRef, ...], now: Moment
) -> bool:
    """Stand down what a rule only opened and takes `others` along: a person's right must not end those."""
    order = ticket.order
    idle = incident.actor.kind is ActorKind.RULE and only_warned(incident)
    if not (others and idle) or order.dry_run or order.actor.is_owner:
        return False
    ended = withdrawn(incident, f"{order.actor.name} ordered less than it takes along", now.wall)
    draft.put(ended, [entries.ended(ended)])
    return True


def _join(
    draft: Draft,
    ticket: Ticket,
    incident: Incident,
    others: tuple[ProcessRef, ...],
    seen: tuple[Policy, Moment],
) -> None:
    """Let an order follow the open incident of the same process, and have what it asks for beyond that.

    A rule's incident becomes the operator's when the rule did nothing yet or force is asked for: what
    binds rules (settling, HOLD, budgets) must not hold up a person. Signals that were sent stay sent.
    """
    order, (policy, now) = ticket.order, seen
    own_order = incident.actor.is_owner and incident.actor.uid == order.actor.uid
    if order.actor.is_owner and not own_order:
        text = f"incident {incident.id} is open for it already ({incident.stage}), and it is not yours"
        _decline(draft, ticket, ExitCode.REFUSED, text)
        return
    if order.dry_run:
        text = f"incident {incident.id} is open for it already ({incident.stage}); dry run changes nothing"
        _decline(draft, ticket, ExitCode.OK, text)
        return
    if order.force and others:
        named = ", ".join(str(ref.pid) for ref in others)
        text = f"incident {incident.id} is open for it already ({incident.stage}) and takes along pid {named}"
        _decline(draft, ticket, ExitCode.REFUSED, f"{text}: --force must name them too (--scope), or wait")
        return
    ticket.incident = incident.id
    own = operator_plan(order, policy)
    ticket.until = now.mono + own.timeout_seconds if own.timeout_seconds is not None else None
    why = order.reason or "no reason given"
    joined, did = incident, "joined"
    if incident.actor.kind is ActorKind.RULE and (order.force or only_warned(incident)):
        plan = _taken_over(own, incident, now)
        joined = replace(incident, actor=order.actor, plan=plan, last_refusal="")
        did = f"took it over from rule {incident.actor.name}"
    elif order.force:
        joined = replace(incident, plan=_hastened(incident.plan, own))
    draft.put(joined, [entries.note(joined, f"{order.actor.name} {did}: {why}")])


def _taken_over(own: Plan, incident: Incident, now: Moment) -> Plan:
    """Return the operator's plan, with its time counted from now though the incident is older."""
    timeout = own.timeout_seconds
    return replace(
        own, timeout_seconds=None if timeout is None else now.mono - incident.opened_mono + timeout
    )


def _hastened(plan: Plan, own: Plan) -> Plan:
    stages = tuple(stage for stage in ListedStage if stage in plan.stages or stage is ListedStage.SIGKILL)
    grace = min(plan.sigterm_seconds, own.sigterm_seconds)
    return replace(plan, stages=stages, sigterm_seconds=grace, force=True)
