"""Rules that sum over a workload or a user, and who of several goes first."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.answers import Concerned
from reclaimerd.judge.conditions import Holds, UnknownCondition, listed_of
from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.series import Past
from reclaimerd.judge.sharing import group_of, shared_answers
from reclaimerd.judge.subjects import Subject
from reclaimerd.model.identity import FileIdentity, GpuUuid
from reclaimerd.model.policy import GpuSpan, Per, Policy, Rule, RuleKind, Selector, Threshold
from reclaimerd.model.process import PF_EXITING, ProcessReading, WorkloadKind
from reclaimerd.model.reading import Known, Unreadable
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
    a_workload,
)
from tests.judge.test_evaluate import CONTEXT

JOB = a_rule("cap", above=10 * GIB, per=Per.WORKLOAD)
USER = a_rule("cap", above=10 * GIB, per=Per.USER)
UNIT = a_workload("train.service")

Held = tuple[ProcessReading, int]


def member(pid: int, used_gib: int, **overrides: Any) -> Held:
    """Return a process of one common unit, and what it holds in GiB."""
    return a_process(pid, **{"workload": UNIT, **overrides}), used_gib


def host(*held: Held, at: float = MONO, gpu: GpuUuid = GPU_A) -> Snapshot:
    """Return a look at a host whose GPU these hold."""
    rows = [a_row(reading.ref.pid, used * GIB) for reading, used in held]
    holders = [a_holder(reading, gpu, used=used * GIB) for reading, used in held]
    return a_snapshot(
        gpus=(a_gpu(gpu, processes=rows),), processes=[reading for reading, _ in held], holders=holders, at=at
    )


def judged(look: Snapshot, *rules: Rule) -> Evaluation:
    """Return what one look makes of it, by rules that also take members of large workloads."""
    return evaluate(look, a_policy(*(replace(one, large_jobs=True) for one in rules)), (), CONTEXT)


def rulings(found: Evaluation) -> dict[int, Ruling]:
    """Return each pid's ruling."""
    return {verdict.ref.pid: verdict.ruling for verdict in found.verdicts}


def taken(found: Evaluation) -> list[int]:
    """Return whom the rules take, in their order."""
    return [one.ref.pid for one in found.verdicts if one.ruling is Ruling.RECLAIM]


def text_of(found: Evaluation, pid: int) -> str:
    """Return the last reason's text about one pid."""
    return next(one.reasons[-1].text for one in found.verdicts if one.ref.pid == pid)


@pytest.mark.parametrize("rule", [JOB, USER])
def test_the_sum_is_over_the_cap_and_the_largest_goes(rule: Rule) -> None:
    """Each is under the cap, together they are over it: the one that holds most is taken, alone."""
    found = judged(host(member(101, 3), member(102, 6), member(103, 5)), rule)
    assert taken(found) == [102]
    assert rulings(found) == {101: Ruling.WATCH, 102: Ruling.RECLAIM, 103: Ruling.WATCH}
    assert "(3 processes) holds 14.0 GiB, more than 10.0 GiB" in text_of(found, 102)
    assert text_of(found, 103).endswith("pid 102 goes first")
    assert taken(judged(host(member(101, 3), member(102, 6)), rule)) == []


def test_one_that_can_not_be_read_is_unknown_to_a_sum() -> None:
    """It is no part of any group, and makes no group's sum unknown."""
    look = host(member(101, 12))
    blind = Subject(a_ref(102), (a_holder(102),), None, None, "pid 102 can't be read: hung")
    seen = Subject(a_ref(101), look.holders, look.processes[101], None, "")
    asked = [(one, Concerned(one.rows)) for one in (blind, seen)]
    answers = shared_answers(JOB, asked, Basis(look, listed_of(look), {}))
    assert answers[a_ref(102)] == UnknownCondition("pid 102 can't be read: hung")
    assert isinstance(answers[a_ref(101)], Holds)


def test_equals_go_by_age_and_the_youngest_first() -> None:
    """Of two that hold the same the one that started last loses the least work."""
    old, young = member(101, 6, age_seconds=9000.0), member(102, 6, age_seconds=60.0)
    assert taken(judged(host(old, young), JOB)) == [102]
    assert taken(judged(host(young, old), JOB)) == [102]


def test_other_units_and_other_users_are_not_counted() -> None:
    """Neighbours under the cap stay under it, whatever both hold together."""
    other = member(102, 8, workload=a_workload("other.service"), uids=(1001,) * 4)
    assert taken(judged(host(member(101, 8), other), JOB)) == []
    assert taken(judged(host(member(101, 8), other), USER)) == []
    same_user = member(102, 8, workload=a_workload("other.service"))
    assert taken(judged(host(member(101, 8), same_user), JOB)) == []
    assert taken(judged(host(member(101, 8), same_user), USER)) != []


