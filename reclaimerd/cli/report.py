"""The answers of the API in words and tables for people; pure but for names of users.

A field that an older or newer daemon leaves out shows as unknown and never ends in a traceback.
"""

from collections.abc import Iterator

from reclaimerd.cli import layouts
from reclaimerd.cli.drain_text import drain_lines
from reclaimerd.cli.evidence_text import plight_line
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.progress import task_table
from reclaimerd.cli.render import (
    Block,
    Table,
    age_text,
    moment_text,
    percent_text,
    printable,
    size_text,
    user_text,
)
from reclaimerd.cli.staged_text import staged_lines
from reclaimerd.cli.status_text import brake_lines, gpu_lines
from reclaimerd.cli.tables import shortened

COMMAND_WIDTH = 100


def status_blocks(body: Json) -> Iterator[Block]:
    """Yield what `status` shows: what needs a person stands first."""
    for sentence in body.get("attention") or ():
        yield f"ATTENTION: {sentence}"
    mode = f"mode {body.get('mode', 'unknown')}" + (", dry run" if body.get("dry_run") else "")
    simulated = ", simulated host" if body.get("simulated") else ""
    source = "in the foreground" if body.get("source") == "foreground" else f"daemon, pid {body.get('pid')}"
    yield f"reclaimerd {body.get('version')} ({source}{simulated}), {mode}"
    enforcing = f", {body['enforcing']} may enforce here" if body.get("enforcing") is not None else ""
    yield f"policy: {body.get('policy')}, {body.get('rules')} rules{enforcing}"
    yield from staged_lines(body)
    yield driver_line(body)
    yield from brake_lines(body)
    yield from gpu_lines(body)
    yield from drain_lines(body.get("drain"))
    if body.get("gpus"):
        yield Table(
            ("GPU", "UUID", "NAME", "PCI", "MEMORY", "UTIL", "HOLDERS", "RECOVERY", "NOTE"),
            tuple(_gpu_row(gpu) for gpu in body["gpus"]),
            layouts.GPUS,
        )
    if body.get("incidents"):
        yield "open incidents:"
        yield Table(
            ("ID", "PID", "STAGE", "SINCE", "TARGET", "GPUS"),
            tuple(
                (
                    str(item.get("id")),
                    "-" if item.get("pid") == 0 else str(item.get("pid")),
                    str(item.get("stage")),
                    age_text(item.get("since_seconds")),
                    str(item.get("target")),
                    _gpu_list(item),
                )
                for item in body["incidents"]
            ),
            layouts.OPEN_INCIDENTS,
        )
        yield from (
            f"  {item.get('id')}: {item['follows']}" for item in body["incidents"] if item.get("follows")
        )
    yield from _skipped(body)


def driver_line(body: Json) -> str:
    """Return how the driver answers, in words."""
    driver = body.get("driver") or {}
    state = driver.get("state", "unknown")
    text = str(driver.get("text") or state)
    version = f", version {driver['version']}" if driver.get("version") else ""
    evidence = f" [{driver['evidence']}]" if driver.get("evidence") and state != "responsive" else ""
    since = f" for {age_text(driver.get('since_seconds'))}" if state in {"unresponsive", "slow"} else ""
    return f"driver: {text}{since}{version}{evidence}"


def _gpu_row(gpu: Json) -> tuple[str, ...]:
    return (
        str(gpu.get("index")),
        str(gpu.get("uuid")),
        str(gpu.get("name")),
        str(gpu.get("pci")),
        f"{size_text(gpu.get('used_bytes'))} / {size_text(gpu.get('total_bytes'))}",
        percent_text(gpu.get("utilisation_percent")),
        str(gpu.get("holders")),
        str(gpu.get("recovery_action")),
        str(gpu.get("note") or ""),
    )


def ps_blocks(body: Json) -> Iterator[Block]:
    """Yield who holds which GPU; where the driver does not answer, that first."""
    if (body.get("driver") or {}).get("state") != "responsive":
        yield driver_line(body)
    rows = body.get("rows") or ()
    if rows:
        headings = (
            "GPU",
            "PID@START",
            "USER",
            "MEMORY",
            "SHARE",
            "UTIL",
            "AGE",
            "STATE",
            "WORKLOAD",
            "ALLOC",
            "VERDICT",
            "COMMAND",
        )
        yield Table(headings, tuple(_ps_row(row) for row in rows), layouts.PS)
    else:
        yield "no process that holds a GPU was seen"
    for dead in body.get("dead") or ():
        yield dead_line(dead)
    yield from _skipped(body)


def _ps_row(row: Json) -> tuple[str, ...]:
    command = str(row.get("command") or row.get("comm") or "")
    verdict = str(row.get("verdict_text") or row.get("verdict") or "")
    notes = [str(row["note"])] if row.get("note") else []
    if row.get("how") in {"remembered", "heir"}:
        notes.append(str(row["how"]))
    return (
        str(row.get("gpu_index")),
        str(row.get("ref") or row.get("pid")),
        user_text(row.get("uid")),
        size_text(row.get("used_bytes")),
        percent_text(row.get("share_percent")),
        percent_text(row.get("utilisation_percent")),
        age_text(row.get("age_seconds")),
        str(row.get("state")),
        str(row.get("workload") or "-"),
        str(row.get("allocation") or "-"),
        f"{verdict} ({', '.join(notes)})" if notes else verdict,
        shortened(printable(command), COMMAND_WIDTH),
    )


