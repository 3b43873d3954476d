"""One pass over fakes: what is durable before what, and what a fault, a full disk and a dry run stop."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.looking import take_look
from reclaimerd.errors import CorruptStoreError, ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, OutcomeKind, Recipient, Stage
from reclaimerd.model.ledger import Pause
from reclaimerd.model.policy import BreakerSettings, BudgetSettings, GateSettings, ListedStage
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.record.faults import NoSpaceError
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    WALL,
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
)
from tests.daemon.reset_rigs import a_faulty_rig
from tests.fakes import Rig, a_disk_error, a_rig
from tests.judge.reset_builders import ready

LEAVING = 0x4
EASY = a_policy(
    gates=GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0),
    budgets=BudgetSettings(workloads_per_window=50, workloads_per_day=50),
    breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0),
)


def gone(snapshot: Snapshot, *refs: ProcessRef) -> Snapshot:
    """Return the look in which these processes are gone and their memory is back."""
    pids = {ref.pid for ref in refs}
    return replace(
        snapshot,
        gpus=(a_gpu(GPU_A), a_gpu(GPU_B)),
        processes={pid: one for pid, one in snapshot.processes.items() if pid not in pids},
        holders=tuple(one for one in snapshot.holders if one.ref not in refs),
        exited=frozenset(refs),
    )


def only(rig: Rig) -> Incident:
    """Return the one open incident."""
    (incident,) = rig.cycle.state.incidents.values()
    return incident


def last_saved(rig: Rig) -> Incident:
    """Return the incident as the store has it."""
    return next(batch.incidents[-1] for batch in reversed(rig.recorder.batches) if batch.incidents)


def test_the_intent_is_durable_before_the_signal_and_the_outcome_after() -> None:
    """Opened and intent come before the act, its outcome after, and each is recorded once."""
    rig = a_rig(a_busy_snapshot(), EASY)
    asyncio.run(rig.passes())
    assert rig.events == ["incident_opened", "intent", "act sigterm", "outcome"]
    (intent,), (outcome,) = rig.recorder.of_kind(RecordKind.INTENT), rig.recorder.of_kind(RecordKind.OUTCOME)
    assert intent.attempt == outcome.attempt
    assert rig.recorder.batches[0].incidents[0].attempts[0].outcome is None
    assert only(rig).stage is Stage.SIGTERM


def test_a_whole_ladder_ends_reclaimed_and_forgets_the_incident() -> None:
    """SIGTERM, its patience, SIGKILL, death, proof: RECLAIMED, with the hands told to forget it."""
    snapshot = a_busy_snapshot()
    rig = a_rig(snapshot, replace(EASY, ladder=replace(EASY.ladder, sigterm_seconds=3.0)))
    asyncio.run(rig.passes(5))
    assert rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}
    name = only(rig).id
    rig.show(gone(snapshot, a_ref()))
    asyncio.run(rig.passes())
    assert last_saved(rig).stage is Stage.RECLAIMED
    assert not rig.cycle.state.incidents
    assert rig.forgotten == [name]


@pytest.mark.parametrize("error", [a_disk_error(), NoSpaceError("full")])
def test_without_a_durable_intent_nothing_is_done_by_rule(error: Exception) -> None:
    """A commit that fails leaves no act, no incident and no ledger change behind."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.recorder.errors = [error]  # type: ignore[list-item]
    asyncio.run(rig.passes())
    assert rig.executor.permits == []
    assert rig.recorder.batches == []
    assert not rig.cycle.state.incidents
    assert not rig.cycle.state.ledger.spends
    assert rig.cycle.state.record_fault == str(error)


