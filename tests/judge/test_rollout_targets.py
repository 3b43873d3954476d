"""The record read for targets: each process once, whatever a dry run makes of it again and again."""

from dataclasses import replace

import pytest

from reclaimerd.judge import rollout_targets
from reclaimerd.judge.rollout_targets import MOST_INCIDENTS, TargetStory, Told, name_of
from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import OutcomeKind
from reclaimerd.model.step import ReasonKind
from tests.builders import BOOT, GPU_A, OPERATOR
from tests.judge.rollout_builders import (
    PROOF,
    an_entry,
    came_of_it,
    ended,
    opened,
    planned,
    refused,
    told,
    whom,
)


def only(found: Told) -> TargetStory:
    """Return the one story."""
    (story,) = found.stories.values()
    return story


def test_a_dry_run_that_is_taken_up_again_is_one_target() -> None:
    """Two incidents of one process: its first act, its first plan, and the end that was its own."""
    story = only(
        told(
            [
                opened(1.0),
                came_of_it(2.0),
                planned(2.0, "sigkill", "all"),
                ended(2.0),
                opened(3.0, incident="inc-2"),
                refused(3.0, ReasonKind.COOL_DOWN, incident="inc-2"),
                came_of_it(400.0, incident="inc-2"),
                planned(400.0, "sigkill", "protected", incident="inc-2"),
                ended(400.0, incident="inc-2"),
                opened(401.0, incident="inc-3"),
                ended(500.0, proof=PROOF, incident="inc-3"),
            ]
        )
    )
    assert (story.dry_at, story.dry_stage, story.dry_acts) == (2.0, "sigterm", 2)
    assert story.planned == {"sigkill": frozenset()}
    assert (story.gone_at, story.let_go_at) == (500.0, None)
    assert (story.incidents, story.incident_count) == (["inc-1", "inc-2", "inc-3"], 3)
    assert story.refused == {}
    assert (story.first_at, story.last_at, story.reason) == (1.0, 500.0, "holds too much")


def test_refusals_before_the_first_act_are_kept_the_last_ones_apart() -> None:
    """What held it up, and what stood against it at the end."""
    found = told(
        [opened(1.0), refused(1.0, ReasonKind.SETTLING, ReasonKind.HOLD), refused(2.0, ReasonKind.PROTECTED)]
    )
    story = only(found)
    assert story.refused == {ReasonKind.PROTECTED: "protected says no"}
    assert story.held_up == {ReasonKind.SETTLING, ReasonKind.HOLD, ReasonKind.PROTECTED}
    assert not story.had_act


def test_a_plan_names_the_gates_that_would_refuse() -> None:
    """Where every gate agrees none is named."""
    story = only(told([planned(1.0, "reset", "exit_path", "holders"), planned(1.0, "drain", "all", "mode")]))
    assert story.planned == {"reset": frozenset({"exit_path", "holders"}), "drain": frozenset()}


@pytest.mark.parametrize(
    ("kind", "acted"),
    [
        (OutcomeKind.SENT, True),
        (OutcomeKind.UNKNOWN, True),
        (OutcomeKind.ACCEPTED, True),
        (OutcomeKind.RESET_DONE, True),
        (OutcomeKind.WITHHELD, False),
        (OutcomeKind.ALREADY_GONE, False),
    ],
)
def test_a_real_act_is_one_that_may_have_done_something(kind: OutcomeKind, *, acted: bool) -> None:
    """The first counts; an end after it is ours and nobody's own."""
    story = only(told([came_of_it(1.0, kind), came_of_it(5.0, OutcomeKind.SENT), ended(6.0, proof=PROOF)]))
    assert story.acted_at == (1.0 if acted else 5.0)
    assert story.gone_at is None


@pytest.mark.parametrize("kind", [OutcomeKind.DRY_RUN, OutcomeKind.DELIVERED])
def test_a_warning_is_no_act(kind: OutcomeKind) -> None:
    """It is noted by itself, the first time."""
    found = told([came_of_it(1.0, kind, "warned"), came_of_it(2.0, kind, "warned")])
    story = only(found)
    assert (story.warned_at, story.had_act) == (1.0, False)


