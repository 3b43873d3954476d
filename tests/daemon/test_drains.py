"""Claims about drain requests and incidents: who joins, who is told what, and when a request is over."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drains import attention_text, leave_ended
from reclaimerd.daemon.opening import Moment
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import AskState, DrainPhase, Joined, NodeDrain, Withdrawal
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, SlotWaits
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import OutcomeKind, Stage
from reclaimerd.model.ledger import Ledger, SpendKind
from reclaimerd.model.policy import (
    BreakerSettings,
    BudgetSettings,
    DrainSettings,
    FaultDomain,
    GateSettings,
    LadderSettings,
    ListedStage,
    Policy,
)
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from reclaimerd.model.step import ReasonKind
from tests.builders import MONO, WALL, a_busy_snapshot, a_gpu, a_policy, a_process, a_rule
from tests.fakes import Rig, a_rig

QUICK = replace(LadderSettings(), sigterm_seconds=1.0, sigkill_seconds=1.0, exit_grace_seconds=1.0)
CALM = a_policy(
    gates=GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0),
    breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0),
)
RULE = a_rule(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN))


def a_policy_with(**drain: object) -> Policy:
    """Return a policy whose rule ends in a drain for a task stuck for whatever cause."""
    settings = replace(DrainSettings(), fault_domains=(FaultDomain.UNKNOWN,), **drain)  # type: ignore[arg-type]
    budgets = replace(BudgetSettings(), workloads_per_window=9, workloads_per_day=9, drains_per_day=1)
    return replace(CALM, rules=(RULE,), ladder=QUICK, drain=settings, budgets=budgets)


def stuck(*readings: ProcessReading) -> Snapshot:
    """Return a look in which these do not leave their exit path."""
    dying = [
        replace(one, tasks=(replace(one.tasks[0], state="D", flags=0x4),), kill_pending=True)
        for one in readings
    ]
    return a_busy_snapshot(*dying)


def a_stuck_rig(*readings: ProcessReading, **drain: object) -> Rig:
    """Return a rig whose targets were killed and do not end."""
    readings = readings or (a_process(),)
    rig = a_rig(a_busy_snapshot(*readings), a_policy_with(**drain))
    asyncio.run(rig.passes(2))
    rig.show(stuck(*readings))
    return rig


def the_drain(rig: Rig) -> NodeDrain:
    """Return this node's request."""
    drain = rig.cycle.state.ledger.drain
    assert drain is not None
    return drain


def ends(rig: Rig) -> list[str]:
    """Return how incidents ended."""
    return [entry.end for entry in rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)]


def test_the_request_says_all_that_a_pager_needs() -> None:
    """Host, code, what is stuck, what was tried and what to do; no command line."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(6))
    (request,) = rig.target.asked
    assert (request.host, request.code.value, request.pids) == ("node-7", "stuck_exit", (100,))
    assert "let go of nothing" in request.reason
    assert [line.split(" ")[0] for line in request.tried] == ["sigterm", "sigkill"]
    assert "reboot" in request.mend
    assert request.evidence[0].startswith("pid 100: ")
    assert "python" not in repr(request)


def test_an_answer_is_told_once_and_the_request_stands() -> None:
    """The incident goes to the scheduler; the node's request outlives it and is shown."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(10))
    assert ends(rig) == ["handed_over to scheduler"]
    assert the_drain(rig).phase is DrainPhase.STANDS
    assert len(rig.target.asked) == 1
    drain = the_drain(rig)
    assert f"`reclaimctl undrain --incident {drain.id}` takes it back" in attention_text(drain)


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (NotAsked("no rights", lasting=True), "handed_over to person"),
        (NotAsked("away"), "handed_over to person"),
        (Foreign("an admin's"), "handed_over to scheduler"),
    ],
)
def test_who_takes_it_decides_to_whom_the_incident_goes(answer: NotAsked | Foreign, end: str) -> None:
    """Nobody: a person, and attention; another's drain is as good as ours."""
    rig = a_stuck_rig()
    rig.target.answer = answer
    asyncio.run(rig.passes(10))
    assert ends(rig) == [end]
    if isinstance(answer, NotAsked):
        assert "reached nobody" in attention_text(the_drain(rig))


def test_while_the_fleet_is_full_the_incident_waits() -> None:
    """No end, no second intent, nobody asked; then there is room."""
    rig = a_stuck_rig()
    rig.fleet.answer = SlotWaits("5 of 5 nodes are drained")
    asyncio.run(rig.passes(10))
    assert (ends(rig), rig.target.asked) == ([], [])
    intents = [entry for entry in rig.recorder.of_kind(RecordKind.INTENT) if entry.action == "drain"]
    assert len(intents) == 1
    assert "5 of 5 nodes" in attention_text(the_drain(rig))


