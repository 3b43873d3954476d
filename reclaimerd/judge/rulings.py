"""Make of one rule's answer on one process what the rule asks for: nothing yet, a look, or its end; pure.

Even where a rule holds long enough it takes nobody whom it must leave alone: an MPS client, a member of a
large workload, and whoever a rule of a kind that only tells is about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from reclaimerd.judge.answers import Answer
from reclaimerd.judge.conditions import RuleAndRef, sustained_enough
from reclaimerd.judge.extent import Extents, extents_of, large_text, mps_text
from reclaimerd.judge.gate_context import boundary_key
from reclaimerd.judge.modes import effective_mode
from reclaimerd.judge.subjects import Subject
from reclaimerd.model.policy import ONLY_TOLD, Mode, Policy, Rule, RuleAction, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Sustained

_MEND = "large_jobs = true lets the rule take it"


@dataclass(frozen=True, slots=True)
class Pair:
    """A rule, a process that it concerns or may concern, and what it answers."""

    rule: Rule
    place: int
    subject: Subject
    reading: ProcessReading
    answer: Answer

    @property
    def key(self) -> RuleAndRef:
        """Return the rule's name and the process, by which all memory of both goes."""
        return self.rule.name, self.subject.ref


@dataclass(frozen=True, slots=True)
class HeldBack:
    """One whom a rule would take and must leave alone: why, and the sentence of the alarm or ""."""

    text: str
    alarm: str = ""


class HoldingBack:
    """Finds whom the rules of one look must leave alone, and remembers each that was found."""

    __slots__ = ("_extents", "_policy", "_snapshot", "found")

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._extents: Callable[[], Extents] = cache(lambda: extents_of(snapshot))
        self.found: dict[RuleAndRef, HeldBack] = {}

    def why(self, pair: Pair) -> str:
        """Return why a rule that holds must leave this process alone, "" where it may take it."""
        held = self._held(pair.rule, pair.subject, pair.reading)
        if held is None:
            return ""
        self.found[pair.key] = held
        return held.text

    def _held(self, rule: Rule, subject: Subject, reading: ProcessReading) -> HeldBack | None:
        if only_tells(rule):
            return HeldBack(f"rules of kind {rule.kind} only tell")
        client = mps_text(subject.ref, subject.rows, self._snapshot)
        if client:
            return HeldBack(client)
        if rule.large_jobs:
            return None
        most_gpus = self._policy.gates.spare_jobs_over_gpus
        large = large_text(reading, self._extents(), most_gpus)
        if not large:
            return None
        text = f"left alone as part of a large workload: {large}; {_MEND}"
        if effective_mode(self._policy, rule) is Mode.OBSERVE:
            return HeldBack(text)  # nothing would be done, so nothing is left undone
        who = f"rule {rule.name} holds for {_named(reading)}"
        return HeldBack(text, f"{who}, and leaves it alone as a large workload: {large}; {_MEND}")


def only_tells(rule: Rule) -> bool:
    """Tell whether what a rule shows is a sign and no proof: nobody acts, but a miner may be warned."""
    warns = rule.kind is RuleKind.MINER and rule.action is RuleAction.WARN
    return rule.kind in ONLY_TOLD and not warns


def _named(reading: ProcessReading) -> str:
    """Return a workload's name, the same for all its members; a process without one goes by its pid."""
    workload = reading.workload
    return workload.best_name if boundary_key(workload) else f"pid {reading.ref.pid} ({workload.best_name})"


def ruling_of(pair: Pair, text: str, kept: Sustained, now: float, back: HoldingBack) -> tuple[Ruling, str]:
    """Return what a rule whose condition holds asks for in this look, and why in words."""
    rule, subject = pair.rule, pair.subject
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
    left_alone = back.why(pair)
    if left_alone:
        return Ruling.WATCH, f"{text}; {left_alone}"
    return Ruling.RECLAIM, text


def alarms_of(found: Mapping[RuleAndRef, HeldBack]) -> tuple[str, ...]:
    """Return each alarm once, however many members of a workload it is about."""
    return tuple(dict.fromkeys(held.alarm for held in found.values() if held.alarm))
