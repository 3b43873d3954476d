"""What the rules of one look share is what each of them finds by itself."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge import scans
from reclaimerd.judge.conditions import Holds, UnknownCondition, listed_of
from reclaimerd.judge.held_conditions import Basis, held_condition
from reclaimerd.judge.series import Key, Point, Series, held_still
from reclaimerd.judge.trend import climb_of
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.policy import Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GIB, GPU_A, GPU_B, MONO, a_gpu, a_holder, a_process, a_row, a_rule, a_snapshot

MIB = 1024**2
STEP = 2.0
WINDOWS = (40.0, 100.0)
GPUS = (GpuUuid(GPU_A), GpuUuid(GPU_B))

RATES = st.sampled_from([-2.0 * MIB, 0.0, 1.0 * MIB, 3.0 * MIB])
SHARES = st.sampled_from([None, 0, 3, 50])
HOLES = st.sampled_from(["", "", "", "unknown", "empty"])
STATES = st.sampled_from([0, 0, 0, 7])
GROWING = st.builds(
    lambda rate, window: a_rule(
        kind=RuleKind.MEMORY_GROWTH, growth_bytes_per_second=rate, window_seconds=window
    ),
    st.sampled_from([0.5 * MIB, 1.0 * MIB, 2.0 * MIB]),
    st.sampled_from(WINDOWS),
)
IDLING = st.builds(
    lambda percent, window: a_rule(kind=RuleKind.IDLE, idle_percent=percent, window_seconds=window),
    st.sampled_from([None, 0.0, 5.0, 60.0]),
    st.sampled_from(WINDOWS),
)


def a_series(window: float, rate: float = 0.0, share: int | None = 0, hole: str = "") -> Series:
    """Return a full series that rises at this rate; one look in it is unknown or empty."""
    count = int(window / STEP) + 1
    ats = [MONO - window + STEP * place for place in range(count)]
    points = [Point(at, at, int(4 * GIB + rate * (at - MONO)), share, 0, share) for at in ats]
    if hole:
        points[3] = replace(points[3], used_bytes=None if hole == "unknown" else 0)
    return Series(points[0].at, window, tuple(points))


def a_look(*readings: ProcessReading) -> Snapshot:
    """Return a look at these, each on both GPUs."""
    rows = [a_row(one.ref.pid, GIB) for one in readings]
    return a_snapshot(
        gpus=[a_gpu(gpu, processes=rows) for gpu in GPUS],
        processes=readings,
        holders=[a_holder(one, gpu, used=GIB) for one in readings for gpu in GPUS],
        frozen={one.ref.pid: Known(value=False) for one in readings},
    )


def a_basis(look: Snapshot, series: Mapping[Key, Series]) -> Basis:
    """Return what answers rest on, nothing of it asked yet."""
    return Basis(look, listed_of(look), series)


@given(st.data(), st.lists(GROWING | IDLING, min_size=2, max_size=8))
def test_rules_that_share_answer_as_each_does_alone(data: st.DataObject, rules: list[Rule]) -> None:
    """Whatever their kinds, rates and windows, and in whatever order they ask of whom."""
    readings = [a_process(pid, tracer_pid=data.draw(STATES)) for pid in (100, 200)]
    look = a_look(*readings)
    series = {
        (one.ref, gpu, window): a_series(window, data.draw(RATES), data.draw(SHARES), data.draw(HOLES))
        for one in readings
        for gpu in GPUS
        for window in WINDOWS
    }
    shared = a_basis(look, series)
    for rule in rules:
        for one in readings:
            rows = [row for row in look.holders if row.ref == one.ref]
            alone = held_condition(rule, one, rows, a_basis(look, series))
            assert held_condition(rule, one, rows, shared) == alone


def test_each_series_is_scanned_once_and_each_process_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rules ask: two processes on two GPUs are four series."""
    asked: Counter[str] = Counter()

    def climbs(series: Series) -> object:
        asked["climb"] += 1
        return climb_of(series)

    def still(reading: ProcessReading, snapshot: Snapshot) -> str:
        asked["still"] += 1
        return held_still(reading, snapshot)

    monkeypatch.setattr(scans, "climb_of", climbs)
    monkeypatch.setattr(scans, "held_still", still)
    look = a_look(a_process(100), a_process(200))
    holey = {(row.ref, row.gpu, 100.0): a_series(100.0, hole="unknown") for row in look.holders}
    basis = a_basis(look, holey)
    rule = a_rule(kind=RuleKind.MEMORY_GROWTH, growth_bytes_per_second=MIB, window_seconds=100.0)
    for _ in range(5):
        for one in look.processes.values():
            rows = [row for row in look.holders if row.ref == one.ref]
            assert isinstance(held_condition(rule, one, rows, basis), UnknownCondition)
    assert asked == {"climb": 4, "still": 2}


def test_what_was_found_is_of_one_look_alone() -> None:
    """A basis made from another one with other series has found nothing yet."""
    look = a_look(a_process())
    keys = [(row.ref, row.gpu, 100.0) for row in look.holders]
    rule = a_rule(kind=RuleKind.IDLE, idle_percent=5.0, window_seconds=100.0)
    idle = a_basis(look, {key: a_series(100.0) for key in keys})
    busy = {key: a_series(100.0, share=50) for key in keys}
    reading = look.processes[100]
    assert isinstance(held_condition(rule, reading, look.holders, idle), Holds)
    assert not isinstance(held_condition(rule, reading, look.holders, replace(idle, series=busy)), Holds)
