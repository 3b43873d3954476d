"""The calls that explain: every rule's answer on one process, and one look for `policy test`.

They read the last look and change nothing: an incident that is made here is asked about and dropped.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.members import members_of
from reclaimerd.daemon.opening import Moment, rule_incident, target_of
from reclaimerd.daemon.process_calls import LOOK_SECONDS, process_call
from reclaimerd.daemon.recorded_look import recorded
from reclaimerd.daemon.resets import in_flight
from reclaimerd.daemon.rows import Json, how_seen, note_on, process_row, reason_row
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.views import incident_row
from reclaimerd.errors import ExitCode
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.explaining import (
    Held,
    NextStep,
    RuleAccount,
    doubt_of,
    next_step,
    planned_stages,
    rule_accounts,
)
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.protections import program_globs
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import ActorKind, Incident
from reclaimerd.model.policy import RuleAction
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import known_or_none
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, Refusal
from reclaimerd.model.verdict import Verdict

_SHOWN = ("uids", "comm", "command", "state_text", "workload", "age_seconds")


async def explain_process(service: Service, call: Call) -> Answer:
    """Return what every rule makes of one process now, and what the gates would say."""
    return await process_call(service, call, process_explained)


async def snapshot_call(service: Service) -> Answer:
    """Return a fresh look in the form that is written to a file, with what any policy may ask of one.

    Where none comes in time the last one is given.
    """
    state, joints = service.cycle.state, service.cycle.joints
    state.wants_every_reading = True
    await service.look(seconds=LOOK_SECONDS)
    if state.snapshot is None:
        return refusal(409, "there was no look yet", "see reclaimctl status", ExitCode.REFUSED)
    programs = program_globs(service.cycle.policy.protections)
    return Answer(200, recorded(state.snapshot, joints.ours(), programs, state.ledger.xids))


@dataclass(frozen=True, slots=True)
class _About:
    """One holder that is to be explained, and all that was seen and judged in that look."""

    cycle: Cycle
    context: GateContext
    evaluation: Evaluation
    verdict: Verdict

    @property
    def snapshot(self) -> Snapshot:
        return self.context.snapshot

    @property
    def reading(self) -> ProcessReading | None:
        return self.snapshot.process(self.verdict.ref)

    @property
    def incident(self) -> Incident | None:
        """Return the open incident that has the process among its members."""
        return _first_about(self.cycle.state.incidents.values(), self.verdict.ref)

    @property
    def handed(self) -> Incident | None:
        """Return the incident that gave the process over to a person or the scheduler."""
        return _first_about(self.cycle.state.handed.values(), self.verdict.ref)


def process_explained(cycle: Cycle, pid: int) -> Json | None:
    """Return all that is to be said of one holder, None when it was not seen to hold anything."""
    context, evaluation = cycle.context(), cycle.state.evaluation
    if context is None or evaluation is None:
        return None
    verdict = next((one for one in evaluation.verdicts if one.ref.pid == pid), None)
    if verdict is None:
        return None
    about = _About(cycle, context, evaluation, verdict)
    reading = about.reading
    protection = None if reading is None else cycle.protection_of(reading)
    return {
        "ref": str(verdict.ref),
        "pid": pid,
        "process": None if reading is None else {key: process_row(reading)[key] for key in _SHOWN},
        "gpus": _holdings(about),
        "verdict": {"ruling": verdict.ruling.value, "rule": verdict.rule, "gpus": list(verdict.gpus)},
        "doubt": doubt_of(verdict),
        "protection": None if protection is None else {"by": protection.by, "text": protection.text},
        "rules": [
            _rule_row(one, about)
            for one in rule_accounts(verdict, evaluation, context.policy, about.snapshot.at)
        ],
        "fault_rules": _fault_rows(about),
        "incident": None if about.incident is None else _incident_view(about.incident, about),
        "notes": list(_notes(about)),
    }


def _first_about(incidents: Iterable[Incident], ref: ProcessRef) -> Incident | None:
    return next((one for one in incidents if ref in one.processes), None)


def _holdings(about: _About) -> list[Json]:
    indices = {gpu.uuid: gpu.index for gpu in about.snapshot.gpus}
    return [
        {
            "gpu": one.gpu,
            "gpu_index": indices.get(one.gpu),
            "used_bytes": known_or_none(one.used_bytes),
            "how": how_seen(one),
            "note": note_on(one),
        }
        for one in about.snapshot.holders
        if one.ref == about.verdict.ref
    ]


def _rule_row(account: RuleAccount, about: _About) -> Json:
    rule, reason = account.rule, account.reason
    acts = rule.action is not RuleAction.OBSERVE
    stages = planned_stages(rule, about.context.policy, rule.stages) if acts else ()
    would = _would_open(account, about) if acts else None
    return {
        "rule": rule.name,
        "kind": str(rule.kind),
        "standing": account.standing.value,
        "ruling": reason.ruling.value,
        "text": reason.text,
        "gpus": list(reason.gpus),
        "mode": reason.mode.value,
        "own_mode": rule.mode.value,
        "action": rule.action.value,
        "scope": rule.scope.value,
        "stages": [{"stage": one.stage.value, "after_seconds": one.after_seconds} for one in stages],
        "for_seconds": rule.for_seconds,
        "readings": rule.readings,
        "held": None if account.held is None else _held_row(account.held, about.snapshot),
        "gates": None if would is None else gates_view(next_step(would, about.context)),
    }


def _held_row(held: Held, snapshot: Snapshot) -> Json:
    return {
        "since": snapshot.taken_at - held.seconds,
        "seconds": round(held.seconds, 3),
        "readings": held.readings,
        "seconds_left": round(held.seconds_left, 3),
        "readings_left": held.readings_left,
    }


def _would_open(account: RuleAccount, about: _About) -> Incident | None:
    """Return the incident that this rule would open on the process now; it is opened nowhere.

    None for a process that is taken up already, was handed over, or can't be read: no rule opens one.
    """
    reading, snapshot = about.reading, about.snapshot
    if reading is None or about.incident is not None or about.handed is not None:
        return None
    members = members_of(reading, account.rule.scope, snapshot)
    target = target_of(reading, account.rule.scope, members, snapshot)
    now = Moment(about.context.now, about.context.wall)
    incident = rule_incident(about.verdict, account.rule, target, about.context.policy, now)
    dry_run = incident.plan.dry_run or about.cycle.joints.dry_run
    return replace(incident, plan=replace(incident.plan, dry_run=dry_run))


def gates_view(step: NextStep) -> Json:
    """Return what comes next and the gates' whole answer; `permitted` is None where they were not asked."""
    answer = step.answer
    refused = answer.reasons if isinstance(answer, Refusal) else ()
    return {
        "stage": None if step.stage is None else step.stage.value,
        "due_seconds": None if step.due_seconds is None else round(step.due_seconds, 3),
        "permitted": None if answer is None else isinstance(answer, Permit),
        "dry_run": isinstance(answer, Permit) and answer.dry_run,
        "reasons": [reason_row(reason) for reason in refused],
        "text": step.text,
    }


