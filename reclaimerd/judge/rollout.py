"""What enforcing would have done in the time of a record, rule by rule; pure.

It counts, by what the gates said then and by the budgets of the policy in force now. Each rule is looked at
as if it alone enforced: several that enforce together share one budget.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reclaimerd.judge.gate_context import boundary_key, workload_key
from reclaimerd.judge.modes import effective_mode
from reclaimerd.judge.rollout_advice import advice_of
from reclaimerd.judge.rollout_replay import Admitted, Due, Stopped, replayed
from reclaimerd.judge.rollout_targets import TargetStory, Told, name_of
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule, RuleAction
from reclaimerd.model.rollout import Advice, AdviceWord, Fate, LaterStage, RuleReport, Story
from reclaimerd.model.step import ReasonKind

MOST_NAMED = 10
MOST_STORIES = 200
_COUNTERS = frozenset({ReasonKind.BUDGET, ReasonKind.COOL_DOWN})
"""What a dry run spends on targets that an enforcing rule would have ended: counted anew by `replayed`."""
_DAY_SECONDS = 86400.0
AnyRule = Rule | FaultRule


@dataclass(frozen=True, slots=True)
class Period:
    """Which time the records cover; wall-clock seconds."""

    since: float
    until: float

    @property
    def days(self) -> float:
        """Return its length in days."""
        return max(0.0, self.until - self.since) / _DAY_SECONDS


def rollout_of(told: Told, policy: Policy, period: Period) -> tuple[RuleReport, ...]:
    """Return a report on each rule of the policy in its order, and then on those that are gone from it."""
    by_rule: dict[str, list[TargetStory]] = defaultdict(list)
    for story in told.stories.values():
        by_rule[story.rule].append(story)
    rules: tuple[AnyRule, ...] = (*policy.rules, *policy.fault_rules)
    known = {rule.name for rule in rules}
    wanted = [rule for rule in rules if told.only_rule in ("", rule.name)]
    reports = [_report(rule, by_rule[rule.name], told, policy, period) for rule in wanted]
    gone = sorted(name for name in by_rule if name not in known)
    reports += [_without_rule(name, by_rule[name], period) for name in gone]
    return tuple(reports)


def _report(
    rule: AnyRule, stories: Sequence[TargetStory], told: Told, policy: Policy, period: Period
) -> RuleReport:
    mode = effective_mode(policy, rule)
    fates = _fates(rule, stories, policy, period)
    counted = _counted(rule.name, fates, period)
    report = replace(
        counted,
        kind=rule.kind.value,
        mode=mode,
        breaker_trips=_breaker_trips(stories, policy),
        stages=_stages(stories),
        tally=told.tallies.get(rule.name),
    )
    return replace(report, advice=advice_of(report, policy, period.days))


def _without_rule(name: str, stories: Sequence[TargetStory], period: Period) -> RuleReport:
    fates = [_story(story, Fate.ACTED if story.acted_at else Fate.STOPPED, "") for story in stories]
    text = f"{len(fates)} targets are on record, and the policy has no such rule any more"
    return replace(_counted(name, fates, period), advice=Advice(AdviceWord.NOT_IN_POLICY, text))


def _counted(name: str, fates: Sequence[Story], period: Period) -> RuleReport:
    """Return what is counted over a rule's targets."""
    kinds = Counter(story.fate for story in fates)
    return RuleReport(
        rule=name,
        kind="",
        mode=Mode.OBSERVE,
        targets=len(fates),
        incidents=sum(story.incident_count for story in fates),
        per_day=len(fates) / period.days if period.days else 0.0,
        fates=tuple((fate, kinds[fate]) for fate in Fate if kinds[fate]),
        stopped_by=_greatest(kind for story in fates for kind in story.stopped_by),
        held_up_by=_greatest(kind for story in fates for kind in story.held_up_by),
        in_grace=sum(1 for story in fates if story.in_grace),
        longest_wait_seconds=max((story.waits_seconds for story in fates), default=0.0),
        breaker_trips=0,
        stages=(),
        users=_greatest(str(story.uid) for story in fates if story.pid),
        workloads=_greatest(story.workload for story in fates if story.workload),
        tally=None,
        stories=tuple(fates[:MOST_STORIES]),
        advice=Advice(AdviceWord.NEVER_FIRED, ""),
    )


def _greatest(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    counts = Counter(names)
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMED])


