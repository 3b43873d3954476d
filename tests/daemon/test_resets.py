"""From a permit to a reset under way, and from its result to an outcome: once each, none without record."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.counting import after_boot
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.following import resumed
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.resets import in_flight, open_gpus, reset_since, take_results
from reclaimerd.daemon.standing import hand_back
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, OutcomeKind, ProofKind, Recipient, Stage, Subject
from reclaimerd.model.ledger import Ledger, SpendKind
from reclaimerd.model.policy import BreakerSettings
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_run import (
    ChangeKind,
    GpuBreaker,
    ResetPast,
    ResetPhase,
    ResetResult,
    Untouchable,
)
from reclaimerd.record.faults import NoSpaceError
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    MONO,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_policy,
    a_snapshot,
    an_incident,
)
from tests.daemon.reset_rigs import (
    QUIET,
    a_faulty_rig,
    a_reset_rig,
    an_xid,
    batches_with_runs,
    fault_policy,
    let_end,
    only,
    only_run,
    order_reset,
    two_gpus,
)
from tests.fakes import Rig, a_disk_error
from tests.judge.reset_builders import a_run, a_unit, kernel_facts, ready, with_units

NOW = Moment(MONO, WALL)


def under_way(rig: Rig) -> Rig:
    """Let an operator's reset of GPU A begin."""
    order_reset(rig)
    asyncio.run(rig.passes())
    return rig


def outcomes(rig: Rig) -> list[OutcomeKind]:
    """Return the outcomes on record, in order."""
    return [
        entry.outcome.kind for entry in rig.recorder.of_kind(RecordKind.OUTCOME) if entry.outcome is not None
    ]


def test_intent_spend_and_run_are_one_batch_and_only_then_it_begins() -> None:
    """The hands are not asked: the procedure takes it up from the ledger."""
    rig = under_way(a_reset_rig())
    (number,) = batches_with_runs(rig)
    batch = rig.recorder.batches[number]
    assert [entry.kind for entry in batch.entries] == [RecordKind.INCIDENT_OPENED, RecordKind.INTENT]
    assert batch.ledger is not None
    (run,) = batch.ledger.resets
    (spend,) = batch.ledger.spends
    assert (spend.kind, spend.key, spend.at) == (SpendKind.RESET, GPU_A, run.began_at)
    (incident,) = batch.incidents
    assert (run.incident, run.id) == (incident.id, incident.attempts[0].id)
    assert (run.gpus, run.phase, run.result) == ((GPU_A,), ResetPhase.PREPARE, None)
    assert rig.events == ["incident_opened", "intent", f"begin {run.id}"]
    assert rig.executor.permits == []


def test_a_run_holds_all_that_it_will_change_and_compare() -> None:
    """Units to stop, persistence mode, and what each GPU was before."""
    snapshot = with_units(a_unit(), snapshot=a_snapshot(gpus=(a_gpu(GPU_A), a_gpu(GPU_B))))
    run = only_run(under_way(a_reset_rig(snapshot)))
    kinds = [(change.kind, change.name) for change in run.changes]
    assert kinds == [(ChangeKind.UNIT, "nvidia-dcgm.service"), (ChangeKind.PERSISTENCE, GPU_A)]
    assert [before.uuid for before in run.before] == [GPU_A]


def test_without_a_durable_batch_nothing_begins() -> None:
    """No run, no spend, no call; the order is told why."""
    rig = a_reset_rig()
    rig.recorder.errors = [a_disk_error(), a_disk_error()]
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert not [event for event in rig.events if event.startswith("begin")]
    assert (rig.cycle.state.ledger.resets, rig.cycle.state.ledger.spends) == ((), ())
    assert ticket.exit_code is ExitCode.REFUSED


def test_on_a_full_disk_an_operators_reset_is_durable_with_its_run() -> None:
    """The reserve takes the intent, the spend and the run together: no intent stands without its run."""
    rig = a_reset_rig()
    rig.recorder.errors = [NoSpaceError("audit: no space left on the disk")]
    under_way(rig)
    (number,) = batches_with_runs(rig)
    ledger = rig.recorder.batches[number].ledger
    assert ledger is not None
    assert [spend.key for spend in ledger.spends] == [GPU_A]
    assert rig.events[-1] == f"begin {only_run(rig).id}"


