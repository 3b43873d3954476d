"""One target from first verdict to end: its stage, what was tried, and what proved the end."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.policy import ListedStage, Scope
from reclaimerd.model.process import Workload


class Stage(StrEnum):
    """Where an incident stands: the step that is in force, or its end (the last five)."""

    PENDING = "pending"
    WARNED = "warned"
    SUSPENDED = "suspended"
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"
    RESET = "reset"
    DRAIN = "drain"
    RECLAIMED = "reclaimed"
    UNVERIFIED = "unverified"
    STOOD_DOWN = "stood_down"
    HANDED_OVER = "handed_over"
    EVICTED = "evicted"


ENDS = frozenset(
    {Stage.RECLAIMED, Stage.UNVERIFIED, Stage.STOOD_DOWN, Stage.HANDED_OVER, Stage.EVICTED},
)


class Fact(StrEnum):
    """What happened to an incident; the ladder's table maps (stage, fact) to the next stage."""

    WARNING_DELIVERED = "warning_delivered"
    SUSPENDED = "suspended"
    TERM_SENT = "term_sent"
    KILL_SENT = "kill_sent"
    RESET_TRIED = "reset_tried"
    DRAIN_ASKED = "drain_asked"
    PROVEN = "proven"
    GONE_UNMEASURED = "gone_unmeasured"
    EVICTED = "evicted"
    ENDED_BY_ITSELF = "ended_by_itself"
    VERDICT_WITHDRAWN = "verdict_withdrawn"
    OUT_OF_STEPS = "out_of_steps"
    DRAIN_ACCEPTED = "drain_accepted"


class Recipient(StrEnum):
    """To whom an incident was handed over."""

    SCHEDULER = "scheduler"
    OPERATOR = "operator"
    PERSON = "person"


class ProofKind(StrEnum):
    """How the end was shown; the last is no proof, and the end says so."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    RESET_VERIFIED = "reset_verified"
    RELEASED_UNMEASURED = "released_unmeasured"


@dataclass(frozen=True, slots=True)
class Proof:
    """What showed that the target is gone and its memory back; residuals in bytes by GPU."""

    kind: ProofKind
    text: str
    residual_bytes: tuple[tuple[GpuUuid, int], ...] = ()


class ActorKind(StrEnum):
    """Who asked for an act."""

    RULE = "rule"
    OPERATOR = "operator"
    WATCH = "watch"


class ActorRole(StrEnum):
    """By which right somebody asked; an owner may ask for their own processes alone."""

    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked: a rule with the policy's digest, a person, or our watch.

    Of a person: uid and its name, the uid of their login with its name where it is another (sudo), the
    right by which they asked, and pid and comm of the program that spoke for them. The watch is the
    daemon's own: it only asks for a drain, for a driver that does not answer.
    """

    kind: ActorKind
    name: str
    policy_digest: str = ""
    uid: int | None = None
    loginuid: int | None = None
    pid: int | None = None
    comm: str = ""
    login: str = ""
    role: ActorRole | None = None

    @property
    def is_owner(self) -> bool:
        """Tell whether it may touch nothing but processes of its own uid."""
        return self.role is ActorRole.OWNER


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reclaimed: every member by identity, and the GPUs they hold.

    `held_bytes` is what the members held on each GPU when the incident opened (0 where unreadable,
    with the GPU named in `unmeasured`): evidence, never the proof. `command` is masked.
    """

    scope: Scope
    root: ProcessRef
    members: tuple[ProcessRef, ...]
    gpus: tuple[GpuUuid, ...]
    uid: int
    exe: str
    command: str
    workload: Workload
    held_bytes: tuple[tuple[GpuUuid, int], ...] = ()
    unmeasured: tuple[GpuUuid, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps an incident may take, in order, and how long each waits (seconds).

    `timeout_seconds` bounds the whole (None: the stages alone do). `dry_run` takes the same road
    to the last call. `force` cuts budgets and patience, never a safety check.
    """

    stages: tuple[ListedStage, ...]
    sigterm_seconds: float
    sigkill_seconds: float
    exit_grace_seconds: float
    proof_seconds: float
    timeout_seconds: float | None = None
    dry_run: bool = False
    force: bool = False
    warn_seconds: float | None = None
    """The owner is warned first, and for this long nothing else follows; None: nobody is warned."""
    only_warns: bool = False
    """After the warning it waits until the verdict is withdrawn: no stage follows."""


