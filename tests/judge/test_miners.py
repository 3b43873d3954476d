"""A miner is told by signs of two kinds at least; what is unknown adds nothing and is named."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.conditions import DoesNotHold, Holds, listed_of
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.miner_signs import WEIGHTS, MinerSign, SignGroup, as_markdown, shown, together
from reclaimerd.judge.miners import miner_condition
from reclaimerd.judge.series import Point, Series
from reclaimerd.model.policy import MinerSettings, Rule, RuleAction, RuleKind
from reclaimerd.model.process import ProcessReading, ProgramSigns
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Holder, Snapshot
from tests.builders import GIB, GPU_A, GPU_B, MONO, a_gpu, a_holder, a_process, a_row, a_snapshot

PAGE = Path(__file__).parents[2] / "docs" / "miners.md"
RULE = Rule("miner", kind=RuleKind.MINER, action=RuleAction.WARN)
WINDOW = RULE.window_seconds
LOOKS = 101
"""Looks of a window, so that 6 s lie between two."""
PUBLIC = "8.8.8.8"
DIGEST = "ab" * 32
NOTHING = ProgramSigns(Known(0), Known("cd" * 32), Known(()))
BEHAVIOUR = {MinerSign.FULL_LOAD, MinerSign.NO_IO, MinerSign.SMALL_MEMORY}


def a_series(percents: list[int | None], io_rate: float | None = 0.0) -> Series:
    """Return a full window of these least shares, which reads and writes so many bytes a second."""
    step = WINDOW / (len(percents) - 1)
    start = MONO - WINDOW
    points = tuple(
        Point(
            at := start + step * index,
            at,
            4 * GIB,
            percent,
            0,
            percent,
            None if io_rate is None else int(io_rate * step * index),
        )
        for index, percent in enumerate(percents)
    )
    return Series(start, WINDOW, points)


FULL = a_series([99] * LOOKS)


def a_basis(
    series: Series | None = FULL,
    *,
    signs: ProgramSigns | None = NOTHING,
    used: int = 4 * GIB,
    gpus: tuple[str, ...] = (GPU_A,),
) -> tuple[Basis, list[Holder]]:
    """Return what the judge rests on for a process of these signs that holds so much of an 80 GiB GPU."""
    reading = a_process()
    look: Snapshot = a_snapshot(
        gpus=[a_gpu(gpu, processes=[a_row(used=used)]) for gpu in gpus],
        processes=[reading],
        holders=[a_holder(reading, gpu, used=used) for gpu in gpus],
        signs={} if signs is None else {reading.ref: signs},
    )
    known = {} if series is None else {(reading.ref, GPU_A, WINDOW): series}
    return Basis(look, listed_of(look), known, miner=MinerSettings(sha256=(DIGEST,))), list(look.holders)


def condition(
    series: Series | None = FULL,
    *,
    reading: ProcessReading | None = None,
    rule: Rule = RULE,
    signs: ProgramSigns | None = NOTHING,
    used: int = 4 * GIB,
) -> Holds | DoesNotHold:
    """Return the answer of the rule about one process on GPU A."""
    basis, rows = a_basis(series, signs=signs, used=used)
    answer = miner_condition(rule, a_process() if reading is None else reading, rows, basis)
    assert isinstance(answer, Holds | DoesNotHold)
    return answer


def test_each_sign_has_a_weight_and_no_kind_reaches_the_score_alone() -> None:
    """All signs of one group together stay below 1, and the behaviour of busy training below one half."""
    assert set(WEIGHTS) == set(MinerSign)
    for group in SignGroup:
        every = together(shown(sign, "x") for sign, weight in WEIGHTS.items() if weight.group is group)
        assert 0 < every.points < 100
    assert together(shown(sign, "x") for sign in BEHAVIOUR).points < 50


@given(st.sets(st.sampled_from(MinerSign)), st.sampled_from(MinerSign))
def test_more_signs_never_make_less_of_a_miner(some: set[MinerSign], more: MinerSign) -> None:
    """A score rises with each sign, and reaches 1 by signs of two groups at least."""
    fewer, all_of_them = (together(shown(sign, "x") for sign in signs) for signs in (some, {*some, more}))
    assert fewer.points <= all_of_them.points
    assert all_of_them.points < 100 or len({WEIGHTS[sign].group for sign in {*some, more}}) > 1


def test_a_busy_training_job_scores_below_one_half() -> None:
    """Full load, a set that lies in GPU memory, and no input: 0.45, with every sign and its weight."""
    answer = condition()
    assert isinstance(answer, DoesNotHold)
    assert answer.text == (
        f"scores 0.45 as a miner, less than 1: used 90 % of {GPU_A} or more for 10 min (0.20);"
        " read and wrote 0 KiB/s (0.15); holds 5 % of its memory (0.10)"
    )


def test_two_kinds_of_sign_make_a_miner() -> None:
    """The same with a known name holds, on its GPU, and the sentence has the score and the signs."""
    answer = condition(reading=a_process(comm="xmrig"))
    assert isinstance(answer, Holds)
    assert answer.gpus == (GPU_A,)
    assert answer.text.startswith("scores 1.10 as a miner, 1 or more: used 90 %")
    assert answer.text.endswith("bears the name of the miner xmrig (0.65)")


def test_a_rule_of_a_lower_score_holds_for_less() -> None:
    """The score is the rule's; but without any sign no score is reached."""
    assert isinstance(condition(rule=replace(RULE, score=0.45)), Holds)
    nobody = condition(a_series([0] * LOOKS), rule=replace(RULE, score=0.0))
    assert nobody == DoesNotHold("scores 0.00 as a miner, less than 0: no sign of it")


