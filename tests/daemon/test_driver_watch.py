"""A silent driver: one alarm, one drain request, one word when it is back; and what is never counted."""

from dataclasses import replace

import pytest

from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.driver_watch import DriverWatch, taken_up, watch_driver
from reclaimerd.daemon.opening import Moment
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import Ask, DrainPhase, Joined, NodeDrain
from reclaimerd.model.identity import AttemptId, IncidentId, ProcessRef
from reclaimerd.model.incident import Attempt, Incident, OutcomeKind, Stage, Subject
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import DrainSettings, Policy
from reclaimerd.model.snapshot import (
    DriverReading,
    DriverState,
)
from reclaimerd.record.store import AbandonedWorker
from tests.act.drain_builders import a_request
from tests.builders import BOOT, MONO, WALL, a_policy, a_ref, a_snapshot

POLICY: Policy = replace(
    a_policy(), drain=DrainSettings(driver_alarm_seconds=120.0, driver_drain_seconds=900.0)
)


def watched(
    silent_for: float,
    watch: DriverWatch,
    state: DriverState = DriverState.UNRESPONSIVE,
    handed: Incident | None = None,
) -> tuple[Draft, DriverWatch]:
    """Return the draft and the watch after one look at a driver silent since MONO."""
    draft = Draft({}, Ledger())
    look = a_snapshot(at=MONO + silent_for, driver=DriverReading(state, MONO, "no answer in 5 s"))
    past = (watch, {} if handed is None else {handed.id: handed})
    return draft, watch_driver(draft, look, POLICY, past, Moment(MONO + silent_for, WALL + silent_for))


def test_one_alarm_after_its_time() -> None:
    """Not before 120 s, then once."""
    draft, watch = watched(119, DriverWatch())
    assert not draft.entries
    draft, watch = watched(120, watch)
    assert [entry.kind for entry in draft.entries] == [RecordKind.ALARM]
    draft, _ = watched(130, watch)
    assert not draft.entries


def test_one_drain_request_after_its_time() -> None:
    """After 900 s without any answer one incident asks for a drain, and no second does."""
    draft, watch = watched(900, DriverWatch(MONO, alarmed=True))
    (incident,) = draft.incidents.values()
    assert (incident.subject, incident.processes, incident.actor.name) == (Subject.DRIVER, (), "driver-watch")
    draft, watch = watched(1000, watch)
    assert not draft.incidents
    draft, _ = watched(
        1000, DriverWatch(MONO, alarmed=True), handed=replace(incident, stage=Stage.HANDED_OVER)
    )
    assert not draft.incidents


@pytest.mark.parametrize("state", [DriverState.SLOW, DriverState.UNKNOWN, DriverState.ABSENT])
def test_what_is_not_silence_is_never_counted(state: DriverState) -> None:
    """Slow readings, our own broken worker and a driver that is not there alarm nobody here."""
    draft, watch = watched(5000, DriverWatch(), state)
    assert not draft.entries
    assert not draft.incidents
    assert watch == DriverWatch()


def test_the_all_clear_is_on_record() -> None:
    """When the driver is back, a note says so and a handed-over incident is released late, its end kept."""
    draft, watch = watched(900, DriverWatch(MONO, alarmed=True))
    (incident,) = draft.incidents.values()
    handed = replace(incident, stage=Stage.HANDED_OVER)
    draft, watch = watched(1200, watch, DriverState.RESPONSIVE, handed)
    assert [entry.kind for entry in draft.entries] == [RecordKind.NOTE, RecordKind.LATE_RELEASE]
    released = draft.incidents[handed.id]
    assert (released.stage, released.released_at) == (Stage.HANDED_OVER, WALL + 1200)
    assert watch == DriverWatch()


def test_an_incident_that_asked_nothing_yet_stands_down() -> None:
    """A driver that answers before the request went out needs none."""
    draft, watch = watched(900, DriverWatch(MONO, alarmed=True))
    (incident,) = draft.incidents.values()
    again = Draft({incident.id: incident}, Ledger())
    look = a_snapshot(at=MONO + 901, driver=DriverReading(DriverState.RESPONSIVE, MONO + 901))
    watch_driver(again, look, POLICY, (watch, {}), Moment(MONO + 901, WALL + 901))
    assert again.incidents[incident.id].stage is Stage.STOOD_DOWN


