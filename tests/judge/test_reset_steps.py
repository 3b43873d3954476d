"""Every pair of phase and fact: the legal ones lead where the design says, all others raise."""

from itertools import product
from pathlib import Path

import pytest

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.judge.reset_steps import PHASES, as_markdown, next_phase
from reclaimerd.model.reset_run import ResetFact, ResetPhase

_BACK = {ResetFact.REFUSED: ResetPhase.RESTORE, ResetFact.REBOOTED: ResetPhase.RESTORE}
_EXPECTED: dict[ResetPhase, dict[ResetFact, ResetPhase]] = {
    ResetPhase.PREPARE: {ResetFact.PREPARED: ResetPhase.FENCE, **_BACK},
    ResetPhase.FENCE: {ResetFact.FENCED: ResetPhase.STOP_CLIENTS, **_BACK},
    ResetPhase.STOP_CLIENTS: {ResetFact.STOPPED: ResetPhase.LOOK_AGAIN, **_BACK},
    ResetPhase.LOOK_AGAIN: {ResetFact.CLEAR: ResetPhase.RESET, **_BACK},
    ResetPhase.RESET: {
        ResetFact.TOOL_ENDED: ResetPhase.VERIFY,
        ResetFact.TOOL_SAID_NO: ResetPhase.RESTORE,
        ResetFact.TOOL_OVERRAN: ResetPhase.LEFT_ALONE,
        **_BACK,
    },
    ResetPhase.LEFT_ALONE: {
        ResetFact.TOOL_ENDED: ResetPhase.RESTORE,
        ResetFact.REBOOTED: ResetPhase.RESTORE,
    },
    ResetPhase.VERIFY: {
        ResetFact.VERIFIED: ResetPhase.RESTORE,
        ResetFact.NOT_VERIFIED: ResetPhase.RESTORE,
        ResetFact.REBOOTED: ResetPhase.RESTORE,
    },
    ResetPhase.RESTORE: {ResetFact.RESTORED: ResetPhase.DONE, ResetFact.REBOOTED: ResetPhase.RESTORE},
}
"""The design's table, written a second time and apart from the code."""
_PAIRS = list(product(ResetPhase, ResetFact))


@pytest.mark.parametrize(("phase", "fact"), _PAIRS, ids=[f"{phase}-{fact}" for phase, fact in _PAIRS])
def test_every_pair_leads_where_the_design_says_or_raises(phase: ResetPhase, fact: ResetFact) -> None:
    """A legal fact gives the design's phase; any other raises, names both, and changes nothing."""
    before = {at: dict(row) for at, row in PHASES.items()}
    expected = _EXPECTED.get(phase, {}).get(fact)
    if expected is not None:
        assert next_phase(phase, fact) is expected
    else:
        with pytest.raises(IllegalTransitionError, match=rf"{fact}.*{phase}"):
            next_phase(phase, fact)
    assert before == PHASES


def test_only_restore_leads_to_the_end() -> None:
    """No way to the end passes by the putting back; the end has an empty row."""
    leads = {phase for phase, row in PHASES.items() if ResetPhase.DONE in row.values()}
    assert leads == {ResetPhase.RESTORE}
    assert PHASES[ResetPhase.DONE] == {}
    assert set(PHASES) == set(ResetPhase)


def test_only_a_clear_last_look_leads_to_the_tool_and_only_its_end_to_the_verification() -> None:
    """Nothing else enters the phases in which the GPU is reset or taken as reset."""
    into_reset = [
        (phase, fact) for phase, row in PHASES.items() for fact in row if row[fact] is ResetPhase.RESET
    ]
    into_verify = [
        (phase, fact) for phase, row in PHASES.items() for fact in row if row[fact] is ResetPhase.VERIFY
    ]
    assert into_reset == [(ResetPhase.LOOK_AGAIN, ResetFact.CLEAR)]
    assert into_verify == [(ResetPhase.RESET, ResetFact.TOOL_ENDED)]


def test_no_fact_leads_back() -> None:
    """No phase is done twice by the table: a second reset under one permit can't be."""
    order = list(ResetPhase)
    for phase, row in PHASES.items():
        for after in row.values():
            assert order.index(after) > order.index(phase) or (phase, after) == (
                ResetPhase.RESTORE,
                ResetPhase.RESTORE,
            )


def test_the_page_is_the_table() -> None:
    """docs/reset.md is what `make docs` makes of the table now, and it holds the whole of it."""
    page = as_markdown()
    written = Path(__file__).parents[2] / "docs" / "reset.md"
    assert written.read_text(encoding="utf-8") == page
    for phase, row in PHASES.items():
        for fact, after in row.items():
            assert f"    {phase} --> {after}: {fact}\n" in page
            assert f"| {phase} | {fact} | {after} |\n" in page
    assert "    done --> [*]\n" in page
