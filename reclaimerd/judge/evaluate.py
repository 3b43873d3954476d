"""Judge every holder by every rule, and say why; it asks for nothing and acts on nothing.

One verdict for each holding process. RECLAIM needs a rule that holds long enough, a match that is
known, an exemption that is known not to apply, and two sources that agree; any doubt is hands off.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.answers import Answer, answer_of
from reclaimerd.judge.choosing import Candidate, candidate, choose
from reclaimerd.judge.conditions import (
    DoesNotHold,
    Holds,
    RuleAndRef,
    Seen,
    UnknownCondition,
    advance_sustained,
    listed_of,
    sustained_enough,
)
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.series import Past, advance_series
from reclaimerd.judge.sharing import shared_answers
from reclaimerd.judge.subjects import JudgeContext, Subject, subjects_of
from reclaimerd.judge.unallocated import spared_as_given
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule, RuleAction
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling, Sustained, Verdict

__all__ = ["Evaluation", "JudgeContext", "alarms", "effective_mode", "evaluate", "rule_named"]

_MODES = (Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE)
_NOTHING = Past()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One verdict for each holding process, the new memory of what holds, and who only looks protected.

    Who is to be reclaimed comes first, in the order in which they are to go.
    """

    verdicts: tuple[Verdict, ...]
    sustained: tuple[Sustained, ...]
    lookalikes: tuple[tuple[ProcessRef, str], ...] = ()
    past: Past = _NOTHING

    def verdict_of(self, ref: ProcessRef) -> Verdict | None:
        """Return the verdict on exactly this process, or None when it holds nothing."""
        return next((verdict for verdict in self.verdicts if verdict.ref == ref), None)


def effective_mode(policy: Policy, rule: Rule | FaultRule) -> Mode:
    """Return how far a rule may go: the global mode caps its own."""
    return min(policy.mode, rule.mode, key=_MODES.index)


def goes_further(rule: Rule | FaultRule, other: Rule | FaultRule, policy: Policy) -> bool:
    """Tell whether one rule may go further than another: observe, dry run, enforce."""
    first, second = (_MODES.index(effective_mode(policy, one)) for one in (rule, other))
    return first > second


def rule_named(policy: Policy, name: str) -> Rule | FaultRule | None:
    """Return the rule of this name, of whatever kind; names are unique across kinds."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return next((rule for rule in rules if rule.name == name), None)


def alarms(evaluation: Evaluation) -> tuple[str, ...]:
    """Return a sentence for each holder that bears a protected program's name without being it."""
    return tuple(f"pid {ref.pid} {text}" for ref, text in evaluation.lookalikes)


def evaluate(
    snapshot: Snapshot,
    policy: Policy,
    sustained: tuple[Sustained, ...],
    context: JudgeContext,
    past: Past = _NOTHING,
) -> Evaluation:
    """Return the verdicts of this look; `sustained` and `past` are what the last one returned."""
    subjects = subjects_of(snapshot, policy, context)
    series = advance_series(past.series, snapshot, policy.rules, policy.interval_seconds)
    answers = _answers(
        subjects, policy, Basis(snapshot, listed_of(snapshot), series, policy.attribution), context
    )
    seen = Seen(
        holding=frozenset(key for key, answer in answers.items() if isinstance(answer, Holds)),
        unknown=frozenset(key for key, answer in answers.items() if isinstance(answer, UnknownCondition)),
    )
    kept = advance_sustained(sustained, seen, snapshot.at, policy.interval_seconds)
    since = {(item.rule, item.ref): item for item in kept}
    reasons = {
        (rule.name, subject.ref): _rule_reason(rule, subject, policy, (answers, since), snapshot.at)
        for subject in subjects
        for rule in policy.rules
    }
    due = tuple(_candidates(subjects, policy, (answers, reasons), snapshot, context))
    choice = choose(due, past.chosen, seen.holding | seen.unknown)
    reasons.update(choice.put_off)
    verdicts = tuple(_verdict(subject, policy, reasons) for subject in subjects)
    alike = tuple((subject.ref, subject.alike) for subject in subjects if subject.alike)
    return Evaluation(_in_order(verdicts, due), kept, alike, Past(series, choice.chosen))


def _answers(
    subjects: tuple[Subject, ...], policy: Policy, basis: Basis, context: JudgeContext
) -> dict[RuleAndRef, Answer]:
    answers: dict[RuleAndRef, Answer] = {}
    for rule in policy.rules:
        if rule.sums:
            for ref, answer in shared_answers(rule, subjects, basis, context).items():
                answers[rule.name, ref] = answer
        else:
            for subject in subjects:
                answers[rule.name, subject.ref] = answer_of(rule, subject, basis, context)
        for subject in subjects:
            answer = answers[rule.name, subject.ref]
            if isinstance(answer, Holds) and subject.reading is not None:
                answers[rule.name, subject.ref] = spared_as_given(rule, subject.reading, answer, basis)
    return answers


