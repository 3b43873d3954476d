"""What rules make of a process, and what a policy would decide, in words for people; pure but for user names.

A field that an older or newer daemon leaves out shows as unknown and never ends in a traceback.
"""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.progress import STAGE_WORDS
from reclaimerd.cli.render import Block, Table, age_text, moment_text, size_text, user_text
from reclaimerd.cli.report import driver_line
from reclaimerd.cli.tables import Layout

_MARKS = {"holds": "[yes]", "does_not_hold": "[ - ]", "unknown": "[ ? ]"}
_WORDS = {"holds": "holds", "does_not_hold": "does not hold", "unknown": "can't be known"}
_MODES = {"observe": "nothing (mode observe), else ", "dry-run": "on record only (dry run): "}
_DEEP = "        "


def process_blocks(body: Json) -> Iterator[Block]:
    """Yield a checklist: who it is, what protects it, each rule's answer, and the gates' reasons."""
    yield _headline(body)
    for gpu in body.get("gpus") or ():
        note = f"; {gpu['note']}" if gpu.get("note") else ""
        held = f"{size_text(gpu.get('used_bytes'))} ({gpu.get('how')}{note})"
        yield f"holds GPU {gpu.get('gpu_index')} ({gpu.get('gpu')}): {held}"
    for note in body.get("notes") or ():
        yield f"NOTE: {note}"
    verdict = body.get("verdict") or {}
    by = f" by rule {verdict['rule']}" if verdict.get("ruling") == "reclaim" else ""
    yield f"verdict: {verdict.get('ruling', 'unknown')}{by}"
    if protection := body.get("protection"):
        yield f"  [no] protected ({protection.get('by')}): {protection.get('text')}"
    if body.get("doubt"):
        yield f"  [no] hands off: {body['doubt']}"
    if incident := body.get("incident"):
        yield from _incident_lines(incident)
    if not (body.get("rules") or body.get("fault_rules")):
        yield "the policy in force has no rule that concerns it"
    for rule in body.get("rules") or ():
        yield from _rule_lines(rule)
    for rule in body.get("fault_rules") or ():
        name = f"{rule.get('rule')} (fault, mode {rule.get('mode')})"
        yield f"  GPU {rule.get('gpu')}: {name}: {rule.get('ruling')}: {rule.get('text')}"


def _headline(body: Json) -> str:
    process = body.get("process")
    if not isinstance(process, dict):
        return f"process {body.get('ref')}: it can't be read"
    uids = process.get("uids") or (None,)
    where = f", {process['workload']}" if process.get("workload") else ""
    return f"process {body.get('ref')} ({user_text(uids[0])}{where}): {process.get('command')}"


def _incident_lines(incident: Json) -> Iterator[str]:
    name, actor = incident.get("id"), incident.get("actor")
    since = age_text(incident.get("since_seconds"))
    yield f"open incident {name}, {incident.get('stage')} for {since}, by {actor}: {incident.get('reason')}"
    if incident.get("follows"):
        yield f"{_DEEP}{incident['follows']}"
    yield from _gate_lines(incident.get("gates"))


def _rule_lines(rule: Json) -> Iterator[str]:
    standing = str(rule.get("standing"))
    mark, word = _MARKS.get(standing, "[ ? ]"), _WORDS.get(standing, standing)
    yield f"  {mark} {rule.get('rule')} ({rule.get('kind')}): {word}: {rule.get('text')}"
    held = rule.get("held")
    if isinstance(held, dict):
        yield f"{_DEEP}{_held_text(held)}"
    yield f"{_DEEP}would: {_would_text(rule)}"
    if standing == "holds":
        yield from _gate_lines(rule.get("gates"))


def _held_text(held: Json) -> str:
    begun = f"since {moment_text(held.get('since'))}, over {held.get('readings')} readings"
    left = [age_text(held["seconds_left"])] if held.get("seconds_left") else []
    left += [f"{held['readings_left']} readings"] if held.get("readings_left") else []
    return f"{begun}; must hold for another {' and '.join(left)}" if left else f"{begun}: long enough"


def _would_text(rule: Json) -> str:
    own = rule.get("own_mode")
    mode = f"mode {rule.get('mode')}" + (
        f" (its own is {own})" if own not in (None, rule.get("mode")) else ""
    )
    if rule.get("action") == "observe":
        return f"only observe; {mode}"
    return f"{stages_text(rule.get('stages') or ())}; scope {rule.get('scope')}; {mode}"


def stages_text(stages: list[Json] | tuple[Json, ...]) -> str:
    """Return the steps of a plan in order, each with how long the one before it is waited for."""
    words = []
    for stage in stages:
        name = str(stage.get("stage"))
        after = stage.get("after_seconds")
        word = STAGE_WORDS.get(name, name)
        words.append(f"after {age_text(after)} {word}" if after else word)
    return ", ".join(words) or "nothing"


def _gate_lines(gates: object) -> Iterator[str]:
    """Yield the gates' answer to what comes next: leave, or every reason with its mend."""
    if not isinstance(gates, dict):
        return
    name = str(gates.get("stage") or "")
    step = STAGE_WORDS.get(name, name)
    due = gates.get("due_seconds")
    when = f" (due in {age_text(due)})" if due else ""
    if gates.get("permitted") is True:
        dry = ", as a dry run" if gates.get("dry_run") else ""
        yield f"{_DEEP}[ok] {step}{when} would be permitted now{dry}"
    elif gates.get("permitted") is False:
        yield f"{_DEEP}{step}{when} would be refused now"
    else:
        yield f"{_DEEP}[--] {step}{when}{': ' if step else ''}{gates.get('text')}"
    for reason in gates.get("reasons") or ():
        yield f"{_DEEP}[no] {reason.get('kind')}: {reason.get('text')}"
        if reason.get("mend"):
            yield f"{_DEEP}     mend: {reason['mend']}"


def trial_blocks(body: Json) -> Iterator[Block]:
    """Yield what a policy would decide about one look, a row for each rule that holds or can't be told."""
    yield f"{body.get('policy')} over the look of {moment_text(body.get('taken_at'))} ({body.get('source')})"
    if (body.get("driver") or {}).get("state") != "responsive":
        yield driver_line(body)
    for note in body.get("notes") or ():
        yield f"NOTE: {note}"
    rows = body.get("rows") or ()
    if rows:
        headings = ("PID@START", "USER", "GPU", "RULE", "RULING", "WHY", "DUE")
        layout = Layout(cut=(("RULE", 12), ("WHY", 16)), drop=("USER",), folds=True)
        yield Table(headings, tuple(_trial_row(row) for row in rows), layout)
    else:
        yield "no process that holds a GPU was seen, and no fault of a GPU that a rule waits for"
    if body.get("breaker"):
        yield f"the breaker would trip if all this became due at once: {body['breaker']}"
    for what in body.get("skipped") or ():
        yield f"not looked at: {what}"


def _trial_row(row: Json) -> tuple[str, ...]:
    index = row.get("gpu_index") or ()
    return (
        str(row.get("ref") or "-"),
        user_text(row["uid"]) if row.get("uid") is not None else "-",
        " ".join("?" if one is None else str(one) for one in index),
        str(row.get("rule") or "-"),
        str(row.get("ruling")),
        "; ".join(filter(None, (str(row.get("text") or ""), str(row.get("must_hold") or "")))),
        _due_text(row),
    )


def _due_text(row: Json) -> str:
    if row.get("ruling") != "reclaim":
        return "nothing"
    if not row.get("decides"):
        return "nothing: another rule decides"
    return _MODES.get(str(row.get("mode")), "") + stages_text(row.get("stages") or ())
