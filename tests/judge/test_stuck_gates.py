"""What a plight changes for steps, drains and gates, and what binds the daemon's own watch."""

from dataclasses import replace

import pytest

from reclaimerd.judge.budgets import spends_of
from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.judge.gates import admit
from reclaimerd.judge.steps import Wait, due_step
from reclaimerd.model.drain import DrainCode, DrainReason
from reclaimerd.model.identity import AttemptId, ProcessRef
from reclaimerd.model.incident import (
    Actor,
    ActorKind,
    Attempt,
    Incident,
    Outcome,
    OutcomeKind,
    Release,
    Stage,
    Subject,
)
from reclaimerd.model.kernel import Leaving, Plight, TaskCondition
from reclaimerd.model.ledger import SpendKind
from reclaimerd.model.policy import FaultDomain, ListedStage, Mode
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.snapshot import (
    DriverReading,
    DriverState,
    Snapshot,
)
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from tests.builders import (
    MONO,
    a_busy_snapshot,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_step,
    a_target,
    a_task,
    an_incident,
)

GRACE = 120.0
ME = a_process()
LEAVING = replace(ME, tasks=(a_task(flags=PF_EXITING, state="R"),))


def a_plight(leaving: Leaving, *, released_at: float = MONO, culprit: ProcessRef | None = None) -> Plight:
    """Return what is said of the target."""
    return Plight(
        ref=ME.ref,
        condition=TaskCondition.EXITING,
        leaving=leaving,
        since=MONO,
        released_at=released_at,
        looks=5,
        text="exiting, in uvm_spin_loop",
        fault_domain=FaultDomain.DRIVER,
        culprit=culprit,
    )


def a_killed_incident() -> Incident:
    """Return an incident whose SIGKILL was sent at MONO."""
    sent = Outcome(OutcomeKind.SENT)
    return an_incident(
        stage=Stage.SIGKILL,
        stage_mono=MONO,
        attempts=(Attempt(AttemptId("inc-1.1"), Stage.SIGKILL, (ME.ref,), 1.0, sent),),
        release=Release(tasks=1, gpu_bytes=1, at=MONO),
        plan=a_plan(exit_grace_seconds=GRACE, sigkill_seconds=60.0),
    )


def a_look(seconds: float, plight: Plight | None) -> Snapshot:
    """Return a look this long after the SIGKILL, with what is said of the target."""
    plights = {} if plight is None else {plight.ref: plight}
    return a_busy_snapshot(LEAVING, at=MONO + seconds, plights=plights)


@pytest.mark.parametrize("leaving", [Leaving.NO_RELEASE, Leaving.UNDETERMINED])
def test_what_is_unclear_is_waited_for_five_times_as_long(leaving: Leaving) -> None:
    """Motion without release or stack is no proof of being stuck."""
    due = due_step(a_killed_incident(), a_look(GRACE, a_plight(leaving)))
    assert due == Wait(MONO + 5 * GRACE)
    assert isinstance(due_step(a_killed_incident(), a_look(5 * GRACE, a_plight(leaving))), Step)


def test_a_release_that_only_the_plight_saw_moves_the_deadline() -> None:
    """A slow teardown that lets go of cgroup memory is not stuck, however long it takes."""
    plight = a_plight(Leaving.PROGRESSING, released_at=MONO + 500)
    assert due_step(a_killed_incident(), a_look(510, plight)) == Wait(MONO + 500 + GRACE)


def test_a_stuck_one_is_due_after_one_grace() -> None:
    """What is judged stuck is not waited for longer."""
    assert isinstance(due_step(a_killed_incident(), a_look(GRACE, a_plight(Leaving.STUCK_SPINNING))), Step)


BLOCKED = replace(ME, tasks=(a_task(state="D"),))
"""Sent SIGKILL, and waits in the kernel where no signal wakes it: its exit has not begun."""


def a_blocked_look(seconds: float, leaving: Leaving | None) -> Snapshot:
    """Return a look this long after the SIGKILL at one without a task in the exit path."""
    plight = None if leaving is None else replace(a_plight(leaving), condition=TaskCondition.BLOCKED)
    plights = {} if plight is None else {plight.ref: plight}
    return a_busy_snapshot(BLOCKED, at=MONO + seconds, plights=plights)


@pytest.mark.parametrize(
    ("leaving", "patience"),
    [
        (Leaving.PROGRESSING, GRACE),
        (Leaving.STUCK_BLOCKED, GRACE),
        (Leaving.STUCK_SPINNING, GRACE),
        (Leaving.NO_RELEASE, 5 * GRACE),
        (Leaving.UNDETERMINED, 5 * GRACE),
    ],
)
def test_one_killed_and_blocked_before_its_exit_has_the_patience_of_an_exit(
    leaving: Leaving, patience: float
) -> None:
    """When the stage's own 60 s are over nobody can say yet that it is stuck: that takes the exit's grace."""
    incident = a_killed_incident()
    assert due_step(incident, a_blocked_look(61, leaving)) == Wait(MONO + patience)
    assert due_step(incident, a_blocked_look(patience - 1, leaving)) == Wait(MONO + patience)
    assert isinstance(due_step(incident, a_blocked_look(patience, leaving)), Step)