@pytest.mark.parametrize(
    "forged",
    [
        replace(UNIT, trusted=False),
        replace(UNIT, kind=WorkloadKind.SESSION),
        replace(UNIT, kind=WorkloadKind.NONE, path=""),
    ],
)
def test_a_boundary_that_nobody_proves_makes_no_workload(forged: Any) -> None:
    """Who could forge his cgroup's name is counted alone, and can't burden anybody with what he holds."""
    honest, stranger = member(101, 6), member(102, 9, workload=forged)
    twin = member(103, 9, workload=forged)
    assert taken(judged(host(honest, stranger, twin), JOB)) == []
    assert taken(judged(host(honest, member(102, 11, workload=forged)), JOB)) == [102]


def test_the_protected_and_the_exempt_are_neither_counted_nor_taken() -> None:
    """Nobody answers for what another may keep."""
    shell = member(101, 40, exe=Known("/usr/sbin/sshd"), exe_file=Known(FileIdentity(8, 1)), uids=(0,) * 4)
    small = member(102, 6, uids=(0,) * 4)
    look = replace(host(shell, small), host_files={FileIdentity(8, 1): "/usr/sbin/sshd"})
    found = judged(look, USER)
    assert rulings(found) == {101: Ruling.SPARE, 102: Ruling.WATCH}
    assert "not counted" in text_of(found, 101)
    exempting = replace(JOB, exempt=Selector(exe=("/opt/keep",)))
    keep = member(103, 40, exe=Known("/opt/keep"))
    assert rulings(judged(host(keep, member(104, 6)), exempting)) == {103: Ruling.WATCH, 104: Ruling.WATCH}


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        ({"tasks": (a_task(102, "D", PF_EXITING),)}, "pid 102 of /system.slice/train.service is ending"),
        ({"cmdline": Unreadable("hung")}, "can't be known: cmdline"),
    ],
)
def test_a_doubt_about_one_is_a_doubt_about_all(odd: dict[str, Any], text: str) -> None:
    """One that is ending may give back enough; one of whom the match is unknown may not count."""
    rule = replace(JOB, match=Selector(uids=((1000, 1000),), cmdline=("train",)))
    found = judged(host(member(101, 9), member(102, 9, **odd)), rule)
    assert rulings(found) == {101: Ruling.UNDETERMINED, 102: Ruling.UNDETERMINED}
    assert text in text_of(found, 101)


def test_a_figure_that_is_not_told_makes_the_sum_unknown() -> None:
    """Also where the known ones are over the cap already."""
    look = host(member(101, 9), member(102, 9))
    blind = replace(look.holders[1], used_bytes=Unreadable("no permission"))
    found = judged(replace(look, holders=(look.holders[0], blind)), replace(JOB, span=GpuSpan.ALL))
    assert rulings(found) == {101: Ruling.UNDETERMINED, 102: Ruling.UNDETERMINED}


def test_a_member_that_can_not_be_read_is_unknown_and_the_others_stand() -> None:
    """Nobody knows whose it is: what the others hold is over the cap all the same."""
    look = host(member(101, 9), member(102, 9), member(103, 9))
    hidden = {pid: one for pid, one in look.processes.items() if pid != 103}
    found = judged(replace(look, processes=hidden, unreadable={103: "hung"}), JOB)
    assert rulings(found)[103] is Ruling.UNDETERMINED
    assert len(taken(found)) == 1


def test_one_source_is_not_enough_for_a_sum() -> None:
    """What only NVML shows does not count towards an act, and who shows nothing is not taken."""
    look = host(member(101, 9), member(102, 9))
    unseen = replace(look.holders[1], node=False)
    found = judged(replace(look, holders=(look.holders[0], unseen)), JOB)
    assert rulings(found) == {101: Ruling.WATCH, 102: Ruling.WATCH}
    assert "only one source shows it" in text_of(found, 101)
    enough = host(member(101, 9), member(103, 9), member(102, 9))
    third = tuple(replace(row, node=row.ref.pid != 102) for row in enough.holders)
    found = judged(replace(enough, holders=third), JOB)
    assert taken(found) == [101]
    assert text_of(found, 102).endswith("it holds none of that")


