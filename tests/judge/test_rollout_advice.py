"""One line of advice for each picture, with its figures; the most serious thing first."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.rollout_advice import advice_of, undetermined_share
from reclaimerd.model.audit_record import RuleTally
from reclaimerd.model.policy import Mode
from reclaimerd.model.rollout import Advice, AdviceWord, Fate, RuleReport
from tests.builders import a_policy

CALM = RuleReport(
    rule="over-cap",
    kind="memory",
    mode=Mode.DRY_RUN,
    targets=4,
    incidents=4,
    per_day=0.6,
    fates=((Fate.AT_ONCE, 3), (Fate.LATER, 1)),
    stopped_by=(),
    held_up_by=(),
    in_grace=0,
    longest_wait_seconds=0.0,
    breaker_trips=0,
    stages=(),
    users=(("1000", 1), ("1001", 1), ("1002", 1), ("1003", 1)),
    workloads=(),
    tally=RuleTally("over-cap", looks=1000, undetermined=5),
    stories=(),
    advice=Advice(AdviceWord.NEVER_FIRED, ""),
)
UNSURE = RuleTally("over-cap", looks=10, undetermined=2)
SILENT = replace(CALM, targets=0, incidents=0, per_day=0.0, fates=(), users=())


def advised(report: RuleReport, days: float = 7.0, **overrides: Any) -> Advice:
    """Return the advice on a report of a week."""
    return advice_of(replace(report, **overrides), a_policy(), days)


def test_a_calm_rule_is_ready_and_the_figures_say_why() -> None:
    """Targets, what would have been done, what was stopped, and how much nobody could tell."""
    assert advised(CALM) == Advice(
        AdviceWord.READY,
        "4 targets in 7.0 days, 4 would have been acted on, 0 stopped, 0.5 % undetermined",
    )


def test_without_a_count_of_looks_the_line_says_so() -> None:
    """No figure is no zero."""
    found = advised(CALM, tally=None)
    assert found.word is AdviceWord.READY
    assert "undetermined share not counted yet" in found.text
    assert undetermined_share(replace(CALM, tally=RuleTally("over-cap"))) is None


@pytest.mark.parametrize(
    ("overrides", "word", "said"),
    [
        ({"tally": UNSURE}, AdviceWord.CAN_NOT_TELL, "20 % of its looks"),
        ({"breaker_trips": 2}, AdviceWord.TOO_NOISY, "the breaker would have tripped 2 times"),
        ({"per_day": 3.5}, AdviceWord.TOO_NOISY, "3.5 targets a day, and the budget is 3"),
        ({"stopped_by": (("budget", 1),)}, AdviceWord.TOO_NOISY, "1 of 4 without room"),
        ({"users": (("1000", 3), ("1001", 1))}, AdviceWord.NEEDS_EXEMPTION, "3 of 4 targets are uid 1000"),
        ({"workloads": (("lab/nb", 3),)}, AdviceWord.NEEDS_EXEMPTION, "3 of 4 targets are workload lab/nb"),
        ({"users": (("0", 4),)}, AdviceWord.READY, ""),
        ({"users": (("1000", 2), ("1001", 2))}, AdviceWord.READY, ""),
        ({"in_grace": 3}, AdviceWord.GAINS_NOTHING, "3 of 4 ended by themselves"),
        (
            {"fates": ((Fate.AT_ONCE, 2), (Fate.STOPPED, 2)), "stopped_by": (("protected", 2),)},
            AdviceWord.STOPPED,
            "2 of 4 would have been stopped (protected 2)",
        ),
        ({"mode": Mode.ENFORCE, "fates": ((Fate.ACTED, 4),)}, AdviceWord.ENFORCES, "4 acted on, 0 stopped"),
    ],
)  # fmt: skip
def test_each_picture_has_its_word(overrides: dict[str, Any], word: AdviceWord, said: str) -> None:
    """With the figure that decided."""
    found = advised(CALM, **overrides)
    assert found.word is word
    assert said in found.text


def test_less_than_two_days_say_little() -> None:
    """But a rule that enforces already has its figures at once."""
    assert advised(CALM, 1.5).word is AdviceWord.TOO_SHORT
    assert advised(SILENT, 1.5).word is AdviceWord.TOO_SHORT
    assert advised(CALM, 1.5, mode=Mode.ENFORCE).word is AdviceWord.ENFORCES


def test_a_rule_that_never_fired_says_whether_it_looked_at_anybody() -> None:
    """Whom it spared, whom it left alone, and how often it was asked."""
    assert advised(SILENT) == Advice(
        AdviceWord.NEVER_FIRED, "no target in 7.0 days and 1000 looks at processes"
    )
    assert "no look was counted" in advised(SILENT, tally=None).text
    tally = RuleTally("over-cap", looks=9, spared_processes=2, left_alone=7, left_alone_processes=1)
    text = advised(SILENT, tally=tally).text
    assert "2 protected processes broke it, 1 of large workloads were left alone" in text
