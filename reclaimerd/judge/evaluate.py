"""Judge every holder by every rule, and say why; it asks for nothing and acts on nothing.

One verdict for each holding process. RECLAIM needs a rule that holds long enough, a match that is
known, an exemption that is known not to apply, and two sources that agree; any doubt is hands off.
What is said of the rules that do not concern a process is kept from look to look (`concern`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import assert_never

from reclaimerd.judge.answers import Answer, Concerned, answer_of, concerned_of
from reclaimerd.judge.choosing import Candidate, candidate, choose
from reclaimerd.judge.concern import Concerns, concerns_of
from reclaimerd.judge.conditions import (
    DoesNotHold,
    Holds,
    RuleAndRef,
    Seen,
    UnknownCondition,
    advance_sustained,
    listed_of,
)
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.modes import MODES, effective_mode, goes_further, rule_named
from reclaimerd.judge.rule_changes import started_anew
from reclaimerd.judge.rulings import HeldBack, HoldingBack, Pair, alarms_of, ruling_of
from reclaimerd.judge.series import Past, advance_series
from reclaimerd.judge.sharing import shared_answers
from reclaimerd.judge.subjects import JudgeContext, Subject, subjects_of
from reclaimerd.judge.unallocated import spared_as_given
from reclaimerd.judge.windows import shut_rules
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Mode, Policy, Rule, RuleAction
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling, Sustained, Verdict

__all__ = [
    "Evaluation", "JudgeContext", "alarms", "effective_mode", "evaluate", "goes_further", "rule_named",
]  # fmt: skip

_NOTHING = Past()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One verdict for each holding process, the new memory of what holds, and who only looks protected.

    Who is to be reclaimed comes first, in the order in which they are to go. `held_back`: whom a rule
    would take and must leave alone.
    """

    verdicts: tuple[Verdict, ...]
    sustained: tuple[Sustained, ...]
    lookalikes: tuple[tuple[ProcessRef, str], ...] = ()
    past: Past = _NOTHING
    held_back: Mapping[RuleAndRef, HeldBack] = field(default_factory=dict)

    def verdict_of(self, ref: ProcessRef) -> Verdict | None:
        """Return the verdict on exactly this process, or None when it holds nothing."""
        return next((verdict for verdict in self.verdicts if verdict.ref == ref), None)


_Reasoned = tuple[Pair, RuleReason]


def alarms(evaluation: Evaluation) -> tuple[str, ...]:
    """Return a sentence for each holder that bears a protected program's name without being it.

    And one for each large workload that an acting rule holds for and leaves alone.
    """
    alike = tuple(f"pid {ref.pid} {text}" for ref, text in evaluation.lookalikes)
    return (*alike, *alarms_of(evaluation.held_back))


def evaluate(
    snapshot: Snapshot,
    policy: Policy,
    sustained: tuple[Sustained, ...],
    context: JudgeContext,
    past: Past = _NOTHING,
) -> Evaluation:
    """Return the verdicts of this look; `sustained` and `past` are what the last one returned."""
    sustained, past = started_anew(sustained, past, policy.rules)
    subjects = subjects_of(snapshot, policy, context)
    series = advance_series(past.series, snapshot, policy.rules, policy.interval_seconds)
    basis = Basis(snapshot, listed_of(snapshot), series, policy.attribution, policy.miner)
    concerns = concerns_of(subjects, policy, snapshot, context, past.concerns)
    shut = shut_rules(policy.rules, snapshot.taken_at)
    pairs = tuple(_pairs(subjects, policy.rules, concerns, shut, basis))
    seen = _seen(pairs, _blind_keys(subjects, (policy, shut), sustained, past))
    kept = advance_sustained(sustained, seen, snapshot.at, policy.interval_seconds)
    back = HoldingBack(snapshot, policy)
    since = {(item.rule, item.ref): item for item in kept}
    modes = [reason.mode for reason in concerns.apart]
    reasoned = [(pair, _reason(pair, modes[pair.place], since, snapshot.at, back)) for pair in pairs]
    due = tuple(_candidates(reasoned, snapshot, context))
    choice = choose(due, past.chosen, seen.holding | seen.unknown)
    if choice.put_off:
        reasoned = [(pair, choice.put_off.get(pair.key, reason)) for pair, reason in reasoned]
    verdicts = tuple(_verdicts(subjects, reasoned, concerns, shut))
    alike = tuple((subject.ref, subject.alike) for subject in subjects if subject.alike)
    after = replace(past, series=series, chosen=choice.chosen, concerns=concerns)
    return Evaluation(_in_order(verdicts, due), kept, alike, after, back.found)


def _pairs(
    subjects: Sequence[Subject],
    rules: Sequence[Rule],
    concerns: Concerns,
    shut: Mapping[str, str],
    basis: Basis,
) -> Iterator[Pair]:
    """Yield each rule's answer on each process that was read and that it concerns or may concern."""
    summed = _summed(subjects, rules, concerns, basis)
    for subject in subjects:
        if subject.reading is None:
            continue
        whole = Concerned(subject.rows)
        for concern in concerns.by_ref[subject.ref].concerns:
            rule = rules[concern.place]
            if rule.name in shut:
                answer: Answer = DoesNotHold(shut[rule.name])
            elif concern.place in concerns.summing:
                answer = summed[rule.name][subject.ref]
            else:
                answer = answer_of(rule, subject.reading, concerned_of(concern, whole), basis)
            if isinstance(answer, Holds):
                answer = spared_as_given(rule, subject.reading, answer, basis)
            yield Pair(rule, concern.place, subject, subject.reading, answer)


