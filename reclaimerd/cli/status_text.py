"""The lines of `status` beside its tables: what holds acts back, what was done last, what ails the GPUs."""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import age_text, moment_text


def brake_lines(body: Json) -> Iterator[str]:
    """Yield what holds back acts by rule."""
    if pause := body.get("paused"):
        until = f" until {moment_text(pause['until'])}" if pause.get("until") else " until resumed"
        why = f": {pause['reason']}" if pause.get("reason") else ""
        yield f"paused by {pause.get('by')} since {moment_text(pause.get('since'))}{until}{why}"
    for rule in body.get("suspended") or ():
        until = f" until {moment_text(rule['until'])}" if rule.get("until") else " until resumed"
        why = f": {rule['reason']}" if rule.get("reason") else ""
        yield f"rule {rule.get('rule')} only observes, suspended by {rule.get('by')}{until}{why}"
    if body.get("hold"):
        yield f"hold: {body['hold']} exists; no act by rule"
    if breaker := body.get("breaker"):
        since = moment_text(breaker.get("since"))
        yield f"breaker tripped {since}: {breaker.get('reason')}; only a person closes it"
    if body.get("settling_seconds_left"):
        yield f"settling: no act by rule for another {age_text(body['settling_seconds_left'])}"
    if body.get("record_fault"):
        yield f"record: {body['record_fault']}; no record, no act"
    if budget := body.get("budget"):
        workloads, drains = budget.get("workloads_left_today"), budget.get("drains_left_today")
        resets = budget.get("resets_left_today")
        yield f"budget left today: {workloads} workloads, {resets} resets, {drains} drain requests"
    if "last_act" in body:
        yield last_act_line(body["last_act"])


def gpu_lines(body: Json) -> Iterator[str]:
    """Yield what ails GPUs, what can't be watched, and the resets under way."""
    for xid in body.get("xids") or ():
        what = f"Xid {xid.get('code')} ({xid.get('class')}), {xid.get('count')} times"
        yield f"GPU {xid.get('gpu')}: {what}, the last {moment_text(xid.get('at'))}"
    for one in body.get("faults") or ():
        yield f"fault rule {one.get('rule')} on {one.get('gpu')}: {one.get('ruling')}: {one.get('text')}"
    for what in body.get("not_watched") or ():
        yield f"not watched: {what}"
    for run in body.get("resets") or ():
        gpus = " ".join(str(gpu) for gpu in run.get("gpus") or ())
        yield f"reset of {gpus}: {run.get('phase')} since {moment_text(run.get('since'))} {run.get('text')}"


def last_act_line(act: Json | None) -> str:
    """Return what was done last, to whom, when, for whom, and what came of it."""
    if not act:
        return "last act: none is known"
    gpus = " ".join(str(gpu) for gpu in act.get("gpus") or ())
    target = f" to pid {act['pid']}" if act.get("pid") else f" of {gpus}" if gpus else " of this node"
    rehearsed = " (dry run)" if act.get("dry_run") and act.get("outcome") != "dry_run" else ""
    end = f", {act['end']}" if act.get("end") else ""
    what = f"{act.get('stage')}{target} for {act.get('actor')}: {act.get('outcome')}{rehearsed}"
    return f"last act: {what}, {moment_text(act.get('at'))}; {act.get('incident')}{end}"
