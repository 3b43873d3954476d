"""`reclaimctl rules` and `reload`: what is asked for, and what is printed."""

import json
from pathlib import Path
from typing import Any

from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, Asked, canned, reclaimctl

HOSTILE = "\x1b[2Jcourse\n\u202e"
RULE: dict[str, Any] = {
    "name": "idle",
    "kind": "idle",
    "mode": "enforce",
    "effective_mode": "observe",
    "action": "reclaim",
    "suspended": {"rule": "idle", "by": "ann", "reason": HOSTILE, "since": 1.7e9, "until": 1.7e9 + 60},
    "holds_for": None,
    "last_opened_at": 1.7e9,
}
OTHER = {**RULE, "name": "cap", "suspended": None, "holds_for": 0, "last_opened_at": None}


def test_the_list_shows_mode_suspension_and_holders(tmp_path: Path) -> None:
    """What is not known is not 0, and no word of others steers the terminal."""
    with canned(tmp_path / "s", {"GET /v1/rules": Answer({"mode": "enforce", "rules": [RULE, OTHER]})}):
        told = reclaimctl("rules", "list", "--socket", str(tmp_path / "s"))
    assert told.returncode == ExitCode.OK
    lines = told.stdout.splitlines()
    assert lines[0].split() == ["RULE", "KIND", "MODE", "NOW", "HOLDS", "FOR", "LAST", "INCIDENT"]
    assert "observe (suspended)" in lines[1]
    assert "unknown" in lines[1]
    assert lines[2].split()[-2:] == ["0", "-"]
    assert "suspended by ann until 2023-11-14" in lines[3]
    assert not any(mark in told.stdout for mark in ("\x1b", "\u202e"))


def test_without_rules_it_says_so(tmp_path: Path) -> None:
    """And is no error."""
    with canned(tmp_path / "s", {"GET /v1/rules": Answer({"mode": "observe", "rules": []})}):
        told = reclaimctl("rules", "list", "--socket", str(tmp_path / "s"))
    assert (told.returncode, told.stdout) == (0, "the policy has no rules\n")


def test_suspend_and_resume_ask_by_the_rule_s_name(tmp_path: Path) -> None:
    """With time and reason; a name with a slash stays one part of the path."""
    answers = {
        "POST /v1/rules/idle/suspend": Answer({"suspended": RULE["suspended"]}),
        "POST /v1/rules/a%2Fb/resume": Answer({"suspended": None}),
    }
    with canned(tmp_path / "s", answers) as server:
        words = ("--for", "2h", "--reason", "course", "--socket", str(tmp_path / "s"))
        told = reclaimctl("rules", "suspend", "idle", *words)
        resumed = reclaimctl("rules", "resume", "a/b", "--json", "--socket", str(tmp_path / "s"))
    assert server.asked == [
        Asked("POST", "/v1/rules/idle/suspend", {"reason": "course", "for_seconds": 7200.0}),
        Asked("POST", "/v1/rules/a%2Fb/resume", {"reason": ""}),
    ]
    assert told.stdout.startswith("rule idle only observes until 2023-11-14")
    assert json.loads(resumed.stdout) == {"suspended": None}


def test_reload_says_what_is_in_force_and_a_faulty_file_tells_all(tmp_path: Path) -> None:
    """Exit 2, each fault on a line of its own."""
    good = {"policy": "/etc/p", "digest": "d", "mode": "observe", "rules": 3, "warnings": ["old key"]}
    with canned(tmp_path / "s", {"POST /v1/reload": Answer(good)}):
        told = reclaimctl("reload", "--socket", str(tmp_path / "s"))
    assert told.stdout == "policy /etc/p is in force: mode observe, 3 rules\nwarning: old key\n"
    bad = {
        "error": "p:1: one\np:2: two",
        "mend": "the old policy stays in force",
        "exit_code": 2,
        "faults": ["p:1: one", "p:2: two"],
    }
    with canned(tmp_path / "t", {"POST /v1/reload": Answer(bad, status=422)}):
        told = reclaimctl("reload", "--socket", str(tmp_path / "t"))
    assert told.returncode == ExitCode.USAGE
    assert told.stderr.splitlines() == [
        "reclaimctl: p:1: one",
        "reclaimctl: p:2: two; the old policy stays in force",
    ]


def test_resume_says_that_the_breaker_stays(tmp_path: Path) -> None:
    """An operator ends the pause alone; the reason goes along."""
    left = {"paused": None, "breaker": {"reason": "too many", "since": 1.7e9}}
    with canned(tmp_path / "s", {"POST /v1/resume": Answer(left)}) as server:
        told = reclaimctl("resume", "--reason", "done", "--socket", str(tmp_path / "s"))
    assert server.asked[0].body == {"reason": "done"}
    assert "the breaker stays open" in told.stdout


def test_a_missing_role_and_a_missing_reason_end_with_their_codes(tmp_path: Path) -> None:
    """One sentence with the mend."""
    no = {
        "error": "not allowed: your role is viewer",
        "mend": "it needs the role admin: ask root",
        "exit_code": 4,
    }
    with canned(tmp_path / "s", {"POST /v1/reload": Answer(no, status=403)}):
        told = reclaimctl("reload", "--socket", str(tmp_path / "s"))
    assert told.returncode == ExitCode.NOT_ALLOWED
    assert "it needs the role admin" in told.stderr
    why = {"error": "the policy wants a reason", "mend": "say why: --reason TEXT", "exit_code": 2}
    with canned(tmp_path / "t", {"POST /v1/pause": Answer(why, status=400)}):
        told = reclaimctl("pause", "--socket", str(tmp_path / "t"))
    assert (told.returncode, "--reason" in told.stderr) == (ExitCode.USAGE, True)
