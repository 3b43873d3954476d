"""Corners of what comes of an act that a changed line would pass through unseen: see docs/mutation.md."""

from dataclasses import replace

import pytest

from reclaimerd.daemon.admission import MOST_WITHHELD, Work
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.performing import take_outcomes
from reclaimerd.judge.endings import withdrawn
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import ListedStage
from reclaimerd.model.step import Permit
from tests.builders import WALL, a_context, a_plan, a_ref, a_step, an_incident

SENT = Outcome(OutcomeKind.SENT)
DRY = Outcome(OutcomeKind.DRY_RUN)
EVERY = a_plan(stages=tuple(ListedStage), sigterm_seconds=10.0, sigkill_seconds=20.0, proof_seconds=5.0)


def an_attempt(number: int, stage: Stage, outcome: Outcome | None = None) -> Attempt:
    """Return the incident's attempt of this number."""
    return Attempt(AttemptId(f"inc-1.{number}"), stage, (a_ref(),), WALL, outcome)


def taken(incident: Incident, outcome: Outcome, dry: str = "") -> tuple[Incident, Draft]:
    """Return the incident after its last attempt came to this, and the draft; `dry`: what says that it is."""
    attempt = incident.attempts[-1]
    draft = Draft({incident.id: incident}, Ledger())
    step = a_step(incident, attempt.stage, dry_run=dry == "step")
    permit = Permit(step, (), dry_run=dry == "permit")
    take_outcomes(draft, [Work(incident.id, attempt, permit)], [outcome], a_context())
    return draft.incidents[incident.id], draft


@pytest.mark.parametrize(
    ("stage", "plan"),
    [
        (Stage.SIGTERM, {"sigkill": 10, "reset": 30, "drain": 35}),
        (Stage.SIGKILL, {"reset": 20, "drain": 25}),
        (Stage.RESET, {"drain": 5}),
        (Stage.DRAIN, {}),
    ],
)
def test_a_dry_run_says_when_each_later_stage_would_follow(stage: Stage, plan: dict[str, int]) -> None:
    """Each waits as long as the one before it is given; the stage itself is no later one."""
    _, draft = taken(an_incident(plan=EVERY, attempts=(an_attempt(1, stage),)), DRY, "step")
    said = {one.action: one.reason for one in draft.entries if one.kind is RecordKind.PLANNED}
    assert said == {name: f"would follow {seconds} s later" for name, seconds in plan.items()}


def test_a_stage_that_would_be_permitted_brings_the_gates_own_answers() -> None:
    """What it would cost stands in the plan of a dry run too."""
    incident = an_incident(plan=EVERY, attempts=(an_attempt(1, Stage.SIGTERM),))
    _, draft = taken(incident, DRY, "step")
    (sigkill,) = (one for one in draft.entries if one.action == "sigkill")
    assert [one.gate for one in sigkill.gates] == ["all", "mode", "targets", "budget"]


@pytest.mark.parametrize("dry", ["step", "permit"])
def test_a_dry_run_is_one_whichever_says_so(dry: str) -> None:
    """Nothing was sent: the incident ends, and moves up no ladder. Its earlier outcomes stay as they were."""
    warned = an_attempt(1, Stage.WARNED, Outcome(OutcomeKind.DELIVERED))
    incident = an_incident(attempts=(warned, an_attempt(2, Stage.SIGTERM)))
    after, draft = taken(incident, DRY, dry)
    assert (after.stage, after.end_text) == (Stage.STOOD_DOWN, "dry run: nothing was sent")
    assert [one.outcome for one in after.attempts] == [warned.outcome, DRY]
    assert draft.entries[-1].kind is RecordKind.INCIDENT_ENDED


def test_an_outcome_that_comes_after_the_end_changes_no_end() -> None:
    """It is on record, and the incident that is over is neither taken up nor ended again."""
    warned = an_incident(attempts=(an_attempt(1, Stage.WARNED),))
    over = withdrawn(warned, "the rule holds no more", WALL)
    after, draft = taken(over, Outcome(OutcomeKind.NOT_PERMITTED, "not permitted"))
    assert (after.stage, after.end_text) == (over.stage, over.end_text)
    assert after.attempts[0].outcome is not None
    assert [one.kind for one in draft.entries] == [RecordKind.OUTCOME]


@pytest.mark.parametrize(
    ("stage", "earlier"),
    [
        (Stage.WARNED, Outcome(OutcomeKind.FAILED)),
        (Stage.SIGTERM, SENT),
        (Stage.SIGTERM, None),
    ],
    ids=["warnings", "signals that were sent", "signals under way"],
)
def test_only_signals_that_came_to_nothing_count_as_in_vain(stage: Stage, earlier: Outcome | None) -> None:
    """However often another thing was done: the first that is withheld is tried again."""
    before = tuple(an_attempt(number, stage, earlier) for number in range(1, MOST_WITHHELD + 1))
    incident = an_incident(attempts=(*before, an_attempt(9, Stage.SIGKILL)), stage=Stage.SIGTERM)
    for kind in (OutcomeKind.WITHHELD, OutcomeKind.FAILED):
        after, draft = taken(incident, Outcome(kind))
        assert not after.ended
        assert [one.kind for one in draft.entries] == [RecordKind.OUTCOME]


def test_a_signal_that_fails_is_no_failed_drain() -> None:
    """And one that was only withheld at the drain's stage neither: each says what it was."""
    tried = tuple(an_attempt(number, Stage.SIGKILL, Outcome(OutcomeKind.FAILED)) for number in range(1, 5))
    incident = an_incident(attempts=(*tried, an_attempt(5, Stage.SIGKILL)), stage=Stage.SIGTERM)
    after, _ = taken(incident, Outcome(OutcomeKind.FAILED, "no such call"))
    assert after.end_text == "withheld: no such call"
    first = replace(incident, attempts=(an_attempt(1, Stage.SIGKILL),))
    assert not taken(first, Outcome(OutcomeKind.FAILED))[0].ended
