"""What the rules said, on record once a day: nothing is lost where nothing can be written, nothing grows."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon import rule_counts
from reclaimerd.daemon.rule_counts import EVERY_SECONDS, RuleCounts
from reclaimerd.model.audit_record import RecordKind, RuleTally, Tally
from reclaimerd.model.policy import Policy, Selector
from reclaimerd.model.reading import Unreadable
from tests.builders import GIB, OURS, WALL, a_busy_snapshot, a_policy, a_process, a_rule, a_snapshot
from tests.fakes import Rig, a_disk_error, a_rig

QUIET = a_policy(a_rule("quiet", above=70 * GIB))


def count(rig: Rig, counts: RuleCounts, passes: int = 1, *, step: float = 1.0) -> None:
    """Make passes, and count each."""

    async def run() -> None:
        for _ in range(passes):
            await rig.cycle.run_pass()
            await counts.passed(rig.cycle)
            rig.age(step)

    asyncio.run(run())


def tallies(rig: Rig) -> list[Tally]:
    """Return what is on record."""
    return [entry.tally for entry in rig.recorder.of_kind(RecordKind.TALLY) if entry.tally is not None]


def left(counts: RuleCounts) -> Tally:
    """Return what is counted and not on record yet."""
    (entry,) = counts.records()
    assert entry.tally is not None
    return entry.tally


def test_a_day_is_one_record_and_the_next_begins_anew() -> None:
    """Passes of a day are in it, the one that finds the day over begins the next."""
    rig, counts = a_rig(a_busy_snapshot(), QUIET), RuleCounts()
    count(rig, counts, 5, step=EVERY_SECONDS / 4)
    (day,) = tallies(rig)
    assert day == Tally(WALL, 4, QUIET.digest, (RuleTally("quiet", looks=4),))
    assert left(counts) == Tally(WALL + EVERY_SECONDS, 1, QUIET.digest, (RuleTally("quiet", looks=1),))


def test_what_can_not_be_written_is_written_later_and_whole() -> None:
    """The count goes on, and the next pass tries again."""
    rig, counts = a_rig(a_busy_snapshot(), QUIET), RuleCounts()
    count(rig, counts, 1, step=EVERY_SECONDS)
    rig.recorder.errors = [a_disk_error()]
    count(rig, counts)
    assert tallies(rig) == []
    count(rig, counts)
    assert [tally.passes for tally in tallies(rig)] == [2]


def test_another_policy_has_its_own_count() -> None:
    """A reload puts on record what the old one said; the digest is the one that was counted under."""
    rig, counts = a_rig(a_busy_snapshot(), QUIET), RuleCounts()
    count(rig, counts, 2)
    rig.cycle.policy = replace(QUIET, digest="new")
    count(rig, counts)
    assert [(tally.passes, tally.policy_digest) for tally in tallies(rig)] == [(2, QUIET.digest)]
    assert (left(counts).passes, left(counts).policy_digest) == (1, "new")


def test_a_clock_that_went_back_ends_the_count() -> None:
    """Else a count begun in the future would never be due."""
    rig, counts = a_rig(a_busy_snapshot(), QUIET), RuleCounts()
    count(rig, counts, 1, step=0.0)
    seen = rig.sampler.snapshot
    rig.sampler.snapshot = replace(seen, taken_at=seen.taken_at - 7200.0)
    count(rig, counts)
    assert [tally.since for tally in tallies(rig)] == [WALL]
    assert left(counts).since == WALL - 7200.0


def test_one_command_in_the_foreground_counts_nothing() -> None:
    """It is not the guard."""
    rig, counts = a_rig(a_busy_snapshot(), QUIET, foreground=True), RuleCounts()
    count(rig, counts)
    assert counts.records() == ()


def test_before_the_first_look_there_is_nothing_to_count() -> None:
    """No evaluation, no count."""
    counts = RuleCounts()
    asyncio.run(counts.passed(a_rig(a_snapshot(), QUIET).cycle))
    assert counts.records() == ()


def test_looks_are_counted_each_and_processes_once() -> None:
    """A protected one and one that nobody can match, over three looks."""
    spared, unknown = a_process(OURS.pid), a_process(200, exe=Unreadable("no"))
    policy: Policy = a_policy(a_rule(match=Selector(exe=("/usr/bin/python3",))))
    rig, counts = a_rig(a_busy_snapshot(spared, unknown), policy), RuleCounts()
    count(rig, counts, 3)
    assert left(counts).rules == (
        RuleTally(
            "over-cap",
            looks=6,
            holding=3,
            spared=3,
            undetermined=3,
            spared_processes=1,
            undetermined_processes=1,
        ),
    )


def test_different_processes_are_told_apart_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks go on being counted, memory does not grow."""
    monkeypatch.setattr(rule_counts, "MOST_PROCESSES", 2)
    unknown = [a_process(pid, exe=Unreadable("no")) for pid in range(200, 205)]
    policy = a_policy(a_rule(match=Selector(exe=("/usr/bin/python3",))))
    rig, counts = a_rig(a_busy_snapshot(*unknown), policy), RuleCounts()
    count(rig, counts)
    (tally,) = left(counts).rules
    assert (tally.undetermined, tally.undetermined_processes) == (5, 2)


def test_very_many_rules_make_several_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of the log grows without bound, and no rule is left out."""
    monkeypatch.setattr(rule_counts, "MOST_RULES", 2)
    policy = a_policy(*(a_rule(f"rule-{number}", above=70 * GIB) for number in range(5)))
    rig, counts = a_rig(a_busy_snapshot(), policy), RuleCounts()
    count(rig, counts)
    parts = [entry.tally.rules for entry in counts.records() if entry.tally is not None]
    assert [len(part) for part in parts] == [2, 2, 1]
    assert [tally.rule for part in parts for tally in part] == [f"rule-{number}" for number in range(5)]


def test_a_host_without_holders_has_its_record_too() -> None:
    """That the rules were asked about nobody is worth to know."""
    rig, counts = a_rig(a_snapshot(), QUIET), RuleCounts()
    count(rig, counts)
    assert left(counts) == Tally(WALL, 1, QUIET.digest, ())