def _incident_view(incident: Incident, about: _About) -> Json:
    row = incident_row(incident, about.snapshot)
    if in_flight(incident.id, about.context.ledger):
        return row | {"gates": gates_view(NextStep(None, None, None, "its reset is under way"))}
    by_rule = incident.actor.kind is ActorKind.RULE
    fault = about.context.record_fault if by_rule else about.cycle.state.operator_fault
    return row | {"gates": gates_view(next_step(incident, replace(about.context, record_fault=fault)))}


def _fault_rows(about: _About) -> list[Json]:
    """Return what fault rules say of the GPUs that the process holds: their holders may be told to go."""
    held = about.snapshot.gpus_of(about.verdict.ref)
    return [
        {
            "gpu": one.gpu,
            "rule": one.rule,
            "ruling": one.ruling.value,
            "text": one.text,
            "mode": one.mode.value,
            "stages": [stage.value for stage in one.stages],
        }
        for one in about.cycle.state.faults.verdicts
        if one.gpu in held
    ]


def _notes(about: _About) -> Iterator[str]:
    """Yield what holds back every rule here, and no gate says."""
    joints = about.cycle.joints
    if joints.foreground:
        yield "no daemon runs: no rule acts, and one look can't show since when a rule holds"
    if joints.dry_run:
        yield "the daemon runs with --dry-run: nothing is sent for anybody"
    if about.incident is not None:
        yield f"incident {about.incident.id} is open for it: while it is, no rule opens a second one"
    if about.handed is not None:
        yield f"incident {about.handed.id} was handed over: no rule takes this process up again"
