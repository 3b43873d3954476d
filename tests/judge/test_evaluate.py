"""Every holder gets one verdict with every rule's reason, and any doubt is hands off."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import (
    Evaluation,
    JudgeContext,
    alarms,
    effective_mode,
    evaluate,
    goes_further,
)
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import GpuSpan, Mode, Policy, Rule, RuleAction, Selector
from reclaimerd.model.process import (
    PF_EXITING,
    ProcessReading,
)
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import (
    DriverReading,
    DriverState,
    Snapshot,
)
from reclaimerd.model.verdict import Ruling, Verdict
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    NOT_LISTED,
    OURS,
    a_busy_snapshot,
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

CONTEXT = JudgeContext(OURS, lambda pattern, text: pattern in text, {"alice": 1000})


def look(snapshot: Snapshot, policy: Policy | None = None) -> Evaluation:
    """Return the evaluation of one first look."""
    return evaluate(snapshot, a_policy() if policy is None else policy, (), CONTEXT)


def verdict(reading: ProcessReading | None = None, *rules: Rule, **overrides: Any) -> Verdict:
    """Return the verdict on one process that holds 8 GiB of GPU A."""
    found = a_process() if reading is None else reading
    result = look(a_busy_snapshot(found, **overrides), a_policy(*rules)).verdict_of(found.ref)
    assert result is not None
    return result


def test_a_holder_over_the_cap_is_to_be_reclaimed() -> None:
    """The rule holds, sustained, matched, with two sources: RECLAIM, naming rule, GPU and figures."""
    found = verdict()
    assert (found.ruling, found.rule, found.gpus) == (Ruling.RECLAIM, "over-cap", (GPU_A,))
    assert found.reasons[0].mode is Mode.ENFORCE
    assert "8.0 GiB, more than 4.0 GiB" in found.reasons[0].text


def test_no_holder_no_verdict() -> None:
    """A process that holds nothing is not judged."""
    assert look(a_snapshot(processes=[a_process()])).verdicts == ()
    assert look(a_snapshot()).verdict_of(a_ref()) is None


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (a_rule(above=8 * GIB), "not more than"),
        (a_rule(match=Selector(uids=((5, 5),))), "does not concern"),
        (a_rule(exempt=Selector(users=("alice",))), "does not concern"),
        (a_rule(action=RuleAction.OBSERVE), "only observes"),
        (a_rule(for_seconds=120.0), "so far for 0 of 120 s"),
        (a_rule(readings=2), "1 of 2 readings"),
    ],
)
def test_what_does_not_hold_is_watched_with_its_reason(rule: Rule, text: str) -> None:
    """A rule that does not hold, concern, act or hold long enough gives WATCH and says which."""
    found = verdict(None, rule)
    assert (found.ruling, found.rule) == (Ruling.WATCH, "")
    assert text in found.reasons[0].text


@pytest.mark.parametrize(
    "sources",
    [
        {"node": False},
        {"listed": False, "used_bytes": Known(8 * GIB)},
        {"listed": False, "node": False, "heir_of": a_ref(7)},
    ],
)
def test_one_source_alone_is_watched(sources: dict[str, Any]) -> None:
    """NVML's list without an open node, or the node without a listing, is never enough to act."""
    snapshot = a_busy_snapshot()
    one = replace(snapshot, holders=tuple(replace(row, **sources) for row in snapshot.holders))
    found = look(one).verdicts[0]
    assert found.ruling is Ruling.WATCH
    assert "only one source" in found.reasons[0].text


def test_an_heir_with_its_node_open_is_reclaimed() -> None:
    """The living child that inherited a dead parent's context is the target, with the listing's bytes."""
    snapshot = a_busy_snapshot()
    heir = replace(snapshot.holders[0], listed=False, heir_of=a_ref(7))
    assert look(replace(snapshot, holders=(heir,))).verdicts[0].ruling is Ruling.RECLAIM


