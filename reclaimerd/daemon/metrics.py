"""The metrics of one moment, from the cycle's state alone: nothing is read of the host, nothing blocks.

What can't be read has no series, and is never zero. Pure but for the HOLD file, which `status` looks for too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from reclaimerd import __version__
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.lately import budget_left
from reclaimerd.daemon.tally import NOTICE_RESULTS, OTHER, RESET_OUTCOMES, Buckets, Tally
from reclaimerd.judge.series import Series
from reclaimerd.judge.staging import is_staged
from reclaimerd.judge.trend import trend_of
from reclaimerd.model.drain import DrainPhase, NodeDrain
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import ENDS, Stage
from reclaimerd.model.kernel import Leaving
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import DriverState, GpuReading, RecoveryAction, Snapshot
from reclaimerd.record.chain import Head

UNKNOWN = "unknown"
STUCK = frozenset({Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING, Leaving.NO_RELEASE})
STAGES = (*(stage for stage in Stage if stage not in ENDS), Stage.HANDED_OVER)
_BUDGETS = {
    "workloads": "workloads_left_today",
    "resets": "resets_left_today",
    "drains": "drains_left_today",
}

Labels = tuple[str, ...]
Values = Mapping[Labels, float]
"""One family's series by the values of its labels."""
Measured = Values | Buckets


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """What the cycle does not know: counts, our own times (Unix), the audit's head, workers left behind.

    `anchored` is the head that a receiver took, `anchor_fault` that one could not be kept elsewhere.
    """

    tally: Tally
    started_at: float
    last_pass_at: float | None = None
    audit_head: Head | None = None
    abandoned: Mapping[str, bool] | None = None
    anchored: Head | None = None
    anchor_fault: bool = False


def metrics_of(cycle: Cycle, facts: MetricFacts) -> Mapping[str, Measured]:
    """Return each metric that has a value now, by its name in `metric_families`."""
    found: dict[str, Measured] = {}
    found |= _of_gpus(cycle)
    found |= _of_host(cycle, facts)
    found |= _of_standing(cycle)
    found |= _of_drain(cycle.state.ledger.drain)
    found |= _of_tally(facts.tally, cycle)
    return {f"reclaimerd_{name}": value for name, value in found.items()}


def _of_gpus(cycle: Cycle) -> Mapping[str, Values]:
    snapshot, ledger = cycle.state.snapshot, cycle.state.ledger
    if snapshot is None:
        return {}
    memory = {gpu.uuid: gpu.memory.value for gpu in snapshot.gpus if isinstance(gpu.memory, Known)}
    rows = {gpu.uuid: gpu.processes.value for gpu in snapshot.gpus if isinstance(gpu.processes, Known)}
    broken = {one.gpu for one in ledger.gpu_breakers}
    untouchable = {uuid for one in ledger.untouchable for uuid in one.gpus}
    return {
        "gpu_memory_used_bytes": {(uuid,): one.used_bytes for uuid, one in memory.items()},
        "gpu_memory_total_bytes": {(uuid,): one.total_bytes for uuid, one in memory.items()},
        "gpu_holders": {
            (gpu.uuid,): len({holder.ref for holder in snapshot.holders_of(gpu.uuid)})
            for gpu in snapshot.gpus
        },
        "gpu_contexts": {(uuid,): len(listed) for uuid, listed in rows.items()},
        "gpu_growth_bytes_per_second": _growth(cycle, snapshot),
        "gpu_recovery_action": _recovery(snapshot.gpus),
        **_xids(ledger),
        "gpu_breaker_open": {(gpu.uuid,): gpu.uuid in broken for gpu in snapshot.gpus},
        "gpu_do_not_touch": {(gpu.uuid,): gpu.uuid in untouchable for gpu in snapshot.gpus},
    }


def _growth(cycle: Cycle, snapshot: Snapshot) -> Values:
    """Return the slopes of each GPU's holders, added up; of several windows the longest that is full."""
    longest: dict[tuple[object, GpuUuid], Series] = {}
    for (ref, gpu, window), series in cycle.state.past.series.items():
        kept = longest.get((ref, gpu))
        if series.is_full and (kept is None or kept.window_seconds < window):
            longest[ref, gpu] = series
    known = {gpu.uuid for gpu in snapshot.gpus}
    found: dict[Labels, float] = {}
    for (_, gpu), series in longest.items():
        trend = trend_of(series, 1.0)
        if trend is not None and gpu in known:
            found[gpu,] = found.get((gpu,), 0.0) + trend.bytes_per_second
    return found


def _recovery(gpus: Iterable[GpuReading]) -> Values:
    return {
        (gpu.uuid, action.value): action is gpu.recovery_action.value
        for gpu in gpus
        if isinstance(gpu.recovery_action, Known)
        for action in RecoveryAction
    }


def _xids(ledger: Ledger) -> Mapping[str, Values]:
    last = {one.gpu: one for one in sorted(ledger.xids, key=lambda one: one.at)}
    return {
        "gpu_last_xid": {(gpu,): one.code for gpu, one in last.items()},
        "gpu_last_xid_timestamp_seconds": {(gpu,): one.at for gpu, one in last.items()},
    }