def test_a_reset_under_way_keeps_its_incident_from_everything_else() -> None:
    """No further step, no UNKNOWN, no proof, however many passes go by; and it begins once."""
    rig = under_way(a_reset_rig())
    run = only_run(rig)
    asyncio.run(rig.passes(20, step=60.0))
    incident = only(rig)
    assert (incident.stage, incident.attempts[0].outcome, len(incident.attempts)) == (Stage.PENDING, None, 1)
    assert rig.events.count(f"begin {run.id}") == 1
    assert in_flight(incident.id, rig.cycle.state.ledger)
    draft = Draft(dict(rig.cycle.state.incidents), rig.cycle.state.ledger)
    hand_back(draft, "the command went away", NOW)
    assert draft.is_empty


def test_a_verified_reset_ends_the_incident_as_reclaimed() -> None:
    """With its own kind of proof, exit 0; and the run is gone from the ledger."""
    rig = a_reset_rig()
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.VERIFIED, "back, and well")
    asyncio.run(rig.passes())
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == Stage.RECLAIMED.value
    assert ended.proof is not None
    assert (ended.proof.kind, ended.proof.text) == (ProofKind.RESET_VERIFIED, "back, and well")
    assert outcomes(rig) == [OutcomeKind.RESET_DONE]
    assert rig.cycle.state.ledger.resets == ()
    assert ticket.exit_code is ExitCode.OK


def test_a_result_is_told_only_when_everything_is_put_back() -> None:
    """While clients are being started again the incident is still under way."""
    rig = under_way(a_reset_rig())
    state = rig.cycle.state
    run = replace(only_run(rig), phase=ResetPhase.RESTORE, result=ResetResult.VERIFIED)
    state.ledger = replace(state.ledger, resets=(run,))
    asyncio.run(rig.passes(3))
    assert outcomes(rig) == []
    assert only(rig).stage is Stage.PENDING


def test_a_refused_reset_gives_its_budget_back_and_cools_nothing_down() -> None:
    """A race is an ordinary outcome: handed over, exit 3, and the next order may try at once."""
    rig = a_reset_rig()
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.REFUSED, "pid 7 opened it")
    asyncio.run(rig.passes())
    assert outcomes(rig) == [OutcomeKind.RESET_REFUSED]
    assert rig.cycle.state.ledger.spends == ()
    assert ticket.exit_code is ExitCode.REFUSED
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == f"{Stage.HANDED_OVER} to {Recipient.OPERATOR}"
    assert "pid 7 opened it" in ended.reason
    second = order_reset(rig)
    asyncio.run(rig.passes())
    assert second.exit_code is None
    assert only_run(rig).incident == second.incident


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (ResetResult.FAILED, OutcomeKind.FAILED),
        (ResetResult.NOT_VERIFIED, OutcomeKind.RESET_NOT_VERIFIED),
        (ResetResult.ABANDONED, OutcomeKind.RESET_ABANDONED),
    ],
)
def test_a_reset_that_was_tried_in_vain_asks_for_one_drain(result: ResetResult, kind: OutcomeKind) -> None:
    """An operator's too: a GPU in an unknown state is nobody's to use; the outcome is told once."""
    rig = under_way(a_reset_rig())
    let_end(rig, result)
    asyncio.run(rig.passes(5))
    assert outcomes(rig) == [kind, OutcomeKind.ACCEPTED]
    assert rig.executor.permits == []
    assert "a reset was executed and failed" in rig.target.asked[0].reason
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == f"{Stage.HANDED_OVER} to {Recipient.SCHEDULER}"
    assert rig.cycle.state.ledger.spends[0].kind is SpendKind.RESET


def test_a_reset_left_alone_stays_in_the_ledger_until_it_is_done() -> None:
    """It is told at once, kept while its tool may run, and told no second time when it ends."""
    rig = under_way(a_reset_rig())
    let_end(rig, ResetResult.ABANDONED)
    asyncio.run(rig.passes(3))
    assert only_run(rig).told
    state = rig.cycle.state
    state.ledger = replace(state.ledger, resets=(replace(only_run(rig), phase=ResetPhase.DONE),))
    asyncio.run(rig.passes())
    assert rig.cycle.state.ledger.resets == ()
    assert outcomes(rig).count(OutcomeKind.RESET_ABANDONED) == 1


