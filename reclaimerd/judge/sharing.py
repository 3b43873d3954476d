"""Ask a rule about several processes together: the memory of one workload or user, the GPUs of one user.

The sum is over the holders that the rule concerns; whoever is, or may be, protected or exempt is not
counted, nor is a GPU that a pod has for itself: nobody answers for what another may keep. Only a boundary
that its cgroup proves makes a workload: anything else counts by itself. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from reclaimerd.judge.answers import Answer, Concerned, has_two_sources
from reclaimerd.judge.conditions import (
    Condition,
    DoesNotHold,
    Figure,
    Holds,
    UnknownCondition,
    figure_of,
    memory_condition,
)
from reclaimerd.judge.gate_context import boundary_key
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.protections import exe_doubt
from reclaimerd.judge.subjects import Subject, is_leaving
from reclaimerd.judge.unallocated import counted_rows
from reclaimerd.judge.user_limit import counted_of, freed_gpus, user_limit_condition
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.policy import Per, Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Holder


@dataclass(frozen=True, slots=True)
class Member:
    """One process that counts: its rows that the rule concerns, and why one of them is unknown."""

    reading: ProcessReading
    rows: tuple[Holder, ...]
    unknown: str


def group_of(rule: Rule, reading: ProcessReading) -> str:
    """Return the name of those whom a rule counts together with this process."""
    per = Per.USER if rule.kind is RuleKind.USER_LIMIT else rule.per
    match per:
        case Per.PROCESS:
            return str(reading.ref)
        case Per.WORKLOAD:
            return boundary_key(reading.workload) or str(reading.ref)
        case Per.USER:
            return f"uid {reading.uids[0]}"
        case _:
            assert_never(per)


def shared_answers(
    rule: Rule, asked: Iterable[tuple[Subject, Concerned]], basis: Basis
) -> Mapping[ProcessRef, Answer]:
    """Return a summing rule's answer on each subject: the same for all of one group that hold something.

    `asked` are those whom the rule concerns or may concern.
    """
    answers: dict[ProcessRef, Answer] = {}
    groups: dict[str, list[Member]] = {}
    for subject, concerned in asked:
        if subject.reading is None:
            answers[subject.ref] = UnknownCondition(subject.doubt)
        elif subject.spared is not None:
            answers[subject.ref] = DoesNotHold("it is protected, and not counted")
        elif subject.alike or exe_doubt(subject.reading):
            answers[subject.ref] = UnknownCondition(
                f"it may be protected, and is not counted: {subject.doubt}"
            )
        else:
            member = _member(rule, subject.reading, concerned, basis)
            if isinstance(member, DoesNotHold):
                answers[subject.ref] = member
            else:
                groups.setdefault(group_of(rule, subject.reading), []).append(member)
    for group, members in groups.items():
        answer = _group_answer(rule, group, members, basis)
        answers.update(_owns(rule, answer, members, basis))
        counted = _counted(rule, members, basis) if isinstance(answer, Holds) else members
        if counted != members and counted:
            answers.update(_owns(rule, _group_answer(rule, group, counted, basis), counted, basis))
    return answers


def _member(rule: Rule, reading: ProcessReading, concerned: Concerned, basis: Basis) -> Member | DoesNotHold:
    """Return what counts of a process, or why nothing does."""
    if rule.kind is not RuleKind.USER_LIMIT:
        return Member(reading, concerned.rows, concerned.unknown)
    counts = counted_of(reading, concerned.rows, basis)
    if counts.left_out:
        return DoesNotHold(counts.left_out)
    return Member(reading, counts.rows, concerned.unknown or counts.unknown)


def _counted(rule: Rule, members: Iterable[Member], basis: Basis) -> list[Member]:
    """Return those who hold something that no pod has, or may have, for itself, with that alone."""
    counted = [
        replace(member, rows=counted_rows(rule, member.reading, member.rows, basis)) for member in members
    ]
    return [member for member in counted if member.rows]


def _group_answer(rule: Rule, group: str, members: Sequence[Member], basis: Basis) -> Answer:
    rows = [row for member in members for row in member.rows]
    unknown = next((member.unknown for member in members if member.unknown), "")
    if unknown:
        return UnknownCondition(unknown)
    if not rows:
        return DoesNotHold("the rule does not concern it")
    leaving = next((member.reading.ref.pid for member in members if is_leaving(member.reading)), None)
    if leaving is not None:
        return UnknownCondition(f"pid {leaving} of {_shown(group)} is ending: what it holds may come back")
    counted = len({row.ref for row in rows})
    named = f"{_shown(group)} ({counted} process{'es' if counted > 1 else ''})"
    return _named(named, rule, rows, basis)


def _shown(group: str) -> str:
    return group.removeprefix(":")  # of cgroup v2, which has no controller's name before the path


def _named(named: str, rule: Rule, rows: Sequence[Holder], basis: Basis) -> Answer:
    condition = _sum_condition(rule, rows, basis)
    match condition:
        case Holds():
            backed = [row for row in rows if has_two_sources(row)]
            condition = _sum_condition(rule, backed, basis)
            if not isinstance(condition, Holds):
                return DoesNotHold(f"{named} is over the cap, but only one source shows it")
            return replace(condition, text=f"{named} {condition.text}")
        case UnknownCondition() | DoesNotHold():
            return replace(condition, text=f"{named}: {condition.text}")
        case _:
            assert_never(condition)


def _sum_condition(rule: Rule, rows: Sequence[Holder], basis: Basis) -> Condition:
    if rule.kind is RuleKind.USER_LIMIT:
        return user_limit_condition(rule, rows, basis.snapshot)
    return memory_condition(rule, rows, basis.snapshot, basis.listed)


def _owns(rule: Rule, answer: Answer, members: Sequence[Member], basis: Basis) -> dict[ProcessRef, Answer]:
    """Return a group's answer for each of its members."""
    if rule.kind is not RuleKind.USER_LIMIT or not isinstance(answer, Holds):
        return {member.reading.ref: _own(answer, member, basis) for member in members}
    backed = [row for member in members for row in member.rows if has_two_sources(row)]
    return {member.reading.ref: _own_gpus(answer, member, backed) for member in members}


