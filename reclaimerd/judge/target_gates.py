"""The gates of a step's targets: is each still the same process, and may anybody touch it.

These bind everyone, whoever asks and however: `--force` removes none of them.
"""

from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.exit_path import any_exiting, is_dumping, is_released
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.protections import exe_doubt, looks_protected, protection_of
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Stage
from reclaimerd.model.kernel import Leaving, TaskCondition
from reclaimerd.model.process import (
    ProcessReading,
    WorkloadKind,
)
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import GateAnswer, Reason, ReasonKind, Step

_SIGNALS = frozenset({Stage.SIGTERM, Stage.SIGKILL})
_CONTAINED = frozenset(
    {WorkloadKind.POD, WorkloadKind.CONTAINER, WorkloadKind.NOMAD, WorkloadKind.MACHINE},
)


@dataclass(frozen=True, slots=True)
class TargetFindings:
    """What speaks against a step for its targets, and what the record should say if nothing does."""

    reasons: tuple[Reason, ...]
    answers: tuple[GateAnswer, ...]


def target_findings(step: Step, incident: Incident, context: GateContext) -> TargetFindings:
    """Return the findings on every target of a step, and on others that it would end with them."""
    reasons = list(_belonging_reasons(step, incident, context.snapshot))
    answers: list[GateAnswer] = []
    reasons += _waiting_reasons(step, context.snapshot)
    reasons += _dump_reasons(step, context)
    for ref in step.targets:
        found = _one_target(ref, step, incident, context)
        reasons += found.reasons
        answers += found.answers
    return TargetFindings(tuple(reasons), tuple(answers))


def _waiting_reasons(step: Step, snapshot: Snapshot) -> list[Reason]:
    """Return why a signal is in vain: the target leaves already, and waits for somebody else."""
    if step.stage not in _SIGNALS:
        return []
    reasons = []
    for ref in step.targets:
        plight = snapshot.plights.get(ref)
        if plight is None or plight.culprit is None or plight.condition is not TaskCondition.EXITING:
            continue
        text = (
            f"pid {ref.pid} waits for pid {plight.culprit.pid}, which is the one that is stuck: {plight.text}"
        )
        mend = f"look there: reclaimctl inspect {plight.culprit.pid}"
        both = (ref, plight.culprit)
        reasons.append(Reason(ReasonKind.WAITS_FOR_OTHER, text, mend, processes=both))
    return reasons


def _dump_reasons(step: Step, context: GateContext) -> list[Reason]:
    """Return which targets write a core that the policy spares while it grows; `--force` cuts it."""
    if step.stage not in _SIGNALS or step.force:
        return []
    reasons = []
    for ref in step.targets:
        reading = context.snapshot.process(ref)
        if reading is None or ref in context.snapshot.exited or not is_dumping(reading):
            continue
        plight = context.snapshot.plights.get(ref)
        if plight is not None and plight.leaving not in (Leaving.PROGRESSING, Leaving.UNDETERMINED):
            continue
        patience = context.policy.ladder.core_grace_seconds
        text = f"pid {ref.pid} writes its core; it is spared while the core grows, at most {patience:.0f} s"
        mend = "wait, or cut the core with --force"
        reasons.append(Reason(ReasonKind.CORE_DUMP, text, mend, processes=(ref,)))
    return reasons


def _belonging_reasons(step: Step, incident: Incident, snapshot: Snapshot) -> tuple[Reason, ...]:
    texts: list[str] = []
    if step.incident != incident.id:
        texts.append(f"the step is of incident {step.incident}, not of {incident.id}")
    if incident.boot_id != snapshot.boot_id:
        texts.append("the incident is of another boot")
    if step.stage in _SIGNALS and not step.targets:
        texts.append("the step names no process")
    strangers = tuple(ref for ref in step.targets if ref not in incident.processes)
    texts += [f"pid {ref.pid} is no member of this incident" for ref in strangers]
    return tuple(Reason(ReasonKind.IDENTITY, text, "look again: reclaimctl ps") for text in texts)


def _one_target(ref: ProcessRef, step: Step, incident: Incident, context: GateContext) -> TargetFindings:
    snapshot = context.snapshot
    seen = snapshot.processes.get(ref.pid)
    signals = step.stage in _SIGNALS
    if ref in snapshot.exited and not signals:
        return TargetFindings((), ())
    if ref.boot_id != snapshot.boot_id or (seen is not None and seen.ref != ref):
        text = f"pid {ref.pid} is another process now, not {ref}"
        return TargetFindings((Reason(ReasonKind.IDENTITY, text, "look again: reclaimctl ps", (ref,)),), ())
    if ref in snapshot.exited:
        return TargetFindings((), ())
    if seen is None:
        return TargetFindings(_unseen_reasons(ref, step, snapshot), ())
    return _living_target(seen, step, incident, context)


def _unseen_reasons(ref: ProcessRef, step: Step, snapshot: Snapshot) -> tuple[Reason, ...]:
    why = snapshot.unreadable.get(ref.pid)
    # One that vanished is no refusal: the act finds it gone. A drain touches no process.
    if why is None or step.stage not in _SIGNALS:
        return ()
    text = f"pid {ref.pid} can't be read, so neither can what protects it: {why}"
    return (Reason(ReasonKind.UNDETERMINED, text, "look again", (ref,)),)


