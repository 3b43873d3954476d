"""One process as the workers read it: its tasks, its place in the cgroups, the devices it holds."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import DeviceNumber, FileIdentity, ProcessRef
from reclaimerd.model.reading import Reading

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
class WorkloadNames:
    """What a workload is called by its runtime or scheduler; None is not known, never "none".

    `pod_uid` and a plain `job_id` stand in the cgroup path itself; all else is the runtime's own
    record on disk, or the scheduler's answer. `labels` are bounded: long ones are left out. Only with
    `labels_whole` they are all that the pod has now, as the cluster's API says.
    """

    namespace: str | None = None
    pod: str | None = None
    pod_uid: str | None = None
    container: str | None = None
    image: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    labels_whole: bool = False
    job_id: str | None = None
    user: str | None = None
    partition: str | None = None
    account: str | None = None
    hosts: int | None = None
    """Over how many hosts the job is spread, where its scheduler says."""
    spread_known: bool = False
    """Whether whoever tells `hosts` saw all of a pod's labels and annotations, if only as they were at its
    start: what makes pods one job is set before they start."""
    spare_mark: str = ""
    """The owner's own mark that asks to be spared, as it was found; "" is none. Whose count: `OwnerMarks`."""
    mark_known: bool = False
    """Whether somebody who knows was asked for that mark and answered."""
    grants: tuple[str, ...] = ()
    """How its runtime let it at GPUs, in words: evidence for the record, never a verdict."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The outermost boundary around a process that its cgroup path proves.

    `path` is the cgroup directory of that boundary ("" when there is none), below the hierarchy
    named by `controller` ("" is cgroup v2). `trusted` is false when a directory on the way down is
    not root's: then the names prove nothing (a user can forge them in a delegated subtree), and
    there are no `names`. `runtime` is the word in the path for what made the container (cri-containerd,
    crio, docker, libpod, nerdctl), "" where the path does not say.
    """

    kind: WorkloadKind
    name: str
    path: str = ""
    controller: str = ""
    unit: str = ""
    container_id: str = ""
    trusted: bool = True
    names: WorkloadNames | None = None
    runtime: str = ""

    @property
    def best_name(self) -> str:
        """Return the name that tells most: namespace/pod/container, the job and its user, else `name`."""
        names = self.names
        if names is None:
            return self.name
        if names.namespace is not None and names.pod is not None:
            parts = (names.namespace, names.pod, names.container)
            return "/".join(part for part in parts if part is not None)
        if names.job_id is not None:
            return f"job {names.job_id}" + (f" ({names.user})" if names.user is not None else "")
        return self.name if names.container is None else f"container {names.container}"


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
    gids: tuple[int, ...] = ()
    """Its real group, and its supplementary ones."""

    @property
    def is_released(self) -> bool:
        """Tell whether every task was listed and all are dead: a zombie that waits for its parent."""
        return self.whole and all(task.is_dead for task in self.tasks)

    @property
    def is_leaving(self) -> bool:
        """Tell whether any task is in the exit path: an empty descriptor table then proves nothing."""
        return any(task.is_exiting for task in self.tasks)


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


@dataclass(frozen=True, slots=True)
class Connection:
    """One established TCP connection to another host: the remote end."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class ProgramSigns:
    """What is read of a holder besides, for rules that look for miners; read once in a while, never trusted.

    `io_bytes` is what it read and wrote through calls since its start (/proc/PID/io, rchar and wchar).
    `sha256` is of the program's file. `connections` are those whose sockets it has open itself.
    `ancestors` are the comm names of its parents, the nearest first.
    """

    io_bytes: Reading[int]
    sha256: Reading[str]
    connections: Reading[tuple[Connection, ...]]
    ancestors: tuple[str, ...] = ()
