"""Rules and the kubelet's list: who was not given what it holds, and whom a memory rule must leave alone.

UNKNOWN holds for nobody. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.conditions import Condition, DoesNotHold, Holds, UnknownCondition
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.model.allocation import Allocation, AllocationRuling, AllocationTerms
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.policy import AttributionSettings, GpuSpan, Rule, RuleKind
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.snapshot import Holder, Snapshot

OF_MEMORY = frozenset({RuleKind.MEMORY, RuleKind.MEMORY_GROWTH})
"""Kinds of rules that say how much anybody may fill of a GPU."""


def terms_of(rule: Rule | None, settings: AttributionSettings) -> AllocationTerms:
    """Return what a rule counts as given; None are the terms of everybody who only wants to know."""
    terms = AllocationTerms(
        spared_namespaces=settings.system_namespaces,
        stale_seconds=2 * settings.refresh_seconds,
        steady_seconds=settings.steady_seconds,
    )
    if rule is None:
        return terms
    return replace(
        terms, pod_shares=rule.pod_shares, static_pods=rule.static_pods, outside_pods=rule.outside_pods
    )


def unallocated_condition(
    rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis
) -> Condition:
    """Return whether one process holds GPUs that it was not given.

    `rows` are those that the rule concerns.
    """
    snapshot, terms = basis.snapshot, terms_of(rule, basis.attribution)
    answers = [(row, allocation_of(reading, row.gpu, snapshot, snapshot.at, terms)) for row in rows]
    taken = [(row, answer) for row, answer in answers if answer.ruling is AllocationRuling.UNALLOCATED]
    if taken:
        text = "; ".join(f"{answer.text}, and it holds {row.gpu}" for row, answer in taken)
        excess = sum(row.used_bytes.value for row, _ in taken if isinstance(row.used_bytes, Known))
        return Holds(text, tuple(row.gpu for row, _ in taken), excess)
    unknown = [answer for _, answer in answers if answer.ruling is not AllocationRuling.ALLOWED]
    if unknown:
        return UnknownCondition(f"whether it was given its GPU is not known: {unknown[0].text}")
    return DoesNotHold("; ".join(answer.text for _, answer in answers) or "the rule does not concern it")


def spared_as_given(rule: Rule, reading: ProcessReading, condition: Holds, basis: Basis) -> Condition:
    """Return what is left of a condition without the GPUs that the process was given for itself alone.

    Only rules about memory leave something out: what a pod fills a GPU of its own with is its own affair,
    unless the rule says `even_if_allocated`. In a pod where that can't be known the condition is unknown.
    """
    if not _leaves_alone(rule, reading):
        return condition
    snapshot, terms = basis.snapshot, terms_of(None, basis.attribution)
    answers = {gpu: allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in condition.gpus}
    own = [gpu for gpu, answer in answers.items() if answer.exclusive]
    doubt = next((one.text for one in answers.values() if one.ruling is AllocationRuling.UNKNOWN), "")
    left = tuple(gpu for gpu in condition.gpus if gpu not in own)
    if not left or (own and rule.span is GpuSpan.ALL):
        return DoesNotHold(f"{condition.text}; but {answers[own[0]].text}, and nobody else was")
    if doubt:
        return UnknownCondition(f"{condition.text}; whether it has the GPU for itself is not known: {doubt}")
    return replace(condition, gpus=left)


def counted_rows(
    rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis
) -> tuple[Holder, ...]:
    """Return what counts of a process in a sum: not what it has, or may have, for itself alone."""
    if not _leaves_alone(rule, reading):
        return tuple(rows)
    snapshot, terms = basis.snapshot, terms_of(None, basis.attribution)
    answers = [(row, allocation_of(reading, row.gpu, snapshot, snapshot.at, terms)) for row in rows]
    return tuple(row for row, one in answers if not (one.exclusive or one.ruling is AllocationRuling.UNKNOWN))


def _leaves_alone(rule: Rule, reading: ProcessReading) -> bool:
    """Tell whether a rule leaves alone what this process was given for itself."""
    return rule.kind in OF_MEMORY and not rule.even_if_allocated and reading.workload.kind is WorkloadKind.POD


def allocations_for(
    rule: Rule | None,
    settings: AttributionSettings,
    reading: ProcessReading,
    gpus: Sequence[GpuUuid],
    snapshot: Snapshot,
) -> tuple[tuple[GpuUuid, Allocation], ...]:
    """Return the answer for each of these GPUs, by the rule's terms; none on a host without a kubelet."""
    if isinstance(snapshot.allocations, Absent):
        return ()
    terms = terms_of(rule, settings)
    return tuple((gpu, allocation_of(reading, gpu, snapshot, snapshot.at, terms)) for gpu in gpus)


def evidence_lines(answers: Sequence[tuple[GpuUuid, Allocation]]) -> tuple[str, ...]:
    """Return what the record keeps of these answers, a line each, none twice."""
    lines = [
        line
        for gpu, answer in answers
        for line in (f"{gpu}: {_word(answer)}: {answer.text}", *answer.evidence)
    ]
    return tuple(dict.fromkeys(lines))


def _word(answer: Allocation) -> str:
    match answer.ruling:
        case AllocationRuling.ALLOWED:
            return "allocated for itself alone" if answer.exclusive else "allocated"
        case AllocationRuling.UNALLOCATED:
            return "not allocated"
        case AllocationRuling.UNKNOWN | AllocationRuling.LINGERING | AllocationRuling.ENDING:
            return f"allocation {answer.ruling}"
        case ruling:
            assert_never(ruling)
