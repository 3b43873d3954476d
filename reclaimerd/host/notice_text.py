"""A notice as the body of a POST: our own JSON, or what the administrator's template makes of it. Pure.

A template is a text with `$names` in it (string.Template) and no code. What is put in is escaped as JSON,
so that no reason and no rule's name can add a field of its own; the whole must be JSON, held to when the
policy is read.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from string import Template

from reclaimerd.model.outlets import Notice, NoticeKind, Severity

SCHEMA = 1
MOST_REASON_LETTERS = 500
_SAMPLE = Notice(
    NoticeKind.ALARM, Severity.CRITICAL, 'a "host"', 'a "reason"', 0.0, 'an "incident"', 'a "rule"', end='"e"'
)
"""Every text has a quote in it: where a template puts one outside of quotes, the whole is no JSON."""


def notice_body(notice: Notice, dropped: int) -> dict[str, object]:
    """Return the notice as plain JSON; `dropped` are those that were not sent since the last one."""
    return {
        "schema": SCHEMA,
        "kind": notice.kind.value,
        "severity": notice.severity.value,
        "host": notice.host,
        "incident": str(notice.incident),
        "rule": notice.rule,
        "pid": notice.pid,
        "gpus": list(notice.gpus),
        "reason": notice.reason[:MOST_REASON_LETTERS],
        "end": notice.end,
        "dry_run": notice.dry_run,
        "at": _rfc3339(notice.at),
        "dropped": dropped,
    }


def notice_text(notice: Notice, template: str, dropped: int) -> str:
    """Return the body that is posted."""
    body = notice_body(notice, dropped)
    if not template:
        return json.dumps(body) + "\n"
    return Template(template).substitute(_escaped(body)) + "\n"


def template_fault(template: str) -> str:
    """Return why this is no template of a notice, or ""."""
    if not template:
        return ""
    made = Template(template)
    if not made.is_valid():
        return "a $ in it begins no name; a $ itself is written $$"
    known = notice_body(_SAMPLE, 0)
    unknown = [name for name in made.get_identifiers() if name not in known]
    if unknown:
        return f"${unknown[0]} is not known; known are {', '.join(f'${name}' for name in known)}"
    try:
        said = json.loads(notice_text(_SAMPLE, template, 0))
    except (ValueError, RecursionError):
        return 'it makes no JSON; a $name stands between quotes, as in {"text": "$reason"}'
    return "" if isinstance(said, dict) else "it makes no JSON object, as in { ... }"


def _escaped(body: Mapping[str, object]) -> dict[str, str]:
    """Return each value as it may stand inside of quotes in JSON; a list's items with commas between."""
    texts = {name: ", ".join(value) if isinstance(value, list) else value for name, value in body.items()}
    return {
        name: json.dumps(value)[1:-1] if isinstance(value, str) else json.dumps(value)
        for name, value in texts.items()
    }


def _rfc3339(wall: float) -> str:
    text = datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")
