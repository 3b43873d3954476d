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


class AllocationRuling(StrEnum):
    """What the list says of one process on one GPU; only UNALLOCATED may ever lead to an act.

    LINGERING and ENDING need the owner's own deadline, which only the cluster's API tells.
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
