"""What the administrator decided, typed and whole; the file's form is `config`'s business.

Durations are seconds, sizes bytes. The shipped defaults stand here once; the shipped file
repeats them as comments and a test compares the two.
"""

from dataclasses import dataclass, field

from reclaimerd.model.access import AccessSettings
from reclaimerd.model.drain_policy import DrainSettings, FaultDomain
from reclaimerd.model.outlets import AnchorWebhook, MetricsSettings, NotifyTarget
from reclaimerd.model.rules import (
    DEFAULT_STAGES,
    ONLY_TOLD,
    FaultRule,
    GpuSpan,
    LabelOperator,
    LabelTerm,
    ListedStage,
    Mode,
    Per,
    Rule,
    RuleAction,
    RuleKind,
    Scope,
    Selector,
    Threshold,
    TimeWindow,
)

__all__ = [  # what is said of single rules stands in model.rules; the whole policy is one door
    "DEFAULT_STAGES",
    "ONLY_TOLD",
    "AccessSettings",
    "DrainSettings",
    "FaultDomain",
    "FaultRule",
    "GpuSpan",
    "LabelOperator",
    "LabelTerm",
    "ListedStage",
    "Mode",
    "Per",
    "Rule",
    "RuleAction",
    "RuleKind",
    "Scope",
    "Selector",
    "Threshold",
    "TimeWindow",
]


@dataclass(frozen=True, slots=True)
class LadderSettings:
    """How long each step of the ladder waits."""

    sigterm_seconds: float = 300.0
    operator_sigterm_seconds: float = 30.0
    sigkill_seconds: float = 60.0
    exit_grace_seconds: float = 120.0
    core_grace_seconds: float = 600.0
    proof_seconds: float = 10.0
    reset_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What binds acts by rule; `gpu_cooldown_seconds` binds every reset.

    `spare_jobs_over_gpus`: a workload that holds more GPUs, or spans hosts, or may, is only watched.
    """

    settling_seconds: float = 300.0
    workload_cooldown_seconds: float = 300.0
    gpu_cooldown_seconds: float = 1200.0
    spare_jobs_over_gpus: int = 1
    hold_files: tuple[str, ...] = ("/etc/reclaimerd/HOLD", "/run/reclaimerd/HOLD")


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How much may be done by rule; a workload is the unit."""

    workloads_per_window: int = 1
    window_seconds: float = 1800.0
    workloads_per_day: int = 3
    resets_per_gpu: int = 1
    reset_window_seconds: float = 21600.0
    resets_per_day: int = 2
    """Of the whole host."""
    drains_per_day: int = 1


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """What one pass may make newly due before the breaker trips and only a person closes it."""

    workloads_per_pass: int = 1
    gpu_percent: float = 25.0
    gpus_at_least: int = 2
    failed_resets: int = 2
    """Failed resets of one GPU within 24 h that trip that GPU's own breaker."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of one request to a probe worker."""

    answer_within_seconds: float = 5.0
    hung_after_seconds: float = 60.0


_STOP_UNITS = ("nvidia-dcgm.service", "dcgm-exporter.service", "nvsm.service", "nvidia-powerd.service")


@dataclass(frozen=True, slots=True)
class ResetSettings:
    """How a GPU is reset; the tool's own deadline is `ladder.reset_seconds`.

    `stop_units` are the clients of the driver that are ours to stop and start again. `peers`: GPUs that
    can only be reset together may be, when all of them are free. `fence_hook`: a program of root's that
    asks the scheduler to keep this host free and reads it back; "" is none.
    """

    stop_units: tuple[str, ...] = _STOP_UNITS
    unit_seconds: float = 30.0
    verify_seconds: float = 60.0
    peers: bool = False
    fence_hook: str = ""


