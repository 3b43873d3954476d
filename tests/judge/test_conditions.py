"""A memory rule holds on figures that can be true, for as long as every look shows it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.conditions import (
    DoesNotHold,
    Holds,
    Seen,
    UnknownCondition,
    advance_sustained,
    memory_condition,
    sustained_enough,
)
from reclaimerd.model.policy import GpuSpan, Threshold
from reclaimerd.model.reading import Absent, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Sustained
from tests.builders import GIB, GPU_A, GPU_B, NOT_LISTED, a_gpu, a_holder, a_ref, a_row, a_rule, a_snapshot

ONE = a_rule(above=4 * GIB)
PERCENT = replace(ONE, above=Threshold(above_percent=50.0))
ALL = replace(ONE, span=GpuSpan.ALL)


def two_gpus(on_a: int, on_b: int) -> Snapshot:
    """Return a host where pid 100 holds so much on each of two GPUs of 80 GiB."""
    gpus = (a_gpu(GPU_A, processes=[a_row(used=on_a)]), a_gpu(GPU_B, processes=[a_row(used=on_b)]))
    holders = (a_holder(used=on_a), a_holder(gpu=GPU_B, used=on_b))
    return a_snapshot(gpus=gpus, holders=holders)


def test_one_gpu_over_the_cap_holds_with_its_excess() -> None:
    """The cap is exceeded by more than it, not by as much; the answer names GPU and excess."""
    over = two_gpus(4 * GIB + 1, 4 * GIB)
    assert memory_condition(ONE, over.holders, over) == Holds(
        f"holds 4.0 GiB, more than 4.0 GiB on {GPU_A}", (GPU_A,), 1
    )
    under = two_gpus(4 * GIB, 3 * GIB)
    assert memory_condition(ONE, under.holders, under) == DoesNotHold(
        "holds 4.0 GiB at most, not more than 4.0 GiB"
    )
    assert isinstance(memory_condition(ONE, (), under), DoesNotHold)


def test_percent_is_of_the_gpu_or_of_all_of_them() -> None:
    """A share counts against one GPU's total, or against the sum of them."""
    host = two_gpus(41 * GIB, 2 * GIB)
    assert isinstance(memory_condition(PERCENT, host.holders, host), Holds)
    spread = replace(PERCENT, span=GpuSpan.ALL)
    assert memory_condition(spread, host.holders, host) == DoesNotHold(
        "holds 43.0 GiB in all, not more than 50 %"
    )


def test_all_sums_over_gpus() -> None:
    """Two shares under the cap exceed it together."""
    host = two_gpus(3 * GIB, 2 * GIB)
    assert isinstance(memory_condition(ONE, host.holders, host), DoesNotHold)
    assert memory_condition(ALL, host.holders, host) == Holds(
        "holds 5.0 GiB, more than 4.0 GiB over 2 GPUs", (GPU_A, GPU_B), GIB
    )


def test_a_rule_without_any_cap_never_holds() -> None:
    """A threshold that sets nothing is never exceeded."""
    host = two_gpus(80 * GIB, 0)
    bare = replace(ONE, above=Threshold())
    assert isinstance(memory_condition(bare, host.holders, host), DoesNotHold)


def one(holder: object = None, gpu: object = None) -> tuple[object, Snapshot]:
    """Return the condition's answer for one holder on one GPU."""
    row = a_holder() if holder is None else holder
    found = a_gpu(processes=[a_row()]) if gpu is None else gpu
    host = a_snapshot(gpus=(found,), holders=(row,))  # type: ignore[arg-type]  # one() takes either
    return memory_condition(ONE, host.holders, host), host


@pytest.mark.parametrize(
    ("holder", "gpu", "text"),
    [
        (a_holder(gpu=GPU_B), None, "was not seen"),
        (a_holder(used_bytes=Unreadable("no permission")), None, "unreadable (no permission)"),
        (a_holder(used_bytes=Absent("none")), None, "absent (none)"),
        (a_holder(listed=False, heir_of=a_ref(9), used_bytes=NOT_LISTED), None, "absent"),
        (None, a_gpu(memory=Unreadable("lost"), processes=[a_row()]), "memory"),
        (None, a_gpu(processes=[a_row()], used=8 * GIB), ""),
        (a_holder(used=81 * GIB), None, "more than the device has"),
        (None, a_gpu(processes=[a_row(), a_row(7, 90 * GIB)]), "more than the device has"),
        (None, a_gpu(processes=[a_row()], used=7 * GIB), "only 7.0 GiB is used"),
    ],
)
def test_impossible_or_unreadable_figures_are_unknown(holder: object, gpu: object, text: str) -> None:
    """A figure that can't be read, or can't be true, makes the rule unknown; a sane one does not."""
    answer, _ = one(holder, gpu)
    if text:
        assert isinstance(answer, UnknownCondition)
        assert text in answer.text
    else:
        assert isinstance(answer, Holds)