@pytest.mark.parametrize("leaving", [None, Leaving.NOT_LEAVING, Leaving.HELD])
def test_one_that_is_not_on_its_way_out_has_the_stages_patience_only(leaving: Leaving | None) -> None:
    """Nothing was said of it, nobody asked it to leave, or somebody holds it: no exit is waited for."""
    incident = a_killed_incident()
    assert due_step(incident, a_blocked_look(59, leaving)) == Wait(MONO + 60)
    assert isinstance(due_step(incident, a_blocked_look(60, leaving)), Step)


def test_the_plight_of_one_that_is_gone_keeps_nobody_waiting() -> None:
    """Only the living are waited for."""
    heir = a_process(300)
    incident = replace(a_killed_incident(), survivors=(heir.ref,))
    sent = Attempt(AttemptId("inc-1.2"), Stage.SIGKILL, (heir.ref,), 2.0, Outcome(OutcomeKind.SENT))
    incident = replace(incident, attempts=(*incident.attempts, sent))
    look = replace(a_blocked_look(60, Leaving.NO_RELEASE), exited=frozenset({ME.ref}))
    assert isinstance(due_step(incident, look), Step)


def test_the_drain_reason_is_the_signatures_domain() -> None:
    """A stuck task's fault domain comes from where it is stuck."""
    found = drain_reason_of(a_killed_incident(), a_look(GRACE, a_plight(Leaving.STUCK_SPINNING)))
    assert found == DrainReason(
        FaultDomain.DRIVER, f"pid {ME.ref.pid}: exiting, in uvm_spin_loop", DrainCode.STUCK_EXIT
    )


def test_no_drain_for_what_is_not_judged_stuck() -> None:
    """A plight that says progress overrules the clock of the incident."""
    assert drain_reason_of(a_killed_incident(), a_look(10 * GRACE, a_plight(Leaving.PROGRESSING))) is None


def test_no_drain_for_one_that_is_gone() -> None:
    """A plight of a process that ended since is no reason."""
    look = replace(a_look(GRACE, a_plight(Leaving.STUCK_BLOCKED)), exited=frozenset({ME.ref}))
    assert drain_reason_of(a_killed_incident(), look) is None


def a_driver_incident() -> Incident:
    """Return the watch's incident: no process, a drain its only stage."""
    nobody = a_target(members=(), root=a_ref(0, 0))
    actor = Actor(ActorKind.WATCH, "driver-watch")
    plan = a_plan(stages=(ListedStage.DRAIN,))
    return an_incident(nobody, actor=actor, plan=plan, subject=Subject.DRIVER)


def a_silent_look(state: DriverState = DriverState.UNRESPONSIVE, evidence: str = "") -> Snapshot:
    """Return a look at a host whose driver is silent since 900 s."""
    driver = DriverReading(state, MONO - 900, "no answer", evidence=evidence)
    return a_busy_snapshot(driver=driver)


def test_a_silent_driver_is_a_reason_with_its_evidence() -> None:
    """The worker's own kernel stack stands in the request."""
    found = drain_reason_of(a_driver_incident(), a_silent_look(evidence="task 7: nvidia_ioctl"))
    assert found is not None
    assert found.domain is FaultDomain.DRIVER
    assert found.text == "driver unresponsive for 900 s; task 7: nvidia_ioctl"


@pytest.mark.parametrize("state", [DriverState.RESPONSIVE, DriverState.SLOW, DriverState.UNKNOWN])
def test_slow_or_our_own_trouble_is_no_reason(state: DriverState) -> None:
    """Slow is not hung, and a broken worker of ours drains nobody."""
    assert drain_reason_of(a_driver_incident(), a_silent_look(state)) is None


@pytest.mark.parametrize("mode", list(Mode))
def test_the_watch_is_capped_by_the_global_mode(mode: Mode) -> None:
    """Observe refuses the drain, dry run only says it, enforce asks."""
    incident = a_driver_incident()
    reason = DrainReason(FaultDomain.DRIVER, "driver unresponsive for 900 s", DrainCode.DRIVER_UNRESPONSIVE)
    context = a_context(policy=replace(a_policy(), mode=mode), snapshot=a_silent_look(), drain_reason=reason)
    answer = admit(a_step(incident, Stage.DRAIN, targets=()), incident, context)
    if mode is Mode.OBSERVE:
        assert isinstance(answer, Refusal)
        assert {one.kind for one in answer.reasons} == {ReasonKind.MODE}
    else:
        assert isinstance(answer, Permit)
        assert answer.dry_run is (mode is Mode.DRY_RUN)


