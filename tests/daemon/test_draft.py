"""What one pass would change: what is written, what is owed, and what operators alone asked for."""

from dataclasses import replace
from typing import Any

from reclaimerd.daemon import entries
from reclaimerd.daemon.counting import pruned, with_ends
from reclaimerd.daemon.draft import Draft, Owed
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Release, Stage
from reclaimerd.model.ledger import Ended, Ledger, Pause, Spend, SpendKind
from tests.builders import GPU_A, MONO, OPERATOR, WALL, a_ref, an_incident

BY_RULE = an_incident()
BY_HAND = an_incident(id=IncidentId("inc-2"), actor=OPERATOR)


def test_progress_alone_is_not_written_each_pass() -> None:
    """A new release mark changes the state and makes no batch."""
    draft = Draft({BY_RULE.id: BY_RULE}, Ledger())
    draft.put(replace(BY_RULE, release=Release(1, 2, MONO), gone_mono=MONO, residual_ok_mono=MONO))
    assert draft.is_empty
    assert draft.incidents[BY_RULE.id].gone_mono == MONO


def test_anything_else_is_written() -> None:
    """A stage, a ledger, a record: each makes a batch with exactly it."""
    draft = Draft({BY_RULE.id: BY_RULE}, Ledger())
    draft.put(replace(BY_RULE, stage=Stage.SIGTERM))
    assert draft.batch().incidents == (replace(BY_RULE, stage=Stage.SIGTERM),)
    assert draft.batch().ledger is None
    draft = Draft({}, Ledger())
    draft.put_ledger(Ledger())
    assert draft.is_empty
    draft.put_ledger(Ledger(pause=Pause("root", "", WALL)))
    assert draft.batch().ledger == draft.ledger
    draft = Draft({}, Ledger())
    draft.note(entries.of_host(RecordKind.NOTE, "x"))
    assert not draft.is_empty


def test_operators_alone_leaves_out_rules_ledger_and_host_records() -> None:
    """The operator's incident and its records; the rule's incident is as it was before."""
    draft = Draft({BY_RULE.id: BY_RULE}, Ledger())
    draft.put(replace(BY_RULE, stage=Stage.SIGTERM), [entries.opened(BY_RULE)])
    draft.put(BY_HAND, [entries.opened(BY_HAND)])
    draft.note(entries.of_host(RecordKind.ALARM, "look"))
    draft.put_ledger(Ledger(spends=(Spend(SpendKind.WORKLOAD, "x", WALL),)))
    alone = draft.operators_alone({BY_RULE.id: BY_RULE}, Ledger())
    assert alone.batch().incidents == (BY_HAND,)
    assert alone.batch().ledger is None
    assert [entry.incident for entry in alone.entries] == [BY_HAND.id]
    assert alone.incidents[BY_RULE.id] == BY_RULE


def test_a_late_release_waits_for_the_whole_batch() -> None:
    """It is no act of an operator: written alone, it would be written again with the whole."""
    late = replace(BY_HAND, stage=Stage.HANDED_OVER, released_at=WALL)
    draft = Draft({}, Ledger())
    draft.put(late, [entries.late_release(late, "gone")])
    assert draft.operators_alone({}, Ledger()).is_empty


def test_what_is_owed_comes_first_in_the_next_batch_and_is_owed_no_more() -> None:
    """Records keep their order across a fault, and each is written once."""
    first, second = entries.note(BY_RULE, "first"), entries.note(BY_RULE, "second")
    owed = Owed((first,), frozenset({BY_RULE.id}), ledger=True)
    draft = Draft({BY_RULE.id: BY_RULE}, Ledger())
    draft.note(second)
    draft.owe(owed)
    batch = draft.batch()
    assert batch.entries == (first, second)
    assert batch.incidents == (BY_RULE,)
    assert batch.ledger == Ledger()
    assert owed.less(draft) == Owed()


def test_what_was_not_written_stays_owed() -> None:
    """A batch of operators alone pays nothing of a rule's debt."""
    record = entries.note(BY_RULE, "first")
    owed = Owed((record,), frozenset({BY_RULE.id}), ledger=True)
    draft = Draft({BY_HAND.id: BY_HAND}, Ledger())
    draft.put(replace(BY_HAND, stage=Stage.SIGTERM))
    assert owed.less(draft) == owed


def ended(**overrides: object) -> Ledger:
    """Return the ledger after this incident ended; before, it was open."""
    attempt = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
    given: dict[str, Any] = {"stage": Stage.RECLAIMED, "ended_at": WALL, "attempts": (attempt,)} | overrides
    after = an_incident(**given)
    return with_ends(Ledger(), {after.id: after}, {BY_RULE.id: BY_RULE})


def test_an_end_that_did_something_feeds_the_cool_down_once() -> None:
    """The workload, its GPUs, and when."""
    (end,) = ended().ended
    assert (end.gpus, end.at, end.was_reset, end.dry_run) == ((GPU_A,), WALL, False, False)
    after = an_incident(stage=Stage.RECLAIMED, ended_at=WALL)
    assert with_ends(Ledger(), {after.id: after}, {after.id: after}) == Ledger()


def test_an_end_that_did_nothing_cools_nothing_down() -> None:
    """An incident that stood down before any attempt, or a late release, is no act."""
    assert ended(attempts=()) == Ledger()
    assert ended(released_at=WALL) == Ledger()
    assert ended(stage=Stage.SIGKILL) == Ledger()


def test_a_reset_is_remembered_with_the_end() -> None:
    """The GPU's own cool-down hangs on it."""
    attempt = Attempt(AttemptId("inc-1.1"), Stage.RESET, (a_ref(),), WALL, Outcome(OutcomeKind.RESET_DONE))
    (end,) = ended(attempts=(attempt,)).ended
    assert end.was_reset


def test_a_week_later_nothing_binds_any_more() -> None:
    """Seven days are kept, an older spend and end are not."""
    week = 7 * 86400.0
    old, new = WALL - week - 1.0, WALL - week + 1.0
    ledger = Ledger(
        spends=tuple(Spend(SpendKind.WORKLOAD, "x", at) for at in (old, new)),
        ended=tuple(Ended("x", (), at) for at in (old, new)),
    )
    kept = pruned(ledger, WALL)
    assert [spend.at for spend in kept.spends] == [new]
    assert [end.at for end in kept.ended] == [new]
    assert pruned(kept, WALL) is kept


def test_only_a_reset_that_may_have_happened_cools_its_gpu_down() -> None:
    """Refused or planned dry: nothing was reset. Without an outcome nobody knows."""
    for kind, was_reset in (
        (OutcomeKind.RESET_DONE, True),
        (OutcomeKind.UNKNOWN, True),
        (None, True),
        (OutcomeKind.RESET_REFUSED, False),
        (OutcomeKind.DRY_RUN, False),
    ):
        outcome = None if kind is None else Outcome(kind)
        attempt = Attempt(AttemptId("inc-1.1"), Stage.RESET, (), WALL, outcome)
        ended = replace(BY_RULE, stage=Stage.HANDED_OVER, ended_at=WALL, attempts=(attempt,))
        (end,) = with_ends(Ledger(), {ended.id: ended}, {BY_RULE.id: BY_RULE}).ended
        assert end.was_reset is was_reset