def test_an_unverified_reset_ends_with_its_own_exit_code() -> None:
    """8 when nobody takes the drain: it is no time that is up."""
    rig = a_reset_rig()
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    rig.executor.answer = lambda _permit: OutcomeKind.FAILED
    let_end(rig, ResetResult.NOT_VERIFIED)
    asyncio.run(rig.passes(5))
    assert ticket.exit_code is ExitCode.UNVERIFIED


def test_a_failed_commit_tells_the_result_in_a_later_pass() -> None:
    """Once: neither lost nor twice."""
    rig = under_way(a_reset_rig())
    let_end(rig, ResetResult.VERIFIED)
    rig.recorder.errors = [a_disk_error(), a_disk_error()]
    asyncio.run(rig.passes())
    assert outcomes(rig) == []
    asyncio.run(rig.passes(2))
    assert outcomes(rig) == [OutcomeKind.RESET_DONE]


def test_a_run_whose_incident_is_gone_is_let_go_of() -> None:
    """After a boot the incident has its end: the run's result has nobody to be told to."""
    rig = a_reset_rig()
    done = a_run(phase=ResetPhase.DONE, result=ResetResult.FAILED)
    rig.cycle.state.ledger = Ledger(resets=(done,))
    asyncio.run(rig.passes())
    assert rig.cycle.state.ledger.resets == ()
    assert outcomes(rig) == []


@pytest.mark.parametrize("phase", [ResetPhase.DONE, ResetPhase.LEFT_ALONE])
def test_one_command_leaves_the_result_of_another_life_to_the_daemon(phase: ResetPhase) -> None:
    """It knows only its own incidents: told there, the outcome, the budget and the drain would be lost."""
    rig = a_reset_rig(foreground=True)
    left = a_run(phase=phase, result=ResetResult.REFUSED)
    rig.cycle.state.ledger = Ledger(resets=(left,))
    asyncio.run(rig.passes(3))
    assert rig.cycle.state.ledger.resets == (left,)


def test_one_command_tells_the_result_of_its_own_reset() -> None:
    """Whoever ordered it there waits for it."""
    rig = under_way(a_reset_rig(foreground=True))
    let_end(rig, ResetResult.VERIFIED)
    asyncio.run(rig.passes())
    assert outcomes(rig) == [OutcomeKind.RESET_DONE]
    assert rig.cycle.state.ledger.resets == ()


def test_a_start_in_mid_reset_keeps_the_attempt_open() -> None:
    """No UNKNOWN: the run's own record goes on; without a run the attempt is unknown."""
    rig = under_way(a_reset_rig())
    incident, ledger = only(rig), rig.cycle.state.ledger
    kept, records = resumed(incident, BOOT, ledger, NOW)
    assert (kept, records) == (incident, [])
    lost, records = resumed(incident, BOOT, Ledger(), NOW)
    assert lost.attempts[0].outcome is not None
    assert lost.attempts[0].outcome.kind is OutcomeKind.UNKNOWN
    assert len(records) == 1


def test_an_incident_of_another_boot_only_ends() -> None:
    """And its GPUs may be touched again, on record; a person's breaker stays."""
    rig = under_way(a_reset_rig())
    ended, _ = resumed(only(rig), "another boot", rig.cycle.state.ledger, NOW)
    assert ended.stage is Stage.UNVERIFIED
    left = Ledger(
        untouchable=(Untouchable((GPU_A,), BOOT, WALL, "it hangs"),),
        gpu_breakers=(GpuBreaker(GPU_A, "twice", WALL),),
    )
    assert after_boot(left, BOOT) == (left, [])
    ledger, records = after_boot(left, "another boot")
    assert (ledger.untouchable, ledger.gpu_breakers) == ((), left.gpu_breakers)
    assert [record.reason for record in records] == [f"the host was booted: {GPU_A} may be touched again"]


def test_two_orders_on_one_gpu_are_one_reset() -> None:
    """The second is refused and adds nothing."""
    rig = a_reset_rig()
    first, second = order_reset(rig), order_reset(rig)
    asyncio.run(rig.passes())
    assert first.exit_code is None
    assert second.exit_code is ExitCode.REFUSED
    assert f"incident {first.incident} is about this GPU already" in second.text
    assert len(rig.cycle.state.ledger.resets) == 1


def test_two_orders_on_two_gpus_are_one_reset_at_a_time() -> None:
    """One begins; the other is told that a reset is under way."""
    rig = a_reset_rig()
    first, second = order_reset(rig), order_reset(rig, GPU_B)
    asyncio.run(rig.passes())
    assert first.exit_code is None
    assert second.exit_code is ExitCode.REFUSED
    assert "is under way" in second.text
    assert only_run(rig).gpus == (GPU_A,)