def _summed(
    subjects: Iterable[Subject], rules: Sequence[Rule], concerns: Concerns, basis: Basis
) -> dict[str, Mapping[ProcessRef, Answer]]:
    """Return the answers of the rules that sum over several processes."""
    asked: dict[int, list[tuple[Subject, Concerned]]] = {place: [] for place in concerns.summing}
    for subject in subjects if asked else ():
        for concern in concerns.by_ref[subject.ref].concerns:
            if concern.place in asked:
                concerned = concerned_of(concern, Concerned(subject.rows))
                asked[concern.place].append((subject, concerned))
    return {
        rules[place].name: shared_answers(rules[place], several, basis) for place, several in asked.items()
    }


def _blind_keys(
    subjects: Iterable[Subject],
    rules: tuple[Policy, Mapping[str, str]],
    sustained: Iterable[Sustained],
    past: Past,
) -> frozenset[RuleAndRef]:
    """Return what was known before of those who can't be read now: no rule can tell of them."""
    blind = {subject.ref for subject in subjects if subject.reading is None}
    if not blind:
        return frozenset()
    policy, shut = rules
    open_rules = {rule.name for rule in policy.rules} - shut.keys()
    kept = ((item.rule, item.ref) for item in sustained)
    chosen = ((rule, ref) for (rule, _), ref in past.chosen.items())
    return frozenset((rule, ref) for rule, ref in (*kept, *chosen) if ref in blind and rule in open_rules)


def _seen(pairs: Iterable[Pair], blind: frozenset[RuleAndRef]) -> Seen:
    holding: set[RuleAndRef] = set()
    unknown: set[RuleAndRef] = set()
    for pair in pairs:
        if isinstance(pair.answer, Holds):
            holding.add(pair.key)
        elif isinstance(pair.answer, UnknownCondition):
            unknown.add(pair.key)
    return Seen(frozenset(holding), blind | unknown)


def _candidates(
    reasoned: Iterable[_Reasoned], snapshot: Snapshot, context: JudgeContext
) -> Iterator[tuple[Rule, Candidate]]:
    for pair, reason in reasoned:
        if reason.ruling is Ruling.RECLAIM and isinstance(pair.answer, Holds):
            found = (pair.reading, reason, pair.answer.excess_bytes)
            yield pair.rule, candidate(pair.rule, found, snapshot, context)


def _in_order(verdicts: tuple[Verdict, ...], due: tuple[tuple[Rule, Candidate], ...]) -> tuple[Verdict, ...]:
    """Return the verdicts, those to be reclaimed first, by priority and then as `choosing` says."""
    order = {(rule.name, one.reading.ref): (0, -rule.priority, *one.order()) for rule, one in due}

    def place(verdict: Verdict) -> tuple[float, ...]:
        is_due = verdict.ruling is Ruling.RECLAIM
        return order[verdict.rule, verdict.ref] if is_due else (1,)

    return tuple(sorted(verdicts, key=place))


def _verdicts(
    subjects: Iterable[Subject], reasoned: Iterable[_Reasoned], concerns: Concerns, shut: Mapping[str, str]
) -> Iterator[Verdict]:
    live = {ref: list(own) for ref, own in groupby(reasoned, lambda one: one[0].subject.ref)}
    for subject in subjects:
        own = live.get(subject.ref, [])
        reasons = list(concerns.by_ref[subject.ref].reasons)
        for pair, reason in own:
            reasons[pair.place] = reason
        if subject.reading is None and shut:
            reasons = [_unless_shut(reason, shut) for reason in reasons]
        yield _verdict(subject, own, tuple(reasons))


def _unless_shut(reason: RuleReason, shut: Mapping[str, str]) -> RuleReason:
    text = shut.get(reason.rule)
    return reason if text is None else replace(reason, ruling=Ruling.WATCH, text=text)


def _verdict(subject: Subject, own: Sequence[_Reasoned], reasons: tuple[RuleReason, ...]) -> Verdict:
    """Return the verdict; `own` are the rules that concern it, `reasons` what is said of all."""
    held = tuple(row.gpu for row in subject.rows)
    if subject.spared is not None:
        spared = subject.spared
        return Verdict(subject.ref, Ruling.SPARE, (spared, *reasons), spared.rule, held)
    if subject.doubt:
        reasons = (RuleReason("", Ruling.UNDETERMINED, subject.doubt, held), *reasons)
    reclaim = [one for one in own if one[1].ruling is Ruling.RECLAIM]
    if reclaim:
        _, decided = max(reclaim, key=_reach)
        return Verdict(subject.ref, Ruling.RECLAIM, reasons, decided.rule, decided.gpus)
    doubtful = subject.doubt or any(reason.ruling is Ruling.UNDETERMINED for _, reason in own)
    return Verdict(subject.ref, Ruling.UNDETERMINED if doubtful else Ruling.WATCH, reasons, "", held)


def _reach(one: _Reasoned) -> tuple[int, bool, int]:
    """Return how far a rule goes that asks for an act: a mere warning stands behind what reclaims."""
    concern, reason = one
    rule = concern.rule
    return MODES.index(reason.mode), rule.action is RuleAction.RECLAIM, rule.priority


def _reason(
    pair: Pair,
    mode: Mode,
    since: Mapping[RuleAndRef, Sustained],
    now: float,
    back: HoldingBack,
) -> RuleReason:
    name = pair.rule.name
    match pair.answer:
        case DoesNotHold(text=text):
            return RuleReason(name, Ruling.WATCH, text, mode=mode)
        case UnknownCondition(text=text):
            return RuleReason(name, Ruling.UNDETERMINED, text, mode=mode)
        case Holds(text=text, gpus=gpus):
            kept = since[pair.key]
            ruling, text = ruling_of(pair, text, kept, now, back)
            return RuleReason(name, ruling, text, gpus, mode, now - kept.since)
        case answer:
            assert_never(answer)