class Subject(StrEnum):
    """What an incident is about: a process and its kin, the silent driver, a GPU itself, or the node."""

    PROCESS = "process"
    DRIVER = "driver"
    GPU = "gpu"
    NODE = "node"
    """A person asked for the drain of this node; nothing that happened on it did."""


class OutcomeKind(StrEnum):
    """What came of one attempt on one target; UNKNOWN is an attempt cut off by our own death."""

    SENT = "sent"
    ALREADY_GONE = "already_gone"
    NOT_PERMITTED = "not_permitted"
    IDENTITY_CHANGED = "identity_changed"
    WITHHELD = "withheld"
    PASSED_OVER = "passed_over"
    FAILED = "failed"
    DRY_RUN = "dry_run"
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"
    RESET_DONE = "reset_done"
    RESET_REFUSED = "reset_refused"
    RESET_ABANDONED = "reset_abandoned"
    RESET_NOT_VERIFIED = "reset_not_verified"


@dataclass(frozen=True, slots=True)
class TargetOutcome:
    """What came of one attempt for one process."""

    ref: ProcessRef
    kind: OutcomeKind
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt: the gravest of its targets, and each of them."""

    kind: OutcomeKind
    detail: str = ""
    targets: tuple[TargetOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One step that was permitted; `outcome` is None between intent and outcome."""

    id: AttemptId
    stage: Stage
    targets: tuple[ProcessRef, ...]
    intent_at: float
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """What an exiting target still had when last seen; fewer or less than before is progress."""

    tasks: int
    gpu_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class Incident:
    """One target from first verdict to end. Times: `*_at` wall seconds, `*_mono` monotonic of this boot."""

    id: IncidentId
    boot_id: str
    actor: Actor
    reason: str
    target: Target
    plan: Plan
    opened_at: float
    opened_mono: float
    stage: Stage = Stage.PENDING
    stage_mono: float = 0.0
    attempts: tuple[Attempt, ...] = ()
    passed_over: tuple[str, ...] = ()
    ended_at: float | None = None
    proof: Proof | None = None
    handed_to: Recipient | None = None
    end_text: str = ""
    last_refusal: str = ""
    release: Release | None = None
    gone_mono: float | None = None
    """When every member was first seen gone."""
    survivors: tuple[ProcessRef, ...] = field(default=())
    """Heirs that joined the target after it died: remembered descendants that hold its context."""
    subject: Subject = Subject.PROCESS
    joins: int = 0
    """How often heirs joined: each join may restart the stage's clock, a bounded number of times."""
    residual_ok_mono: float | None = None
    """When a shared GPU's memory first added up; a second reading must agree."""
    released_at: float | None = None
    """When the target of a handed-over incident died after all; its end stays what it was."""

    @property
    def ended(self) -> bool:
        """Tell whether the incident has its end."""
        return self.stage in ENDS

    @property
    def processes(self) -> tuple[ProcessRef, ...]:
        """Return every process that must be gone: the members and the heirs that joined."""
        return self.target.members + tuple(ref for ref in self.survivors if ref not in self.target.members)


def newest_acted(incidents: Iterable[Incident | None]) -> Incident | None:
    """Return the incident whose last step is the newest; None where none of them took a step."""
    acted = (one for one in incidents if one is not None and one.attempts)
    return max(acted, key=lambda one: one.attempts[-1].intent_at, default=None)