def test_one_that_holds_elsewhere_is_no_part_of_it() -> None:
    """Over the cap on one GPU: a member of the workload with memory on another is left alone."""
    look = host(member(101, 6), member(102, 6))
    elsewhere = a_process(103, workload=UNIT)
    gpus = (*look.gpus, a_gpu(GPU_B, processes=[a_row(103, 9 * GIB)]))
    holders = (*look.holders, a_holder(elsewhere, GPU_B, used=9 * GIB))
    both = replace(look, gpus=gpus, holders=holders, processes={**look.processes, 103: elsewhere})
    found = judged(both, JOB)
    assert rulings(found)[103] is Ruling.WATCH
    assert "holds none of that" in text_of(found, 103)
    assert taken(judged(both, replace(JOB, span=GpuSpan.ALL))) == [103]
    not_meant = replace(JOB, match=Selector(gpus=(GPU_A,)))
    assert text_of(judged(both, not_meant), 103) == "the rule does not concern it"
    empty = judged(host(member(101, 6), member(102, 6), member(104, 0)), JOB)
    assert text_of(empty, 104).endswith("it holds none of that")
    nobody = replace(JOB, match=Selector(uids=((5, 5),)))
    assert text_of(judged(both, nobody), 103) == "the rule does not concern it"


def test_a_share_of_all_gpus_counts_each_gpu_once() -> None:
    """Two members on one GPU do not double what the GPU has."""
    rule = a_rule("cap", per=Per.WORKLOAD, span=GpuSpan.ALL)
    half = replace(rule, above=Threshold(above_percent=50.0))
    assert taken(judged(host(member(101, 21), member(102, 20)), half)) == [101]
    assert taken(judged(host(member(101, 20), member(102, 20)), half)) == []


def test_the_chosen_one_stays_the_chosen_one() -> None:
    """While the first is asked to go, another that grows past it is not taken as well."""
    policy = a_policy(JOB)
    past = Past()
    kept: tuple[Sustained, ...] = ()
    for sizes, expected in (((9, 6), [101]), ((7, 8), [101]), ((1, 12), [101])):
        found = evaluate(host(member(101, sizes[0]), member(102, sizes[1])), policy, kept, CONTEXT, past)
        past, kept = found.past, found.sustained
        assert taken(found) == expected
    alone = evaluate(host(member(102, 12)), policy, kept, CONTEXT, past)
    assert taken(alone) == [102]


@pytest.mark.parametrize("doubt", ["figure", "reading", "identity", "pause"])
def test_a_look_that_can_not_tell_makes_nobody_else_the_chosen_one(doubt: str) -> None:
    """The chosen one has shrunk below another meanwhile: it stays, so that not both are made to go."""
    rule = replace(JOB, for_seconds=2.0, readings=2)
    looks = [host(member(101, 9), member(102, 8), at=MONO + 2 * step) for step in range(2)]
    odd = host(member(101, 7), member(102, 12), at=MONO + 4)
    match doubt:
        case "figure":
            odd = replace(odd, gpus=(replace(odd.gpus[0], memory=Unreadable("hung")),))
        case "reading":
            odd = replace(odd, processes={102: odd.processes[102]}, unreadable={101: "hung"})
        case "identity":
            nameless = replace(odd.processes[101], exe=Unreadable("hung"))
            odd = replace(odd, processes={**odd.processes, 101: nameless})
        case _:
            odd = replace(odd, at=MONO + 60)
    after = [host(member(101, 7), member(102, 12), at=odd.at + 2 * step) for step in (1, 2, 3)]
    kept: tuple[Sustained, ...] = ()
    past = Past()
    found = []
    for look in (*looks, odd, *after):
        evaluation = evaluate(look, a_policy(rule), kept, CONTEXT, past)
        past, kept = evaluation.past, evaluation.sustained
        found.append(taken(evaluation))
    assert found[1] == found[-1] == [101]
    assert all(102 not in one for one in found)


def test_a_group_that_is_under_its_cap_again_chooses_anew() -> None:
    """The choice ends when the rule is known not to hold any more."""
    past, kept = Past(), tuple[Sustained, ...]()
    for sizes, expected in (((9, 6), [101]), ((3, 6), []), ((3, 9), [102])):
        found = evaluate(
            host(member(101, sizes[0]), member(102, sizes[1])), a_policy(JOB), kept, CONTEXT, past
        )
        past = found.past
        assert taken(found) == expected


@pytest.mark.parametrize(
    "doubtful", [{"comm": "Xorg"}, {"exe": Unreadable("hung")}, {"exe_file": Unreadable("hung")}]
)
def test_who_may_be_protected_is_not_counted(doubtful: dict[str, Any]) -> None:
    """Nobody answers for what a program holds that looks protected, or that can't be named."""
    found = judged(host(member(101, 40, **doubtful), member(102, 6)), USER)
    assert rulings(found) == {101: Ruling.UNDETERMINED, 102: Ruling.WATCH}
    assert "may be protected, and is not counted" in text_of(found, 101)
    assert taken(judged(host(member(101, 40, **doubtful), member(102, 11)), USER)) == [102]


