"""The body of a notice: nothing that is put into a template can make another field of it."""

import json
from string import Template

import pytest

from reclaimerd.host.notice_text import MOST_REASON_LETTERS, notice_body, notice_text, template_fault
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.outlets import Notice, NoticeKind, Severity

EVIL = 'full", "severity": "info\\\n\x1b[2J\u202e$host ${x} $'
NOTICE = Notice(
    NoticeKind.INCIDENT_OPENED,
    Severity.WARNING,
    "gpu-7",
    EVIL,
    1_800_000_000.0,
    "inc-1",
    "over-cap",
    4711,
    (GpuUuid("GPU-a"), GpuUuid("GPU-b")),
)


def test_without_a_template_it_is_our_json() -> None:
    """Every field by its name, the time in UTC."""
    said = json.loads(notice_text(NOTICE, "", 3))
    assert said == {
        "schema": 1,
        "kind": "incident_opened",
        "severity": "warning",
        "host": "gpu-7",
        "incident": "inc-1",
        "rule": "over-cap",
        "pid": 4711,
        "gpus": ["GPU-a", "GPU-b"],
        "reason": EVIL,
        "end": "",
        "dry_run": False,
        "at": "2027-01-15T08:00:00Z",
        "dropped": 3,
    }


def test_what_is_put_in_stays_one_text() -> None:
    """Quotes, backslashes, newlines, control characters and dollars of a reason are letters of it."""
    template = '{"text": "$severity on $host: $reason", "pid": $pid, "dry": $dry_run, "gpus": "$gpus"}'
    assert template_fault(template) == ""
    text = notice_text(NOTICE, template, 0)
    assert text.count("\n") == 1
    assert text.isascii()
    assert json.loads(text) == {
        "text": f"warning on gpu-7: {EVIL}",
        "pid": 4711,
        "dry": False,
        "gpus": "GPU-a, GPU-b",
    }


def test_a_reason_has_a_bound() -> None:
    """A long one is cut."""
    long = Notice(NoticeKind.ALARM, Severity.CRITICAL, "h", "x" * 10_000, 0.0)
    assert len(str(notice_body(long, 0)["reason"])) == MOST_REASON_LETTERS


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("{}", ""),
        ('{"price": "$$5"}', ""),
        ('{"text": $reason}', "no JSON"),
        ('{"text": "$reason"', "no JSON"),
        ('["$reason"]', "no JSON object"),
        ('"$reason"', "no JSON object"),
        ('{"text": "$command"}', "$command is not known"),
        ('{"text": "5 $"}', "$$"),
        ('{"text": "${host.__class__}"}', "$$"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_template_is_held_to_when_it_is_read(template: str, word: str) -> None:
    """Each fault in words; nothing is evaluated."""
    fault = template_fault(template)
    assert (fault == "") is (word == "")
    assert word in fault


def test_every_name_can_be_used() -> None:
    """A template with all of them makes JSON."""
    names = notice_body(NOTICE, 0)
    template = json.dumps({name: f"${name}" for name in names})
    assert sorted(Template(template).get_identifiers()) == sorted(names)
    assert template_fault(template) == ""
    assert json.loads(notice_text(NOTICE, template, 7))["dropped"] == "7"
