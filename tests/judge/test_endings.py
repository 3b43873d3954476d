"""How an incident ends: by proof, by doubt, by itself, withdrawn, or handed over."""

from dataclasses import replace

import pytest

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.judge.endings import (
    drain_reason_of,
    handed_over,
    may_be_withdrawn,
    recipient_of,
    reset_verified,
    second_look_at,
    with_finding,
    withdrawn,
)
from reclaimerd.judge.proof import SECOND_LOOK_SECONDS
from reclaimerd.model.drain import DrainCode
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import AttemptId, ProcessRef
from reclaimerd.model.incident import (
    ENDS,
    Attempt,
    Incident,
    Outcome,
    OutcomeKind,
    ProofKind,
    Recipient,
    Release,
    Stage,
    Subject,
)
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import (
    GpuReading,
    RecoveryAction,
    Snapshot,
)
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_process,
    a_row,
    a_snapshot,
    a_target,
    a_task,
    an_incident,
)

_MINE = a_process(100)
_ME = _MINE.ref
_OPEN = tuple(stage for stage in Stage if stage not in ENDS)


def _tried(stage: Stage, kind: OutcomeKind | None = OutcomeKind.SENT) -> Attempt:
    outcome = None if kind is None else Outcome(kind, "said the tool")
    return Attempt(AttemptId("att-1"), stage, (_ME,), WALL, outcome)


def _gone(stage: Stage = Stage.SIGKILL, **overrides: object) -> Incident:
    """Return an incident whose target was seen gone at MONO, after a signal of ours."""
    fields: dict[str, object] = {
        "stage": stage,
        "gone_mono": MONO,
        "attempts": (_tried(Stage.SIGTERM),),
        **overrides,
    }
    return an_incident(a_target(_MINE), **fields)


def _look(gpu: GpuReading, after: float = 0.0, *, shared: bool = False) -> Snapshot:
    holders = (a_holder(200, used=5 * GIB),) if shared else ()
    return a_snapshot(gpus=(gpu,), holders=holders, at=MONO + after, exited=frozenset({_ME}))


_FREE = a_gpu(used=0)
_SHARED = a_gpu(processes=(a_row(200, 5 * GIB),))
_SHARED_MORE = a_gpu(used=9 * GIB, processes=(a_row(200, 5 * GIB),))
_BLIND = replace(_FREE, memory=Unreadable("lost"))


# --- with_finding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", _OPEN)
def test_exclusive_proof_ends_it_at_the_first_look(stage: Stage) -> None:
    """RECLAIMED at once, with proof, text and time, whatever the stage."""
    end = with_finding(_gone(stage), _look(_FREE), WALL + 1)
    assert end.stage is Stage.RECLAIMED
    assert end.ended
    assert end.proof is not None
    assert (end.proof.kind, end.ended_at, end.end_text) == (
        ProofKind.EXCLUSIVE,
        WALL + 1,
        end.proof.text,
    )


@pytest.mark.parametrize("attempts", [(), (_tried(Stage.SIGTERM, OutcomeKind.WITHHELD),)])
def test_one_that_we_never_reached_ended_by_itself(attempts: tuple[Attempt, ...]) -> None:
    """STOOD_DOWN, with the proof all the same."""
    end = with_finding(_gone(Stage.PENDING, attempts=attempts), _look(_FREE), WALL)
    assert end.stage is Stage.STOOD_DOWN
    assert end.proof is not None


def test_nothing_is_judged_before_the_target_was_seen_gone() -> None:
    """`with_look` notes that first; until then the incident is as it was."""
    incident = replace(_gone(), gone_mono=None)
    assert with_finding(incident, _look(_FREE), WALL) is incident


def test_shared_proof_needs_two_looks_200_ms_apart() -> None:
    """The first only notes its time; one that comes too early changes nothing; the second ends it."""
    first = with_finding(_gone(), _look(_SHARED, 1, shared=True), WALL)
    assert not first.ended
    assert second_look_at(first) == MONO + 1 + SECOND_LOOK_SECONDS
    early = with_finding(first, _look(_SHARED, 1.199, shared=True), WALL)
    assert early is first
    end = with_finding(first, _look(_SHARED, 1.2, shared=True), WALL)
    assert end.stage is Stage.RECLAIMED
    assert end.proof is not None
    assert end.proof.kind is ProofKind.SHARED


@pytest.mark.parametrize("between", [_SHARED_MORE, _BLIND, a_gpu(processes=(a_row(100), a_row(200)))])
def test_a_look_that_disagrees_starts_the_two_looks_anew(between: GpuReading) -> None:
    """More memory, none readable, or still listed: the earlier look counts no more."""
    first = with_finding(_gone(), _look(_SHARED, 1, shared=True), WALL)
    middle = with_finding(first, _look(between, 1.5, shared=True), WALL)
    assert not middle.ended
    assert second_look_at(middle) is None
    assert not with_finding(middle, _look(_SHARED, 2, shared=True), WALL).ended


