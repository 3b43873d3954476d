"""The labelled set: what the shipped recipes make of it, at their own thresholds."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from reclaimerd.config.load import load
from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.series import Past
from reclaimerd.model.policy import Policy, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained
from tests.builders import GIB, GPU_A, MONO, a_gpu, a_holder, a_process, a_row, a_snapshot, a_task
from tests.judge.series_cases import CASES, Case
from tests.judge.test_evaluate import CONTEXT

COOKBOOK = Path(__file__).parents[2] / "config" / "examples" / "cookbook.toml"
LOOK_SECONDS = 24.0


@cache
def recipe(kind: RuleKind) -> Policy:
    """Return the cookbook's rule of a kind as it ships, alone, looked at each 24 s."""
    policy = load(COOKBOOK, enforce_ownership=False).policy
    rules = tuple(rule for rule in policy.rules if rule.kind is kind)
    assert len(rules) == 1
    return replace(policy, rules=rules, interval_seconds=LOOK_SECONDS)


def looked_at(case: Case, minute: float) -> Snapshot:
    """Return the look at one case after so many minutes."""
    gib, percent = case.gib_at(minute), case.percent_at(minute)
    used = None if gib is None else int(gib * GIB)
    memory = Unreadable("not told") if used is None else Known(used)
    share = Unreadable("not told") if percent is None else Known(percent)
    reading = in_state(case, minute)
    gpu = a_gpu(
        GPU_A, total=141 * GIB, used=used or 0, processes=[a_row(used_bytes=memory, sm_percent=share)]
    )
    return a_snapshot(
        gpus=(gpu,),
        processes=[reading],
        holders=[a_holder(reading, used_bytes=memory)],
        at=MONO + 60 * minute,
        frozen={100: Known(case.still == "frozen")},
    )


def in_state(case: Case, minute: float) -> ProcessReading:
    """Return the case's process, as old as the case lasts."""
    ticks = int(case.core_percent * 60 * minute)
    letter = "T" if case.still == "suspended" else "S"
    return a_process(
        tasks=(a_task(100, letter, cpu_ticks=ticks),),
        tracer_pid=7 if case.still == "traced" else 0,
        age_seconds=60 * minute,
    )


def is_taken(case: Case) -> bool:
    """Tell whether the recipe of the case's kind would take it at any time."""
    policy = recipe(case.kind)
    kept: tuple[Sustained, ...] = ()
    past = Past()
    for step in range(int(case.minutes * 60 / LOOK_SECONDS)):
        minute = step * LOOK_SECONDS / 60
        if any(start <= minute < end for start, end in case.gaps):
            continue
        result = evaluate(looked_at(case, minute), policy, kept, CONTEXT, past)
        kept, past = result.sustained, result.past
        if result.verdicts[0].ruling is Ruling.RECLAIM:
            return True
    return False


def test_the_set_is_large_and_has_both_answers() -> None:
    """At least 30 histories, each with a name of its own, with either answer for each kind."""
    assert len({case.name for case in CASES}) == len(CASES) >= 30
    assert {(case.kind, case.reclaim) for case in CASES} == {
        (kind, answer)
        for kind in (RuleKind.MEMORY_GROWTH, RuleKind.IDLE, RuleKind.AGE)
        for answer in (True, False)
    }


def test_nobody_is_taken_wrongly_at_the_shipped_thresholds(capsys: pytest.CaptureFixture[str]) -> None:
    """No false reclaim in the whole set, and every leak, idler and resident that is one is found."""
    answers = {case.name: (case.reclaim, is_taken(case)) for case in CASES}
    counts = Counter(answers.values())
    line = (
        f"rules over {len(CASES)} labelled series: {counts[True, True]} taken rightly, "
        f"{counts[False, True]} taken wrongly, {counts[True, False]} missed, "
        f"{counts[False, False]} left alone"
    )
    with capsys.disabled():
        print(f"\n{line}")  # noqa: T201  # one line for whoever runs the checks
    assert [name for name, answer in answers.items() if answer == (False, True)] == []
    assert [name for name, answer in answers.items() if answer == (True, False)] == []