def test_protected_is_spared_whatever_the_rules_say() -> None:
    """A protected process is SPARE with the protection's reason first, and the rule's beside it."""
    shell = a_process(
        uids=(0, 0, 0, 0), exe=Known("/usr/sbin/sshd"), exe_file=Known(FileIdentity(8, 1)), comm="sshd"
    )
    found = verdict(shell, host_files={FileIdentity(8, 1): "/usr/sbin/sshd"})
    assert (found.ruling, found.rule) == (Ruling.SPARE, "built-in")
    assert [reason.ruling for reason in found.reasons] == [Ruling.SPARE, Ruling.SPARE]


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (a_process(comm="sshd"), "looks like sshd"),
        (a_process(exe=Unreadable("gone")), "exe unreadable (gone)"),
        (a_process(tasks=(a_task(100, "D", PF_EXITING),)), "exiting"),
        (a_process(tasks=(a_task(100, "Z", PF_EXITING),)), "dead"),
        (a_process(tasks=(a_task(100, "Z", PF_EXITING),), whole=False), "dead"),
        (a_process(dumping_core=True), "dumping core"),
    ],
)
def test_a_doubt_is_undetermined(reading: ProcessReading, text: str) -> None:
    """A lookalike, an unknown program, a process already leaving: no act by rule, and why."""
    found = verdict(reading)
    assert (found.ruling, found.rule) == (Ruling.UNDETERMINED, "")
    assert text in found.reasons[0].text
    assert found.reasons[1].ruling is Ruling.UNDETERMINED


@pytest.mark.parametrize(
    "tasks",
    [
        (a_task(100, "Z", PF_EXITING), a_task(101)),
        (a_task(100), a_task(101, "R", PF_EXITING)),
        (a_task(100, "T"),),
    ],
    ids=["zombie leader", "one thread ends", "stopped"],
)
def test_a_process_with_a_living_thread_is_reclaimed(tasks: Any) -> None:
    """A dead leader with live threads, one thread that ends, and a stopped process still hold."""
    assert verdict(a_process(tasks=tasks)).ruling is Ruling.RECLAIM


@pytest.mark.parametrize("state", [DriverState.SLOW, DriverState.UNRESPONSIVE, DriverState.ABSENT])
def test_a_driver_that_does_not_answer_makes_all_undetermined(state: DriverState) -> None:
    """No figure of a driver that answers late or not at all leads to an act."""
    found = verdict(driver=DriverReading(state, since=0.0, why="no answer for 7 s"))
    assert found.ruling is Ruling.UNDETERMINED
    assert "no answer for 7 s" in found.reasons[0].text


def test_a_remembered_holder_is_undetermined() -> None:
    """What nothing shows now is not acted on by rule."""
    snapshot = a_busy_snapshot()
    row = replace(snapshot.holders[0], remembered=True)
    assert look(replace(snapshot, holders=(row,))).verdicts[0].ruling is Ruling.UNDETERMINED
    elsewhere = replace(row, gpu=GPU_B, listed=False, node=False, used_bytes=NOT_LISTED)
    both = replace(snapshot, holders=(snapshot.holders[0], elsewhere))
    shown = look(both, a_policy(a_rule(large_jobs=True))).verdicts[0]
    assert (shown.ruling, shown.gpus) == (Ruling.RECLAIM, (GPU_A,))


@pytest.mark.parametrize(("unreadable", "text"), [({100: "hung"}, "hung"), ({}, "not seen")])
def test_an_unseen_holder_is_undetermined(unreadable: dict[int, str], text: str) -> None:
    """A holder that can't be read, or that is another process now, gets no act."""
    snapshot = replace(a_busy_snapshot(), processes={}, unreadable=unreadable)
    found = look(snapshot).verdicts[0]
    assert found.ruling is Ruling.UNDETERMINED
    assert text in found.reasons[0].text


@pytest.mark.parametrize("field", ["match", "exempt"])
def test_an_unknown_match_or_exemption_is_undetermined(field: str) -> None:
    """Unreadable is never a yes for a match and never a no for an exemption."""
    selector = Selector(cmdline=("other",))
    rule = replace(a_rule(), match=selector) if field == "match" else a_rule(exempt=selector)
    found = verdict(a_process(cmdline=Unreadable("hung")), rule)
    assert found.ruling is Ruling.UNDETERMINED
    assert "can't be known: cmdline" in found.reasons[0].text


def test_an_exemption_that_does_not_apply_changes_nothing() -> None:
    """A known no of the exemption leaves the match in force."""
    assert verdict(None, a_rule(exempt=Selector(users=("alice",), exe=("/x",)))).ruling is Ruling.RECLAIM


def both_gpus(span: GpuSpan, **row: Any) -> Verdict:
    """Return the verdict on a holder of two GPUs whose match needs the GPU, one of them unseen."""
    reading = a_process()
    gpus = (a_gpu(GPU_A, processes=[a_row()]),)
    holders = (a_holder(reading), a_holder(reading, GPU_B, **row))
    rule = a_rule(span=span, match=Selector(gpus=("GPU-*",)), large_jobs=True)
    return look(a_snapshot(gpus=gpus, processes=[reading], holders=holders), a_policy(rule)).verdicts[0]