def test_an_order_for_a_gpu_that_is_not_there_has_no_target() -> None:
    """Exit 6, on record, and no incident."""
    rig = a_reset_rig(ready(a_snapshot()))
    ticket = order_reset(rig, GPU_B)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert [entry.reason for entry in rig.recorder.of_kind(RecordKind.REFUSED)] == [
        f"there is no GPU {GPU_B}"
    ]
    assert rig.cycle.state.incidents == {}


def test_what_the_gate_refuses_is_on_record_with_every_reason() -> None:
    """Exit 3, each reason typed, nothing spent, nothing begun, no drain."""
    busy = a_busy_snapshot()
    rig = a_reset_rig(ready(busy, kernel=Known(kernel_facts(busy.gpus, other_resets=(77,)))))
    ticket = order_reset(rig)
    asyncio.run(rig.passes(3))
    assert ticket.exit_code is ExitCode.REFUSED
    (entry,) = rig.recorder.of_kind(RecordKind.REFUSED)
    assert {"holders", "reset_in_flight"} <= {reason.kind.value for reason in entry.refusals}
    assert {reason.kind for reason in ticket.reasons} == {reason.kind for reason in entry.refusals}
    assert rig.cycle.state.ledger == replace(rig.cycle.state.ledger, spends=(), resets=())
    assert rig.executor.permits == []
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == Stage.STOOD_DOWN.value


def test_a_dry_run_is_recorded_and_changes_nothing() -> None:
    """The intent, what would follow, and no run: the daemon's own --dry-run binds an operator too."""
    rig = a_reset_rig(dry_run=True)
    ticket = order_reset(rig)
    asyncio.run(rig.passes(3))
    assert rig.cycle.state.ledger.resets == ()
    assert rig.executor.sent == {}
    assert outcomes(rig) == [OutcomeKind.DRY_RUN]
    assert [entry.action for entry in rig.recorder.of_kind(RecordKind.PLANNED)] == ["drain"]
    assert ticket.exit_code is ExitCode.OK
    assert not [event for event in rig.events if event.startswith("begin")]
    assert [spend.dry_run for spend in rig.cycle.state.ledger.spends] == [True]


def test_an_order_asks_for_a_whole_look_before_it_is_judged() -> None:
    """With everything that a reset must know; a look without it decides nothing."""
    rig = a_reset_rig()
    order_reset(rig)
    asyncio.run(rig.passes())
    (look,) = rig.sampler.looks
    assert (look.reset, look.full_scan, look.deep) == (True, True, True)
    rig = a_faulty_rig(two_gpus())
    rig.show(replace(two_gpus(), reset_facts=None))
    asyncio.run(rig.passes())
    assert only(rig).attempts == ()
    rig.show(two_gpus())
    asyncio.run(rig.passes())
    assert [look.reset for look in rig.sampler.looks] == [False, True]
    assert len(only(rig).attempts) == 1


def test_a_search_that_fails_is_not_asked_for_again_at_once() -> None:
    """A rule's reset waits for a whole look, at the pace of the passes; an operator's is refused."""
    seen = two_gpus()
    rig = a_faulty_rig(replace(seen, scan=replace(seen.scan, full_now=False)))
    report = asyncio.run(rig.cycle.run_pass())
    assert not report.at_once
    assert rig.cycle.state.wants_reset_look
    assert only(rig).stage is Stage.PENDING
    rig = a_reset_rig(replace(seen, scan=replace(seen.scan, full_now=False)))
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert rig.cycle.state.ledger.resets == ()


def test_two_faulty_gpus_are_reset_one_after_the_other() -> None:
    """The second waits for the first, and is not handed over for it; after one that hangs it is."""
    policy = fault_policy(breaker=BreakerSettings(workloads_per_pass=9, gpu_percent=100.0))
    rig = a_faulty_rig(policy=policy)
    rig.cycle.state.ledger = Ledger(xids=(an_xid(), an_xid(GPU_B)))
    asyncio.run(rig.passes(3))
    assert only_run(rig).gpus == (GPU_A,)
    assert [one.stage for one in rig.cycle.state.incidents.values()] == [Stage.PENDING, Stage.PENDING]
    let_end(rig, ResetResult.VERIFIED)
    asyncio.run(rig.passes(2))
    assert only_run(rig).gpus == (GPU_B,)
    rig = a_faulty_rig(policy=policy)
    rig.cycle.state.ledger = Ledger(xids=(an_xid(), an_xid(GPU_B)))
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.ABANDONED)
    asyncio.run(rig.passes(4))
    assert rig.cycle.state.incidents == {}


