"""Follow the open incidents through one look: progress, heirs, proof, withdrawal, restart."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import under_way
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.resets import in_flight
from reclaimerd.daemon.standing import with_unknown_outcomes
from reclaimerd.judge.endings import may_be_withdrawn, with_finding, withdrawn
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.exit_path import live_tasks
from reclaimerd.judge.ladder import next_stage
from reclaimerd.judge.proof import StillHeld, finding_of, heirs_of
from reclaimerd.judge.steps import with_heirs, with_look
from reclaimerd.judge.warnings import only_warned
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import (
    ActorKind,
    Fact,
    Incident,
    OutcomeKind,
    Proof,
    ProofKind,
    Stage,
    Subject,
)
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling, Verdict

_NO_TARGET = (Subject.DRIVER, Subject.NODE)
"""What has no process to look at."""
_JOINABLE = (Stage.PENDING, Stage.WARNED, Stage.SUSPENDED, Stage.SIGTERM, Stage.SIGKILL)


def follow(draft: Draft, snapshot: Snapshot, evaluation: Evaluation, now: Moment) -> None:
    """Bring every open incident of the draft up to this look."""
    for incident in list(draft.incidents.values()):
        if incident.ended or incident.subject in _NO_TARGET or in_flight(incident.id, draft.ledger):
            continue
        if incident.subject is Subject.GPU:
            draft.put(with_look(incident, snapshot))
            continue
        seen = _with_joined_heirs(draft, with_look(incident, snapshot), snapshot)
        seen = with_finding(seen, snapshot, now.wall)
        if seen.ended:
            draft.put(seen, [entries.ended(seen)])
            continue
        why = withdrawal(seen, snapshot, evaluation)
        if why:
            seen = withdrawn(seen, why, now.wall)
            draft.put(seen, [entries.ended(seen)])
        else:
            draft.put(seen)


def withdrawal(incident: Incident, snapshot: Snapshot, evaluation: Evaluation) -> str:
    """Return why a rule's incident no longer has its reason, "" while it has or nobody can tell."""
    if not may_be_withdrawn(incident):
        return ""
    root = incident.target.root
    reading = snapshot.process(root)
    if reading is None or _ends(reading) or root in snapshot.exited:
        return ""
    verdict = next((one for one in evaluation.verdicts if one.ref == root), None)
    if verdict is None:
        return "it no longer holds a GPU" if snapshot.scan.full_at is not None else ""
    return _withdrawn_by(verdict, incident, evaluation)


def _ends(reading: ProcessReading) -> bool:
    """Tell whether it ends as a whole: what it holds then falls by itself, and withdraws no verdict.

    A thread that ends by itself ends nobody. With the leader, whose descriptors are read, or with a SIGKILL
    pending for the others it may be the whole.
    """
    live = live_tasks(reading)
    leaving = [task for task in live if task.is_exiting]
    leader = any(task.tid == reading.ref.pid for task in leaving)
    return bool(leaving) and (leader or reading.kill_pending or len(leaving) == len(live))


def _withdrawn_by(verdict: Verdict, incident: Incident, evaluation: Evaluation) -> str:
    root = incident.target.root
    if verdict.ruling is Ruling.SPARE:
        return f"it is protected now: {verdict.reasons[0].text}" if verdict.reasons else "it is protected now"
    held_back = evaluation.held_back.get((incident.actor.name, root))
    if held_back is not None:
        return f"its rule holds, but must leave it alone: {held_back.text}"
    holding = any(kept.rule == incident.actor.name and kept.ref == root for kept in evaluation.sustained)
    own = next((reason for reason in verdict.reasons if reason.rule == incident.actor.name), None)
    if holding or (own is not None and own.ruling is Ruling.UNDETERMINED):
        return ""
    return "its rule no longer holds" if own is not None else f"rule {incident.actor.name} is gone"


def late_releases(handed: Mapping[IncidentId, Incident], snapshot: Snapshot) -> list[tuple[Incident, str]]:
    """Return the handed-over incidents whose target died after all, with what was seen."""
    found = []
    for incident in handed.values():
        if incident.subject is not Subject.PROCESS:
            continue
        gone = all(ref in snapshot.exited for ref in incident.processes)
        if not gone:
            continue
        finding = finding_of(incident, snapshot)
        why = finding.why if isinstance(finding, StillHeld) else finding.proof.text
        found.append((incident, f"every process is gone; {why}"))
    return found


def resumed(
    incident: Incident, boot_id: str, ledger: Ledger, now: Moment
) -> tuple[Incident, list[AuditEntry]]:
    """Return a stored incident as a new start must see it, and the records of what changed.

    An attempt that has no outcome becomes UNKNOWN: look again, never resend blindly; but a reset or a
    drain request under way goes on by its own record. An incident of another boot can only end.
    """
    if incident.boot_id != boot_id:
        incident, records = with_unknown_outcomes(
            incident, "the host was booted between intent and outcome", now
        )
        proof = Proof(ProofKind.RELEASED_UNMEASURED, "the host was booted again; nothing was measured")
        ended = replace(
            incident,
            stage=next_stage(incident.stage, Fact.GONE_UNMEASURED),
            ended_at=now.wall,
            proof=proof,
            end_text=proof.text,
        )
        return ended, [*records, entries.ended(ended)]
    if under_way(incident.id, ledger):
        return incident, []
    return with_unknown_outcomes(incident, "we ended between intent and outcome", now)


def _with_joined_heirs(draft: Draft, incident: Incident, snapshot: Snapshot) -> Incident:
    if incident.gone_mono is None or incident.stage not in _JOINABLE or not _inherits(incident):
        return incident
    heirs: tuple[ProcessRef, ...] = tuple(sorted({heir.ref for heir in heirs_of(incident, snapshot)}))
    if not heirs:
        return incident
    joined = with_heirs(incident, heirs, snapshot.at)
    named = ", ".join(str(ref) for ref in heirs)
    verb = "hold" if len(heirs) > 1 else "holds"
    draft.note(entries.note(joined, f"the dead target's context lives on: {named} {verb} it and joins"))
    return joined


def _inherits(incident: Incident) -> bool:
    by_rule = incident.actor.kind is ActorKind.RULE
    return by_rule or incident.target.scope is not Scope.PROCESS


def unsure_of(incidents: Iterable[Incident], evaluation: Evaluation | None) -> dict[IncidentId, RuleReason]:
    """Return the rules' open incidents whose rule asks for no act in this look, and what it says."""
    found: dict[IncidentId, RuleReason] = {}
    for one in incidents:
        if evaluation is None or one.ended or one.actor.kind is not ActorKind.RULE:
            continue
        verdict = evaluation.verdict_of(one.target.root)
        reasons = () if verdict is None else verdict.reasons
        own = next((reason for reason in reasons if reason.rule == one.actor.name), None)
        if own is not None and own.ruling is not Ruling.RECLAIM:
            found[one.id] = own
    return found


def acted(incident: Incident) -> bool:
    """Tell whether this incident did anything that a cool-down must follow: a warning is no act."""
    return not only_warned(incident)


def dry_run(incident: Incident) -> bool:
    """Tell whether every act that this incident attempted was a dry run."""
    acts = (attempt for attempt in incident.attempts if attempt.stage is not Stage.WARNED)
    kinds = [attempt.outcome.kind for attempt in acts if attempt.outcome is not None]
    return bool(kinds) and all(kind is OutcomeKind.DRY_RUN for kind in kinds)
