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
    WARN = "warn"
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
    LINGERING = "lingering"
    USER_LIMIT = "user_limit"
    MINER = "miner"
    HIDDEN = "hidden"
    ORPHAN = "orphan"
    FAULT = "fault"


class Per(StrEnum):
    """Over which processes a memory rule sums."""

    PROCESS = "process"
    WORKLOAD = "workload"
    USER = "user"


ONLY_TOLD = frozenset({RuleKind.MINER, RuleKind.HIDDEN, RuleKind.ORPHAN})
"""Kinds that never act: what they show is a sign and no proof. `miner` may warn."""

DEFAULT_STAGES = (ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A cap: bytes, or percent of the GPU's total; exactly one is set."""

    above_bytes: int | None = None
    above_percent: float | None = None


class LabelOperator(StrEnum):
    """How a label is compared, as in a Kubernetes label selector."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One term of a label selector: `app=a` and `app in (a, b)` are IN, `!app` is ABSENT."""

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Minutes of the week in which a rule counts: as crontab(5) has it, all written out.

    A minute belongs to it when its minute, hour and month do and its day does: of the month, or of the
    week (0 is Sunday), or, where both are restricted, either. `zone` is a name of the IANA database.
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Selector:
    """Which holders a rule concerns: every field that is not empty must hold.

    `cmdline` are RE2 patterns searched in the arguments joined by spaces; `cgroup` are fnmatch
    globs on the whole cgroup path; `exe` are absolute paths or globs; `uids` are inclusive ranges.
    `groups` are names of groups that the process is in (real or supplementary). `sha256` are hex digests
    of the program's file. `units`, `namespaces`, `partitions`, `accounts` and `models` (of the GPU) are
    fnmatch globs; `runtimes` the words of `Workload.runtime`; `labels` terms on the pod's labels that must
    all hold. `mig`: whether the GPU is in MIG mode. A name alone proves nothing: the evaluation notes which
    fields decided.
    """

    users: tuple[str, ...] = ()
    uids: tuple[tuple[int, int], ...] = ()
    groups: tuple[str, ...] = ()
    exe: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()
    cmdline: tuple[str, ...] = ()
    unit: tuple[str, ...] = ()
    cgroup: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    labels: tuple[LabelTerm, ...] = ()
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    mig: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is selected."""
        return self == _EVERYONE


_EVERYONE = Selector()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about holders; all its conditions must hold, rules are alternatives.

    What it needs goes by its kind: `memory` `above` (with `span` and `per`), `memory_growth`
    `growth_bytes_per_second` over `window_seconds`, `age` `older_than_seconds`, `idle` `idle_percent`
    over `window_seconds`; `unallocated` has `pod_shares`, `static_pods`, `outside_pods` and `outside_jobs`,
    which `model.allocation.AllocationTerms` explains. `older_than_seconds` may stand in growth and idle rules
    too: a younger process is none of their business. Of several holders the one with the higher
    `priority` goes first, then whom `avoid` does not name, then the largest excess. `sigterm_seconds` and
    `sigkill_seconds` of None take the ladder's.

    `user_limit` has `gpus_at_most`: a user who holds more GPUs loses the youngest holders. `miner` has
    `score`. `windows`: outside all of them the rule does not hold; none is always. `warn_before_seconds`:
    the owner is warned, and this long nothing else follows; a warning that could not be delivered is
    followed by nothing at all. `large_jobs`: it may also act on members of large workloads
    (`GateSettings.spare_jobs_over_gpus`). `enforce_on_percent`: below 100 it enforces on that share of the
    hosts, and the others stay in dry run (`Policy.enforces_here`).
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
    outside_jobs: bool = False
    gpus_at_most: int | None = None
    score: float = 1.0
    windows: tuple[TimeWindow, ...] = ()
    warn_before_seconds: float | None = None
    large_jobs: bool = False
    enforce_on_percent: float = 100.0

    @property
    def sums(self) -> bool:
        """Tell whether it is about several processes together."""
        sums_memory = self.kind is RuleKind.MEMORY and self.per is not Per.PROCESS
        return sums_memory or self.kind is RuleKind.USER_LIMIT


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
    enforce_on_percent: float = 100.0
