"""Everything one look at the host saw, at one instant; nothing in it can be read again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.allocation import AllocationView, ClusterView, Departure, MigDevice, SlurmView
from reclaimerd.model.fault import DeviceEvent, KernelNews
from reclaimerd.model.identity import DeviceNumber, FileIdentity, GpuUuid, ProcessRef
from reclaimerd.model.kernel import KernelLook, Plight
from reclaimerd.model.process import ProcessReading, ProgramSigns
from reclaimerd.model.reading import Absent, Reading, Unreadable
from reclaimerd.model.reset_facts import ResetFacts

NOT_ASKED = Absent("not asked in this look")


class ContextKind(StrEnum):
    """Which of NVML's process lists named a process."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


class RecoveryAction(StrEnum):
    """NVML field 230; UNKNOWN is any value that we have no word for, and fails closed."""

    NONE = "none"
    GPU_RESET = "gpu_reset"
    NODE_REBOOT = "node_reboot"
    DRAIN_P2P = "drain_p2p"
    DRAIN_AND_RESET = "drain_and_reset"
    RECOVER_IMEX_DOMAIN = "recover_imex_domain"
    BUS_RESET = "bus_reset"
    SYSTEM_REBOOT = "system_reboot"
    UNKNOWN = "unknown"


class DriverState(StrEnum):
    """How the driver answers our worker; UNKNOWN is our own trouble (worker stopped, starved or broken)."""

    RESPONSIVE = "responsive"
    SLOW = "slow"
    UNRESPONSIVE = "unresponsive"
    UNKNOWN = "unknown"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """NVML memory info v2, in bytes: `used_bytes` leaves out what the driver reserves."""

    total_bytes: int
    used_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One row of NVML's process lists; instance ids are None outside MIG.

    `sm_percent` is what it used of the GPU since the look before, on average: of its multiprocessors, or
    of its memory, encoder or decoder if that is more. Absent in a look that did not ask.
    """

    pid: int
    used_bytes: Reading[int]
    context: ContextKind
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sm_percent: Reading[int] = NOT_ASKED


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Share of time, in percent, over NVML's last sample period."""

    gpu_percent: int
    memory_percent: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU; a failed call makes one field unreadable and never hides the other GPUs."""

    uuid: GpuUuid
    index: int
    pci_address: str
    minor: int
    name: str
    device: DeviceNumber
    memory: Reading[GpuMemory]
    processes: Reading[tuple[GpuProcess, ...]]
    utilisation: Reading[Utilisation]
    mig: Reading[bool]
    persistence: Reading[bool]
    recovery_action: Reading[RecoveryAction]
    mig_devices: Reading[tuple[MigDevice, ...]] = field(default_factory=lambda: Absent("MIG is off"))


@dataclass(frozen=True, slots=True)
class HostGpus:
    """What one call to the NVML worker saw: all GPUs, and the nodes that belong to none alone.

    `shared_devices` are nvidiactl, nvidia-uvm and the like: whoever holds only these may hold any
    GPU. `simulated_root` is the keeper's pid when the host is a simulation (only its descendants
    count), else None.
    """

    driver_version: str
    gpus: tuple[GpuReading, ...]
    shared_devices: tuple[DeviceNumber, ...]
    simulated_root: int | None = None
    simulated: bool = False
    failures: tuple[str, ...] = ()
    """GPUs whose very identity could not be read, a sentence each: unknown, so never "no holder"."""


@dataclass(frozen=True, slots=True)
class DriverReading:
    """The driver's health as the probe sees it; `since` is monotonic seconds."""

    state: DriverState
    since: float
    why: str = ""
    version: Reading[str] = field(default_factory=lambda: Absent("not read yet"))
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds one GPU, and how that was seen.

    `listed`: NVML names its pid. `node`: it has that GPU's node open or mapped. `shared_node_only`:
    it has only nodes that belong to no GPU alone, so it may hold this one. `heir_of`: a dead listed
    process whose context it inherited (a remembered descendant of the same uid and workload); its
    `used_bytes` are then the listing's. `remembered`: nothing shows it now, but it held the GPU while
    healthy and is exiting or can't be read, so it may still hold it.
    """

    ref: ProcessRef
    gpu: GpuUuid
    listed: bool
    node: bool
    used_bytes: Reading[int]
    shared_node_only: bool = False
    heir_of: ProcessRef | None = None
    remembered: bool = False


@dataclass(frozen=True, slots=True)
class DeadListing:
    """NVML lists a pid that has no live task: evidence, never a target."""

    gpu: GpuUuid
    pid: int
    used_bytes: Reading[int]
    ref: ProcessRef | None = None


@dataclass(frozen=True, slots=True)
class HiddenListing:
    """NVML lists a pid that lives (a signal could reach it) and that /proc does not show: it is hidden."""

    gpu: GpuUuid
    pid: int
    used_bytes: Reading[int]
    why: str


@dataclass(frozen=True, slots=True)
class ScanCoverage:
    """How far the search for holders went.

    `full_at` is the monotonic time of the last whole scan (None: never), `full_now` whether this
    snapshot has one, `skipped` what it did not look at and why.
    """

    full_at: float | None
    full_now: bool
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The host at one instant: `taken_at` in wall-clock seconds, `at` in monotonic seconds."""

    taken_at: float
    at: float
    boot_id: str
    driver: DriverReading
    gpus: tuple[GpuReading, ...]
    processes: Mapping[int, ProcessReading]
    unreadable: Mapping[int, str]
    holders: tuple[Holder, ...]
    dead_listings: tuple[DeadListing, ...]
    scan: ScanCoverage
    exited: frozenset[ProcessRef]
    """Watched processes whose last thread is proven gone (pidfd readable, or nothing but Z and X)."""
    baselines: Mapping[GpuUuid, int] = field(default_factory=dict)
    """Smallest used bytes seen on each GPU since boot while nobody held it."""
    host_files: Mapping[FileIdentity, str] = field(default_factory=dict)
    """Program files of the host's own mount namespace: root's, not writable by others."""
    simulated: bool = False
    kernel: Mapping[int, KernelLook] = field(default_factory=dict)
    """Tasks and stacks of the processes that were sent SIGKILL and still live, by pid."""
    plights: Mapping[ProcessRef, Plight] = field(default_factory=dict)
    """What the mind makes of them over this look and those before; the cycle adds it."""
    reset_facts: ResetFacts | None = None
    """What a reset needs to know besides; read only when one is asked about."""
    kernel_news: KernelNews = field(default_factory=KernelNews)
    device_events: tuple[DeviceEvent, ...] = ()
    frozen: Mapping[int, Reading[bool]] = field(default_factory=dict)
    """Whether each process's cgroups are frozen, by pid; only in a look that asked."""
    allocations: Reading[AllocationView] = field(default_factory=lambda: Absent("no kubelet here"))
    """Which container was given which GPU."""
    slurm: Reading[SlurmView] = field(default_factory=lambda: Absent("no Slurm node here"))
    """Which job was given which GPU, and how long an ended one may take to go."""
    cluster: Reading[ClusterView] = field(default_factory=lambda: Absent("no cluster is asked"))
    """What the cluster's API says of the pods of this node."""
    signs: Mapping[ProcessRef, ProgramSigns] = field(default_factory=dict)
    """What rules that look for miners and hashes need; only in a look that asked."""
    hidden: tuple[HiddenListing, ...] = ()
    departures: tuple[Departure, ...] = ()
    """Which pods and jobs end, and since when, over this look and those before; the cycle adds it."""

    def process(self, ref: ProcessRef) -> ProcessReading | None:
        """Return the reading of exactly this process, or None when it was not seen."""
        found = self.processes.get(ref.pid)
        return found if found is not None and found.ref == ref else None

    def gpu(self, uuid: GpuUuid) -> GpuReading | None:
        """Return the reading of one GPU, or None when it was not seen."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def holders_of(self, uuid: GpuUuid) -> tuple[Holder, ...]:
        """Return everyone who holds this GPU."""
        return tuple(holder for holder in self.holders if holder.gpu == uuid)

    def gpus_of(self, ref: ProcessRef) -> tuple[GpuUuid, ...]:
        """Return the GPUs that this process holds."""
        return tuple(holder.gpu for holder in self.holders if holder.ref == ref)


def unreadable_gpu(gpu: GpuReading, why: str) -> GpuReading:
    """Return a GPU that is known by identity alone."""
    blind = Unreadable(why)
    return GpuReading(
        uuid=gpu.uuid,
        index=gpu.index,
        pci_address=gpu.pci_address,
        minor=gpu.minor,
        name=gpu.name,
        device=gpu.device,
        memory=blind,
        processes=blind,
        utilisation=blind,
        mig=blind,
        persistence=blind,
        recovery_action=blind,
        mig_devices=blind,
    )
