"""What the kernel shows of tasks that leave, wait or spin, and what we make of it."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.policy import Signature as Signature  # noqa: PLC0414  # a word of this page too
from reclaimerd.model.reading import Reading


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of /proc/PID/task/TID/stack: the function, and its module ("" is the kernel itself).

    `reliable` is false for lines that the unwinder marked with a question mark.
    """

    symbol: str
    module: str = ""
    reliable: bool = True

    def __str__(self) -> str:
        """Return `symbol [module]`, as the kernel writes it."""
        return f"{self.symbol} [{self.module}]" if self.module else self.symbol


class TaskCondition(StrEnum):
    """What one task is doing, whatever its state letter says."""

    RUNNING = "running"
    BLOCKED = "blocked"
    STOPPED = "stopped"
    TRACED = "traced"
    FROZEN = "frozen"
    EXITING = "exiting"
    DUMPING_CORE = "dumping_core"
    ZOMBIE_LEADER = "zombie_leader"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class KernelTask:
    """One thread: stat, switches (status), wchan, and its kernel stack, innermost frame first.

    `frames` is empty in state R (the kernel shows none) and `Unreadable` without CAP_SYS_ADMIN.
    """

    tid: int
    comm: str
    state: str
    flags: int
    cpu_ticks: int
    processor: int
    voluntary_switches: int
    involuntary_switches: int
    kill_pending: bool
    wchan: str
    frames: Reading[tuple[Frame, ...]]


@dataclass(frozen=True, slots=True)
class KernelLook:
    """One process as the kernel shows it: its tasks, and what it still has.

    `tasks` holds at most 256 of them, `task_count` is how many there were, also those beyond that bound.
    `frozen` is decided from cgroup files, `written_bytes` is wchar of /proc/PID/io (a core dump's
    progress), `cgroup_bytes` memory.current or memory.usage_in_bytes of its cgroup.
    """

    ref: ProcessRef
    ppid: int
    comm: str
    tasks: tuple[KernelTask, ...]
    task_count: int
    dumping_core: bool
    tracer_pid: int
    ns_pids: tuple[int, ...]
    resident_bytes: int
    frozen: Reading[bool]
    freezer: str
    written_bytes: Reading[int]
    cgroup_bytes: Reading[int]
    at: float


class Leaving(StrEnum):
    """What an exit, or a wait in the kernel, amounts to over several looks."""

    NOT_LEAVING = "not_leaving"
    PROGRESSING = "progressing"
    STUCK_BLOCKED = "stuck_blocked"
    STUCK_SPINNING = "stuck_spinning"
    NO_RELEASE = "no_release"
    HELD = "held"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class Plight:
    """What we say of one process that leaves or waits, with the evidence for it.

    `since` is when it was first seen so (monotonic), `released_at` when it last let go of anything.
    `culprit` is whom it waits for, when that can be told. `text` is for people.
    """

    ref: ProcessRef
    condition: TaskCondition
    leaving: Leaving
    since: float
    released_at: float
    looks: int
    text: str
    signature: str = ""
    fault_domain: FaultDomain = FaultDomain.UNKNOWN
    culprit: ProcessRef | None = None
    evidence: tuple[str, ...] = ()
