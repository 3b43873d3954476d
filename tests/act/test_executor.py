"""Claims about performing permitted steps, on real children and verified fakes."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from reclaimerd.act.executor import GRAVEST_FIRST, Executor, combined, may_resume
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Outcome, OutcomeKind, Stage, TargetOutcome
from reclaimerd.model.policy import Scope
from reclaimerd.model.ports import ExecutorPort, LookAgainPort, NoLongerRight
from reclaimerd.model.process import WorkloadKind
from reclaimerd.model.step import Permit, Step
from tests.act.children import (
    IGNORES,
    LAST_WORD,
    OBEYS,
    answering,
    child,
    children,
    look_at_ticks,
    program,
    stop,
)
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    OPERATOR,
    a_process,
    a_ref,
    a_step,
    a_target,
    a_workload,
    an_incident,
)
from tests.fakes_act import FakeJudge, FakeWarner

ENDS = [Stage.RECLAIMED, Stage.UNVERIFIED, Stage.STOOD_DOWN, Stage.HANDED_OVER, Stage.EVICTED]


def _plan_drain(step: Step) -> str:
    return f"node-7 for {step.incident}"


def _executor(
    *,
    look_again: LookAgainPort = look_at_ticks,
    judge: FakeJudge | None = None,
    warner: FakeWarner | None = None,
) -> Executor:
    """Return hands with fakes for what a test doesn't need."""
    return Executor(
        look_again,
        judge or FakeJudge(),
        _plan_drain,
        BOOT,
        warner or FakeWarner(),
    )


def _permit(step: Step, *, dry_run: bool = False) -> Permit:
    return Permit(step, (), dry_run=dry_run)


def _step(stage: Stage, refs: Sequence[ProcessRef] = (), *, dry_run: bool = False) -> Step:
    return a_step(stage=stage, targets=tuple(refs), dry_run=dry_run)


def _reset_step(*, dry_run: bool = False) -> Step:
    target = replace(a_target(), gpus=(GPU_A, GPU_B))
    return replace(a_step(an_incident(target), Stage.RESET), dry_run=dry_run)


def test_the_executor_is_an_executor_port() -> None:
    """The hands fit where the cycle expects them."""
    hands: ExecutorPort = _executor()
    assert hands is not None


@pytest.mark.process
def test_one_step_after_another_ends_a_stubborn_child() -> None:
    """SIGTERM is SENT and ignored, then SIGKILL ends the child."""
    with child(*IGNORES) as target:
        hands = _executor()
        outcome = asyncio.run(hands.execute(_permit(_step(Stage.SIGTERM, [target.ref]))))
        sent = TargetOutcome(target.ref, OutcomeKind.SENT, "SIGTERM and SIGCONT")
        assert outcome == Outcome(OutcomeKind.SENT, "SIGTERM and SIGCONT", (sent,))
        assert target.alive()
        assert (
            asyncio.run(hands.execute(_permit(_step(Stage.SIGKILL, [target.ref])))).kind is OutcomeKind.SENT
        )
        assert target.end() == -signal.SIGKILL


@pytest.mark.process
def test_sigterm_wakes_a_stopped_child() -> None:
    """The executor orders the SIGCONT: a stopped child dies of SIGTERM."""
    with child(*OBEYS) as target:
        stop(target)
        asyncio.run(_executor().execute(_permit(_step(Stage.SIGTERM, [target.ref]))))
        assert target.end() == -signal.SIGTERM


def test_what_slurm_may_have_suspended_is_not_resumed_by_rule() -> None:
    """By rule no SIGCONT goes to a Slurm job; an operator's kill and any other workload get it."""
    job = a_workload("42", kind=WorkloadKind.SLURM_JOB)
    step = a_step(an_incident(a_target(a_process(workload=job))))
    assert not may_resume(step)
    assert may_resume(replace(step, actor=OPERATOR))
    assert may_resume(a_step())


@pytest.mark.process
@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
@pytest.mark.parametrize("where", ["step", "permit"])
def test_a_dry_run_sends_no_signal(tmp_path: Path, stage: Stage, where: str) -> None:
    """Whether the step or the permit says dry run, a child that records signals gets none."""
    log = tmp_path / "signals"
    with child(*program("record", str(log))) as target:
        step = _step(stage, [target.ref], dry_run=where == "step")
        outcome = asyncio.run(_executor().execute(_permit(step, dry_run=where == "permit")))
        assert outcome.kind is OutcomeKind.DRY_RUN
        os.kill(target.process.pid, LAST_WORD)
        assert target.end() == 0
        assert log.read_text() == ""