_Found = tuple[Mapping[RuleAndRef, Answer], Mapping[RuleAndRef, RuleReason]]


def _candidates(
    subjects: tuple[Subject, ...], policy: Policy, found: _Found, snapshot: Snapshot, context: JudgeContext
) -> Iterator[tuple[Rule, Candidate]]:
    answers, reasons = found
    for rule in policy.rules:
        for subject in subjects:
            reason, answer = reasons[rule.name, subject.ref], answers[rule.name, subject.ref]
            if reason.ruling is Ruling.RECLAIM and subject.reading is not None and isinstance(answer, Holds):
                one = (subject.reading, reason, answer.excess_bytes)
                yield rule, candidate(rule, one, snapshot, context)


def _in_order(verdicts: tuple[Verdict, ...], due: tuple[tuple[Rule, Candidate], ...]) -> tuple[Verdict, ...]:
    """Return the verdicts, those to be reclaimed first, by priority and then as `choosing` says."""
    order = {(rule.name, one.reading.ref): (0, -rule.priority, *one.order()) for rule, one in due}

    def place(verdict: Verdict) -> tuple[float, ...]:
        is_due = verdict.ruling is Ruling.RECLAIM
        return order[verdict.rule, verdict.ref] if is_due else (1,)

    return tuple(sorted(verdicts, key=place))


_Findings = tuple[Mapping[RuleAndRef, Answer], Mapping[RuleAndRef, Sustained]]


def _verdict(subject: Subject, policy: Policy, found: Mapping[RuleAndRef, RuleReason]) -> Verdict:
    reasons = tuple(found[rule.name, subject.ref] for rule in policy.rules)
    held = tuple(row.gpu for row in subject.rows)
    if subject.spared is not None:
        spared = subject.spared
        return Verdict(subject.ref, Ruling.SPARE, (spared, *reasons), spared.rule, held)
    ranks = {rule.name: rule.priority for rule in policy.rules}
    if subject.doubt:
        reasons = (RuleReason("", Ruling.UNDETERMINED, subject.doubt, held), *reasons)
    reclaim = [reason for reason in reasons if reason.ruling is Ruling.RECLAIM]
    if reclaim:
        decided = max(reclaim, key=lambda reason: (_MODES.index(reason.mode), ranks[reason.rule]))
        return Verdict(subject.ref, Ruling.RECLAIM, reasons, decided.rule, decided.gpus)
    doubtful = any(reason.ruling is Ruling.UNDETERMINED for reason in reasons)
    return Verdict(subject.ref, Ruling.UNDETERMINED if doubtful else Ruling.WATCH, reasons, "", held)


def _rule_reason(
    rule: Rule,
    subject: Subject,
    policy: Policy,
    findings: _Findings,
    now: float,
) -> RuleReason:
    answers, since = findings
    mode = effective_mode(policy, rule)
    match answers[rule.name, subject.ref]:
        case DoesNotHold(text=text):
            return RuleReason(rule.name, Ruling.WATCH, text, mode=mode)
        case UnknownCondition(text=text):
            return RuleReason(rule.name, Ruling.UNDETERMINED, text, mode=mode)
        case Holds(text=text, gpus=gpus):
            kept = since[rule.name, subject.ref]
            ruling, text = _ruling(rule, subject, (text, kept), now)
            return RuleReason(rule.name, ruling, text, gpus, mode, now - kept.since)
        case answer:
            assert_never(answer)


def _ruling(
    rule: Rule,
    subject: Subject,
    holds: tuple[str, Sustained],
    now: float,
) -> tuple[Ruling, str]:
    text, kept = holds
    if subject.spared is not None:
        return Ruling.SPARE, f"{text}; protected: {subject.spared.text}"
    if subject.doubt:
        return Ruling.UNDETERMINED, f"{text}; {subject.doubt}"
    if not sustained_enough(kept, rule, now):
        held = (
            f"{now - kept.since:.0f} of {rule.for_seconds:.0f} s, {kept.readings} of {rule.readings} readings"
        )
        return Ruling.WATCH, f"{text}; so far for {held}"
    if rule.action is RuleAction.OBSERVE:
        return Ruling.WATCH, f"{text}; the rule only observes"
    return Ruling.RECLAIM, text