def test_an_unseen_gpu_beside_a_known_excess() -> None:
    """On one GPU the known excess stands; over all of them the sum is unknown."""
    assert both_gpus(GpuSpan.ONE).ruling is Ruling.RECLAIM
    assert both_gpus(GpuSpan.ALL).ruling is Ruling.UNDETERMINED


def test_exempting_one_gpu_leaves_the_other() -> None:
    """A rule's selectors by GPU decide for each GPU by itself."""
    reading = a_process()
    gpus = (a_gpu(GPU_A, processes=[a_row()]), a_gpu(GPU_B, processes=[a_row()]))
    holders = (a_holder(reading), a_holder(reading, GPU_B))
    policy = a_policy(a_rule(exempt=Selector(gpus=(GPU_A,)), large_jobs=True))
    found = look(a_snapshot(gpus=gpus, processes=[reading], holders=holders), policy).verdicts[0]
    assert (found.ruling, found.gpus) == (Ruling.RECLAIM, (GPU_B,))


def test_the_first_enforcing_rule_decides_and_every_reason_is_kept() -> None:
    """Rules are alternatives: the first that enforces decides, the others stay on record."""
    rules = (
        a_rule("watch-it", mode=Mode.OBSERVE),
        a_rule("try-it", mode=Mode.DRY_RUN),
        a_rule("first"),
        a_rule("second"),
        a_rule("high", above=100 * GIB),
    )
    found = verdict(None, *rules)
    assert found.rule == "first"
    assert [reason.rule for reason in found.reasons] == [rule.name for rule in rules]
    assert verdict(None, *rules[:2]).rule == "try-it"


@pytest.mark.parametrize("glob", list(Mode))
@pytest.mark.parametrize("own", list(Mode))
def test_the_global_mode_caps_a_rule(glob: Mode, own: Mode) -> None:
    """The more careful of both modes is in force."""
    order = [Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE]
    expected = order[min(order.index(glob), order.index(own))]
    assert effective_mode(a_policy(mode=glob), a_rule(mode=own)) is expected


def test_a_rule_that_goes_further() -> None:
    """Dry run goes further than observing, enforcing further than both; the global mode caps them all."""
    observing, trying, enforcing = (a_rule(mode=mode) for mode in Mode)
    assert goes_further(enforcing, trying, a_policy())
    assert goes_further(trying, observing, a_policy())
    assert not goes_further(trying, enforcing, a_policy())
    assert not goes_further(enforcing, trying, a_policy(mode=Mode.DRY_RUN))


def test_sustained_is_carried_from_look_to_look() -> None:
    """What the last look returned makes the next one know since when."""
    policy = a_policy(a_rule(for_seconds=4.0, readings=3))
    kept = look(a_busy_snapshot(), policy).sustained
    for step, ruling in ((2.0, Ruling.WATCH), (4.0, Ruling.RECLAIM)):
        result = evaluate(a_busy_snapshot(at=MONO + step), policy, kept, CONTEXT)
        kept = result.sustained
        assert result.verdicts[0].ruling is ruling
        assert result.verdicts[0].reasons[0].sustained_seconds == step


def test_lookalikes_are_alarms_and_real_ones_are_not() -> None:
    """A process that bears a protected name raises one alarm sentence with its pid."""
    result = look(a_busy_snapshot(a_process(comm="slurmd"), a_process(101, workload=a_workload())))
    assert alarms(result) == (
        "pid 100 looks like slurmd, but is not the host's own program in its own place",
    )


def test_a_dead_listing_is_never_a_target() -> None:
    """NVML's row of a dead pid alone brings no verdict at all."""
    gpu = a_gpu(processes=[a_row(77)])
    assert look(a_snapshot(gpus=(gpu,), processes=[a_process()])).verdicts == ()


def test_an_open_node_alone_is_watched() -> None:
    """A process that NVML does not list and that only has the node open is left alone."""
    gpu = a_gpu(processes=[a_row(7)])
    row = a_holder(listed=False, used_bytes=NOT_LISTED)
    found = look(a_snapshot(gpus=(gpu,), processes=[a_process()], holders=[row])).verdicts[0]
    assert found.ruling is Ruling.WATCH
