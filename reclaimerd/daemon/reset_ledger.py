"""What a reset leaves in the ledger: the run itself, its result, and what that result forbids. Pure."""

from dataclasses import dataclass, replace

from reclaimerd.model.fault import StandingXid
from reclaimerd.model.identity import AttemptId, GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.reset_run import (
    Change,
    ChangeKind,
    ChangeState,
    GpuBreaker,
    ResetPast,
    ResetResult,
    ResetRun,
    Untouchable,
)

_DAY_SECONDS = 86400.0
_FAILED = frozenset({ResetResult.FAILED, ResetResult.NOT_VERIFIED, ResetResult.ABANDONED})
_BY_BOOT = "the host was booted: whatever sets it at a boot has set it anew"


@dataclass(frozen=True, slots=True)
class SeenLog:
    """How far the look that verified a reset had read the kernel's log, and when it was (wall seconds)."""

    last_seq: int | None
    at: float

    def covers(self, xid: StandingXid) -> bool:
        """Tell whether that look saw it; what a device event told has no number there: its time decides."""
        if self.last_seq is None or not xid.seq:
            return xid.at <= self.at
        return xid.seq <= self.last_seq


def run_in(ledger: Ledger, run_id: AttemptId) -> ResetRun | None:
    """Return one reset that is under way, or None."""
    return next((run for run in ledger.resets if run.id == run_id), None)


def with_run(ledger: Ledger, run: ResetRun) -> Ledger:
    """Return the ledger with this state of a run that it has; `told` is the ledger's own to say."""
    resets = tuple(
        replace(run, told=run.told or kept.told) if kept.id == run.id else kept for kept in ledger.resets
    )
    return replace(ledger, resets=resets)


def with_change(run: ResetRun, change: Change, state: ChangeState, text: str = "") -> ResetRun:
    """Return the run with one of its changes in another state; a change is known by kind and name."""
    changes = tuple(
        replace(kept, state=state, text=text)
        if (kept.kind, kept.name) == (change.kind, change.name)
        else kept
        for kept in run.changes
    )
    return replace(run, changes=changes)


def settled(
    ledger: Ledger, run: ResetRun, policy: Policy, wall: float, seen: SeenLog | None = None
) -> Ledger:
    """Return the ledger after a run got its result (`wall` seconds): the past, and what is forbidden by it.

    A tool that was left alone makes its GPUs untouchable and trips their breakers; so does one failure
    too many within a day. A verified reset takes away what the kernel log said against its GPUs, as far
    as the look that verified it had `seen` (None: up to `wall`): an Xid since then is a new fault.
    """
    if run.result is None:
        return ledger
    ledger = replace(ledger, past_resets=(*ledger.past_resets, ResetPast(run.gpus, run.result, wall)))
    if run.result is ResetResult.VERIFIED:
        known = SeenLog(None, wall) if seen is None else seen
        kept = (xid for xid in ledger.xids if xid.gpu not in run.gpus or not known.covers(xid))
        return replace(ledger, xids=tuple(kept))
    if run.result is ResetResult.ABANDONED:
        untouchable = Untouchable(run.gpus, run.boot_id, wall, run.text, run.tool)
        ledger = replace(ledger, untouchable=(*ledger.untouchable, untouchable))
    open_gpus = [gpu for gpu in run.gpus if all(breaker.gpu != gpu for breaker in ledger.gpu_breakers)]
    tripped = tuple(
        GpuBreaker(gpu, why, wall) for gpu in open_gpus if (why := _trips(ledger, run, (gpu, policy), wall))
    )
    return replace(ledger, gpu_breakers=ledger.gpu_breakers + tripped)


def _trips(ledger: Ledger, run: ResetRun, of: tuple[GpuUuid, Policy], wall: float) -> str:
    gpu, policy = of
    if run.result is ResetResult.ABANDONED:
        return f"its reset did not end and was left alone: {run.text}"
    if run.result not in _FAILED:
        return ""
    count = sum(
        1
        for past in ledger.past_resets
        if gpu in past.gpus and past.result in _FAILED and not past.dry_run and past.at > wall - _DAY_SECONDS
    )
    if count < policy.breaker.failed_resets:
        return ""
    return f"{count} resets of it within 24 h were not verified, the last: {run.text}"


def rebooted(run: ResetRun) -> ResetRun:
    """Return a run of an earlier boot with what that boot put back; the scheduler's fence outlives it."""
    changes = tuple(
        replace(change, state=ChangeState.UNDONE, text=_BY_BOOT)
        if change.state is ChangeState.MADE and change.kind is not ChangeKind.FENCE
        else change
        for change in run.changes
    )
    return replace(run, changes=changes)
