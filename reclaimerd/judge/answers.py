"""Ask one rule about one holding process: it holds, it does not, or it can't be known.

A rule of any kind needs a match that is known, an exemption that is known not to apply, and two
sources that agree; `sharing` asks the rules that sum over several processes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.conditions import Condition, DoesNotHold, Holds, UnknownCondition, memory_condition
from reclaimerd.judge.held_conditions import Basis, held_condition
from reclaimerd.judge.selectors import Match, Tri, matches
from reclaimerd.judge.subjects import JudgeContext, Subject
from reclaimerd.judge.unallocated import unallocated_condition
from reclaimerd.model.policy import GpuSpan, Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Holder, Snapshot

Answer = Holds | DoesNotHold | UnknownCondition


@dataclass(frozen=True, slots=True)
class Concerned:
    """On which of its GPUs a rule concerns a process, and why that is unknown for one of them."""

    rows: tuple[Holder, ...]
    unknown: str = ""


def answer_of(rule: Rule, subject: Subject, basis: Basis, context: JudgeContext) -> Answer:
    """Return the answer of a rule that is about single processes."""
    reading = subject.reading
    if reading is None:
        return UnknownCondition(subject.doubt)
    concerned = concerned_of(rule, reading, subject.rows, basis.snapshot, context)
    condition = _condition(rule, reading, concerned.rows, basis)
    if isinstance(condition, Holds):
        backed = _condition(rule, reading, [row for row in concerned.rows if has_two_sources(row)], basis)
        if not isinstance(backed, Holds):
            return DoesNotHold(f"{condition.text}, but only one source shows it")
        condition = backed
    # On one GPU a known excess stands by itself; over all GPUs one unknown part makes the sum unknown.
    if concerned.unknown and (not isinstance(condition, Holds) or rule.span is GpuSpan.ALL):
        return UnknownCondition(concerned.unknown)
    if not concerned.rows:
        return DoesNotHold("the rule does not concern it")
    return condition


def _condition(rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis) -> Condition:
    match rule.kind:
        case RuleKind.MEMORY:
            return memory_condition(rule, rows, basis.snapshot, basis.listed)
        case RuleKind.MEMORY_GROWTH | RuleKind.AGE | RuleKind.IDLE:
            return held_condition(rule, reading, rows, basis)
        case RuleKind.UNALLOCATED:
            return unallocated_condition(rule, reading, rows, basis)
        case RuleKind.FAULT:
            return DoesNotHold("the rule is about GPUs, not processes")
        case _:
            assert_never(rule.kind)


def concerned_of(
    rule: Rule, reading: ProcessReading, held: Iterable[Holder], snapshot: Snapshot, context: JudgeContext
) -> Concerned:
    """Return on which of the GPUs that it holds the rule concerns a process."""
    rows: list[Holder] = []
    unknown: list[str] = []
    for row in held:
        concern = _concern(rule, reading, (row, snapshot), context)
        match concern.answer:
            case Tri.YES:
                rows.append(row)
            case Tri.UNKNOWN:
                unknown.append(concern.text)
            case Tri.NO:
                pass
            case _:
                assert_never(concern.answer)
    return Concerned(tuple(rows), unknown[0] if unknown else "")


def has_two_sources(row: Holder) -> bool:
    """Tell whether NVML and /proc both show that it holds this GPU."""
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
