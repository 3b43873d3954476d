"""Rules about who was given what: who was not, who outstays its end, and whom a memory rule leaves alone.

UNKNOWN and ENDING hold for nobody. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.conditions import Condition, DoesNotHold, Holds, UnknownCondition
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.lingering import ending_of
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
        terms,
        pod_shares=rule.pod_shares,
        static_pods=rule.static_pods,
        outside_pods=rule.outside_pods,
        outside_jobs=rule.outside_jobs,
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
        return Holds(text, tuple(row.gpu for row, _ in taken), _used_bytes([row for row, _ in taken]))
    unknown = [answer for _, answer in answers if answer.ruling is AllocationRuling.UNKNOWN]
    if unknown:
        return UnknownCondition(f"whether it was given its GPU is not known: {unknown[0].text}")
    texts = dict.fromkeys(answer.text for _, answer in answers)
    return DoesNotHold("; ".join(texts) or "the rule does not concern it")


def lingering_condition(
    rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis
) -> Condition:
    """Return whether a process outstays the end of its pod or job by more than its owner's own deadline."""
    if not rows:
        return DoesNotHold("the rule does not concern it")
    ending = ending_of(reading, basis.snapshot, terms_of(rule, basis.attribution))
    if ending is None:
        return DoesNotHold("its pod or job runs, or it belongs to none")
    match ending.ruling:
        case AllocationRuling.LINGERING:
            return Holds(ending.text, tuple(row.gpu for row in rows), _used_bytes(rows))
        case AllocationRuling.UNKNOWN:
            return UnknownCondition(f"whether its pod or job ended is not known: {ending.text}")
        case _:
            return DoesNotHold(ending.text)


def _used_bytes(rows: Sequence[Holder]) -> int:
    """Return what these rows are known to hold."""
    return sum(row.used_bytes.value for row in rows if isinstance(row.used_bytes, Known))


def is_in_doubt(answer: Allocation) -> bool:
    """Tell whether a rule about memory can't know who has the GPU: also of one that ends, or should have."""
    return answer.ruling not in {AllocationRuling.ALLOWED, AllocationRuling.UNALLOCATED}


def spared_as_given(rule: Rule, reading: ProcessReading, condition: Holds, basis: Basis) -> Condition:
    """Return what is left of a condition without the GPUs that the process was given for itself alone.

    Only rules about memory leave something out: what a pod or job fills a GPU of its own with is its own
    affair, unless the rule says `even_if_allocated`. Where that can't be known the condition is unknown.
    """
    if not leaves_alone(rule, reading, basis.snapshot):
        return condition
    snapshot, terms = basis.snapshot, terms_of(None, basis.attribution)
    answers = {gpu: allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in condition.gpus}
    own = [gpu for gpu, answer in answers.items() if answer.exclusive]
    doubt = next((one.text for one in answers.values() if is_in_doubt(one)), "")
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
    if not leaves_alone(rule, reading, basis.snapshot):
        return tuple(rows)
    snapshot, terms = basis.snapshot, terms_of(None, basis.attribution)
    answers = [(row, allocation_of(reading, row.gpu, snapshot, snapshot.at, terms)) for row in rows]
    return tuple(row for row, one in answers if not (one.exclusive or is_in_doubt(one)))


def leaves_alone(rule: Rule, reading: ProcessReading, snapshot: Snapshot) -> bool:
    """Tell whether a rule leaves alone what this process was given for itself.

    A job counts where Slurm is asked at all; in a pod that nobody can be asked about nothing is known.
    """
    if rule.kind not in OF_MEMORY or rule.even_if_allocated:
        return False
    of_job = reading.workload.kind is WorkloadKind.SLURM_JOB and not isinstance(snapshot.slurm, Absent)
    return of_job or reading.workload.kind is WorkloadKind.POD


def allocations_for(
    rule: Rule | None,
    settings: AttributionSettings,
    reading: ProcessReading,
    gpus: Sequence[GpuUuid],
    snapshot: Snapshot,
) -> tuple[tuple[GpuUuid, Allocation], ...]:
    """Return the answer for each of these GPUs, by the rule's terms; none where nobody gives GPUs."""
    if nobody_gives(snapshot):
        return ()
    terms = terms_of(rule, settings)
    answers = ((gpu, allocation_of(reading, gpu, snapshot, snapshot.at, terms)) for gpu in gpus)
    return tuple((gpu, _with_grants(answer, reading)) for gpu, answer in answers)


def _with_grants(answer: Allocation, reading: ProcessReading) -> Allocation:
    """Return an answer against somebody with how its runtime let it at GPUs: evidence, never the verdict."""
    names = reading.workload.names
    if answer.ruling is not AllocationRuling.UNALLOCATED or names is None or not names.grants:
        return answer
    return replace(answer, evidence=(*answer.evidence, f"its runtime's record: {'; '.join(names.grants)}"))


def nobody_gives(snapshot: Snapshot) -> bool:
    """Tell whether the host has neither a kubelet nor Slurm, nor a cluster that is asked."""
    return all(isinstance(one, Absent) for one in (snapshot.allocations, snapshot.slurm, snapshot.cluster))


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
