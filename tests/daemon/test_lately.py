"""What `status` says was done last and may be done yet, and what a process used of its GPU."""

from dataclasses import replace

import pytest

from reclaimerd.daemon.lately import budget_left, last_act_row
from reclaimerd.daemon.rows import holder_row
from reclaimerd.daemon.rule_rows import rules_part
from reclaimerd.daemon.state import State
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Stage, newest_acted
from reclaimerd.model.ledger import Ledger, Spend, SpendKind
from reclaimerd.model.policy import BudgetSettings, Mode
from reclaimerd.model.reading import Known, Reading, Unreadable
from tests.builders import (
    GPU_A,
    MONO,
    WALL,
    a_gpu,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_row,
    a_rule,
    a_snapshot,
    an_incident,
)


def acted(name: str, at: float, **changes: object) -> Incident:
    """Return an incident that took a step at that time."""
    attempt = Attempt(AttemptId(f"{name}.1"), Stage.SIGTERM, (a_ref(),), at, Outcome(OutcomeKind.SENT))
    return replace(an_incident(id=IncidentId(name), attempts=(attempt,)), **changes)  # type: ignore[arg-type]


def test_the_newest_step_of_all() -> None:
    """Of open, handed over and ended incidents; none where nobody took a step."""
    assert newest_acted((None, an_incident())) is None
    assert last_act_row(State()) is None
    idle = an_incident(id=IncidentId("idle"))
    older, newer = acted("older", WALL), acted("newer", WALL + 5, stage=Stage.RECLAIMED)
    for state in (
        State(incidents={idle.id: idle, older.id: older}, last_acted=newer),
        State(handed={newer.id: newer}, last_acted=older),
    ):
        row = last_act_row(state)
        assert row is not None
        assert (row["incident"], row["at"], row["end"]) == ("newer", WALL + 5, "reclaimed")
    row = last_act_row(State(incidents={older.id: older}))
    assert row is not None
    assert {key: row[key] for key in ("stage", "outcome", "pid", "actor", "dry_run", "end")} == {
        "stage": "sigterm",
        "outcome": "sent",
        "pid": older.target.root.pid,
        "actor": "rule over-cap",
        "dry_run": False,
        "end": "",
    }


def test_a_step_without_outcome_and_one_of_a_dry_run() -> None:
    """The first is said to have none yet, the second to be a rehearsal."""
    begun = acted("begun", WALL)
    begun = replace(begun, attempts=(replace(begun.attempts[0], outcome=None),), plan=a_plan(dry_run=True))
    row = last_act_row(State(incidents={begun.id: begun}))
    assert row is not None
    assert (row["outcome"], row["dry_run"]) == ("none yet", True)


def test_budgets_left() -> None:
    """Spends of these 24 hours in earnest, a reset of several GPUs once; never below nothing."""
    spends = (
        Spend(SpendKind.WORKLOAD, "a", MONO),
        *(Spend(SpendKind.WORKLOAD, "b", WALL - n) for n in (1.0, 90_000.0)),
        Spend(SpendKind.WORKLOAD, "c", WALL, dry_run=True),
        Spend(SpendKind.RESET, "GPU-a", WALL),
        Spend(SpendKind.RESET, "GPU-b", WALL),
        *(Spend(SpendKind.DRAIN, "n", WALL - n) for n in range(9)),
    )
    state = State(ledger=Ledger(spends=spends), snapshot=a_snapshot())
    budgets = BudgetSettings(workloads_per_day=3, resets_per_day=4, drains_per_day=2)
    assert budget_left(state, budgets) == {
        "workloads_left_today": 2,
        "resets_left_today": 3,
        "drains_left_today": 0,
    }


def test_how_many_rules_may_enforce_here() -> None:
    """The mode caps each rule, and a share of the fleet that this host is not in leaves it in dry run."""
    rules = (a_rule("whole"), a_rule("dry", mode=Mode.DRY_RUN), a_rule("some", enforce_on_percent=5.0))
    policy = a_policy(*rules)
    assert rules_part(policy)["enforcing"] == 1
    assert rules_part(replace(policy, enforces_here=frozenset({"some"})))["enforcing"] == 2
    assert rules_part(replace(policy, mode=Mode.DRY_RUN))["enforcing"] == 0


@pytest.mark.parametrize(
    ("reading", "told"), [(Known(37), 37), (Known(0), 0), (Unreadable("too old"), None), (None, None)]
)
def test_what_a_process_used_of_its_gpu(reading: Reading[int] | None, told: int | None) -> None:
    """What was read, and None where it was not asked for, could not be read, or the driver lists it not."""
    process = a_process()
    rows = () if reading is None else (a_row(process.ref.pid, 5, sm_percent=reading), a_row(9, 5))
    holder = a_holder(process, gpu=GPU_A)
    snapshot = a_snapshot(processes=(process,), holders=(holder,))
    assert holder_row(holder, a_gpu(processes=rows), None, snapshot)["sm_percent"] == told
