"""What people and programs read of the daemon: the last look and the open incidents as plain JSON."""

from collections.abc import Mapping
from dataclasses import asdict

from reclaimerd import __version__
from reclaimerd.daemon.allocation_rows import allocation_faults, allocation_rows, allocation_word
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.drain_rows import drain_row
from reclaimerd.daemon.drains import attention_text
from reclaimerd.daemon.lately import budget_left, last_act_row
from reclaimerd.daemon.rows import (
    Json,
    actor_text,
    gpu_row,
    holder_row,
    how_seen,
    note_on,
    plight_view,
    process_row,
)
from reclaimerd.daemon.rule_rows import rules_part
from reclaimerd.daemon.telling import stages_of
from reclaimerd.judge.signatures import ab_ba
from reclaimerd.judge.warnings import what_follows
from reclaimerd.model.incident import ENDS, Incident, Subject
from reclaimerd.model.reading import known_or_none
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.snapshot import DriverReading, DriverState, Snapshot

_CLOSE = "reclaimctl breaker close --reason TEXT"


def status_view(cycle: Cycle, facts: Mapping[str, object]) -> Json:
    """Return the host on one screen; `facts` are the service's own (pid, source, last pass, faults)."""
    snapshot = cycle.state.snapshot
    ledger = cycle.state.ledger
    hold = cycle.joints.hold_file(cycle.policy)
    view: Json = {
        "version": __version__,
        "mode": cycle.policy.mode.value,
        "dry_run": cycle.joints.dry_run,
        "paused": None if ledger.pause is None else asdict(ledger.pause),
        "suspended": [asdict(one) for one in ledger.suspended],
        "require_reason": cycle.policy.access.require_reason,
        "denied": cycle.state.denied,
        "hold": hold,
        "breaker": None
        if ledger.breaker is None
        else {"reason": ledger.breaker.reason, "since": ledger.breaker.since},
        "settling_seconds_left": _settling_left(cycle),
        "record_fault": cycle.state.record_fault,
        **rules_part(cycle.policy),
        "policy": cycle.policy.source or cycle.policy.digest,
        "incidents": [incident_row(one, snapshot) for one in cycle.state.incidents.values()],
        "handed_over": [one.id for one in cycle.state.handed.values()],
        "budget": budget_left(cycle.state, cycle.policy.budgets),
        "last_act": last_act_row(cycle.state),
        "faults": [
            {"gpu": one.gpu, "rule": one.rule, "ruling": one.ruling.value, "text": one.text}
            for one in cycle.state.faults.verdicts
        ],
        "xids": [
            {"gpu": one.gpu, "code": one.code, "class": one.fault.word, "count": one.count, "at": one.at}
            for one in ledger.xids
        ],
        "not_watched": [*cycle.joints.news.faults(), *allocation_faults(snapshot)],
        "resets": [reset_row(run) for run in ledger.resets],
        "drain": drain_row(ledger.drain),
        "do_not_touch": [
            {"gpus": list(one.gpus), "since": one.since, "why": one.why} for one in ledger.untouchable
        ],
        "gpu_breakers": [
            {"gpu": one.gpu, "reason": one.reason, "since": one.since} for one in ledger.gpu_breakers
        ],
    }
    if snapshot is None:
        view |= {"driver": {"state": "not read yet", "text": "no look yet"}, "gpus": [], "skipped": []}
    else:
        view |= {
            "simulated": snapshot.simulated,
            "driver": driver_view(snapshot.driver, snapshot.at),
            "gpus": [gpu_row(gpu, snapshot) for gpu in snapshot.gpus],
            "skipped": list(snapshot.scan.skipped),
        }
    view |= facts
    unkept = facts.get("anchor_fault")
    told = [f"the audit log's head can't be kept elsewhere: {unkept}"] if unkept else []
    view["attention"] = [*_attention(cycle, hold), *told]
    return view


def reset_row(run: ResetRun) -> Json:
    """Return one reset under way: where it stands and what it changed."""
    return {
        "id": run.id,
        "incident": run.incident,
        "gpus": list(run.gpus),
        "phase": run.phase.value,
        "since": run.phase_at,
        "text": run.text,
        "changed": [f"{one.kind} {one.name}: {one.state}" for one in run.changes],
    }


def status_sentence(cycle: Cycle) -> str:
    """Return the state in one sentence, for the service manager."""
    snapshot = cycle.state.snapshot
    if snapshot is None:
        return "starting"
    if snapshot.driver.state is DriverState.ABSENT:
        return "no NVIDIA driver: nothing to watch"
    holders = len({holder.ref for holder in snapshot.holders})
    incidents = len(cycle.state.incidents)
    text = f"{cycle.policy.mode}: {len(snapshot.gpus)} GPUs, {holders} holders, {incidents} incidents"
    concerns = _attention(cycle, cycle.joints.hold_file(cycle.policy))
    return f"{text}; {concerns[0]}" if concerns else text


def ps_view(cycle: Cycle) -> Json:
    """Return the table of holders: one row for each process and GPU."""
    snapshot = cycle.state.snapshot
    if snapshot is None:
        return {
            "driver": {"state": "not read yet", "text": "no look yet"},
            "rows": [],
            "dead": [],
            "skipped": [],
        }
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
    judged = cycle.state.evaluation
    return {
        "driver": driver_view(snapshot.driver, snapshot.at),
        "rows": [
            holder_row(
                holder, gpus[holder.gpu], None if judged is None else judged.verdict_of(holder.ref), snapshot
            )
            | {"allocation": allocation_word(holder, snapshot, cycle.policy)}
            for holder in snapshot.holders
            if holder.gpu in gpus
        ],
        "dead": [
            {
                "gpu": listing.gpu,
                "pid": listing.pid,
                "used_bytes": known_or_none(listing.used_bytes),
                "holders": [str(one.ref) for one in snapshot.holders_of(listing.gpu) if not one.listed],
            }
            for listing in snapshot.dead_listings
        ],
        "skipped": list(snapshot.scan.skipped),
    }