@pytest.mark.process
def test_64_stubborn_children_are_signalled_side_by_side() -> None:
    """64 steps, each with a slow last look of 50 ms, take well under a second; in order, all are killed."""
    with children(64, *IGNORES) as targets:

        async def slow_look(step: Step, ref: ProcessRef) -> object:
            await asyncio.sleep(0.05)
            return await look_at_ticks(step, ref)

        hands = _executor(look_again=cast("LookAgainPort", slow_look))
        permits = [_permit(_step(Stage.SIGKILL, [target.ref])) for target in targets]
        before = time.monotonic()
        outcomes = asyncio.run(hands.execute_all(permits))
        took = time.monotonic() - before
        assert [outcome.targets[0].ref for outcome in outcomes] == [target.ref for target in targets]
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
        assert {target.end() for target in targets} == {-signal.SIGKILL}
        # One after another the looks alone would take 3.2 s.
        assert took < 1.5


@pytest.mark.process
@pytest.mark.parametrize("stranger", [a_step(), "permit", None])
def test_anything_but_a_permit_raises_and_nothing_happens(stranger: object) -> None:
    """A step without its permit raises, also among permits: then not even the good ones are performed."""
    with child(*OBEYS) as target:
        hands = _executor()
        good = _permit(_step(Stage.SIGKILL, [target.ref]))
        with pytest.raises(TypeError, match="only a Permit"):
            asyncio.run(hands.execute(cast("Permit", stranger)))
        with pytest.raises(TypeError, match="only a Permit"):
            asyncio.run(hands.execute_all([good, cast("Permit", stranger)]))
        assert target.alive()


@pytest.mark.process
def test_a_step_that_breaks_off_hides_no_other_outcome() -> None:
    """A target that can't be expressed makes that step UNKNOWN; the others are performed and told."""
    with child(*OBEYS) as target:
        permits = [_permit(_step(Stage.SIGKILL, [a_ref(0)])), _permit(_step(Stage.SIGKILL, [target.ref]))]
        outcomes = asyncio.run(_executor().execute_all(permits))
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.UNKNOWN, OutcomeKind.SENT]
        assert "pid 0" in outcomes[0].detail
        assert target.end() == -signal.SIGKILL


@pytest.mark.parametrize("stage", [Stage.PENDING, Stage.SUSPENDED, *ENDS])
def test_a_stage_without_a_hand_fails(stage: Stage) -> None:
    """What can't be performed is FAILED by name, and nothing is called."""
    outcome = asyncio.run(_executor().execute(_permit(_step(stage))))
    assert outcome == Outcome(OutcomeKind.FAILED, f"no hand for stage {stage}; nothing was done")


def test_a_warning_reaches_the_ways_and_no_signal_the_process() -> None:
    """The last look finds the same process: its owner is told, and it gets nothing at all."""
    warner = FakeWarner()
    with child(*OBEYS) as target:
        step = _step(Stage.WARNED, [target.ref])
        outcome = asyncio.run(_executor(warner=warner).execute(_permit(step)))
        assert outcome == Outcome(OutcomeKind.DELIVERED, "told")
        assert warner.asked == [(step, False)]
        assert target.alive()


@pytest.mark.parametrize(
    ("look", "kind"),
    [
        (NoLongerRight("it is another process", changed=True), OutcomeKind.IDENTITY_CHANGED),
        (NoLongerRight("HOLD stands"), OutcomeKind.WITHHELD),
    ],
)
def test_whoever_the_last_look_does_not_find_is_not_told(look: NoLongerRight, kind: OutcomeKind) -> None:
    """Another process, or a file that says hold: nobody is told anything."""
    warner = FakeWarner()
    with child(*OBEYS) as target:
        hands = _executor(look_again=answering(look), warner=warner)
        outcome = asyncio.run(hands.execute(_permit(_step(Stage.WARNED, [target.ref]))))
        assert outcome.kind is kind
        assert outcome.detail.startswith(look.why)
        assert outcome.detail.endswith("nobody was told")
        assert warner.asked == []
        assert target.alive()


def test_a_process_that_is_gone_has_no_owner_to_warn() -> None:
    """A pid of nobody: gone already, and nobody is told."""
    warner = FakeWarner()
    with child(*OBEYS) as target:
        ref = target.ref
    outcome = asyncio.run(_executor(warner=warner).execute(_permit(_step(Stage.WARNED, [ref]))))
    assert outcome.kind is OutcomeKind.ALREADY_GONE
    assert warner.asked == []