def _living_target(
    reading: ProcessReading,
    step: Step,
    incident: Incident,
    context: GateContext,
) -> TargetFindings:
    guard = protection_of(
        reading,
        host_files=context.snapshot.host_files,
        policy=context.policy,
        ours=context.ours,
    )
    if guard is not None:
        mend = "nothing overrides a protection; change [[protect]] if it is the policy's own"
        text = f"pid {reading.ref.pid} is protected by {guard.by}: {guard.text}"
        return TargetFindings((Reason(ReasonKind.PROTECTED, text, mend, (reading.ref,)),), ())
    if step.stage not in _SIGNALS:
        return TargetFindings((), ())
    reasons: tuple[Reason, ...] = ()
    answers: tuple[GateAnswer, ...] = ()
    match step.actor.kind:
        case ActorKind.RULE | ActorKind.WATCH:
            reasons = _doubt_reasons(reading, incident, context)
        case ActorKind.OPERATOR:
            answers = _doubt_answers(reading)
        case _:
            assert_never(step.actor.kind)
    init = _namespace_init(reading, step, context)
    return TargetFindings(reasons + init.reasons, answers + init.answers)


def _doubt_reasons(reading: ProcessReading, incident: Incident, context: GateContext) -> tuple[Reason, ...]:
    ref = reading.ref
    reasons: list[Reason] = []
    doubt = exe_doubt(reading)
    # In the exit path the exe is gone, and no other program can start: the earlier look still counts.
    known_before = any_exiting(reading) and any(ref in attempt.targets for attempt in incident.attempts)
    if doubt is not None and not known_before:
        text = f"pid {ref.pid}: {doubt}; by rule that is hands off"
        reasons.append(Reason(ReasonKind.UNDETERMINED, text, "judge it by hand: reclaimctl inspect", (ref,)))
    alike = looks_protected(
        reading,
        host_files=context.snapshot.host_files,
        policy=context.policy,
        ours=context.ours,
    )
    if alike is not None:
        text = f"pid {ref.pid} {alike}"
        mend = "judge it by hand, or list it under [[protect]]"
        reasons.append(Reason(ReasonKind.LOOKS_PROTECTED, text, mend, (ref,)))
    return tuple(reasons)


def _doubt_answers(reading: ProcessReading) -> tuple[GateAnswer, ...]:
    doubt = exe_doubt(reading)
    if doubt is None:
        return ()
    return (GateAnswer("protection", f"pid {reading.ref.pid}: {doubt}; uid, unit and flags decided"),)


def _namespace_init(reading: ProcessReading, step: Step, context: GateContext) -> TargetFindings:
    """Return what a signal to the init of a PID namespace means for everyone inside.

    pid_namespaces(7): SIGTERM without a handler is discarded, SIGKILL from outside ends every member.
    """
    if len(reading.ns_pids) <= 1 or reading.ns_pids[-1] != 1:
        return TargetFindings((), ())
    pid = reading.ref.pid
    if step.stage is not Stage.SIGKILL:
        text = f"pid {pid} is the init of a PID namespace: without a handler it ignores SIGTERM"
        return TargetFindings((), (GateAnswer("namespace", text),))
    others = tuple(
        member
        for member in namespace_members(reading, context.snapshot)
        if member not in step.targets and member not in context.snapshot.exited
    )
    if others:
        named = ", ".join(str(member.pid) for member in others)
        text = f"SIGKILL to pid {pid}, the init of a PID namespace, would also end pid {named}"
        mend = "take them with it: --scope tree or workload"
        return TargetFindings((Reason(ReasonKind.HOLDERS, text, mend, others),), ())
    text = f"pid {pid} is the init of a PID namespace: SIGKILL ends every member; none outside was seen"
    return TargetFindings((), (GateAnswer("namespace", text),))


def namespace_members(init: ProcessReading, snapshot: Snapshot) -> tuple[ProcessRef, ...]:
    """Return the living members seen of the PID namespace whose init this is, without the init.

    Orphans inside a namespace fall to its init, so members are its descendants; one that entered
    later (`docker exec`) has its parent outside and is known by the same container's cgroup.
    """
    depth = len(init.ns_pids)
    contained = init.workload.kind in _CONTAINED
    members: list[ProcessRef] = []
    for reading in snapshot.processes.values():
        if reading.ref == init.ref or len(reading.ns_pids) < depth or is_released(reading):
            continue
        owner = _init_above(reading, depth, snapshot)
        entered = owner is None and contained and reading.cgroup == init.cgroup
        if owner == init.ref or entered:
            members.append(reading.ref)
    return tuple(members)


def _init_above(reading: ProcessReading, depth: int, snapshot: Snapshot) -> ProcessRef | None:
    """Return the init of the namespace at this depth that a process lives in, as far as was seen."""
    passed: set[int] = set()
    at: ProcessReading | None = reading
    while at is not None and at.ref.pid not in passed:
        if len(at.ns_pids) >= depth and at.ns_pids[depth - 1] == 1:
            return at.ref
        passed.add(at.ref.pid)
        at = snapshot.processes.get(at.ppid)
    return None
