"""What was done last and what rules may still do today, for `status`. Pure."""

from reclaimerd.daemon.rows import Json, actor_text
from reclaimerd.daemon.state import State
from reclaimerd.model.incident import newest_acted
from reclaimerd.model.ledger import SpendKind
from reclaimerd.model.policy import BudgetSettings

_DAY_SECONDS = 86400.0


def last_act_row(state: State) -> Json | None:
    """Return the newest step that was taken, of open incidents and ended ones; None where none is known.

    Steps of dry runs count: the row says so.
    """
    incident = newest_acted((*state.incidents.values(), *state.handed.values(), state.last_acted))
    if incident is None:
        return None
    attempt = incident.attempts[-1]
    return {
        "at": attempt.intent_at,
        "stage": attempt.stage.value,
        "outcome": "none yet" if attempt.outcome is None else attempt.outcome.kind.value,
        "incident": incident.id,
        "pid": incident.target.root.pid,
        "gpus": list(incident.target.gpus),
        "actor": actor_text(incident.actor),
        "dry_run": incident.plan.dry_run,
        "end": incident.stage.value if incident.ended else "",
    }


def budget_left(state: State, budgets: BudgetSettings) -> dict[str, int]:
    """Return what rules may still do in these 24 hours."""
    wall = state.snapshot.taken_at if state.snapshot is not None else 0.0
    done = [s for s in state.ledger.spends if not s.dry_run and wall - s.at < _DAY_SECONDS]
    workloads = sum(1 for spend in done if spend.kind is SpendKind.WORKLOAD)
    drains = sum(1 for spend in done if spend.kind is SpendKind.DRAIN)
    resets = len({spend.at for spend in done if spend.kind is SpendKind.RESET})
    return {
        "resets_left_today": max(0, budgets.resets_per_day - resets),
        "workloads_left_today": max(0, budgets.workloads_per_day - workloads),
        "drains_left_today": max(0, budgets.drains_per_day - drains),
    }
