"""Which GPUs a rule of kind `fault` asks to reset, and why; pure.

It opens nothing and permits nothing: the gate decides. A fault that a reset does not mend never asks
for one, whatever the rule lists, and a doubt asks for nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reclaimerd.judge.conditions import MOST_GAP_INTERVALS
from reclaimerd.judge.evaluate import effective_mode
from reclaimerd.judge.gpu_fault import fault_of
from reclaimerd.model.fault import FaultClass, FaultSource, GpuFault
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, ListedStage, Mode, Policy, RuleAction
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling

_NOT_OURS_TO_MEND = frozenset({FaultClass.UNKNOWN, FaultClass.OTHER})


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """One rule's answer on one GPU. RECLAIM: an incident on it is due, with `stages` as its steps.

    `mode` is how far the rule may go. `stages` is the rule's list, or DRAIN alone where a reset does
    not mend the fault.
    """

    gpu: GpuUuid
    rule: str
    ruling: Ruling
    fault: FaultClass
    text: str
    mode: Mode = Mode.OBSERVE
    stages: tuple[ListedStage, ...] = ()
    sustained_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FaultSpan:
    """Since when one rule has held for one GPU, and when that was last seen (monotonic seconds).

    `asked` are the rule's words by which it held: by others, after a reload, it has held for no time.
    """

    since: float
    last: float
    asked: tuple[tuple[str, ...], ...] = ()


FaultSpans = Mapping[tuple[str, GpuUuid], FaultSpan]


def evaluate_faults(
    snapshot: Snapshot,
    policy: Policy,
    ledger: Ledger,
    since: FaultSpans,
) -> tuple[tuple[GpuVerdict, ...], FaultSpans]:
    """Return the answers of all fault rules that hold or can't be told, and the memory for the next look.

    `since` is what the last look returned, at first empty. A rule that does not hold has no answer.
    """
    verdicts: list[GpuVerdict] = []
    spans: dict[tuple[str, GpuUuid], FaultSpan] = {}
    gpus = _gpus(snapshot, ledger) if policy.fault_rules else ()
    faults = {gpu: fault_of(gpu, snapshot, ledger) for gpu in gpus}
    for rule in policy.fault_rules:
        mode = effective_mode(policy, rule)
        for gpu, fault in faults.items():
            if rule.gpus and gpu not in rule.gpus:
                continue
            answer = _condition(rule, fault, snapshot, ledger)
            kept = _by_the_same_words(rule, since.get((rule.name, gpu)))
            span = _span(answer, kept, snapshot.at, policy.interval_seconds)
            if span is not None:
                spans[rule.name, gpu] = replace(span, asked=_words(rule))
            verdict = _verdict(rule, fault, answer, (span, snapshot.at))
            if verdict is not None:
                verdicts.append(replace(verdict, mode=mode))
    return tuple(verdicts), spans


def _gpus(snapshot: Snapshot, ledger: Ledger) -> tuple[GpuUuid, ...]:
    """Return the GPUs of this look, and those that are gone from it and have an Xid of this boot."""
    seen = [gpu.uuid for gpu in snapshot.gpus]
    lost = [xid.gpu for xid in ledger.xids if xid.boot_id == snapshot.boot_id]
    return tuple(dict.fromkeys((*seen, *lost)))


@dataclass(frozen=True, slots=True)
class _Condition:
    """Whether a rule's words stand against a GPU: yes, no, or (None) not to be told; and why."""

    holds: bool | None
    text: str = ""


def _condition(rule: FaultRule, fault: GpuFault, snapshot: Snapshot, ledger: Ledger) -> _Condition:
    said = [
        *_by_xid(rule, fault, snapshot, ledger),
        *_by_presence(rule, fault),
    ]
    action = _by_action(rule, fault, snapshot)
    if said or action.holds:
        return _Condition(holds=True, text="; ".join(dict.fromkeys(filter(None, (*said, action.text)))))
    return action


