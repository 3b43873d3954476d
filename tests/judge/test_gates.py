"""Each gate binds whom it should, every refusal is whole, and nothing waives a safety check."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reclaimerd
from reclaimerd.judge import budgets
from reclaimerd.judge.gates import GateContext, NewlyDue, admit, workload_key
from reclaimerd.model.drain import DrainCode, DrainReason, NodeDrain, Withdrawal
from reclaimerd.model.identity import AttemptId, FileIdentity, GpuUuid, IncidentId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage
from reclaimerd.model.ledger import Breaker, Ended, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import (
    BreakerSettings,
    BudgetSettings,
    FaultDomain,
    GateSettings,
    ListedStage,
    Mode,
    UserProtection,
)
from reclaimerd.model.process import (
    PF_EXITING,
    ProcessReading,
    WorkloadKind,
)
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from tests.act.drain_builders import a_request
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_step,
    a_target,
    a_task,
    a_workload,
    an_incident,
)
from tests.judge.reset_builders import ready

ALL_STAGES = tuple(ListedStage)
STUCK = DrainReason(FaultDomain.DRIVER, "stuck in nvidia_close", DrainCode.STUCK_EXIT)
STEPS = [Stage.SIGTERM, Stage.SIGKILL, Stage.RESET, Stage.DRAIN]


def by_rule(stage: Stage = Stage.SIGTERM, **incident: Any) -> tuple[Step, Incident]:
    """Return a step by rule and its incident, every stage listed."""
    fields: dict[str, Any] = {"plan": a_plan(stages=ALL_STAGES)}
    found = an_incident(**(fields | incident))
    return a_step(found, stage), found


def by_operator(
    stage: Stage = Stage.SIGTERM, *, force: bool = False, **incident: Any
) -> tuple[Step, Incident]:
    """Return an operator's step and its incident."""
    plan = a_plan(stages=ALL_STAGES, force=force)
    fields: dict[str, Any] = {"actor": OPERATOR, "plan": plan}
    found = an_incident(**(fields | incident))
    return a_step(found, stage), found


def open_for(stage: Stage, **overrides: Any) -> GateContext:
    """Return a context in which nothing forbids this stage."""
    idle = ready(a_snapshot(exited=frozenset({a_ref()})))
    base: dict[str, Any] = {"drain_reason": STUCK}
    if stage is Stage.RESET:
        base["snapshot"] = idle
    return a_context(**(base | overrides))


def refused(asked: tuple[Step, Incident], context: GateContext) -> list[ReasonKind]:
    """Return the kinds of the refusal's reasons, none for a permit."""
    match admit(*asked, context):
        case Refusal(reasons=reasons):
            return [reason.kind for reason in reasons]
        case Permit():
            return []


@pytest.mark.parametrize("stage", STEPS)
def test_nothing_against_it_is_a_permit(stage: Stage) -> None:
    """In an open context each stage is permitted to a rule and to an operator, for this very step."""
    for asked in (by_rule(stage), by_operator(stage)):
        answer = admit(*asked, open_for(stage))
        assert isinstance(answer, Permit)
        assert answer.step is asked[0]
        assert not answer.dry_run
        assert {item.gate for item in answer.answers} >= {"mode", "targets", "budget"}


def test_only_the_gates_make_a_permit() -> None:
    """No other file of the package constructs a Permit."""
    package = Path(reclaimerd.__file__).parent
    makers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"(?<!class )(?<!case )\bPermit\((?!\))", path.read_text())
    }
    assert makers == {"judge/gates.py"}


PAUSED = {"ledger": Ledger(pause=Pause("root", "maintenance", WALL - 5))}
BROKEN = {"ledger": Ledger(breaker=Breaker("3 workloads became due", WALL - 5))}
OBSERVING = {"policy": a_policy(mode=Mode.OBSERVE)}
SETTLING = {"started_mono": MONO - 299}
HELD = {"hold_file": "/run/reclaimerd/HOLD"}
FAULTY = {"record_fault": "no space left"}
INSIDE = {"host_namespace": False}


