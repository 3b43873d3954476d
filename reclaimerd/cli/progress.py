"""What a kill says while it runs and when it ends, in words; pure but for the local time of day."""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import Block, Table, age_text, clock_text
from reclaimerd.cli.tables import Layout
from reclaimerd.errors import ExitCode

STAGE_WORDS = {
    "warned": "warning",
    "sigterm": "SIGTERM",
    "sigkill": "SIGKILL",
    "reset": "GPU reset",
    "drain": "drain request",
}


def event_line(event: Json, subject: str = "GPU") -> str:
    """Return one line of progress: `12:01:02  pid 4242  SIGTERM sent`; `subject` is what has no pid."""
    pid = f"pid {event['pid']}" if event.get("pid") else subject if event.get("pid") == 0 else "all"
    return f"{clock_text(event.get('at'))}  {pid}  {_event_words(event)}"


def _event_words(event: Json) -> str:
    text = str(event.get("text") or "")
    stage = str(event.get("stage") or "")
    word = STAGE_WORDS.get(stage, stage.replace("_", " "))
    match event.get("event"):
        case "opened":
            start = f"incident {event.get('incident')}" + ("" if text else " opened")
        case "step":
            # An outcome of a reset says so itself: "GPU reset done", not "GPU reset reset done".
            outcome = str(event.get("outcome") or "").removeprefix(f"{stage}_")
            start = f"{word} {outcome.replace('_', ' ')}".strip()
        case "ended":
            start = word
        case "waiting":
            since = f" for {age_text(event['elapsed_seconds'])}" if "elapsed_seconds" in event else ""
            start = f"waiting{since}" + (f" after {word}" if stage in STAGE_WORDS else "")
        case "refused" | "declined":
            start = f"{word if stage in STAGE_WORDS else ''} refused".strip()
        case _:
            start = ""
    if not start or not text or text.lower().startswith(start.lower()):
        return text or start
    return f"{start}: {text}"


def result_blocks(body: Json) -> Iterator[Block]:
    """Yield what became of the targets: tasks that still hold, and a table when there are several."""
    targets = body.get("targets") or ()
    for target in targets:
        if target.get("exit_code") == ExitCode.TIME_UP:
            yield from _holding_blocks(target)
    if len(targets) > 1:
        rows = tuple(
            (
                str(target.get("ref") or target.get("pid")),
                str(target.get("end") or "-"),
                str(target.get("exit_code")),
                str(target.get("incident") or "-"),
                str(target.get("text") or ""),
            )
            for target in targets
        )
        yield Table(("PID@START", "END", "EXIT", "INCIDENT", "RESULT"), rows, Layout(folds=True))


def failure_lines(target: Json) -> Iterator[str]:
    """Yield why a target was not reclaimed: every reason at once, each with its mend."""
    if target.get("exit_code") == ExitCode.OK:
        return
    reasons = target.get("reasons") or ()
    if all(reason.get("text") != target.get("text") for reason in reasons):
        yield f"pid {target.get('pid')}: {target.get('text')}"
    for reason in reasons:
        mend = f"; {reason['mend']}" if reason.get("mend") else ""
        yield f"pid {target.get('pid')}: {reason.get('kind')}: {reason.get('text')}{mend}"
    sent = [one.get("stage") for one in target.get("stages") or ()]
    if target.get("exit_code") == ExitCode.TIME_UP and sent == ["sigterm"]:
        yield f"pid {target.get('pid')}: SIGTERM alone was sent; with --force SIGKILL follows after the grace"


def _holding_blocks(target: Json) -> Iterator[Block]:
    """Yield each process of a target that still holds, with the state of its tasks."""
    for process in target.get("tasks") or ():
        yield f"pid {process.get('ref') or process.get('pid')}: {process.get('text')}"
        if process.get("plight"):
            yield f"  {process['plight']}"
        if process.get("tasks"):
            yield task_table(process["tasks"])


def task_table(tasks: list[Json]) -> Table:
    """Return the tasks of a process with their states."""
    rows = ((str(t.get("tid")), str(t.get("state")), "yes" if t.get("exiting") else "") for t in tasks)
    return Table(("TASK", "STATE", "EXITING"), tuple(rows))