def test_one_that_dies_while_it_waits_ends_reclaimed_and_nobody_is_asked() -> None:
    """The cause is over before anybody was asked: the request is dropped, whatever the policy."""
    rig = a_stuck_rig()
    rig.fleet.answer = SlotWaits("full")
    asyncio.run(rig.passes(6))
    empty = replace(a_busy_snapshot(), gpus=(a_gpu(processes=[]),), holders=(), processes={})
    rig.show(replace(empty, exited=frozenset({a_process().ref})))
    asyncio.run(rig.passes(20))
    assert rig.cycle.state.ledger.drain is None
    assert rig.target.asked == []
    assert ends(rig)[0].startswith((Stage.RECLAIMED.value, Stage.UNVERIFIED.value))
    intents, outcomes = (
        [one.attempt for one in rig.recorder.of_kind(kind)]
        for kind in (RecordKind.INTENT, RecordKind.OUTCOME)
    )
    assert sorted(map(str, intents)) == sorted(map(str, outcomes))


def test_a_second_incident_joins_and_spends_nothing() -> None:
    """One request for the node, both told; the budget of one a day is for the first alone."""
    first, second = a_process(), a_process(200, start=200)
    rig = a_stuck_rig(first, second)
    asyncio.run(rig.passes(10))
    assert ends(rig) == ["handed_over to scheduler"] * 2
    assert len(rig.target.asked) == 1
    assert len(the_drain(rig).joined) == 2
    texts = [entry.reason for entry in rig.recorder.of_kind(RecordKind.DRAIN_STEP)]
    assert len([text for text in texts if " joins: pid " in text]) == 1
    spends = [one.kind for one in rig.cycle.state.ledger.spends]
    assert spends.count(SpendKind.DRAIN) == 1
    assert spends.count(SpendKind.CAUSE) == 1


def test_one_user_causes_one_drain_a_day() -> None:
    """Taken back, a second stuck task of the same user drains no node again; a person gets it."""
    rig = a_stuck_rig()
    rig.cycle.policy = replace(rig.cycle.policy, budgets=replace(rig.cycle.policy.budgets, drains_per_day=9))
    asyncio.run(rig.passes(8))
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, drain=None)
    other = a_process(200, start=200)
    rig.show(a_busy_snapshot(other))
    asyncio.run(rig.passes(2))
    rig.show(stuck(other))
    asyncio.run(rig.passes(8))
    assert len(rig.target.asked) == 1
    assert ends(rig)[-1] == "handed_over to person"
    refused = rig.recorder.of_kind(RecordKind.REFUSED)[-1]
    assert "uid 1000 was the cause of a drain request within 24 h" in refused.reason


def gone(rig: Rig, ref: ProcessRef) -> None:
    """Let the target die after all."""
    healthy = a_busy_snapshot()
    gpus = tuple(replace(gpu, recovery_action=Known(RecoveryAction.NONE)) for gpu in healthy.gpus)
    rig.show(replace(healthy, gpus=gpus, holders=(), processes={}, exited=frozenset({ref})))


def test_by_default_a_person_takes_it_back() -> None:
    """The task died late and the GPU is well: the request stands all the same."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    asyncio.run(rig.passes(4, step=600.0))
    assert the_drain(rig).phase is DrainPhase.STANDS
    assert rig.target.withdrawn == []
    assert the_drain(rig).joined[0].well_at is not None


def test_with_auto_withdraw_it_goes_when_all_is_well_for_a_while() -> None:
    """Only after the settling time; then the targets, the place, and the ledger are as before."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=600.0)
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    asyncio.run(rig.passes(5, step=100.0))
    assert rig.target.withdrawn == []
    asyncio.run(rig.passes(5, step=100.0))
    assert [one.id for one in rig.target.withdrawn] == rig.fleet.released
    assert rig.cycle.state.ledger.drain is None