def test_a_warning_that_reached_nobody_is_none() -> None:
    """Nothing was delivered."""
    assert only(told([came_of_it(1.0, OutcomeKind.NOT_DELIVERED, "warned")])).warned_at is None


def test_who_is_let_go_is_not_gone() -> None:
    """A verdict that was withdrawn, the first time; other ends say neither."""
    found = told([opened(1.0), ended(2.0), ended(3.0), ended(4.0, "handed_over to person")])
    assert (only(found).let_go_at, only(found).gone_at) == (2.0, None)
    gone = told([ended(2.0, proof=PROOF), ended(3.0, "unverified", proof=PROOF)])
    assert (only(gone).let_go_at, only(gone).gone_at) == (None, 2.0)


@pytest.mark.parametrize(
    "entry",
    [
        an_entry(RecordKind.INCIDENT_OPENED, actor=OPERATOR),
        an_entry(RecordKind.INCIDENT_OPENED, actor=None),
        replace(an_entry(RecordKind.INCIDENT_OPENED), target=None),
        replace(an_entry(RecordKind.INCIDENT_OPENED), incident=None),
        an_entry(RecordKind.INTENT),
    ],
    ids=["operator", "nobody", "no target", "no incident", "other kind"],
)
def test_what_is_no_rule_s_incident_is_passed_by(entry: AuditEntry) -> None:
    """It opens no story."""
    assert told([(1.0, entry)]).stories == {}


def test_one_rule_may_be_asked_for() -> None:
    """Neither targets nor counts of another are kept."""
    tally = Tally(0.0, 1, "digest", (RuleTally("over-cap", looks=1), RuleTally("other", looks=2)))
    records = [opened(1.0), (2.0, AuditEntry(RecordKind.TALLY, tally=tally))]
    found = told(records, "other")
    assert found.stories == {}
    assert found.tallies == {"other": RuleTally("other", looks=2)}


def test_counts_of_several_days_are_one() -> None:
    """Figures add up, and the first says since when."""
    one = Tally(5.0, 10, "digest", (RuleTally("over-cap", looks=10, undetermined=1, spared_processes=2),))
    records = [(6.0, AuditEntry(RecordKind.TALLY, tally=one)), (7.0, AuditEntry(RecordKind.TALLY, tally=one))]
    found = told(records)
    assert found.tallies == {"over-cap": RuleTally("over-cap", looks=20, undetermined=2, spared_processes=4)}
    assert (found.counted_from, found.passes) == (5.0, 20)


def test_an_outcome_without_one_changes_nothing() -> None:
    """A record that somebody cut is no act."""
    story = only(told([(1.0, an_entry(RecordKind.OUTCOME, action="sigterm"))]))
    assert not story.had_act


def test_incidents_of_one_target_are_named_up_to_a_bound_and_all_counted() -> None:
    """A target that is taken up for a week has hundreds."""
    story = only(told([opened(float(number), incident=f"inc-{number}") for number in range(30)]))
    assert (len(story.incidents), story.incident_count) == (MOST_INCIDENTS, 30)


def test_past_the_bound_of_targets_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded; those that are known go on."""
    monkeypatch.setattr(rollout_targets, "MOST_TARGETS", 2)
    found = told([opened(1.0, whom(pid)) for pid in (1, 2, 3, 4)] + [ended(9.0, target=whom(1))])
    assert (len(found.stories), found.left_out) == (2, 2)
    assert [story.let_go_at for story in found.stories.values()] == [9.0, None]


def test_a_gpu_s_own_incident_goes_by_the_gpu() -> None:
    """Where nobody is told to go there is no process to name it by."""
    target = replace(whom(), root=ProcessRef(BOOT, 0, 0), members=())
    assert name_of(target) == GPU_A
    assert name_of(whom(7)) == str(whom(7).root)
