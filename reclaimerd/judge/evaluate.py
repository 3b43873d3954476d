"""Judge every holder by every rule, and say why; it asks for nothing and acts on nothing.

One verdict for each holding process. RECLAIM needs a rule that holds long enough, a match that is
known, an exemption that is known not to apply, and two sources that agree; any doubt is hands off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.conditions import (
    DoesNotHold,
    Holds,
    Listed,
    RuleAndRef,
    Seen,
    UnknownCondition,
    advance_sustained,
    listed_of,
    memory_condition,
    sustained_enough,
)
from reclaimerd.judge.exit_path import is_dumping, is_exiting, live_tasks, state_word
from reclaimerd.judge.protections import Ours, exe_doubt, looks_protected, protection_of
from reclaimerd.judge.selectors import Match, Patterns, Tri, matches
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import FaultRule, GpuSpan, Mode, Policy, Rule, RuleAction
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import (
    DriverState,
    Holder,
    Snapshot,
)
from reclaimerd.model.verdict import RuleReason, Ruling, Sustained, Verdict

_MODES = (Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE)


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What judging needs besides the snapshot: ourselves, RE2, and the policy's users as uids."""

    ours: Ours
    patterns: Patterns
    user_ids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One verdict for each holding process, the new memory of what holds, and who only looks protected."""

    verdicts: tuple[Verdict, ...]
    sustained: tuple[Sustained, ...]
    lookalikes: tuple[tuple[ProcessRef, str], ...] = ()

    def verdict_of(self, ref: ProcessRef) -> Verdict | None:
        """Return the verdict on exactly this process, or None when it holds nothing."""
        return next((verdict for verdict in self.verdicts if verdict.ref == ref), None)


def effective_mode(policy: Policy, rule: Rule | FaultRule) -> Mode:
    """Return how far a rule may go: the global mode caps its own."""
    return min(policy.mode, rule.mode, key=_MODES.index)


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
) -> Evaluation:
    """Return the verdicts of this look; `sustained` is what the last one returned."""
    subjects = _subjects(snapshot, policy, context)
    listed = listed_of(snapshot)
    answers = {
        (rule.name, subject.ref): _answer(rule, subject, snapshot, context, listed)
        for subject in subjects
        for rule in policy.rules
    }
    seen = Seen(
        holding=frozenset(key for key, answer in answers.items() if isinstance(answer, Holds)),
        unknown=frozenset(key for key, answer in answers.items() if isinstance(answer, UnknownCondition)),
    )
    kept = advance_sustained(sustained, seen, snapshot.at, policy.interval_seconds)
    since = {(item.rule, item.ref): item for item in kept}
    verdicts = tuple(_verdict(subject, policy, (answers, since), snapshot.at) for subject in subjects)
    alike = tuple((subject.ref, subject.alike) for subject in subjects if subject.alike)
    return Evaluation(verdicts, kept, alike)


@dataclass(frozen=True, slots=True)
class _Subject:
    """One holding process: what spares it, and what forbids a judgement."""

    ref: ProcessRef
    rows: tuple[Holder, ...]
    reading: ProcessReading | None
    spared: RuleReason | None
    doubt: str
    alike: str = ""


def _subjects(snapshot: Snapshot, policy: Policy, context: JudgeContext) -> tuple[_Subject, ...]:
    rows: dict[ProcessRef, list[Holder]] = {}
    for holder in snapshot.holders:
        rows.setdefault(holder.ref, []).append(holder)
    return tuple(_subject(tuple(held), snapshot, policy, context) for held in rows.values())


def _subject(
    rows: tuple[Holder, ...],
    snapshot: Snapshot,
    policy: Policy,
    context: JudgeContext,
) -> _Subject:
    ref = rows[0].ref
    reading = snapshot.process(ref)
    if reading is None:
        why = snapshot.unreadable.get(ref.pid, "it was not seen in this look")
        return _Subject(ref, rows, None, None, f"pid {ref.pid} can't be read: {why}")
    protection = protection_of(reading, host_files=snapshot.host_files, policy=policy, ours=context.ours)
    if protection is not None:
        spared = RuleReason(protection.by, Ruling.SPARE, protection.text, tuple(row.gpu for row in rows))
        return _Subject(ref, rows, reading, spared, "")
    alike = looks_protected(reading, host_files=snapshot.host_files, policy=policy, ours=context.ours)
    doubts = (alike, exe_doubt(reading), _driver_doubt(snapshot), _state_doubt(reading, rows))
    doubt = "; ".join(text for text in doubts if text)
    return _Subject(ref, rows, reading, None, doubt, alike or "")


def _driver_doubt(snapshot: Snapshot) -> str:
    driver = snapshot.driver
    return "" if driver.state is DriverState.RESPONSIVE else f"the driver is {driver.state}: {driver.why}"


def _state_doubt(reading: ProcessReading, rows: tuple[Holder, ...]) -> str:
    if rows[0].remembered and all(row.remembered for row in rows):
        return "it is remembered as a holder, and nothing shows it now"
    # A thread or a leader that ends by itself does not end the process: only all of them together do.
    if all(is_exiting(task) for task in live_tasks(reading)) or is_dumping(reading):
        return f"it is {state_word(reading)} already"
    return ""


Answer = Holds | DoesNotHold | UnknownCondition


def _answer(
    rule: Rule, subject: _Subject, snapshot: Snapshot, context: JudgeContext, listed: Listed
) -> Answer:
    if subject.reading is None:
        return UnknownCondition(subject.doubt)
    concerned: list[Holder] = []
    unknown: list[str] = []
    for row in subject.rows:
        concern = _concern(rule, subject.reading, (row, snapshot), context)
        match concern.answer:
            case Tri.YES:
                concerned.append(row)
            case Tri.UNKNOWN:
                unknown.append(concern.text)
            case Tri.NO:
                pass
            case _:
                assert_never(concern.answer)
    condition = memory_condition(rule, concerned, snapshot, listed)
    if isinstance(condition, Holds):
        backed = memory_condition(rule, [row for row in concerned if _has_two_sources(row)], snapshot, listed)
        if not isinstance(backed, Holds):
            return DoesNotHold(f"{condition.text}, but only one source shows it")
        condition = backed
    # On one GPU a known excess stands by itself; over all GPUs one unknown part makes the sum unknown.
    if unknown and (not isinstance(condition, Holds) or rule.span is GpuSpan.ALL):
        return UnknownCondition(unknown[0])
    if not concerned:
        return DoesNotHold("the rule does not concern it")
    return condition


def _has_two_sources(row: Holder) -> bool:
    return row.node and (row.listed or row.heir_of is not None)


def _concern(
    rule: Rule,
    reading: ProcessReading,
    where: tuple[Holder, Snapshot],
    context: JudgeContext,
) -> Match:
    row, snapshot = where
    gpu = snapshot.gpu(row.gpu)
    wanted = matches(rule.match, reading, gpu, context.patterns, context.user_ids)
    if rule.exempt.is_empty or wanted.answer is Tri.NO:
        return wanted
    exempt = matches(rule.exempt, reading, gpu, context.patterns, context.user_ids)
    match exempt.answer:
        case Tri.YES:
            return Match(Tri.NO, exempt.fields)
        case Tri.UNKNOWN:
            return Match(Tri.UNKNOWN, exempt.fields, f"the exemption {exempt.text}")
        case Tri.NO:
            return wanted
        case _:
            assert_never(exempt.answer)


_Findings = tuple[Mapping[RuleAndRef, Answer], Mapping[RuleAndRef, Sustained]]


def _verdict(subject: _Subject, policy: Policy, findings: _Findings, now: float) -> Verdict:
    reasons = tuple(_rule_reason(rule, subject, policy, findings, now) for rule in policy.rules)
    held = tuple(row.gpu for row in subject.rows)
    if subject.spared is not None:
        spared = subject.spared
        return Verdict(subject.ref, Ruling.SPARE, (spared, *reasons), spared.rule, held)
    if subject.doubt:
        reasons = (RuleReason("", Ruling.UNDETERMINED, subject.doubt, held), *reasons)
    reclaim = [reason for reason in reasons if reason.ruling is Ruling.RECLAIM]
    if reclaim:
        decided = max(reclaim, key=lambda reason: _MODES.index(reason.mode))
        return Verdict(subject.ref, Ruling.RECLAIM, reasons, decided.rule, decided.gpus)
    doubtful = any(reason.ruling is Ruling.UNDETERMINED for reason in reasons)
    return Verdict(subject.ref, Ruling.UNDETERMINED if doubtful else Ruling.WATCH, reasons, "", held)


def _rule_reason(
    rule: Rule,
    subject: _Subject,
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
    subject: _Subject,
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
