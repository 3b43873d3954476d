"""What is kept of who concerns whom is never another answer than a fresh one; and it is kept, bounded."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.concern import NOT_CONCERNED
from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.judge.series import Past
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.policy import (
    LabelOperator,
    LabelTerm,
    Mode,
    Per,
    Policy,
    Rule,
    RuleKind,
    Selector,
    TimeWindow,
)
from reclaimerd.model.process import ProcessReading, ProgramSigns, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    MONO,
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
    a_workload,
)

ALWAYS = TimeWindow(
    "* 0-11 * * *",
    frozenset(range(60)),
    frozenset(range(12)),
    frozenset(range(1, 32)),
    frozenset(range(1, 13)),
    frozenset(range(7)),
)
DIGEST = "ab" * 32
SELECTORS = [
    Selector(),
    Selector(users=("alice",)),
    Selector(uids=((1000, 1000),)),
    Selector(groups=("staff",)),
    Selector(exe=("/usr/bin/*",)),
    Selector(sha256=(DIGEST,)),
    Selector(cmdline=("train",)),
    Selector(unit=("train*",)),
    Selector(cgroup=("/system.slice/*",)),
    Selector(runtimes=("docker",)),
    Selector(namespaces=("team-*",)),
    Selector(labels=(LabelTerm("app", LabelOperator.EXISTS),)),
    Selector(partitions=("gpu",)),
    Selector(accounts=("physics",)),
    Selector(gpus=(GPU_A,)),
    Selector(models=("*H200",)),
    Selector(mig=True),
]
PATTERNS = [lambda pattern, text: pattern in text, lambda _pattern, _text: True]
"""Each stands for the patterns of one policy: one object as long as it is in force."""

NAMES = [
    None,
    WorkloadNames(namespace="team-a", labels=(("app", "x"),), labels_whole=True),
    WorkloadNames(namespace="team-a", labels=(("app", "x"),)),
    WorkloadNames(namespace="other", labels_whole=True, spare_mark="mine"),
    WorkloadNames(partition="gpu", account="physics", hosts=1),
]
FIELDS: dict[str, list[Any]] = {
    "uids": [(1000,) * 4, (1001,) * 4],
    "gids": [(), (50,), (7,)],
    "exe": [Known("/usr/bin/python3"), Known("/tmp/x"), Unreadable("hung")],
    "cmdline": [Known(("train",)), Known(("serve",)), Unreadable("hung")],
    "cgroup": ["0::/system.slice/train.service", "0::/user.slice/x"],
    "workload": [
        a_workload(kind=kind, trusted=trusted, runtime=runtime, names=names if trusted else None)
        for kind in (WorkloadKind.UNIT, WorkloadKind.POD, WorkloadKind.SLURM_JOB)
        for trusted in (True, False)
        for runtime in ("", "docker")
        for names in NAMES
    ],
}


@st.composite
def processes(draw: st.DrawFn, pid: int) -> ProcessReading:
    """Return a process whose readings are any."""
    return a_process(pid, **{name: draw(st.sampled_from(values)) for name, values in FIELDS.items()})


@st.composite
def looks(draw: st.DrawFn, step: int) -> Snapshot:
    """Return one look of a series: who is there, what is read of them and of the GPUs may all change."""
    found = [draw(processes(pid)) for pid in (100, 101, 102) if draw(st.booleans())]
    used = {one.ref: draw(st.sampled_from([3 * GIB, 8 * GIB])) for one in found}
    held = [(one, gpu) for one in found for gpu in (GPU_A, GPU_B) if draw(st.booleans())]
    gpus = tuple(
        a_gpu(
            uuid,
            processes=[a_row(one.ref.pid, used[one.ref]) for one, gpu in held if gpu == uuid],
            mig=draw(st.sampled_from([Known(value=False), Known(value=True), Unreadable("lost")])),
            name=draw(st.sampled_from(["NVIDIA H200", "NVIDIA A100"])),
        )
        for uuid in (GPU_A, GPU_B)
        if draw(st.booleans()) or uuid == GPU_A
    )
    seen = [one for one in found if draw(st.integers(0, 4))]
    unread = Unreadable("not asked")
    digests: list[Reading[str]] = [Known(DIGEST), Known("00"), unread]
    return a_snapshot(
        gpus=gpus,
        processes=seen,
        holders=[a_holder(one, gpu, used=used[one.ref]) for one, gpu in held],
        at=MONO + 2.0 * step,
        taken_at=float(draw(st.integers(0, 200_000))),
        signs={one.ref: ProgramSigns(unread, draw(st.sampled_from(digests)), unread) for one in seen},
    )


@st.composite
def rules(draw: st.DrawFn, name: str) -> Rule:
    """Return a rule for any, with any exemption."""
    return a_rule(
        name,
        match=draw(st.sampled_from(SELECTORS)),
        exempt=draw(st.sampled_from(SELECTORS)),
        avoid=draw(st.sampled_from(SELECTORS)),
        kind=draw(st.sampled_from([RuleKind.MEMORY, RuleKind.AGE])),
        per=draw(st.sampled_from(list(Per))),
        for_seconds=draw(st.sampled_from([0.0, 2.0])),
        windows=draw(st.sampled_from([(), (ALWAYS,)])),
        large_jobs=draw(st.booleans()),
        mode=draw(st.sampled_from(list(Mode))),
    )


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[Snapshot, Policy, JudgeContext]]:
    """Return looks one after another; now and then the policy is another, or what its names mean."""
    story = []
    policy = a_policy(*(draw(rules(f"rule-{number}")) for number in range(4)))
    context = JudgeContext(OURS, PATTERNS[0], {"alice": 1000}, {"staff": 50})
    for step in range(draw(st.integers(2, 5))):
        match draw(st.integers(0, 7)):
            case 0:
                policy = replace(policy, rules=(draw(rules("rule-0")), *policy.rules[1:]))
            case 1:
                policy = replace(policy, mode=draw(st.sampled_from(list(Mode))))
            case 2:
                context = replace(context, patterns=draw(st.sampled_from(PATTERNS)))
            case 3:
                context = replace(context, user_ids=draw(st.sampled_from([{}, {"alice": 1001}])))
            case 4:
                context = replace(context, group_ids=draw(st.sampled_from([{}, {"staff": 7}])))
            case _:
                pass
        story.append((draw(looks(step)), policy, context))
    return story


@given(stories())
def test_what_is_kept_changes_no_verdict(story: list[tuple[Snapshot, Policy, JudgeContext]]) -> None:
    """Looks judged with what the last one kept, and with nothing of it, say the same of everybody."""
    kept, sustained = Past(), tuple[Sustained, ...]()
    for look, policy, context in story:
        fresh = evaluate(look, policy, sustained, context, replace(kept, concerns=Past().concerns))
        found = evaluate(look, policy, sustained, context, kept)
        assert found.verdicts == fresh.verdicts
        assert (found.sustained, found.held_back) == (fresh.sustained, fresh.held_back)
        assert found.past.chosen == fresh.past.chosen
        kept, sustained = found.past, found.sustained


class Asking:
    """Patterns that count how often they are asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, pattern: str, text: str) -> bool:
        """Return whether the text has the pattern, and count it."""
        self.asked += 1
        return pattern in text


