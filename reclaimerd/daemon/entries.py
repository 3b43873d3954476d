"""The audit entries of a pass: one function for each thing that can happen to an incident."""

from dataclasses import replace

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.drain import NodeDrain
from reclaimerd.model.incident import Actor, Attempt, Incident, Outcome
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.step import GateAnswer, Permit, Reason, Refusal, Step


def opened(
    incident: Incident, root: ProcessReading | None = None, allocations: tuple[str, ...] = ()
) -> AuditEntry:
    """Return the record of an incident's first appearance, with who was given the GPUs.

    Of a root in another pid namespace it names the pids there too: a container's owner knows no other.
    """
    entry = _of(incident, RecordKind.INCIDENT_OPENED, reason=incident.reason)
    inner = root.ns_pids[1:] if root is not None else ()
    pids = tuple(f"pid {pid} in a pid namespace of its own" for pid in inner)
    return replace(entry, evidence=(*pids, *allocations))


def intent(incident: Incident, attempt: Attempt, permit: Permit) -> AuditEntry:
    """Return the record that must be durable before the act."""
    entry = _of(incident, RecordKind.INTENT, reason=incident.reason)
    return replace(
        entry,
        attempt=attempt.id,
        action=attempt.stage.value,
        gates=permit.answers,
        evidence=(*(str(ref) for ref in attempt.targets), *_said(permit.step)),
    )


def _said(step: Step) -> tuple[str, ...]:
    """Return what the owner is told, word by word."""
    return () if step.warning is None else tuple(f"says: {line}" for line in step.warning.lines)


def late_outcome(step: Step, attempt: Attempt, result: Outcome) -> AuditEntry:
    """Return the record of what came of an attempt after its incident was over."""
    return AuditEntry(
        kind=RecordKind.OUTCOME,
        incident=step.incident,
        attempt=attempt.id,
        actor=step.actor,
        action=attempt.stage.value,
        target=step.target,
        reason=result.detail,
        outcome=result,
    )


def outcome(incident: Incident, attempt: Attempt, result: Outcome) -> AuditEntry:
    """Return the record of what came of an attempt; it shares the intent's attempt id."""
    entry = _of(incident, RecordKind.OUTCOME, reason=result.detail)
    return replace(entry, attempt=attempt.id, action=attempt.stage.value, outcome=result)


def refused(incident: Incident, refusal: Refusal) -> AuditEntry:
    """Return the record of a step that the gates refused, with every reason."""
    entry = _of(incident, RecordKind.REFUSED, reason="; ".join(reason.text for reason in refusal.reasons))
    return replace(entry, action=refusal.step.stage.value, refusals=refusal.reasons)


def passed_over(incident: Incident, stage: str, why: str) -> AuditEntry:
    """Return the record of a stage that the incident may not take."""
    return replace(_of(incident, RecordKind.PASSED_OVER, reason=why), action=stage)


def planned(incident: Incident, stage: str, gates_say: tuple[GateAnswer, ...], why: str) -> AuditEntry:
    """Return the record of a later stage of a dry run: what it would do, when, and what its gate says now."""
    return replace(_of(incident, RecordKind.PLANNED, reason=why), action=stage, gates=gates_say)


def ended(incident: Incident) -> AuditEntry:
    """Return the record of an incident's end, with its proof."""
    entry = _of(incident, RecordKind.INCIDENT_ENDED, reason=incident.end_text)
    end = incident.stage.value if incident.handed_to is None else f"{incident.stage} to {incident.handed_to}"
    return replace(entry, end=end, proof=incident.proof)


def late_release(incident: Incident, why: str) -> AuditEntry:
    """Return the record that a target died after its incident was handed over; the end stays."""
    return _of(incident, RecordKind.LATE_RELEASE, reason=why)


def note(incident: Incident, text: str) -> AuditEntry:
    """Return a record that explains, and changes nothing."""
    return _of(incident, RecordKind.NOTE, reason=text)


def of_host(kind: RecordKind, reason: str, actor: Actor | None = None) -> AuditEntry:
    """Return a record that belongs to no incident."""
    return AuditEntry(kind=kind, reason=reason, actor=actor)


def _of(incident: Incident, kind: RecordKind, reason: str) -> AuditEntry:
    return AuditEntry(
        kind=kind, incident=incident.id, actor=incident.actor, target=incident.target, reason=reason
    )


def reset_step(
    run: ResetRun, text: str, evidence: tuple[str, ...] = (), refusals: tuple[Reason, ...] = ()
) -> AuditEntry:
    """Return the record of one step of a reset, by the phase that it stands in."""
    return replace(
        _of_reset(run, RecordKind.RESET_STEP, text),
        action=run.phase.value,
        evidence=evidence,
        refusals=refusals,
    )


def reset_alarm(run: ResetRun, text: str) -> AuditEntry:
    """Return the record that calls a person: something of a reset could not be put right."""
    return replace(_of_reset(run, RecordKind.ALARM, text), action=run.phase.value)


def gpu_breaker_tripped(run: ResetRun, text: str) -> AuditEntry:
    """Return the record that no reset of this GPU follows until a person says so."""
    return _of_reset(run, RecordKind.BREAKER_TRIPPED, text)


def of_drain(drain: NodeDrain, text: str, actor: Actor | None = None) -> AuditEntry:
    """Return the record of one step of this node's drain request, by the phase that it stands in."""
    return AuditEntry(
        kind=RecordKind.DRAIN_STEP,
        incident=drain.request.incident,
        actor=actor,
        action=drain.phase.value,
        reason=text,
    )


def drain_alarm(drain: NodeDrain, text: str) -> AuditEntry:
    """Return the record that calls a person: nobody took this node's drain request."""
    return AuditEntry(
        kind=RecordKind.ALARM, incident=drain.request.incident, action=drain.phase.value, reason=text
    )


def _of_reset(run: ResetRun, kind: RecordKind, reason: str) -> AuditEntry:
    return AuditEntry(kind=kind, incident=run.incident, attempt=run.id, actor=run.actor, reason=reason)