_RUNTIME_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
)
_SYSTEM_NAMESPACES = (
    "kube-system", "gpu-operator", "nvidia-gpu-operator", "nvidia-device-plugin", "nvidia-dra-driver-gpu",
    "dcgm-exporter",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """Who says which container was given which GPU.

    `kubelet_socket`: the kubelet's pod-resources socket; "" asks nobody. `runtime_sockets`: of them those
    that exist show when a container runtime was started anew, and are asked what pods were made as.
    `system_namespaces`: their pods watch and serve the GPUs, and hold some without a request: no verdict
    against them. The list is read every `refresh_seconds`; older than two of these it says nothing.
    `steady_seconds`: so long after a start of the kubelet or a runtime nobody is convicted.
    """

    kubelet_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    runtime_sockets: tuple[str, ...] = _RUNTIME_SOCKETS
    refresh_seconds: float = 30.0
    steady_seconds: float = 120.0
    system_namespaces: tuple[str, ...] = _SYSTEM_NAMESPACES
    scontrol: str = ""
    """Absolute path of Slurm's scontrol; "" looks where packages put it."""
    slurmd: str = ""
    """Absolute path of slurmd, which tells its GRES (`slurmd -G`); "" looks where packages put it."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """By which credentials the cluster's API is asked, and as which node's.

    `credentials`: "" asks nobody, "in-cluster" is the account of the pod that we run in, else the absolute
    path of a kubeconfig. `node`: this host's name in the cluster, "" is the host name in small letters. One
    reading of the list may take `seconds`.
    """

    credentials: str = ""
    node: str = ""
    refresh_seconds: float = 30.0
    seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class OwnerMarks:
    """Whose own exemption marks count: the annotation of their pod, or the property of their unit.

    `namespaces` are fnmatch globs, `users` names. Empty, the default: nobody's.
    """

    namespaces: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WarnSettings:
    """How the owner of a process is warned: on their terminals, and by a program of root's ("" is none)."""

    terminals: bool = True
    hook: str = ""
    seconds: float = 10.0
    """Limit of one warning over all its ways."""


@dataclass(frozen=True, slots=True)
class MinerSettings:
    """What the administrator knows of miners besides what is built in: program names and SHA-256 digests."""

    names: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Rotation of the audit log; `anchor_file` ("": none) gets the head of each append a second time."""

    file_bytes: int = 64 * 1024 * 1024
    keep_files: int = 64
    compress: bool = True
    anchor_file: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """A place in the kernel where tasks are known to hang; data, from the package's file or the policy's.

    A stack matches when its first frame that is neither scheduler nor lock is one of `symbols` (exact,
    or a prefix that ends in `*`) and, where given, `modules` holds its module. `within` are frames that
    must stand further out (`do_exit`). `kernel_threads` are comm prefixes, for a close that was deferred.
    """

    name: str
    title: str
    meaning: str
    mend: str
    fault_domain: FaultDomain
    symbols: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    kernel_threads: tuple[str, ...] = ()
    issue: str = ""
    forbids_reset: bool = True


@dataclass(frozen=True, slots=True)
class UserProtection:
    """A protection that the administrator adds: every field that is set must hold."""

    name: str
    exe: str = ""
    unit: str = ""
    uids: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole policy; `digest` is the SHA-256 of the file's bytes, or of "built-in"."""

    mode: Mode = Mode.OBSERVE
    interval_seconds: float = 2.0
    full_scan_seconds: float = 60.0
    nvidia_smi: str = "/usr/bin/nvidia-smi"
    ladder: LadderSettings = field(default_factory=LadderSettings)
    gates: GateSettings = field(default_factory=GateSettings)
    budgets: BudgetSettings = field(default_factory=BudgetSettings)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    drain: DrainSettings = field(default_factory=DrainSettings)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    reset: ResetSettings = field(default_factory=ResetSettings)
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    marks: OwnerMarks = field(default_factory=OwnerMarks)
    warn: WarnSettings = field(default_factory=WarnSettings)
    miner: MinerSettings = field(default_factory=MinerSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    anchor_webhook: AnchorWebhook = field(default_factory=AnchorWebhook)
    access: AccessSettings = field(default_factory=AccessSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    notices: tuple[NotifyTarget, ...] = ()
    """Whom people are told by."""
    protections: tuple[UserProtection, ...] = ()
    rules: tuple[Rule, ...] = ()
    fault_rules: tuple[FaultRule, ...] = ()
    signatures: tuple[Signature, ...] = ()
    """The administrator's own, tried before the package's."""
    enforces_here: frozenset[str] = frozenset()
    """Of the rules that enforce on a share of the hosts only, those that do so on this one."""
    digest: str = "built-in"
    source: str = ""