@pytest.mark.parametrize("action", [RecoveryAction.GPU_RESET, RecoveryAction.NODE_REBOOT])
def test_a_gpu_that_is_not_well_keeps_its_node_drained(action: RecoveryAction) -> None:
    """The task is gone, the GPU is not well: nothing is taken back by itself."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=10.0)
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    ill = tuple(replace(gpu, recovery_action=Known(action)) for gpu in rig.sampler.snapshot.gpus)
    rig.show(replace(rig.sampler.snapshot, gpus=ill))
    asyncio.run(rig.passes(8, step=100.0))
    assert the_drain(rig).phase is DrainPhase.STANDS
    assert rig.target.withdrawn == []


@pytest.mark.parametrize("auto", [True, False])
def test_a_new_boot_with_a_well_gpu_is_noted(*, auto: bool) -> None:
    """The request of the boot before: its cause is over by the boot; it stays unless the policy says so."""
    rig = a_stuck_rig(auto_withdraw=auto, settling_seconds=10.0)
    asyncio.run(rig.passes(8))
    ledger = rig.cycle.state.ledger
    assert ledger.drain is not None
    rig.cycle.state.ledger = replace(ledger, drain=replace(ledger.drain, boot_id="an earlier one"))
    rig.cycle.state.handed.clear()  # no start takes up an incident of another boot
    well = a_gpu(recovery_action=Known(RecoveryAction.NONE))
    rig.show(replace(a_busy_snapshot(), gpus=(well,), holders=(), processes={}))
    asyncio.run(rig.passes(1))
    assert the_drain(rig).verified_boot == rig.sampler.snapshot.boot_id
    asyncio.run(rig.passes(6, step=10.0))
    assert (rig.cycle.state.ledger.drain is None) is auto
    assert bool(rig.target.withdrawn) is auto


def test_a_step_waits_while_the_request_is_being_taken_back() -> None:
    """A new cause asks anew when the old request is gone; the two are never mixed."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    rig.target.farewell = NotAsked("away")
    ledger = rig.cycle.state.ledger
    assert ledger.drain is not None
    order = replace(ledger.drain, phase=DrainPhase.WITHDRAW, withdrawal=Withdrawal("root", "mended", WALL))
    rig.cycle.state.ledger = replace(ledger, drain=order)
    rig.cycle.policy = replace(rig.cycle.policy, budgets=replace(rig.cycle.policy.budgets, drains_per_day=9))
    other = a_process(200, start=200, uids=(7, 7, 7, 7))
    rig.show(a_busy_snapshot(other))
    asyncio.run(rig.passes(2))
    rig.show(stuck(other))
    asyncio.run(rig.passes(6))
    assert len(rig.target.asked) == 1
    assert the_drain(rig).id == order.id
    kinds = [[one.kind for one in entry.refusals] for entry in rig.recorder.of_kind(RecordKind.REFUSED)]
    assert kinds.count([ReasonKind.DRAIN_LEAVING]) == 1, "it is said, and once"
    rig.target.farewell = Asked("forgotten")
    asyncio.run(rig.passes(10, step=700.0))
    assert [one.pids for one in rig.target.asked] == [(100,), (200,)]


@pytest.mark.parametrize(
    ("tries", "kind"), [(0, OutcomeKind.PASSED_OVER), (1, OutcomeKind.UNKNOWN)], ids=["nobody asked", "asked"]
)
def test_an_incident_that_ends_while_others_are_asked_leaves_no_open_step(
    tries: int, kind: OutcomeKind
) -> None:
    """Its task died late: its step has an outcome on record, and the request another cause at most."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    drain = the_drain(rig)
    (incident,) = rig.cycle.state.handed.values()
    step = replace(incident.attempts[-1], outcome=None)
    ended = replace(incident, stage=Stage.RECLAIMED, attempts=(*incident.attempts[:-1], step))
    joined = (replace(drain.joined[0], told=False), Joined(IncidentId("another"), "lost", WALL))
    asks = (replace(drain.asks[0], tries=tries),)
    asking = replace(drain, phase=DrainPhase.ASK, joined=joined, asks=asks)
    draft = Draft({ended.id: ended}, Ledger(drain=asking))
    leave_ended(draft, Moment(MONO, WALL + 9))
    outcome = draft.incidents[ended.id].attempts[-1].outcome
    assert outcome is not None
    assert outcome.kind is kind
    assert [entry.kind for entry in draft.entries] == [RecordKind.OUTCOME]
    assert draft.ledger.drain is not None
    assert [(one.told, one.well_at) for one in draft.ledger.drain.joined] == [(True, WALL + 9), (False, None)]


def test_what_a_person_must_know() -> None:
    """Nothing once it is over; else the phase, and who did not take it."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    drain = the_drain(rig)
    assert attention_text(None) == attention_text(replace(drain, phase=DrainPhase.DONE)) == ""
    assert "is being taken back" in attention_text(replace(drain, phase=DrainPhase.WITHDRAW))
    (ask,) = drain.asks
    partly = replace(drain, asks=(ask, replace(ask, target="slurm", state=AskState.FAILED, text="no rights")))
    assert "stands: " in attention_text(drain)
    assert "; not everybody took it: slurm: no rights; `reclaimctl undrain" in attention_text(partly)
    asked = replace(ask, state=AskState.DUE, text="")
    early = replace(drain, phase=DrainPhase.ASK, asks=(replace(asked, tries=1), replace(asked, tries=0)))
    assert f"may stand: no answer of {ask.target} is known" in attention_text(early)
    assert "is not asked for yet: " in attention_text(replace(early, asks=(replace(asked, tries=0),)))
    half = replace(early, asks=(replace(asked, tries=1), replace(ask, target="slurm")))
    assert "stands: " in attention_text(half)
