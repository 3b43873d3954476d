"""The protocols that join the folders; `daemon.wiring` gives each its implementation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.incident import Incident, Outcome
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.snapshot import (
    HostGpus,
    Snapshot,
)
from reclaimerd.model.step import DrainRequest, Permit, Step


class NvmlPort(Protocol):
    """The NVML calls we use; lives in the nvml worker, real or simulated. Any call may hang."""

    def read_host(self) -> HostGpus:
        """Return every GPU with its readings; one GPU's failure is that GPU's reading.

        Raises UnsuitableHostError for the wrong package or a driver that is too old, and
        DriverAbsentError when there is no library or driver.
        """
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
    kernel stacks are wanted.
    """

    watch: tuple[ProcessRef, ...] = ()
    pids: tuple[int, ...] = ()
    kernel: tuple[int, ...] = ()
    full_scan: bool = False
    deep: bool = False


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


class DrainPort(Protocol):
    """One way to ask that this node be drained; idempotent by incident id."""

    async def request(self, request: DrainRequest) -> Outcome:
        """Ask once; ACCEPTED or FAILED with the cause."""
        ...


class ResetPort(Protocol):
    """The vendor's reset tool."""

    async def reset(self, gpu: GpuUuid) -> Outcome:
        """Run the tool under its deadline; RESET_DONE, RESET_REFUSED, RESET_ABANDONED or FAILED."""
        ...


class ExecutorPort(Protocol):
    """Hands."""

    async def execute(self, permit: Permit) -> Outcome:
        """Perform exactly the permitted step, or take the same road to the last call in dry run."""
        ...

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Perform many permitted steps side by side; outcomes in the same order."""
        ...