def process_view(cycle: Cycle, pid: int) -> Json | None:
    """Return all that is known of one process, None when it was not seen."""
    snapshot, evaluation = cycle.state.snapshot, cycle.state.evaluation
    reading = snapshot.processes.get(pid) if snapshot is not None else None
    if snapshot is None or evaluation is None or reading is None:
        return None
    verdict = evaluation.verdict_of(reading.ref)
    protection = cycle.protection_of(reading)
    incident = next((one.id for one in cycle.state.incidents.values() if reading.ref in one.processes), None)
    return {
        "process": process_row(reading),
        "gpus": [
            {
                "gpu": one.gpu,
                "used_bytes": known_or_none(one.used_bytes),
                "how": how_seen(one),
                "note": note_on(one),
            }
            for one in snapshot.holders
            if one.ref == reading.ref
        ],
        "verdict": None
        if verdict is None
        else {
            "ruling": verdict.ruling.value,
            "rule": verdict.rule,
            "reasons": [
                {"rule": one.rule, "ruling": one.ruling.value, "text": one.text} for one in verdict.reasons
            ],
        },
        "protection": None if protection is None else {"by": protection.by, "text": protection.text},
        "incident": incident,
        "plight": plight_view(snapshot, reading),
        "allocations": allocation_rows(reading, snapshot, cycle.policy),
    }


def driver_view(driver: DriverReading, now: float) -> Json:
    """Return the driver's health, in words first."""
    words = {
        DriverState.RESPONSIVE: "responsive",
        DriverState.SLOW: "slow, and used",
        DriverState.UNRESPONSIVE: "driver unresponsive",
        DriverState.UNKNOWN: "the driver could not be asked",
        DriverState.ABSENT: "no NVIDIA driver: nothing to watch",
    }
    text = words[driver.state] + (f" ({driver.why})" if driver.why else "")
    return {
        "state": driver.state.value,
        "text": text,
        "since_seconds": max(0.0, round(now - driver.since, 3)),
        "version": known_or_none(driver.version),
        "evidence": driver.evidence,
    }


def incident_row(incident: Incident, snapshot: Snapshot | None) -> Json:
    """Return an incident in one row."""
    now = snapshot.at if snapshot is not None else incident.opened_mono
    return {
        "id": incident.id,
        "opened_at": incident.opened_at,
        "ended_at": incident.ended_at,
        "stage": incident.stage.value,
        "end": incident.stage.value if incident.stage in ENDS else "",
        "pid": incident.target.root.pid,
        "ref": str(incident.target.root),
        "uid": incident.target.uid,
        "subject": incident.subject.value,
        "target": incident.target.command,
        "actor": actor_text(incident.actor),
        "reason": incident.reason,
        "gpus": list(incident.target.gpus),
        "dry_run": incident.plan.dry_run,
        "since_seconds": round(max(0.0, now - incident.opened_mono), 3),
        "refused": incident.last_refusal,
        "stages": stages_of(incident),
        "follows": what_follows(incident, now),
        "end_text": incident.end_text,
    }


def _who(incident: Incident) -> str:
    root = incident.target.root.pid
    return f"pid {root}" if incident.subject is Subject.PROCESS else incident.target.command


def _settling_left(cycle: Cycle) -> float:
    if cycle.joints.foreground:
        return 0.0
    passed = cycle.joints.clock() - cycle.settled_from()
    return round(max(0.0, cycle.policy.gates.settling_seconds - passed), 1)


def _attention(cycle: Cycle, hold: str) -> list[str]:
    state = cycle.state
    found = []
    if state.record_fault:
        found.append(f"nothing can be put on record, so nothing is done: {state.record_fault}")
    if state.ledger.breaker is not None:
        found.append(
            f"the breaker tripped ({state.ledger.breaker.reason}); a person looks and closes it: {_CLOSE}"
        )
    if hold:
        found.append(f"{hold} stops every act by rule")
    found += [
        f"DO NOT TOUCH {', '.join(left.gpus)}: {left.why}; reboot the node"
        for left in state.ledger.untouchable
    ]
    found += [
        f"no reset of {one.gpu} any more: {one.reason}; a person looks, then: {_CLOSE} --gpu {one.gpu}"
        for one in state.ledger.gpu_breakers
    ]
    if state.snapshot is not None and state.snapshot.driver.state in (
        DriverState.UNRESPONSIVE,
        DriverState.UNKNOWN,
        DriverState.ABSENT,
    ):
        found.append(str(driver_view(state.snapshot.driver, state.snapshot.at)["text"]))
    if state.snapshot is not None:
        deadlock = ab_ba(state.snapshot.plights.values(), state.snapshot.kernel)
        found += [deadlock] if deadlock is not None else []
    if told := attention_text(state.ledger.drain):
        found.append(told)
    found += [
        f"incident {one.id} ({_who(one)}) was handed over: {one.end_text}" for one in state.handed.values()
    ]
    found += sorted(state.alarmed)
    return found