def _by_xid(rule: FaultRule, fault: GpuFault, snapshot: Snapshot, ledger: Ledger) -> Iterator[str]:
    for xid in ledger.xids:
        ours = xid.gpu == fault.gpu and xid.boot_id == snapshot.boot_id
        if ours and xid.fault.word in rule.xid_classes:
            yield f"Xid {xid.code} ({xid.fault.word})"


def _by_presence(rule: FaultRule, fault: GpuFault) -> Iterator[str]:
    for source, found, text in fault.sources:
        if source is FaultSource.DEVICE and found.word in rule.xid_classes:
            yield text


def _by_action(rule: FaultRule, fault: GpuFault, snapshot: Snapshot) -> _Condition:
    """Hold the driver's own word against the rule's; a word that is not believed is unknown."""
    if not rule.recovery_actions:
        return _Condition(holds=False)
    for source, found, text in fault.sources:
        if source is FaultSource.RECOVERY_ACTION and found is FaultClass.UNKNOWN:
            return _Condition(holds=None, text=text)
    gpu = snapshot.gpu(fault.gpu)
    match None if gpu is None else gpu.recovery_action:
        case Known(value=action) if action in rule.recovery_actions:
            return _Condition(holds=True, text=f"recovery action {action}")
        case _:
            return _Condition(holds=False)


def _words(rule: FaultRule) -> tuple[tuple[str, ...], ...]:
    return rule.xid_classes, rule.recovery_actions


def _by_the_same_words(rule: FaultRule, kept: FaultSpan | None) -> FaultSpan | None:
    """Return what was kept of a rule unless it asks for something else by now."""
    return kept if kept is None or kept.asked in ((), _words(rule)) else None


def _span(
    answer: _Condition, kept: FaultSpan | None, now: float, interval_seconds: float
) -> FaultSpan | None:
    """Return since when it holds: an unknown look counts for nothing, a long gap starts anew."""
    if kept is not None and not 0 <= now - kept.last <= MOST_GAP_INTERVALS * interval_seconds:
        kept = None
    if answer.holds:
        return FaultSpan(now if kept is None else kept.since, now)
    return kept if answer.holds is None else None


def _verdict(
    rule: FaultRule,
    fault: GpuFault,
    answer: _Condition,
    held: tuple[FaultSpan | None, float],
) -> GpuVerdict | None:
    if answer.holds is None:
        return GpuVerdict(fault.gpu, rule.name, Ruling.UNDETERMINED, fault.fault, answer.text)
    span, now = held
    if span is None or not answer.holds:
        return None
    sustained = now - span.since
    ruling, text, stages = _ruling(rule, fault, answer.text, sustained)
    return GpuVerdict(
        fault.gpu, rule.name, ruling, fault.fault, text, stages=stages, sustained_seconds=sustained
    )


def _ruling(
    rule: FaultRule, fault: GpuFault, text: str, sustained: float
) -> tuple[Ruling, str, tuple[ListedStage, ...]]:
    if fault.fault in _NOT_OURS_TO_MEND:
        return Ruling.UNDETERMINED, f"{text}; {fault.text}: no reset of ours mends that", ()
    stages, more = rule.stages, ""
    if fault.fault > FaultClass.DRAIN_AND_RESET:
        stages = tuple(stage for stage in rule.stages if stage is ListedStage.DRAIN)
        more = f"; {fault.text}: a reset does not mend that"
        if not stages:
            return Ruling.WATCH, f"{text}{more}, and the rule lists no drain", ()
    if sustained < rule.for_seconds:
        return Ruling.WATCH, f"{text}{more}; so far for {sustained:.0f} of {rule.for_seconds:.0f} s", ()
    if rule.action is RuleAction.OBSERVE:
        return Ruling.WATCH, f"{text}{more}; the rule only observes", ()
    return Ruling.RECLAIM, f"{text}{more}", stages
