"""What speaks against those whom a rule's signal takes along: of everybody but the one that broke the rule.

A tree or a workload is larger than the process that the rule was asked about. Whom the rule exempts, or an
owner's mark spares, goes with nobody; and who came into a workload since its target was named is asked all
that the others were asked before. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reclaimerd.judge.allocation_gate import reasons_against
from reclaimerd.judge.exit_path import is_exiting, live_tasks
from reclaimerd.judge.extent import mps_reasons
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.marks import mark_doubt, mark_of
from reclaimerd.judge.modes import rule_named
from reclaimerd.judge.protections import exe_doubt, looks_protected
from reclaimerd.judge.selectors import Match, asks_gpu, digest_of, matches
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.tri import Tri
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import Policy, Rule
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind, Step

_SIGNALS = frozenset({Stage.SIGTERM, Stage.SIGKILL})
_NARROW = 'write scope = "process" in the rule'
_NOT_EXEMPT = Match(Tri.NO)


@dataclass(frozen=True, slots=True)
class By:
    """What a companion is judged by: the look, the policy, and what selectors are asked by."""

    snapshot: Snapshot
    policy: Policy
    judge: JudgeContext


def companion_reasons(step: Step, rule: Rule, context: GateContext) -> tuple[Reason, ...]:
    """Return which members of a target may not go with it: exempt from the rule, spared by their owner."""
    if step.stage not in _SIGNALS:
        return ()
    snapshot = context.snapshot
    by = By(snapshot, context.policy, context.judge)
    others = (ref for ref in step.targets if ref != step.target.root and ref not in snapshot.exited)
    readings = (snapshot.process(ref) for ref in others)
    return tuple(
        reason for reading in readings if reading is not None for reason in _spared(reading, rule, by)
    )


def against_member(step: Step, reading: ProcessReading, by: By) -> str:
    """Return why a member of a workload that a rule kills as a whole may not go with it, "" where it may.

    Asked while the members are held still: the gate saw those who were there when the look was taken.
    """
    rule = rule_named(by.policy, step.actor.name)
    if rule is None:
        return f"the policy has no rule {step.actor.name!r} any more"
    doubt = "" if reading.is_leaving else _doubt(reading, by)
    if doubt or not isinstance(rule, Rule) or reading.ref == step.target.root:
        return doubt
    reasons = (
        _spared(reading, rule, by) if reading.ref in step.targets else _of_newcomer(reading, rule, step, by)
    )
    return next((reason.text for reason in reasons), "")


def _doubt(reading: ProcessReading, by: By) -> str:
    """Return what by rule is hands off: a program that can't be read, or one that looks protected."""
    alike = looks_protected(reading, host_files=by.snapshot.host_files, policy=by.policy, ours=by.judge.ours)
    return exe_doubt(reading) or alike or ""


def _of_newcomer(reading: ProcessReading, rule: Rule, step: Step, by: By) -> Iterator[Reason]:
    """Yield what the gate would have against one that it was not asked about."""
    yield from _spared(reading, rule, by)
    yield from reasons_against(reading, rule, by.snapshot, by.policy)
    yield from mps_reasons(replace(step, targets=(reading.ref,)), by.snapshot)


def _spared(reading: ProcessReading, rule: Rule, by: By) -> Iterator[Reason]:
    """Yield why one other than the root of a target is not to end with it, or may be so.

    Of one that ends already nothing is asked: its program is gone, and no signal takes more.
    """
    if all(is_exiting(task) for task in live_tasks(reading)):
        return
    ref = reading.ref
    exempt = _exempt(reading, rule, by)
    mark = mark_of(reading, by.policy.marks, by.judge.user_ids)
    doubt = mark_doubt(reading, by.policy.marks, by.judge.user_ids)
    if exempt.answer is Tri.YES:
        fields = ", ".join(exempt.fields)
        text = f"pid {ref.pid} is not to end with it: rule {rule.name!r} exempts it by {fields}"
        yield Reason(ReasonKind.PROTECTED, text, _NARROW, (ref,))
    elif exempt.answer is Tri.UNKNOWN:
        text = f"whether rule {rule.name!r} exempts pid {ref.pid} {exempt.text}"
        yield Reason(ReasonKind.UNDETERMINED, text, _NARROW, (ref,))
    if mark:
        text = f"pid {ref.pid} is not to end with it: {mark}"
        yield Reason(ReasonKind.PROTECTED, text, _NARROW, (ref,))
    elif doubt:
        yield Reason(ReasonKind.UNDETERMINED, f"pid {ref.pid}: {doubt}", _NARROW, (ref,))


def _exempt(reading: ProcessReading, rule: Rule, by: By) -> Match:
    """Return whether the rule's exemption concerns a process, on any of the GPUs that it holds."""
    selector, snapshot = rule.exempt, by.snapshot
    if selector.is_empty:
        return _NOT_EXEMPT
    held = [snapshot.gpu(uuid) for uuid in snapshot.gpus_of(reading.ref)] if asks_gpu(selector) else [None]
    digest = digest_of(reading, snapshot)
    answers = [matches(selector, reading, gpu, by.judge, digest) for gpu in held]
    return next(
        (one for wanted in (Tri.YES, Tri.UNKNOWN) for one in answers if one.answer is wanted), _NOT_EXEMPT
    )