def test_a_group_that_is_full_says_so() -> None:
    """Where the weights sum to more than a group counts the sentence says why the score is less."""
    reading = a_process(exe=Known("/tmp/xmrig (deleted)"), cmdline=Known(("xmrig",)))
    answer = condition(a_series([0] * LOOKS), reading=reading)
    assert isinstance(answer, DoesNotHold)
    assert answer.text.startswith("scores 0.90 as a miner, less than 1: ")
    assert answer.text.endswith("; one kind of sign counts 0.9 at most")


def test_who_is_not_concerned_is_not_scored() -> None:
    """Without a row that the rule concerns there is nothing to say."""
    basis, _ = a_basis()
    assert miner_condition(RULE, a_process(), [], basis) == DoesNotHold("the rule does not concern it")


@pytest.mark.parametrize(
    ("percents", "answer"),
    [
        ([99] * LOOKS, {MinerSign.FULL_LOAD}),
        ([90] * LOOKS, {MinerSign.FULL_LOAD}),
        ([89] * LOOKS, set()),
        ([99] * 96 + [10] * 5, {MinerSign.FULL_LOAD}),
        ([99] * 95 + [10] * 6, set()),
        ([99] * 96 + [None] * 5, {MinerSign.FULL_LOAD}),
        ([99] * 95 + [None] * 3 + [10] * 3, set()),
        ([None] * LOOKS, set()),
    ],
)
def test_load_is_full_when_it_hardly_ever_dips(percents: list[int | None], answer: set[MinerSign]) -> None:
    """One look in twenty may be lower or unknown; memory and input count beside a full load only."""
    shows = {sign for sign in MinerSign if _words(sign) in condition(a_series(percents)).text}
    assert shows == (BEHAVIOUR if answer else set())


def _words(sign: MinerSign) -> str:
    words = {
        MinerSign.FULL_LOAD: "used 90 % of",
        MinerSign.NO_IO: "read and wrote 0",
        MinerSign.SMALL_MEMORY: "of its memory (",
    }
    return words.get(sign, "nothing says this")