def test_for_is_the_whole_groups() -> None:
    """The second does not begin to wait only when the first is gone, but needs its full time as well."""
    rule = replace(JOB, for_seconds=10.0, readings=2)
    policy = a_policy(rule)
    kept: tuple[Sustained, ...] = ()
    past = Past()
    for step in range(6):
        found = evaluate(
            host(member(101, 9), member(102, 6), at=MONO + 2 * step), policy, kept, CONTEXT, past
        )
        past, kept = found.past, found.sustained
        assert (taken(found) == [101]) == (step == 5)
    assert {item.ref.pid for item in kept} == {101, 102}


def test_who_counts_together() -> None:
    """By itself, with all of one proven boundary, or with all of one real uid."""
    reading = a_process(101, workload=UNIT)
    groups = [group_of(replace(JOB, per=per), reading) for per in Per]
    assert groups == [str(reading.ref), ":/system.slice/train.service", "uid 1000"]


def order_of(policy: Policy, *held: Held) -> list[int]:
    """Return whom the rules take, in their order."""
    return taken(evaluate(host(*held), policy, (), CONTEXT))


def test_the_order_is_priority_then_excess_then_age() -> None:
    """Never the first that was listed: the largest excess goes first, of equals the youngest."""
    rule = a_rule()
    held = (member(101, 6), member(102, 9), member(103, 9, age_seconds=5.0), member(104, 2))
    assert order_of(a_policy(rule), *held) == [103, 102, 101]
    urgent = a_rule("urgent", above=5 * GIB, match=Selector(exe=("/opt/hog",)), priority=5)
    hog = member(105, 6, exe=Known("/opt/hog"))
    assert order_of(a_policy(rule, urgent), *held, hog) == [105, 103, 102, 101]


def test_of_two_rules_the_one_with_priority_decides() -> None:
    """Both hold and enforce: the higher priority's plan is taken, else the first in the file."""
    first, second = a_rule("first"), a_rule("second", priority=1)
    for rules, name in (((first, second), "second"), ((first, replace(second, priority=0)), "first")):
        assert judged(host(member(101, 9)), *rules).verdicts[0].rule == name


def test_whom_the_rule_avoids_goes_last() -> None:
    """While anybody else breaks the rule the avoided one is watched; alone it is taken."""
    rule = a_rule(avoid=Selector(exe=("/opt/keep",)))
    keep, other = member(101, 60, exe=Known("/opt/keep")), member(102, 6)
    found = judged(host(keep, other), rule)
    assert rulings(found) == {101: Ruling.WATCH, 102: Ruling.RECLAIM}
    assert "avoided while pid 102" in text_of(found, 101)
    assert taken(judged(host(keep), rule)) == [101]
    doubtful = member(103, 15, exe=Unreadable("gone"), exe_file=Known(FileIdentity(1, 7)))
    shared = replace(JOB, avoid=Selector(cmdline=("keep",)))
    blind = member(104, 9, cmdline=Unreadable("hung"))
    assert taken(judged(host(blind, member(105, 8)), shared)) == [105]
    assert rulings(judged(host(doubtful, other), rule))[103] is not Ruling.RECLAIM


def test_per_is_for_memory_alone() -> None:
    """A rule of another kind asks about each process, whatever `per` says (the loader takes no such key)."""
    old = a_rule("old", kind=RuleKind.AGE, older_than_seconds=60.0, per=Per.USER)
    look = replace(host(member(101, 1), member(102, 1)), frozen=dict.fromkeys((101, 102), Known(value=False)))
    assert sorted(taken(judged(look, old))) == [101, 102]


def test_a_dead_parent_s_context_counts_once_however_many_inherit_it() -> None:
    """NVML lists 6 GiB of one dead parent: eight children that keep it open hold 6 GiB, not 48."""
    parent, loader = a_ref(90), member(300, 5)
    children = [a_process(100 + nth) for nth in range(8)]
    heirs = [a_holder(one, listed=False, heir_of=parent, used=6 * GIB) for one in children]
    look = a_snapshot(
        gpus=(a_gpu(processes=[a_row(90, 6 * GIB), a_row(300, 5 * GIB)]),),
        processes=[*children, loader[0]],
        holders=[*heirs, a_holder(loader[0], used=5 * GIB)],
    )
    assert taken(judged(look, a_rule("cap", above=12 * GIB, per=Per.USER))) == []
    over = judged(look, a_rule("cap", above=10 * GIB, per=Per.USER))
    assert taken(over) == [100]
    assert "holds 11.0 GiB, more than 10.0 GiB" in text_of(over, 100)
