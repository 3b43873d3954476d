"""Whom the rules are asked about: each holding process, what spares it, and what forbids a judgement."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reclaimerd.judge.exit_path import is_dumping, is_exiting, live_tasks, state_word
from reclaimerd.judge.marks import OWNER, mark_doubt, mark_of
from reclaimerd.judge.protections import Ours, exe_doubt, looks_protected, protection_of
from reclaimerd.judge.selectors import Patterns
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import DriverState, Holder, Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What judging needs besides the snapshot: ourselves, RE2, and the policy's names as uids and gids."""

    ours: Ours
    patterns: Patterns
    user_ids: Mapping[str, int]
    group_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """One holding process: what spares it, and what forbids a judgement."""

    ref: ProcessRef
    rows: tuple[Holder, ...]
    reading: ProcessReading | None
    spared: RuleReason | None
    doubt: str
    alike: str = ""


def subjects_of(snapshot: Snapshot, policy: Policy, context: JudgeContext) -> tuple[Subject, ...]:
    """Return one subject for each process that holds a GPU."""
    rows: dict[ProcessRef, list[Holder]] = {}
    for holder in snapshot.holders:
        rows.setdefault(holder.ref, []).append(holder)
    return tuple(_subject(tuple(held), snapshot, policy, context) for held in rows.values())


def _subject(
    rows: tuple[Holder, ...],
    snapshot: Snapshot,
    policy: Policy,
    context: JudgeContext,
) -> Subject:
    ref = rows[0].ref
    reading = snapshot.process(ref)
    if reading is None:
        why = snapshot.unreadable.get(ref.pid, "it was not seen in this look")
        return Subject(ref, rows, None, None, f"pid {ref.pid} can't be read: {why}")
    spared = _spared(reading, rows, snapshot, (policy, context))
    if spared is not None:
        return Subject(ref, rows, reading, spared, "")
    alike = looks_protected(reading, host_files=snapshot.host_files, policy=policy, ours=context.ours)
    doubts = (
        alike,
        exe_doubt(reading),
        _driver_doubt(snapshot),
        _state_doubt(reading, rows),
        mark_doubt(reading, policy.marks, context.user_ids),
    )
    doubt = "; ".join(text for text in doubts if text)
    return Subject(ref, rows, reading, None, doubt, alike or "")


def _spared(
    reading: ProcessReading, rows: tuple[Holder, ...], snapshot: Snapshot, by: tuple[Policy, JudgeContext]
) -> RuleReason | None:
    """Return what spares it from every rule: a protection, or its owner's mark, which binds rules alone."""
    policy, context = by
    protection = protection_of(reading, host_files=snapshot.host_files, policy=policy, ours=context.ours)
    gpus = tuple(row.gpu for row in rows)
    if protection is not None:
        return RuleReason(protection.by, Ruling.SPARE, protection.text, gpus)
    mark = mark_of(reading, policy.marks, context.user_ids)
    return RuleReason(OWNER, Ruling.SPARE, mark, gpus) if mark else None


def _driver_doubt(snapshot: Snapshot) -> str:
    driver = snapshot.driver
    return "" if driver.state is DriverState.RESPONSIVE else f"the driver is {driver.state}: {driver.why}"


def _state_doubt(reading: ProcessReading, rows: tuple[Holder, ...]) -> str:
    if rows[0].remembered and all(row.remembered for row in rows):
        return "it is remembered as a holder, and nothing shows it now"
    return f"it is {state_word(reading)} already" if is_leaving(reading) else ""


def is_leaving(reading: ProcessReading) -> bool:
    """Tell whether the process ends already: what it holds may come back by itself.

    A thread or a leader that ends by itself does not end the process: only all of them together do.
    """
    return all(is_exiting(task) for task in live_tasks(reading)) or is_dumping(reading)
