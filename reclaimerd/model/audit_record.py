"""One line of the audit log, before it is numbered and hashed."""

from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Actor, Outcome, Proof, Target
from reclaimerd.model.step import GateAnswer, Reason


class RecordKind(StrEnum):
    """What a record says happened."""

    STARTED = "started"
    STOPPED = "stopped"
    POLICY_LOADED = "policy_loaded"
    INCIDENT_OPENED = "incident_opened"
    INTENT = "intent"
    OUTCOME = "outcome"
    REFUSED = "refused"
    PASSED_OVER = "passed_over"
    INCIDENT_ENDED = "incident_ended"
    LATE_RELEASE = "late_release"
    PLANNED = "planned"
    PAUSED = "paused"
    RESUMED = "resumed"
    RULE_SUSPENDED = "rule_suspended"
    RULE_RESUMED = "rule_resumed"
    BREAKER_TRIPPED = "breaker_tripped"
    BREAKER_CLOSED = "breaker_closed"
    DENIED = "denied"
    ALARM = "alarm"
    NOTE = "note"
    SEALED = "sealed"
    CHAIN_BROKEN = "chain_broken"
    ROTATED = "rotated"
    RESET_STEP = "reset_step"
    XID = "xid"
    DEVICE = "device"
    DRAIN_STEP = "drain_step"
    TALLY = "tally"


@dataclass(frozen=True, slots=True)
class RuleTally:
    """How often one rule was asked about processes that it concerns, or may, and what it said.

    Counts of looks at one process each: `holding` its condition held, `due` it asked for an act, `spared`
    it held for a protected one, `left_alone` for one that it must not take, `undetermined` nobody could
    tell. And how many different processes the last three were, at most 1,000 each.
    """

    rule: str
    looks: int = 0
    holding: int = 0
    due: int = 0
    spared: int = 0
    left_alone: int = 0
    undetermined: int = 0
    spared_processes: int = 0
    left_alone_processes: int = 0
    undetermined_processes: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What the rules said since `since` (wall-clock seconds), in so many looks at the host."""

    since: float
    passes: int
    policy_digest: str
    rules: tuple[RuleTally, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What one record holds; `record.audit` adds schema, sequence, times, boot id and the hashes."""

    kind: RecordKind
    incident: IncidentId | None = None
    attempt: AttemptId | None = None
    actor: Actor | None = None
    action: str = ""
    target: Target | None = None
    reason: str = ""
    gates: tuple[GateAnswer, ...] = ()
    refusals: tuple[Reason, ...] = ()
    outcome: Outcome | None = None
    end: str = ""
    proof: Proof | None = None
    evidence: tuple[str, ...] = field(default=())
    tally: Tally | None = None
