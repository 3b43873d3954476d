"""The form of the policy file: which keys each table has, and what each value may be.

It mirrors `model.policy` key by key and takes every default from there. What one value says about
another is `combinations`' business; who may write the file is `source`'s.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, with_config

from reclaimerd.config.rule_tables import RuleItem
from reclaimerd.config.value_kinds import (
    AbsolutePath,
    Count,
    DomainWord,
    Duration,
    FileSize,
    HookPath,
    Interval,
    ModeWord,
    Name,
    Percent,
    PositiveCount,
    PositiveDuration,
    ServiceName,
    UidRange,
    UnitName,
    Word,
)
from reclaimerd.model.policy import FaultDomain, Policy

_CLOSED = ConfigDict(extra="forbid")
_POLICY = Policy()
_LADDER = _POLICY.ladder
_GATES = _POLICY.gates
_BUDGETS = _POLICY.budgets
_BREAKER = _POLICY.breaker
_DRAIN = _POLICY.drain
_WORKERS = _POLICY.workers
_RESET = _POLICY.reset
_ATTRIBUTION = _POLICY.attribution
_AUDIT = _POLICY.audit
_ACCESS = _POLICY.access


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTable:
    """`[daemon]`."""

    mode: ModeWord = _POLICY.mode
    interval_seconds: Annotated[Interval, Field(alias="interval")] = _POLICY.interval_seconds
    full_scan_seconds: Annotated[PositiveDuration, Field(alias="full_scan")] = _POLICY.full_scan_seconds
    nvidia_smi: AbsolutePath = _POLICY.nvidia_smi


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class LadderTable:
    """`[ladder]`."""

    sigterm_seconds: Annotated[PositiveDuration, Field(alias="sigterm")] = _LADDER.sigterm_seconds
    operator_sigterm_seconds: Annotated[PositiveDuration, Field(alias="operator_sigterm")] = (
        _LADDER.operator_sigterm_seconds
    )
    sigkill_seconds: Annotated[PositiveDuration, Field(alias="sigkill")] = _LADDER.sigkill_seconds
    exit_grace_seconds: Annotated[PositiveDuration, Field(alias="exit_grace")] = _LADDER.exit_grace_seconds
    core_grace_seconds: Annotated[PositiveDuration, Field(alias="core_grace")] = _LADDER.core_grace_seconds
    proof_seconds: Annotated[PositiveDuration, Field(alias="proof")] = _LADDER.proof_seconds
    reset_seconds: Annotated[PositiveDuration, Field(alias="reset")] = _LADDER.reset_seconds


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class GatesTable:
    """`[gates]`."""

    settling_seconds: Annotated[Duration, Field(alias="settling")] = _GATES.settling_seconds
    workload_cooldown_seconds: Annotated[Duration, Field(alias="workload_cooldown")] = (
        _GATES.workload_cooldown_seconds
    )
    gpu_cooldown_seconds: Annotated[Duration, Field(alias="gpu_cooldown")] = _GATES.gpu_cooldown_seconds
    hold_files: tuple[AbsolutePath, ...] = _GATES.hold_files


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsTable:
    """`[budgets]`."""

    workloads_per_window: Count = _BUDGETS.workloads_per_window
    window_seconds: Annotated[PositiveDuration, Field(alias="window")] = _BUDGETS.window_seconds
    workloads_per_day: Count = _BUDGETS.workloads_per_day
    resets_per_gpu: Count = _BUDGETS.resets_per_gpu
    reset_window_seconds: Annotated[PositiveDuration, Field(alias="reset_window")] = (
        _BUDGETS.reset_window_seconds
    )
    resets_per_day: Count = _BUDGETS.resets_per_day
    drains_per_day: Count = _BUDGETS.drains_per_day


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTable:
    """`[breaker]`."""

    workloads_per_pass: PositiveCount = _BREAKER.workloads_per_pass
    gpu_percent: Percent = _BREAKER.gpu_percent
    gpus_at_least: PositiveCount = _BREAKER.gpus_at_least
    failed_resets: PositiveCount = _BREAKER.failed_resets


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTable:
    """`[drain]`."""

    fault_domains: tuple[DomainWord, ...] = _DRAIN.fault_domains
    directory: HookPath = _DRAIN.directory
    driver_alarm_seconds: Annotated[PositiveDuration, Field(alias="driver_alarm")] = (
        _DRAIN.driver_alarm_seconds
    )
    driver_drain_seconds: Annotated[PositiveDuration, Field(alias="driver_drain_after")] = (
        _DRAIN.driver_drain_seconds
    )


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersTable:
    """`[workers]`."""

    answer_within_seconds: Annotated[PositiveDuration, Field(alias="answer_within")] = (
        _WORKERS.answer_within_seconds
    )
    hung_after_seconds: Annotated[PositiveDuration, Field(alias="hung_after")] = _WORKERS.hung_after_seconds


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTable:
    """`[reset]`."""

    stop_units: tuple[ServiceName, ...] = _RESET.stop_units
    unit_seconds: Annotated[PositiveDuration, Field(alias="unit_timeout")] = _RESET.unit_seconds
    verify_seconds: Annotated[PositiveDuration, Field(alias="verify")] = _RESET.verify_seconds
    peers: StrictBool = _RESET.peers
    fence_hook: HookPath = _RESET.fence_hook


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionTable:
    """`[attribution]`."""

    kubelet_socket: HookPath = _ATTRIBUTION.kubelet_socket
    runtime_sockets: tuple[AbsolutePath, ...] = _ATTRIBUTION.runtime_sockets
    refresh_seconds: Annotated[Interval, Field(alias="refresh")] = _ATTRIBUTION.refresh_seconds
    steady_seconds: Annotated[Duration, Field(alias="steady")] = _ATTRIBUTION.steady_seconds
    system_namespaces: tuple[Word, ...] = _ATTRIBUTION.system_namespaces


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTable:
    """`[audit]`."""

    file_bytes: Annotated[FileSize, Field(alias="file_size")] = _AUDIT.file_bytes
    keep_files: PositiveCount = _AUDIT.keep_files


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTable:
    """`[access]`."""

    group: Word = _ACCESS.group
    owner_access: StrictBool = _ACCESS.owner_access


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectTable:
    """`[[protect]]`."""

    name: Name = ""
    exe: AbsolutePath = ""
    unit: UnitName = ""
    uids: tuple[UidRange, ...] = ()


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureTable:
    """`[[signature]]`: a place in the kernel where tasks hang, added to the package's own."""

    name: Name = ""
    title: str = ""
    meaning: str = ""
    mend: str = ""
    fault_domain: DomainWord = FaultDomain.UNKNOWN
    symbols: tuple[Word, ...] = ()
    modules: tuple[Word, ...] = ()
    within: tuple[Word, ...] = ()
    kernel_threads: tuple[Word, ...] = ()
    issue: str = ""
    forbids_reset: StrictBool = True


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """The whole file."""

    daemon: DaemonTable = DaemonTable()
    ladder: LadderTable = LadderTable()
    gates: GatesTable = GatesTable()
    budgets: BudgetsTable = BudgetsTable()
    breaker: BreakerTable = BreakerTable()
    drain: DrainTable = DrainTable()
    workers: WorkersTable = WorkersTable()
    reset: ResetTable = ResetTable()
    attribution: AttributionTable = AttributionTable()
    audit: AuditTable = AuditTable()
    access: AccessTable = AccessTable()
    protect: tuple[ProtectTable, ...] = ()
    signature: tuple[SignatureTable, ...] = ()
    rule: tuple[RuleItem, ...] = ()
