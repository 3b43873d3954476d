"""What is known of who was given what, against a signal by rule: asked again at each step, of each target.

A rule may have held minutes ago; between SIGTERM and SIGKILL the kubelet can go away and a pod begin to
end. And a target can be more than the process that broke the rule: its pod's other containers are in it.
"""

from collections.abc import Iterator

from reclaimerd.judge.allocation import allocation_of
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.lingering import ending_of
from reclaimerd.judge.unallocated import is_in_doubt, leaves_alone, terms_of
from reclaimerd.model.allocation import Allocation, AllocationRuling
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import Policy, Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
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
        reason
        for reading in readings
        if reading is not None
        for reason in reasons_against(reading, rule, context.snapshot, context.policy)
    )


def reasons_against(
    reading: ProcessReading, rule: Rule, snapshot: Snapshot, policy: Policy
) -> Iterator[Reason]:
    """Yield why the rule may not signal this process, by who was given the GPUs that it holds now."""
    gpus = snapshot.gpus_of(reading.ref)
    if rule.kind is RuleKind.LINGERING:
        yield from _still_in_time(reading, rule, snapshot, policy)
        return
    if not gpus:
        return
    if rule.kind is RuleKind.UNALLOCATED:
        terms = terms_of(rule, policy.attribution)
        answers = [allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in gpus]
        if not any(one.ruling is AllocationRuling.UNALLOCATED for one in answers):
            yield from _against(reading, answers)
    elif leaves_alone(rule, reading, snapshot):
        terms = terms_of(None, policy.attribution)
        answers = [allocation_of(reading, gpu, snapshot, snapshot.at, terms) for gpu in gpus]
        if any(is_in_doubt(one) for one in answers) or all(one.exclusive for one in answers):
            yield from _against(reading, answers)


def _still_in_time(
    reading: ProcessReading, rule: Rule, snapshot: Snapshot, policy: Policy
) -> Iterator[Reason]:
    """Yield why a target does not go as one that lingers: also of one that holds no GPU."""
    terms = terms_of(rule, policy.attribution)
    ending = ending_of(reading, snapshot, terms)
    if ending is None:
        text = f"pid {reading.ref.pid} is not to end with it: its pod or job runs, or it belongs to none"
        yield Reason(ReasonKind.PROTECTED, text, _NARROW, (reading.ref,))
    elif ending.ruling is not AllocationRuling.LINGERING:
        text = f"pid {reading.ref.pid} is not known to be past its deadline now: {ending.text}"
        yield Reason(ReasonKind.UNDETERMINED, text, _KNOW, (reading.ref,))


def _against(reading: ProcessReading, answers: list[Allocation]) -> Iterator[Reason]:
    """Yield why a target may not be signalled: something is not known, it ends, or all is its own."""
    ref = reading.ref
    doubt = next((one for one in answers if is_in_doubt(one)), None)
    if doubt is None:
        text = f"pid {ref.pid} is not to end with it: {answers[0].text}"
        yield Reason(ReasonKind.PROTECTED, text, _NARROW, (ref,))
    elif doubt.ruling is AllocationRuling.UNKNOWN:
        text = f"whether pid {ref.pid} was given its GPU is not known now: {doubt.text}"
        yield Reason(ReasonKind.UNDETERMINED, text, _KNOW, (ref,))
    else:
        text = f"pid {ref.pid} is {doubt.ruling}, which is not this rule's affair: {doubt.text}"
        yield Reason(ReasonKind.UNDETERMINED, text, _KNOW, (ref,))
