"""What holds this node's drain request up, which of its causes are over, and when it takes itself back.

Pure but for the draft, as `daemon.drains`: it asks nobody. When in doubt nobody is asked, and what stands
stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import OVER
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.state import State
from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.judge.evaluate import effective_mode, rule_named
from reclaimerd.judge.gpu_fault import fault_of
from reclaimerd.judge.proof import memory_is_back
from reclaimerd.model.drain import DrainPhase, Joined, NodeDrain, Withdrawal
from reclaimerd.model.fault import FaultClass
from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.incident import ActorKind, Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import DrainSettings, Mode, Policy
from reclaimerd.model.snapshot import DriverState, Snapshot

ITSELF = "reclaimerd"
"""Who withdraws a request whose causes are all over."""
UNSEEN = "no cause of it is seen in the last look, by the policy in force"


def why_held(drain: NodeDrain, state: State, policy: Policy, stopped: tuple[str, str]) -> str:
    """Return why nothing of the request may leave this host now, or "".

    `stopped`: why nobody may act at all (a dry run), and the HOLD file that stands. A person takes back
    what we asked for whatever holds rules; and nobody is asked for what the last look no longer shows.
    """
    nobody_acts, hold_file = stopped
    taken_back = drain.withdrawal is not None
    if nobody_acts or (drain.withdrawal is not None and drain.withdrawal.by != ITSELF):
        return nobody_acts
    pause = state.ledger.pause
    if pause is not None:
        return f"paused by {pause.by}: {pause.reason}"
    if hold_file:
        return f"the file {hold_file} says hold"
    return "" if taken_back or _has_cause(drain, state, policy) else UNSEEN


def _has_cause(drain: NodeDrain, state: State, policy: Policy) -> bool:
    """Tell whether the last look, and the policy in force, still give a reason to ask for this drain."""
    snapshot = state.snapshot
    known = {**state.handed, **state.incidents}
    if snapshot is None:
        return False
    if drain.by_hand and policy.mode is Mode.ENFORCE:  # nothing on the host shows what a person wants
        return True
    for incident in (
        known[one.incident] for one in drain.joined if one.incident in known and not one.by_hand
    ):
        reason = drain_reason_of(incident, snapshot, state.ledger)
        if reason is not None and reason.domain in policy.drain.fault_domains and _enforced(incident, policy):
            return True
    return False


def _enforced(incident: Incident, policy: Policy) -> bool:
    """Tell whether who opened this may act by the policy in force."""
    if incident.actor.kind is not ActorKind.RULE:
        return incident.actor.kind is ActorKind.OPERATOR or policy.mode is Mode.ENFORCE
    rule = rule_named(policy, incident.actor.name)
    return rule is not None and effective_mode(policy, rule) is Mode.ENFORCE


def tend(
    draft: Draft, snapshot: Snapshot, state: State, settings: DrainSettings, now: Moment
) -> float | None:
    """Note which causes of the request are over, and order its withdrawal when all are and were for a while.

    Return since when all has been well without a break (monotonic), None: it is not.
    """
    note_wells(draft, snapshot, state.handed, now)
    drain = draft.ledger.drain
    if drain is None or drain.withdrawal is not None or drain.phase is DrainPhase.DONE:
        return None
    if any(one.well_at is None for one in drain.joined):
        return None
    if not gpus_are_well(drain.gpus, snapshot, draft.ledger):
        return None
    if drain.is_unasked:  # nothing stands anywhere: it goes without the policy's leave
        _order_withdrawal(draft, drain, now)
        return None
    if not all(memory_is_back(uuid, snapshot) for uuid in drain.gpus):
        return None
    since = now.mono if state.well_mono is None else state.well_mono
    if settings.auto_withdraw and now.mono - since >= settings.settling_seconds:
        _order_withdrawal(draft, drain, now)
    return since


def note_wells(draft: Draft, snapshot: Snapshot, handed: Mapping[IncidentId, Incident], now: Moment) -> None:
    """Note which causes of the request are over: a task that died late, a GPU that is well, a new boot."""
    drain = draft.ledger.drain
    if drain is None:
        return
    joined, rebooted = [], False
    for one in drain.joined:
        incident = draft.incidents.get(one.incident) or handed.get(one.incident)
        by_boot = incident is None and _is_over_by_boot(one, drain, snapshot, draft.ledger)
        if (
            one.well_at is None
            and not one.by_hand
            and (by_boot or (incident is not None and _is_over(incident)))
        ):
            joined.append(replace(one, well_at=now.wall, told=one.told or by_boot))
            rebooted = rebooted or by_boot
        else:
            joined.append(one)
    if tuple(joined) == drain.joined:
        return
    verified = snapshot.boot_id if rebooted else drain.verified_boot
    fresh = replace(drain, joined=tuple(joined), verified_boot=verified)
    draft.put_ledger(replace(draft.ledger, drain=fresh))
    if rebooted:
        text = f"drain request {drain.id}: after a new boot its GPUs are well again"
        draft.note(entries.of_drain(fresh, text))


def _is_over(incident: Incident) -> bool:
    return incident.released_at is not None or incident.stage in OVER


def _is_over_by_boot(one: Joined, drain: NodeDrain, snapshot: Snapshot, ledger: Ledger) -> bool:
    """Tell whether a new boot ended a cause of an earlier one, of which no incident is left."""
    is_later = drain.boot_id != snapshot.boot_id
    return is_later and gpus_are_well(one.gpus or drain.request.gpus, snapshot, ledger)


def gpus_are_well(gpus: Iterable[GpuUuid], snapshot: Snapshot, ledger: Ledger) -> bool:
    """Tell whether the driver answers and none of these GPUs has a fault, or one that can't be known."""
    if snapshot.driver.state is not DriverState.RESPONSIVE:
        return False
    return all(
        snapshot.gpu(uuid) is not None and fault_of(uuid, snapshot, ledger).fault <= FaultClass.APPLICATION
        for uuid in gpus
    )


def _order_withdrawal(draft: Draft, drain: NodeDrain, now: Moment) -> None:
    why = "every cause of it is over and the GPUs are well"
    ordered = replace(drain, withdrawal=Withdrawal(ITSELF, why, now.wall))
    draft.put_ledger(replace(draft.ledger, drain=ordered))
    draft.note(entries.of_drain(ordered, f"drain request {drain.id} is taken back: {why}"))
