"""When an incident ends, and how: the one place that gives an incident its end."""

from dataclasses import replace
from typing import assert_never

from reclaimerd.judge.exit_path import any_exiting, state_word
from reclaimerd.judge.gpu_fault import fault_of
from reclaimerd.judge.ladder import next_stage
from reclaimerd.judge.plight import needs_drain
from reclaimerd.judge.proof import SECOND_LOOK_SECONDS, Proven, StillHeld, Unmeasured, finding_of
from reclaimerd.judge.steps import was_killed, was_signalled
from reclaimerd.model.drain import DrainCode, DrainReason
from reclaimerd.model.fault import FaultClass
from reclaimerd.model.incident import (
    ActorKind,
    Fact,
    Incident,
    OutcomeKind,
    Proof,
    ProofKind,
    Recipient,
    Stage,
    Subject,
)
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.snapshot import (
    DriverState,
    Snapshot,
)

_FAILED_RESET = frozenset(
    {OutcomeKind.RESET_ABANDONED, OutcomeKind.FAILED, OutcomeKind.RESET_NOT_VERIFIED},
)


def with_finding(incident: Incident, snapshot: Snapshot, wall: float) -> Incident:
    """Return the incident after the look: ended when the target is proven gone, else as it was.

    A shared GPU's memory must add up in two looks at least 200 ms apart. What can't be measured
    ends UNVERIFIED once the patience of the proof is over.
    """
    if incident.gone_mono is None:
        return incident
    patient = snapshot.at < incident.gone_mono + incident.plan.proof_seconds
    match finding_of(incident, snapshot):
        case StillHeld():
            return replace(incident, residual_ok_mono=None)
        case Unmeasured(proof=proof):
            if patient:
                return replace(incident, residual_ok_mono=None)
            return _ended(incident, Fact.GONE_UNMEASURED, wall, proof)
        case Proven(proof=proof):
            if proof.kind is ProofKind.SHARED and not _second_agrees(incident, snapshot.at):
                first = incident.residual_ok_mono
                return incident if first is not None else replace(incident, residual_ok_mono=snapshot.at)
            fact = Fact.PROVEN if was_signalled(incident) else Fact.ENDED_BY_ITSELF
            return _ended(incident, fact, wall, proof)
        case unknown:
            assert_never(unknown)


def second_look_at(incident: Incident) -> float | None:
    """Return when a shared GPU's memory is due for its second look (monotonic), None if it isn't."""
    return None if incident.residual_ok_mono is None else incident.residual_ok_mono + SECOND_LOOK_SECONDS


def withdrawn(incident: Incident, why: str, wall: float) -> Incident:
    """Return the incident stood down because its verdict no longer holds."""
    stage = next_stage(incident.stage, Fact.VERDICT_WITHDRAWN)
    return replace(incident, stage=stage, ended_at=wall, end_text=why)


def reset_verified(incident: Incident, why: str, wall: float) -> Incident:
    """Return a GPU's own incident as reclaimed: its reset was verified."""
    return _ended(incident, Fact.PROVEN, wall, Proof(ProofKind.RESET_VERIFIED, why))


def may_be_withdrawn(incident: Incident) -> bool:
    """Tell whether a changed verdict can still end this incident: before SIGKILL, and by rule."""
    early = (Stage.PENDING, Stage.WARNED, Stage.SUSPENDED, Stage.SIGTERM)
    return incident.actor.kind is ActorKind.RULE and incident.stage in early


def handed_over(incident: Incident, to: Recipient, why: str, wall: float) -> Incident:
    """Return the incident handed over: the host can do no more for it."""
    fact = Fact.DRAIN_ACCEPTED if to is Recipient.SCHEDULER else Fact.OUT_OF_STEPS
    stage = next_stage(incident.stage, fact)
    return replace(incident, stage=stage, ended_at=wall, handed_to=to, end_text=why)


def recipient_of(incident: Incident) -> Recipient:
    """Return to whom an incident goes that ran out of steps: whoever asked, else a person."""
    return Recipient.OPERATOR if incident.actor.kind is ActorKind.OPERATOR else Recipient.PERSON


def drain_reason_of(
    incident: Incident, snapshot: Snapshot, ledger: Ledger | None = None
) -> DrainReason | None:
    """Return why this incident may ask for a drain, or None: another living holder is no reason.

    Without a ledger no Xid is known.
    """
    if incident.subject is Subject.NODE:
        text = f"by hand: {incident.actor.name}: {incident.reason}"
        return DrainReason(FaultDomain.UNKNOWN, text, DrainCode.BY_HAND)
    if incident.subject is Subject.DRIVER:
        return _driver_reason(snapshot)
    for uuid in incident.target.gpus:
        fault = fault_of(uuid, snapshot, Ledger() if ledger is None else ledger)
        if fault.fault >= FaultClass.REBOOT:
            lost = fault.fault is FaultClass.LOST
            code = DrainCode.GPU_LOST if lost else DrainCode.RECOVERY_ACTION
            return DrainReason(FaultDomain.HARDWARE, f"{uuid}: {fault.text}", code)
    for attempt in incident.attempts:
        outcome = attempt.outcome
        if attempt.stage is Stage.RESET and outcome is not None and outcome.kind in _FAILED_RESET:
            text = f"a reset was executed and failed: {outcome.detail}"
            return DrainReason(FaultDomain.DRIVER, text, DrainCode.RESET_FAILED)
    return _stuck_reason(incident, snapshot)


def _driver_reason(snapshot: Snapshot) -> DrainReason | None:
    driver = snapshot.driver
    if driver.state is not DriverState.UNRESPONSIVE:
        return None
    silent_for = snapshot.at - driver.since
    evidence = f"; {driver.evidence}" if driver.evidence else ""
    text = f"driver unresponsive for {silent_for:.0f} s{evidence}"
    return DrainReason(FaultDomain.DRIVER, text, DrainCode.DRIVER_UNRESPONSIVE)


def _stuck_reason(incident: Incident, snapshot: Snapshot) -> DrainReason | None:
    """Return whose fault a stuck exit is: by the kernel stacks where they could be read, else nobody's."""
    plights = [snapshot.plights[ref] for ref in incident.processes if ref in snapshot.plights]
    grace = incident.plan.exit_grace_seconds
    for plight in plights:
        if plight.ref not in snapshot.exited and needs_drain(plight, snapshot.at, grace):
            text = f"pid {plight.ref.pid}: {plight.text}"
            return DrainReason(plight.fault_domain, text, DrainCode.STUCK_EXIT)
    if plights:
        return None
    since = incident.release.at if incident.release is not None else snapshot.at
    quiet_for = snapshot.at - since
    if not was_killed(incident) or quiet_for < incident.plan.exit_grace_seconds:
        return None
    for ref in incident.processes:
        reading = snapshot.process(ref)
        if reading is not None and ref not in snapshot.exited and any_exiting(reading):
            return DrainReason(
                FaultDomain.UNKNOWN,
                f"pid {ref.pid} is {state_word(reading)} and let go of nothing for {quiet_for:.0f} s",
                DrainCode.STUCK_EXIT,
            )
    return None


def _second_agrees(incident: Incident, now: float) -> bool:
    first = incident.residual_ok_mono
    return first is not None and now >= first + SECOND_LOOK_SECONDS


def _ended(incident: Incident, fact: Fact, wall: float, proof: Proof) -> Incident:
    stage = next_stage(incident.stage, fact)
    return replace(incident, stage=stage, ended_at=wall, proof=proof, end_text=proof.text)