def test_nothing_is_asked_twice_while_nothing_changes() -> None:
    """Memory, age and time may change: only another command line, name or policy is asked about again."""
    asking = Asking()
    context = JudgeContext(OURS, asking, {})
    policy = a_policy(a_rule(match=Selector(cmdline=("train",))))

    def see(found: Evaluation, reading: ProcessReading, used: int, context: JudgeContext) -> Evaluation:
        return evaluate(a_busy_snapshot(reading, used=used), policy, (), context, found.past)

    found = evaluate(a_busy_snapshot(), policy, (), context)
    assert asking.asked == 1
    found = see(found, a_process(age_seconds=9000.0, comm="x"), 9 * GIB, context)
    assert (asking.asked, found.verdicts[0].ruling) == (1, Ruling.RECLAIM)
    found = see(found, a_process(cmdline=Known(("serve",))), 9 * GIB, context)
    assert (asking.asked, found.verdicts[0].ruling) == (2, Ruling.WATCH)
    found = see(found, a_process(cmdline=Known(("serve",))), 9 * GIB, replace(context, user_ids={"bob": 1}))
    assert asking.asked == 3


def test_who_is_gone_is_forgotten() -> None:
    """Only those of the last look are kept, also one that could not be read."""
    context = JudgeContext(OURS, PATTERNS[0], {})
    first = evaluate(a_busy_snapshot(a_process(100), a_process(101)), a_policy(), (), context)
    blind = replace(a_busy_snapshot(a_process(101)), processes={}, unreadable={101: "hung"})
    second = evaluate(blind, a_policy(), (), context, first.past)
    third = evaluate(blind, a_policy(), (), context, second.past)
    assert set(first.past.concerns.by_ref) == {a_ref(100), a_ref(101)}
    assert set(second.past.concerns.by_ref) == set(third.past.concerns.by_ref) == {a_ref(101)}
    assert third.past.concerns.by_ref[a_ref(101)] is second.past.concerns.by_ref[a_ref(101)]
    assert third.verdicts[0].reasons == second.verdicts[0].reasons
    other = replace(blind, unreadable={101: "no such process"})
    assert (
        "no such process" in evaluate(other, a_policy(), (), context, third.past).verdicts[0].reasons[1].text
    )


def test_every_rule_has_its_reason_also_where_it_does_not_concern() -> None:
    """`explain` shows each rule in the policy's order, with its own mode."""
    others = [a_rule(f"other-{number}", match=Selector(uids=((5, 5),))) for number in range(3)]
    policy = a_policy(others[0], a_rule(), replace(others[1], mode=Mode.OBSERVE), others[2])
    reasons = evaluate(a_busy_snapshot(), policy, (), JudgeContext(OURS, PATTERNS[0], {})).verdicts[0].reasons
    assert [one.rule for one in reasons] == ["other-0", "over-cap", "other-1", "other-2"]
    assert [one.text == NOT_CONCERNED for one in reasons] == [True, False, True, True]
    assert [one.mode for one in reasons] == [Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE, Mode.ENFORCE]
