"""Choose among several who break a rule: never simply the first that was listed.

Higher priority first, then whom `avoid` does not name, then the largest excess, then the youngest: the
least work is lost with it. Of a workload or user that is over a cap together one goes at a time, and it
stays the one until it is gone. Pure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from reclaimerd.judge.conditions import RuleAndRef
from reclaimerd.judge.selectors import digest_of, matches
from reclaimerd.judge.sharing import group_of
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.tri import Tri
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Rule
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process that a rule would take now."""

    reading: ProcessReading
    reason: RuleReason
    avoided: bool
    excess_bytes: int

    def order(self) -> tuple[bool, int, float, int]:
        """Return what sorts candidates: whom to take first comes first."""
        return (self.avoided, -self.excess_bytes, self.reading.age_seconds, self.reading.ref.pid)


Chosen = Mapping[tuple[str, str], ProcessRef]


@dataclass(frozen=True, slots=True)
class Choice:
    """What becomes of the candidates of all rules: those put off with why, and whom each group gives."""

    put_off: Mapping[tuple[str, ProcessRef], RuleReason]
    chosen: Chosen


def candidate(
    rule: Rule, found: tuple[ProcessReading, RuleReason, int], snapshot: Snapshot, context: JudgeContext
) -> Candidate:
    """Return a candidate; one of whom can't be known whether `avoid` names him counts as avoided."""
    reading, reason, excess_bytes = found
    avoided = not rule.avoid.is_empty and any(
        matches(rule.avoid, reading, snapshot.gpu(gpu), context, digest_of(reading, snapshot)).answer
        is not Tri.NO
        for gpu in reason.gpus
    )
    return Candidate(reading, reason, avoided, excess_bytes)


def choose(
    candidates: Iterable[tuple[Rule, Candidate]], before: Chosen, standing: frozenset[RuleAndRef]
) -> Choice:
    """Return who has to wait, and whom each group gives; `before` is what the last look chose.

    `standing`: of whom a rule is not known to have ceased to hold. Such a one stays the chosen one, also
    while he is no candidate: a look that can't tell must not make another go as well.
    """
    put_off: dict[tuple[str, ProcessRef], RuleReason] = {}
    chosen = {(rule, group): ref for (rule, group), ref in before.items() if (rule, ref) in standing}
    by_rule: dict[str, tuple[Rule, list[Candidate]]] = {}
    for rule, one in candidates:
        by_rule.setdefault(rule.name, (rule, []))[1].append(one)
    for rule, several in by_rule.values():
        due = sorted(several, key=Candidate.order)
        if rule.sums:
            due = _one_of_each(rule, due, chosen, _put_off(rule, put_off))
        if any(not one.avoided for one in due):
            for one in [one for one in due if one.avoided]:
                _put_off(rule, put_off)(
                    one, f"avoided while pid {due[0].reading.ref.pid} and others are there"
                )
    return Choice(put_off, chosen)


PutOff = Callable[[Candidate, str], None]


def _put_off(rule: Rule, into: dict[tuple[str, ProcessRef], RuleReason]) -> PutOff:
    def put_off(one: Candidate, why: str) -> None:
        text = f"{one.reason.text}; {why}"
        into[rule.name, one.reading.ref] = replace(one.reason, ruling=Ruling.WATCH, text=text)

    return put_off


def _one_of_each(
    rule: Rule,
    due: list[Candidate],
    chosen: dict[tuple[str, str], ProcessRef],
    put_off: PutOff,
) -> list[Candidate]:
    """Return one candidate of each group, who is noted in `chosen`: whoever was before, else the first."""
    groups: dict[str, list[Candidate]] = {}
    for one in due:
        groups.setdefault(group_of(rule, one.reading), []).append(one)
    first: list[Candidate] = []
    for group, several in groups.items():
        taken = chosen.setdefault((rule.name, group), several[0].reading.ref)
        for one in several:
            if one.reading.ref == taken:
                first.append(one)
            else:
                put_off(one, f"pid {taken.pid} goes first")
    return sorted(first, key=Candidate.order)