def _of_host(cycle: Cycle, facts: MetricFacts) -> Mapping[str, Values]:
    state, ledger = cycle.state, cycle.state.ledger
    left = budget_left(cycle.state, cycle.policy.budgets)
    return {
        "build_info": {(__version__,): 1},
        "start_time_seconds": {(): facts.started_at},
        "mode": {(mode.value,): mode is cycle.policy.mode for mode in Mode},
        "dry_run": {(): cycle.joints.dry_run},
        "paused": {(): ledger.pause is not None},
        "hold": {(): bool(cycle.joints.hold_file(cycle.policy))},
        "breaker_open": {(): ledger.breaker is not None},
        "record_fault": {(): bool(state.record_fault)},
        "abandoned_workers": {(role,): left for role, left in (facts.abandoned or {}).items()},
        "last_pass_timestamp_seconds": _alone(facts.last_pass_at),
        "audit_head_sequence": _alone(_number(facts.audit_head)),
        "audit_anchored_sequence": _alone(_number(facts.anchored)),
        "anchor_fault": {(): facts.anchor_fault},
        "suspended_rules": {(): len(ledger.suspended)},
        "staged_rules": _staged(cycle.policy),
        "budget_left": {(kind,): left[key] for kind, key in _BUDGETS.items()},
    }


def _alone(value: float | None) -> Values:
    return {} if value is None else {(): value}


def _number(head: Head | None) -> int | None:
    return None if head is None else head.seq


def _staged(policy: Policy) -> Values:
    """Return how many of the rules with `enforce_on` may enforce on this host, and how many may not."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    here = Counter(rule.name in policy.enforces_here for rule in rules if is_staged(rule))
    return {("yes",): here[True], ("no",): here[False]}


def _of_standing(cycle: Cycle) -> Mapping[str, Values]:
    state, snapshot = cycle.state, cycle.state.snapshot
    stages = Counter(one.stage for one in state.incidents.values() if not one.ended)
    stages[Stage.HANDED_OVER] += len(state.handed)
    found: dict[str, Values] = {"incidents": {(stage.value,): stages[stage] for stage in STAGES}}
    if snapshot is None:
        return found
    driver = snapshot.driver
    silent_since = state.driver_watch.silent_since
    if silent_since is None and driver.state is DriverState.UNRESPONSIVE:
        silent_since = driver.since
    silent = 0.0 if silent_since is None else max(0.0, cycle.joints.clock() - silent_since)
    return found | {
        "driver_state": {(one.value,): one is driver.state for one in DriverState},
        "driver_unresponsive_seconds": {(): silent},
        "stuck_tasks": _stuck(cycle, snapshot),
    }


def _stuck(cycle: Cycle, snapshot: Snapshot) -> Values:
    """Return the stuck processes by a signature of the package or the policy, all others as one."""
    known = {one.name for one in cycle.joints.plight_settings(cycle.policy).signatures}
    found: Counter[str] = Counter({UNKNOWN: 0})
    for plight in snapshot.plights.values():
        if plight.leaving in STUCK:
            name = plight.signature or UNKNOWN
            found[name if name in known or name == UNKNOWN else OTHER] += 1
    return {(name,): count for name, count in found.items()}


def _of_drain(drain: NodeDrain | None) -> Mapping[str, Values]:
    phase = None if drain is None else drain.phase
    return {
        "drain_phase": {(one.value,): one is phase for one in DrainPhase},
        "drain_target": {} if drain is None else {(one.target, one.state.value): 1 for one in drain.asks},
        "drain_slot": {(): drain is not None and drain.has_slot},
    }


def _of_tally(tally: Tally, cycle: Cycle) -> Mapping[str, Measured]:
    gpus = () if cycle.state.snapshot is None else cycle.state.snapshot.gpus
    names = [target.name for target in cycle.policy.notices]
    return {
        "resets_total": _from_zero(tally.resets, [gpu.uuid for gpu in gpus], RESET_OUTCOMES),
        "reset_refused_total": tally.reset_refusals,
        "incidents_opened_total": tally.opened,
        "incidents_ended_total": tally.ended,
        "acts_total": tally.acts,
        "dry_run_acts_total": tally.dry_run_acts,
        "refusals_total": tally.refusals,
        "time_to_reclaim_seconds": tally.reclaims,
        "alarms_total": {(): tally.alarms},
        "denied_total": {(): tally.denied},
        "denied_calls_total": {(): cycle.state.denied},
        "pass_duration_seconds": tally.passes,
        "pass_failures_total": {(): tally.failed_passes},
        "notices_total": _from_zero(tally.notices, names, NOTICE_RESULTS),
    }


def _from_zero(counts: Counter[Labels], first: Iterable[str], second: Collection[str]) -> Values:
    """Return the counts with those that are 0: `increase` misses the first of a series that was not there."""
    return {(one, other): 0 for one in first for other in second} | counts
