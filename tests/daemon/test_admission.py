"""What is due, what the gates let through, and what a refusal leaves behind."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.admission import Admitted, admit_all
from reclaimerd.daemon.draft import Draft
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Release, Stage
from reclaimerd.model.ledger import Ledger, Spend, SpendKind
from reclaimerd.model.policy import (
    DEFAULT_STAGES,
    BreakerSettings,
    BudgetSettings,
    DrainSettings,
    FaultDomain,
    GateSettings,
    ListedStage,
    Mode,
    UserProtection,
)
from reclaimerd.model.snapshot import ScanCoverage
from tests.builders import (
    GIB,
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
    a_task,
    an_incident,
)
from tests.fakes import Rig, a_rig
from tests.judge.reset_builders import ready

CALM = a_policy(
    gates=GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0),
    breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0),
)


def drafted(incident: Incident) -> Draft:
    """Return a draft with this one incident."""
    return Draft({incident.id: incident}, Ledger())


def killed(stages: tuple[ListedStage, ...]) -> Incident:
    """Return an incident whose SIGKILL ran out."""
    attempts = tuple(
        Attempt(AttemptId(f"inc-1.{n}"), stage, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
        for n, stage in enumerate((Stage.SIGTERM, Stage.SIGKILL), start=1)
    )
    plan = a_plan(stages=stages, sigkill_seconds=0.0)
    return an_incident(stage=Stage.SIGKILL, attempts=attempts, plan=plan)


def ended_with(rig: Rig) -> tuple[str, str]:
    """Return the end on record and its reason."""
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    return end.end, end.reason


def test_one_budget_binds_the_second_workload_and_lets_the_first_go_on() -> None:
    """One workload per window: the second waits with its refusal on record, and nothing is sent to it."""
    one, two = a_process(100), a_process(200, start=2)
    rig = a_rig(a_busy_snapshot(one, two), CALM)
    asyncio.run(rig.passes(3))
    assert rig.executor.sent == {one.ref: ["sigterm"]}
    (refusal,) = rig.recorder.of_kind(RecordKind.REFUSED)
    assert refusal.target is not None
    assert refusal.target.root == two.ref
    assert [reason.kind.value for reason in refusal.refusals] == ["budget"]


def test_the_spend_is_durable_with_the_intent() -> None:
    """The same batch holds intent and spend: a crash in between can't give the budget back."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    batch = rig.recorder.batches[0]
    assert RecordKind.INTENT in {entry.kind for entry in batch.entries}
    assert batch.ledger is not None
    assert [spend.kind for spend in batch.ledger.spends] == [SpendKind.WORKLOAD]


def test_a_budget_spent_before_a_restart_still_binds() -> None:
    """The ledger of the store, not the process's life, is what counts."""
    rig = a_rig(a_busy_snapshot(), CALM)
    rig.cycle.state.ledger = Ledger(spends=(Spend(SpendKind.WORKLOAD, "another", WALL - 60.0),))
    asyncio.run(rig.passes())
    assert rig.executor.permits == []


def test_a_budget_is_free_again_after_its_window() -> None:
    """What lifts the refusal is time."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, budgets=BudgetSettings(window_seconds=30.0)))
    rig.cycle.state.ledger = Ledger(spends=(Spend(SpendKind.WORKLOAD, "another", WALL - 29.0),))
    asyncio.run(rig.passes())
    assert rig.executor.permits == []
    rig.age(3.0)
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_settling_holds_and_then_lets_go() -> None:
    """Nothing by rule in the settling time; after it the same incident acts."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, gates=GateSettings(settling_seconds=3.0)))
    rig.cycle.started_mono = MONO
    asyncio.run(rig.passes(3))
    assert rig.executor.permits == []
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_an_observing_policy_never_acts_and_says_so_once() -> None:
    """The shipped mode: the verdict stands, one refusal for the mode, no permit in ten passes."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, mode=Mode.OBSERVE))
    asyncio.run(rig.passes(10))
    assert rig.executor.permits == []
    kinds = [reason.kind.value for entry in rig.recorder.entries for reason in entry.refusals]
    assert kinds == ["mode"]


def test_stages_that_a_rule_does_not_list_are_recorded_as_passed_over() -> None:
    """Only SIGKILL listed: SIGTERM is passed over on record and never sent."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, rules=(a_rule(stages=(ListedStage.SIGKILL,)),)))
    asyncio.run(rig.passes())
    passed = [(entry.action, entry.reason) for entry in rig.recorder.of_kind(RecordKind.PASSED_OVER)]
    assert passed == [("sigterm", "not among the rule's stages")]
    assert rig.executor.sent == {a_ref(): ["sigkill"]}