def test_the_watch_s_drains_are_counted_as_the_rules_are() -> None:
    """A driver that comes and goes empties the node as often a day as the budget says, and no more."""
    incident = a_driver_incident()
    reason = DrainReason(FaultDomain.DRIVER, "driver unresponsive for 900 s", DrainCode.DRIVER_UNRESPONSIVE)
    context = a_context(policy=a_policy(), snapshot=a_silent_look(), drain_reason=reason)
    step = a_step(incident, Stage.DRAIN, targets=())
    permit = admit(step, incident, context)
    assert isinstance(permit, Permit)
    spends = spends_of(permit, incident, context) * context.policy.budgets.drains_per_day
    assert {one.kind for one in spends} == {SpendKind.DRAIN}
    spent = replace(context, ledger=replace(context.ledger, spends=spends))
    answer = admit(step, incident, spent)
    assert isinstance(answer, Refusal)
    assert {one.kind for one in answer.reasons} == {ReasonKind.BUDGET}


@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
def test_no_signal_to_one_that_waits_for_another(stage: Stage) -> None:
    """The refusal names the process that is the stuck one."""
    culprit = a_ref(4711)
    plight = a_plight(Leaving.STUCK_BLOCKED, culprit=culprit)
    look = a_busy_snapshot(LEAVING, plights={ME.ref: plight})
    answer = admit(a_step(stage=stage), an_incident(), a_context(snapshot=look))
    assert isinstance(answer, Refusal)
    found = [one for one in answer.reasons if one.kind is ReasonKind.WAITS_FOR_OTHER]
    assert [one.processes for one in found] == [(ME.ref, culprit)]
    assert "4711" in found[0].text


def test_a_stuck_one_that_waits_for_nobody_is_not_refused_for_it() -> None:
    """Only a named culprit refuses the signal."""
    look = a_busy_snapshot(LEAVING, plights={ME.ref: a_plight(Leaving.STUCK_BLOCKED)})
    answer = admit(a_step(), an_incident(), a_context(snapshot=look))
    kinds = {one.kind for one in answer.reasons} if isinstance(answer, Refusal) else set()
    assert ReasonKind.WAITS_FOR_OTHER not in kinds


def test_a_drain_is_not_refused_for_a_waiting_target() -> None:
    """A request is no signal."""
    plight = a_plight(Leaving.STUCK_BLOCKED, culprit=a_ref(4711))
    look = a_busy_snapshot(LEAVING, plights={ME.ref: plight})
    answer = admit(a_step(stage=Stage.DRAIN), an_incident(), a_context(snapshot=look))
    kinds = {one.kind for one in answer.reasons} if isinstance(answer, Refusal) else set()
    assert ReasonKind.WAITS_FOR_OTHER not in kinds


def a_dump(leaving: Leaving | None) -> Snapshot:
    """Return a look at a target that writes its core, with what is said of it."""
    dumping = replace(ME, dumping_core=True)
    plights = {}
    if leaving is not None:
        plights = {ME.ref: replace(a_plight(leaving), condition=TaskCondition.DUMPING_CORE)}
    return a_busy_snapshot(dumping, plights=plights)


@pytest.mark.parametrize("leaving", [None, Leaving.PROGRESSING, Leaving.UNDETERMINED])
@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.SIGKILL])
def test_a_core_that_grows_is_spared(stage: Stage, leaving: Leaving | None) -> None:
    """No signal while the core is written; the refusal names the way to cut it."""
    answer = admit(a_step(stage=stage), an_incident(), a_context(snapshot=a_dump(leaving)))
    assert isinstance(answer, Refusal)
    (reason,) = [one for one in answer.reasons if one.kind is ReasonKind.CORE_DUMP]
    assert "--force" in reason.mend


@pytest.mark.parametrize("leaving", [Leaving.NO_RELEASE, Leaving.STUCK_BLOCKED])
def test_a_core_past_its_patience_is_cut(leaving: Leaving) -> None:
    """After core_grace, or when it grows no more, the ladder goes on."""
    answer = admit(a_step(), an_incident(), a_context(snapshot=a_dump(leaving)))
    assert isinstance(answer, Permit)


def test_force_cuts_a_core() -> None:
    """An operator's force is allowed to."""
    incident = an_incident(actor=Actor(ActorKind.OPERATOR, "root", uid=0), plan=a_plan(force=True))
    step = a_step(incident, Stage.SIGKILL, force=True)
    answer = admit(step, incident, a_context(snapshot=a_dump(None)))
    assert isinstance(answer, Permit)


def test_a_dump_that_is_over_is_no_dump() -> None:
    """PF_DUMPCORE is never cleared: with PF_EXITING beside it the core is written, and the task leaves."""
    over = replace(ME, tasks=(a_task(flags=0x200 | PF_EXITING),))
    answer = admit(a_step(), an_incident(), a_context(snapshot=a_busy_snapshot(over)))
    kinds = {one.kind for one in answer.reasons} if isinstance(answer, Refusal) else set()
    assert ReasonKind.CORE_DUMP not in kinds