def test_unreadable_process_list_is_unknown_for_listed_and_for_open_nodes() -> None:
    """Without the list nobody's memory is known, nor that a process with an open node has none."""
    blind = replace(a_gpu(used=8 * GIB), processes=Unreadable("not supported"))
    for holder in (a_holder(), a_holder(listed=False, used_bytes=NOT_LISTED)):
        answer, _ = one(holder, blind)
        assert answer == UnknownCondition(f"the process list of {GPU_A} is not known")


def test_an_open_node_that_nvml_does_not_list_adds_nothing() -> None:
    """CUDA opens the node of every GPU: one without a row there holds no memory there."""
    gpus = (a_gpu(GPU_A, processes=[a_row()]), a_gpu(GPU_B))
    holders = (a_holder(), a_holder(gpu=GPU_B, listed=False, used_bytes=NOT_LISTED))
    host = a_snapshot(gpus=gpus, holders=holders)
    answer = memory_condition(ALL, holders, host)
    assert isinstance(answer, Holds)
    assert answer.gpus == (GPU_A,)


def test_one_known_excess_stands_beside_an_unknown_gpu_but_a_sum_does_not() -> None:
    """Over one GPU a known excess is enough; a sum with an unknown part is unknown."""
    host = two_gpus(8 * GIB, GIB)
    rows = (host.holders[0], replace(host.holders[1], used_bytes=Unreadable("lost")))
    assert isinstance(memory_condition(ONE, rows, host), Holds)
    assert isinstance(memory_condition(ALL, rows, host), UnknownCondition)


def test_a_process_in_two_lists_counts_once_and_unknown_rows_are_left_out() -> None:
    """Compute and graphics lists name the same process: its bytes are not added up."""
    rows = [a_row(), a_row(), a_row(7, used_bytes=Unreadable("no permission"))]
    answer, _ = one(None, a_gpu(processes=rows, used=8 * GIB))
    assert isinstance(answer, Holds)


KEY = ("over-cap", a_ref())
HOLDING = Seen(frozenset({KEY}))
UNKNOWN = Seen(frozenset(), frozenset({KEY}))
KEPT = Sustained(*KEY, since=0.0, last=100.0, readings=50)


def test_sustained_starts_grows_and_ends() -> None:
    """The first look starts the clock, each further one counts, one without it ends it."""
    first = advance_sustained((), HOLDING, 10.0, 2.0)
    assert first == (Sustained(*KEY, since=10.0, last=10.0, readings=1),)
    second = advance_sustained(first, HOLDING, 12.0, 2.0)
    assert second == (Sustained(*KEY, since=10.0, last=12.0, readings=2),)
    assert advance_sustained(second, Seen(frozenset()), 14.0, 2.0) == ()


@pytest.mark.parametrize("now", [106.1, 99.0])
def test_a_gap_or_a_clock_that_went_back_starts_anew(now: float) -> None:
    """More than three intervals without a look, or time running backwards, resets the clock."""
    assert advance_sustained((KEPT,), HOLDING, now, 2.0) == (
        Sustained(*KEY, since=now, last=now, readings=1),
    )


def test_a_gap_of_three_intervals_goes_on() -> None:
    """Exactly three intervals still count as sustained."""
    assert advance_sustained((KEPT,), HOLDING, 106.0, 2.0)[0].since == 0.0


def test_an_unknown_look_counts_for_nothing_and_keeps_only_what_is_fresh() -> None:
    """Unknown neither adds a reading nor ends the clock, and never starts one."""
    assert advance_sustained((KEPT,), UNKNOWN, 104.0, 2.0) == (KEPT,)
    assert advance_sustained((KEPT,), UNKNOWN, 107.0, 2.0) == ()
    assert advance_sustained((), UNKNOWN, 104.0, 2.0) == ()


@pytest.mark.parametrize(
    ("since", "readings", "enough"),
    [(0.0, 10, True), (0.0, 9, False), (1.0, 10, False)],
)
def test_enough_needs_time_and_readings(since: float, readings: int, *, enough: bool) -> None:
    """Both the duration and the number of readings must be reached."""
    rule = replace(ONE, for_seconds=100.0, readings=10)
    kept = Sustained(*KEY, since=since, last=100.0, readings=readings)
    assert sustained_enough(kept, rule, 100.0) is enough


@given(st.lists(st.tuples(st.floats(0.1, 20.0), st.sampled_from([HOLDING, UNKNOWN, Seen(frozenset())]))))
def test_sustained_never_exceeds_what_was_seen(looks: list[tuple[float, Seen]]) -> None:
    """However looks and gaps fall, readings never exceed the looks that held in an unbroken row."""
    now, held, kept = 0.0, 0, tuple[Sustained, ...]()
    for gap, seen in looks:
        now += gap
        kept = advance_sustained(kept, seen, now, 2.0)
        held = held + 1 if seen is HOLDING else held if seen is UNKNOWN else 0
        assert len(kept) <= 1
        assert all(item.readings <= held and item.since <= item.last <= now for item in kept)
