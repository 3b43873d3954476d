"""Records of the audit log as rows, as CSV cells and as lines of JSON. Opens nothing.

A record may have been edited by anybody who could write the log: nothing in it is taken to have its form.
"""

import json
from typing import Any

from reclaimerd.cli.render import moment_text, printable
from reclaimerd.cli.tables import Layout

Json = dict[str, Any]
HEADINGS = ("SEQ", "AT", "KIND", "INCIDENT", "WHAT")
LAYOUT = Layout(cut=(("AT", 20),), folds=True)
COLUMNS = (
    "seq",
    "at",
    "kind",
    "incident",
    "attempt",
    "actor_kind",
    "actor",
    "actor_uid",
    "action",
    "pid",
    "uid",
    "exe",
    "command",
    "workload",
    "gpus",
    "outcome",
    "detail",
    "end",
    "reason",
    "host",
    "hash",
    "fault",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table(record: Json, key: str) -> Json:
    """Return a table of a record, an empty one when there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def tables(record: Json, key: str) -> list[Json]:
    """Return the tables of a list."""
    value = record.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def words(record: Json, key: str) -> list[str]:
    """Return the texts of a list."""
    value = record.get(key)
    return [str(one) for one in value] if isinstance(value, list) else []


def row_of(record: Json, fault: str) -> tuple[str, ...]:
    """Return one line of `audit list`; what can't be trusted says so first."""
    target, outcome, actor = table(record, "target"), table(record, "outcome"), table(record, "actor")
    root = table(target, "root")
    parts = (
        f"NOT AS IT WAS WRITTEN: {fault}" if fault else "",
        record.get("action"),
        f"pid {root['pid']}" if root.get("pid") else "",
        f"by {actor['name']}" if actor.get("name") else "",
        *(outcome.get(key) for key in ("kind", "detail")),
        record.get("end"),
        record.get("reason"),
        *(refusal.get("text") for refusal in tables(record, "refusals")),
    )
    what = "  ".join(dict.fromkeys(str(part) for part in parts if part))
    place = record.get("seq", record.get("file", "-"))
    names = (record.get("kind") or "-", record.get("incident") or "-")
    return (str(place), moment_text(record.get("at")), *(str(name) for name in names), what)


def json_of(record: Json, fault: str) -> Json:
    """Return a record as JSON shows it, with `fault` where it can't be trusted."""
    return {**record, "fault": fault} if fault else record


def json_line(record: Json, line: bytes, fault: str) -> str:
    """Return a record as one line: its very bytes, unless they can't be trusted or could steer a terminal."""
    if not fault and line.isascii() and line.decode("ascii").isprintable():
        return line.decode("ascii")
    return json.dumps(json_of(record, fault), separators=(",", ":"), ensure_ascii=True)


def csv_cells(record: Json, fault: str) -> list[str]:
    """Return the cells of a record, in the order of COLUMNS."""
    target, outcome, actor = table(record, "target"), table(record, "outcome"), table(record, "actor")
    values = {
        **record,
        "actor_kind": actor.get("kind"),
        "actor": actor.get("name"),
        "actor_uid": actor.get("uid"),
        "pid": table(target, "root").get("pid"),
        "uid": target.get("uid"),
        "exe": target.get("exe"),
        "command": target.get("command"),
        "workload": table(target, "workload").get("name"),
        "gpus": " ".join(words(target, "gpus")),
        "outcome": outcome.get("kind"),
        "detail": outcome.get("detail"),
        "fault": fault,
    }
    return [_cell(values.get(column)) for column in COLUMNS]


def _cell(value: object) -> str:
    """Return one cell: printable, on one line, and no formula for whoever opens it as a sheet."""
    if value is None:
        return ""
    text = printable(str(value))
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
