"""The history of a holder: bounded, and never with a hole that nobody sees."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.conditions import UnknownCondition, listed_of
from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.judge.held_conditions import Basis, held_condition
from reclaimerd.judge.series import (
    POINTS,
    Past,
    Point,
    Series,
    advance_series,
    extended,
    held_still,
    wants_freezers,
    wants_signs,
    wants_utilisation,
)
from reclaimerd.judge.trend import PARTS, trend_of
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.policy import Policy, Rule, RuleKind, Selector
from reclaimerd.model.process import ProgramSigns
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_row,
    a_rule,
    a_snapshot,
    a_task,
)
from tests.judge.test_evaluate import CONTEXT

WINDOW = 100.0
INTERVAL = 2.0
MIB = 1024**2
IDLE = a_rule("idle", kind=RuleKind.IDLE, idle_percent=5.0, window_seconds=WINDOW)
GROWTH = a_rule("leak", kind=RuleKind.MEMORY_GROWTH, growth_bytes_per_second=MIB, window_seconds=WINDOW)
MINER = a_rule("miner", kind=RuleKind.MINER, window_seconds=WINDOW)
OLD = a_rule("old", kind=RuleKind.AGE, older_than_seconds=3600.0)
KEY = (a_ref(), GPU_A, WINDOW)


def a_point(at: float, used: int | None = GIB, sm: int | None = 0, ticks: int | None = 0) -> Point:
    """Return one look."""
    return Point(at, at, used, sm, ticks)


def a_look(at: float, used: int | None = 8 * GIB, sm: int | None = 0, **process: Any) -> Snapshot:
    """Return a look at one holder of GPU A; None is what can't be read."""
    reading = a_process(**process)
    memory = Unreadable("lost") if used is None else Known(used)
    share = Absent("MIG") if sm is None else Known(sm)
    row = a_row(used_bytes=memory, sm_percent=share)
    gpu = a_gpu(GPU_A, used=used or 0, processes=[row])
    holder = a_holder(reading, used_bytes=memory)
    return a_snapshot(
        gpus=(gpu,), processes=[reading], holders=[holder], at=at, frozen={100: Known(value=False)}
    )


class Watching:
    """One policy over many looks."""

    def __init__(self, *rules: Rule) -> None:
        self.policy = a_policy(*rules, interval_seconds=INTERVAL)
        self.sustained: tuple[Sustained, ...] = ()
        self.past = Past()

    def see(self, look: Snapshot) -> Evaluation:
        """Return what this look makes of it."""
        found = evaluate(look, self.policy, self.sustained, CONTEXT, self.past)
        self.sustained, self.past = found.sustained, found.past
        return found

    def last(self, *looks: Snapshot) -> tuple[Ruling, str]:
        """Return the last look's ruling and its rule's text."""
        found = [self.see(look) for look in looks][-1]
        return found.verdicts[0].ruling, found.verdicts[0].reasons[-1].text


def looks(seconds: float, start: float = MONO, **figures: Any) -> list[Snapshot]:
    """Return a look each interval over so many seconds, the last of them at the end."""
    return [a_look(start + step * INTERVAL, **figures) for step in range(int(seconds / INTERVAL) + 1)]


def rising(seconds: float, rate: float = 2 * MIB, start: float = MONO) -> list[Snapshot]:
    """Return looks at memory that rises by so many bytes a second."""
    steps = range(int(seconds / INTERVAL) + 1)
    return [a_look(start + step * INTERVAL, int(GIB + rate * step * INTERVAL)) for step in steps]


@given(st.lists(st.floats(0.0, 5.9), min_size=1, max_size=600), st.floats(10.0, 500.0))
def test_a_series_is_bounded_and_covers_its_window(gaps: list[float], window: float) -> None:
    """However often anybody looks: at most 256 points, nothing older than the window, the last look kept."""
    series: Series | None = None
    at = MONO
    for gap in gaps:
        at += gap
        series = extended(series, a_point(at), window, 6.0)
    assert series is not None
    assert len(series.points) <= 2 * POINTS
    assert series.points[-1].at == at
    assert all(at - point.at <= window for point in series.points)
    assert series.since == MONO + gaps[0]
    assert series.is_full == (at - series.since >= window)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=300))
