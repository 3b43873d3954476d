"""Which GPUs a fault rule asks to reset: what holds long enough, and nothing that a reset can't mend."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.fault_rules import FaultSpans, GpuVerdict, evaluate_faults
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, ListedStage, Mode, Policy, RuleAction
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from reclaimerd.model.verdict import Ruling
from tests.builders import BOOT, GPU_A, GPU_B, MONO, WALL, a_gpu, a_snapshot

RESET, DRAIN = ListedStage.RESET, ListedStage.DRAIN
BY_XID = FaultRule("mend", xid_classes=("reset", "drain_and_reset"), mode=Mode.ENFORCE)
BY_ACTION = FaultRule("mend", recovery_actions=("gpu_reset", "drain_and_reset"), mode=Mode.ENFORCE)


def an_xid(
    fault: FaultClass = FaultClass.RESET, code: int = 48, gpu: GpuUuid = GPU_A, boot_id: str = BOOT
) -> StandingXid:
    """Return an Xid that stands against a GPU."""
    return StandingXid(gpu, boot_id, code, fault, 7, WALL)


def a_look(action: Reading[RecoveryAction] | None = None, at: float = MONO) -> Snapshot:
    """Return a look at two GPUs; `action` is the first one's."""
    reading: Reading[RecoveryAction] = Known(RecoveryAction.NONE) if action is None else action
    return a_snapshot(gpus=(a_gpu(recovery_action=reading), a_gpu(GPU_B)), at=at)


def answers(
    rule: FaultRule, *xids: StandingXid, look: Snapshot | None = None, since: FaultSpans | None = None
) -> tuple[tuple[GpuVerdict, ...], FaultSpans]:
    """Judge one look by one rule that enforces."""
    policy = Policy(mode=Mode.ENFORCE, fault_rules=(rule,))
    snapshot = a_look() if look is None else look
    return evaluate_faults(snapshot, policy, Ledger(xids=xids), {} if since is None else since)


def after(rule: FaultRule, *xids: StandingXid, seconds: float = 30.0, **look: Any) -> GpuVerdict:
    """Return the one answer when the same was seen for so long, in looks two seconds apart."""
    verdicts: tuple[GpuVerdict, ...] = ()
    spans: FaultSpans = {}
    for step in range(int(seconds / 2) + 1):
        verdicts, spans = answers(rule, *xids, look=a_look(at=MONO + 2.0 * step, **look), since=spans)
    (verdict,) = verdicts
    return verdict


def test_an_xid_that_stands_long_enough_asks_for_a_reset() -> None:
    """Before `for` is over it is only watched."""
    early = after(BY_XID, an_xid(), seconds=28)
    assert early.ruling is Ruling.WATCH
    assert "so far for 28 of 30 s" in early.text
    due = after(BY_XID, an_xid())
    assert (due.gpu, due.rule, due.ruling, due.stages) == (GPU_A, "mend", Ruling.RECLAIM, (RESET, DRAIN))
    assert (due.fault, due.mode, due.sustained_seconds) == (FaultClass.RESET, Mode.ENFORCE, 30.0)
    assert due.text == "Xid 48 (reset)"


@pytest.mark.parametrize("action", [RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET])
def test_the_drivers_own_word_asks_for_a_reset(action: RecoveryAction) -> None:
    """By NVML's words."""
    due = after(BY_ACTION, action=Known(action))
    assert (due.ruling, due.stages) == (Ruling.RECLAIM, (RESET, DRAIN))
    assert due.text == f"recovery action {action}"


def test_the_two_lists_are_alternatives() -> None:
    """One of them suffices, and both are told."""
    both = replace(BY_XID, recovery_actions=("gpu_reset",))
    assert after(both, an_xid()).ruling is Ruling.RECLAIM
    assert after(both, action=Known(RecoveryAction.GPU_RESET)).ruling is Ruling.RECLAIM
    told = after(both, an_xid(), action=Known(RecoveryAction.GPU_RESET))
    assert told.text == "Xid 48 (reset); recovery action gpu_reset"


def test_nothing_said_is_no_answer() -> None:
    """Milder classes, another GPU's Xid, another boot's, and an idle or a busy GPU without a fault."""
    assert answers(BY_XID) == ((), {})
    milder = an_xid(FaultClass.APPLICATION, 31)
    assert answers(BY_XID, milder, an_xid(FaultClass.IGNORE, 45))[0] == ()
    assert answers(BY_XID, an_xid(boot_id="another-boot"))[0] == ()
    only_b = replace(BY_XID, gpus=(GPU_B,))
    assert answers(only_b, an_xid())[0] == ()
    assert [verdict.gpu for verdict in answers(only_b, an_xid(gpu=GPU_B))[0]] == [GPU_B]
    assert answers(BY_ACTION)[0] == ()
    assert answers(BY_ACTION, look=a_look(Absent("before R565")))[0] == ()
    assert answers(BY_ACTION, look=a_look(Known(RecoveryAction.NODE_REBOOT)))[0] == ()


def test_without_fault_rules_nothing_is_judged() -> None:
    """The shipped policy asks for nothing, whatever stands."""
    assert evaluate_faults(a_look(), Policy(), Ledger(xids=(an_xid(),)), {}) == ((), {})