def test_a_shared_gpu_that_is_exclusive_at_the_second_look_is_proven_at_once() -> None:
    """Its other users have left: one reading is enough."""
    first = with_finding(_gone(), _look(_SHARED, 1, shared=True), WALL)
    assert with_finding(first, _look(_FREE, 1.01), WALL).stage is Stage.RECLAIMED


@pytest.mark.parametrize("gpu", [_BLIND, _SHARED_MORE])
def test_what_can_not_be_measured_ends_unverified_after_the_proofs_patience(gpu: GpuReading) -> None:
    """Not one instant before, and never RECLAIMED."""
    shared = gpu is _SHARED_MORE
    waiting = with_finding(_gone(), _look(gpu, 9.99, shared=shared), WALL)
    assert not waiting.ended
    end = with_finding(waiting, _look(gpu, 10, shared=shared), WALL)
    assert end.stage is Stage.UNVERIFIED
    assert end.proof is not None
    assert end.proof.kind is ProofKind.RELEASED_UNMEASURED


def test_memory_that_is_still_held_never_ends_it_here() -> None:
    """However long: the next stage, or running out of steps, is the ladder's business."""
    assert not with_finding(_gone(), _look(a_gpu(used=8 * GIB), 1000), WALL).ended


# --- withdrawal and handing over -------------------------------------------------------------------


def test_a_rules_incident_may_be_withdrawn_until_sigkill_and_an_operators_never() -> None:
    """Once SIGKILL is out there is no way back; an operator's word is not a verdict."""
    early = {Stage.PENDING, Stage.WARNED, Stage.SUSPENDED, Stage.SIGTERM}
    for stage in Stage:
        assert may_be_withdrawn(an_incident(stage=stage)) is (stage in early)
        assert not may_be_withdrawn(an_incident(stage=stage, actor=OPERATOR))


def test_a_withdrawn_incident_says_why() -> None:
    """STOOD_DOWN without a proof: nobody claims that memory came back."""
    end = withdrawn(an_incident(), "its rule no longer holds", WALL + 3)
    assert (end.stage, end.ended_at, end.end_text) == (
        Stage.STOOD_DOWN,
        WALL + 3,
        "its rule no longer holds",
    )
    assert end.proof is None


def test_withdrawing_after_sigkill_is_a_bug_and_raises() -> None:
    """The ladder does not know that way."""
    with pytest.raises(IllegalTransitionError):
        withdrawn(an_incident(stage=Stage.SIGKILL), "too late", WALL)


@pytest.mark.parametrize("to", [Recipient.OPERATOR, Recipient.PERSON])
@pytest.mark.parametrize("stage", _OPEN)
def test_running_out_of_steps_hands_it_to_a_person(stage: Stage, to: Recipient) -> None:
    """At every stage, with the recipient on record."""
    end = handed_over(an_incident(stage=stage), to, "no stage is left", WALL)
    assert (end.stage, end.handed_to, end.ended_at) == (Stage.HANDED_OVER, to, WALL)
    assert end.end_text == "no stage is left"


def test_only_an_accepted_drain_hands_it_to_the_scheduler() -> None:
    """Without DRAIN before it, that is a bug and raises."""
    end = handed_over(an_incident(stage=Stage.DRAIN), Recipient.SCHEDULER, "accepted", WALL)
    assert (end.stage, end.handed_to) == (Stage.HANDED_OVER, Recipient.SCHEDULER)
    with pytest.raises(IllegalTransitionError):
        handed_over(an_incident(stage=Stage.SIGKILL), Recipient.SCHEDULER, "accepted", WALL)


def test_whoever_asked_gets_it_back() -> None:
    """An operator's to the operator, a rule's to a person."""
    assert recipient_of(an_incident(actor=OPERATOR)) is Recipient.OPERATOR
    assert recipient_of(an_incident()) is Recipient.PERSON


def test_a_verified_reset_ends_a_gpus_own_incident_with_its_own_proof() -> None:
    """The end is reclaimed, and the proof says that a reset was verified and no memory was compared."""
    incident = an_incident(stage=Stage.RESET, subject=Subject.GPU)
    ended = reset_verified(incident, "back and well", WALL)
    assert (ended.stage, ended.ended_at, ended.end_text) == (Stage.RECLAIMED, WALL, "back and well")
    assert ended.proof is not None
    assert ended.proof.kind is ProofKind.RESET_VERIFIED


# --- drain reasons ---------------------------------------------------------------------------------


@pytest.mark.parametrize("action", RecoveryAction)
def test_only_a_recovery_action_of_reboot_or_worse_is_a_reason(action: RecoveryAction) -> None:
    """What a reset mends, and what we don't know, is none."""
    gpu = a_gpu(recovery_action=Known(action))
    found = drain_reason_of(an_incident(), a_snapshot(gpus=(gpu,)))
    grave = {RecoveryAction.NODE_REBOOT, RecoveryAction.BUS_RESET, RecoveryAction.SYSTEM_REBOOT}
    assert (found is not None) is (action in grave)
    if found is not None:
        assert found.domain is FaultDomain.HARDWARE
        assert GPU_A in found.text