def test_an_operator_s_incident_passes_nothing_over() -> None:
    """What a person did not ask for is not a stage that a rule left out."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    rig.order(timeout_seconds=2.0)
    asyncio.run(rig.passes(4))
    assert rig.recorder.of_kind(RecordKind.PASSED_OVER) == []


def test_an_operator_whose_time_is_up_gets_five_and_no_drain_is_asked_for() -> None:
    """HANDED_OVER to the operator, exit 5, with what still holds."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    ticket = rig.order(force=True, grace_seconds=1.0, timeout_seconds=3.0)
    asyncio.run(rig.passes(5))
    assert ticket.exit_code is ExitCode.TIME_UP
    end, reason = ended_with(rig)
    assert end == "handed_over to operator"
    assert "1 of 1 processes not gone" in reason
    assert rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}


def test_a_reset_waits_for_a_whole_scan_before_its_gate_is_asked() -> None:
    """Without a full scan in this look the next one is asked to be deep, at once; nothing is refused."""
    incident = killed((*DEFAULT_STAGES, ListedStage.RESET))
    seen = replace(a_busy_snapshot(), at=MONO + 500.0, scan=ScanCoverage(full_at=MONO, full_now=False))
    draft = drafted(incident)
    context = a_context(snapshot=seen, now=seen.at, policy=CALM)
    admitted = admit_all(draft, context, {}, "")
    assert (admitted.wants_reset_look, admitted.again_at_once) == (True, True)
    assert admitted.work == []
    assert RecordKind.REFUSED not in {entry.kind for entry in draft.entries}


def test_a_refused_reset_is_passed_over_and_the_ladder_goes_on_at_once() -> None:
    """The target still lives: the reset's gate says why, and the next stage is asked in the next pass."""
    incident = killed((*DEFAULT_STAGES, ListedStage.RESET))
    draft = drafted(incident)
    seen = replace(ready(a_busy_snapshot()), at=MONO + 500.0)
    context = a_context(snapshot=seen, now=MONO + 500.0, policy=CALM)
    admitted = admit_all(draft, context, {}, "")
    assert admitted.again_at_once
    assert admitted.work == []
    kinds = [entry.kind for entry in draft.entries]
    assert kinds == [RecordKind.REFUSED, RecordKind.PASSED_OVER]
    assert draft.incidents[incident.id].passed_over[0].startswith("reset: ")


def test_a_drain_without_a_reason_is_passed_over() -> None:
    """A living holder is no reason to drain a node: no request, then a person gets it."""
    incident = killed((ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN))
    draft = drafted(incident)
    context = a_context(snapshot=replace(a_busy_snapshot(), at=MONO + 500.0), now=MONO + 500.0, policy=CALM)
    first = admit_all(draft, context, {}, "")
    assert first.work == []
    assert draft.incidents[incident.id].passed_over[-1].startswith("drain: ")
    admit_all(draft, context, {}, "")
    assert draft.incidents[incident.id].stage is Stage.HANDED_OVER


