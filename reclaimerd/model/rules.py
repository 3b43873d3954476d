"""What one rule of the policy says: whom it concerns, when it holds, and what it may do."""

from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """How far a rule may go; the global mode caps each rule's own."""

    OBSERVE = "observe"
    DRY_RUN = "dry-run"
    ENFORCE = "enforce"


class Scope(StrEnum):
    """What one incident takes as its target."""

    PROCESS = "process"
    TREE = "tree"
    WORKLOAD = "workload"


class RuleAction(StrEnum):
    """What a rule asks for when it holds."""

    OBSERVE = "observe"
    RECLAIM = "reclaim"


class ListedStage(StrEnum):
    """Stages that a policy may list."""

    SIGTERM = "sigterm"
    SIGKILL = "sigkill"
    RESET = "reset"
    DRAIN = "drain"


class GpuSpan(StrEnum):
    """Over which GPUs a memory rule sums."""

    ONE = "one"
    ALL = "all"


class RuleKind(StrEnum):
    """What a rule is about; `fault` is a kind of its own (`FaultRule`)."""

    MEMORY = "memory"
    MEMORY_GROWTH = "memory_growth"
    AGE = "age"
    IDLE = "idle"
    UNALLOCATED = "unallocated"
    FAULT = "fault"


class Per(StrEnum):
    """Over which processes a memory rule sums."""

    PROCESS = "process"
    WORKLOAD = "workload"
    USER = "user"


DEFAULT_STAGES = (ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A cap: bytes, or percent of the GPU's total; exactly one is set."""

    above_bytes: int | None = None
    above_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Selector:
    """Which holders a rule concerns: every field that is not empty must hold.

    `cmdline` are RE2 patterns searched in the arguments joined by spaces; `cgroup` are fnmatch
    globs on the whole cgroup path; `exe` are absolute paths or globs; `uids` are inclusive ranges.
    A name alone proves nothing: the evaluation notes which fields decided.
    """

    users: tuple[str, ...] = ()
    uids: tuple[tuple[int, int], ...] = ()
    exe: tuple[str, ...] = ()
    cmdline: tuple[str, ...] = ()
    cgroup: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is selected."""
        return not (self.users or self.uids or self.exe or self.cmdline or self.cgroup or self.gpus)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about holders; all its conditions must hold, rules are alternatives.

    What it needs goes by its kind: `memory` `above` (with `span` and `per`), `memory_growth`
    `growth_bytes_per_second` over `window_seconds`, `age` `older_than_seconds`, `idle` `idle_percent`
    over `window_seconds`; `unallocated` has `pod_shares`, `static_pods` and `outside_pods`, which
    `model.allocation.AllocationTerms` explains. `older_than_seconds` may stand in growth and idle rules
    too: a younger process is none of their business. Of several holders the one with the higher
    `priority` goes first, then whom `avoid` does not name, then the largest excess. `sigterm_seconds` and
    `sigkill_seconds` of None take the ladder's.
    """

    name: str
    above: Threshold = field(default_factory=Threshold)
    span: GpuSpan = GpuSpan.ONE
    for_seconds: float = 120.0
    readings: int = 10
    match: Selector = field(default_factory=Selector)
    exempt: Selector = field(default_factory=Selector)
    mode: Mode = Mode.OBSERVE
    action: RuleAction = RuleAction.RECLAIM
    stages: tuple[ListedStage, ...] = DEFAULT_STAGES
    scope: Scope = Scope.PROCESS
    sigterm_seconds: float | None = None
    sigkill_seconds: float | None = None
    even_if_allocated: bool = False
    kind: RuleKind = RuleKind.MEMORY
    per: Per = Per.PROCESS
    growth_bytes_per_second: float | None = None
    idle_percent: float | None = None
    window_seconds: float = 600.0
    older_than_seconds: float | None = None
    avoid: Selector = field(default_factory=Selector)
    priority: int = 0
    pod_shares: bool = True
    static_pods: bool = False
    outside_pods: bool = False

    @property
    def sums(self) -> bool:
        """Tell whether it is about several processes together."""
        return self.kind is RuleKind.MEMORY and self.per is not Per.PROCESS


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One rule of kind `fault`: a GPU whose fault is one of these classes is to be reset.

    `xid_classes` and `recovery_actions` are alternatives; words as the catalogue and NVML field 230 have
    them. `stages` may name sigterm and sigkill: then the holders are told to go first, and only when they
    all belong to one workload.
    """

    name: str
    xid_classes: tuple[str, ...] = ()
    recovery_actions: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    for_seconds: float = 30.0
    mode: Mode = Mode.OBSERVE
    action: RuleAction = RuleAction.RECLAIM
    stages: tuple[ListedStage, ...] = (ListedStage.RESET, ListedStage.DRAIN)
    sigterm_seconds: float | None = None
    sigkill_seconds: float | None = None
    kind: RuleKind = RuleKind.FAULT
