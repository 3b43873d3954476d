"""The protocols that join the folders; `daemon.wiring` gives each its implementation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import AttemptId, GpuUuid, ProcessRef
from reclaimerd.model.incident import Incident, Outcome
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reset_facts import GpuFacts
from reclaimerd.model.reset_run import Change
from reclaimerd.model.snapshot import (
    HostGpus,
    Snapshot,
)
from reclaimerd.model.step import Permit, Step


class NvmlPort(Protocol):
    """The NVML calls we use; lives in the nvml worker, real or simulated. Any call may hang."""

    def read_host(self, *, utilisation: bool = False) -> HostGpus:
        """Return every GPU with its readings; one GPU's failure is that GPU's reading.

        With `utilisation` each listed process has its share of the GPU's multiprocessors (2.9 ms a GPU).
        Raises UnsuitableHostError for the wrong package or a driver that is too old, and
        DriverAbsentError when there is no library or driver.
        """
        ...

    def read_reset_facts(self) -> tuple[GpuFacts, ...]:
        """Return what a reset needs to know of every GPU; raises as `read_host` does."""
        ...

    def close(self) -> None:
        """Let go of the driver: an NVML client is a holder."""
        ...


@dataclass(frozen=True, slots=True)
class Look:
    """What the sampler is asked to look at in one pass.

    `watch`: processes of open incidents, whose every task is read. `full_scan`: search all
    descriptors of all processes. `deep`: also io_uring and sockets in flight (before a reset).
    `pids`: further processes that somebody asked about, holders or not. `kernel`: pids whose tasks and
    kernel stacks are wanted. `reset`: read what a reset needs to know besides. `without_driver`: our own
    NVML worker is closed for a reset and must not be started; GPUs are then known by identity alone.
    `utilisation`: what each process uses of its GPU. `freezers`: whether the holders' cgroups are frozen.
    `signs`: what else is read of holders for rules that name hashes or look for miners.
    """

    watch: tuple[ProcessRef, ...] = ()
    pids: tuple[int, ...] = ()
    kernel: tuple[int, ...] = ()
    reset: bool = False
    without_driver: bool = False
    full_scan: bool = False
    deep: bool = False
    utilisation: bool = False
    freezers: bool = False
    signs: bool = False


class SamplerPort(Protocol):
    """Eyes."""

    async def sample(self, look: Look) -> Snapshot:
        """Return one look at the host."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What must be durable together before (or after) an act: incidents, ledger, records."""

    incidents: tuple[Incident, ...] = ()
    ledger: Ledger | None = None
    entries: tuple[AuditEntry, ...] = ()


class RecorderPort(Protocol):
    """Memory: one durable write for many incidents and records."""

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable (store first, then audit, fsynced).

        Raises RecordError when it could not, or not within the writer's limit: then no act follows.
        """
        ...


@dataclass(frozen=True, slots=True)
class StillRight:
    """The last look before a signal found the same process, unprotected, and nobody said hold."""


@dataclass(frozen=True, slots=True)
class NoLongerRight:
    """The last look found something else; `changed` is true when it is not the same process."""

    why: str
    changed: bool = False


LastLook = StillRight | NoLongerRight


class LookAgainPort(Protocol):
    """What `act` must look at again at the last moment, handed to it by `wiring`."""

    async def __call__(self, step: Step, ref: ProcessRef) -> LastLook:
        """Compare start ticks, program, uid, cgroup, protections and hold files once more."""
        ...


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """The vendor's tool ended: its exit code (negative: minus the signal), and what it printed, cut."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolRuns:
    """It has not ended; `evidence` is its kernel stack where that could be read.

    `began_at`: monotonic seconds at which it had been started, where the answer is that of `start`.
    """

    ref: ProcessRef
    evidence: str = ""
    began_at: float | None = None


@dataclass(frozen=True, slots=True)
class ToolNeverRan:
    """It did not start, and from now on it never will under this name: nothing was reset."""

    why: str


@dataclass(frozen=True, slots=True)
class ToolVanished:
    """It started, it is gone, and nobody knows how it ended."""

    why: str


@dataclass(frozen=True, slots=True)
class ToolUnknown:
    """What stands of it can't be read: it may run still."""

    why: str


ToolState = ToolEnded | ToolRuns | ToolNeverRan | ToolVanished | ToolUnknown


@dataclass(frozen=True, slots=True)
class ToolWaits:
    """The word was not taken in time, and won't be; what stands ready may be given another."""

    why: str


class ResetToolPort(Protocol):
    """The vendor's reset tool, run outside our cgroup, never signalled, found again after a restart.

    It is made ready first, and runs when it is given the word: so the time from the last look to its
    start is not that of making it ready.
    """

    def fault(self) -> str:
        """Return why it can't be run here, or ""."""
        ...

    async def prepare(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> str:
        """Have it stand ready for these GPUs; return why it does not, or "". It runs by the word only."""
        ...

    async def start(self, run: AttemptId, not_after: float) -> ToolState | ToolWaits:
        """Give the word, which is good until `not_after` (monotonic seconds); it runs once for a run."""
        ...

    async def withdraw(self, run: AttemptId) -> ToolState:
        """Let what stands ready go: ToolNeverRan, unless it has taken the word already."""
        ...

    async def wait(self, run: AttemptId, seconds: float) -> ToolState:
        """Return what became of it, waiting at most so long for its end; claims one that never ran."""
        ...


@dataclass(frozen=True, slots=True)
class ChangeMade:
    """A change was made or undone, and read back."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ChangeFailed:
    """It was not; `why` is a sentence."""

    why: str


class ClientsPort(Protocol):
    """What a reset changes besides the GPU: units, persistence mode, settings, the scheduler's fence."""

    async def make(self, change: Change) -> ChangeMade | ChangeFailed:
        """Make one planned change (stop the unit, persistence off, ask for the fence) within its bound."""
        ...

    async def undo(self, change: Change) -> ChangeMade | ChangeFailed:
        """Put back what was before; doing it twice does no harm."""
        ...

    async def ask_starts(self, changes: Sequence[Change]) -> ChangeMade | ChangeFailed:
        """Ask for the start of each unit among these that ran before, and wait for none; `undo` proves it."""
        ...


class DriverGripPort(Protocol):
    """Our own NVML workers: an NVML client is a holder."""

    async def let_go(self) -> bool:
        """Close them and keep them closed; tell whether none of ours is left."""
        ...

    def take_back(self) -> None:
        """Let them be started again."""
        ...


class ExecutorPort(Protocol):
    """Hands."""

    async def execute(self, permit: Permit) -> Outcome:
        """Perform exactly the permitted step, or take the same road to the last call in dry run."""
        ...

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Perform many permitted steps side by side; outcomes in the same order."""
        ...
