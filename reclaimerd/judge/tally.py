"""What the rules said in one look, one word for each process that a rule concerns or may concern; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from reclaimerd.judge.concern import Kept
from reclaimerd.judge.conditions import RuleAndRef
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.verdict import RuleReason, Ruling, Verdict


class RuleWord(StrEnum):
    """What a rule said of one process in one look."""

    DUE = "due"
    SPARED = "spared"
    LEFT_ALONE = "left_alone"
    UNDETERMINED = "undetermined"
    HOLDING = "holding"
    """Its condition held, and it asks for nothing (yet)."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class RuleAnswer:
    """One rule's word on one process."""

    rule: str
    ref: ProcessRef
    word: RuleWord


def rule_answers(evaluation: Evaluation) -> Iterator[RuleAnswer]:
    """Yield what each rule said of each holder that it concerns, or may; of who can't be read, each rule."""
    holding = {(kept.rule, kept.ref) for kept in evaluation.sustained}
    rules = evaluation.past.concerns.rules
    for verdict in evaluation.verdicts:
        reasons = _own(verdict, len(rules))
        for place in _places(evaluation.past.concerns.by_ref[verdict.ref]):
            reason = reasons[place]
            yield RuleAnswer(reason.rule, verdict.ref, _word(reason, verdict.ref, evaluation, holding))


def _places(kept: Kept) -> Sequence[int]:
    """Return the places of the rules that were asked: there may be hundreds that concern nobody here."""
    unread = bool(kept.reasons) and kept.reasons[0].ruling is Ruling.UNDETERMINED
    return range(len(kept.reasons)) if unread else [concern.place for concern in kept.concerns]


def _own(verdict: Verdict, rules: int) -> tuple[RuleReason, ...]:
    """Return the rules' own reasons: one each, in the policy's order, after what is said of all."""
    return verdict.reasons[len(verdict.reasons) - rules :]


def _word(reason: RuleReason, ref: ProcessRef, evaluation: Evaluation, holding: set[RuleAndRef]) -> RuleWord:
    match reason.ruling:
        case Ruling.RECLAIM:
            return RuleWord.DUE
        case Ruling.SPARE:
            return RuleWord.SPARED
        case Ruling.UNDETERMINED:
            return RuleWord.UNDETERMINED
        case Ruling.WATCH:
            if (reason.rule, ref) in evaluation.held_back:
                return RuleWord.LEFT_ALONE
            return RuleWord.HOLDING if (reason.rule, ref) in holding else RuleWord.NO
        case _:
            assert_never(reason.ruling)
