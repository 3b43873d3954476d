"""Who was given which GPU: what the kubelet says of its containers, and what that means for one holder.

Words only: `observe` reads the list, `judge.allocation` joins it with a process. The list names pods and
containers, never processes, uids or container ids.
"""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import FileIdentity

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/pgpu")
MIG_RESOURCES = "nvidia.com/mig-"
"""Resource names of the vendor's device plugin (k8s-device-plugin, README)."""


@dataclass(frozen=True, slots=True, order=True)
class AllocatedDevice:
    """One device as the kubelet names it: the resource it was asked for by, and the plugin's own id."""

    resource: str
    id: str


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """One container of the kubelet's list and the GPUs it was given; other devices are left out.

    `claims` are its claims of dynamic resource allocation (`namespace/name`): what they give is not told.
    """

    namespace: str
    pod: str
    container: str
    devices: tuple[AllocatedDevice, ...] = ()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SocketMark:
    """One socket of the kubelet or of a runtime: made anew at each start, so another mark is a restart.

    `age_seconds` counts from its last change (ctime) to the reading.
    """

    path: str
    file: FileIdentity
    changed_ns: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class KubeletAnswer:
    """What the kubelet's worker answers: the list, and the sockets as they were before and after it."""

    containers: tuple[ContainerAllocation, ...]
    sockets: tuple[SocketMark, ...]
    missing: tuple[str, ...] = ()
    """Runtime sockets that are not there."""


@dataclass(frozen=True, slots=True)
class AllocationView:
    """The kubelet's list as it was at `read_at`; times are monotonic seconds.

    `steady_since`: when the kubelet or a runtime was last seen to start. `why` says what makes the list
    unfit to convict anybody by, "" when nothing does. `formerly`: devices that containers had in an earlier
    list and have no more. A pod keeps its devices until it ends, so whoever lost one is ending.
    """

    read_at: float
    containers: tuple[ContainerAllocation, ...]
    steady_since: float
    why: str = ""
    formerly: tuple[ContainerAllocation, ...] = ()

    def of_pod(self, namespace: str, pod: str) -> tuple[ContainerAllocation, ...]:
        """Return the pod's containers in the list; none: the kubelet does not name the pod."""
        return tuple(one for one in self.containers if one.pod == pod and one.namespace == namespace)


@dataclass(frozen=True, slots=True)
class PodState:
    """One pod of this node as the cluster's API has it; times are wall-clock seconds.

    `deletes_at` is the deletion's own deadline (deletionTimestamp, which has the grace in it), None while
    nobody deleted it. `grace_seconds` is the pod's own, `mirror` the hash of a static pod it stands for.
    """

    uid: str
    namespace: str
    name: str
    phase: str
    deletes_at: float | None = None
    grace_seconds: float | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    """Kind and name of its controller, as `Job/train`."""
    mirror: str = ""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What the cluster's worker answers: the whole list, and when it began to ask (wall-clock seconds)."""

    began_at: float
    pods: tuple[PodState, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All pods of this node at `read_at` (monotonic), `read_wall` (wall clock): a whole list or none."""

    read_at: float
    read_wall: float
    pods: tuple[PodState, ...]

    def pod(self, uid: str) -> PodState | None:
        """Return the pod of this UID, or that stands for a static pod of this hash."""
        return next((one for one in self.pods if uid in {one.uid, one.mirror}), None)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job as its controller has it; `ended_at` is wall-clock seconds, None while it runs.

    `gpu_indices` are Slurm's own GRES indices on this node, None where the controller did not say, or where
    the job has shares of GPUs (shard, mps). `uid` is its user's, None where the controller did not say.
    """

    id: str
    state: str
    user: str = ""
    account: str = ""
    partition: str = ""
    hosts: int | None = None
    gpu_indices: tuple[int, ...] | None = None
    ended_at: float | None = None
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class SlurmView:
    """What Slurm says of this node's jobs at `read_at` (monotonic), `read_wall` (wall clock).

    `jobs` are all whose processes were seen here, and all that the controller has on this node. `devices`
    maps Slurm's GRES index to the minor of /dev/nvidiaN; where it could not be read `why` says so. An ended
    job's processes may take `kill_wait_seconds`, and then `unkillable_seconds`, to go.
    """

    read_at: float
    read_wall: float
    jobs: tuple[SlurmJob, ...]
    devices: tuple[tuple[int, int], ...] = ()
    kill_wait_seconds: float = 30.0
    unkillable_seconds: float = 60.0
    why: str = ""
    gone: tuple[str, ...] = ()
    """Job ids that the controller answered it does not know (any more)."""
    unfit: str = ""
    """Why it may be another controller's answer, or an old one: then nobody's end follows from it."""

    def job(self, job_id: str) -> SlurmJob | None:
        """Return the job of this id."""
        return next((one for one in self.jobs if one.id == job_id), None)


class OwnerKind(StrEnum):
    """Whose end is remembered."""

    POD = "pod"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod or a job as its owner last listed it, and since when it ends; remembered over the looks.

    `id` is the pod's UID, or the job's id. `ends_since` (monotonic): when a list first showed it deleted or
    ended, or did not name it any more; None while it runs. `takes_seconds`: how long its owner lets it take
    from then on at most, None where that is not known. `gone`: the newest list does not name it. `listed`:
    some list did, since our start.
    """

    owner: OwnerKind
    id: str
    ends_since: float | None = None
    takes_seconds: float | None = None
    gone: bool = False
    listed: bool = True


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device: an instance of a GPU that has a UUID of its own."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class AllocationTerms:
    """What a rule counts as given, and whom it may convict at all.

    `pod_shares`: what one container of a pod was given counts for all of them. `static_pods`: pods that
    the kubelet runs from files, which the API only mirrors. `outside_pods`: processes that belong to no pod.
    """

    pod_shares: bool = True
    static_pods: bool = False
    outside_pods: bool = False
    spared_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods may hold GPUs that they were not given."""
    stale_seconds: float = 60.0
    """An older list convicts nobody, and clears nobody."""
    steady_seconds: float = 120.0
    """A kubelet's list is empty or partial after its start: so long it, and its runtime, must have run."""
    past_deadline_seconds: float = 120.0
    """So long past its owner's own deadline a process counts as lingering; before that it is ending."""
    outside_jobs: bool = False
    """On a Slurm node: processes that belong to no job and no system unit."""


class AllocationRuling(StrEnum):
    """What is known of one process on one GPU; only UNALLOCATED and LINGERING may ever lead to an act.

    ENDING: its pod or job ends, and its owner's own deadline is not past; LINGERING: it is.
    """

    ALLOWED = "allowed"
    UNALLOCATED = "unallocated"
    LINGERING = "lingering"
    ENDING = "ending"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The answer on one process and one GPU, in words with its evidence.

    `exclusive`: it is ALLOWED, and nobody else was given any of this GPU or MIG instance.
    """

    ruling: AllocationRuling
    text: str
    evidence: tuple[str, ...] = ()
    exclusive: bool = False


def may_be_gpu(device: AllocatedDevice) -> bool:
    """Tell whether a device can be a GPU: by its resource's name, or by an id that only GPUs have."""
    name = device.resource
    return name.startswith("nvidia.com/") or device.id.startswith(("GPU-", "MIG-"))
