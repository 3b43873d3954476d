"""Stuck tasks and evidence in words for people: rows of `doctor --stuck`, the lines of `evidence`.

Pure. A field that an older or newer daemon leaves out shows as unknown and never ends in a traceback.
"""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import Block, Table, age_text
from reclaimerd.cli.tables import Layout

_DRIVER_WORDS = {"stack": "in the driver", "node": "has a GPU open", "unknown": "can't be told", "none": "no"}


def plight_line(plight: object) -> str:
    """Return what is said of a process that leaves, waits or is held; "" for nothing."""
    text = plight.get("text") if isinstance(plight, dict) else plight
    return str(text or "")


def stuck_blocks(body: Json) -> Iterator[Block]:
    """Yield what is stuck, each with its verdict and its stack, and what was not looked at."""
    rows = body.get("rows") or ()
    seen = f"{body.get('processes')} processes, {body.get('tasks')} tasks, watched for"
    seen = f"{seen} {age_text(body.get('watched_seconds'))}"
    if not rows:
        where = " of what could be looked at" if body.get("skipped") else ""
        yield f"nothing{where} is stuck that touches a GPU driver ({seen})"
    else:
        yield f"{len(rows)} stuck, or leaving for too long ({seen})"
        yield Table(
            ("PID@START", "STATE", "TASKS", "GPU DRIVER", "SIGNATURE", "COMM"),
            tuple(map(_row, rows)),
            Layout(cut=(("STATE", 12), ("SIGNATURE", 16), ("COMM", 8)), drop=("TASKS",)),
        )
    for row in rows:
        yield f"{row.get('ref')}: {row.get('text')}"
        if row.get("driver_text"):
            yield f"  {row['driver_text']}"
        for frame in row.get("stack") or ():
            yield f"    {frame}"
    for note in body.get("notes") or ():
        yield f"NOTE: {note}"
    for what in body.get("skipped") or ():
        yield f"not looked at: {what}"


def _row(row: Json) -> tuple[str, ...]:
    driver = str(row.get("driver"))
    kind = " (kernel thread)" if row.get("kernel_thread") else ""
    return (
        str(row.get("ref") or row.get("pid")),
        f"{row.get('condition')} ({row.get('states') or '-'})",
        str(row.get("tasks")),
        _DRIVER_WORDS.get(driver, driver),
        str(row.get("signature") or "-"),
        f"{row.get('comm')}{kind}",
    )


def perf_lines(perf: Json) -> Iterator[str]:
    """Yield the sampled stacks of tasks in R."""
    yield f"SAMPLED: {perf.get('text')}"
    for one in perf.get("stacks") or ():
        yield f"  task {one.get('tid')}, {one.get('samples')} times:"
        for frame in one.get("stack") or ():
            yield f"    {frame}"
