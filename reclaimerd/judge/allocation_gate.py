"""What the kubelet's list says against a signal by rule, asked again at each step and of each target.

A rule may have held minutes ago; between SIGTERM and SIGKILL the kubelet can go away and a pod begin to
end. And a target can be more than the process that broke the rule: its pod's other containers are in it.
"""

from collections.abc import Iterator

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.unallocated import OF_MEMORY, terms_of
from reclaimerd.model.allocation import Allocation, AllocationRuling
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import Rule, RuleKind
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.step import Reason, ReasonKind, Step

_SIGNALS = frozenset({Stage.SIGTERM, Stage.SIGKILL})
_KNOW = "see docs/allocation.md for what must be known; a person may judge it: reclaimctl inspect"
_NARROW = 'write scope = "process" in the rule'


def allocation_reasons(step: Step, rule: Rule, context: GateContext) -> tuple[Reason, ...]:
    """Return which targets the rule may not signal, by who was given the GPUs that they hold now."""
    if step.stage not in _SIGNALS:
        return ()
    readings = (context.snapshot.process(ref) for ref in step.targets if ref not in context.snapshot.exited)
    return tuple(
        reason for reading in readings if reading is not None for reason in _of_one(reading, rule, context)
    )


def _of_one(reading: ProcessReading, rule: Rule, context: GateContext) -> Iterator[Reason]:
    gpus, snapshot = context.snapshot.gpus_of(reading.ref), context.snapshot
    if not gpus:
        return
    if rule.kind is RuleKind.UNALLOCATED:
        terms = terms_of(rule, context.policy.attribution)
        answers = [allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in gpus]
        if not any(one.ruling is AllocationRuling.UNALLOCATED for one in answers):
            yield from _against(reading, answers, [one.ruling is AllocationRuling.ALLOWED for one in answers])
    elif rule.kind in OF_MEMORY and not rule.even_if_allocated:
        if reading.workload.kind is not WorkloadKind.POD:
            return
        terms = terms_of(None, context.policy.attribution)
        answers = [allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in gpus]
        if any(one.exclusive or one.ruling is AllocationRuling.UNKNOWN for one in answers):
            yield from _against(reading, answers, [one.exclusive for one in answers])


def _against(reading: ProcessReading, answers: list[Allocation], own: list[bool]) -> Iterator[Reason]:
    """Yield why a target may not be signalled: all that it holds is its own, or something is not known."""
    ref = reading.ref
    unknown = next((one.text for one in answers if one.ruling is AllocationRuling.UNKNOWN), "")
    if unknown:
        text = f"whether pid {ref.pid} was given its GPU is not known now: {unknown}"
        yield Reason(ReasonKind.UNDETERMINED, text, _KNOW, (ref,))
    elif all(own):
        text = f"pid {ref.pid} is not to end with it: {answers[0].text}"
        yield Reason(ReasonKind.PROTECTED, text, _NARROW, (ref,))