@pytest.mark.parametrize(
    ("xid", "action"),
    [
        (an_xid(FaultClass.REBOOT, 900), RecoveryAction.NONE),
        (an_xid(FaultClass.LOST, 79), RecoveryAction.GPU_RESET),
        (an_xid(FaultClass.RESET, 62), RecoveryAction.NODE_REBOOT),
    ],
)
def test_a_graver_fault_never_becomes_due_for_a_reset(xid: StandingXid, action: RecoveryAction) -> None:
    """A lost GPU reads "reset me": the graver wins, and only the drain stays of the rule's steps."""
    due = after(BY_XID, an_xid(), xid, action=Known(action))
    assert (due.ruling, due.stages) == (Ruling.RECLAIM, (DRAIN,))
    assert "a reset does not mend that" in due.text
    no_drain = after(replace(BY_XID, stages=(RESET,)), an_xid(), xid, action=Known(action))
    assert (no_drain.ruling, no_drain.stages) == (Ruling.WATCH, ())


@pytest.mark.parametrize(
    "xid", [an_xid(FaultClass.UNKNOWN, 162), an_xid(FaultClass.OTHER, 74)], ids=["unknown", "other"]
)
def test_a_fault_that_nobody_can_tell_asks_for_nothing(xid: StandingXid) -> None:
    """Neither a reset nor a drain, however long it stands."""
    verdict = after(BY_XID, an_xid(), xid, seconds=600)
    assert (verdict.ruling, verdict.stages) == (Ruling.UNDETERMINED, ())


def test_an_action_that_can_t_be_read_is_undetermined() -> None:
    """A rule that waits for the driver's word says that it has none; one by Xid is doubtful as well."""
    verdict = after(BY_ACTION, action=Unreadable("silent"), seconds=600)
    assert (verdict.ruling, verdict.stages) == (Ruling.UNDETERMINED, ())
    assert "silent" in verdict.text
    assert after(BY_XID, an_xid(), action=Unreadable("silent")).ruling is Ruling.UNDETERMINED


def test_a_rule_may_wait_for_what_only_a_drain_answers() -> None:
    """A lost GPU by Xid, by the driver's words, and a reboot by the recovery action: the drain alone."""
    lost = replace(BY_XID, xid_classes=("lost",), recovery_actions=("node_reboot",))
    assert after(lost, an_xid(FaultClass.LOST, 79)).stages == (DRAIN,)
    assert after(lost, action=Known(RecoveryAction.NODE_REBOOT)).stages == (DRAIN,)
    by_presence = after(replace(lost, recovery_actions=()), action=Unreadable("GPU is lost"))
    assert (by_presence.stages, by_presence.ruling) == ((DRAIN,), Ruling.RECLAIM)


def test_a_gpu_that_is_gone_from_the_look_is_judged_by_its_xids() -> None:
    """NVML does not list a lost GPU any more."""
    rule = replace(BY_XID, xid_classes=("lost",), for_seconds=0.0)
    look = a_snapshot(gpus=(a_gpu(GPU_B),))
    (verdict,), _ = answers(rule, an_xid(FaultClass.LOST, 79), look=look)
    assert (verdict.gpu, verdict.ruling, verdict.stages) == (GPU_A, Ruling.RECLAIM, (DRAIN,))


def test_a_gone_gpu_has_no_action_to_believe() -> None:
    """The rule by the driver's word has no answer on it."""
    rule = replace(BY_ACTION, for_seconds=0.0)
    look = a_snapshot(gpus=(a_gpu(GPU_B),))
    assert answers(rule, an_xid(FaultClass.LOST, 79), look=look)[0] == ()


def test_a_rule_that_only_observes_never_asks() -> None:
    """And the daemon's mode caps the rule's."""
    verdict = after(replace(BY_XID, action=RuleAction.OBSERVE), an_xid())
    assert verdict.ruling is Ruling.WATCH
    policy = Policy(mode=Mode.OBSERVE, fault_rules=(replace(BY_XID, for_seconds=0.0),))
    (due,), _ = evaluate_faults(a_look(), policy, Ledger(xids=(an_xid(),)), {})
    assert (due.ruling, due.mode) == (Ruling.RECLAIM, Mode.OBSERVE)


def test_a_long_gap_or_a_look_without_it_starts_anew() -> None:
    """A paused machine has not seen the fault stand; neither has a clock that went back."""
    _, spans = answers(BY_XID, an_xid())
    key = ("mend", GPU_A)
    for later, since in ((5.0, MONO), (7.0, MONO + 7.0), (-1.0, MONO - 1.0)):
        _, kept = answers(BY_XID, an_xid(), look=a_look(at=MONO + later), since=spans)
        assert kept[key].since == since
    assert answers(BY_XID, look=a_look(at=MONO + 2), since=spans)[1] == {}


def test_a_look_that_can_t_tell_keeps_what_was_and_adds_nothing() -> None:
    """As for memory rules: unknown counts for nothing, and lapses after three intervals."""
    reset = Known(RecoveryAction.GPU_RESET)
    _, spans = answers(BY_ACTION, look=a_look(reset))
    blind = Unreadable("silent")
    _, kept = answers(BY_ACTION, look=a_look(blind, at=MONO + 4), since=spans)
    assert kept == spans
    _, gone = answers(BY_ACTION, look=a_look(blind, at=MONO + 8), since=kept)
    assert gone == {}


def test_a_rule_that_asks_for_something_else_since_a_reload_starts_anew() -> None:
    """One name, other words: what stood by the old ones has not stood by the new; a mode changes nothing."""
    _, spans = answers(BY_XID, an_xid())
    later = a_look(Known(RecoveryAction.GPU_RESET), at=MONO + 4.0)
    (same,), _ = answers(replace(BY_XID, mode=Mode.OBSERVE), an_xid(), look=later, since=spans)
    (other,), _ = answers(BY_ACTION, an_xid(), look=later, since=spans)
    assert (same.sustained_seconds, other.sustained_seconds) == (4.0, 0.0)
