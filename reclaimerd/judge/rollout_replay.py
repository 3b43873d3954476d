"""Hold the targets of a time against budgets and cool-downs as if each had been acted on once; pure.

A dry run leaves its targets alive, and spends its budget on them again; an enforcing rule would not. So
what the budgets would have stopped is counted anew here, by the policy in force, and not read off the record.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from reclaimerd.model.policy import Policy
from reclaimerd.model.step import ReasonKind

_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Due:
    """One target that is to be acted on from `at` until `until`; wall-clock seconds.

    `key` is its workload's name; its end would have taken `lasts_seconds` at most after the act.
    """

    at: float
    until: float
    key: str
    lasts_seconds: float
    done: bool = False
    """It was really acted on, at `at`: nothing is asked any more."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The act would have come at this instant."""

    at: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """No act would have come as long as there was one to make."""

    by: ReasonKind


@dataclass(slots=True)
class _Spent:
    """What was spent so far: for each workload its last act and the end of it, and all acts that counted."""

    acts: list[float] = field(default_factory=list)
    last: dict[str, tuple[float, float]] = field(default_factory=dict)


def replayed(dues: Iterable[Due], policy: Policy) -> tuple[Admitted | Stopped, ...]:
    """Return for each, in the order of `at`, when it would have been acted on, or what stopped it.

    Members of a workload whose act is under way are part of it, as the gates have it. What the breaker
    would have stopped until a person closed it is not in this.
    """
    spent = _Spent()
    return tuple(_one(due, policy, spent) for due in dues)


def _one(due: Due, policy: Policy, spent: _Spent) -> Admitted | Stopped:
    last = spent.last.get(due.key)
    if due.done:
        return _admitted(due, due.at, spent)
    if last is not None and last[0] <= due.at < min(last[1], last[0] + policy.budgets.window_seconds):
        return Admitted(due.at)
    at, why = due.at, ReasonKind.BUDGET
    if last is not None and at < last[1] + policy.gates.workload_cooldown_seconds:
        at, why = last[1] + policy.gates.workload_cooldown_seconds, ReasonKind.COOL_DOWN
    budgets = policy.budgets
    limits = (
        (budgets.workloads_per_window, budgets.window_seconds),
        (budgets.workloads_per_day, _DAY_SECONDS),
    )
    for most, window in limits:
        free_at = _free_at(spent.acts, most, window)
        if free_at > at:
            at, why = free_at, ReasonKind.BUDGET
    if at > due.until:
        return Stopped(why)
    return _admitted(due, at, spent)


def _admitted(due: Due, at: float, spent: _Spent) -> Admitted:
    insort(spent.acts, at)
    spent.last[due.key] = (at, at + due.lasts_seconds)
    return Admitted(at)


def _free_at(acts: list[float], most: int, window_seconds: float) -> float:
    """Return from when a budget has room again: when its oldest act that counts is out of the window."""
    if most <= 0:
        return float("inf")
    return acts[-most] + window_seconds if len(acts) >= most else float("-inf")
