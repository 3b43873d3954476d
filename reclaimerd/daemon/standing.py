"""What stands from before and must be settled before a pass plans anything new.

A pause or suspension whose time is over, a step that broke off between intent and outcome, an owner's
order that is in a rule's way, and the daemon's own `--dry-run`, which binds everybody.
"""

from collections.abc import Callable
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import under_way
from reclaimerd.daemon.opening import Moment
from reclaimerd.judge.endings import handed_over, may_be_withdrawn, withdrawn
from reclaimerd.judge.evaluate import effective_mode, goes_further, rule_named
from reclaimerd.judge.steps import with_outcome
from reclaimerd.judge.warnings import only_warned
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Outcome, OutcomeKind, Recipient, Stage
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule, RuleAction


def end_pause(draft: Draft, now: Moment) -> float | None:
    """End a pause whose time is over, on record; return when the one that stands ends (monotonic)."""
    pause = draft.ledger.pause
    if pause is None or pause.until is None:
        return None
    if now.wall < pause.until:
        return now.mono + (pause.until - now.wall)
    draft.put_ledger(replace(draft.ledger, pause=None))
    draft.note(entries.of_host(RecordKind.RESUMED, f"time limit: the pause by {pause.by} is over"))
    return None


def end_suspensions(draft: Draft, now: Moment) -> float | None:
    """End each suspension of a rule whose time is over, on record; return when the next one ends."""
    over = [one for one in draft.ledger.suspended if one.until is not None and one.until <= now.wall]
    for one in over:
        text = f"time limit: the suspension of rule {one.rule!r} by {one.by} is over"
        draft.note(replace(entries.of_host(RecordKind.RULE_RESUMED, text), action=one.rule))
    left = tuple(one for one in draft.ledger.suspended if one not in over)
    draft.put_ledger(replace(draft.ledger, suspended=left))
    ends = [now.mono + (one.until - now.wall) for one in left if one.until is not None]
    return min(ends, default=None)


def settle_broken_off(draft: Draft, now: Moment, given: frozenset[AttemptId] = frozenset()) -> None:
    """Give every open attempt of an earlier pass its outcome: unknown, so that no signal is sent again.

    `given`: warnings that are being given, whose outcome is still to come.
    """
    for incident in list(draft.incidents.values()):
        if under_way(incident.id, draft.ledger):
            continue
        why = "the pass broke off after the intent"
        settled, records = with_unknown_outcomes(incident, why, now, given)
        if records:
            draft.put(settled, records)


def with_unknown_outcomes(
    incident: Incident, why: str, now: Moment, given: frozenset[AttemptId] = frozenset()
) -> tuple[Incident, list[AuditEntry]]:
    """Return the incident with UNKNOWN for each attempt that has no outcome, and the records of it."""
    records: list[AuditEntry] = []
    for attempt in incident.attempts:
        if attempt.outcome is None and attempt.id not in given:
            kind = OutcomeKind.DRY_RUN if incident.plan.dry_run else OutcomeKind.UNKNOWN
            again = "it is given again" if attempt.stage is Stage.WARNED else "nothing is sent again"
            settled = Outcome(kind, f"{why}; {again}")
            incident = with_outcome(incident, attempt, settled, now.mono)
            records.append(entries.outcome(incident, attempt, settled))
    return incident, records


def leave_dry_plans(draft: Draft, policy: Policy, now: Moment) -> None:
    """Stand down what was planned dry by a rule that enforces now: it would be judged dry for ever."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    enforcing = {rule.name for rule in rules if effective_mode(policy, rule) is Mode.ENFORCE}
    for incident in list(draft.incidents.values()):
        dry = incident.plan.dry_run and incident.actor.name in enforcing
        if dry and not incident.ended and may_be_withdrawn(incident):
            ended = withdrawn(incident, "it was planned as a dry run, and its rule enforces now", now.wall)
            draft.put(ended, [entries.ended(ended)])


def make_way(
    draft: Draft,
    is_about: Callable[[Incident], bool],
    rule: Rule | FaultRule,
    policy: Policy,
    now: Moment,
) -> None:
    """Stand down what a rule that goes less far has opened and did nothing about: it would stay for ever.

    A rule that only warns goes less far than one that reclaims in the same mode.
    """
    for incident in list(draft.incidents.values()):
        untouched = incident.stage in (Stage.PENDING, Stage.WARNED) and only_warned(incident)
        if incident.ended or not untouched or incident.actor.kind is not ActorKind.RULE:
            continue
        other = rule_named(policy, incident.actor.name)
        if is_about(incident) and other is not None and _outdoes(rule, incident, other, policy):
            ended = withdrawn(incident, f"rule {rule.name} goes further", now.wall)
            draft.put(ended, [entries.ended(ended)])


def displace_owners(
    draft: Draft, ref: ProcessRef, rule: Rule | FaultRule, policy: Policy, now: Moment
) -> None:
    """End what an owner has open about a process that an enforcing rule wants: it must not keep it away."""
    if effective_mode(policy, rule) is not Mode.ENFORCE:
        return
    for incident in list(draft.incidents.values()):
        if incident.ended or not incident.actor.is_owner or ref not in incident.processes:
            continue
        why = f"rule {rule.name} takes it up"
        settled, records = with_unknown_outcomes(incident, why, now)
        ended = handed_over(settled, Recipient.OPERATOR, why, now.wall)
        draft.put(ended, [*records, entries.ended(ended)])


def _outdoes(rule: Rule | FaultRule, incident: Incident, other: Rule | FaultRule, policy: Policy) -> bool:
    if goes_further(rule, other, policy):
        return incident.plan.only_warns or not incident.attempts  # what an owner was told of an act stands
    acts = rule.action is RuleAction.RECLAIM
    return acts and incident.plan.only_warns and not goes_further(other, rule, policy)


def hand_back(draft: Draft, why: str, now: Moment) -> None:
    """End every open incident of operators' where it is: who ordered it went away, and no step may follow."""
    for incident in list(draft.incidents.values()):
        if incident.ended or incident.actor.kind is not ActorKind.OPERATOR:
            continue
        if under_way(incident.id, draft.ledger):  # it goes on without whoever asked for it
            continue
        settled, records = with_unknown_outcomes(incident, why, now)
        ended = handed_over(settled, Recipient.OPERATOR, why, now.wall)
        draft.put(ended, [*records, entries.ended(ended)])


def make_dry(draft: Draft) -> None:
    """Let every open incident take the road of a dry run, whoever asked for it."""
    for incident in list(draft.incidents.values()):
        if not incident.ended and not incident.plan.dry_run:
            draft.put(replace(incident, plan=replace(incident.plan, dry_run=True)))
