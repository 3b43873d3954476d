"""Commands about the policy file: check, test, schema and explain; and the snapshot that a test goes by."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli.main import run
from reclaimerd.config.json_schema import policy_schema
from reclaimerd.daemon.recorded_look import recorded
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.snapshot import DriverReading, DriverState, ScanCoverage, Snapshot
from tests.builders import BOOT, GPU_A, MONO, OURS, WALL, a_busy_snapshot, a_process
from tests.cli.canned import Answer, canned

CAP = """
[daemon]
mode = "enforce"
[[rule]]
name = "over-cap"
above = "4GiB"
mode = "enforce"
match = { uid = ["0-4294967294"] }
"""
GATES: dict[str, Any] = {
    "stage": "sigterm",
    "due_seconds": 0.0,
    "permitted": False,
    "dry_run": False,
    "reasons": [{"kind": "mode", "text": "it only observes", "mend": "set both modes", "pids": []}],
    "text": "",
}
RULE: dict[str, Any] = {
    "rule": "over-cap",
    "kind": "memory",
    "standing": "holds",
    "ruling": "watch",
    "text": "holds 8.0 GiB, more than 4.0 GiB",
    "gpus": [GPU_A],
    "mode": "observe",
    "own_mode": "enforce",
    "action": "reclaim",
    "scope": "process",
    "stages": [
        {"stage": "sigterm", "after_seconds": 0.0},
        {"stage": "sigkill", "after_seconds": 300.0},
    ],
    "for_seconds": 120.0,
    "readings": 10,
    "held": {"since": WALL, "seconds": 45.0, "readings": 3, "seconds_left": 75.0, "readings_left": 7},
    "gates": GATES,
}
EXPLAINED: dict[str, Any] = {
    "ref": "100@1",
    "pid": 100,
    "process": {"uids": [4294967290], "command": "train \x1b[2J", "workload": "train.service"},
    "gpus": [{"gpu": GPU_A, "gpu_index": 0, "used_bytes": 2**33, "how": "listed+node", "note": "an heir"}],
    "verdict": {"ruling": "watch", "rule": "", "gpus": [GPU_A]},
    "doubt": "",
    "protection": None,
    "rules": [RULE],
    "fault_rules": [],
    "incident": None,
    "notes": [],
}


def explain(folder: Path, body: dict[str, Any], *words: str) -> tuple[int, list[str]]:
    """Run `explain pid` against a canned answer; return the exit code and what was asked."""
    path = f"GET /v1/explain/pid/{body['pid']}"
    folder.mkdir(exist_ok=True)
    with canned(folder / "s", {path: Answer(body=body)}) as server:
        code = run([*(words or ("explain", "pid", "100")), "--socket", str(folder / "s")])
    return code, [f"{asked.method} {asked.target}" for asked in server.asked]


def test_explain_pid_is_a_checklist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who, what it holds, each rule with its count and its steps, every reason with its mend; exit 0."""
    high = {**RULE, "rule": "high", "standing": "does_not_hold", "text": "not more than 70 %", "held": None}
    odd = {**RULE, "rule": "odd", "standing": "unknown", "text": "unreadable", "action": "observe"}
    code, asked = explain(tmp_path, {**EXPLAINED, "rules": [RULE, high, odd]})
    assert (code, asked) == (0, ["GET /v1/explain/pid/100"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "process 100@1 (uid 4294967290, train.service): train \\x1b[2J"
    assert lines[1] == f"holds GPU 0 ({GPU_A}): 8.0 GiB (listed+node; an heir)"
    assert lines[2] == "verdict: watch"
    assert lines[3] == "  [yes] over-cap (memory): holds: holds 8.0 GiB, more than 4.0 GiB"
    assert lines[4].endswith("over 3 readings; must hold for another 1m15s and 7 readings")
    assert lines[5:9] == [
        "        would: SIGTERM, after 5m00s SIGKILL; scope process; mode observe (its own is enforce)",
        "        SIGTERM would be refused now",
        "        [no] mode: it only observes",
        "             mend: set both modes",
    ]
    assert lines[9] == "  [ - ] high (memory): does not hold: not more than 70 %"
    assert lines[11] == "  [ ? ] odd (memory): can't be known: unreadable"
    assert lines[13].strip() == "would: only observe; mode observe (its own is enforce)"
    assert len(lines) == 14


def test_policy_explain_is_the_same_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same call and the same words."""
    explain(tmp_path, EXPLAINED)
    words = capsys.readouterr().out
    for group in ("policy", "config"):
        code, asked = explain(tmp_path / group, EXPLAINED, group, "explain", "--pid", "100@1")
        assert (code, asked) == (0, ["GET /v1/explain/pid/100"])
        assert capsys.readouterr().out == words


def test_a_process_that_has_the_number_now_is_not_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PID@START of one that is gone: exit 6, and nothing of the other is shown."""
    assert explain(tmp_path, EXPLAINED, "explain", "pid", "100@7")[0] == 6
    said = capsys.readouterr()
    assert said.out == ""
    assert "100@7 is gone" in said.err


@pytest.mark.parametrize("word", ["x", "0", "100@", "100@x"])
def test_what_is_no_process_is_wrong_usage(word: str) -> None:
    """Exit 2, and nobody is asked."""
    assert run(["explain", "pid", word, "--socket", "/nonexistent/s"]) == 2
    assert run(["policy", "explain", "--pid", word, "--socket", "/nonexistent/s"]) == 2


def test_what_holds_every_rule_back_stands_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Notes, protection, doubt, the open incident with its next step, and the fault rules of its GPU."""
    waiting = {"stage": "sigkill", "due_seconds": 20.0, "permitted": True, "dry_run": True, "reasons": []}
    incident = {
        "id": "i1",
        "stage": "sigterm",
        "since_seconds": 10,
        "actor": "rule over-cap",
        "reason": "8 GiB",
    }
    fault = {
        "gpu": GPU_A,
        "rule": "mend",
        "ruling": "watch",
        "text": "Xid 48",
        "mode": "observe",
        "stages": [],
    }
    body = {
        **EXPLAINED,
        "process": None,
        "notes": ["no daemon runs"],
        "doubt": "exe unreadable",
        "protection": {"by": "built-in", "text": "sshd"},
        "verdict": {"ruling": "reclaim", "rule": "over-cap"},
        "incident": {**incident, "gates": waiting},
        "rules": [],
        "fault_rules": [fault],
    }
    assert explain(tmp_path, body)[0] == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "process 100@1: it can't be read"
    assert lines[2:] == [
        "NOTE: no daemon runs",
        "verdict: reclaim by rule over-cap",
        "  [no] protected (built-in): sshd",
        "  [no] hands off: exe unreadable",
        "open incident i1, sigterm for 10s, by rule over-cap: 8 GiB",
        "        [ok] SIGKILL (due in 20s) would be permitted now, as a dry run",
        f"  GPU {GPU_A}: mend (fault, mode observe): watch: Xid 48",
    ]


@pytest.mark.parametrize(
    ("stage", "line"),
    [("reset", "[--] GPU reset: see explain reset"), (None, "[--] see explain reset")],
)
def test_gates_that_were_not_asked_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str | None, line: str
) -> None:
    """Neither yes nor no; and a rule that has held for long enough says so."""
    gates = {**GATES, "stage": stage, "permitted": None, "reasons": [], "text": "see explain reset"}
    long = {**RULE["held"], "seconds_left": 0.0, "readings_left": 0}
    explain(tmp_path, {**EXPLAINED, "rules": [{**RULE, "gates": gates, "held": long}]})
    out = capsys.readouterr().out
    assert line in out
    assert "3 readings: long enough" in out


def test_an_answer_of_another_version_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon that says less or other things: what is missing shows as unknown."""
    bare: dict[str, Any] = {"ref": "100@1", "pid": 100}
    assert explain(tmp_path, bare)[0] == 0
    assert "the policy in force has no rule" in capsys.readouterr().out
    odd = {**EXPLAINED, "rules": [{"rule": "x", "standing": "new"}], "incident": {"id": "i"}}
    assert explain(tmp_path / "x", odd)[0] == 0
    assert explain(tmp_path / "y", EXPLAINED, "explain", "pid", "100", "--json")[0] == 0


def look(**changes: Any) -> Snapshot:
    """Return a look with one holder of 8 GiB."""
    return replace(a_busy_snapshot(), **changes)


def look_file(folder: Path, seen: Snapshot | None = None, **changes: object) -> Path:
    """Write a recorded look."""
    xid = StandingXid(GPU_A, BOOT, 48, FaultClass.RESET, 7, WALL)
    wire = recorded(look() if seen is None else seen, OURS, ("/usr/bin/asked",), (xid,))
    path = folder / "look.json"
    path.write_text(json.dumps({**wire, **changes}), encoding="utf-8")
    return path


def policy_file(folder: Path, text: str = CAP) -> Path:
    """Write a policy that only its owner may change."""
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def tried(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str = CAP, snapshot: Snapshot | None = None
) -> dict[str, Any]:
    """Run `policy test` over a recorded look; return its JSON."""
    words = ["policy", "test", str(policy_file(folder, text)), "--snapshot", str(look_file(folder, snapshot))]
    assert run([*words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_policy_test_says_what_would_be_due(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Process, GPU, rule, ruling, values, how long it must hold, and the steps with their waits."""
    body = tried(tmp_path, capsys)
    (row,) = body["rows"]
    assert (row["ref"], row["uid"], row["command"]) == ("100@1", 1000, "python3 train.py")
    assert (row["gpus"], row["gpu_index"]) == ([GPU_A], [0])
    assert (row["rule"], row["ruling"], row["mode"], row["decides"]) == (
        "over-cap",
        "reclaim",
        "enforce",
        True,
    )
    assert row["must_hold"] == "would hold now; must hold for 2m and over 10 readings"
    assert [one["stage"] for one in row["stages"]] == ["sigterm", "sigkill", "drain"]
    assert (body["breaker"], body["notes"], body["skipped"]) == ("", [], [])
    assert body["taken_at"] == "2027-01-15T08:00:00.000Z"
    run(["policy", "test", str(tmp_path / "policy.toml"), "--snapshot", str(tmp_path / "look.json")])
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["PID@START", "USER", "GPU", "RULE", "RULING", "WHY", "DUE"]
    assert table[2].endswith("SIGTERM, after 5m00s SIGKILL, after 1m00s drain request")


@pytest.mark.parametrize(
    ("old", "new", "due"),
    [
        ('mode = "enforce"\n[[rule]]', 'mode = "observe"\n[[rule]]', "nothing (mode observe), else SIGTERM"),
        ('mode = "enforce"\n[[rule]]', 'mode = "dry-run"\n[[rule]]', "on record only (dry run): SIGTERM"),
        ('"4GiB"', '"70GiB"', "nothing"),
        ('mode = "enforce"\nmatch', 'action = "observe"\nmatch', "nothing"),
        (
            "[[rule]]",
            '[[rule]]\nname = "second"\nabove = "1GiB"\nmode = "observe"\n[[rule]]',
            "nothing: another rule decides",
        ),
    ],
)
def test_what_would_not_be_done_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, due: str
) -> None:
    """The mode, a rule that does not hold, one that only observes, one that another comes before."""
    words = ["--snapshot", str(look_file(tmp_path))]
    assert run(["policy", "test", str(policy_file(tmp_path, CAP.replace(old, new))), *words]) == 0
    assert due in capsys.readouterr().out.splitlines()[2]


def test_without_waiting_it_would_hold_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readings are at least two, so a rule's time may be nothing and its readings not."""
    row = tried(tmp_path, capsys, CAP.replace('above = "4GiB"', 'above = "4GiB"\nfor = "0s"\nreadings = 2'))[
        "rows"
    ][0]
    assert row["must_hold"] == "would hold now; must hold over 2 readings"


def test_a_fault_rule_names_a_gpu_and_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the Xid that stood when the look was taken."""
    text = '[[rule]]\nname = "mend"\nkind = "fault"\nxid_class = "reset"\nfor = "0s"\n'
    row = tried(tmp_path, capsys, text)["rows"][-1]
    assert (row["ref"], row["uid"], row["gpus"], row["rule"]) == (None, None, [GPU_A], "mend")
    assert row["must_hold"] == "would hold now"
    words = ["--snapshot", str(tmp_path / "look.json")]
    assert run(["policy", "test", str(tmp_path / "policy.toml"), *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:5] == ["-", "-", "0", "mend", "reclaim"]


def test_what_the_look_can_not_show_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A protection that was not asked for, users of another machine, what was skipped, the breaker."""
    other = a_process(200, workload=replace(a_process().workload, path="/other"))
    scan = ScanCoverage(MONO, full_now=True, skipped=("pid 9: hangs",))
    two = replace(a_busy_snapshot(a_process(), other), scan=scan)
    guards = '[[protect]]\nname = "a"\nexe = "/opt/a"\n[[protect]]\nname = "b"\nexe = "/usr/bin/asked"\n'
    text = guards + CAP.replace("match = {", 'exempt = { user = ["root"] }\nmatch = {')
    body = tried(tmp_path, capsys, text, two)
    first, second = body["notes"]
    assert "[[protect]] a: the look was taken without asking for /opt/a" in first
    assert "looked up on this machine" in second
    assert "2 workloads became due" in body["breaker"]
    run(["policy", "test", str(tmp_path / "policy.toml"), "--snapshot", str(tmp_path / "look.json")])
    out = capsys.readouterr().out
    assert "NOTE: [[protect]] a" in out
    assert "the breaker would trip if all this became due at once: 2 workloads" in out
    assert "not looked at: pid 9: hangs" in out


def test_an_idle_host_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody holds anything: it says so, exit 0."""
    words = ["--snapshot", str(look_file(tmp_path, look(holders=(), processes={})))]
    assert run(["policy", "test", str(policy_file(tmp_path)), *words]) == 0
    assert "no process that holds a GPU was seen" in capsys.readouterr().out


def test_a_driver_that_was_not_asked_is_no_idle_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A look without the driver's answer shows nobody: that it was not asked stands before it."""
    silent = DriverReading(DriverState.UNRESPONSIVE, since=MONO - 90.0, why="no answer")
    file = look_file(tmp_path, look(holders=(), processes={}, gpus=(), driver=silent))
    words = ["policy", "test", str(policy_file(tmp_path)), "--snapshot", str(file)]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("driver: driver unresponsive (no answer) for 1m30s")
    assert "no process that holds a GPU was seen" in lines[2]
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["driver"]["state"] == "unresponsive"


@pytest.mark.parametrize("at", [1e300, -1e300, 253_402_300_800.0])
def test_a_look_of_no_calendar_is_no_internal_error(
    tmp_path: Path, at: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged instant shows as unknown; the rest of the look is judged."""
    file = look_file(tmp_path, look(taken_at=at))
    words = ["policy", "test", str(policy_file(tmp_path)), "--snapshot", str(file)]
    assert run(words) == 0
    assert "over the look of unknown" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["taken_at"] is None


def test_without_a_file_the_present_look_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One GET and nothing else: nothing is changed."""
    wire = recorded(look(), OURS, (), ())
    with canned(tmp_path / "s", {"GET /v1/snapshot": Answer(body=wire)}) as server:
        code = run(["policy", "test", str(policy_file(tmp_path)), "--json", "--socket", str(tmp_path / "s")])
    assert code == 0
    assert [asked.method for asked in server.asked] == ["GET"]
    body = json.loads(capsys.readouterr().out)
    assert (body["source"], [row["ruling"] for row in body["rows"]]) == ("now", ["reclaim"])


def test_a_faulty_policy_is_exit_two_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every fault with its line, as `check` has it."""
    path = policy_file(tmp_path, '[daemon]\nmode = "obsreve"\nnonsense = 1\n')
    assert run(["policy", "test", str(path), "--socket", str(tmp_path / "none")]) == 2
    err = capsys.readouterr().err
    assert f"{path}:2: daemon.mode" in err
    assert f"{path}:3: daemon.nonsense" in err


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"version": 2}, "has format version 2, and this program knows 1"),
        ({"format": "other"}, "is no snapshot of reclaimerd"),
        ({"snapshot": {}}, "is damaged"),
    ],
)
def test_a_newer_or_damaged_file_is_exit_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], what: str
) -> None:
    """One sentence with the file's name, and no traceback."""
    path = look_file(tmp_path, None, **changes)
    assert run(["policy", "test", str(policy_file(tmp_path)), "--snapshot", str(path)]) == 2
    said = capsys.readouterr()
    assert (said.out, what in said.err, str(path) in said.err) == ("", True, True)


def test_a_snapshot_that_is_not_there_is_exit_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a folder in its place."""
    for path in (tmp_path / "none", tmp_path):
        assert run(["policy", "test", str(policy_file(tmp_path)), "--snapshot", str(path)]) == 2
        assert "can't be read" in capsys.readouterr().err


def test_snapshot_prints_or_writes_what_test_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same bytes both ways: instants stay numbers. The file is its owner's alone."""
    wire = recorded(look(), OURS, (), ())
    out = tmp_path / "out.json"
    with canned(tmp_path / "s", {"GET /v1/snapshot": Answer(body=wire)}):
        assert run(["snapshot", "--socket", str(tmp_path / "s")]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert run(["snapshot", "--out", str(out), "--socket", str(tmp_path / "s")]) == 0
        assert capsys.readouterr().out == f"written to {out}\n"
    assert json.loads(out.read_text()) == printed == json.loads(json.dumps(wire))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert run(["policy", "test", str(policy_file(tmp_path)), "--snapshot", str(out)]) == 0


def test_a_snapshot_that_can_not_be_written_asks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is not there is told before the look, not after it."""
    path = tmp_path / "none" / "look.json"
    assert run(["snapshot", "--out", str(path), "--socket", str(tmp_path / "s")]) == 2
    assert "there is no directory" in capsys.readouterr().err


def test_an_out_file_that_is_a_folder_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The look was taken and can't be kept: wrong usage, with the file's name and what to do."""
    with canned(tmp_path / "s", {"GET /v1/snapshot": Answer(body=recorded(look(), OURS, (), ()))}):
        assert run(["snapshot", "--out", str(tmp_path), "--socket", str(tmp_path / "s")]) == 2
    err = capsys.readouterr().err
    assert f"{tmp_path} can't be written" in err
    assert "name another file" in err


def test_schema_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON, with and without --json, and nothing else."""
    for words in (["policy", "schema"], ["policy", "schema", "--json"]):
        assert run(words) == 0
        assert json.loads(capsys.readouterr().out) == policy_schema()


@pytest.mark.parametrize("group", ["policy", "config"])
def test_check_names_every_fault(tmp_path: Path, group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each fault is one line with file, line, key and mend; exit 2; both spellings are one command."""
    path = tmp_path / "p.toml"
    path.write_text('[daemon]\nmode = "obsreve"\nnonsense = 1\n')
    assert run([group, "check", str(path)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"{path}:2:", f"{path}:3:"]
    assert all("; " in line for line in lines)
    assert run([group, "check", str(path), "--json"]) == 2
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [(fault["line"], fault["key"]) for fault in faults] == [(2, "daemon.mode"), (3, "daemon.nonsense")]


def test_check_of_a_good_file_warns_of_its_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A good file is exit 0; that others may write it is a warning here, and a refusal for the daemon."""
    path = tmp_path / "p.toml"
    path.write_text('[daemon]\nmode = "observe"\n')
    path.chmod(0o666)
    assert run(["policy", "check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: no faults\n"
    assert "warning" in err


def test_check_of_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is a fault like any other."""
    assert run(["policy", "check", str(tmp_path / "none.toml")]) == 2
    assert "can't be read" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_check_without_a_file_checks_the_policy_in_force(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The one of --config, and it says which; faults are faults."""
    path = tmp_path / "p.toml"
    path.write_text('[daemon]\nmode = "observe"\n')
    path.chmod(0o600)
    call = ["policy", "check", "--config", str(path), *words]
    assert run(call) == 0
    out = capsys.readouterr().out
    if words:
        assert json.loads(out) == {"file": str(path), "ok": True, "faults": [], "warnings": []}
    else:
        assert out == f"{path}: no faults\n"
    path.write_text('[daemon]\nmode = "obsreve"\n')
    assert run(call) == 2
    assert f"{path}" in capsys.readouterr().out


def test_check_without_a_file_is_as_strict_as_the_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy that others may write would be refused at the next start, so it is a fault here."""
    path = tmp_path / "p.toml"
    path.write_text('[daemon]\nmode = "observe"\n')
    path.chmod(0o666)
    assert run(["policy", "check", "--config", str(path)]) == 2
    out = capsys.readouterr().out
    assert f"{path}:1: file: " in out
    assert "no faults" not in out


def test_check_without_any_policy_says_what_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file at the default place is no fault: the built-in policy holds."""
    path = tmp_path / "reclaimerd.toml"
    monkeypatch.setattr("reclaimerd.config.load.DEFAULT_PATH", path)
    assert run(["policy", "check"]) == 0
    assert (
        capsys.readouterr().out
        == f"{path}: there is none: the built-in policy holds, which enforces nothing\n"
    )
    assert run(["policy", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(path)
    path.write_text("x = 1\n")
    path.chmod(0o600)
    assert run(["policy", "check"]) == 2
    assert str(path) in capsys.readouterr().out
