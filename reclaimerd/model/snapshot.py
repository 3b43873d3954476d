"""Everything one look at the host saw, at one instant; nothing in it can be read again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.identity import DeviceNumber, FileIdentity, GpuUuid, ProcessRef
from reclaimerd.model.kernel import KernelLook, Plight
from reclaimerd.model.reading import Absent, Reading, Unreadable

PF_EXITING = 0x4
"""Set at the start of do_exit (include/linux/sched.h)."""
PF_POSTCOREDUMP = 0x8
"""The task has passed its core dump and is on its way out; set before PF_EXITING shows."""
PF_DUMPCORE = 0x200
"""The task is writing a core."""
PF_KTHREAD = 0x200000
"""A kernel thread."""
DEAD_STATES = frozenset("ZXx")
"""State letters of a task that holds nothing any more (proc(5) stat, field 3)."""


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
    """One row of NVML's process lists; instance ids are None outside MIG."""

    pid: int
    used_bytes: Reading[int]
    context: ContextKind
    gpu_instance: int | None = None
    compute_instance: int | None = None


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
class TaskReading:
    """One thread: state letter, flags and CPU ticks from /proc/PID/task/TID/stat."""

    tid: int
    state: str
    flags: int
    cpu_ticks: int

    @property
    def is_dead(self) -> bool:
        """Tell whether the task holds nothing any more: it waits at most to be reaped."""
        return self.state in DEAD_STATES

    @property
    def is_exiting(self) -> bool:
        """Tell whether the task is in the exit path, in whatever state letter, and not yet dead."""
        return not self.is_dead and bool(self.flags & (PF_EXITING | PF_POSTCOREDUMP))


class WorkloadKind(StrEnum):
    """What kind of boundary the cgroup path shows, outermost first."""

    POD = "pod"
    CONTAINER = "container"
    SLURM_JOB = "slurm_job"
    NOMAD = "nomad_alloc"
    MACHINE = "machine"
    UNIT = "unit"
    SESSION = "session"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Workload:
    """The outermost boundary around a process that its cgroup path proves.

    `path` is the cgroup directory of that boundary ("" when there is none), below the hierarchy
    named by `controller` ("" is cgroup v2). `trusted` is false when a directory on the way down is
    not root's: then the names prove nothing (a user can forge them in a delegated subtree).
    """

    kind: WorkloadKind
    name: str
    path: str = ""
    controller: str = ""
    unit: str = ""
    container_id: str = ""
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process. `tasks` holds the leader alone while `whole` is false (a healthy holder).

    `age_seconds` counts from its start; `uids` are real, effective, saved, filesystem;
    `ns_pids` are its pids from our namespace inward (status, NSpid).
    """

    ref: ProcessRef
    ppid: int
    uids: tuple[int, int, int, int]
    comm: str
    thread_count: int
    tasks: tuple[TaskReading, ...]
    whole: bool
    kill_pending: bool
    dumping_core: bool
    tracer_pid: int
    ns_pids: tuple[int, ...]
    age_seconds: float
    exe: Reading[str]
    exe_file: Reading[FileIdentity]
    cmdline: Reading[tuple[str, ...]]
    cgroup: str
    workload: Workload
    resident_bytes: int = 0

    @property
    def is_released(self) -> bool:
        """Tell whether every task was listed and all are dead: a zombie that waits for its parent."""
        return self.whole and all(task.is_dead for task in self.tasks)

    @property
    def is_leaving(self) -> bool:
        """Tell whether any task is in the exit path: an empty descriptor table then proves nothing."""
        return any(task.is_exiting for task in self.tasks)


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
    )


@dataclass(frozen=True, slots=True)
class NodeHolding:
    """One device that one process has open or mapped, found by device number."""

    device: DeviceNumber
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """What the procfs worker answers for one pid: the process, and the watched devices it holds.

    `nodes` is unreadable when its descriptors can't be read (they are empty, not unreadable, for a
    task in the exit path: that proves nothing, see `judge.exit_path`).
    """

    reading: ProcessReading
    nodes: Reading[tuple[NodeHolding, ...]]


@dataclass(frozen=True, slots=True)
class ScanRow:
    """One holder found by the full scan."""

    pid: int
    start_ticks: int
    nodes: tuple[NodeHolding, ...]


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What the full scan of all descriptors and mappings found, and what it could not look at."""

    rows: tuple[ScanRow, ...]
    skipped: tuple[str, ...]
    looked_at: int