@pytest.mark.parametrize(
    ("overrides", "kind", "rule_stages", "operator_stages"),
    [
        (PAUSED, ReasonKind.PAUSED, STEPS, [Stage.RESET, Stage.DRAIN]),
        (HELD, ReasonKind.HOLD, STEPS, [Stage.RESET, Stage.DRAIN]),
        (BROKEN, ReasonKind.BREAKER, STEPS, [Stage.RESET, Stage.DRAIN]),
        (OBSERVING, ReasonKind.MODE, STEPS, []),
        (SETTLING, ReasonKind.SETTLING, STEPS, []),
        (FAULTY, ReasonKind.RECORD, STEPS, STEPS),
        (INSIDE, ReasonKind.WRONG_NAMESPACE, STEPS, STEPS),
    ],
)
def test_whom_each_gate_binds(
    overrides: dict[str, Any], kind: ReasonKind, rule_stages: list[Stage], operator_stages: list[Stage]
) -> None:
    """Each gate refuses exactly the stages of rules and of operators that it binds, forced or not."""
    for stage in STEPS:
        context = open_for(stage, **overrides)
        assert refused(by_rule(stage), context) == [kind] * (stage in rule_stages)
        for force in (False, True):
            assert refused(by_operator(stage, force=force), context) == [kind] * (stage in operator_stages)


def test_a_pause_ends_by_itself() -> None:
    """A pause with an end binds before it and not from it on; the text names who and why."""
    for left, kinds in ((1.0, [ReasonKind.PAUSED]), (0.0, [])):
        pause = Pause("alice", "", WALL - 60, WALL + left)
        assert refused(by_rule(), a_context(ledger=Ledger(pause=pause))) == kinds


def test_settling_ends_and_does_not_bind_the_foreground() -> None:
    """At 300 s it is over; one command in the foreground has none."""
    assert refused(by_rule(), a_context(started_mono=MONO - 300)) == []
    assert refused(by_rule(), a_context(started_mono=MONO, foreground=True)) == []


def test_a_simulated_host_may_be_in_a_namespace() -> None:
    """The simulation's pids are ours wherever we run."""
    snapshot = a_busy_snapshot(simulated=True)
    assert refused(by_rule(), a_context(host_namespace=False, snapshot=snapshot)) == []


def test_a_rule_that_left_the_policy_is_withdrawn() -> None:
    """After a reload without the rule its incidents act no more."""
    assert refused(by_rule(), a_context(policy=a_policy(a_rule("other")))) == [ReasonKind.WITHDRAWN]


@pytest.mark.parametrize("where", ["global", "rule", "plan", "step"])
def test_dry_run_from_any_side_makes_the_permit_dry(where: str) -> None:
    """A dry run by mode, by rule, by incident or by step is a permit that says so."""
    rule = a_rule(mode=Mode.DRY_RUN if where == "rule" else Mode.ENFORCE)
    policy = a_policy(rule, mode=Mode.DRY_RUN if where == "global" else Mode.ENFORCE)
    incident = an_incident(plan=a_plan(dry_run=where == "plan"))
    step = a_step(incident, dry_run=where in ("plan", "step"))
    answer = admit(step, incident, a_context(policy=policy))
    assert isinstance(answer, Permit)
    assert answer.dry_run


def test_a_stage_that_is_not_listed_binds_rules_only() -> None:
    """A rule takes only stages its plan lists; an operator's reset needs no listing."""
    plan = a_plan(stages=(ListedStage.SIGTERM,))
    context = open_for(Stage.RESET)
    assert refused(by_rule(Stage.RESET, plan=plan), context) == [ReasonKind.MODE]
    assert refused(by_operator(Stage.RESET, plan=plan), context) == []


@pytest.mark.parametrize("stage", [Stage.WARNED, Stage.RECLAIMED])
def test_a_stage_without_an_act_is_refused(stage: Stage) -> None:
    """What no hand performs gets no permit."""
    assert refused(by_operator(stage), a_context()) == [ReasonKind.MODE]
    assert refused(by_rule(stage), a_context()) == [ReasonKind.MODE]


# Targets


def admitted_on(reading: ProcessReading, stage: Stage = Stage.SIGTERM, **overrides: Any) -> Any:
    """Return the answers to a rule and to an operator for one target that reads like this."""
    snapshot = a_busy_snapshot(reading, **overrides)
    target = a_target(replace(a_process(), ref=reading.ref))
    context = a_context(snapshot=snapshot)
    return (
        refused(by_rule(stage, target=target), context),
        refused(by_operator(stage, target=target), context),
    )


