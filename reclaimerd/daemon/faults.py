"""What a pass makes of the machine's own news: Xids that stand, devices that come and go, fault rules.

Pure: a draft goes in and is brought up to date. The gate decides about a reset, not this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import drain_alone, with_drain_given_up
from reclaimerd.daemon.gpu_opening import fault_incident, gpu_target
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.standing import make_way
from reclaimerd.judge.endings import drain_reason_of, withdrawn
from reclaimerd.judge.evaluate import rule_named
from reclaimerd.judge.fault_rules import FaultSpans, GpuVerdict
from reclaimerd.judge.gate_context import workload_key
from reclaimerd.judge.standing_xids import Addresses, Catalogue, address_of, addresses_of, with_xids
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.fault import DeviceAction, DeviceEvent, FaultClass, StandingXid
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Stage, Subject
from reclaimerd.model.ledger import SpendKind
from reclaimerd.model.policy import FaultRule, ListedStage, Mode, Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import DriverState, Snapshot
from reclaimerd.model.verdict import Ruling

MOST_RECORDS = 16
"""Device events of one pass that are put on record each; the rest is counted."""
_OFF_THE_BUS = 79
_DAY_SECONDS = 86400.0
_BY_UDEV = "the kernel says that its PCI device was removed"
_SIGNALS = frozenset({ListedStage.SIGTERM, ListedStage.SIGKILL})
_UPSETTING = frozenset(
    {DeviceAction.ADDED, DeviceAction.REMOVED, DeviceAction.BOUND, DeviceAction.UNBOUND},
)


@dataclass(frozen=True, slots=True)
class FaultMemory:
    """What passes remember: where each GPU was, since when rules hold, when the driver last changed hands.

    `away`: the driver was silent or absent when it was last asked, and has not answered since. `missed`:
    device events that were lost, not on record yet. `gap`: what the last look missed of the kernel's log.
    """

    addresses: Addresses = field(default_factory=dict)
    spans: FaultSpans = field(default_factory=dict)
    verdicts: tuple[GpuVerdict, ...] = ()
    changed_mono: float | None = None
    away: bool = False
    missed: str = ""
    gap: str = ""


def take_news(
    draft: Draft, seen: tuple[Snapshot, Policy], catalogue: Catalogue, memory: FaultMemory, now: Moment
) -> FaultMemory:
    """Bring the ledger up to the news: each new Xid against its GPU and each device event goes on record.

    After such an event, one that was lost, and when the driver answers again, the settling time starts anew.
    """
    snapshot, policy = seen
    addresses = addresses_of(snapshot, memory.addresses)
    ledger, fresh = with_xids(draft.ledger, snapshot, catalogue, addresses)
    for xid in fresh:
        text = f"{xid.gpu}: Xid {xid.code} ({xid.fault.word}): {xid.text}"
        draft.note(entries.of_host(RecordKind.XID, text))
    ledger = replace(ledger, xids=_after_events(ledger.xids, snapshot, addresses, now))
    if ledger != replace(draft.ledger, kernel_seq=ledger.kernel_seq):
        draft.put_ledger(ledger)
    else:  # lines that say nothing to us are worth no write of their own: they are read once more at most
        draft.ledger = ledger
    events = snapshot.device_events
    for event in events[:MOST_RECORDS]:
        draft.note(entries.of_host(RecordKind.DEVICE, _event_text(event, addresses)))
    if len(events) > MOST_RECORDS:
        more = len(events) - MOST_RECORDS
        draft.note(entries.of_host(RecordKind.DEVICE, f"{more} more device events in the same look"))
    gap = snapshot.kernel_news.gap
    if gap and not memory.gap:
        draft.note(entries.of_host(RecordKind.NOTE, f"Xids may have been missed: {gap}"))
    if memory.missed:
        draft.note(entries.of_host(RecordKind.DEVICE, memory.missed))
    away = _is_away(snapshot.driver.state, before=memory.away)
    is_back = memory.away and not away
    if is_back:
        settling = policy.gates.settling_seconds
        text = "the driver is back" + (f": no act by rule for {settling:g} s" if settling else "")
        draft.note(entries.of_host(RecordKind.NOTE, text))
    upset = is_back or upsets(events) or bool(memory.missed)
    changed = snapshot.at if upset else memory.changed_mono
    return replace(memory, addresses=addresses, changed_mono=changed, away=away, missed="", gap=gap)


def _is_away(state: DriverState, *, before: bool) -> bool:
    """Tell whether the driver is away; one that could not be asked is as it was before."""
    match state:
        case DriverState.UNRESPONSIVE | DriverState.ABSENT:
            return True
        case DriverState.RESPONSIVE | DriverState.SLOW:
            return False
        case DriverState.UNKNOWN:
            return before
        case _:
            assert_never(state)


def upsets(events: Iterable[DeviceEvent]) -> bool:
    """Tell whether these events make void what is known of the driver: which node is which GPU's."""
    return any(event.action in _UPSETTING and event.subsystem == "pci" for event in events)


