"""The form of the settings in the policy file that bind every rule; each default is the model's.

What stands under `description` goes to editors (`policy schema`) and into docs/policy.md.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, with_config

from reclaimerd.config.value_kinds import (
    AbsolutePath,
    Count,
    Duration,
    FileSize,
    HookPath,
    Interval,
    ModeWord,
    Percent,
    PositiveCount,
    PositiveDuration,
    ServiceName,
)
from reclaimerd.model.policy import Policy

CLOSED = ConfigDict(extra="forbid")
_POLICY = Policy()
_LADDER = _POLICY.ladder
_GATES = _POLICY.gates
_BUDGETS = _POLICY.budgets
_BREAKER = _POLICY.breaker
_WORKERS = _POLICY.workers
_RESET = _POLICY.reset
_AUDIT = _POLICY.audit


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTable:
    """`[daemon]`: how far it may go at all, and how often it looks."""

    mode: Annotated[
        ModeWord,
        Field(description="How far all may go: observe only records, dry-run stops before the last call."),
    ] = _POLICY.mode
    interval_seconds: Annotated[
        Interval,
        Field(
            alias="interval",
            description="Between two passes; at least 200ms. A process that ends brings one early.",
        ),
    ] = _POLICY.interval_seconds
    full_scan_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="full_scan",
            description="How often all descriptors and mappings of the host are searched for holders.",
        ),
    ] = _POLICY.full_scan_seconds
    nvidia_smi: Annotated[
        AbsolutePath,
        Field(description="The vendor's tool, by its whole path: the only supported way to reset a GPU."),
    ] = _POLICY.nvidia_smi


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class LadderTable:
    """`[ladder]`: how long each step waits for its result before the next is due."""

    sigterm_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="sigterm", description="After SIGTERM sent by a rule, unless the rule has its own `grace`."
        ),
    ] = _LADDER.sigterm_seconds
    operator_sigterm_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="operator_sigterm",
            description="After SIGTERM sent by an operator's `kill`, unless --grace says otherwise.",
        ),
    ] = _LADDER.operator_sigterm_seconds
    sigkill_seconds: Annotated[
        PositiveDuration,
        Field(alias="sigkill", description="After SIGKILL, unless the rule has its own `sigkill`."),
    ] = _LADDER.sigkill_seconds
    exit_grace_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="exit_grace",
            description="In the kernel's exit path without progress, before it counts as stuck.",
        ),
    ] = _LADDER.exit_grace_seconds
    core_grace_seconds: Annotated[
        PositiveDuration,
        Field(alias="core_grace", description="A core dump that grows is waited for so long."),
    ] = _LADDER.core_grace_seconds
    proof_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="proof",
            description="The memory may take so long to come back after the last thread is gone.",
        ),
    ] = _LADDER.proof_seconds
    reset_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="reset",
            description="A reset may take so long; past it the tool and the GPU are left alone.",
        ),
    ] = _LADDER.reset_seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class GatesTable:
    """`[gates]`: what binds acts by rule."""

    settling_seconds: Annotated[
        Duration,
        Field(alias="settling", description="No act so long after the daemon's start."),
    ] = _GATES.settling_seconds
    workload_cooldown_seconds: Annotated[
        Duration,
        Field(
            alias="workload_cooldown",
            description="No act on a workload so long after its last incident ended.",
        ),
    ] = _GATES.workload_cooldown_seconds
    gpu_cooldown_seconds: Annotated[
        Duration,
        Field(
            alias="gpu_cooldown", description="No second reset of one GPU so long; it binds operators too."
        ),
    ] = _GATES.gpu_cooldown_seconds
    spare_jobs_over_gpus: Annotated[
        PositiveCount,
        Field(
            description="A workload that holds more GPUs, or may span hosts, is only watched (`large_jobs`)."
        ),
    ] = _GATES.spare_jobs_over_gpus
    hold_files: Annotated[
        tuple[AbsolutePath, ...],
        Field(description="While one of them exists: no act by rule, no reset, no drain request."),
    ] = _GATES.hold_files


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetsTable:
    """`[budgets]`: how much may be done by rule; 0 is never. A job, pod or unit is one workload."""

    workloads_per_window: Annotated[
        Count,
        Field(description="Workloads within `window`."),
    ] = _BUDGETS.workloads_per_window
    window_seconds: Annotated[
        PositiveDuration,
        Field(alias="window", description="The time of `workloads_per_window`."),
    ] = _BUDGETS.window_seconds
    workloads_per_day: Annotated[
        Count,
        Field(description="Workloads in 24 hours."),
    ] = _BUDGETS.workloads_per_day
    resets_per_gpu: Annotated[
        Count,
        Field(description="Resets of one GPU within `reset_window`."),
    ] = _BUDGETS.resets_per_gpu
    reset_window_seconds: Annotated[
        PositiveDuration,
        Field(alias="reset_window", description="The time of `resets_per_gpu`."),
    ] = _BUDGETS.reset_window_seconds
    resets_per_day: Annotated[
        Count,
        Field(description="Resets of the whole host in 24 hours; it binds operators too."),
    ] = _BUDGETS.resets_per_day
    drains_per_day: Annotated[
        Count,
        Field(description="Drain requests in 24 hours."),
    ] = _BUDGETS.drains_per_day


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTable:
    """`[breaker]`: when too much becomes due at once. It trips before acting, and only a person closes it."""

    workloads_per_pass: Annotated[
        PositiveCount,
        Field(description="One pass may make so many workloads newly due."),
    ] = _BREAKER.workloads_per_pass
    gpu_percent: Annotated[
        Percent,
        Field(description="The share of the host's GPUs that newly due holders may hold."),
    ] = _BREAKER.gpu_percent
    gpus_at_least: Annotated[
        PositiveCount,
        Field(description="That share counts only from so many GPUs on."),
    ] = _BREAKER.gpus_at_least
    failed_resets: Annotated[
        PositiveCount,
        Field(description="So many failed resets of one GPU in 24 hours trip that GPU's own breaker."),
    ] = _BREAKER.failed_resets


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersTable:
    """`[workers]`: limits of calls that may hang; they run in children."""

    answer_within_seconds: Annotated[
        PositiveDuration,
        Field(alias="answer_within", description="Past it a reading is unreadable, and the pass goes on."),
    ] = _WORKERS.answer_within_seconds
    hung_after_seconds: Annotated[
        PositiveDuration,
        Field(alias="hung_after", description="Past it the child is killed and left behind."),
    ] = _WORKERS.hung_after_seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTable:
    """`[reset]`: how a GPU is reset; only when nobody uses it."""

    stop_units: Annotated[
        tuple[ServiceName, ...],
        Field(description="Services that use the driver and are ours to stop for it and to start again."),
    ] = _RESET.stop_units
    unit_seconds: Annotated[
        PositiveDuration,
        Field(alias="unit_timeout", description="One of them may take so long to stop or to start."),
    ] = _RESET.unit_seconds
    verify_seconds: Annotated[
        PositiveDuration,
        Field(alias="verify", description="The GPU may take so long until it is back and shown to be well."),
    ] = _RESET.verify_seconds
    peers: Annotated[
        StrictBool,
        Field(description="true: GPUs that can only be reset together are, when all of them are free."),
    ] = _RESET.peers
    fence_hook: Annotated[
        HookPath,
        Field(description='A program of root\'s that asks the scheduler to keep this host free; "" is none.'),
    ] = _RESET.fence_hook


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTable:
    """`[audit]`: the log of all acts."""

    file_bytes: Annotated[
        FileSize,
        Field(
            alias="file_size", description="It turns to a new file at this size; the chain of hashes goes on."
        ),
    ] = _AUDIT.file_bytes
    keep_files: Annotated[
        PositiveCount,
        Field(description="So many old files stay."),
    ] = _AUDIT.keep_files
    compress: Annotated[
        StrictBool,
        Field(description="Old files are packed with gzip; the review reads them all the same."),
    ] = _AUDIT.compress
    anchor_file: Annotated[
        HookPath,
        Field(
            description='A file that gets the log\'s head with each record, best on another disk; "" is none.'
        ),
    ] = _AUDIT.anchor_file