def test_an_unreadable_action_and_another_gpus_action_are_no_reason() -> None:
    """An unreadable figure is an alarm for a person; a GPU that the target was not on is not its matter."""
    unreadable = a_gpu(recovery_action=Unreadable("x"))
    other = a_gpu(GPU_B, recovery_action=Known(RecoveryAction.NODE_REBOOT))
    assert drain_reason_of(an_incident(), a_snapshot(gpus=(unreadable, other))) is None
    assert drain_reason_of(an_incident(), a_snapshot(gpus=())) is None


@pytest.mark.parametrize("fault", FaultClass)
def test_a_standing_xid_is_a_reason_from_reboot_on(fault: FaultClass) -> None:
    """A GPU that fell off the bus, or an Xid of the class reboot, asks for a drain; no other Xid does."""
    xid = StandingXid(GPU_A, BOOT, 79, fault, seq=7, at=WALL)
    found = drain_reason_of(an_incident(), a_snapshot(), Ledger(xids=(xid,)))
    assert (found is not None) is (fault in (FaultClass.REBOOT, FaultClass.LOST))
    if found is not None:
        assert found.domain is FaultDomain.HARDWARE
        assert "Xid 79" in found.text
        lost = fault is FaultClass.LOST
        assert found.code is (DrainCode.GPU_LOST if lost else DrainCode.RECOVERY_ACTION)
    assert drain_reason_of(an_incident(), a_snapshot()) is None


@pytest.mark.parametrize(
    ("stage", "kind", "counts"),
    [
        (Stage.RESET, OutcomeKind.FAILED, True),
        (Stage.RESET, OutcomeKind.RESET_ABANDONED, True),
        (Stage.RESET, OutcomeKind.RESET_NOT_VERIFIED, True),
        (Stage.RESET, OutcomeKind.RESET_REFUSED, False),
        (Stage.RESET, OutcomeKind.RESET_DONE, False),
        (Stage.RESET, None, False),
        (Stage.SIGKILL, OutcomeKind.FAILED, False),
    ],
)
def test_a_reset_that_was_executed_and_failed_is_a_reason(
    stage: Stage, kind: OutcomeKind | None, *, counts: bool
) -> None:
    """A refused one was not executed; a failed signal is our own fault."""
    incident = an_incident(attempts=(_tried(stage, kind),))
    found = drain_reason_of(incident, a_busy_snapshot(_MINE))
    assert (found is not None) is counts
    if found is not None:
        assert found.domain is FaultDomain.DRIVER
        assert "said the tool" in found.text


def _leaving(after: float, exited: frozenset[ProcessRef] = frozenset()) -> Snapshot:
    reading = a_process(100, tasks=(a_task(100, "D", PF_EXITING),))
    return a_busy_snapshot(reading, at=MONO + after, exited=exited)


def _killed(kind: OutcomeKind | None = OutcomeKind.SENT, release_at: float | None = 0.0) -> Incident:
    release = None if release_at is None else Release(1, 8 * GIB, MONO + release_at)
    return an_incident(
        a_target(_MINE), stage=Stage.SIGKILL, attempts=(_tried(Stage.SIGKILL, kind),), release=release
    )


def test_a_killed_task_that_lets_go_of_nothing_through_its_grace_is_a_reason() -> None:
    """From the last release on, not before; whose fault it is nobody knows yet."""
    assert drain_reason_of(_killed(), _leaving(119.9)) is None
    found = drain_reason_of(_killed(), _leaving(120))
    assert found is not None
    assert found.domain is FaultDomain.UNKNOWN
    assert "pid 100 is exiting (1 task in D)" in found.text
    assert drain_reason_of(_killed(release_at=60), _leaving(120)) is None


def test_a_target_that_was_never_seen_to_have_anything_has_no_grace_behind_it() -> None:
    """Without a mark the grace has not begun."""
    assert drain_reason_of(_killed(release_at=None), _leaving(1000)) is None


@pytest.mark.parametrize("kind", [OutcomeKind.WITHHELD, OutcomeKind.NOT_PERMITTED, OutcomeKind.DRY_RUN])
def test_a_sigkill_that_was_not_sent_gives_no_reason(kind: OutcomeKind) -> None:
    """A slow exit of somebody we never killed is not the driver's fault."""
    assert drain_reason_of(_killed(kind), _leaving(1000)) is None


def test_a_living_or_gone_or_unseen_target_is_no_reason() -> None:
    """Another living holder is none either: only a task in its exit path counts."""
    assert drain_reason_of(_killed(), a_busy_snapshot(_MINE, at=MONO + 1000)) is None
    assert drain_reason_of(_killed(), _leaving(1000, exited=frozenset({_ME}))) is None
    assert drain_reason_of(_killed(), a_snapshot(at=MONO + 1000)) is None