def open_by_fault(
    draft: Draft,
    verdicts: tuple[GpuVerdict, ...],
    seen: tuple[Snapshot, Policy],
    handed: Mapping[IncidentId, Incident],
    now: Moment,
) -> list[Incident]:
    """Open an incident for each GPU that a fault rule wants reset and that has none, open or handed over."""
    snapshot, policy = seen
    fresh: list[Incident] = []
    for verdict in verdicts:
        rule = rule_named(policy, verdict.rule)
        if verdict.ruling is not Ruling.RECLAIM or not isinstance(rule, FaultRule):
            continue
        if _was_planned(verdict, draft, seen, now):
            continue
        make_way(draft, partial(_is_about, verdict=verdict), rule, policy, now)
        known = (*draft.incidents.values(), *handed.values())
        if any(_is_about(one, verdict) for one in known):
            continue
        members, stages = _first_to_go(verdict, snapshot, policy.reset.stop_units)
        incident = fault_incident(
            replace(rule, stages=stages), (verdict.gpu, verdict.text, members), seen, now
        )
        draft.put(incident, [entries.opened(incident)])
        fresh.append(incident)
    return fresh


def stand_down(draft: Draft, verdicts: tuple[GpuVerdict, ...], snapshot: Snapshot, now: Moment) -> None:
    """End what a fault rule opened and nothing was done about, when the fault is gone.

    A GPU that is gone itself has no fault that could be gone: its incident goes on, to a drain. A drain that
    nobody has answered is nothing done, and goes with its cause; what may stand has the request's record.
    """
    standing = {(verdict.rule, verdict.gpu) for verdict in verdicts}
    for incident in list(draft.incidents.values()):
        by_rule = incident.subject is Subject.GPU and incident.actor.kind is ActorKind.RULE
        asking = drain_alone(incident, draft.ledger)
        untouched = incident.stage is Stage.PENDING and (asking is not None or not incident.attempts)
        if not (untouched and by_rule) or incident.ended:
            continue
        gpus = incident.target.gpus
        if any((incident.actor.name, uuid) in standing or snapshot.gpu(uuid) is None for uuid in gpus):
            continue
        if asking is not None and drain_reason_of(incident, snapshot, draft.ledger) is not None:
            continue
        ended = withdrawn(with_drain_given_up(draft, incident), "the fault is gone", now.wall)
        draft.put(ended, [entries.ended(ended)])


