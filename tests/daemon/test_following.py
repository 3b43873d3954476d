"""What a look, a withdrawn verdict and a restart make of an open incident."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.following import dry_run, resumed, withdrawal
from reclaimerd.daemon.opening import Moment
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.rulings import HeldBack
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, ProofKind, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import GateSettings, UserProtection
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import (
    GpuMemory,
    ScanCoverage,
)
from reclaimerd.model.verdict import RuleReason, Ruling, Sustained, Verdict
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_row,
    a_rule,
    a_snapshot,
    a_task,
    an_incident,
)
from tests.fakes import a_rig

NOW = Moment(MONO, WALL)
CALM = a_policy(gates=GateSettings(settling_seconds=0.0))
NO_VERDICT = Evaluation((), ())


def test_a_rule_that_must_leave_it_alone_now_lets_it_go() -> None:
    """The rule still holds, but the workload has grown large meanwhile: nobody waits for it to shrink."""
    verdict = Verdict(a_ref(), Ruling.WATCH, (RuleReason("over-cap", Ruling.WATCH, "8 GiB"),))
    holding = Evaluation((verdict,), (Sustained("over-cap", a_ref(), MONO, MONO, 1),))
    assert withdrawal(an_incident(), a_busy_snapshot(), holding) == ""
    back = replace(holding, held_back={("over-cap", a_ref()): HeldBack("it holds 2 GPUs of this host")})
    told = "its rule holds, but must leave it alone: it holds 2 GPUs of this host"
    assert withdrawal(an_incident(), a_busy_snapshot(), back) == told
    other = replace(holding, held_back={("other", a_ref()): HeldBack("it is large")})
    assert withdrawal(an_incident(), a_busy_snapshot(), other) == ""


def an_attempt(outcome: OutcomeKind | None, stage: Stage = Stage.SIGTERM) -> Attempt:
    """Return one attempt on pid 100."""
    told = None if outcome is None else Outcome(outcome)
    return Attempt(AttemptId("inc-1.1"), stage, (a_ref(),), WALL, told)


def test_an_attempt_without_an_outcome_becomes_unknown_at_a_start() -> None:
    """We died between intent and outcome: UNKNOWN, on record, and the stage says it may be sent."""
    incident, records = resumed(an_incident(attempts=(an_attempt(None),)), BOOT, Ledger(), NOW)
    assert incident.attempts[0].outcome is not None
    assert incident.attempts[0].outcome.kind is OutcomeKind.UNKNOWN
    assert incident.stage is Stage.SIGTERM
    assert [record.kind for record in records] == [RecordKind.OUTCOME]


def test_a_dry_run_that_was_cut_off_sent_nothing() -> None:
    """In a dry run nothing can have been sent, and the record must not say that it may have been."""
    cut = an_incident(attempts=(an_attempt(None),), plan=a_plan(dry_run=True))
    incident, _ = resumed(cut, BOOT, Ledger(), NOW)
    assert incident.attempts[0].outcome is not None
    assert incident.attempts[0].outcome.kind is OutcomeKind.DRY_RUN
    assert incident.stage is Stage.PENDING


def test_an_attempt_with_its_outcome_is_left_as_it_is() -> None:
    """A restart adds nothing to what is known."""
    before = an_incident(attempts=(an_attempt(OutcomeKind.SENT),), stage=Stage.SIGTERM)
    assert resumed(before, BOOT, Ledger(), NOW) == (before, [])


def test_an_incident_of_another_boot_can_only_end() -> None:
    """Its processes died with that boot; nothing was measured, so it is UNVERIFIED."""
    incident, records = resumed(an_incident(boot_id="older", stage=Stage.SIGKILL), BOOT, Ledger(), NOW)
    assert incident.stage is Stage.UNVERIFIED
    assert incident.proof is not None
    assert incident.proof.kind is ProofKind.RELEASED_UNMEASURED
    assert [record.kind for record in records] == [RecordKind.INCIDENT_ENDED]


def test_a_boot_between_intent_and_outcome_leaves_unknown_and_the_end() -> None:
    """Nobody knows what came of it, and the record says so: no intent stays without an outcome."""
    cut = an_incident(boot_id="older", attempts=(an_attempt(None),))
    incident, records = resumed(cut, BOOT, Ledger(), NOW)
    assert incident.stage is Stage.UNVERIFIED
    assert incident.attempts[0].outcome is not None
    assert incident.attempts[0].outcome.kind is OutcomeKind.UNKNOWN
    assert [record.kind for record in records] == [RecordKind.OUTCOME, RecordKind.INCIDENT_ENDED]
    assert records[0].attempt == cut.attempts[0].id


def test_after_a_restart_no_second_sigterm_is_sent() -> None:
    """UNKNOWN is never resent: the ladder waits its patience, then goes to SIGKILL."""
    incident, _ = resumed(an_incident(attempts=(an_attempt(None),)), BOOT, Ledger(), NOW)
    rig = a_rig(a_busy_snapshot(), replace(CALM, ladder=replace(CALM.ladder, sigterm_seconds=30.0)))
    rig.cycle.state.incidents = {incident.id: incident}
    asyncio.run(rig.passes(5))
    assert rig.executor.permits == []
    rig.age(30.0)
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigkill"]}


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("below the cap", "its rule no longer holds"),
        ("no GPU", "it no longer holds a GPU"),
        ("protected", "it is protected now"),
    ],
)
def test_a_withdrawn_verdict_stands_the_incident_down(what: str, why: str) -> None:
    """Before SIGKILL a rule's incident ends when its reason is gone, and nothing more is sent."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    if what == "below the cap":
        rig.show(a_busy_snapshot(used=GIB))
    elif what == "no GPU":
        rig.show(a_snapshot(processes=[a_process()]))
    else:
        guard = UserProtection("db", unit="train-100.service")
        rig.cycle.policy = replace(CALM, protections=(guard,))
    asyncio.run(rig.passes())
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.end == "stood_down"
    assert why in end.reason
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_an_incident_whose_rule_vanished_stands_down() -> None:
    """A reload without the rule: the incident ends and says which rule is gone."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    rig.cycle.policy = replace(CALM, rules=(a_rule("another", above=70 * GIB),))
    asyncio.run(rig.passes())
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.reason == "rule over-cap is gone"
    assert not rig.cycle.state.incidents


def test_a_reload_keeps_the_plan_of_an_open_incident() -> None:
    """A new grace holds for new incidents only."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    (before,) = rig.cycle.state.incidents.values()
    rig.cycle.policy = replace(CALM, ladder=replace(CALM.ladder, sigterm_seconds=0.5))
    asyncio.run(rig.passes(3))
    (after,) = rig.cycle.state.incidents.values()
    assert after.plan == before.plan
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_what_nobody_can_tell_withdraws_nothing() -> None:
    """Unreadable memory is no reason to stand down: the rule may still hold."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    blind = a_gpu(GPU_A, memory=Unreadable("no permission"), processes=[a_row()])
    holder = a_holder(used_bytes=Unreadable("no permission"))
    rig.show(a_snapshot(gpus=[blind], processes=[a_process()], holders=[holder]))
    asyncio.run(rig.passes())
    assert rig.cycle.state.incidents


def test_a_holder_that_is_not_found_before_the_first_whole_scan_is_not_gone() -> None:
    """No verdict and no full scan yet: nobody knows, so nothing is withdrawn."""
    incident = an_incident(stage=Stage.SIGTERM)
    blind = a_snapshot(processes=[a_process()], scan=ScanCoverage(full_at=None, full_now=False))
    assert withdrawal(incident, blind, NO_VERDICT) == ""
    assert withdrawal(incident, a_snapshot(processes=[a_process()]), NO_VERDICT)


@pytest.mark.parametrize("stage", [Stage.SIGKILL, Stage.RESET, Stage.DRAIN])
def test_after_sigkill_no_verdict_is_withdrawn(stage: Stage) -> None:
    """A process that was killed holds until it is gone, whatever the rule says now."""
    assert withdrawal(an_incident(stage=stage), a_snapshot(processes=[a_process()]), NO_VERDICT) == ""


def test_an_operator_s_incident_is_never_withdrawn_by_a_rule() -> None:
    """What a person asked for does not hang on a verdict."""
    incident = an_incident(actor=OPERATOR, stage=Stage.SIGTERM)
    assert withdrawal(incident, a_snapshot(processes=[a_process()]), NO_VERDICT) == ""


def test_a_leaving_process_is_not_withdrawn() -> None:
    """An empty descriptor table in the exit path proves nothing."""
    leaving = a_process(tasks=(a_task(state="D", flags=0x4),))
    incident = an_incident(stage=Stage.SIGTERM)
    assert withdrawal(incident, a_snapshot(processes=[leaving]), NO_VERDICT) == ""


def test_a_thread_that_ends_by_itself_keeps_no_withdrawal_away() -> None:
    """It obeyed and let go, and one thread hangs in its exit: no SIGKILL for a rule that no longer holds."""
    tasks = (a_task(100), a_task(101, state="D", flags=0x4))
    alive = a_process(tasks=tasks, whole=True, thread_count=2)
    incident = an_incident(stage=Stage.SIGTERM)
    gone = withdrawal(incident, a_snapshot(processes=[alive]), NO_VERDICT)
    assert gone == "it no longer holds a GPU"
    led = replace(alive, tasks=(a_task(100, flags=0x4), a_task(101)))
    last = replace(alive, tasks=(a_task(100, state="Z"), tasks[1]))
    for ends in (replace(alive, kill_pending=True), led, last):
        assert withdrawal(incident, a_snapshot(processes=[ends]), NO_VERDICT) == ""


def test_an_heir_of_a_rule_s_dead_target_joins_and_is_signalled() -> None:
    """A forked child keeps the context: it joins the incident, on record, and gets its own SIGTERM."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    heir = a_process(101, start=5)
    rig.show(
        a_snapshot(
            gpus=[a_gpu(processes=[a_row(100)])],
            processes=[heir],
            holders=[a_holder(heir, listed=False, heir_of=a_ref())],
            exited=frozenset({a_ref()}),
        )
    )
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {a_ref(): ["sigterm"], heir.ref: ["sigterm"]}
    assert any("holds it and joins" in entry.reason for entry in rig.recorder.of_kind(RecordKind.NOTE))


