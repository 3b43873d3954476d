"""A driver that does not answer: an alarm, then one drain request, and a word when it is back.

Slow is not hung: only silence counts (`Silent`, cause unresponsive). A worker that was stopped, starved
or broke off is our own trouble and never drains a node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import with_drain_given_up
from reclaimerd.daemon.opening import Moment, new_incident
from reclaimerd.judge.endings import withdrawn
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, Incident, Plan, Stage, Subject, Target
from reclaimerd.model.policy import ListedStage, Policy, Scope
from reclaimerd.model.process import (
    Workload,
    WorkloadKind,
)
from reclaimerd.model.snapshot import (
    DriverState,
    Snapshot,
)
from reclaimerd.record.store import AbandonedWorker

ACTOR_NAME = "driver-watch"
DRIVER_ROLE = "nvml"
"""The role of the workers that ask the driver."""


@dataclass(frozen=True, slots=True)
class DriverWatch:
    """Since when the driver is silent (monotonic; None: it answers), and what was done about it."""

    silent_since: float | None = None
    alarmed: bool = False
    asked: bool = False


def taken_up(kept: Iterable[AbandonedWorker], alive: ProcessRef | None) -> DriverWatch:
    """Return the watch that a restart goes on with: that of the silent worker which is still `alive`.

    Without it (gone, or of another boot) the driver may have answered in between: the clock starts anew.
    """
    for one in kept:
        if one.role == DRIVER_ROLE and one.ref == alive and one.silent_since is not None:
            return DriverWatch(one.silent_since, one.alarmed)
    return DriverWatch()


def watch_driver(
    draft: Draft,
    snapshot: Snapshot,
    policy: Policy,
    past: tuple[DriverWatch, Mapping[IncidentId, Incident]],
    now: Moment,
) -> DriverWatch:
    """Return the watch after this look; alarms, the incident and the all-clear go into the draft."""
    watch, handed = past
    if snapshot.driver.state is not DriverState.UNRESPONSIVE:
        _clear(draft, watch, handed, now)
        return DriverWatch()
    since = (
        snapshot.driver.since
        if watch.silent_since is None
        else min(watch.silent_since, snapshot.driver.since)
    )
    silent_for = now.mono - since
    alarmed = watch.alarmed
    if silent_for >= policy.drain.driver_alarm_seconds and not alarmed:
        text = f"driver unresponsive for {silent_for:.0f} s: {snapshot.driver.why}"
        draft.note(entries.of_host(RecordKind.ALARM, text))
        alarmed = True
    asked = watch.asked or any(_is_ours(one) for one in (*draft.incidents.values(), *handed.values()))
    if silent_for >= policy.drain.driver_drain_seconds and not asked:
        incident = _incident(snapshot, policy, silent_for, now)
        draft.put(incident, [entries.opened(incident)])
        asked = True
    return DriverWatch(since, alarmed, asked)


def _clear(draft: Draft, watch: DriverWatch, handed: Mapping[IncidentId, Incident], now: Moment) -> None:
    if watch.alarmed and watch.silent_since is not None:
        text = f"the driver answers again after {now.mono - watch.silent_since:.0f} s"
        draft.note(entries.of_host(RecordKind.NOTE, text))
    for incident in [one for one in draft.incidents.values() if _is_ours(one) and one.stage is Stage.PENDING]:
        given_up = with_drain_given_up(draft, incident)
        ended = withdrawn(given_up, "the driver answers again", now.wall)
        draft.put(ended, [entries.ended(ended)])
    for incident in [one for one in handed.values() if _is_ours(one) and one.released_at is None]:
        released = replace(incident, released_at=now.wall)
        draft.put(released, [entries.late_release(released, "the driver answers again")])


def _is_ours(incident: Incident) -> bool:
    return incident.subject is Subject.DRIVER and incident.released_at is None


def _incident(snapshot: Snapshot, policy: Policy, silent_for: float, now: Moment) -> Incident:
    """Return the incident of a silent driver: no process is its target, all GPUs are concerned."""
    nobody = ProcessRef(snapshot.boot_id, 0, 0)
    gpus = tuple(gpu.uuid for gpu in snapshot.gpus)
    target = Target(
        scope=Scope.PROCESS,
        root=nobody,
        members=(),
        gpus=gpus,
        uid=0,
        exe="",
        command="the NVIDIA driver",
        workload=Workload(WorkloadKind.NONE, "no workload"),
        unmeasured=gpus,
    )
    ladder = policy.ladder
    plan = Plan(
        stages=(ListedStage.DRAIN,),
        sigterm_seconds=ladder.sigterm_seconds,
        sigkill_seconds=ladder.sigkill_seconds,
        exit_grace_seconds=ladder.exit_grace_seconds,
        proof_seconds=ladder.proof_seconds,
    )
    actor = Actor(ActorKind.WATCH, ACTOR_NAME, policy_digest=policy.digest)
    reason = f"driver unresponsive for {silent_for:.0f} s"
    return replace(new_incident(actor, reason, target, plan, now), subject=Subject.DRIVER)