@pytest.mark.parametrize("where", ["step", "permit"])
def test_a_dry_warning_is_asked_for_as_dry(where: str) -> None:
    """The ways are told that it is a dry run, whether the step or the permit says so."""
    warner = FakeWarner()
    with child(*OBEYS) as target:
        step = _step(Stage.WARNED, [target.ref], dry_run=where == "step")
        asyncio.run(_executor(warner=warner).execute(_permit(step, dry_run=where == "permit")))
    assert warner.asked == [(step, True)]


def test_a_reset_is_never_made_in_a_step() -> None:
    """It takes minutes and changes more than the GPU: the procedure's, and a step of it fails by name."""
    outcome = asyncio.run(_executor().execute(_permit(_reset_step())))
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.detail == f"no hand resets {GPU_A}, {GPU_B} in a step; nothing was done"


def test_a_dry_run_resets_nothing_and_asks_for_no_drain() -> None:
    """A dry run names what it would do: what would be reset, and what each target would be sent."""
    hands = _executor()
    outcomes = [
        asyncio.run(hands.execute(_permit(_reset_step(dry_run=True)))),
        asyncio.run(hands.execute(_permit(_step(Stage.DRAIN, [a_ref()]), dry_run=True))),
    ]
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.DRY_RUN, OutcomeKind.DRY_RUN]
    assert outcomes[1].detail == "would ask for a drain: node-7 for inc-1"


def test_a_reset_without_a_gpu_fails() -> None:
    """A target on no GPU is never a reset that went well."""
    step = a_step(an_incident(replace(a_target(), gpus=())), Stage.RESET)
    assert asyncio.run(_executor().execute(_permit(step))).kind is OutcomeKind.FAILED


def test_a_drain_is_never_asked_for_in_a_step() -> None:
    """Schedulers may be slow or away: the drain procedure asks, and a step of it fails by name."""
    outcome = asyncio.run(_executor().execute(_permit(_step(Stage.DRAIN, [a_ref(41)]))))
    assert outcome == Outcome(OutcomeKind.FAILED, "no hand asks for a drain in a step; nothing was done")


@pytest.mark.parametrize(
    ("kinds", "gravest"),
    [
        ((OutcomeKind.SENT, OutcomeKind.NOT_PERMITTED), OutcomeKind.NOT_PERMITTED),
        ((OutcomeKind.SENT, OutcomeKind.IDENTITY_CHANGED), OutcomeKind.IDENTITY_CHANGED),
        ((OutcomeKind.WITHHELD, OutcomeKind.SENT), OutcomeKind.WITHHELD),
        ((OutcomeKind.SENT, OutcomeKind.FAILED), OutcomeKind.FAILED),
        ((OutcomeKind.ALREADY_GONE, OutcomeKind.SENT), OutcomeKind.SENT),
        ((OutcomeKind.ALREADY_GONE, OutcomeKind.ALREADY_GONE), OutcomeKind.ALREADY_GONE),
        ((OutcomeKind.DRY_RUN, OutcomeKind.DRY_RUN), OutcomeKind.DRY_RUN),
        ((OutcomeKind.DRY_RUN, OutcomeKind.ALREADY_GONE), OutcomeKind.DRY_RUN),
    ],
)
def test_the_gravest_target_names_the_outcome(
    kinds: tuple[OutcomeKind, OutcomeKind],
    gravest: OutcomeKind,
) -> None:
    """Many targets make one outcome: the gravest kind, with every target's own beside it."""
    targets = tuple(TargetOutcome(a_ref(100 + n), kind, f"cause {n}") for n, kind in enumerate(kinds))
    outcome = combined(targets)
    assert (outcome.kind, outcome.targets) == (gravest, targets)


def test_every_kind_of_a_signal_has_its_rank() -> None:
    """Each kind that `send` can give is ranked, and nothing to signal is FAILED."""
    for kind in GRAVEST_FIRST:
        assert combined((TargetOutcome(a_ref(), kind), TargetOutcome(a_ref(), kind))).kind is kind
    assert combined(()).kind is OutcomeKind.FAILED
    text = combined(
        (TargetOutcome(a_ref(5), OutcomeKind.SENT), TargetOutcome(a_ref(6), OutcomeKind.WITHHELD, "hold"))
    )
    assert text.detail == "1 withheld, 1 sent; 6@1: hold"


@pytest.mark.process
def test_a_forbidden_boundary_withholds_the_kill() -> None:
    """A workload that is a login session is never killed as a whole, nor its members one by one for it."""
    with child(*OBEYS) as target:
        session = a_workload("s", kind=WorkloadKind.SESSION, path="/user.slice/user-1.slice/session-1.scope")
        wide = replace(a_target(a_process(workload=session)), scope=Scope.WORKLOAD)
        step = replace(a_step(an_incident(wide), Stage.SIGKILL), targets=(target.ref,))
        outcome = asyncio.run(_executor().execute(_permit(step)))
        assert outcome.kind is OutcomeKind.WITHHELD
        assert "login session" in outcome.detail
        assert target.alive()


