"""One word for each rule and process that it concerns, out of a real judgement."""

from dataclasses import replace

from reclaimerd.judge.evaluate import Evaluation, JudgeContext, evaluate
from reclaimerd.judge.tally import RuleAnswer, RuleWord, rule_answers
from reclaimerd.model.policy import GateSettings, Policy, RuleKind, Selector
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import Snapshot
from tests.builders import (
    GIB,
    OURS,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_rule,
)

JUDGE = JudgeContext(OURS, lambda pattern, text: pattern in text, {})


def words(snapshot: Snapshot, policy: Policy) -> dict[tuple[str, int], RuleWord]:
    """Return each rule's word on each pid in one look."""
    evaluation: Evaluation = evaluate(snapshot, policy, (), JUDGE)
    return {(one.rule, one.ref.pid): one.word for one in rule_answers(evaluation)}


def test_each_word_comes_of_its_own_picture() -> None:
    """Due, holding too briefly, not holding: three rules on one, and one that concerns it not."""
    policy = a_policy(
        a_rule("due"),
        a_rule("young", for_seconds=60.0),
        a_rule("no", above=70 * GIB),
        a_rule("others", match=Selector(uids=((7, 7),))),
    )
    assert words(a_busy_snapshot(), policy) == {
        ("due", 100): RuleWord.DUE,
        ("young", 100): RuleWord.HOLDING,
        ("no", 100): RuleWord.NO,
    }


def test_a_protected_process_that_breaks_a_rule_is_spared() -> None:
    """Our own process holds too much: the rule holds, and asks for nothing."""
    ours = a_process(OURS.pid)
    assert words(a_busy_snapshot(ours), a_policy()) == {("over-cap", ours.ref.pid): RuleWord.SPARED}


def test_what_can_not_be_told_is_undetermined() -> None:
    """A match on a command line that can't be read."""
    policy = a_policy(a_rule(match=Selector(cmdline=("train",))))
    hidden = a_process(cmdline=Unreadable("gone"))
    assert words(a_busy_snapshot(hidden), policy) == {("over-cap", 100): RuleWord.UNDETERMINED}


def test_of_who_can_not_be_read_every_rule_is_undetermined() -> None:
    """Also one that would not concern it: nobody knows."""
    seen = a_busy_snapshot()
    blind = replace(seen, processes={}, unreadable={100: "no answer"})
    policy = a_policy(a_rule("one"), a_rule("other", match=Selector(uids=((7, 7),))))
    assert set(words(blind, policy).values()) == {RuleWord.UNDETERMINED}
    assert len(words(blind, policy)) == 2


def test_a_large_workload_is_left_alone() -> None:
    """The rule would take it, and must not."""
    policy = a_policy(a_rule(), gates=GateSettings(spare_jobs_over_gpus=0))
    assert words(a_busy_snapshot(), policy) == {("over-cap", 100): RuleWord.LEFT_ALONE}


def test_a_kind_that_only_tells_is_left_alone_too() -> None:
    """It shows a sign and no proof."""
    policy = a_policy(a_rule("sign", kind=RuleKind.ORPHAN))
    assert set(words(a_busy_snapshot(), policy).values()) <= {
        RuleWord.LEFT_ALONE,
        RuleWord.NO,
        RuleWord.UNDETERMINED,
    }


def test_an_answer_names_the_process_by_identity() -> None:
    """A pid can come to mean another."""
    (answer,) = rule_answers(evaluate(a_busy_snapshot(), a_policy(), (), JUDGE))
    assert answer == RuleAnswer("over-cap", a_ref(), RuleWord.DUE)


def test_without_rules_nobody_is_asked() -> None:
    """Also of a process that can't be read."""
    seen = a_busy_snapshot()
    policy = replace(a_policy(), rules=())
    assert words(seen, policy) == {}
    assert words(replace(seen, processes={}, unreadable={100: "no answer"}), policy) == {}
