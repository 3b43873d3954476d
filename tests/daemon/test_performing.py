"""What comes of an act: ends, withheld signals, and the whole plan of a dry run on record."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.admission import Work
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.performing import take_outcomes
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Recipient, Release, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import BreakerSettings, FaultDomain, GateSettings, ListedStage, Mode
from reclaimerd.model.step import Permit
from tests.builders import (
    GIB,
    MONO,
    WALL,
    a_busy_snapshot,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_step,
    an_incident,
)
from tests.fakes import a_rig

CALM = a_policy(
    gates=GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0),
    breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0),
)
NO_RULE = a_policy(a_rule(above=70 * GIB))


def test_a_dry_run_by_rule_records_each_later_stage_with_its_gate_s_word() -> None:
    """Mode dry-run: SIGTERM takes the road to the last call, SIGKILL and RESET and DRAIN are PLANNED."""
    rule = a_rule(mode=Mode.DRY_RUN, stages=tuple(ListedStage))
    rig = a_rig(a_busy_snapshot(), replace(CALM, rules=(rule,)))
    asyncio.run(rig.passes())
    planned = {entry.action: entry for entry in rig.recorder.of_kind(RecordKind.PLANNED)}
    assert list(planned) == ["sigkill", "reset", "drain"]
    assert planned["sigkill"].gates[0].text == "would be permitted now"
    assert any("would refuse now" in answer.text for answer in planned["reset"].gates)
    assert [answer.gate for answer in planned["drain"].gates] == ["no_drain_reason"]
    assert planned["sigkill"].reason == "would follow 300 s later"
    assert rig.executor.sent == {}


def test_a_dry_run_spends_from_a_budget_of_its_own() -> None:
    """After a dry run the real budget is whole: the rule in enforce acts at once."""
    dry = a_rule(mode=Mode.DRY_RUN)
    rig = a_rig(a_busy_snapshot(), replace(CALM, rules=(dry,)))
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {}
    rig.cycle.policy = replace(CALM, rules=(a_rule(),))
    rig.cycle.state.incidents.clear()
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_an_operator_s_dry_run_ends_with_zero_and_sends_nothing() -> None:
    """Permitted: exit 0; the outcome says dry run and the later stage is planned."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    ticket = rig.order(force=True, dry_run=True)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.OK
    (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
    assert outcome.outcome is not None
    assert outcome.outcome.kind is OutcomeKind.DRY_RUN
    assert [entry.action for entry in rig.recorder.of_kind(RecordKind.PLANNED)] == ["sigkill"]
    assert rig.executor.sent == {}


def test_a_permission_denied_hands_over_with_four() -> None:
    """EPERM is a clear end: exit 4, no retry."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.executor.answer = lambda _permit: OutcomeKind.NOT_PERMITTED
    ticket = rig.order()
    asyncio.run(rig.passes(3))
    assert ticket.exit_code is ExitCode.NOT_ALLOWED
    assert len(rig.executor.permits) == 1


def test_a_withheld_signal_is_tried_again_and_moves_no_stage() -> None:
    """The last look said no once: the stage stays, the next pass tries, and then it is sent once."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    answers = [OutcomeKind.WITHHELD, OutcomeKind.SENT]
    rig.executor.answer = lambda _permit: answers.pop(0)
    rig.order()
    asyncio.run(rig.passes(4))
    assert len(rig.executor.permits) == 2
    (incident,) = rig.cycle.state.incidents.values()
    assert [attempt.outcome.kind for attempt in incident.attempts if attempt.outcome] == [
        OutcomeKind.WITHHELD,
        OutcomeKind.SENT,
    ]


def test_an_accepted_drain_ends_with_the_scheduler() -> None:
    """The request is noted: HANDED_OVER to the scheduler, and nothing more is done."""
    rule = a_rule(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN))
    stuck = a_process(tasks=(replace(a_process().tasks[0], state="D", flags=0x4),), kill_pending=True)
    ladder = replace(CALM.ladder, sigterm_seconds=1.0, sigkill_seconds=1.0, exit_grace_seconds=1.0)
    drain = replace(CALM.drain, fault_domains=(FaultDomain.UNKNOWN,))
    rig = a_rig(a_busy_snapshot(), replace(CALM, rules=(rule,), ladder=ladder, drain=drain))

    asyncio.run(rig.passes(2))
    rig.show(a_busy_snapshot(stuck))
    asyncio.run(rig.passes(6))
    assert rig.executor.sent[a_ref()] == ["sigterm", "sigkill"]
    assert len(rig.target.asked) == 1
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.end == "handed_over to scheduler"


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.WITHHELD])
def test_a_failing_act_is_not_tried_for_ever(kind: OutcomeKind) -> None:
    """Five times, then a person; the record has each attempt's outcome."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.executor.answer = lambda _permit: kind
    ticket = rig.order(timeout_seconds=500.0)
    asyncio.run(rig.passes(10))
    assert len(rig.executor.permits) == 5
    assert len(rig.recorder.of_kind(RecordKind.OUTCOME)) == 5
    assert ticket.exit_code is ExitCode.TIME_UP


def test_several_targets_are_performed_in_one_pass() -> None:
    """Four orders are one batch of intents and one round of acts, not one after another."""
    readings = [a_process(pid, start=pid) for pid in (100, 200, 300, 400)]
    rig = a_rig(a_busy_snapshot(*readings), NO_RULE)
    for reading in readings:
        rig.order(reading.ref.pid)
    asyncio.run(rig.passes())
    assert len(rig.executor.sent) == 4
    assert rig.events.index("act sigterm") > max(n for n, e in enumerate(rig.events) if e == "intent")


def test_a_drain_request_that_fails_goes_to_a_person() -> None:
    """It could not be written: HANDED_OVER with why, and not asked for again."""
    incident = replace(
        an_incident(plan=a_plan(stages=(ListedStage.DRAIN,)), stage=Stage.SIGKILL),
        release=Release(1, 0, MONO),
    )
    attempt = Attempt(AttemptId("inc-1.1"), Stage.DRAIN, (a_ref(),), WALL)
    incident = replace(incident, attempts=(attempt,))
    draft = Draft({incident.id: incident}, Ledger())
    work = [Work(incident.id, attempt, Permit(a_step(incident, Stage.DRAIN), ()))]
    take_outcomes(draft, work, [Outcome(OutcomeKind.FAILED, "disk full")], a_context())
    after = draft.incidents[incident.id]
    assert (after.stage, after.handed_to) == (Stage.HANDED_OVER, Recipient.PERSON)
    assert after.end_text == "no drain: disk full"


def test_a_dry_run_after_real_signals_ends_handed_over() -> None:
    """The ladder stood at SIGKILL: a dry run can't stand it down, and it did nothing more."""
    attempt = Attempt(AttemptId("inc-1.2"), Stage.SIGKILL, (a_ref(),), WALL)
    incident = an_incident(stage=Stage.SIGKILL, attempts=(attempt,), plan=a_plan(dry_run=True))
    draft = Draft({incident.id: incident}, Ledger())
    work = [Work(incident.id, attempt, Permit(a_step(incident, Stage.SIGKILL), (), dry_run=True))]
    take_outcomes(draft, work, [Outcome(OutcomeKind.DRY_RUN)], a_context())
    assert draft.incidents[incident.id].stage is Stage.HANDED_OVER
    assert draft.entries[0].kind is RecordKind.OUTCOME