def test_records_that_are_durable_again_say_so_and_acts_go_on() -> None:
    """The pass after a fault first makes a record of it durable; the pass after that acts."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.recorder.errors = [a_disk_error()]
    asyncio.run(rig.passes(2))
    (note,) = rig.recorder.of_kind(RecordKind.NOTE)
    assert "records are durable again" in note.reason
    assert rig.cycle.state.record_fault == ""
    assert rig.executor.permits == []
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_a_fault_is_not_taken_as_gone_while_there_is_nothing_to_write() -> None:
    """A quiet pass tries the disk by a record of its own: an empty batch proves nothing."""
    rig = a_rig(a_snapshot(), EASY)
    rig.cycle.state.record_fault = "no space left"
    rig.recorder.errors = [a_disk_error()]
    asyncio.run(rig.passes())
    assert rig.cycle.state.record_fault
    asyncio.run(rig.passes())
    assert rig.cycle.state.record_fault == ""


def test_an_outcome_that_can_not_be_written_is_owed_and_the_signal_not_sent_again() -> None:
    """The outcome's commit fails: no second SIGTERM ever, and the outcome is written when it can be."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.recorder.errors = [None, a_disk_error(), a_disk_error()]
    asyncio.run(rig.passes(2))
    assert rig.recorder.of_kind(RecordKind.OUTCOME) == []
    assert only(rig).stage is Stage.SIGTERM
    asyncio.run(rig.passes(3))
    (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
    assert outcome.outcome is not None
    assert outcome.outcome.kind is OutcomeKind.SENT
    assert last_saved(rig).attempts[0].outcome == outcome.outcome
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_an_end_that_can_not_be_written_is_kept_until_it_is_and_feeds_the_cool_down_once() -> None:
    """An incident that ends with its act stays until the end is durable; nothing new opens for it."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.executor.answer = lambda _permit: OutcomeKind.NOT_PERMITTED
    rig.recorder.errors = [None, a_disk_error(), a_disk_error()]
    asyncio.run(rig.passes(2))
    assert only(rig).stage is Stage.HANDED_OVER
    asyncio.run(rig.passes(3))
    assert last_saved(rig).stage is Stage.HANDED_OVER
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)) == 1
    assert len(rig.cycle.state.ledger.ended) == 1
    ledgers = [batch.ledger for batch in rig.recorder.batches if batch.ledger is not None]
    assert len(ledgers[-1].ended) == 1
    assert not rig.cycle.state.incidents


def test_a_full_disk_binds_rules_and_not_operators() -> None:
    """On a full disk the operator's SIGTERM is sent, on record; the rule's target is left alone."""
    hog, asked = a_process(100), a_process(200, start=2)
    rig = a_rig(a_busy_snapshot(hog, asked), EASY)
    rig.recorder.full = True
    ticket = rig.order(200)
    asyncio.run(rig.passes())
    assert rig.executor.sent == {asked.ref: ["sigterm"]}
    kinds = [entry.kind for entry in rig.recorder.entries]
    assert kinds == [RecordKind.INCIDENT_OPENED, RecordKind.INTENT, RecordKind.OUTCOME]
    assert all(e.actor is not None and e.actor.kind is ActorKind.OPERATOR for e in rig.recorder.entries)
    assert rig.cycle.state.record_fault
    assert ticket.exit_code is None
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {asked.ref: ["sigterm"]}
    rig.recorder.full = False
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {asked.ref: ["sigterm"], hog.ref: ["sigterm"]}


def test_a_fault_that_binds_operators_refuses_their_order_and_does_nothing() -> None:
    """When not even the operators' batch becomes durable, the order ends with exit 3 and the reason."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.recorder.errors = [a_disk_error()]
    ticket = rig.order()
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert "Input/output error" in ticket.text
    assert rig.executor.permits == []
    assert rig.recorder.batches == []


def test_a_reserve_that_is_used_up_refuses_the_order() -> None:
    """A full disk without a reserve: the second commit fails too, and nothing is sent."""
    rig = a_rig(a_busy_snapshot(), a_policy(a_rule(above=40 * GIB)))
    rig.recorder.errors = [NoSpaceError("full"), NoSpaceError("full, and no reserve")]
    ticket = rig.order()
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert "no reserve" in ticket.text
    assert rig.executor.permits == []


def test_a_refused_record_by_rule_is_not_lost_with_a_failed_commit() -> None:
    """A refusal whose commit failed is recorded by the next one that succeeds."""
    rig = a_rig(a_busy_snapshot(), EASY, hold_file=lambda _policy: "/run/HOLD")
    rig.recorder.errors = [a_disk_error()]
    asyncio.run(rig.passes())
    assert rig.recorder.of_kind(RecordKind.REFUSED) == []
    asyncio.run(rig.passes(3))
    refusals = [entry for entry in rig.recorder.of_kind(RecordKind.REFUSED) if "HOLD" in entry.reason]
    assert refusals
    assert rig.executor.permits == []


def test_a_damaged_store_ends_the_pass_and_nothing_is_done() -> None:
    """CorruptStoreError is raised through, before any act."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.recorder.errors = [CorruptStoreError("damaged")]
    with pytest.raises(CorruptStoreError):
        asyncio.run(rig.passes())
    assert rig.executor.permits == []


def test_a_store_found_damaged_by_a_person_s_change_ends_the_next_pass() -> None:
    """A pause that meets the damage tells the caller, and the daemon does not go on as if nothing was."""
    rig = a_rig(a_snapshot(), EASY)
    rig.recorder.errors = [CorruptStoreError("damaged")]

    async def story() -> None:
        with pytest.raises(CorruptStoreError):
            await rig.cycle.write(lambda ledger: replace(ledger, pause=Pause("root", "", WALL)), ())
        with pytest.raises(CorruptStoreError):
            await rig.cycle.run_pass()

    asyncio.run(story())
    assert rig.cycle.state.ledger.pause is None
    assert rig.sampler.looks == []


def test_a_change_by_a_person_is_the_truth_only_when_durable() -> None:
    """A pause whose record fails is no pause."""
    rig = a_rig(a_snapshot(), EASY)
    rig.recorder.errors = [a_disk_error()]

    async def story() -> None:
        with pytest.raises(type(a_disk_error())):
            await rig.cycle.write(lambda ledger: replace(ledger, pause=Pause("root", "", WALL)), ())

    asyncio.run(story())
    assert rig.cycle.state.ledger.pause is None


def test_a_pass_that_breaks_off_after_the_intent_becomes_unknown_and_sends_nothing_twice() -> None:
    """A bug in the hands: the next pass records UNKNOWN, waits for the truth, and never resends."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.executor.error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(rig.passes())
    rig.executor.error = None
    asyncio.run(rig.passes(3))
    (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
    assert outcome.outcome is not None
    assert outcome.outcome.kind is OutcomeKind.UNKNOWN
    assert [permit.step.stage for permit in rig.executor.permits] == [Stage.SIGTERM]
    assert only(rig).stage is Stage.SIGTERM


def test_the_breaker_trips_before_anything_is_done_and_only_a_person_closes_it() -> None:
    """Two workloads newly due in one pass: nothing is sent, one record; closed, both are taken."""
    one, two = a_process(100), a_process(200, start=2)
    rig = a_rig(a_busy_snapshot(one, two), replace(EASY, breaker=BreakerSettings(1, 100.0)))
    asyncio.run(rig.passes(4))
    assert rig.executor.permits == []
    assert len(rig.recorder.of_kind(RecordKind.BREAKER_TRIPPED)) == 1
    assert rig.cycle.state.ledger.breaker is not None
    asyncio.run(rig.cycle.write(lambda ledger: replace(ledger, breaker=None), ()))
    asyncio.run(rig.passes(2))
    assert set(rig.executor.sent) == {one.ref, two.ref}


def test_an_operator_is_not_bound_by_the_breaker() -> None:
    """With the breaker open, an operator's kill goes through."""
    one, two = a_process(100), a_process(200, start=2)
    rig = a_rig(a_busy_snapshot(one, two), replace(EASY, breaker=BreakerSettings(1, 100.0)))
    asyncio.run(rig.passes())
    rig.order(100)
    asyncio.run(rig.passes())
    assert rig.executor.sent == {one.ref: ["sigterm"]}


def test_a_refusal_is_recorded_when_it_changes_and_not_each_pass() -> None:
    """Ten passes under HOLD are one record; lifted, the step is taken."""
    held = ["/run/HOLD"]
    rig = a_rig(a_busy_snapshot(), EASY, hold_file=lambda _policy: held[0])
    asyncio.run(rig.passes(10))
    assert len(rig.recorder.of_kind(RecordKind.REFUSED)) == 1
    assert rig.executor.permits == []
    held[0] = ""
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_a_pause_with_a_limit_ends_by_itself_on_record() -> None:
    """Before the limit nothing is sent; after it the pause is gone, RESUMED says why, and the act follows."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, pause=Pause("root", "lunch", WALL, WALL + 3.5))
    report = asyncio.run(rig.cycle.run_pass())
    assert report.wake_at is not None
    assert report.wake_at <= rig.now[0] + 3.5
    asyncio.run(rig.passes(3))
    assert rig.executor.permits == []
    rig.age(1.0)
    asyncio.run(rig.passes())
    (resumed,) = rig.recorder.of_kind(RecordKind.RESUMED)
    assert "time limit" in resumed.reason
    assert rig.cycle.state.ledger.pause is None
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_a_daemon_in_dry_run_acts_for_nobody() -> None:
    """Rule and operator take the road of a dry run: no signal, plans on record, budgets of their own."""
    one, two = a_process(100), a_process(200, start=2)
    rig = a_rig(a_busy_snapshot(one, two), EASY, dry_run=True)
    ticket = rig.order(200, force=True)
    asyncio.run(rig.passes())
    assert len(rig.executor.permits) == 2
    assert rig.executor.sent == {}
    assert ticket.exit_code is ExitCode.OK
    assert {entry.end for entry in rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)} == {"stood_down"}
    assert all(spend.dry_run for spend in rig.cycle.state.ledger.spends)
    assert all(end.dry_run for end in rig.cycle.state.ledger.ended)


def test_a_dry_run_binds_an_incident_that_was_open_before() -> None:
    """A real incident taken over from an earlier start gets no real signal from a daemon in dry run."""
    rig = a_rig(a_busy_snapshot(), replace(EASY, ladder=replace(EASY.ladder, sigterm_seconds=1.0)))
    asyncio.run(rig.passes())
    open_before = only(rig)
    dry = a_rig(rig.sampler.snapshot, rig.cycle.policy, dry_run=True)
    dry.cycle.state.incidents = {open_before.id: open_before}
    dry.age(2.0)
    asyncio.run(dry.passes(3))
    assert dry.executor.permits
    assert dry.executor.sent == {}


def test_a_dry_run_does_not_trip_the_real_breaker() -> None:
    """What a dry run makes due leaves no breaker that a person must close."""
    rig = a_rig(
        a_busy_snapshot(a_process(100), a_process(200, start=2)),
        replace(EASY, breaker=BreakerSettings(1, 100.0)),
        dry_run=True,
    )
    asyncio.run(rig.passes())
    assert rig.cycle.state.ledger.breaker is None


def test_five_withheld_signals_hand_the_incident_over() -> None:
    """The last look says no five times: a person gets it, and no sixth attempt is made."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.executor.answer = lambda _permit: OutcomeKind.WITHHELD
    asyncio.run(rig.passes(9))
    assert len(rig.executor.permits) == 5
    end = last_saved(rig)
    assert (end.stage, end.handed_to) == (Stage.HANDED_OVER, Recipient.PERSON)
    assert "withheld" in end.end_text


def test_one_handed_over_is_not_opened_again_by_rule() -> None:
    """The watch list keeps a handed-over target from a second incident."""
    rig = a_rig(a_busy_snapshot(), EASY)
    rig.executor.answer = lambda _permit: OutcomeKind.NOT_PERMITTED
    asyncio.run(rig.passes(5))
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    assert len(rig.executor.permits) == 1


def handed_over_rig() -> tuple[Rig, Snapshot]:
    """Return a cycle whose one incident was handed over after SIGKILL, and the look that it had."""
    stuck = a_process(tasks=(a_task(state="D", flags=LEAVING),), kill_pending=True)
    snapshot = a_busy_snapshot(stuck)
    ladder = replace(EASY.ladder, sigterm_seconds=1.0, sigkill_seconds=1.0, exit_grace_seconds=1.0)
    rule = a_rule(stages=(ListedStage.SIGTERM, ListedStage.SIGKILL))
    rig = a_rig(a_busy_snapshot(), replace(EASY, rules=(rule,), ladder=ladder))
    asyncio.run(rig.passes(2))
    rig.show(snapshot)
    asyncio.run(rig.passes(6))
    assert last_saved(rig).stage is Stage.HANDED_OVER
    return rig, snapshot


def test_a_late_release_is_recorded_once_and_never_changes_the_end() -> None:
    """A handed-over target dies: one record, its end stays, and it is watched no more."""
    rig, snapshot = handed_over_rig()
    rig.show(gone(snapshot, a_ref()))
    asyncio.run(rig.passes(4))
    assert len(rig.recorder.of_kind(RecordKind.LATE_RELEASE)) == 1
    late = last_saved(rig)
    assert late.stage is Stage.HANDED_OVER
    assert late.released_at is not None
    assert not rig.cycle.state.handed
    assert a_ref() not in rig.sampler.looks[-1].watch


def test_a_late_release_is_recorded_once_though_the_outcome_commit_of_that_pass_fails() -> None:
    """The first commit of a pass makes it durable; a later fault in the same pass repeats nothing."""
    rig, snapshot = handed_over_rig()
    other = a_process(300, start=3)
    busy = a_busy_snapshot(other)
    rig.show(replace(gone(snapshot, a_ref()), gpus=busy.gpus, processes=busy.processes, holders=busy.holders))
    rig.recorder.errors = [None, a_disk_error()]
    asyncio.run(rig.passes(4))
    assert rig.executor.sent[other.ref][0] == "sigterm"
    assert len(rig.recorder.of_kind(RecordKind.LATE_RELEASE)) == 1


def test_an_alarm_is_recorded_once_while_it_lasts() -> None:
    """A look-alike of a protected program is an alarm, once."""
    like = a_process(comm="nv-hostengine")
    rig = a_rig(a_busy_snapshot(like), a_policy(a_rule(above=40 * GIB)))
    asyncio.run(rig.passes(3))
    assert len(rig.recorder.of_kind(RecordKind.ALARM)) == 1


def test_a_request_for_a_full_scan_made_during_a_pass_is_not_lost() -> None:
    """Who asks while a pass is under way gets the scan with the next look."""
    rig = a_rig(a_snapshot(), EASY)

    async def story() -> None:
        await rig.cycle.run_pass()
        looked = take_look(rig.cycle.state, rig.cycle.desk, rig.cycle.policy)
        assert not looked.full_scan
        rig.cycle.state.wants_full_scan = True
        await rig.cycle._judge_and_act(rig.sampler.snapshot, frozenset())
        await rig.cycle.run_pass()

    asyncio.run(story())
    assert rig.sampler.looks[-1].full_scan


def test_the_ledger_forgets_what_binds_nothing_any_more() -> None:
    """Spends and ends older than a week go with the next batch."""
    rig = a_rig(a_busy_snapshot(), EASY)
    asyncio.run(rig.passes())
    assert rig.cycle.state.ledger.spends
    rig.show(a_snapshot())
    rig.age(8 * 86400.0)
    asyncio.run(rig.passes())
    assert not rig.cycle.state.ledger.spends


def test_nobody_is_touched_that_holds_nothing_or_too_little() -> None:
    """A holder under the cap opens no incident, writes nothing and is not signalled."""
    rig = a_rig(
        a_snapshot(
            holders=[a_holder(used=GIB)], gpus=[a_gpu(processes=[a_row(used=GIB)])], processes=[a_process()]
        ),
        EASY,
    )
    asyncio.run(rig.passes(3))
    assert rig.events == []


def test_what_can_not_be_recorded_asks_for_no_pass_at_once() -> None:
    """A reset is passed over, and a full disk drops that: the next pass comes in its time, not at once."""
    holder = a_process()
    seen = ready(a_snapshot(gpus=(a_gpu(processes=(a_row(),)),), processes=(holder,), holders=(a_holder(),)))
    rig = a_faulty_rig(seen)

    async def story() -> list[bool]:
        rig.recorder.full = True
        kept = [(await rig.cycle.run_pass()).at_once for _ in range(3)]
        rig.recorder.full = False
        return [*kept, (await rig.cycle.run_pass()).at_once]

    assert asyncio.run(story()) == [False, False, False, True]
