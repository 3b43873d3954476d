"""What the gates look at besides the step itself; values only, gathered by the cycle before it asks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reclaimerd.judge.protections import Ours
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.drain import DrainReason
from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.incident import Target
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason

_KEYED_KINDS = frozenset(
    {
        WorkloadKind.POD,
        WorkloadKind.CONTAINER,
        WorkloadKind.SLURM_JOB,
        WorkloadKind.NOMAD,
        WorkloadKind.MACHINE,
        WorkloadKind.UNIT,
    },
)


@dataclass(frozen=True, slots=True)
class NewlyDue:
    """One incident whose first signal by rule is due in this pass: its workload and its GPUs."""

    workload_key: str
    gpus: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True)
class GateContext:
    """Everything that binds a step. `now` is monotonic seconds, `wall` wall-clock seconds.

    `judge`: what selectors and protections are asked by. `foreground`: one command without a daemon, which
    has no settling time. `hold_file`: the HOLD file that stands, or "". `record_fault`: why nothing can be
    made durable, or "". `host_namespace`: we see the host's own pids. `newly_due`: all first signals by rule
    of this pass, this step's with them. `drain_reason`: why this incident may ask for a drain, or None.
    `open_gpus`: the open incidents on each GPU; the gates leave out the one that they are asked about.
    `host` is this node's name, and `drain_targets` who would be asked for a drain, by their names.
    """

    policy: Policy
    snapshot: Snapshot
    ledger: Ledger
    now: float
    wall: float
    started_mono: float
    judge: JudgeContext
    foreground: bool = False
    hold_file: str = ""
    record_fault: str = ""
    host_namespace: bool = True
    newly_due: tuple[NewlyDue, ...] = ()
    drain_reason: DrainReason | None = None
    open_gpus: Mapping[GpuUuid, tuple[IncidentId, ...]] = field(default_factory=dict)
    host: str = ""
    drain_targets: tuple[str, ...] = ()
    unsure: Mapping[IncidentId, RuleReason] = field(default_factory=dict)
    """Open incidents whose rule does not ask for an act in this look, with what it says instead."""

    @property
    def ours(self) -> Ours:
        """Return our own processes."""
        return self.judge.ours


def workload_key(target: Target) -> str:
    """Return the name under which budgets and cool-downs count a target.

    A trusted boundary counts as one however many processes it has; a user could forge another's
    boundary, or be blamed for it, so anything else counts by its root process.
    """
    return boundary_key(target.workload) or str(target.root)


def boundary_key(workload: Workload) -> str:
    """Return the name of a boundary that its cgroup proves, or ""."""
    if workload.kind in _KEYED_KINDS and workload.trusted and workload.path:
        return f"{workload.controller}:{workload.path}"
    return ""