def _was_planned(verdict: GpuVerdict, draft: Draft, seen: tuple[Snapshot, Policy], now: Moment) -> bool:
    """Tell whether a dry run of this has said already what it would do: once in the budget's window."""
    snapshot, policy = seen
    if verdict.mode is not Mode.DRY_RUN:
        return False
    oldest = now.wall - policy.budgets.reset_window_seconds
    if any(
        one.kind is SpendKind.RESET and one.dry_run and one.key == verdict.gpu and one.at > oldest
        for one in draft.ledger.spends
    ):
        return True
    own = workload_key(gpu_target(verdict.gpu, (), snapshot))
    return ListedStage.RESET not in verdict.stages and any(
        one.dry_run
        and one.workload_key == own
        and verdict.gpu in one.gpus
        and one.at > now.wall - _DAY_SECONDS
        for one in draft.ledger.ended
    )


def _is_about(incident: Incident, verdict: GpuVerdict) -> bool:
    """Tell whether this GPU has its incident: while one is open, and after it was handed to a person.

    An operator's reset that was refused did nothing and hands nothing over; nor does a dry run to a rule
    that enforces.
    """
    if incident.subject is not Subject.GPU or verdict.gpu not in incident.target.gpus:
        return False
    if incident.ended and incident.plan.dry_run and verdict.mode is Mode.ENFORCE:
        return False
    if incident.ended and incident.actor.kind is ActorKind.OPERATOR and incident.last_refusal:
        return False
    return not incident.ended or (incident.stage is Stage.HANDED_OVER and incident.released_at is None)


def _first_to_go(
    verdict: GpuVerdict, snapshot: Snapshot, stop_units: tuple[str, ...]
) -> tuple[tuple[ProcessRef, ...], tuple[ListedStage, ...]]:
    """Return who is told to go before the reset: the holders, when they all belong to one workload."""
    quiet = tuple(stage for stage in verdict.stages if stage not in _SIGNALS)
    if quiet == verdict.stages:
        return (), verdict.stages
    refs = tuple(dict.fromkeys(holder.ref for holder in snapshot.holders_of(verdict.gpu)))
    readings = [snapshot.process(ref) for ref in refs]
    told = [one for one in readings if one is None or not _stops_with_its_unit(one, stop_units)]
    if None in told or len({_workload_of(one) for one in told if one is not None}) > 1:
        return (), quiet
    return tuple(one.ref for one in told if one is not None), verdict.stages


def _stops_with_its_unit(reading: ProcessReading, stop_units: tuple[str, ...]) -> bool:
    """Tell whether a holder is a client that the reset itself stops and starts again: nobody signals it."""
    workload = reading.workload
    return workload.trusted and workload.unit in stop_units


def _workload_of(reading: ProcessReading) -> str:
    """Return whose a holder is; one whose boundary proves nothing counts for itself."""
    workload = reading.workload
    return workload.path if workload.trusted and workload.path else str(reading.ref)


def _after_events(
    xids: tuple[StandingXid, ...], snapshot: Snapshot, addresses: Addresses, now: Moment
) -> tuple[StandingXid, ...]:
    """Return the standing Xids after the device events: a GPU that was removed is lost, until it is back."""
    for event in snapshot.device_events:
        gpu = addresses.get(address_of(event.pci))
        if gpu is None or event.subsystem != "pci":
            continue
        stands = any((one.gpu, one.code) == (gpu, _OFF_THE_BUS) for one in xids)
        if event.action is DeviceAction.REMOVED and not stands:  # what the log said itself outlasts a return
            lost = StandingXid(
                gpu, snapshot.boot_id, _OFF_THE_BUS, FaultClass.LOST, 0, now.wall, text=_BY_UDEV
            )
            xids = (*xids, lost)
        elif event.action is DeviceAction.ADDED:
            xids = tuple(one for one in xids if not (one.gpu == gpu and one.text == _BY_UDEV))
    return xids


def _event_text(event: DeviceEvent, addresses: Addresses) -> str:
    gpu = addresses.get(address_of(event.pci), event.pci)
    driver = f", driver {event.driver}" if event.driver else ""
    hint = "" if event.xid is None else f", with Xid {event.xid}"
    return f"{gpu}: {event.subsystem} {event.action} at {event.pci}{driver}{hint}"
