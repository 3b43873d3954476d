"""`rollout report` over a real log, and `rules mode`: what it says, what it changes, and what it refuses."""

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest

from reclaimerd.cli.main import run
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.step import ReasonKind
from reclaimerd.record.audit import Audit
from tests.builders import BOOT
from tests.judge.rollout_builders import PROOF, Written, came_of_it, ended, opened, planned, refused, whom

DAY = 86400.0
NOW = time.time()
POLICY = """\
[daemon]
mode = "dry-run"

[[rule]]
name = "over-cap"
above = "8GiB"
mode = "dry-run"
match = { uid = ["1000-2000"] }

[[rule]]
name = "quiet"
kind = "age"
older_than = "30d"
"""
HOSTILE = "train \x1b[2J\u202e\nnext"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the policy")


def records() -> list[Written]:
    """Return a week: one that a dry run would take, one that a gate stops, one that ends in the grace."""
    first, second, third = whom(100, 1001), whom(200, 1002), whom(300, 1003)
    second = replace(second, command=HOSTILE, workload=replace(second.workload, name=HOSTILE))
    tally = Tally(NOW - 5 * DAY, 900, "digest", (RuleTally("over-cap", looks=200, undetermined=3, spared=4),))
    return [
        opened(NOW - 9 * DAY, whom(90), "inc-old"),
        opened(NOW - 6 * DAY, first),
        came_of_it(NOW - 6 * DAY, target=first),
        planned(NOW - 6 * DAY, "sigkill", "all", target=first),
        ended(NOW - 6 * DAY, target=first),
        opened(NOW - 5 * DAY, second, "inc-2"),
        refused(NOW - 5 * DAY, ReasonKind.LOOKS_PROTECTED, target=second, incident="inc-2"),
        opened(NOW - 4 * DAY, third, "inc-3"),
        came_of_it(NOW - 4 * DAY, target=third, incident="inc-3"),
        ended(NOW - 4 * DAY, target=third, incident="inc-3"),
        opened(NOW - 4 * DAY + 1, third, "inc-4"),
        ended(NOW - 4 * DAY + 60, proof=PROOF, target=third, incident="inc-4"),
        (NOW - DAY, AuditEntry(RecordKind.TALLY, tally=tally)),
    ]


@dataclass(frozen=True, slots=True)
class Places:
    """Where one test's policy and records lie."""

    log: Path
    policy: Path

    def call(self, *arguments: str) -> int:
        """Run reclaimctl on these."""
        return run([*arguments, "--log-dir", str(self.log), "--config", str(self.policy)])


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Write the policy, and the records with the daemon's own code."""
    places = Places(tmp_path / "log", tmp_path / "reclaimerd.toml")
    places.policy.write_text(POLICY, encoding="utf-8")
    audit = Audit.open(places.log, boot_id=BOOT, settings=AuditSettings(), anchor=None)
    for at, entry in records():
        audit.append([entry], wall=at, mono=1.0)
    audit.close()
    return places


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the JSON that was printed."""
    return json.loads(capsys.readouterr().out)


def test_the_report_counts_what_is_on_record(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """Targets, fates, gates, looks and stories, out of the log as the daemon writes it."""
    assert places.call("rollout", "report", "--json") == 0
    body = said(capsys)
    first, quiet = body["rules"]
    assert first["fates"] == {"acted": 0, "at_once": 2, "later": 0, "stopped": 1, "ended_first": 0}
    assert (first["targets"], first["incidents"], first["in_grace"]) == (3, 4, 1)
    assert first["stopped_by"] == {"looks_protected": 1}
    assert first["users"] == {"1001": 1, "1002": 1, "1003": 1}
    assert first["stages"] == [{"stage": "sigkill", "permitted": 1, "refused": {}}]
    assert first["undetermined_share"] == pytest.approx(0.015)
    assert [story["incidents"] for story in first["stories"]] == [["inc-1"], ["inc-2"], ["inc-3", "inc-4"]]
    assert first["advice"]["word"] == "ready"
    assert (quiet["targets"], quiet["advice"]["word"]) == (0, "never_fired")
    assert body["days"] == pytest.approx(6.0, abs=0.04)  # from the import to here, in days
    assert body["since"].endswith("Z")


def test_the_report_is_for_people_and_no_name_can_steer_their_terminal(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line of advice for each rule; a hostile name stays on its line."""
    assert places.call("rollout", "report") == 0
    out = capsys.readouterr().out
    assert (
        "over-cap: ready: 3 targets in 6.0 days, 2 would have been acted on, 1 stopped, 1.5 % undetermined"
        in out
    )
    assert "quiet: never fired: no target in 6.0 days, and no look was counted" in out
    assert "stopped by: looks_protected 1" in out
    assert "inc-3 and 1 more" in out
    assert all(sign not in out for sign in ("\x1b", "\u202e", "\nnext"))
    assert "\\x1b" in out


