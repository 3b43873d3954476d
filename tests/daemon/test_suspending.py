"""A rule is suspended, listed, resumed, and ends by itself: over fakes, and as a pass goes by it."""

import asyncio
from dataclasses import replace

from reclaimerd.daemon.http_server import Answer
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Suspension
from tests.builders import GIB, WALL, a_busy_snapshot, a_policy, a_rule
from tests.daemon.test_api import ROOT, Story, a_story
from tests.fakes import Rig, a_disk_error, a_rig

RULE = "over-cap"


def acting() -> Rig:
    """Return a host with one holder over the cap of an enforcing rule."""
    return a_rig(a_busy_snapshot(), a_policy(a_rule(RULE, above=1 * GIB)))


def post(story: Story, path: str, **body: object) -> Answer:
    """Make one call as root."""
    return asyncio.run(story.call("POST", path, ROOT, None, **body))


def rules_of(story: Story) -> list[dict[str, object]]:
    """Return what the list of rules says."""
    found = asyncio.run(story.call("GET", "/v1/rules", ROOT)).body["rules"]
    assert isinstance(found, list)
    return found


def test_a_suspended_rule_acts_no_more_and_goes_on_when_resumed() -> None:
    """Both on record with the rule and the reason; in between its incident waits, and nothing is sent."""
    rig = acting()
    story = a_story(rig)
    answer = post(story, f"/v1/rules/{RULE}/suspend", reason="course", for_seconds=None)
    assert (answer.status, answer.body["suspended"]) == (
        200,
        {"rule": RULE, "by": "root", "reason": "course", "since": WALL, "until": None},
    )
    asyncio.run(rig.passes(3))
    assert rig.executor.permits == []
    assert [one.stage.value for one in rig.cycle.state.incidents.values()] == ["pending"]
    assert post(story, f"/v1/rules/{RULE}/resume", reason="over").status == 200
    asyncio.run(rig.passes(1))
    assert [permit.step.stage.value for permit in rig.executor.permits] == ["sigterm"]
    told = [(one.kind, one.action, one.reason) for one in rig.recorder.entries if one.action == RULE]
    assert told == [
        (RecordKind.RULE_SUSPENDED, RULE, "course"),
        (RecordKind.RULE_RESUMED, RULE, "over"),
    ]


def test_what_was_begun_keeps_its_place() -> None:
    """SIGTERM was sent, the rule is suspended: no SIGKILL, no hand-over; afterwards it goes on."""
    rig = acting()
    story = a_story(rig)
    asyncio.run(rig.passes(2))
    assert len(rig.executor.permits) == 1
    post(story, f"/v1/rules/{RULE}/suspend")
    asyncio.run(rig.passes(3, step=400.0))
    assert len(rig.executor.permits) == 1
    (incident,) = rig.cycle.state.incidents.values()
    assert (incident.stage.value, incident.ended) == ("sigterm", False)
    assert "suspended by root" in incident.last_refusal
    post(story, f"/v1/rules/{RULE}/resume")
    asyncio.run(rig.passes(1))
    assert [permit.step.stage.value for permit in rig.executor.permits] == ["sigterm", "sigkill"]


def test_it_ends_by_itself_on_record_and_wakes_the_loop_for_it() -> None:
    """At its time and not before."""
    rig = acting()
    post(a_story(rig), f"/v1/rules/{RULE}/suspend", for_seconds=30.0)
    report = asyncio.run(rig.cycle.run_pass())
    assert report.wake_at is not None
    assert report.wake_at - rig.sampler.snapshot.at <= 30.0
    rig.age(29.0)
    asyncio.run(rig.passes(1, step=0.0))
    assert rig.cycle.state.ledger.suspended
    assert rig.executor.permits == []
    rig.age(1.5)
    asyncio.run(rig.passes(2))
    assert rig.cycle.state.ledger.suspended == ()
    assert "time limit" in rig.recorder.of_kind(RecordKind.RULE_RESUMED)[0].reason
    assert len(rig.executor.permits) == 1


def test_suspended_anew_is_the_newer_word() -> None:
    """One suspension a rule."""
    rig = acting()
    story = a_story(rig)
    post(story, f"/v1/rules/{RULE}/suspend", for_seconds=30.0)
    post(story, f"/v1/rules/{RULE}/suspend", reason="longer")
    assert [(one.reason, one.until) for one in rig.cycle.state.ledger.suspended] == [("longer", None)]


def test_a_rule_that_is_not_there_or_not_suspended_is_404_and_changes_nothing() -> None:
    """One that left the policy while it was suspended can be resumed all the same."""
    rig = acting()
    story = a_story(rig)
    assert post(story, "/v1/rules/none/suspend").status == 404
    assert post(story, "/v1/rules/none/resume").status == 404
    assert post(story, f"/v1/rules/{RULE}/resume").status == 404
    assert post(story, f"/v1/rules/{RULE}/suspend", for_seconds=-1).status == 400
    assert rig.recorder.entries == []
    gone = Suspension("gone", "ann", "", WALL)
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, suspended=(gone,))
    assert post(story, "/v1/rules/gone/resume").status == 200
    assert rig.cycle.state.ledger.suspended == ()


def test_what_can_not_be_recorded_is_not_suspended() -> None:
    """No record, no change."""
    rig = acting()
    rig.recorder.errors = [a_disk_error()]
    assert post(a_story(rig), f"/v1/rules/{RULE}/suspend").status == 409
    assert rig.cycle.state.ledger.suspended == ()


def test_the_list_says_how_far_each_may_go_and_for_how_many_it_holds() -> None:
    """Before the first look that is not known, and never 0."""
    rig = acting()
    story = a_story(rig)
    assert rules_of(story)[0]["holds_for"] is None
    asyncio.run(rig.passes())
    post(story, f"/v1/rules/{RULE}/suspend", reason="x")
    (row,) = rules_of(story)
    assert (row["name"], row["mode"], row["effective_mode"]) == (RULE, "enforce", "observe")
    rig.sampler.snapshot = replace(rig.sampler.snapshot)
    asyncio.run(rig.cycle.run_pass())
    assert rules_of(story)[0]["holds_for"] == 1
    suspended = asyncio.run(story.call("GET", "/v1/status", ROOT)).body["suspended"]
    assert suspended == [{"rule": RULE, "by": "root", "reason": "x", "since": WALL, "until": None}]
