"""Say what a policy would decide about one look, as if what holds now went on to hold; pure.

One look can't show how long a condition has held. So every rule's answer is given as it would be after
its `for`, and beside it how long that is. It opens nothing and asks no gate but the breaker's figures.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reclaimerd.judge.budgets import breaker_trip
from reclaimerd.judge.evaluate import Evaluation, JudgeContext, evaluate
from reclaimerd.judge.explaining import (
    PlannedStage,
    RuleAccount,
    Standing,
    doubt_of,
    planned_stages,
    rule_accounts,
    spared_by,
)
from reclaimerd.judge.fault_rules import FaultSpan, GpuVerdict, evaluate_faults
from reclaimerd.judge.gate_context import NewlyDue, workload_key
from reclaimerd.model.fault import StandingXid
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.incident import Target
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, Mode, Policy, RuleAction, Scope
from reclaimerd.model.reading import text_of
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling, Verdict

_LONG_SECONDS = 366 * 86400.0
"""The policy's own limit of a duration: whatever `for` says is over after it."""
_MANY_READINGS = 1_000_000


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One rule's decision on one process (`ref`), or on one GPU where `ref` is None.

    `holds`: its condition holds in this look. `ruling` is what it would be once that has gone on for
    `for_seconds` and `readings`. `decides`: of several rules that would take this process, this is the
    one that would. `rule` is "" where none holds.
    """

    ref: ProcessRef | None
    gpus: tuple[GpuUuid, ...]
    rule: str
    ruling: Ruling
    text: str
    holds: bool = False
    mode: Mode = Mode.OBSERVE
    for_seconds: float = 0.0
    readings: int = 1
    stages: tuple[PlannedStage, ...] = ()
    decides: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """All decisions on one look; `breaker` says why it would trip if all became due at once, or ""."""

    rows: tuple[TrialRow, ...]
    breaker: str = ""


def trial(snapshot: Snapshot, policy: Policy, xids: tuple[StandingXid, ...], context: JudgeContext) -> Trial:
    """Return what the policy would decide about everything in this look."""
    evaluation = _after_long(snapshot, policy, context)
    by_process = [
        row for verdict in evaluation.verdicts for row in _rows(verdict, evaluation, policy, snapshot)
    ]
    faults = _faults_after_long(snapshot, policy, xids)
    rules = {rule.name: rule for rule in policy.fault_rules}
    by_gpu = [_fault_row(one, rules[one.rule], policy) for one in faults]
    due = (*_processes_due(evaluation, policy, snapshot), *_gpus_due(faults, snapshot))
    return Trial((*by_process, *by_gpu), breaker_trip(due, snapshot, policy) or "")


def _after_long(snapshot: Snapshot, policy: Policy, context: JudgeContext) -> Evaluation:
    """Return the evaluation of this look as it would be if what holds in it had held for long."""
    first = evaluate(snapshot, policy, (), context)
    aged = tuple(
        replace(kept, since=snapshot.at - _LONG_SECONDS, last=snapshot.at, readings=_MANY_READINGS)
        for kept in first.sustained
    )
    return evaluate(snapshot, policy, aged, context)


def _faults_after_long(
    snapshot: Snapshot, policy: Policy, xids: tuple[StandingXid, ...]
) -> tuple[GpuVerdict, ...]:
    ledger = Ledger(xids=xids)
    _, spans = evaluate_faults(snapshot, policy, ledger, {})
    since = snapshot.at - _LONG_SECONDS
    aged: Mapping[tuple[str, GpuUuid], FaultSpan] = {key: FaultSpan(since, snapshot.at) for key in spans}
    verdicts, _ = evaluate_faults(snapshot, policy, ledger, aged)
    return verdicts


def _rows(verdict: Verdict, evaluation: Evaluation, policy: Policy, snapshot: Snapshot) -> Iterator[TrialRow]:
    """Yield a row for each rule that holds or can't be told; one row where none does."""
    held = snapshot.gpus_of(verdict.ref)
    accounts = rule_accounts(verdict, evaluation, policy, snapshot.at)
    concerned = [account for account in accounts if account.standing is not Standing.DOES_NOT_HOLD]
    for account in concerned:
        yield _rule_row(account, verdict, policy, held)
    if not concerned:
        spared = spared_by(verdict)
        text = doubt_of(verdict) or "no rule holds"
        yield TrialRow(verdict.ref, held, "", verdict.ruling, text if spared is None else spared.text)


def _rule_row(account: RuleAccount, verdict: Verdict, policy: Policy, held: tuple[GpuUuid, ...]) -> TrialRow:
    rule, reason = account.rule, account.reason
    acts = reason.ruling is Ruling.RECLAIM
    return TrialRow(
        ref=verdict.ref,
        gpus=reason.gpus or held,
        rule=rule.name,
        ruling=reason.ruling,
        text=reason.text,
        holds=account.standing is Standing.HOLDS,
        mode=reason.mode,
        for_seconds=rule.for_seconds,
        readings=rule.readings,
        stages=planned_stages(rule, policy, rule.stages) if acts else (),
        decides=acts and verdict.rule == rule.name,
    )


def _fault_row(verdict: GpuVerdict, rule: FaultRule, policy: Policy) -> TrialRow:
    acts = verdict.ruling is Ruling.RECLAIM
    return TrialRow(
        ref=None,
        gpus=(verdict.gpu,),
        rule=rule.name,
        ruling=verdict.ruling,
        text=verdict.text,
        holds=verdict.ruling is not Ruling.UNDETERMINED,
        mode=verdict.mode,
        for_seconds=rule.for_seconds,
        stages=planned_stages(rule, policy, verdict.stages) if acts else (),
        decides=acts,
    )


def _gpus_due(faults: tuple[GpuVerdict, ...], snapshot: Snapshot) -> Iterator[NewlyDue]:
    """Yield the GPUs that an enforcing fault rule would reset or drain, as the breaker counts them."""
    nobody = str(ProcessRef(snapshot.boot_id, 0, 0))
    for verdict in faults:
        if verdict.ruling is Ruling.RECLAIM and verdict.mode is Mode.ENFORCE:
            yield NewlyDue(nobody, (verdict.gpu,))


def _processes_due(evaluation: Evaluation, policy: Policy, snapshot: Snapshot) -> Iterator[NewlyDue]:
    """Yield what an enforcing rule would take, as the breaker counts it: not what is only warned."""
    warn = {rule.name for rule in policy.rules if rule.action is RuleAction.WARN}
    for verdict in evaluation.verdicts:
        if verdict.rule in warn:
            continue
        deciding = next((one for one in verdict.reasons if one.rule == verdict.rule), None)
        reading = snapshot.process(verdict.ref)
        enforced = deciding is not None and deciding.mode is Mode.ENFORCE
        if verdict.ruling is Ruling.RECLAIM and enforced and reading is not None:
            gpus = snapshot.gpus_of(verdict.ref)
            target = Target(
                scope=Scope.PROCESS,
                root=reading.ref,
                members=(reading.ref,),
                gpus=gpus,
                uid=reading.uids[0],
                exe=text_of(reading.exe),
                command="",
                workload=reading.workload,
            )
            yield NewlyDue(workload_key(target), gpus)