def test_an_earlier_beginning_takes_in_more(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """By age, and by an instant."""
    assert places.call("rollout", "report", "--since", "30d", "--json") == 0
    body = said(capsys)
    assert body["rules"][0]["targets"] == 4
    assert any("does not reach back" in note for note in body["notes"])
    assert places.call("rollout", "report", "--since", "2100-01-01T00:00:00Z", "--json") == 0
    assert said(capsys)["rules"][0]["targets"] == 0


def test_one_rule_alone(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """With all its stories; an unknown one is exit 6."""
    assert places.call("rollout", "report", "--rule", "quiet", "--json") == 0
    assert [rule["rule"] for rule in said(capsys)["rules"]] == ["quiet"]
    assert places.call("rollout", "report", "--rule", "none") == ExitCode.NO_TARGET
    assert "neither the policy nor the record has a rule 'none'" in capsys.readouterr().err


def test_a_bad_since_is_a_sentence(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """With how to write it."""
    assert places.call("rollout", "report", "--since", "last week") == ExitCode.USAGE
    assert "is not a duration" in capsys.readouterr().err


def test_records_of_another_form_are_counted_and_passed_by(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that somebody edited into nonsense ends no report."""
    path = places.log / "audit.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([*lines[:5], lines[5].replace(b'"scope":"process"', b'"scope":"planet"'), *lines[6:]])
    )
    assert places.call("rollout", "report", "--json") == 0
    body = said(capsys)
    assert any("1 records could not be read" in note for note in body["notes"])


def test_without_records_the_report_says_so(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty log advises nothing."""
    empty = Places(places.log.parent / "empty", places.policy)
    assert empty.call("rollout", "report", "--json") == 0
    body = said(capsys)
    assert "nothing is on record in this time" in body["notes"]
    assert {rule["advice"]["word"] for rule in body["rules"]} == {"too_short"}


def test_the_mode_s_line_is_named_and_nothing_changes(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice first, then file and line, the old and the new, the cap, and how it comes into force."""
    assert places.call("rules", "mode", "over-cap", "enforce") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("over-cap: ready: 3 targets")
    assert out[1:5] == [f"in {places.policy}:7 change", '    mode = "dry-run"', "to", '    mode = "enforce"']
    assert out[5].startswith('[daemon] mode is "dry-run" and caps every rule')
    assert out[6] == "then: reclaimctl reload"
    assert places.policy.read_text(encoding="utf-8") == POLICY


def test_a_rule_without_the_line_is_told_where_it_goes(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a rule that has the mode already is told that."""
    assert places.call("rules", "mode", "quiet", "dry-run") == 0
    assert f'below {places.policy}:11 add\n    mode = "dry-run"' in capsys.readouterr().out
    assert places.call("rules", "mode", "over-cap", "dry-run", "--write") == 0
    assert "says so already" in capsys.readouterr().out
    assert places.policy.read_text(encoding="utf-8") == POLICY


@pytest.mark.root
@ROOT
def test_with_write_and_yes_the_line_is_changed(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON too it says what was written."""
    assert places.call("rules", "mode", "over-cap", "enforce", "--write", "--yes", "--json") == 0
    body = said(capsys)
    assert (body["written"], body["line"], body["capped_by"]) == (True, 7, "dry-run")
    expected = POLICY.replace('mode = "dry-run"\nmatch', 'mode = "enforce"\nmatch')
    assert places.policy.read_text(encoding="utf-8") == expected


def test_without_a_terminal_nobody_says_yes(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that forgot --yes changes nothing."""
    assert places.call("rules", "mode", "over-cap", "enforce", "--write") == ExitCode.REFUSED
    assert "--yes says it beforehand" in capsys.readouterr().err
    assert places.policy.read_text(encoding="utf-8") == POLICY


@pytest.mark.root
@ROOT
@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, answer: bool
) -> None:
    """Only a yes changes the file."""
    asked: list[str] = []

    def confirm(text: str, **_more: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    code = places.call("rules", "mode", "over-cap", "enforce", "--write")
    assert asked == [f'change {places.policy}:7 to mode = "enforce"?']
    assert code == (0 if answer else ExitCode.REFUSED)
    assert (places.policy.read_text(encoding="utf-8") == POLICY) is not answer
    assert ("is now" in capsys.readouterr().out) is answer


def test_a_log_that_can_not_be_read_stops_nobody_from_turning_a_rule_down(
    places: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice says why there is none; the line is named all the same."""
    from reclaimerd.cli import rollout_records  # noqa: PLC0415  # only this test reaches into it

    def closed(_directory: Path) -> None:
        raise PermissionError(13, "Permission denied", str(places.log))

    monkeypatch.setattr(rollout_records, "read_records", closed)
    assert places.call("rules", "mode", "over-cap", "observe") == 0
    out = capsys.readouterr().out
    assert "over-cap: no advice: you may not read the audit log" in out
    assert f"in {places.policy}:7 change" in out
    assert places.call("rollout", "report") == ExitCode.NOT_ALLOWED
