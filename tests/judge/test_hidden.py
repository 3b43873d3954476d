"""Processes that hold a GPU and are hidden from the process table: an alarm where a rule asks for it."""

from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.hidden import hidden_alarms
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.policy import RuleKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import HiddenListing
from reclaimerd.model.verdict import Ruling
from tests.builders import GIB, GPU_A, GPU_B, OURS, a_busy_snapshot, a_policy, a_rule

RULE = a_rule("hidden", kind=RuleKind.HIDDEN, large_jobs=True)
WHY = "it lives, and /proc does not list it"
HIDDEN = tuple(HiddenListing(gpu, 87315, Known(GIB), WHY) for gpu in (GPU_A, GPU_B))


def test_each_hidden_process_is_an_alarm_for_each_gpu() -> None:
    """Case C55; the sentence stays the same while its memory changes, so it is told once."""
    look = a_busy_snapshot(hidden=HIDDEN)
    assert hidden_alarms(look, a_policy(RULE, RULE)) == (
        f"pid 87315 holds {GPU_A} and is hidden from the process table: {WHY}",
        f"pid 87315 holds {GPU_B} and is hidden from the process table: {WHY}",
    )
    more = a_busy_snapshot(hidden=(HiddenListing(GPU_A, 87315, Known(2 * GIB), WHY), HIDDEN[1]))
    assert hidden_alarms(more, a_policy(RULE)) == hidden_alarms(look, a_policy(RULE))


def test_without_a_rule_for_it_nothing_is_said() -> None:
    """And without a hidden process neither."""
    assert hidden_alarms(a_busy_snapshot(hidden=HIDDEN), a_policy()) == ()
    assert hidden_alarms(a_busy_snapshot(), a_policy(RULE)) == ()


def test_the_rule_touches_nobody() -> None:
    """Whom everybody can see it does not concern, and the hidden one gets no verdict."""
    context = JudgeContext(OURS, lambda _pattern, _text: False, {})
    (verdict,) = evaluate(a_busy_snapshot(hidden=HIDDEN), a_policy(RULE), (), context).verdicts
    assert (verdict.ref.pid, verdict.ruling) == (100, Ruling.WATCH)
