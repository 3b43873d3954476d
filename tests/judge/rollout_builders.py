"""Records as a rule's incidents leave them, and what is made of them."""

from collections.abc import Iterable
from typing import Any

from reclaimerd.judge.rollout_targets import Told
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import (
    Actor,
    ActorKind,
    Outcome,
    OutcomeKind,
    Proof,
    ProofKind,
    Target,
)
from reclaimerd.model.step import GateAnswer, Reason, ReasonKind
from tests.builders import a_process, a_target, a_workload

RULE = Actor(ActorKind.RULE, "over-cap")
PROOF = Proof(ProofKind.EXCLUSIVE, "gone")
Written = tuple[float, AuditEntry]


def whom(pid: int = 100, uid: int = 1000, unit: str = "") -> Target:
    """Return a target with a boundary of its own."""
    workload = a_workload(unit or f"job-{pid}.service")
    return a_target(a_process(pid, uids=(uid,) * 4, workload=workload))


def an_entry(
    kind: RecordKind, target: Target | None = None, incident: str = "inc-1", **more: Any
) -> AuditEntry:
    """Return one record about an incident of the rule."""
    given: dict[str, Any] = {"actor": RULE} | more
    return AuditEntry(kind, IncidentId(incident), target=target or whom(), **given)


def opened(at: float, target: Target | None = None, incident: str = "inc-1") -> Written:
    """Return the record of an incident's beginning."""
    return at, an_entry(RecordKind.INCIDENT_OPENED, target, incident, reason="holds too much")


def refused(at: float, *kinds: ReasonKind, target: Target | None = None, incident: str = "inc-1") -> Written:
    """Return the record of a refusal."""
    reasons = tuple(Reason(kind, f"{kind} says no") for kind in kinds)
    return at, an_entry(RecordKind.REFUSED, target, incident, action="sigterm", refusals=reasons)


def came_of_it(
    at: float,
    kind: OutcomeKind = OutcomeKind.DRY_RUN,
    action: str = "sigterm",
    target: Target | None = None,
    incident: str = "inc-1",
) -> Written:
    """Return the record of an act's outcome."""
    return at, an_entry(RecordKind.OUTCOME, target, incident, action=action, outcome=Outcome(kind))


def planned(
    at: float, stage: str, *gates: str, target: Target | None = None, incident: str = "inc-1"
) -> Written:
    """Return the record of a later stage of a dry run, with the gates' names."""
    answers = tuple(GateAnswer(gate, "says") for gate in gates)
    return at, an_entry(RecordKind.PLANNED, target, incident, action=stage, gates=answers)


def ended(
    at: float,
    end: str = "stood_down",
    proof: Proof | None = None,
    target: Target | None = None,
    incident: str = "inc-1",
) -> Written:
    """Return the record of an incident's end."""
    return at, an_entry(RecordKind.INCIDENT_ENDED, target, incident, end=end, proof=proof)


def told(records: Iterable[Written], only_rule: str = "") -> Told:
    """Return what these records say, taken in this order."""
    found = Told(only_rule)
    for at, entry in records:
        found.take(at, entry)
    return found
