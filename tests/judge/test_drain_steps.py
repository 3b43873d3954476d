"""Claims about the order of a drain request's steps, and about who pays for one."""

from dataclasses import replace

import pytest

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.judge.budgets import cause_reasons, causes_of, drain_budget_reasons
from reclaimerd.judge.drain_steps import PHASES, as_markdown, is_leaving, may_join, next_phase
from reclaimerd.model.drain import DrainFact, DrainPhase, Joined, NodeDrain, Withdrawal
from reclaimerd.model.incident import Incident, Subject
from reclaimerd.model.ledger import Ledger, Spend, SpendKind
from reclaimerd.model.process import WorkloadNames
from tests.act.drain_builders import a_request
from tests.builders import BOOT, WALL, a_context, a_target, a_workload, an_incident

REQUEST = a_request()
DRAIN = NodeDrain(REQUEST, BOOT, WALL, (Joined(REQUEST.incident, REQUEST.reason, WALL),), ())


@pytest.mark.parametrize("phase", DrainPhase)
@pytest.mark.parametrize("fact", DrainFact)
def test_only_what_the_table_has_may_happen(phase: DrainPhase, fact: DrainFact) -> None:
    """A fact without a place raises and names both; nobody is asked before the slot is ours."""
    if fact in PHASES[phase]:
        assert next_phase(phase, fact) is PHASES[phase][fact]
        return
    with pytest.raises(IllegalTransitionError, match=rf"{fact}.*{phase}"):
        next_phase(phase, fact)


def test_each_way_leads_through_withdraw_to_the_end() -> None:
    """From every phase but the end a withdrawal may be ordered, or goes on already; the page has each row."""
    for phase in (DrainPhase.SLOT, DrainPhase.ASK, DrainPhase.STANDS):
        assert next_phase(phase, DrainFact.WITHDRAWAL_ORDERED) is DrainPhase.WITHDRAW
    page = as_markdown()
    assert "| slot | slot_taken | ask |" in page
    assert "| done | (the end) | |" in page


def test_one_that_stands_is_joined() -> None:
    """Not one that is over or that somebody takes back; none at all is none."""
    assert may_join(DRAIN)
    assert not may_join(None)
    assert not may_join(replace(DRAIN, phase=DrainPhase.DONE))
    assert not may_join(replace(DRAIN, withdrawal=Withdrawal("root", "mended", WALL)))


@pytest.mark.parametrize(
    ("names", "trusted", "causes"),
    [
        (None, True, ("uid 1000",)),
        (WorkloadNames(namespace="ml"), True, ("namespace ml",)),
        (WorkloadNames(namespace="ml"), False, ("uid 1000",)),
        (WorkloadNames(job_id="7", account="physics"), True, ("account physics", "uid 1000")),
        (WorkloadNames(job_id="7"), True, ("uid 1000",)),
    ],
)
def test_who_is_the_cause(names: WorkloadNames | None, causes: tuple[str, ...], *, trusted: bool) -> None:
    """The namespace or account that a proven boundary names, else the user."""
    workload = replace(a_workload(), names=names, trusted=trusted)
    assert causes_of(an_incident(replace(a_target(), workload=workload))) == causes


@pytest.mark.parametrize("subject", [Subject.DRIVER, Subject.GPU])
def test_a_silent_driver_and_a_bad_gpu_are_nobodys(subject: Subject) -> None:
    """No user is to blame, and no budget of theirs binds."""
    assert causes_of(an_incident(subject=subject)) == ()


def spent(kind: SpendKind, key: str, ago: float, drain: NodeDrain | None = None) -> Ledger:
    """Return a ledger with one use of a budget."""
    return Ledger(spends=(Spend(kind, key, WALL - ago),), drain=drain)


@pytest.mark.parametrize(
    ("ledger", "refused"),
    [
        (spent(SpendKind.CAUSE, "uid 1000", 60.0), True),
        (spent(SpendKind.CAUSE, "uid 1000", 86401.0), False),
        (spent(SpendKind.CAUSE, "uid 7", 60.0), False),
        (spent(SpendKind.DRAIN, "uid 1000", 60.0), False),
        (spent(SpendKind.CAUSE, "uid 1000", 60.0, DRAIN), False),
    ],
)
def test_one_cause_drains_once_a_day(ledger: Ledger, *, refused: bool) -> None:
    """Within 24 h the same user is refused, others are not, and joining costs nothing."""
    incident: Incident = an_incident()
    reasons = cause_reasons(incident, a_context(ledger=ledger, wall=WALL), dry_run=False)
    assert bool(reasons) is refused
    assert not cause_reasons(incident, a_context(ledger=ledger, wall=WALL), dry_run=True)


def test_joining_spends_no_budget_of_the_day() -> None:
    """One a day is spent; a further incident joins what stands."""
    full = spent(SpendKind.DRAIN, "inc-0", 60.0)
    assert drain_budget_reasons(a_context(ledger=full, wall=WALL), dry_run=False)
    assert not drain_budget_reasons(a_context(ledger=replace(full, drain=DRAIN), wall=WALL), dry_run=False)


def test_a_request_that_is_taken_back_is_leaving_until_it_is_gone() -> None:
    """Its withdrawal was ordered, and not everybody has taken it back."""
    ordered = replace(DRAIN, withdrawal=Withdrawal("root", "mended", WALL), phase=DrainPhase.WITHDRAW)
    assert [is_leaving(one) for one in (DRAIN, ordered, replace(ordered, phase=DrainPhase.DONE))] == [
        False,
        True,
        False,
    ]
