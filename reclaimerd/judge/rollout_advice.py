"""One plain line of advice on a rule, with its reason in figures; pure.

It is advice: whoever reads it knows their hosts. The limits stand here, each with why.
"""

from collections.abc import Iterator

from reclaimerd.model.policy import Mode, Policy
from reclaimerd.model.rollout import Advice, AdviceWord, Fate, RuleReport

UNDETERMINED_SHARE = 0.2
"""Where every fifth look can't be judged, most of a rule's work is not seen at all."""
EXEMPTION_SHARE = 0.5
EXEMPTION_TARGETS = 3
"""Half of all targets, and at least three, of one user or workload: they are whom it is meant for, or not."""
NOISE_SHARE = 0.25
"""A quarter of all targets without room in the budgets: the rule asks for more than it may ever do."""
GRACE_SHARE = 0.75
"""Three of four ended by themselves within the grace: a rule would gain the few seconds until then."""
STOPPED_SHARE = 0.5
SHORT_DAYS = 2.0
"""A host's week has days and nights and a weekend: less than two days say little."""
_ROOT = "0"
"""Containers mostly run as it: that says nothing of who it was."""
_COUNTERS = frozenset({"budget", "cool_down"})


def advice_of(report: RuleReport, policy: Policy, days: float) -> Advice:
    """Return the first advice that the figures call for, the most serious first."""
    return next(_found(report, policy, days))


def _found(report: RuleReport, policy: Policy, days: float) -> Iterator[Advice]:
    figures = _figures(report, days)
    share = undetermined_share(report)
    if share is not None and share >= UNDETERMINED_SHARE:
        yield Advice(
            AdviceWord.CAN_NOT_TELL, f"{100 * share:.0f} % of its looks were undetermined; {figures}"
        )
    if days < SHORT_DAYS and report.mode is not Mode.ENFORCE:
        yield Advice(
            AdviceWord.TOO_SHORT, f"the record covers {days:.1f} days, wait for {SHORT_DAYS:.0f}; {figures}"
        )
    if not report.targets:
        yield Advice(AdviceWord.NEVER_FIRED, _never(report, days))
    yield from _exemption(report, figures)
    yield from _noise(report, policy, figures)
    if report.in_grace >= GRACE_SHARE * report.targets:
        text = (
            f"{report.in_grace} of {report.targets} ended by themselves before the grace was over; {figures}"
        )
        yield Advice(AdviceWord.GAINS_NOTHING, text)
    stopped = report.count(Fate.STOPPED)
    if stopped >= STOPPED_SHARE * report.targets:
        by = ", ".join(f"{kind} {count}" for kind, count in report.stopped_by)
        yield Advice(
            AdviceWord.STOPPED, f"{stopped} of {report.targets} would have been stopped ({by}); {figures}"
        )
    if report.mode is Mode.ENFORCE:
        yield Advice(AdviceWord.ENFORCES, figures)
    yield Advice(AdviceWord.READY, figures)


def undetermined_share(report: RuleReport) -> float | None:
    """Return which share of a rule's looks at processes could not be judged; None where none was counted."""
    tally = report.tally
    return None if tally is None or not tally.looks else tally.undetermined / tally.looks


def _figures(report: RuleReport, days: float) -> str:
    """Return what the advice goes by, in one clause."""
    done = report.count(Fate.ACTED)
    would = report.count(Fate.AT_ONCE) + report.count(Fate.LATER)
    parts = [f"{report.targets} targets in {days:.1f} days"]
    if done:
        parts.append(f"{done} acted on")
    if would or not done:
        parts.append(f"{would} would have been acted on")
    parts.append(f"{report.count(Fate.STOPPED)} stopped")
    share = undetermined_share(report)
    parts.append(
        "undetermined share not counted yet" if share is None else f"{100 * share:.1f} % undetermined"
    )
    return ", ".join(parts)


def _never(report: RuleReport, days: float) -> str:
    tally = report.tally
    if tally is None:
        return f"no target in {days:.1f} days, and no look was counted"
    spared = f", {tally.spared_processes} protected processes broke it" if tally.spared_processes else ""
    alone = f", {tally.left_alone_processes} of large workloads were left alone" if tally.left_alone else ""
    return f"no target in {days:.1f} days and {tally.looks} looks at processes{spared}{alone}"


def _exemption(report: RuleReport, figures: str) -> Iterator[Advice]:
    """Yield the one workload or user that makes up most of the targets; root is nobody."""
    users = tuple(pair for pair in report.users if pair[0] != _ROOT)
    for what, names in (("workload", report.workloads), ("uid", users)):
        name, count = names[0] if names else ("", 0)
        if count >= EXEMPTION_TARGETS and count >= EXEMPTION_SHARE * report.targets:
            who = f"{count} of {report.targets} targets are {what} {name}"
            text = f"{who}: exempt it, or it is whom the rule is for; {figures}"
            yield Advice(AdviceWord.NEEDS_EXEMPTION, text)


def _noise(report: RuleReport, policy: Policy, figures: str) -> Iterator[Advice]:
    per_day = policy.budgets.workloads_per_day
    counters = sum(count for kind, count in report.stopped_by if kind in _COUNTERS)
    why = []
    if report.breaker_trips:
        why.append(f"the breaker would have tripped {report.breaker_trips} times")
    if report.per_day > per_day:
        why.append(f"{report.per_day:.1f} targets a day, and the budget is {per_day}")
    if counters >= NOISE_SHARE * report.targets:
        why.append(f"{counters} of {report.targets} without room in budget or cool-down")
    if why:
        yield Advice(AdviceWord.TOO_NOISY, f"{', '.join(why)}; {figures}")