def test_a_lookalike_and_an_unknown_program_bind_rules_only() -> None:
    """By rule both are hands off; an operator may, and the record says that the exe was unreadable."""
    assert admitted_on(a_process(comm="sshd")) == ([ReasonKind.LOOKS_PROTECTED], [])
    blind = a_process(exe=Unreadable("gone"))
    assert admitted_on(blind) == ([ReasonKind.UNDETERMINED], [])
    answer = admit(*by_operator(), a_context(snapshot=a_busy_snapshot(blind)))
    assert isinstance(answer, Permit)
    assert any("exe unreadable (gone)" in item.text for item in answer.answers)


def test_a_signalled_target_in_the_exit_path_may_lose_its_exe() -> None:
    """What was judged before its signal and is leaving since needs no exe for the next step."""
    leaving = a_process(exe=Unreadable("gone"), tasks=(a_task(100, "D", PF_EXITING),))
    context = a_context(snapshot=a_busy_snapshot(leaving))
    sent = Attempt(AttemptId("a"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
    assert refused(by_rule(Stage.SIGKILL, attempts=(sent,)), context) == []
    assert refused(by_rule(Stage.SIGKILL), context) == [ReasonKind.UNDETERMINED]
    alive = a_context(snapshot=a_busy_snapshot(a_process(exe=Unreadable("gone"))))
    assert refused(by_rule(Stage.SIGKILL, attempts=(sent,)), alive) == [ReasonKind.UNDETERMINED]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("stage", STEPS)
def test_another_process_under_the_pid_is_refused(stage: Stage, *, force: bool) -> None:
    """The pid is a stranger's now: nobody may, and force changes nothing."""
    snapshot = a_snapshot(processes=[a_process(start=2)])
    found = refused(by_operator(stage, force=force), open_for(stage, snapshot=snapshot))
    assert ReasonKind.IDENTITY in found


def test_a_target_that_vanished_is_no_refusal_but_one_unread_is() -> None:
    """Gone is for the act to find; what can't be read may be protected, so no signal, but a drain."""
    for vanished in (a_snapshot(), a_snapshot(exited=frozenset({a_ref()}))):
        assert refused(by_operator(), a_context(snapshot=vanished)) == []
    unread = a_snapshot(unreadable={100: "hung"})
    assert refused(by_operator(), a_context(snapshot=unread)) == [ReasonKind.UNDETERMINED]
    assert refused(by_operator(Stage.DRAIN), a_context(snapshot=unread, drain_reason=STUCK)) == []


def test_a_step_that_is_not_its_incidents_is_refused() -> None:
    """Another incident's step, a stranger among its targets, no target, another boot: all at once."""
    incident = an_incident(boot_id="old")
    step = replace(a_step(incident, targets=(a_ref(555),)), incident=IncidentId("inc-2"))
    answer = admit(step, incident, a_context())
    assert isinstance(answer, Refusal)
    assert [reason.kind for reason in answer.reasons] == [ReasonKind.IDENTITY] * 3
    assert refused((a_step(an_incident(), targets=()), an_incident()), a_context()) == [ReasonKind.IDENTITY]
    other = a_snapshot(boot_id="another-boot")
    assert set(refused(by_operator(), a_context(snapshot=other))) == {ReasonKind.IDENTITY}


def in_namespace(pid: int, inner: int, **overrides: Any) -> ProcessReading:
    """Return a process of a container's PID namespace."""
    pod = a_workload("pod", kind=WorkloadKind.POD)
    fields: dict[str, Any] = {"ns_pids": (pid, inner), "cgroup": "0::/pod", "workload": pod}
    return a_process(pid, **(fields | overrides))


def test_sigterm_to_a_namespace_init_is_permitted_with_a_note() -> None:
    """It may be discarded; the record says so."""
    answer = admit(*by_operator(), a_context(snapshot=a_busy_snapshot(in_namespace(100, 1))))
    assert isinstance(answer, Permit)
    assert [item.gate for item in answer.answers][-1] == "namespace"


@pytest.mark.parametrize(
    ("other", "refusal"),
    [
        (in_namespace(101, 7), True),
        (in_namespace(101, 7, cgroup="0::/elsewhere", ppid=100), True),
        (in_namespace(101, 7, cgroup="0::/elsewhere", ppid=102), True),
        (in_namespace(101, 7, cgroup="0::/elsewhere", ppid=77), False),
        (in_namespace(101, 7, cgroup="0::/elsewhere", ppid=101), False),
        (in_namespace(101, 7, tasks=(a_task(101, "Z"),)), False),
        (in_namespace(101, 1), False),
        (a_process(101, cgroup="0::/pod"), False),
    ],
    ids=[
        "cgroup",
        "child",
        "grandchild",
        "stranger",
        "its own parent",
        "dead",
        "another init",
        "host process",
    ],
)
def test_sigkill_to_a_namespace_init_needs_every_member(other: ProcessReading, *, refusal: bool) -> None:
    """SIGKILL would end every member: one that is seen and is not a target refuses, and is named."""
    init = in_namespace(100, 1)
    middle = in_namespace(102, 5, cgroup="0::/third", ppid=100)
    chained = other.ppid == middle.ref.pid
    readings = [init, other] + ([middle] if chained else [])
    target = a_target(init, middle) if chained else a_target(init)
    context = a_context(snapshot=a_snapshot(processes=readings))
    answer = admit(*by_operator(Stage.SIGKILL, target=target), context)
    if refusal:
        assert isinstance(answer, Refusal)
        assert [reason.kind for reason in answer.reasons] == [ReasonKind.HOLDERS]
        assert answer.reasons[0].processes == (other.ref,)
        whole = a_target(init, other, middle) if chained else a_target(init, other)
        assert refused(by_operator(Stage.SIGKILL, target=whole), context) == []
    else:
        assert isinstance(answer, Permit)


def test_processes_of_one_session_in_namespaces_of_their_own_are_no_members() -> None:
    """Two namespaces that one shell made share its cgroup: neither's init refuses for the other."""
    session = a_workload("session 1", kind=WorkloadKind.SESSION)
    init, other = in_namespace(100, 1, workload=session), in_namespace(101, 1, workload=session)
    child = in_namespace(103, 2, workload=session, ppid=101)
    unknown = in_namespace(104, 3, workload=session)
    context = a_context(snapshot=a_snapshot(processes=[init, other, child, unknown]))
    assert refused(by_operator(Stage.SIGKILL, target=a_target(init)), context) == []


def test_a_pid_that_was_used_again_after_its_proven_end_binds_signals_only() -> None:
    """A stranger under a proven dead target's pid is not signalled, and hinders no reset."""
    snapshot = a_snapshot(processes=[a_process(start=2)], exited=frozenset({a_ref()}))
    assert refused(by_operator(), a_context(snapshot=snapshot)) == [ReasonKind.IDENTITY]
    assert refused(by_operator(Stage.RESET), a_context(snapshot=ready(snapshot))) == []


# Counts


SHARED = a_workload("pod-1", kind=WorkloadKind.POD, path="/kubepods/pod-1")


def spent(kind: SpendKind, *ages: float, key: str = "k", dry_run: bool = False) -> Ledger:
    """Return a ledger with spends so many seconds ago."""
    return Ledger(spends=tuple(Spend(kind, key, WALL - age, dry_run) for age in ages))


def test_a_workload_counts_once_by_its_boundary() -> None:
    """A trusted boundary is the unit; a forged, missing or session one counts by the root process."""
    assert workload_key(a_target(workload=SHARED)) == ":/kubepods/pod-1"
    for unsure in (
        replace(SHARED, trusted=False),
        replace(SHARED, path=""),
        replace(SHARED, kind=WorkloadKind.SESSION),
    ):
        assert workload_key(a_target(workload=unsure)) == "100@1"


@pytest.mark.parametrize(
    ("ledger", "count"),
    [
        (spent(SpendKind.WORKLOAD, 1799), 1),
        (spent(SpendKind.WORKLOAD, 1800), 0),
        (spent(SpendKind.WORKLOAD, -60), 1),
        (spent(SpendKind.WORKLOAD, 2000, 40000, 80000), 1),
        (spent(SpendKind.WORKLOAD, 1, 40000, 80000), 2),
        (spent(SpendKind.WORKLOAD, 1, dry_run=True), 0),
        (spent(SpendKind.DRAIN, 1), 0),
    ],
)
def test_the_workload_budget_binds_a_rules_first_signal(ledger: Ledger, count: int) -> None:
    """1 in 30 min and 3 a day, each named; a clock that went back spares nobody; operators are free."""
    context = a_context(ledger=ledger)
    assert refused(by_rule(), context) == [ReasonKind.BUDGET] * count
    assert refused(by_operator(), context) == []
    sent = Attempt(AttemptId("a"), Stage.SIGTERM, (a_ref(),), WALL)
    assert refused(by_rule(Stage.SIGKILL, attempts=(sent,)), context) == []


def test_dry_runs_have_a_budget_of_their_own() -> None:
    """A dry run is bound by dry spends, and its attempts do not make a real signal the second one."""
    dry = a_plan(dry_run=True)
    assert refused(by_rule(plan=dry), a_context(ledger=spent(SpendKind.WORKLOAD, 1))) == []
    spend = a_context(ledger=spent(SpendKind.WORKLOAD, 1, dry_run=True))
    assert refused(by_rule(plan=dry), spend) == [ReasonKind.BUDGET]
    tried = Attempt(AttemptId("a"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.DRY_RUN))
    assert refused(by_rule(plan=dry, attempts=(tried,)), spend) == []
    real = a_context(ledger=spent(SpendKind.WORKLOAD, 1))
    assert refused(by_rule(attempts=(tried,)), real) == [ReasonKind.BUDGET]


def test_members_of_a_workload_share_its_spend_until_its_incident_ends() -> None:
    """Two incidents of one pod cost one; after an end the next costs again, and cools down first."""
    key = workload_key(a_target(workload=SHARED))
    ledger = spent(SpendKind.WORKLOAD, 10, key=key)
    asked = by_rule(target=a_target(workload=SHARED))
    covered = a_context(ledger=ledger)
    permit = admit(*asked, covered)
    assert isinstance(permit, Permit)
    assert budgets.spends_of(permit, asked[1], covered) == ()
    ended = replace(ledger, ended=(Ended(key, (GPU_A,), WALL - 5),))
    assert refused(asked, a_context(ledger=ended)) == [ReasonKind.BUDGET, ReasonKind.COOL_DOWN]


@pytest.mark.parametrize(("age", "kinds"), [(299.0, [ReasonKind.COOL_DOWN]), (300.0, [])])
def test_the_cool_down_of_a_workload(age: float, kinds: list[ReasonKind]) -> None:
    """For 300 s after an incident's end the same workload is left alone by rules, and by rules only."""
    key = workload_key(a_target())
    ledger = Ledger(ended=(Ended(key, (), WALL - age), Ended("other", (), WALL)))
    assert refused(by_rule(), a_context(ledger=ledger)) == kinds
    assert refused(by_operator(), a_context(ledger=ledger)) == []


@pytest.mark.parametrize(("age", "kinds"), [(1199.0, [ReasonKind.COOL_DOWN]), (1200.0, [])])
def test_the_cool_down_of_a_gpu_after_a_reset(age: float, kinds: list[ReasonKind]) -> None:
    """It binds a rule's first signal and every reset; an operator's force waives it for the reset."""
    ledger = Ledger(ended=(Ended("x", (GPU_A,), WALL - age, was_reset=True), Ended("y", (GPU_A,), WALL)))
    assert refused(by_rule(), a_context(ledger=ledger)) == kinds
    context = open_for(Stage.RESET, ledger=ledger)
    assert refused(by_rule(Stage.RESET), context) == kinds
    assert refused(by_operator(Stage.RESET), context) == kinds
    assert refused(by_operator(Stage.RESET, force=True), context) == []


def test_the_budget_of_resets_is_each_gpus_own_and_only_an_operators_force_waives_it() -> None:
    """One reset of a GPU in 6 h; a plan by rule that says force gains nothing."""
    context = open_for(Stage.RESET, ledger=spent(SpendKind.RESET, 21599, key=GPU_A))
    assert refused(by_operator(Stage.RESET), context) == [ReasonKind.BUDGET]
    assert refused(by_operator(Stage.RESET, force=True), context) == []
    forced = a_plan(stages=ALL_STAGES, force=True)
    assert refused(by_rule(Stage.RESET, plan=forced), context) == [ReasonKind.BUDGET]
    other = open_for(Stage.RESET, ledger=spent(SpendKind.RESET, 1, key=GPU_B))
    assert refused(by_rule(Stage.RESET), other) == []


def test_a_reset_of_no_gpu_is_refused() -> None:
    """A step that names no GPU resets none."""
    assert refused(by_operator(Stage.RESET, target=a_target(gpus=())), open_for(Stage.RESET)) == [
        ReasonKind.GPU_UNKNOWN,
    ]


def test_the_reset_gate_binds_everyone() -> None:
    """A living holder refuses a rule and a forcing operator alike."""
    for asked in (by_rule(Stage.RESET), by_operator(Stage.RESET, force=True)):
        assert refused(asked, a_context(snapshot=ready(a_busy_snapshot()))) == [ReasonKind.HOLDERS]


def test_the_reset_gate_looks_at_members_that_hold_nothing_any_more() -> None:
    """A member in the exit path that no source shows as a holder refuses, named by the step or not."""
    leaving = a_process(tasks=(a_task(100, "R", PF_EXITING),))
    step, incident = by_operator(Stage.RESET)
    context = a_context(snapshot=ready(a_snapshot(processes=[leaving])))
    for targets in (step.targets, ()):
        assert refused((replace(step, targets=targets), incident), context) == [ReasonKind.EXIT_PATH]


def test_a_drain_needs_a_reason_whose_fault_domain_the_policy_drains_for() -> None:
    """No reason, or one that is the workload's fault, refuses; one a day by rule."""
    no_reason = a_context(drain_reason=None)
    assert refused(by_rule(Stage.DRAIN), no_reason) == [ReasonKind.NO_DRAIN_REASON]
    fuse = a_context(drain_reason=DrainReason(FaultDomain.WORKLOAD, "stuck in fuse", DrainCode.STUCK_EXIT))
    assert refused(by_rule(Stage.DRAIN), fuse) == [ReasonKind.NO_DRAIN_REASON]
    spend = a_context(drain_reason=STUCK, ledger=spent(SpendKind.DRAIN, 86399))
    assert refused(by_rule(Stage.DRAIN), spend) == [ReasonKind.BUDGET]
    assert refused(by_operator(Stage.DRAIN), spend) == []


def test_a_drain_waits_until_the_nodes_last_request_is_taken_back() -> None:
    """By rule and by hand: the two must never be mixed."""
    leaving = NodeDrain(a_request(), BOOT, WALL, (), (), withdrawal=Withdrawal("root", "mended", WALL))
    for step in (by_rule(Stage.DRAIN), by_operator(Stage.DRAIN)):
        stands = a_context(drain_reason=STUCK, ledger=Ledger(drain=replace(leaving, withdrawal=None)))
        assert refused(step, stands) == []
        context = a_context(drain_reason=STUCK, ledger=Ledger(drain=leaving))
        assert refused(step, context) == [ReasonKind.DRAIN_LEAVING]


# Breaker


def due(key: str, *gpus: str) -> NewlyDue:
    """Return one newly due workload."""
    return NewlyDue(key, tuple(GpuUuid(uuid) for uuid in gpus))


@pytest.mark.parametrize(
    ("newly_due", "limits", "gpus", "trips"),
    [
        ([], BreakerSettings(), 8, ""),
        ([due("a", "0"), due("a", "1")], BreakerSettings(), 8, ""),
        ([due("a", "0"), due("b", "0")], BreakerSettings(), 8, "2 workloads"),
        ([due("a", "0", "1", "2")], BreakerSettings(), 8, "3 of 8 GPUs"),
        ([due("a", "0")], BreakerSettings(), 1, ""),
        ([due("a", "0", "1")], BreakerSettings(), 2, "2 of 2 GPUs"),
        ([due("a", "0", "1")], BreakerSettings(), 0, "2 of 0 GPUs"),
        ([due("a", "0", "1")], BreakerSettings(gpu_percent=100.0), 2, ""),
    ],
)
def test_when_the_breaker_trips(newly_due: Any, limits: BreakerSettings, gpus: int, trips: str) -> None:
    """More than one workload, or holders on over a quarter of the GPUs (two at least), trip it."""
    policy = a_policy(breaker=limits)
    host = replace(a_snapshot(), gpus=a_snapshot().gpus * gpus)
    text = budgets.breaker_trip(newly_due, host, policy)
    assert (text is not None) == bool(trips)
    assert trips in (text or "")


def test_a_pass_that_would_trip_the_breaker_refuses_the_first_signal() -> None:
    """Even if nobody tripped it yet, a rule's first signal is refused; later ones and operators go on."""
    context = a_context(newly_due=(due("another", GPU_A),))
    assert refused(by_rule(), context) == [ReasonKind.BREAKER]
    assert refused(by_operator(), context) == []
    sent = Attempt(AttemptId("a"), Stage.SIGTERM, (a_ref(),), WALL)
    assert refused(by_rule(Stage.SIGKILL, attempts=(sent,)), context) == []


# Spends


def test_what_a_permit_costs() -> None:
    """A rule's first signal costs a workload, a reset each GPU, a rule's drain one and its cause."""

    def cost(asked: tuple[Step, Incident]) -> list[tuple[SpendKind, str, bool]]:
        context = open_for(asked[0].stage)
        permit = admit(*asked, context)
        assert isinstance(permit, Permit)
        return [(s.kind, s.key, s.dry_run) for s in budgets.spends_of(permit, asked[1], context)]

    key = workload_key(a_target())
    assert cost(by_rule()) == [(SpendKind.WORKLOAD, key, False)]
    assert cost(by_rule(plan=a_plan(dry_run=True))) == [(SpendKind.WORKLOAD, key, True)]
    assert cost(by_operator()) == []
    assert cost(by_operator(Stage.RESET)) == [(SpendKind.RESET, GPU_A, False)]
    asked = [(SpendKind.DRAIN, "inc-1", False), (SpendKind.CAUSE, "uid 1000", False)]
    assert cost(by_rule(Stage.DRAIN)) == asked
    assert cost(by_operator(Stage.DRAIN)) == []


# Properties


LEDGERS = st.builds(
    Ledger,
    spends=st.lists(
        st.builds(
            Spend,
            st.sampled_from(SpendKind),
            st.sampled_from(["k", str(GPU_A), "100@1"]),
            st.floats(WALL - 90000, WALL + 10),
            st.booleans(),
        ),
        max_size=4,
    ).map(tuple),
    pause=st.none() | st.just(Pause("root", "x", WALL - 1)),
    breaker=st.none() | st.just(Breaker("x", WALL - 1)),
)
CONTEXTS: Any = st.fixed_dictionaries(
    {
        "ledger": LEDGERS,
        "started_mono": st.floats(0, MONO),
        "foreground": st.booleans(),
        "hold_file": st.sampled_from(["", "/run/reclaimerd/HOLD"]),
        "record_fault": st.sampled_from(["", "disk full"]),
        "host_namespace": st.booleans(),
        "drain_reason": st.none() | st.just(STUCK),
    },
)
ASKED = st.builds(
    lambda stage, force, operator: by_operator(stage, force=force) if operator else by_rule(stage),
    st.sampled_from(STEPS),
    st.booleans(),
    st.booleans(),
)
FILE = FileIdentity(8, 4711)
GUARDED = [
    a_process(exe=Known("/usr/sbin/sshd"), exe_file=Known(FILE), uids=(0, 0, 0, 0), comm="sshd"),
    a_process(tasks=(a_task(100, "I", 0x200000),)),
    a_process(workload=a_workload("serve.service")),
    a_process(exe=Unreadable("x"), uids=(0, 0, 0, 0), workload=a_workload("kubelet.service")),
]


@given(CONTEXTS, ASKED, st.sampled_from(GUARDED), st.sampled_from(Mode))
def test_no_context_lets_a_step_through_for_a_protected_target(
    overrides: dict[str, Any], asked: tuple[Step, Incident], reading: ProcessReading, mode: Mode
) -> None:
    """Whatever else stands, whoever asks and however hard: PROTECTED is among the reasons."""
    snapshot = a_busy_snapshot(reading, host_files={FILE: "/usr/sbin/sshd"})
    keep = (UserProtection("keep", unit="serve.service"),)
    context = a_context(snapshot=snapshot, policy=a_policy(mode=mode, protections=keep), **overrides)
    assert ReasonKind.PROTECTED in refused(asked, context)


SAFETY = frozenset(
    {
        ReasonKind.PROTECTED,
        ReasonKind.IDENTITY,
        ReasonKind.RECORD,
        ReasonKind.WRONG_NAMESPACE,
        ReasonKind.HOLDERS,
        ReasonKind.EXIT_PATH,
        ReasonKind.UNREADABLE,
        ReasonKind.RECOVERY_ACTION,
        ReasonKind.DRIVER_UNRESPONSIVE,
        ReasonKind.MIG,
    },
)
WORLDS: list[Snapshot] = [
    a_busy_snapshot(),
    a_snapshot(),
    a_snapshot(exited=frozenset({a_ref()})),
    a_busy_snapshot(a_process(tasks=(a_task(100, "S", PF_EXITING),))),
    a_snapshot(processes=[a_process(start=2)]),
    a_snapshot(unreadable={100: "hung", 7: "hung"}),
    *(a_busy_snapshot(reading, host_files={FILE: "/usr/sbin/sshd"}) for reading in GUARDED),
]


@given(CONTEXTS, st.sampled_from(STEPS), st.sampled_from(WORLDS))
def test_force_never_removes_a_safety_reason(
    overrides: dict[str, Any], stage: Stage, snapshot: Snapshot
) -> None:
    """With and without force an operator meets the same safety reasons, and no other goes but two."""
    context = a_context(snapshot=snapshot, **overrides)
    calm = refused(by_operator(stage), context)
    forced = refused(by_operator(stage, force=True), context)
    assert [kind for kind in calm if kind in SAFETY] == [kind for kind in forced if kind in SAFETY]
    assert set(calm) - set(forced) <= {ReasonKind.BUDGET, ReasonKind.COOL_DOWN}
    assert set(forced) <= set(calm)


ACTS = st.lists(
    st.tuples(
        st.floats(0, 30000), st.integers(100, 104), st.sampled_from(STEPS), st.booleans(), st.booleans()
    ),
    max_size=25,
)


@given(ACTS, st.integers(0, 3), st.integers(0, 4))
def test_no_sequence_of_acts_by_rule_exceeds_a_budget(acts: Any, per_window: int, per_day: int) -> None:
    """However acts, ends and dry runs fall, what was spent never exceeds a window's or a day's budget."""
    limits = BudgetSettings(workloads_per_window=per_window, workloads_per_day=per_day)
    wait = GateSettings(workload_cooldown_seconds=60.0)
    policy = a_policy(budgets=limits, gates=wait)
    ledger, wall = Ledger(), WALL
    for gap, pid, stage, dry, ends in acts:
        wall += gap
        reading = a_process(pid)
        asked = by_rule(stage, target=a_target(reading), plan=a_plan(stages=ALL_STAGES, dry_run=dry))
        gone = ready(a_snapshot(exited=frozenset({reading.ref})))
        snapshot = gone if stage is Stage.RESET else a_busy_snapshot(reading)
        context = open_for(stage, snapshot=snapshot, policy=policy, ledger=ledger, wall=wall)
        answer = admit(*asked, context)
        if isinstance(answer, Permit):
            ledger = replace(ledger, spends=ledger.spends + budgets.spends_of(answer, asked[1], context))
        if ends:
            key = workload_key(asked[1].target)
            ledger = replace(ledger, ended=(*ledger.ended, Ended(key, (GPU_A,), wall, stage is Stage.RESET)))
    for dry in (False, True):
        signals = _keys(ledger, SpendKind.WORKLOAD, dry_run=dry)
        assert _most_within(signals, 1800.0) <= per_window
        assert _most_within(signals, 86400.0) <= per_day
        assert _most_within(_keys(ledger, SpendKind.RESET, dry_run=dry), 21600.0) <= 1
        assert _most_within(_keys(ledger, SpendKind.RESET, dry_run=dry), 86400.0) <= 2
        assert _most_within(_keys(ledger, SpendKind.DRAIN, dry_run=dry), 86400.0) <= 1


def _keys(ledger: Ledger, kind: SpendKind, *, dry_run: bool) -> list[float]:
    return [spend.at for spend in ledger.spends if spend.kind is kind and spend.dry_run == dry_run]


def _most_within(times: list[float], window: float) -> int:
    return max((sum(1 for at in times if 0 <= at - start < window) for start in times), default=0)


def test_boot_of_the_builders_is_one() -> None:
    """The builders' values are of one boot, or the identity gate would mask the others."""
    assert a_snapshot().boot_id == an_incident().boot_id == a_ref().boot_id == BOOT
