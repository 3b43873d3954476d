"""The calls about rules: what each may do now, and suspending one, so that it only observes for a time."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import pause_seconds, reason_of
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.past import read_last_by_rule
from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode
from reclaimerd.judge.modes import effective_mode, rule_named, suspension_of
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Ledger, Suspension
from reclaimerd.model.policy import FaultRule, Rule
from reclaimerd.model.snapshot import Snapshot


async def rules_call(service: Service) -> Answer:
    """Return every rule: how far it may go now, who suspended it, for whom it holds, when it last opened."""
    paths = service.engine.paths
    last = await service.off_loop(lambda: read_last_by_rule(paths.state_dir), "reading incidents")
    policy = service.cycle.policy
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return Answer(200, {"mode": policy.mode.value, "rules": [_row(service, rule, last) for rule in rules]})


async def suspend_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Let one rule only observe, for a time or until resumed; suspended anew is the newer word.

    Raises OrderFault, RecordError.
    """
    seconds, reason, name = pause_seconds(call.body), reason_of(call.body), _name_in(call)
    if rule_named(service.cycle.policy, name) is None:
        return _no_rule(name)
    wall = service.wall()
    until = None if seconds is None else wall + seconds
    made = Suspension(name, caller.actor.name, reason, wall, until)
    record = entries.of_host(RecordKind.RULE_SUSPENDED, reason or "no reason given", caller.actor)

    def suspended(ledger: Ledger) -> Ledger:
        others = tuple(one for one in ledger.suspended if one.rule != name)
        return replace(ledger, suspended=(*others, made))

    await service.cycle.write(suspended, (replace(record, action=name),))
    service.pacing.wake()
    return Answer(200, {"suspended": suspension_row(made)})


async def resume_rule_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Let a suspended rule go as far as the policy says again; also one that the policy no longer has."""
    name = _name_in(call)
    found = suspension_of(name, service.cycle.state.ledger.suspended)
    if found is None and rule_named(service.cycle.policy, name) is None:
        return _no_rule(name)
    if found is None:
        text = f"rule {name!r} is not suspended"
        return refusal(404, text, "see reclaimctl rules list", ExitCode.NO_TARGET)
    record = entries.of_host(RecordKind.RULE_RESUMED, reason_of(call.body) or "no reason given", caller.actor)
    await service.cycle.write(
        lambda ledger: replace(ledger, suspended=tuple(one for one in ledger.suspended if one.rule != name)),
        (replace(record, action=name),),
    )
    service.pacing.wake()
    return Answer(200, {"suspended": None})


def suspension_row(suspension: Suspension) -> Json:
    """Return one suspension as people and programs read it."""
    return asdict(suspension)


def _row(service: Service, rule: Rule | FaultRule, last: Mapping[str, float]) -> Json:
    cycle = service.cycle
    own = rule_named(cycle.given, rule.name) or rule
    stands = suspension_of(rule.name, cycle.state.ledger.suspended)
    return {
        "name": rule.name,
        "kind": rule.kind.value,
        "mode": own.mode.value,
        "effective_mode": effective_mode(cycle.policy, rule).value,
        "action": rule.action.value,
        "suspended": None if stands is None else suspension_row(stands),
        "holds_for": _holds_for(service, rule, cycle.state.snapshot),
        "last_opened_at": last.get(rule.name),
    }


def _holds_for(service: Service, rule: Rule | FaultRule, snapshot: Snapshot | None) -> int | None:
    """Return for how many holders, or GPUs, a rule's condition holds in the last look; None before one."""
    state = service.cycle.state
    if snapshot is None:
        return None
    if isinstance(rule, FaultRule):
        return len({one.gpu for one in state.faults.verdicts if one.rule == rule.name})
    held = (one for one in state.sustained if one.rule == rule.name and one.last == snapshot.at)
    return len({one.ref for one in held})


def _name_in(call: Call) -> str:
    return call.path.split("/")[-2]


def _no_rule(name: str) -> Answer:
    text = f"the policy has no rule {name[:64]!r}"
    return refusal(404, text, "see reclaimctl rules list", ExitCode.NO_TARGET)
