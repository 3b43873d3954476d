"""Say which rules concern which holder, and keep the answer for as long as what it was made from stands.

Two hundred rules for each of many holders are asked anew only when one of their inputs has changed: what
the policy and its lookups say, or what a selector reads of the process and its GPUs (`_inputs`). Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from reclaimerd.judge.modes import effective_mode
from reclaimerd.judge.selectors import Lookups, Match, Patterns, asks_gpu, digest_of, matches
from reclaimerd.judge.subjects import Subject
from reclaimerd.judge.tri import Tri
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.policy import Mode, Policy, Rule
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Reading
from reclaimerd.model.snapshot import GpuReading, Holder, Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling

NOT_CONCERNED = "the rule does not concern it"


@dataclass(frozen=True, slots=True)
class Concern:
    """A rule that concerns one process, or may.

    `place` is the rule's in the policy. `rows` are those of the process's rows that it concerns, by their
    place; `unknown` is why that can't be known for another one, "" where it is known for all.
    """

    place: int
    rows: tuple[int, ...]
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """The answer for one process, and everything that it was made from.

    `reasons` has one of each rule, in the policy's order: what is to be said where it does not concern the
    process, or where the process can't be read. Where `concerns` has a rule, the judge says something else.
    """

    inputs: tuple[object, ...]
    concerns: tuple[Concern, ...]
    reasons: tuple[RuleReason, ...]


@dataclass(frozen=True, slots=True)
class Concerns:
    """The answers for all holders of one look, under these rules and lookups."""

    rules: tuple[Rule, ...] = ()
    mode: Mode = Mode.OBSERVE
    patterns: Patterns | None = None
    user_ids: Mapping[str, int] = field(default_factory=dict)
    group_ids: Mapping[str, int] = field(default_factory=dict)
    summing: frozenset[int] = frozenset()
    """The places of the rules that sum over several processes."""
    apart: tuple[RuleReason, ...] = ()
    """What is said of each rule where it concerns nobody: the same of everybody."""
    by_ref: Mapping[ProcessRef, Kept] = field(default_factory=dict)


def concerns_of(
    subjects: Sequence[Subject], policy: Policy, snapshot: Snapshot, lookups: Lookups, before: Concerns
) -> Concerns:
    """Return which rules concern these; `before` is what the last look returned.

    Whoever holds nothing any more is not in it.
    """
    if not _same_policy(before, policy, lookups):
        apart = _reasons(policy, Ruling.WATCH, NOT_CONCERNED)
        before = Concerns(
            rules=policy.rules,
            mode=policy.mode,
            patterns=lookups.patterns,
            user_ids=lookups.user_ids,
            group_ids=lookups.group_ids,
            summing=frozenset(place for place, rule in enumerate(policy.rules) if rule.sums),
            apart=apart,
        )
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    by_ref = {subject.ref: _kept(subject, gpus, (snapshot, policy, lookups), before) for subject in subjects}
    return replace(before, by_ref=by_ref)


def _kept(
    subject: Subject,
    gpus: Mapping[GpuUuid, GpuReading],
    look: tuple[Snapshot, Policy, Lookups],
    before: Concerns,
) -> Kept:
    snapshot, policy, lookups = look
    last, reading = before.by_ref.get(subject.ref), subject.reading
    if reading is None:
        blind: tuple[object, ...] = ("can't be read", subject.doubt)
        if last is not None and last.inputs == blind:
            return last
        return Kept(blind, (), _reasons(policy, Ruling.UNDETERMINED, subject.doubt))
    seen = tuple(gpus.get(row.gpu) for row in subject.rows)
    digest = digest_of(reading, snapshot)
    inputs = _inputs(reading, subject.rows, seen, digest)
    if last is not None and last.inputs == inputs:
        return last
    return Kept(inputs, tuple(_concerns(policy.rules, reading, seen, (lookups, digest))), before.apart)


def _reasons(policy: Policy, ruling: Ruling, text: str) -> tuple[RuleReason, ...]:
    return tuple(
        RuleReason(rule.name, ruling, text, mode=effective_mode(policy, rule)) for rule in policy.rules
    )


def _same_policy(before: Concerns, policy: Policy, lookups: Lookups) -> bool:
    """Tell whether rules, patterns and names mean what they did; patterns are one object for a policy."""
    same_names = before.user_ids == lookups.user_ids and before.group_ids == lookups.group_ids
    same_rules = before.mode is policy.mode and before.rules == policy.rules
    return before.patterns is lookups.patterns and same_names and same_rules


def _inputs(
    reading: ProcessReading,
    rows: Sequence[Holder],
    gpus: Sequence[GpuReading | None],
    digest: Reading[str],
) -> tuple[object, ...]:
    """Return everything that `selectors.matches` reads of a process and its GPUs."""
    return (
        reading.uids,
        reading.gids,
        reading.exe,
        reading.cmdline,
        reading.cgroup,
        reading.workload,
        digest,
        *(row.gpu for row in rows),
        *(None if gpu is None else (gpu.name, gpu.mig) for gpu in gpus),
    )


_Asked = tuple[Lookups, Reading[str]]


def _concerns(
    rules: Sequence[Rule], reading: ProcessReading, gpus: Sequence[GpuReading | None], asked: _Asked
) -> Iterator[Concern]:
    for place, rule in enumerate(rules):
        if asks_gpu(rule.match) or asks_gpu(rule.exempt):
            answers = [_concern(rule, reading, gpu, asked) for gpu in gpus]
        else:
            answers = [_concern(rule, reading, None, asked)] * len(gpus)
        rows = tuple(row for row, one in enumerate(answers) if one.answer is Tri.YES)
        unknown = next((one.text for one in answers if one.answer is Tri.UNKNOWN), "")
        if rows or unknown:
            yield Concern(place, rows, unknown)


def _concern(rule: Rule, reading: ProcessReading, gpu: GpuReading | None, asked: _Asked) -> Match:
    lookups, digest = asked
    wanted = matches(rule.match, reading, gpu, lookups, digest)
    if rule.exempt.is_empty or wanted.answer is Tri.NO:
        return wanted
    exempt = matches(rule.exempt, reading, gpu, lookups, digest)
    match exempt.answer:
        case Tri.YES:
            return Match(Tri.NO, exempt.fields)
        case Tri.UNKNOWN:
            return Match(Tri.UNKNOWN, exempt.fields, f"the exemption {exempt.text}")
        case Tri.NO:
            return wanted
        case _:
            assert_never(exempt.answer)