def dead_line(dead: Json) -> str:
    """Return what a dead but listed process means, and the command for those who hold in truth."""
    holders = [str(ref) for ref in dead.get("holders") or ()]
    size = size_text(dead.get("used_bytes"))
    what = f"GPU {dead.get('gpu')}: the driver lists pid {dead.get('pid')} with {size}, but it is dead"
    if not holders:
        return f"{what}; no living holder was found"
    command = " ".join(["reclaimctl kill", *(f"--pid {ref}" for ref in holders)])
    return f"{what}; held by {', '.join(holders)}: {command}"


def inspect_blocks(body: Json) -> Iterator[Block]:
    """Yield all that is known of one process."""
    process = body.get("process") or {}
    yield f"process {process.get('ref')}"
    skip = {"ref", "tasks", "state", "age_seconds", "uids"}
    facts = [("state", f"{process.get('state')} ({process.get('state_text')})")]
    facts.append(("user", ", ".join(dict.fromkeys(user_text(uid) for uid in process.get("uids") or ()))))
    facts.append(("age", age_text(process.get("age_seconds"))))
    facts += [(k, _plain(v)) for k, v in process.items() if k not in skip and k != "state_text" and v != {}]
    facts = [(k, v.replace("\n", "; ") if k == "cgroup" else v) for k, v in facts]
    yield Table(("FIELD", "VALUE"), tuple(facts), layouts.FACTS)
    for gpu in body.get("gpus") or ():
        yield f"holds GPU {gpu.get('gpu')}: {size_text(gpu.get('used_bytes'))} ({gpu.get('how')})"
    verdict = body.get("verdict") or {}
    by = f" by rule {verdict['rule']}" if verdict.get("rule") else ""
    yield f"verdict: {verdict.get('ruling', 'none')}{by}"
    for reason in verdict.get("reasons") or ():
        yield f"  {reason.get('rule')}: {reason.get('ruling')}: {reason.get('text')}"
    for one in body.get("allocations") or ():
        yield f"allocation of GPU {one.get('gpu')}: {one.get('ruling')}: {one.get('text')}"
        yield from (f"  {line}" for line in one.get("evidence") or ())
    if protection := body.get("protection"):
        yield f"protected ({protection.get('by')}): {protection.get('text')}"
    if line := plight_line(body.get("plight")):
        yield f"in the kernel: {line}"
        for sign in (body["plight"].get("evidence") or ()) if isinstance(body["plight"], dict) else ():
            yield f"  {sign}"
    if body.get("incident"):
        yield f"open incident: {body['incident']} (reclaimctl incidents show {body['incident']})"
    if process.get("tasks"):
        yield task_table(process["tasks"])


def _plain(value: object) -> str:
    """Return a value of any shape as words."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item not in ("", None))
    if isinstance(value, list):
        return " ".join(_plain(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def explain_blocks(body: Json) -> Iterator[Block]:
    """Yield whether a reset would be permitted, with every reason at once."""
    word = "would be permitted" if body.get("permitted") else "would be refused"
    yield f"GPU {body.get('gpu')}: a reset {word}"
    together = [gpu for gpu in body.get("gpus") or () if gpu != body.get("gpu")]
    if together:
        yield f"  with it, in one command: {' '.join(together)}"
    for reason in body.get("reasons") or ():
        text = str(reason.get("text"))
        unnamed = [str(pid) for pid in reason.get("pids") or () if f"pid {pid}" not in text]
        pids = f" (pid {', '.join(unnamed)})" if unnamed else ""
        yield f"  [no] {reason.get('kind')}: {text}{pids}"
        if reason.get("mend"):
            yield f"       mend: {reason['mend']}"
    mark = "[ok]" if body.get("permitted") else "[--]"
    for number, step in enumerate(body.get("steps") or (), 1):
        yield f"  {mark} step {number}: {step}"
    runnable = body.get("runnable") or {}
    yield f"tool: {'can run' if runnable.get('ok') else 'can not run'}: {runnable.get('text', '')}"


def incident_list_blocks(body: Json) -> Iterator[Block]:
    """Yield incidents, a row each."""
    incidents = body.get("incidents") or ()
    if not incidents:
        yield "no incidents"
        return
    rows = tuple(
        (
            str(item.get("id")),
            moment_text(item.get("opened_at")),
            str(item.get("end") or item.get("stage")) + (" (dry run)" if item.get("dry_run") else ""),
            "-" if item.get("pid") == 0 else str(item.get("ref") or item.get("pid")),
            _plain(item.get("actor")),
            _gpu_list(item),
            str(item.get("reason") or ""),
        )
        for item in incidents
    )
    headings = ("ID", "OPENED", "STAGE OR END", "PID@START", "BY", "GPUS", "REASON")
    yield Table(headings, rows, layouts.INCIDENTS)


def incident_blocks(body: Json) -> Iterator[Block]:
    """Yield one incident and what happened in it."""
    incident = body.get("incident") or {}
    times = {key: moment_text(value) for key, value in incident.items() if key.endswith("_at") and value}
    facts = tuple((k, times.get(k, "-" if v is None else _plain(v))) for k, v in incident.items())
    yield Table(("FIELD", "VALUE"), facts, layouts.FACTS)
    for line in body.get("timeline") or ():
        yield f"{moment_text(line.get('at'))}  {line.get('kind')}: {line.get('text')}"


def _gpu_list(item: Json) -> str:
    return " ".join(str(gpu)[: layouts.GPU_SHOWN] for gpu in item.get("gpus") or ())


def _skipped(body: Json) -> Iterator[str]:
    for what in body.get("skipped") or ():
        yield f"not looked at: {what}"