def test_open_incidents_are_counted_by_gpu() -> None:
    """Ended ones are not."""
    here = an_incident()
    there = replace(an_incident(), id=IncidentId("inc-2"), stage=Stage.RECLAIMED)
    assert open_gpus([here, there], a_policy()) == {GPU_A: (here.id,)}
    assert open_gpus([], a_policy()) == {}


def test_a_process_and_its_gpu_are_not_reset_over_each_other() -> None:
    """An open incident of a process on the GPU refuses the GPU's own."""
    busy = a_busy_snapshot()
    rig = a_reset_rig(ready(busy), a_policy())
    asyncio.run(rig.passes())
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert "other_incident" in {reason.kind.value for reason in ticket.reasons}


def test_a_later_verified_reset_releases_what_was_handed_over() -> None:
    """On record as late, the end stays; a process's own and a failed reset change nothing."""
    over = replace(
        an_incident(), subject=Subject.GPU, stage=Stage.HANDED_OVER, ended_at=WALL, id=IncidentId("inc-9")
    )
    handed = {over.id: over}
    well = Ledger(past_resets=(ResetPast((GPU_A,), ResetResult.VERIFIED, WALL + 1),))
    assert [one.id for one, _ in reset_since(handed, well)] == [over.id]
    for ledger in (
        Ledger(past_resets=(ResetPast((GPU_A,), ResetResult.VERIFIED, WALL - 1),)),
        Ledger(past_resets=(ResetPast((GPU_A,), ResetResult.FAILED, WALL + 1),)),
        Ledger(past_resets=(ResetPast((GPU_A,), ResetResult.VERIFIED, WALL + 1, dry_run=True),)),
        Ledger(past_resets=(ResetPast((GPU_B,), ResetResult.VERIFIED, WALL + 1),)),
    ):
        assert reset_since(handed, ledger) == []
    assert reset_since({over.id: replace(over, subject=Subject.PROCESS)}, well) == []
    rig = a_reset_rig(policy=a_policy(QUIET))
    rig.cycle.state.handed = handed
    rig.cycle.state.ledger = well
    asyncio.run(rig.passes(2))
    assert rig.cycle.state.handed == {}
    (late,) = rig.recorder.of_kind(RecordKind.LATE_RELEASE)
    assert late.reason == f"a later reset of {GPU_A} was verified"


def test_many_resets_within_an_hour_call_a_person() -> None:
    """At the third that was made; refused ones and those of yesterday are none."""
    for past, alarms in (
        ([(ResetResult.FAILED, 60), (ResetResult.VERIFIED, 90)], 1),
        ([(ResetResult.REFUSED, 60), (ResetResult.VERIFIED, 90)], 0),
        ([(ResetResult.FAILED, 60), (ResetResult.VERIFIED, 86_000)], 0),
    ):
        rig = under_way(a_reset_rig())
        ledger = rig.cycle.state.ledger
        earlier = tuple(ResetPast((GPU_B,), result, WALL - ago) for result, ago in past)
        rig.cycle.state.ledger = replace(ledger, past_resets=earlier)
        let_end(rig, ResetResult.VERIFIED)
        asyncio.run(rig.passes(2))
        texts = [entry.reason for entry in rig.recorder.of_kind(RecordKind.ALARM)]
        assert len([text for text in texts if "3 resets were made" in text]) == alarms


def test_a_process_s_incident_is_proven_by_its_own_look() -> None:
    """A verified reset moves its stage and ends nothing: the look must show that it is gone."""
    attempt = Attempt(AttemptId("inc-1.1"), Stage.RESET, (), WALL)
    incident = replace(an_incident(), stage=Stage.SIGKILL, attempts=(attempt,))
    run = a_run(phase=ResetPhase.DONE, result=ResetResult.VERIFIED)
    draft = Draft({incident.id: incident}, Ledger(resets=(run,)))
    take_results(draft, NOW)
    assert draft.incidents[incident.id].stage is Stage.RESET
    assert [entry.kind for entry in draft.entries] == [RecordKind.OUTCOME]