def test_thinning_loses_neither_work_nor_emptiness(figures: list[tuple[int, int]]) -> None:
    """The most work and the least memory of the window are in the thinned points, as is an unknown."""
    series: Series | None = None
    for step, (used, sm) in enumerate(figures):
        unknown = used == sm == 9
        look = a_point(float(step), None if unknown else used, None if unknown else sm)
        series = extended(series, look, 50_000.0, 6.0)
    assert series is not None
    assert len(series.points) < 3
    known = [pair for pair in figures if pair != (9, 9)]
    if len(known) < len(figures):
        assert any(point.used_bytes is None and point.sm_percent is None for point in series.points)
    else:
        assert min(point.used_bytes or 0 for point in series.points) == min(used for used, _ in known)
        assert max(point.sm_percent or 0 for point in series.points) == max(sm for _, sm in known)


@pytest.mark.parametrize("next_at", [MONO + 6.1, MONO - 0.1])
def test_a_gap_or_a_clock_that_went_back_starts_anew(next_at: float) -> None:
    """After more than three intervals, or at an earlier time, nothing of before counts."""
    before = extended(None, a_point(MONO), WINDOW, 3 * INTERVAL)
    assert extended(before, a_point(next_at), WINDOW, 3 * INTERVAL).since == next_at
    assert extended(before, a_point(MONO + 6.0), WINDOW, 3 * INTERVAL).since == MONO


def test_only_rules_that_look_back_cost_a_series() -> None:
    """No series without such a rule; one for each holder and window; none of who holds nothing more."""
    look = a_look(MONO)
    assert advance_series({}, look, [a_rule(), OLD], INTERVAL) == {}
    other = replace(GROWTH, window_seconds=50.0)
    kept = advance_series({}, look, [IDLE, GROWTH, other], INTERVAL)
    assert set(kept) == {KEY, (a_ref(), GPU_A, 50.0)}
    assert advance_series(kept, a_snapshot(at=MONO + 2), [IDLE], INTERVAL) == {}


def test_what_the_looks_must_ask_goes_by_the_rules() -> None:
    """Shares cost a call for each GPU: only rules about idlers and miners ask for them."""
    asked = {
        rule.kind: (wants_utilisation(a_policy(rule)), wants_freezers(a_policy(rule)))
        for rule in (a_rule(), IDLE, GROWTH, OLD, MINER)
    }
    assert asked == {
        RuleKind.MEMORY: (False, False),
        RuleKind.IDLE: (True, True),
        RuleKind.MEMORY_GROWTH: (False, True),
        RuleKind.AGE: (False, True),
        RuleKind.MINER: (True, True),
    }
    assert not wants_freezers(Policy())


def test_programs_are_looked_at_for_miners_and_hashes_alone() -> None:
    """A hash in any selector of any rule asks for it; nothing else does."""
    digest = Selector(sha256=("ab" * 32,))
    assert wants_signs(a_policy(a_rule(), MINER))
    for rule in (a_rule(match=digest), a_rule(exempt=digest), a_rule(avoid=digest)):
        assert wants_signs(a_policy(a_rule(), rule))
    assert not wants_signs(a_policy(a_rule(match=Selector(users=("alice",))), IDLE, GROWTH, OLD))
    assert not wants_signs(Policy())


