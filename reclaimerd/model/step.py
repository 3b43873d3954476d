"""One step of the ladder, and the gates' answer to it."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Actor, Stage, Target


@dataclass(frozen=True, slots=True)
class OwnerWarning:
    """What the owner of a target is told, sentence by sentence, in our own words.

    For `seconds` after it nothing follows; None: nothing follows at all.
    """

    lines: tuple[str, ...]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """What is due now: one stage for one incident's targets, deepest first."""

    incident: IncidentId
    stage: Stage
    actor: Actor
    target: Target
    targets: tuple[ProcessRef, ...]
    reason: str
    dry_run: bool = False
    force: bool = False
    warning: OwnerWarning | None = None
    """What is said, where the step is a warning."""


class ReasonKind(StrEnum):
    """Why a gate says no. Each has a runbook of the same name under docs/runbooks/."""

    MODE = "mode"
    PAUSED = "paused"
    HOLD = "hold"
    SETTLING = "settling"
    COOL_DOWN = "cool_down"
    BUDGET = "budget"
    BREAKER = "breaker"
    PROTECTED = "protected"
    IDENTITY = "identity"
    RECORD = "record"
    UNDETERMINED = "undetermined"
    WITHDRAWN = "withdrawn"
    WRONG_NAMESPACE = "wrong_namespace"
    HOLDERS = "holders"
    EXIT_PATH = "exit_path"
    UNREADABLE = "unreadable"
    RECOVERY_ACTION = "recovery_action"
    DRIVER_UNRESPONSIVE = "driver_unresponsive"
    MIG = "mig"
    NO_DRAIN_REASON = "no_drain_reason"
    GPU_UNKNOWN = "gpu_unknown"
    LOOKS_PROTECTED = "looks_protected"
    WAITS_FOR_OTHER = "waits_for_other"
    CORE_DUMP = "core_dump"
    DRIVER_BLOCKED = "driver_blocked"
    DEFERRED_CLOSE = "deferred_close"
    KERNEL_CLIENT = "kernel_client"
    CLIENT_UNIT = "client_unit"
    PEERS = "peers"
    GPU_LOST = "gpu_lost"
    NOT_SUPPORTED = "not_supported"
    DRAIN_STATE = "drain_state"
    FENCE = "fence"
    DO_NOT_TOUCH = "do_not_touch"
    RESET_IN_FLIGHT = "reset_in_flight"
    OTHER_INCIDENT = "other_incident"
    DRAIN_LEAVING = "drain_leaving"


@dataclass(frozen=True, slots=True)
class Reason:
    """One refusal: what, who is concerned, the evidence, and how to mend it."""

    kind: ReasonKind
    text: str
    mend: str = ""
    processes: tuple[ProcessRef, ...] = ()
    gpu: GpuUuid | None = None


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """One gate's word on a step that was permitted, for the record."""

    gate: str
    text: str


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to perform exactly this step once; only `judge.gates` makes one."""

    step: Step
    answers: tuple[GateAnswer, ...]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that is not taken, with every reason at once."""

    step: Step
    reasons: tuple[Reason, ...]