def _fates(rule: AnyRule, stories: Sequence[TargetStory], policy: Policy, period: Period) -> list[Story]:
    """Return what enforcing would have meant for each target, in the order in which they were due."""
    set_apart = _set_apart(rule)
    found: list[Story] = []
    waiting: list[tuple[float, TargetStory]] = []
    for story in stories:
        stops = frozenset(story.refused) - set_apart
        at = _due_at(rule, story)
        over = _over_at(story)
        if story.acted_at is None and not story.had_act and stops and not _warned(rule, story):
            text = "; ".join(story.refused[kind] for kind in sorted(stops))
            found.append(replace(_story(story, Fate.STOPPED, text), stopped_by=tuple(sorted(stops))))
        elif story.acted_at is None and over is not None and over < at:
            text = "it was over before anything was due"
            found.append(_story(story, Fate.ENDED_FIRST, text))
        else:
            waiting.append((at, story))
    waiting.sort(key=lambda item: item[0])
    lasts = _grace(rule, policy)
    dues = [_due(story, at, period, lasts) for at, story in waiting]
    answers = replayed(dues, policy) if isinstance(rule, Rule) else [Admitted(due.at) for due in dues]
    for due, (_, story), answer in zip(dues, waiting, answers, strict=True):
        held = tuple(sorted(story.held_up - set_apart))
        found.append(replace(_held_against(story, due, answer), held_up_by=held))
    found.sort(key=lambda story: (story.first_at, story.name))
    return found


def _set_apart(rule: AnyRule) -> frozenset[ReasonKind]:
    """Return which refusals on record count for nothing here: the mode, and what is counted anew.

    Resets have budgets of their own, which no dry run of another target spends.
    """
    return frozenset({ReasonKind.MODE, *_COUNTERS} if isinstance(rule, Rule) else {ReasonKind.MODE})


def _warned(rule: AnyRule, story: TargetStory) -> bool:
    """Tell whether a rule that only warns did, or in a dry run would have done, all that it asks for."""
    return rule.action is RuleAction.WARN and story.warned_at is not None


def _due_at(rule: AnyRule, story: TargetStory) -> float:
    """Return when the first act would have been due, with what held it up besides budgets."""
    if story.acted_at is not None:
        return story.acted_at
    notice = (rule.warn_before_seconds or 0.0) if isinstance(rule, Rule) else 0.0
    at = story.first_at + notice
    if story.dry_at is not None and story.held_up - _set_apart(rule):
        return max(at, story.dry_at)
    return at


def _over_at(story: TargetStory) -> float | None:
    ends = [at for at in (story.gone_at, story.let_go_at) if at is not None]
    return min(ends, default=None)


def _due(story: TargetStory, at: float, period: Period, lasts_seconds: float) -> Due:
    over = _over_at(story)
    until = max(at, period.until if over is None else over)
    return Due(at, until, workload_key(story.target), lasts_seconds, done=story.acted_at is not None)


def _grace(rule: AnyRule, policy: Policy) -> float:
    own = rule.sigterm_seconds
    return policy.ladder.sigterm_seconds if own is None else own


def _held_against(story: TargetStory, due: Due, answer: Admitted | Stopped) -> Story:
    """Return one target's fate by the budgets."""
    if isinstance(answer, Stopped):
        text = f"the {answer.by.replace('_', '-')} leaves no room for it as long as it is there"
        return replace(_story(story, Fate.STOPPED, text), stopped_by=(answer.by.value,))
    if story.acted_at is not None:
        return _story(story, Fate.ACTED, "it was acted on")
    over = _over_at(story)
    in_grace = over is not None and over <= answer.at + due.lasts_seconds
    waits = answer.at - due.at
    text = "it would have been acted on at once"
    if waits > 0:
        text = f"it would have been acted on after {waits:.0f} s"
    if in_grace and over is not None:
        verb = "ended by itself" if over == story.gone_at else "stopped breaking the rule"
        text += f", and it {verb} {max(0.0, over - answer.at):.0f} s later, before the grace was over"
    fate = Fate.LATER if waits > 0 else Fate.AT_ONCE
    return replace(_story(story, fate, text), waits_seconds=max(0.0, waits), in_grace=in_grace)


def _story(story: TargetStory, fate: Fate, text: str) -> Story:
    target = story.target
    return Story(
        name=name_of(target),
        pid=target.root.pid,
        uid=target.uid,
        workload=target.workload.best_name if boundary_key(target.workload) else "",
        command=target.command,
        first_at=story.first_at,
        reason=story.reason,
        fate=fate,
        text=text,
        incidents=tuple(story.incidents),
        incident_count=story.incident_count,
    )


def _stages(stories: Iterable[TargetStory]) -> tuple[LaterStage, ...]:
    """Return what the gates said of each later stage, at each target's first dry run."""
    said: dict[str, list[frozenset[str]]] = defaultdict(list)
    for story in stories:
        for stage, refusing in story.planned.items():
            said[stage].append(refusing)
    return tuple(
        LaterStage(
            stage,
            sum(1 for refusing in answers if not refusing),
            _greatest(gate for refusing in answers for gate in refusing),
        )
        for stage, answers in said.items()
    )


def _breaker_trips(stories: Iterable[TargetStory], policy: Policy) -> int:
    """Return in how many passes more workloads became due at once than the breaker lets pass.

    What one pass opened has one instant on record. The share of the host's GPUs is not on record.
    """
    together: Mapping[float, set[str]] = defaultdict(set)
    for story in stories:
        together[story.first_at].add(workload_key(story.target))
    return sum(1 for keys in together.values() if len(keys) > policy.breaker.workloads_per_pass)
