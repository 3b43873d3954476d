"""What the gates count and remember across passes and restarts."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.drain import NodeDrain
from reclaimerd.model.fault import StandingXid
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reset_run import GpuBreaker, ResetPast, ResetRun, Untouchable


class SpendKind(StrEnum):
    """What was spent."""

    WORKLOAD = "workload"
    RESET = "reset"
    DRAIN = "drain"
    CAUSE = "cause"
    """Who was the cause of a drain request: a namespace, an account or a uid."""


@dataclass(frozen=True, slots=True)
class Spend:
    """One use of a budget: `key` is the workload's or GPU's name, `at` wall-clock seconds.

    Dry runs spend from budgets of their own.
    """

    kind: SpendKind
    key: str
    at: float
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A person stopped acts by rule; `until` is wall-clock seconds, None is until resumed."""

    by: str
    reason: str
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Suspension:
    """A person suspended one rule: it only observes; `until` is wall-clock seconds, None is until resumed."""

    rule: str
    by: str
    reason: str
    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Breaker:
    """Tripped: too much became due at once; only a person closes it."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Ended:
    """An incident's end, for the cool-downs; a dry run's end cools down only dry runs."""

    workload_key: str
    gpus: tuple[GpuUuid, ...]
    at: float
    was_reset: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that binds across restarts."""

    spends: tuple[Spend, ...] = ()
    pause: Pause | None = None
    suspended: tuple[Suspension, ...] = ()
    breaker: Breaker | None = None
    ended: tuple[Ended, ...] = ()
    resets: tuple[ResetRun, ...] = ()
    """Resets under way: at most one on a host."""
    past_resets: tuple[ResetPast, ...] = ()
    untouchable: tuple[Untouchable, ...] = ()
    gpu_breakers: tuple[GpuBreaker, ...] = ()
    xids: tuple[StandingXid, ...] = ()
    kernel_seq: int | None = None
    """The last kernel log record that was read, of the boot `kernel_boot`."""
    kernel_boot: str = ""
    drain: NodeDrain | None = None
    """This node's drain request; a node has one at a time."""
