"""The labelled set: what the shipped recipes make of it, at their own thresholds."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from reclaimerd.config.load import load
from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.series import Past
from reclaimerd.model.policy import MinerSettings, Mode, Policy, RuleAction, RuleKind
from reclaimerd.model.process import Connection, ProcessReading, ProgramSigns
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained
from tests.builders import GIB, GPU_A, MONO, a_gpu, a_holder, a_process, a_row, a_snapshot, a_task
from tests.judge.miner_cases import DISGUISED, MINERS, NO_MINERS
from tests.judge.series_cases import SERIES, Case
from tests.judge.test_evaluate import CONTEXT

CASES = (*SERIES, *MINERS, *NO_MINERS)
COOKBOOK = Path(__file__).parents[2] / "config" / "examples" / "cookbook.toml"
LOOK_SECONDS = 24.0
DIGEST = "ab" * 32
BUSY_BYTES_PER_SECOND = 40 * 1024**2
QUIET_BYTES_PER_SECOND = 2048


@cache
def recipe(kind: RuleKind) -> Policy:
    """Return the cookbook's rule of a kind as it ships, alone, looked at each 24 s.

    The one about miners only observes as it ships: here it warns, which shows for whom it holds long enough.
    """
    policy = load(COOKBOOK, enforce_ownership=False).policy
    rules = tuple(rule for rule in policy.rules if rule.kind is kind)
    assert len(rules) == 1
    if kind is RuleKind.MINER:
        rules = (replace(rules[0], action=RuleAction.WARN),)
    miner = MinerSettings(sha256=(DIGEST,))
    return replace(policy, rules=rules, miner=miner, interval_seconds=LOOK_SECONDS)


def looked_at(case: Case, minute: float) -> Snapshot:
    """Return the look at one case after so many minutes."""
    gib, percent = case.gib_at(minute), case.percent_at(minute)
    used = None if gib is None else int(gib * GIB)
    memory = Unreadable("not told") if used is None else Known(used)
    share = Unreadable("not told") if percent is None else Known(percent)
    reading = in_state(case, minute)
    gpu = a_gpu(
        GPU_A,
        total=case.total_gib * GIB,
        used=used or 0,
        processes=[a_row(used_bytes=memory, sm_percent=share)],
    )
    return a_snapshot(
        gpus=(gpu,),
        processes=[reading],
        holders=[a_holder(reading, used_bytes=memory)],
        at=MONO + 60 * minute,
        frozen={100: Known(case.still == "frozen")},
        signs={reading.ref: signs_of(case, minute)} if case.program.told else {},
    )


def in_state(case: Case, minute: float) -> ProcessReading:
    """Return the case's process, as old as the case lasts."""
    ticks = int(case.core_percent * 60 * minute)
    letter = "T" if case.still == "suspended" else "S"
    program = case.program
    return a_process(
        comm=program.comm[:15],
        exe=Known(program.exe),
        cmdline=Known(program.argv),
        tasks=(a_task(100, letter, cpu_ticks=ticks),),
        tracer_pid=7 if case.still == "traced" else 0,
        age_seconds=60 * minute,
    )


def signs_of(case: Case, minute: float) -> ProgramSigns:
    """Return what is read of the case's program besides."""
    program = case.program
    rate = QUIET_BYTES_PER_SECOND if program.quiet else BUSY_BYTES_PER_SECOND
    return ProgramSigns(
        io_bytes=Known(int(rate * 60 * minute)),
        sha256=Known(DIGEST if program.listed else "cd" * 32),
        connections=Known(tuple(Connection(address, port) for address, port in program.connections)),
        ancestors=program.ancestors,
    )


def is_taken(case: Case, policy: Policy | None = None) -> bool:
    """Tell whether the recipe of the case's kind would take it, or warn its owner, at any time."""
    policy = recipe(case.kind) if policy is None else policy
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
    """At least 75 histories, each with a name of its own, with either answer for each kind."""
    assert len({case.name for case in CASES}) == len(CASES) >= 75
    kinds = (RuleKind.MEMORY_GROWTH, RuleKind.IDLE, RuleKind.AGE, RuleKind.MINER)
    assert {(case.kind, case.reclaim) for case in CASES} == {
        (kind, told) for kind in kinds for told in (True, False)
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_is_taken_wrongly_at_the_shipped_thresholds(figure: Callable[[str], None]) -> None:
    """No false reclaim and no false warning in the whole set, and every one that is right is found."""
    answers = {case.name: (case.reclaim, is_taken(case)) for case in CASES}
    counts = Counter(answers.values())
    figure(
        f"rules over {len(CASES)} labelled series: {counts[True, True]} taken or warned rightly, "
        f"{counts[False, True]} wrongly, {counts[True, False]} missed, {counts[False, False]} left alone"
    )
    assert [name for name, answer in answers.items() if answer == (False, True)] == []
    assert [name for name, answer in answers.items() if answer == (True, False)] == []


@pytest.mark.parametrize("case", DISGUISED, ids=lambda case: case.name)
def test_a_miner_that_shows_too_little_is_not_told(case: Case) -> None:
    """What docs/miners.md says a rule can't see, it does not see."""
    assert not is_taken(case)


def test_nothing_is_taken_because_it_looks_like_a_miner() -> None:
    """A rule of kind `miner` that asks for a reclaim, as no file can, still takes nobody."""
    policy = recipe(RuleKind.MINER)
    acting = tuple(replace(rule, action=RuleAction.RECLAIM, mode=Mode.ENFORCE) for rule in policy.rules)
    assert not any(is_taken(case, replace(policy, mode=Mode.ENFORCE, rules=acting)) for case in MINERS)
