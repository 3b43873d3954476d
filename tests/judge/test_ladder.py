"""Every pair of stage and fact: the legal ones lead where the table says, all others raise."""

from itertools import product
from pathlib import Path

import pytest

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.judge.ladder import TRANSITIONS, as_markdown, next_stage
from reclaimerd.model.incident import ENDS, Fact, Stage

_GONE = {
    Fact.PROVEN: Stage.RECLAIMED,
    Fact.GONE_UNMEASURED: Stage.UNVERIFIED,
    Fact.ENDED_BY_ITSELF: Stage.STOOD_DOWN,
    Fact.OUT_OF_STEPS: Stage.HANDED_OVER,
}
_SIGNALS = {Fact.TERM_SENT: Stage.SIGTERM, Fact.KILL_SENT: Stage.SIGKILL}
_LATE = {Fact.RESET_TRIED: Stage.RESET, Fact.DRAIN_ASKED: Stage.DRAIN}
_WITHDRAW = {Fact.VERDICT_WITHDRAWN: Stage.STOOD_DOWN}
_EXPECTED: dict[Stage, dict[Fact, Stage]] = {
    Stage.PENDING: {
        Fact.WARNING_DELIVERED: Stage.WARNED,
        Fact.SUSPENDED: Stage.SUSPENDED,
        **_SIGNALS,
        **_LATE,
        **_GONE,
        **_WITHDRAW,
    },
    Stage.WARNED: {Fact.SUSPENDED: Stage.SUSPENDED, **_SIGNALS, **_LATE, **_GONE, **_WITHDRAW},
    Stage.SUSPENDED: {Fact.EVICTED: Stage.EVICTED, **_SIGNALS, **_GONE, **_WITHDRAW},
    Stage.SIGTERM: {**_SIGNALS, **_LATE, **_GONE, **_WITHDRAW},
    Stage.SIGKILL: {Fact.KILL_SENT: Stage.SIGKILL, **_LATE, **_GONE},
    Stage.RESET: {Fact.DRAIN_ASKED: Stage.DRAIN, **_GONE},
    Stage.DRAIN: {Fact.DRAIN_ACCEPTED: Stage.HANDED_OVER, **_GONE},
}
"""The design's table, written a second time and apart from the code."""
_PAIRS = list(product(Stage, Fact))


@pytest.mark.parametrize(("stage", "fact"), _PAIRS, ids=[f"{stage}-{fact}" for stage, fact in _PAIRS])
def test_every_pair_leads_where_the_design_says_or_raises(stage: Stage, fact: Fact) -> None:
    """A legal fact gives the design's stage; any other raises, names both, and changes nothing."""
    before = {at: dict(row) for at, row in TRANSITIONS.items()}
    expected = _EXPECTED.get(stage, {}).get(fact)
    if expected is not None:
        assert next_stage(stage, fact) is expected
    else:
        with pytest.raises(IllegalTransitionError, match=rf"{fact}.*{stage}"):
            next_stage(stage, fact)
    assert before == TRANSITIONS


def test_the_table_has_a_row_for_every_stage_and_ends_have_empty_ones() -> None:
    """No stage is forgotten, and nothing leads out of an end."""
    assert set(TRANSITIONS) == set(Stage)
    assert {stage for stage, row in TRANSITIONS.items() if not row} == set(ENDS)


def test_the_ladder_never_leads_down() -> None:
    """No fact leads to an earlier stage of the ladder: a second round would start its patience anew."""
    order = list(Stage)
    for stage, row in TRANSITIONS.items():
        for after in row.values():
            assert order.index(after) >= order.index(stage), f"{stage} -> {after}"


def test_every_stage_that_is_no_end_can_be_left_for_an_end() -> None:
    """No incident can be stuck for ever: the proof and running out of steps are legal at each stage."""
    for stage in set(Stage) - ENDS:
        assert next_stage(stage, Fact.PROVEN) is Stage.RECLAIMED
        assert next_stage(stage, Fact.OUT_OF_STEPS) is Stage.HANDED_OVER


def test_the_page_names_every_transition_and_every_end() -> None:
    """The picture and the table of the page hold the whole machine."""
    page = as_markdown()
    for stage, row in TRANSITIONS.items():
        for fact, after in row.items():
            assert f"    {stage} --> {after}: {fact}\n" in page
            assert f"| {stage} | {fact} | {after} |\n" in page
    for end in ENDS:
        assert f"    {end} --> [*]\n" in page
        assert f"| {end} | (an end) | |\n" in page


def test_the_page_is_the_one_in_the_docs() -> None:
    """Nobody edits it by hand, and it is made anew when the table changes."""
    page = Path(__file__).parent.parent.parent / "docs/ladder.md"
    assert page.read_text(encoding="utf-8") == as_markdown()