def test_an_heir_of_a_process_that_an_operator_named_is_not_taken_along() -> None:
    """Scope process means that process: the heir is named by the end, and lives."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB)))
    rig.order(timeout_seconds=3.0)
    asyncio.run(rig.passes())
    heir = a_process(101, start=5)
    rig.show(
        a_snapshot(
            gpus=[a_gpu(processes=[a_row(100)])],
            processes=[heir],
            holders=[a_holder(heir, listed=False, heir_of=a_ref())],
            exited=frozenset({a_ref()}),
        )
    )
    asyncio.run(rig.passes(5))
    assert heir.ref not in rig.executor.sent
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert str(heir.ref) in end.reason


def test_a_target_that_ends_before_our_signal_stands_down_with_zero() -> None:
    """It went by itself and its memory is back: STOOD_DOWN, no signal."""
    rig = a_rig(a_busy_snapshot(), CALM, hold_file=lambda _policy: "/run/HOLD")
    asyncio.run(rig.passes())
    rig.show(a_snapshot(exited=frozenset({a_ref()})))
    asyncio.run(rig.passes())
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.end == "stood_down"
    assert end.proof is not None
    assert rig.executor.permits == []


def test_memory_that_can_not_be_read_ends_unverified_and_never_reclaimed() -> None:
    """Gone, and nobody can say whether the memory is back: UNVERIFIED after the proof's patience."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    rig.show(a_snapshot(gpus=[a_gpu(memory=Unreadable("timeout"))], exited=frozenset({a_ref()})))
    asyncio.run(rig.passes(12))
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.end == "unverified"


def test_memory_that_stays_used_ends_handed_over_and_says_how_much() -> None:
    """The process is gone and nobody holds the GPU, yet its memory is used: no RECLAIMED."""
    rig = a_rig(a_busy_snapshot(), CALM)
    asyncio.run(rig.passes())
    rig.show(
        a_snapshot(
            gpus=[a_gpu(memory=Known(GpuMemory(80 * GIB, 8 * GIB, 0)))],
            exited=frozenset({a_ref()}),
        )
    )
    asyncio.run(rig.passes(14))
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert end.end.startswith("handed_over")
    assert str(8 * GIB) in end.reason


@pytest.mark.parametrize(
    ("kinds", "dry"),
    [
        ((), False),
        ((OutcomeKind.DRY_RUN,), True),
        ((OutcomeKind.DRY_RUN, OutcomeKind.SENT), False),
        ((OutcomeKind.SENT,), False),
    ],
)
def test_an_incident_is_a_dry_run_only_when_every_attempt_was(
    *, kinds: tuple[OutcomeKind, ...], dry: bool
) -> None:
    """One real attempt makes its cool-down a real one."""
    assert dry_run(an_incident(attempts=tuple(an_attempt(kind) for kind in kinds))) is dry
