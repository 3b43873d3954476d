"""The two halves of a pass before the gates: bring what stands up to this look, then open what is new.

Pure but for the draft: it asks nobody and does nothing to the host.
"""

from dataclasses import dataclass, replace

from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import leave_ended, take_answers
from reclaimerd.daemon.driver_watch import DriverWatch, watch_driver
from reclaimerd.daemon.faults import FaultMemory, open_by_fault, stand_down, take_news
from reclaimerd.daemon.following import follow
from reclaimerd.daemon.joints import Joints
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.ordering import open_by_rule, open_ordered
from reclaimerd.daemon.resets import take_results
from reclaimerd.daemon.standing import (
    end_pause,
    end_suspensions,
    leave_dry_plans,
    make_dry,
    settle_broken_off,
)
from reclaimerd.daemon.state import State
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.fault_rules import GpuVerdict, evaluate_faults
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident, Stage
from reclaimerd.model.policy import Mode, Policy
from reclaimerd.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pass goes by: the look, what the rules make of it, the policy, and the time."""

    snapshot: Snapshot
    evaluation: Evaluation
    policy: Policy
    now: Moment


@dataclass(frozen=True, slots=True)
class Settled:
    """What must be kept for the next pass, once this one is durable.

    `paused_until` (monotonic) is when the next pause or suspension ends by itself.
    """

    paused_until: float | None
    faults: FaultMemory
    driver_watch: DriverWatch


def bring_up(draft: Draft, seen: Seen, state: State, joints: Joints) -> Settled:
    """Bring pause, faults, resets, open incidents and the driver's watch up to this look."""
    snapshot, now = seen.snapshot, seen.now
    paused_until = _earliest(end_pause(draft, now), end_suspensions(draft, now))
    memory = take_news(draft, (snapshot, seen.policy), joints.xids, state.faults, now)
    verdicts, spans = evaluate_faults(snapshot, seen.policy, draft.ledger, memory.spans)
    take_results(draft, now, foreground=joints.foreground)
    take_answers(draft, now, foreground=joints.foreground)
    settle_broken_off(draft, now, joints.warnings.under_way)
    follow(draft, snapshot, seen.evaluation, now)
    watch = state.driver_watch
    if not joints.foreground:  # one command is not the guard, and a short one judges no silence
        watch = watch_driver(draft, snapshot, seen.policy, (watch, state.handed), now)
    return Settled(paused_until, replace(memory, spans=spans, verdicts=verdicts), watch)


def open_new(
    draft: Draft,
    seen: Seen,
    taken: list[Ticket],
    verdicts: tuple[GpuVerdict, ...],
    engine: tuple[State, Joints],
) -> list[Incident]:
    """Open what operators ordered and what rules want; return those that a rule opened in this pass."""
    state, joints = engine
    judged = (seen.snapshot, seen.policy)
    open_ordered(draft, taken, judged, seen.now)
    fresh: list[Incident] = []
    if not joints.foreground:
        fresh = open_by_rule(draft, seen.evaluation, judged, handed_refs(state), seen.now)
        stand_down(draft, verdicts, seen.snapshot, seen.now)
        wanted = _dry(verdicts) if joints.dry_run else verdicts
        fresh += open_by_fault(draft, wanted, judged, state.handed, seen.now)
    if joints.dry_run:
        make_dry(draft)
    else:
        leave_dry_plans(draft, seen.policy, seen.now)
    leave_ended(draft, seen.now)
    return fresh


def _dry(verdicts: tuple[GpuVerdict, ...]) -> tuple[GpuVerdict, ...]:
    """Return the verdicts as far as a daemon that acts on nothing may go."""
    return tuple(replace(one, mode=Mode.DRY_RUN) if one.mode is Mode.ENFORCE else one for one in verdicts)


def _earliest(*moments: float | None) -> float | None:
    return min((one for one in moments if one is not None), default=None)


def handed_refs(state: State) -> frozenset[ProcessRef]:
    """Return the processes whose incident was handed over: no rule takes them up again.

    Unless their own user asked for it: nobody buys peace from the rules by an order of their own.
    """
    over = [one for one in state.incidents.values() if one.stage is Stage.HANDED_OVER]
    handed = (one for one in (*state.handed.values(), *over) if not one.actor.is_owner)
    return frozenset(ref for one in handed for ref in one.processes)
