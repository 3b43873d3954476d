"""What a policy would decide about one look: as if what holds in it had gone on, and with nothing changed."""

from dataclasses import replace

import pytest

from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.trial import Trial, TrialRow, trial
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import (
    FaultRule,
    Mode,
    Policy,
    RuleAction,
    UserProtection,
)
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    GPU_B,
    OURS,
    WALL,
    a_busy_snapshot,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
)

CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})
XID = StandingXid(GPU_A, BOOT, 48, FaultClass.RESET, 7, WALL)


def tried(policy: Policy, look: Snapshot | None = None, xids: tuple[StandingXid, ...] = ()) -> Trial:
    """Return the decisions on a look."""
    return trial(a_busy_snapshot() if look is None else look, policy, xids, CONTEXT)


def only(policy: Policy, look: Snapshot | None = None) -> TrialRow:
    """Return the one row of a look with one holder."""
    (row,) = tried(policy, look).rows
    return row


def test_what_holds_is_judged_as_if_it_went_on() -> None:
    """RECLAIM, with how long it must hold beside it, and the steps that would be due."""
    row = only(a_policy(a_rule(for_seconds=120.0, readings=10)))
    assert (row.ref, row.gpus, row.rule) == (a_ref(), (GPU_A,), "over-cap")
    assert (row.ruling, row.holds, row.decides) == (Ruling.RECLAIM, True, True)
    assert (row.for_seconds, row.readings) == (120.0, 10)
    assert row.text == f"holds 8.0 GiB, more than 4.0 GiB on {GPU_A}"
    assert [one.stage for one in row.stages] == [Stage.SIGTERM, Stage.SIGKILL, Stage.DRAIN]


def test_where_no_rule_holds_there_is_one_row() -> None:
    """WATCH, and nothing is due."""
    row = only(a_policy(a_rule("a", above=70 * GIB), a_rule("b", above=60 * GIB)))
    assert (row.rule, row.ruling, row.text, row.holds) == ("", Ruling.WATCH, "no rule holds", False)
    assert (row.stages, row.decides) == ((), False)
    assert row.gpus == (GPU_A,)


def test_of_two_rules_the_one_that_may_go_further_decides() -> None:
    """Both have their row."""
    rows = tried(a_policy(a_rule("seen", mode=Mode.OBSERVE), a_rule("acts"))).rows
    assert [(row.rule, row.mode, row.decides) for row in rows] == [
        ("seen", Mode.OBSERVE, False),
        ("acts", Mode.ENFORCE, True),
    ]


def test_a_rule_that_only_observes_has_no_steps() -> None:
    """It holds, and nothing would be due."""
    row = only(a_policy(a_rule(action=RuleAction.OBSERVE)))
    assert (row.ruling, row.holds, row.stages) == (Ruling.WATCH, True, ())


@pytest.mark.parametrize("above", [4 * GIB, 70 * GIB])
def test_a_protected_process_is_spared_whatever_holds(above: int) -> None:
    """The row says what protects it, and nothing is due."""
    guard = UserProtection("mine", uids=((1000, 1000),))
    row = only(a_policy(a_rule(above=above), protections=(guard,)))
    assert (row.ruling, row.stages) == (Ruling.SPARE, ())
    assert "protects it by uid" in row.text


def test_what_can_not_be_read_is_undetermined() -> None:
    """Memory that can't be read: no rule holds, and none does not."""
    look = replace(a_busy_snapshot(), holders=(a_holder(used_bytes=Unreadable("no permission")),))
    row = only(a_policy(), look)
    assert (row.rule, row.ruling, row.holds) == ("over-cap", Ruling.UNDETERMINED, False)
    assert "no permission" in row.text


def test_a_doubt_about_the_process_stands_in_the_row_of_no_rule() -> None:
    """Its exe can't be read and no rule holds: hands off, and why."""
    look = a_busy_snapshot(a_process(exe=Unreadable("no permission")))
    row = only(a_policy(a_rule(above=70 * GIB)), look)
    assert (row.rule, row.ruling, row.text) == ("", Ruling.UNDETERMINED, "exe unreadable (no permission)")


def test_a_fault_rule_has_a_row_for_its_gpu() -> None:
    """No process is named; the Xid stood when the look was taken."""
    rule = FaultRule("mend", xid_classes=("reset",), for_seconds=30.0, mode=Mode.ENFORCE)
    policy = replace(a_policy(), rules=(), fault_rules=(rule,))
    row = tried(policy, a_snapshot(), (XID,)).rows[0]
    assert (row.ref, row.gpus, row.rule) == (None, (GPU_A,), "mend")
    assert (row.ruling, row.holds, row.decides, row.for_seconds) == (Ruling.RECLAIM, True, True, 30.0)
    assert [one.stage for one in row.stages] == [Stage.RESET, Stage.DRAIN]
    assert tried(policy, a_snapshot()).rows == ()


def test_a_fault_rule_that_only_observes_has_no_steps() -> None:
    """It holds, and nothing is due."""
    rule = FaultRule("mend", xid_classes=("reset",), action=RuleAction.OBSERVE)
    policy = replace(a_policy(), rules=(), fault_rules=(rule,))
    (row,) = tried(policy, a_snapshot(), (XID,)).rows
    assert (row.ruling, row.holds, row.decides, row.stages) == (Ruling.WATCH, True, False, ())


def test_the_breaker_is_named_when_too_much_would_come_due_at_once() -> None:
    """Two workloads in one look: the breaker would trip before anything is done."""
    two = a_busy_snapshot(a_process(), a_process(200, workload=replace(a_process().workload, path="/other")))
    assert "2 workloads became due" in tried(a_policy(), two).breaker
    assert tried(a_policy()).breaker == ""
    assert tried(a_policy(a_rule(mode=Mode.DRY_RUN)), two).breaker == ""
    assert tried(a_policy(a_rule(above=70 * GIB)), two).breaker == ""


def test_gpus_that_a_fault_rule_takes_count_for_the_breaker() -> None:
    """Two GPUs of two at once."""
    rule = FaultRule("mend", xid_classes=("reset",), mode=Mode.ENFORCE)
    policy = replace(a_policy(), rules=(), fault_rules=(rule,))
    xids = (XID, replace(XID, gpu=GPU_B))
    assert "2 of 2 GPUs" in tried(policy, a_busy_snapshot(), xids).breaker
    assert tried(replace(policy, mode=Mode.OBSERVE), a_busy_snapshot(), xids).breaker == ""