@pytest.mark.parametrize(
    ("series", "why"),
    [
        (None, f"not known: its load on {GPU_A} over the last 10 min"),
        (a_series([None] * LOOKS), f"not known: its load on {GPU_A} all the last 10 min"),
        (replace(FULL, since=MONO - 60), f"not known: its load on {GPU_A}: watched for 1 min of 10 min"),
        (replace(FULL, points=FULL.points[:-1]), f"not known: its load on {GPU_A} over the last 10 min"),
        (a_series([99] * LOOKS, None), "not known: what it read and wrote"),
    ],
)
def test_what_is_not_known_adds_nothing_and_is_named(series: Series | None, why: str) -> None:
    """Neither a short history nor a missing figure is a sign."""
    assert condition(series).text.endswith(why)
    assert isinstance(condition(series), DoesNotHold)


def test_signs_that_were_not_read_are_named() -> None:
    """Without a reading of its connections, digest, parents: they are unknown, and so are unreadable ones."""
    assert "not known: its connections, the digest of its file and its parents" in condition(signs=None).text
    shut = Unreadable("no permission")
    blind = ProgramSigns(shut, shut, shut)
    reading = a_process(exe=shut, cmdline=Absent("a kernel thread"))
    text = condition(reading=reading, signs=blind).text
    for name in ("its program file", "the digest of its file", "its connections"):
        assert f"{name}: unreadable (no permission)" in text
    assert "its arguments: absent (a kernel thread)" in text


def test_memory_counts_only_where_it_is_known_and_little() -> None:
    """A tenth of the device at most; none at all, and a figure that can't be, are no sign."""
    assert "holds 10 % of its memory" in condition(used=8 * GIB).text
    for used in (8 * GIB + 2**20, 0):
        assert "of its memory" not in condition(used=used).text
    impossible = condition(used=81 * GIB).text
    assert "more than the device has" in impossible
    assert "of its memory (" not in impossible


@pytest.mark.parametrize(
    ("rate", "is_sign"), [(0.0, True), (60 * 1024, True), (64 * 1024, False), (1e8, False)]
)
def test_input_and_output_are_judged_by_their_highest_possible_rate(rate: float, is_sign: object) -> None:
    """What was read may be 30 s old: 64 KiB/s over 600 s may have been done in 570."""
    assert ("KiB/s" in condition(a_series([99] * LOOKS, rate)).text) is is_sign


def test_input_and_output_must_be_known_over_the_window() -> None:
    """Known over a part of it only, a count that fell, or a window that is too short: unknown."""
    late = tuple(replace(point, io_bytes=None) for point in FULL.points[:30]) + FULL.points[30:]
    fell = (replace(FULL.points[0], io_bytes=5), *FULL.points[1:])
    for points in (late, fell):
        assert "not known: what it read and wrote" in condition(replace(FULL, points=points)).text
    short = replace(RULE, window_seconds=30.0)
    basis, rows = a_basis()
    brief = Series(MONO - 30, 30.0, FULL.points[-6:])
    basis = replace(basis, series={(rows[0].ref, GPU_A, 30.0): brief})
    answer = miner_condition(short, a_process(), rows, basis)
    assert "not known: what it read and wrote" in answer.text


def test_of_several_gpus_the_one_that_shows_most_counts() -> None:
    """A GPU of which nothing is known hides nothing, and all rows are named when the rule holds."""
    basis, rows = a_basis(gpus=(GPU_B, GPU_A))
    answer = miner_condition(RULE, a_process(comm="xmrig"), rows, basis)
    assert isinstance(answer, Holds)
    assert answer.gpus == (GPU_B, GPU_A)
    blind, rows = a_basis(None, gpus=(GPU_B, GPU_A))
    assert (
        f"its load on {GPU_B} over the last 10 min, its load on {GPU_A}"
        in miner_condition(RULE, a_process(), rows, blind).text
    )


def test_the_page_has_the_table_and_each_sign() -> None:
    """docs/miners.md has the weights as they are, and a paragraph for each sign."""
    page = PAGE.read_text(encoding="utf-8")
    assert as_markdown() in page
    assert set(re.findall(r"^- \*\*(.+?)\*\*", page, re.MULTILINE)) == set(MinerSign)