def _own_gpus(answer: Holds, member: Member, of_user: Sequence[Holder]) -> Answer:
    """Return the answer on too many GPUs for one member: first go those whose going gives one back.

    Among these the youngest does: the excess by which `choosing` orders is the same for all of them.
    """
    own = [row for row in of_user if row.ref == member.reading.ref]
    gpus = tuple(row.gpu for row in own if row.gpu in answer.gpus)
    if not gpus:
        return DoesNotHold(f"{answer.text}; it holds none of them")
    return Holds(answer.text, gpus, 1 if freed_gpus(own, of_user) else 0)


def _own(answer: Answer, member: Member, basis: Basis) -> Answer:
    """Return a group's answer for one member: it holds for those who hold memory where the cap is passed."""
    if not member.rows and not member.unknown:
        return DoesNotHold("the rule does not concern it")
    if not isinstance(answer, Holds):
        return answer
    held = _held(member.rows, answer.gpus, basis)
    if not held:
        return DoesNotHold(f"{answer.text}; it holds none of that")
    return Holds(answer.text, tuple(held), sum(held.values()))


def _held(rows: Iterable[Holder], gpus: tuple[GpuUuid, ...], basis: Basis) -> dict[GpuUuid, int]:
    held: dict[GpuUuid, int] = {}
    for row in rows:
        if row.gpu in gpus and has_two_sources(row):
            figure = figure_of(row, basis.listed)
            if isinstance(figure, Figure) and figure.used_bytes:
                held[row.gpu] = figure.used_bytes
    return held