def test_a_thinned_series_keeps_the_lowest_share_and_the_last_known_io() -> None:
    """For miners a pause counts, and a look that did not read the bytes forgets none."""

    def points(*looks: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
        series = None
        for index, (least, io_bytes) in enumerate(looks):
            look = Point(MONO + index, MONO + index, GIB, least, 0, least, io_bytes)
            series = extended(series, look, 1000.0, 10.0)
        assert series is not None
        assert len(series.points) == 1
        return series.points[0].sm_least_percent, series.points[0].io_bytes

    assert points((99, 10), (40, None), (98, 30)) == (40, 30)
    assert points((99, 10), (98, None)) == (98, 10)
    assert points((99, None), (None, None), (98, None)) == (None, None)


def test_the_series_of_a_miner_rule_has_what_its_holder_read_and_wrote() -> None:
    """The bytes stand in the point as read, and unread or unreadable ones are unknown."""
    look = a_look(MONO, sm=97)
    told = ProgramSigns(Known(77), Unreadable("x"), Unreadable("x"))
    shut = replace(told, io_bytes=Unreadable("no permission"))
    for signs, io_bytes in (({a_ref(): told}, 77), ({a_ref(): shut}, None), ({}, None)):
        point = advance_series({}, replace(look, signs=signs), [MINER], INTERVAL)[KEY].points[0]
        assert (point.sm_least_percent, point.io_bytes) == (97, io_bytes)


@pytest.mark.parametrize(
    ("process", "frozen", "text"),
    [
        ({}, Known(value=False), ""),
        ({}, Absent("no freezer"), ""),
        ({"tasks": (a_task(100, "T"),)}, Known(value=False), "suspended"),
        ({"tasks": (a_task(100, "t"),)}, Known(value=False), "traced"),
        ({"tracer_pid": 7}, Known(value=False), "traced by pid 7"),
        ({}, Known(value=True), "frozen by its cgroup"),
        ({}, Unreadable("hung"), "maybe frozen: hung"),
        ({}, None, "maybe frozen: not looked at"),
    ],
)
def test_who_is_held_still_adds_nothing_and_is_not_judged(process: Any, frozen: Any, text: str) -> None:
    """C13: suspended, frozen, traced, or nobody knows: no point, and all three kinds are unknown."""
    look = a_look(MONO, **process)
    look = replace(look, frozen={} if frozen is None else {100: frozen})
    found = held_still(look.processes[100], look)
    assert text in found if text else found == ""
    assert (KEY in advance_series({}, look, [IDLE], INTERVAL)) == (not text)
    before = advance_series({}, a_look(MONO - INTERVAL), [IDLE], INTERVAL)
    assert (advance_series(before, look, [IDLE], INTERVAL)[KEY] == before[KEY]) == bool(text)
    for rule in (OLD, IDLE, GROWTH):
        ruling, why = Watching(rule).last(look)
        assert not text or (ruling is Ruling.UNDETERMINED and text in why)


def test_who_can_not_be_read_leaves_a_hole_that_is_seen() -> None:
    """A look that could not read the process is unknown, not left out."""
    look = a_look(MONO)
    hidden = replace(look, processes={}, unreadable={100: "hung"})
    (point,) = advance_series({}, hidden, [IDLE], INTERVAL)[KEY].points
    assert (point.used_bytes, point.sm_percent) == (None, None)


def test_a_share_is_of_all_rows_of_a_pid_and_only_of_who_is_listed() -> None:
    """Two instances: the larger one, unknown if one is; an heir's work is nobody's own."""
    rows = [a_row(sm_percent=Known(3)), a_row(gpu_instance=1, sm_percent=Known(40))]
    look = replace(a_look(MONO), gpus=(a_gpu(GPU_A, used=20 * GIB, processes=rows),))
    assert advance_series({}, look, [IDLE], INTERVAL)[KEY].points[0].sm_percent == 40
    rows[0] = a_row(sm_percent=Absent("MIG"))
    blind = replace(look, gpus=(a_gpu(GPU_A, used=20 * GIB, processes=rows),))
    assert advance_series({}, blind, [IDLE], INTERVAL)[KEY].points[0].sm_percent is None
    heir = replace(look, holders=(replace(look.holders[0], listed=False, heir_of=a_ref(7)),))
    assert advance_series({}, heir, [IDLE], INTERVAL)[KEY].points[0].sm_percent is None


def test_idle_holds_when_the_window_is_full_and_one_sample_ends_it() -> None:
    """Unknown until it was watched so long; then it holds; one look with work and it does not."""
    watching = Watching(IDLE)
    assert watching.last(*looks(WINDOW - INTERVAL)) == (
        Ruling.UNDETERMINED,
        "watched for 1.6 min of 1.7 min",
    )
    ruling, text = watching.last(*looks(0, MONO + WINDOW))
    assert ruling is Ruling.RECLAIM
    assert text == f"used at most 0 % of {GPU_A} for 1.7 min and holds 8.0 GiB of it"
    assert watching.last(a_look(MONO + WINDOW + 2, sm=6)) == (
        Ruling.WATCH,
        f"used 6 % of {GPU_A} within the last 1.7 min",
    )
    assert watching.last(*looks(WINDOW - INTERVAL, MONO + WINDOW + 4))[0] is Ruling.WATCH
    assert watching.last(*looks(INTERVAL, MONO + 2 * WINDOW + 4))[0] is Ruling.RECLAIM


@pytest.mark.parametrize(
    ("figures", "ruling", "text"),
    [
        ({"sm": 5}, Ruling.RECLAIM, "used at most 5 %"),
        ({"sm": None}, Ruling.UNDETERMINED, "was not known all the last 1.7 min (now: absent (MIG))"),
        ({"used": None}, Ruling.UNDETERMINED, "its memory on"),
        ({"used": 0}, Ruling.WATCH, "holds no memory of"),
        ({"age_seconds": 3599.0}, Ruling.WATCH, "is 60 min old, not 1 h"),
        ({"tasks": (a_task(101),)}, Ruling.UNDETERMINED, "its processor time was not known"),
    ],
)
def test_idle_needs_every_figure(figures: Any, ruling: Ruling, text: str) -> None:
    """An unknown share, memory or processor time is unknown; no memory and youth are no."""
    rule = replace(IDLE, older_than_seconds=3600.0)
    found = Watching(rule).last(*looks(WINDOW, **figures))
    assert found[0] is ruling
    assert text in found[1]


def test_one_unknown_look_spoils_the_window_and_says_so() -> None:
    """The text names what is unknown; a hole in memory counts as much as one in the share."""
    for hole in ({"sm": None}, {"used": None}):
        past = [*looks(WINDOW / 2), a_look(MONO + WINDOW / 2 + 2, **hole)]
        ruling, text = Watching(IDLE).last(*past, *looks(WINDOW / 2, MONO + WINDOW / 2 + 4))
        assert ruling is Ruling.UNDETERMINED
        assert "was not known all the last" in text
    emptied = [*looks(WINDOW / 2), a_look(MONO + WINDOW / 2 + 2, used=0)]
    ruling, text = Watching(IDLE).last(*emptied, *looks(WINDOW / 2, MONO + WINDOW / 2 + 4))
    assert (ruling, text) == (Ruling.WATCH, f"has not held memory of {GPU_A} for 1.7 min")


def test_a_main_thread_that_works_is_not_idle() -> None:
    """C61: a tenth of a core over the window is work, whatever the GPU does."""
    steps = range(int(WINDOW / INTERVAL) + 1)
    for share, ruling in ((0.05, Ruling.RECLAIM), (0.15, Ruling.WATCH)):
        at_work = [
            a_look(MONO + step * INTERVAL, tasks=(a_task(100, cpu_ticks=int(100 * share * step * INTERVAL)),))
            for step in steps
        ]
        assert Watching(IDLE).last(*at_work)[0] is ruling


def test_growth_holds_at_the_rate_and_not_below() -> None:
    """The slope over the whole window decides; the text has rate, limit and what is held."""
    ruling, text = Watching(GROWTH).last(*rising(WINDOW))
    assert ruling is Ruling.RECLAIM
    assert text == f"grows by 2.0 MiB/s over 1.7 min on {GPU_A}, 1 MiB/s or more, to 1.2 GiB"
    ruling, text = Watching(GROWTH).last(*rising(WINDOW, 0.9 * MIB))
    assert (ruling, text) == (
        Ruling.WATCH,
        f"grows by 0.9 MiB/s over 1.7 min on {GPU_A}, less than 1 MiB/s",
    )
    assert Watching(GROWTH).last(*rising(WINDOW - 4))[0] is Ruling.UNDETERMINED


def test_a_step_is_no_growth_however_high() -> None:
    """Two steep allocations make a slope, but no steady rise."""
    sizes = [1, 1, 1, 20, 20, 20, 20, 60, 60, 60]
    stairs = [
        a_look(MONO + step * INTERVAL, sizes[min(int(step * INTERVAL / 10), 9)] * GIB)
        for step in range(int(WINDOW / INTERVAL) + 1)
    ]
    ruling, text = Watching(GROWTH).last(*stairs)
    assert ruling is Ruling.WATCH
    assert "but not steadily: it rose in 2 of 9 steps" in text


def test_a_part_without_a_look_has_no_trend() -> None:
    """Fewer looks than parts, or one without a figure: no trend, and the rule is unknown."""
    few = Series(MONO, WINDOW, tuple(a_point(MONO + step * 30.0) for step in range(5)))
    assert trend_of(few, 1.0) is None
    enough = tuple(a_point(MONO + step * WINDOW / PARTS) for step in range(PARTS + 1))
    assert trend_of(Series(MONO, WINDOW, enough), 1.0) is not None
    blind = (*enough[:3], replace(enough[3], used_bytes=None), *enough[4:])
    assert trend_of(Series(MONO, WINDOW, blind), 1.0) is None
    ruling, text = Watching(replace(GROWTH, window_seconds=WINDOW)).last(
        *looks(50), a_look(MONO + 52, used=None), *looks(WINDOW, MONO + 54)
    )
    assert (ruling, text) == (Ruling.WATCH, f"grows by 0.0 MiB/s over 1.7 min on {GPU_A}, less than 1 MiB/s")


def test_a_rule_without_its_figure_never_holds() -> None:
    """What the loader refuses is harmless here too."""
    bare = (replace(IDLE, idle_percent=None), replace(GROWTH, growth_bytes_per_second=None))
    for rule in bare:
        assert Watching(rule).last(*rising(WINDOW))[0] is Ruling.WATCH


def test_without_a_history_nothing_is_known() -> None:
    """Whoever asks without one, or with an older one, is told so; and a fault is no holder's."""
    look = a_look(MONO)
    bare = Basis(look, listed_of(look), {})
    answer = held_condition(IDLE, look.processes[100], look.holders, bare)
    assert answer == UnknownCondition("nothing is known of its last 1.7 min")
    older = advance_series({}, a_look(MONO - INTERVAL), [IDLE], INTERVAL)
    assert held_condition(IDLE, look.processes[100], look.holders, replace(bare, series=older)) == answer
    assert Watching(replace(IDLE, kind=RuleKind.FAULT)).last(look) == (
        Ruling.WATCH,
        "the rule is about GPUs, not processes",
    )


def test_age_holds_with_memory_from_its_hour_on() -> None:
    """Older than the limit with memory held; the text says how old and how much."""
    ruling, text = Watching(OLD).last(a_look(MONO, age_seconds=5400.0))
    assert (ruling, text) == (Ruling.RECLAIM, f"is 1.5 h old and holds 8.0 GiB of {GPU_A}")
    assert Watching(OLD).last(a_look(MONO, age_seconds=3599.0))[0] is Ruling.WATCH
    assert Watching(OLD).last(a_look(MONO, age_seconds=9.0))[1] == "is 9 s old, not 1 h"
    assert Watching(OLD).last(a_look(MONO, used=None))[0] is Ruling.UNDETERMINED


def test_one_source_is_not_enough_for_any_kind() -> None:
    """NVML's list without an open node is watched."""
    look = a_look(MONO)
    unseen = replace(look, holders=(replace(look.holders[0], node=False),))
    ruling, text = Watching(OLD).last(unseen)
    assert ruling is Ruling.WATCH
    assert "only one source" in text


def test_on_two_gpus_what_holds_on_one_holds() -> None:
    """A known yes stands beside an unknown; without one, the unknown decides; others are not asked."""
    reading = a_process()
    gpu_b = GpuUuid("GPU-bbbbbbbb-0000-0000-0000-000000000000")
    gpus = (a_gpu(GPU_A, processes=[a_row()]), a_gpu(gpu_b, used=0))
    holders = (a_holder(reading), a_holder(reading, gpu_b, used_bytes=Unreadable("lost")))
    look = a_snapshot(gpus=gpus, processes=[reading], holders=holders, frozen={100: Known(value=False)})
    found = Watching(replace(OLD, large_jobs=True)).see(look).verdicts[0]
    assert (found.ruling, found.gpus) == (Ruling.RECLAIM, (GPU_A,))
    only_b = replace(look, holders=holders[1:])
    assert Watching(OLD).last(only_b)[0] is Ruling.UNDETERMINED
    nobody = replace(OLD, match=replace(OLD.match, uids=((5, 5),)))
    assert Watching(nobody).last(look)[1] == "the rule does not concern it"


@pytest.mark.parametrize("match", [{}, {"gpus": (GPU_A,)}])
@pytest.mark.parametrize(
    ("other", "ruling", "text"),
    [
        ({"sm": 90}, Ruling.WATCH, f"used 90 % of {GPU_B} within the last 1.7 min"),
        ({"sm": None}, Ruling.UNDETERMINED, f"what it used of {GPU_B} was not known all the last 1.7 min"),
        ({"sm": 90, "node": False}, Ruling.WATCH, f"used 90 % of {GPU_B} within the last 1.7 min"),
        ({"sm": 0}, Ruling.RECLAIM, f"used at most 0 % of {GPU_A}"),
        ({"listed": False}, Ruling.RECLAIM, f"used at most 0 % of {GPU_A}"),
    ],
)
def test_who_works_on_another_gpu_is_not_idle(
    match: dict[str, Any], other: dict[str, Any], ruling: Ruling, text: str
) -> None:
    """A small context on A beside work on B, as a rank of a training job has, also by a rule about A alone.

    It is the process that would go. An open node of a GPU without a context says nothing.
    """
    rule = replace(IDLE, match=replace(IDLE.match, **match), large_jobs=True)
    found = Watching(rule).last(*[on_both(look, **other) for look in looks(WINDOW)])
    assert found[0] is ruling
    assert text in found[1]


def test_a_context_that_was_just_made_elsewhere_is_unknown() -> None:
    """Nobody saw what it used of the other GPU over the whole window."""
    both = [on_both(look, sm=0) for look in looks(20, MONO + WINDOW - 20)]
    ruling, text = Watching(IDLE).last(*looks(WINDOW - 22), *both)
    assert ruling is Ruling.UNDETERMINED
    assert f"what it used of {GPU_B} was not known" in text


def on_both(look: Snapshot, *, sm: int | None = None, node: bool = True, listed: bool = True) -> Snapshot:
    """Return a look at a process that holds GPU B as well."""
    share = Absent("MIG") if sm is None else Known(sm)
    rows = [a_row(sm_percent=share)] if listed else []
    used = Known(8 * GIB) if listed else Absent("NVML does not list it")
    holder = a_holder(look.processes[100], GPU_B, node=node, listed=listed, used_bytes=used)
    return replace(look, gpus=(*look.gpus, a_gpu(GPU_B, processes=rows)), holders=(*look.holders, holder))


@pytest.mark.slow
@given(st.data())
def test_no_history_with_a_hole_ever_holds(data: st.DataObject) -> None:
    """Wherever in the window one figure is missing or nobody looked: neither idle nor leak holds."""
    count = int(WINDOW / INTERVAL)
    hole = data.draw(st.integers(1, count - 1))
    how = data.draw(st.sampled_from(["gap", "unknown", "unreadable"]))
    rates = {"rate": 2.0 * MIB, "start": MONO}
    past = rising(WINDOW, **rates)
    if how == "gap":
        past = [look if step < hole else replace(look, at=look.at + 6.5) for step, look in enumerate(past)]
    elif how == "unknown":
        past[hole] = a_look(past[hole].at, used=None, sm=None)
    else:
        past[hole] = replace(past[hole], processes={}, unreadable={100: "hung"})
    for rule in (IDLE, GROWTH):
        watching = Watching(rule)
        assert all(watching.see(look).verdicts[0].ruling is not Ruling.RECLAIM for look in past)


@pytest.mark.slow
@given(st.integers(-5_000, 1_000_000), st.sampled_from([0.5, 1.5, 3.0]))
def test_the_time_of_day_changes_nothing(shift: int, rate: float) -> None:
    """The same history at another time has the same answers, look by look."""
    for rule in (IDLE, GROWTH):
        one, other = Watching(rule), Watching(rule)
        for look in rising(WINDOW + 10, rate * MIB):
            now = one.see(look)
            later = other.see(replace(look, at=look.at + shift))
            assert now.verdicts == later.verdicts