@pytest.mark.parametrize("stop", [{"hold_file": "/run/HOLD"}, {"record_fault": "full"}])
def test_what_stops_for_a_while_passes_no_stage_over(stop: dict[str, str]) -> None:
    """Under HOLD a drain waits and keeps its place: lifted, it is asked for."""
    leaving = a_process(tasks=(a_task(state="D", flags=0x4),))
    late = replace(a_busy_snapshot(leaving), at=MONO + 500.0)
    incident = replace(
        killed((ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN)), release=Release(1, 0, MONO)
    )
    draft = drafted(incident)
    drain = DrainSettings(fault_domains=(FaultDomain.UNKNOWN,))
    context = a_context(snapshot=late, now=late.at, policy=replace(CALM, drain=drain))
    stopped = replace(context, **stop)  # type: ignore[arg-type]  # each names one field that is text
    assert admit_all(draft, stopped, {}, "").work == []
    assert not any(mark.startswith("drain") for mark in draft.incidents[incident.id].passed_over)
    (work,) = admit_all(draft, context, {}, "").work
    assert work.permit.step.stage is Stage.DRAIN


def test_the_record_fault_of_a_rule_does_not_bind_an_operator() -> None:
    """Two faults are kept apart: a full disk refuses the rule's step and not the person's."""
    by_rule = an_incident()
    by_hand = an_incident(id=IncidentId("inc-2"), actor=OPERATOR, plan=a_plan(stages=(ListedStage.SIGTERM,)))
    draft = Draft({by_rule.id: by_rule, by_hand.id: by_hand}, Ledger())
    context = a_context(policy=CALM, record_fault="no space left")
    admitted = admit_all(draft, context, {}, "")
    assert [work.incident for work in admitted.work] == [by_hand.id]
    both = admit_all(
        Draft({by_hand.id: by_hand}, Ledger()), replace(context, record_fault=""), {}, "the disk is dead"
    )
    assert both.work == []


def test_a_shared_gpu_s_second_look_is_asked_for_in_time() -> None:
    """The pass is woken for the second reading, 200 ms after the first."""
    incident = an_incident(stage=Stage.SIGTERM, gone_mono=MONO, residual_ok_mono=MONO)
    context = a_context(snapshot=a_snapshot(exited=frozenset({a_ref()})), policy=CALM)
    admitted = admit_all(drafted(incident), context, {}, "")
    assert admitted.wake_at == pytest.approx(MONO + 0.2)


def test_the_earliest_wish_wakes_the_next_pass() -> None:
    """`None` asks for nothing; of two times the earlier holds."""
    admitted = Admitted()
    for at in (None, 20.0, 10.0, 30.0):
        admitted.wake(at)
    assert admitted.wake_at == 10.0


def test_an_operator_refused_after_a_signal_is_handed_over_with_three() -> None:
    """It was signalled before the protection came: the end is HANDED_OVER, exit 3, nothing more is sent."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    ticket = rig.order(force=True, grace_seconds=1.0)
    asyncio.run(rig.passes())
    guard = UserProtection("db", unit="train-100.service")
    rig.cycle.policy = replace(rig.cycle.policy, protections=(guard,))
    asyncio.run(rig.passes(2))
    assert ticket.exit_code is ExitCode.REFUSED
    assert ended_with(rig)[0] == "handed_over to operator"
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_one_unreadable_look_does_not_end_an_order_that_has_begun() -> None:
    """A late read on a busy host: nothing is sent meanwhile, and SIGKILL comes with the next clear look."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    ticket = rig.order(force=True, grace_seconds=1.0)
    asyncio.run(rig.passes())
    clear = a_busy_snapshot()
    blind = replace(clear, processes={}, unreadable={a_ref().pid: "its reader hung"})
    rig.show(blind)
    asyncio.run(rig.passes(2))
    assert ticket.exit_code is None
    assert rig.executor.sent == {a_ref(): ["sigterm"]}
    rig.show(clear)
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}
