"""What is counted of durable records: each once, in labels that have a bound."""

from dataclasses import replace

import pytest

from reclaimerd.daemon import entries
from reclaimerd.daemon.metric_families import PASS_BUCKETS
from reclaimerd.daemon.tally import MOST_GPUS, OTHER, Buckets, Tally
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, GpuUuid
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage
from reclaimerd.model.ports import Batch
from reclaimerd.model.step import Reason, ReasonKind, Refusal
from tests.builders import GPU_A, OPERATOR, WALL, a_plan, a_step, a_target, an_incident


def counted(*records: AuditEntry, incidents: tuple[Incident, ...] = ()) -> Tally:
    """Return a tally that took one batch."""
    tally = Tally()
    tally.take(Batch(incidents=incidents, entries=records))
    return tally


def an_outcome(
    kind: OutcomeKind, stage: Stage = Stage.SIGTERM, incident: Incident | None = None
) -> AuditEntry:
    """Return the record of what came of one step."""
    attempt = Attempt(AttemptId("att-1"), stage, (), WALL)
    return entries.outcome(incident or an_incident(), attempt, Outcome(kind))


def test_an_act_by_its_stage_and_outcome() -> None:
    """A second one of a kind adds up, in this batch or the next."""
    tally = counted(an_outcome(OutcomeKind.SENT), an_outcome(OutcomeKind.ALREADY_GONE))
    tally.take(Batch(entries=(an_outcome(OutcomeKind.SENT),)))
    assert tally.acts == {("sigterm", "sent"): 2, ("sigterm", "already_gone"): 1}
    assert not tally.dry_run_acts
    assert not tally.resets


def test_a_dry_run_is_no_act() -> None:
    """It has a counter of its own."""
    tally = counted(
        an_outcome(OutcomeKind.DRY_RUN, Stage.SIGKILL), an_outcome(OutcomeKind.DRY_RUN, Stage.RESET)
    )
    assert tally.dry_run_acts == {("sigkill",): 1, ("reset",): 1}
    assert not tally.acts
    assert not tally.resets


def test_a_reset_counts_for_each_of_its_gpus() -> None:
    """By its result; a refusal with every reason, and each reason once a record."""
    two = an_incident(a_target(gpus=(GPU_A, GpuUuid("GPU-x"))))
    refusal = Refusal(
        a_step(two, Stage.RESET),
        (Reason(ReasonKind.HOLDERS, "a"), Reason(ReasonKind.HOLDERS, "b"), Reason(ReasonKind.MIG, "c")),
    )
    tally = counted(an_outcome(OutcomeKind.RESET_DONE, Stage.RESET, two), entries.refused(two, refusal))
    assert tally.resets == {(GPU_A, "reset_done"): 1, ("GPU-x", "reset_done"): 1}
    assert tally.reset_refusals[GPU_A, "holders"] == tally.reset_refusals["GPU-x", "mig"] == 1
    assert len(tally.reset_refusals) == 4
    assert tally.refusals == {("reset", "holders"): 1, ("reset", "mig"): 1}


def test_a_refused_signal_is_no_refused_reset() -> None:
    """It stands among all refusals alone."""
    one = an_incident()
    tally = counted(entries.refused(one, Refusal(a_step(one), (Reason(ReasonKind.BUDGET, "spent"),))))
    assert tally.refusals == {("sigterm", "budget"): 1}
    assert not tally.reset_refusals


def test_gpus_that_come_and_go_have_a_bound() -> None:
    """Past it they are one series."""
    tally = Tally()
    for place in range(MOST_GPUS + 5):
        incident = an_incident(a_target(gpus=(GpuUuid(f"GPU-{place}"),)))
        tally.take(Batch(entries=(an_outcome(OutcomeKind.FAILED, Stage.RESET, incident),)))
    assert len(tally.resets) == MOST_GPUS + 1
    assert tally.resets[OTHER, "failed"] == 5


def test_an_end_and_how_long_it_took() -> None:
    """Only what was reclaimed has a time to reclaim, and a dry run reclaimed nothing."""
    done = replace(an_incident(), stage=Stage.RECLAIMED, ended_at=WALL + 12)
    dry = replace(done, plan=a_plan(dry_run=True), ended_at=WALL + 5)
    down = replace(done, stage=Stage.STOOD_DOWN)
    tally = Tally()
    for one in (done, dry, down):
        tally.take(Batch(incidents=(one,), entries=(entries.ended(one),)))
    assert tally.ended == {("reclaimed",): 2, ("stood_down",): 1}
    assert tally.reclaims.total == 12
    assert sum(tally.reclaims.counts) == 1


def test_a_clock_that_went_back_is_no_negative_time() -> None:
    """It counts as nothing."""
    done = replace(an_incident(), stage=Stage.RECLAIMED, ended_at=WALL - 5)
    tally = counted(entries.ended(done), incidents=(done,))
    assert tally.reclaims.total == 0
    assert sum(tally.reclaims.counts) == 1


def test_who_opened_it() -> None:
    """By the kind of who asked."""
    tally = counted(entries.opened(an_incident()), entries.opened(an_incident(actor=OPERATOR)))
    assert tally.opened == {("rule",): 1, ("operator",): 1}


def test_alarms_and_denials() -> None:
    """A tripped breaker is an alarm; a note is nothing."""
    kinds = (RecordKind.ALARM, RecordKind.BREAKER_TRIPPED, RecordKind.DENIED, RecordKind.NOTE)
    tally = counted(*(entries.of_host(kind, "x") for kind in kinds))
    assert (tally.alarms, tally.denied) == (2, 1)


@pytest.mark.parametrize(("value", "place"), [(0.0, 0), (0.005, 0), (0.0051, 1), (10.0, 10), (99.0, 11)])
def test_a_value_falls_into_its_bucket(value: float, place: int) -> None:
    """A bound belongs to what is below it, as Prometheus has it; above the last there is one more."""
    buckets = Buckets(PASS_BUCKETS)
    buckets.add(value)
    assert buckets.counts.index(1) == place
    assert len(buckets.counts) == len(PASS_BUCKETS) + 1