def answered_while(phase: DrainPhase, tries: int) -> tuple[Incident, Draft]:
    """Return the incident of a silence, as the driver answers in this phase of its drain request."""
    draft, watch = watched(900, DriverWatch(MONO, alarmed=True))
    (incident,) = draft.incidents.values()
    step = Attempt(AttemptId("one"), Stage.DRAIN, (), intent_at=WALL + 900)
    incident = replace(incident, attempts=(step,))
    joined = (Joined(incident.id, "silent", WALL), Joined(IncidentId("another"), "lost", WALL))
    drain = NodeDrain(a_request(), BOOT, WALL, joined, (Ask("slurm", tries=tries),), phase=phase)
    again = Draft({incident.id: incident}, Ledger(drain=drain))
    look = a_snapshot(at=MONO + 901, driver=DriverReading(DriverState.RESPONSIVE, MONO + 901))
    watch_driver(again, look, POLICY, (watch, {}), Moment(MONO + 901, WALL + 901))
    return again.incidents[incident.id], again


def test_a_step_that_nobody_was_asked_for_gets_its_outcome() -> None:
    """Another incident joined the request, which goes on without this one: no intent stays open."""
    ended, draft = answered_while(DrainPhase.SLOT, 0)
    assert ended.stage is Stage.STOOD_DOWN
    assert [one.outcome and one.outcome.kind for one in ended.attempts] == [OutcomeKind.PASSED_OVER]
    kinds = [entry.kind for entry in draft.entries]
    assert kinds == [RecordKind.NOTE, RecordKind.OUTCOME, RecordKind.INCIDENT_ENDED]


@pytest.mark.parametrize("phase", [DrainPhase.ASK, DrainPhase.STANDS])
def test_one_for_which_somebody_was_asked_waits_for_no_answer(phase: DrainPhase) -> None:
    """Whether the drain stands is not known, nor told as never asked for: the answer may never come."""
    ended, draft = answered_while(phase, 1)
    assert ended.stage is Stage.STOOD_DOWN
    assert [one.outcome and one.outcome.kind for one in ended.attempts] == [OutcomeKind.UNKNOWN]
    kinds = [entry.kind for entry in draft.entries]
    assert kinds == [RecordKind.NOTE, RecordKind.OUTCOME, RecordKind.INCIDENT_ENDED]


KEPT = AbandonedWorker("nvml", a_ref(9), MONO - 600, alarmed=True)


def test_a_restart_in_mid_silence_keeps_the_clock() -> None:
    """The worker still hangs: no second alarm, and the drain comes 900 s after the last word."""
    watch = taken_up((AbandonedWorker("procfs", a_ref(8), MONO - 5000), KEPT), KEPT.ref)
    assert watch == DriverWatch(MONO - 600, alarmed=True)
    draft, watch = watched(299, watch)
    assert not draft.entries
    draft, watch = watched(300, watch)
    (incident,) = draft.incidents.values()
    assert incident.reason == "driver unresponsive for 900 s"


@pytest.mark.parametrize(
    ("kept", "alive"),
    [
        (KEPT, None),
        (KEPT, a_ref(9, 77)),
        (KEPT, replace(a_ref(9), boot_id="another boot")),
        (replace(KEPT, role="procfs"), KEPT.ref),
        (replace(KEPT, silent_since=None), KEPT.ref),
    ],
)
def test_a_driver_that_may_have_answered_in_between_starts_anew(
    kept: AbandonedWorker, alive: ProcessRef | None
) -> None:
    """The worker is gone, is another process, was at work, or is not the driver's: no old clock, no drain."""
    watch = taken_up((kept,), alive)
    assert watch == DriverWatch()
    draft, _ = watched(300, watch)
    assert [entry.kind for entry in draft.entries] == [RecordKind.ALARM]
    assert not draft.incidents