@pytest.mark.process
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_login_session_is_not_told_to_end_as_a_whole(*, dry_run: bool) -> None:
    """What may not be killed as a whole gets no SIGTERM as a whole: the user's other job lives on."""
    with child(*OBEYS) as hog, child(*OBEYS) as neighbour:
        session = a_workload("s", kind=WorkloadKind.SESSION, path="/user.slice/user-1.slice/session-1.scope")
        wide = replace(a_target(a_process(workload=session)), scope=Scope.WORKLOAD)
        step = replace(a_step(an_incident(wide)), targets=(neighbour.ref, hog.ref))
        outcome = asyncio.run(_executor().execute(_permit(step, dry_run=dry_run)))
        assert outcome.kind is OutcomeKind.WITHHELD
        assert "login session; use scope process or tree; nothing was sent" in outcome.detail
        assert hog.alive()
        assert neighbour.alive()


@pytest.mark.process
def test_of_a_login_session_the_one_process_may_be_told_to_end() -> None:
    """Nobody else goes with it."""
    with child(*OBEYS) as hog:
        session = a_workload("s", kind=WorkloadKind.SESSION, path="/user.slice/user-1.slice/session-1.scope")
        wide = replace(a_target(a_process(workload=session)), scope=Scope.WORKLOAD)
        step = replace(a_step(an_incident(wide)), targets=(hog.ref,))
        assert asyncio.run(_executor().execute(_permit(step))).kind is OutcomeKind.SENT
        assert hog.end() == -signal.SIGTERM


@pytest.mark.process
@pytest.mark.parametrize("kind", [WorkloadKind.SLURM_JOB, WorkloadKind.UNIT])
def test_without_a_usable_cgroup_each_target_is_killed(kind: WorkloadKind) -> None:
    """A Slurm job's cgroup, or one that is gone, means the known members one by one, and it is said."""
    with child(*IGNORES) as target:
        workload = a_workload("j", kind=kind, path="/system.slice/slurmstepd.scope/job_0")
        wide = replace(a_target(a_process(workload=workload)), scope=Scope.WORKLOAD)
        step = replace(a_step(an_incident(wide), Stage.SIGKILL), targets=(target.ref,))
        outcome = asyncio.run(_executor().execute(_permit(step)))
        assert outcome.kind is OutcomeKind.SENT
        assert "one by one" in outcome.detail
        assert target.end() == -signal.SIGKILL


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/sys/fs/cgroup/unified", os.W_OK),
    reason="needs root and a cgroup v2 hierarchy at /sys/fs/cgroup/unified",
)
def test_a_workload_is_killed_with_its_heir_outside() -> None:
    """Members die by cgroup.kill, and a target outside the cgroup by its own pidfd."""
    box = Path(f"/sys/fs/cgroup/unified/reclaimerd-test-executor-{os.getpid()}")
    with children(2, *IGNORES) as (member, heir):
        box.mkdir()
        try:
            (box / "cgroup.procs").write_text(str(member.ref.pid))
            wide = replace(
                a_target(a_process(workload=a_workload(path=f"/{box.name}"))), scope=Scope.WORKLOAD
            )
            refs = (member.ref, heir.ref)
            step = replace(a_step(an_incident(wide), Stage.SIGKILL), targets=refs)
            hands = _executor(judge=FakeJudge({member.ref.pid: member.ref}))
            term = replace(step, stage=Stage.SIGTERM)
            assert asyncio.run(hands.execute(_permit(term))).kind is OutcomeKind.SENT
            outcome = asyncio.run(hands.execute(_permit(step)))
            assert [target.ref for target in outcome.targets] == list(refs)
            assert [target.detail for target in outcome.targets] == ["SIGKILL by cgroup.kill", "SIGKILL"]
            assert (member.end(), heir.end()) == (-9, -9)
        finally:
            member.process.kill()
            member.end()
            box.rmdir()


@pytest.mark.process
def test_a_hold_file_withholds_every_target() -> None:
    """A last look that says hold makes the step WITHHELD with the look's words; everyone lives."""
    with children(2, *OBEYS) as targets:
        hold = answering(NoLongerRight("/run/reclaimerd/HOLD exists"))
        step = _step(Stage.SIGKILL, [target.ref for target in targets])
        outcome = asyncio.run(_executor(look_again=hold).execute(_permit(step)))
        assert outcome.kind is OutcomeKind.WITHHELD
        assert "HOLD exists" in outcome.detail
        assert all(target.alive() for target in targets)
