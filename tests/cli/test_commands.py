"""What each command asks for, and what it prints."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reclaimerd import __version__
from reclaimerd.cli import texts
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.main import reclaimctl as group
from reclaimerd.cli.main import run
from reclaimerd.cli.progress import event_line
from reclaimerd.errors import ExitCode
from tests.cli.canned import REPOSITORY, Answer, canned, command, environment

HOSTILE = "\x1b[2Jroot\n\u202eexe\x07\x9b31m"
WAITING = "waiting for 3s after SIGKILL: exiting"
RESET_NO = "GPU reset refused: in use"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-11111111-9999-3333-4444-555555555555"
DRIVER = {"state": "responsive", "text": "responsive", "since_seconds": 3, "version": "595.1", "evidence": ""}
STATUS: dict[str, Any] = {
    "version": __version__,
    "pid": 812,
    "mode": "enforce",
    "dry_run": False,
    "simulated": False,
    "source": "daemon",
    "paused": {"by": "root", "reason": "upgrade", "since": 1700000000.0, "until": None},
    "hold": "/run/reclaimerd/HOLD",
    "breaker": {"reason": "3 workloads in one pass", "since": 1700000000.0},
    "settling_seconds_left": 12.0,
    "driver": DRIVER,
    "gpus": [
        {"uuid": UUID, "index": 0, "name": "H200", "pci": "0:1", "used_bytes": None, "total_bytes": 2**37},
        {"uuid": OTHER, "index": 1, "name": "H200", "pci": "0:2", "used_bytes": 0, "total_bytes": 2**37},
    ],
    "incidents": [
        {"id": "i1", "pid": 4, "stage": "sigterm", "target": HOSTILE, "since_seconds": 4, "gpus": [UUID]}
    ],
    "last_pass": {"at": 1700000000.25, "seconds": 0.01},
    "record_fault": "no space left",
    "attention": ["the breaker has tripped"],
    "skipped": ["pid 9: descriptors: permission denied"],
    "budget": {"workloads_left_today": 3, "drains_left_today": 1},
    "rules": 2,
    "policy": "built-in",
}
ROW = {
    "gpu": UUID,
    "gpu_index": 0,
    "pid": 4242,
    "ref": "4242@987654321",
    "uid": 4294967290,
    "used_bytes": 8 * 2**30,
    "share_percent": None,
    "utilisation_percent": 97,
    "age_seconds": 3723,
    "state": "S",
    "workload": HOSTILE,
    "verdict": "reclaim",
    "verdict_text": "over-cap",
    "comm": HOSTILE,
    "command": HOSTILE + "x" * 200,
    "how": "heir",
    "note": "",
}
PS: dict[str, Any] = {
    "driver": DRIVER,
    "rows": [ROW],
    "dead": [{"gpu": UUID, "pid": 77, "used_bytes": 2**30, "holders": ["78@5", "79@6"]}],
    "skipped": [],
}
PROCESS: dict[str, Any] = {
    "process": {
        "ref": "42@7",
        "uids": [0, 0, 0, 0],
        "comm": HOSTILE,
        "command": HOSTILE,
        "exe": None,
        "state": "D",
        "state_text": "blocked in the kernel",
        "tasks": [{"tid": 42, "state": "D", "exiting": True}],
        "age_seconds": 4,
        "ns_pids": [42, 1],
    },
    "gpus": [{"gpu": UUID, "used_bytes": None, "how": "node"}],
    "verdict": {
        "ruling": "watch",
        "rule": "",
        "reasons": [{"rule": "r", "ruling": "watch", "text": HOSTILE}],
    },
    "protection": {"by": "built-in", "text": "it is pid 1"},
    "incident": "i1",
}
EXPLAIN = {
    "gpu": UUID,
    "permitted": False,
    "reasons": [
        {"kind": "holders", "text": "pid 9 holds it", "mend": "end it", "pids": [9]},
        {"kind": "exit_path", "text": "pid 8 is in the exit path", "mend": "", "pids": [8]},
    ],
    "steps": ["persistence off"],
    "runnable": {"ok": False, "text": "no /usr/bin/nvidia-smi"},
}
INCIDENTS = {
    "incidents": [
        {
            "id": "i1",
            "opened_at": 1700000000.0,
            "ended_at": None,
            "stage": "sigkill",
            "end": "",
            "pid": 42,
            "ref": "42@7",
            "actor": "rule over-cap",
            "reason": HOSTILE,
            "gpus": [UUID],
            "dry_run": True,
        }
    ]
}
INCIDENT = {
    "incident": {"id": "i1", "opened_at": 1700000000.0, "reason": HOSTILE},
    "timeline": [{"at": 1700000001.0, "kind": "intent", "text": HOSTILE}],
}
ANSWERS = {
    "GET /v1/status": Answer(body=STATUS),
    "GET /v1/ps": Answer(body=PS),
    "GET /v1/processes/42": Answer(body=PROCESS),
    "GET /v1/explain/reset": Answer(body=EXPLAIN),
    "GET /v1/incidents": Answer(body=INCIDENTS),
    "GET /v1/incidents/i1": Answer(body=INCIDENT),
    "POST /v1/pause": Answer(body={"paused": {"by": "root", "reason": "", "since": 1.0, "until": 4e9}}),
    "POST /v1/resume": Answer(body={"paused": None}),
}
TIME_UP = {
    "event": "result",
    "exit_code": 5,
    "targets": [
        {
            "pid": 42,
            "ref": "42@7",
            "exit_code": 5,
            "end": "handed_over",
            "text": "time is up " + HOSTILE,
            "incident": "i1",
            "stages": [{"stage": "sigterm", "at": 1700000000.0, "outcome": "sent"}],
            "tasks": [
                {
                    "pid": 42,
                    "ref": "42@7",
                    "text": "exiting " + HOSTILE,
                    "tasks": [{"tid": 43, "state": "D", "exiting": True}],
                }
            ],
            "reasons": [{"kind": "exit_path", "text": "task 43 exits", "mend": "wait", "pids": [42]}],
        },
        {"pid": 44, "ref": "44@8", "exit_code": 0, "end": "reclaimed", "text": "8.0 GiB back"},
    ],
}
KILL_LINES: tuple[dict[str, Any], ...] = (
    {"event": "opened", "incident": "i1", "pid": 42, "at": 1700000000.0},
    {"event": "waiting", "pid": 42, "text": "exiting, 3 tasks", "at": 1700000001.0},
    {"event": "refused", "pid": 42, "stage": "reset", "text": HOSTILE, "at": 1700000002.0},
    {
        "event": "ended",
        "pid": 44,
        "stage": "reclaimed",
        "text": "reclaimed: 8.0 GiB back",
        "at": 1700000003.0,
    },
    TIME_UP,
)
CALLS = (
    (["status"], 10),
    (["ps"], 0),
    (["inspect", "42"], 0),
    (["explain", "reset", "--gpu", UUID], 3),
    (["incidents"], 0),
    (["incidents", "list"], 0),
    (["incidents", "show", "i1"], 0),
    (["pause", "--for", "2m"], 0),
    (["resume"], 0),
    (["kill", "--pid", "42", "--pid", "44", "--yes"], 5),
)


def _answers() -> dict[str, Answer]:
    return {**ANSWERS, "POST /v1/reclaims": Answer(lines=KILL_LINES)}


@pytest.mark.parametrize(("call", "code"), CALLS)
def test_no_control_character_reaches_the_terminal(
    tmp_path: Path, call: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hostile names come out escaped in every command's words, on stdout and stderr."""
    with canned(tmp_path / "s", _answers()):
        assert run([*call, "--socket", str(tmp_path / "s")]) == code
    out, err = capsys.readouterr()
    assert out
    for line in (out + err).splitlines():
        assert line.isprintable(), repr(line)
        assert not line.startswith("root")


@pytest.mark.parametrize(("call", "code"), CALLS)
def test_json_is_one_object(
    tmp_path: Path, call: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """--json prints exactly one object in ASCII, given before or after the command."""
    with canned(tmp_path / "s", _answers()):
        assert run([*call, "--json", "--socket", str(tmp_path / "s")]) == code
        after = capsys.readouterr().out
        assert run(["--json", "--socket", str(tmp_path / "s"), *call]) == code
        before = capsys.readouterr().out
    assert isinstance(json.loads(after), dict)
    assert after.isascii()
    assert "\x1b" not in after
    assert after == before


@pytest.mark.process
def test_terminal_shows_whole_identities(tmp_path: Path) -> None:
    """On a terminal the table keeps every PID@START whole and escapes names."""
    leader, follower = pty.openpty()
    with canned(tmp_path / "s", _answers()):
        child = subprocess.run(
            command("ps", "--socket", str(tmp_path / "s")),
            env={**environment(), "COLUMNS": "400", "TERM": "xterm-256color", "NO_COLOR": "1"},
            stdin=follower,
            stdout=follower,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
    os.close(follower)
    seen = os.read(leader, 65536).decode()
    os.close(leader)
    assert child.returncode == 0, child.stderr
    assert "4242@987654321" in seen
    assert "\\x1b[2Jroot\\x0a\\u202eexe" in seen
    assert re.sub(r"\x1b\[[01]?m", "", seen).replace("\r\n", "").isprintable(), repr(seen)


def test_ps_says_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table aligns, unknown is never zero, and a dead listing names the command for its holders."""
    with canned(tmp_path / "s", ANSWERS):
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 0
    head, row, dead = capsys.readouterr().out.splitlines()
    assert head.split()[:6] == ["GPU", "PID@START", "USER", "MEMORY", "SHARE", "UTIL"]
    assert row.index("4242@987654321") == head.index("PID@START")
    assert row[head.index("USER") :].startswith("uid 4294967290")
    assert row[head.index("MEMORY") :].startswith("8.0 GiB")
    assert row[head.index("SHARE") :].startswith("unknown")
    assert row[head.index("AGE") :].startswith("1h02m")
    assert "over-cap (heir)" in row
    assert row.endswith(("…", "..."))
    assert dead.endswith("held by 78@5, 79@6: reclaimctl kill --pid 78@5 --pid 79@6")


def test_ps_without_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unresponsive driver is said first, with its evidence, and no rows are no error."""
    driver = {"state": "unresponsive", "text": "driver unresponsive", "since_seconds": 70, "evidence": "os_x"}
    body = {"driver": driver, "rows": [], "dead": [], "skipped": ["gpu 1"]}
    with canned(tmp_path / "s", {"GET /v1/ps": Answer(body=body)}):
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "driver: driver unresponsive for 1m10s [os_x]"
    assert second == "no process that holds a GPU was seen"
    assert third == "not looked at: gpu 1"


def test_status_shows_every_brake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What needs a person stands first, and every brake on acts by rule is named."""
    with canned(tmp_path / "s", ANSWERS):
        run(["status", "--socket", str(tmp_path / "s")])
    out = capsys.readouterr().out
    assert out.startswith("ATTENTION: the breaker has tripped\n")
    for words in ("paused by root", "upgrade", "/run/reclaimerd/HOLD", "3 workloads in one pass", "settling"):
        assert words in out
    assert "record: no space left" in out
    assert "unknown / 128.0 GiB" in out
    assert "0 B / 128.0 GiB" in out


def test_status_without_attention_is_healthy(tmp_path: Path) -> None:
    """Nothing for a person is exit 0."""
    with canned(tmp_path / "s", {"GET /v1/status": Answer(body={**STATUS, "attention": []})}):
        assert run(["status", "--socket", str(tmp_path / "s")]) == 0


def test_bodies_of_another_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that leaves fields out shows as unknown, not as a traceback."""
    answers = {name: Answer(body={}) for name in ANSWERS}
    answers["GET /v1/ps"] = Answer(body={"rows": [{}], "dead": [{}]})
    answers["GET /v1/status"] = Answer(body={"gpus": [{}], "incidents": [{}], "paused": {}, "breaker": {}})
    with canned(tmp_path / "s", answers):
        for call, _ in CALLS[:-1]:
            assert run([*call, "--socket", str(tmp_path / "s")]) in {0, 3}, call
    assert "internal error" not in capsys.readouterr().err


def test_json_times_are_utc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instants are RFC 3339 in UTC, spans stay seconds."""
    with canned(tmp_path / "s", ANSWERS):
        run(["status", "--json", "--socket", str(tmp_path / "s")])
    body = json.loads(capsys.readouterr().out)
    assert body["last_pass"] == {"at": "2023-11-14T22:13:20.250Z", "seconds": 0.01}
    assert body["paused"]["since"] == "2023-11-14T22:13:20.000Z"
    assert body["incidents"][0]["since_seconds"] == 4


def test_kill_asks_for_exactly_what_was_said(tmp_path: Path) -> None:
    """Every option of kill reaches the engine under the API's name, and nothing else does."""
    call = ["kill", "--pid", "42@7", "--pid", "44", "--pid", "44", "--force", "--reason", "leak"]
    call += ["--grace", "1s", "--timeout", "2m", "--scope", "tree", "--dry-run", "--expect-user", "0"]
    call += ["--max-targets", "64"]
    with canned(tmp_path / "s", _answers()) as server:
        run([*call, "--socket", str(tmp_path / "s")])
        run(["kill", "--pid", "42", "--socket", str(tmp_path / "s")])
    assert server.asked[0].body == {
        "targets": [{"pid": 42, "start_ticks": 7}, {"pid": 44, "start_ticks": None}],
        "force": True,
        "reason": "leak",
        "grace_seconds": 1.0,
        "timeout_seconds": 120.0,
        "scope": "tree",
        "dry_run": True,
        "expect_user": 0,
        "max_targets": 64,
    }
    assert server.asked[1].body == {
        "targets": [{"pid": 42, "start_ticks": None}],
        "force": False,
        "reason": "",
        "grace_seconds": None,
        "timeout_seconds": None,
        "scope": "process",
        "dry_run": False,
        "expect_user": None,
        "max_targets": 8,
    }


@pytest.mark.parametrize(
    "call",
    [
        ["kill"],
        ["kill", "--pid", "0"],
        ["kill", "--pid", "-1"],
        ["kill", "--pid", "1@"],
        ["kill", "--pid", "4194305"],
        ["kill", "--pid", "١٢"],
        ["kill", "--pid", "7@1", "--pid", "7@2"],
        ["kill", "--pid", "7", "--grace", "soon"],
        ["kill", "--pid", "7", "--grace", "-1s"],
        ["kill", "--pid", "7", "--expect-user", "no such\x1b[2J user"],
        ["kill", "--pid", "7", "--max-targets", "0"],
        ["kill", "--pid", "7", "--scope", "host"],
        ["kill", "7"],
        ["inspect", "0"],
        ["incidents", "show", "../status"],
        ["incidents", "show", ".."],
        ["explain", "reset"],
        ["explain"],
        ["policy"],
        ["nonsense"],
        [],
    ],
)
def test_wrong_usage_sends_nothing(
    tmp_path: Path, call: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage is exit 2 with words on stderr, and no request leaves."""
    with canned(tmp_path / "s", _answers()) as server:
        assert run(["--socket", str(tmp_path / "s"), *call]) == 2
    out, err = capsys.readouterr()
    assert server.asked == []
    assert out == ""
    assert "reclaimctl" in err
    assert "\x1b" not in err


def test_kill_reports_what_still_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time up prints the tasks, the table of targets, and the reason on stderr."""
    with canned(tmp_path / "s", _answers()):
        assert run(["kill", "--pid", "42", "--pid", "44", "--yes", "--socket", str(tmp_path / "s")]) == 5
    out, err = capsys.readouterr()
    assert "waiting: exiting, 3 tasks" in out
    assert "GPU reset refused: " in out
    assert "pid 44  reclaimed: 8.0 GiB back" in out
    assert "pid 42@7: exiting" in out
    assert re.search(r"^43 +D +yes$", out, re.MULTILINE)
    assert re.search(r"^44@8 +reclaimed +0 ", out, re.MULTILINE)
    assert err.startswith("reclaimctl: pid 42: time is up")
    assert "reclaimctl: pid 42: exit_path: task 43 exits; wait\n" in err
    assert "pid 44" not in err


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"event": "opened", "incident": "i1", "text": "incident i1: python"}, "incident i1: python"),
        ({"event": "opened", "incident": "i1"}, "incident i1 opened"),
        ({"event": "step", "stage": "sigterm", "outcome": "already_gone"}, "SIGTERM already gone"),
        ({"event": "step", "stage": "reset", "outcome": "reset_refused", "text": "in use"}, RESET_NO),
        ({"event": "waiting", "stage": "sigkill", "text": "exiting", "elapsed_seconds": 3.2}, WAITING),
        ({"event": "waiting", "stage": "pending", "text": "sleeping"}, "waiting: sleeping"),
        ({"event": "declined", "text": "it is protected"}, "refused: it is protected"),
        ({"event": "ended", "stage": "handed_over", "text": "time is up"}, "handed over: time is up"),
        ({"event": "ended", "stage": "reclaimed", "text": "reclaimed: all"}, "reclaimed: all"),
        ({"event": "of a newer daemon", "text": "something"}, "something"),
    ],
)
def test_progress_in_words(event: dict[str, Any], words: str) -> None:
    """Each event is one sentence that says nothing twice."""
    assert event_line({**event, "pid": 9, "at": 1700000000.0})[8:] == f"  pid 9  {words}"


@pytest.mark.parametrize(
    ("name", "uuid"), [("1", OTHER), ("gpu-11111111-9", OTHER), (UUID[:16], UUID), (UUID, UUID)]
)
def test_gpu_by_index_or_prefix(tmp_path: Path, name: str, uuid: str) -> None:
    """People may say an index or the beginning of a UUID; the engine is asked by UUID."""
    with canned(tmp_path / "s", ANSWERS) as server:
        assert run(["explain", "reset", "--gpu", name, "--socket", str(tmp_path / "s")]) == 3
    assert server.asked[-1].target == f"/v1/explain/reset?gpu={uuid}"


@pytest.mark.parametrize("name", ["7", "GPU-1", "", "x", "00"])
def test_unclear_gpu_is_refused(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name of no GPU or of several is exit 2 and names those there are."""
    with canned(tmp_path / "s", ANSWERS) as server:
        code = run(["explain", "reset", "--gpu", name, "--socket", str(tmp_path / "s")])
    if name == "00":
        assert server.asked[-1].target.endswith(UUID)
        return
    assert code == 2
    assert OTHER in capsys.readouterr().err
    assert [asked.target for asked in server.asked] == ["/v1/status"]


def test_where_no_gpu_was_seen_none_is_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A host without a driver: exit 2, and where to see why; not "name one of" nothing."""
    none = {**ANSWERS, "GET /v1/status": Answer(body={"gpus": []})}
    with canned(tmp_path / "s", none):
        assert run(["reset", "--gpu", "0", "--socket", str(tmp_path / "s")]) == 2
    assert "no GPU was seen: `reclaimctl status` says why" in capsys.readouterr().err


def test_explain_names_every_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every reason stands there at once with its PIDs and mend; the tool's own line changes no exit code."""
    permitted = {**EXPLAIN, "permitted": True, "reasons": []}
    with canned(tmp_path / "s", ANSWERS):
        run(["explain", "reset", "--gpu", UUID, "--socket", str(tmp_path / "s")])
    out = capsys.readouterr().out
    assert "[no] holders: pid 9 holds it\n       mend: end it\n" in out
    assert "exit_path: pid 8" in out
    assert "tool: can not run" in out
    with canned(tmp_path / "t", {"GET /v1/explain/reset": Answer(body=permitted)}):
        assert run(["explain", "reset", "--gpu", UUID, "--socket", str(tmp_path / "t")]) == 0


def test_pause_sends_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pause carries its reason and its duration in seconds, and says until when."""
    with canned(tmp_path / "s", ANSWERS) as server:
        assert run(["pause", "--for", "1m30s", "--reason", "r", "--socket", str(tmp_path / "s")]) == 0
    assert server.asked[0].body == {"reason": "r", "for_seconds": 90.0}
    assert capsys.readouterr().out.startswith("acts by rule are paused until 20")


def test_manual_page_is_current() -> None:
    """docs/reclaimctl.md is what the commands say of themselves."""
    written = (REPOSITORY / "docs/reclaimctl.md").read_text()
    mend = "run: python -m reclaimerd.cli.main manual > docs/reclaimctl.md"
    assert written == texts.manual(group), mend


def test_exit_codes_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """Each exit code stands once in --help, in kill's --help and in the manual, from one table."""
    assert set(texts.EXIT_CODES) == set(ExitCode)
    for call in (["--help"], ["kill", "--help"]):
        assert run(call) == 0
        shown = capsys.readouterr().out
        for code, meaning in texts.EXIT_CODES.items():
            assert f"{int(code):>3}  {meaning}" in shown
    for code, meaning in texts.EXIT_CODES.items():
        assert f"| {int(code)} | {meaning} |" in texts.manual(group)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is the package's, in words and in JSON."""
    assert run(["version"]) == 0
    assert capsys.readouterr().out == f"reclaimctl {__version__}\n"
    assert run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


def test_release_driver_sends_its_time_and_says_until_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten minutes unless said otherwise; --end names no time."""
    path = str(tmp_path / "s")
    released = {"by": "root", "reason": "r", "since": 1700000000.0, "until": 1700000600.0}
    with canned(tmp_path / "s", {"POST /v1/release-driver": Answer(body={"released": released})}) as server:
        assert run(["release-driver", "--reason", "r", "--socket", path]) == 0
        assert run(["release-driver", "--for", "30m", "--json", "--socket", path]) == 0
    assert [one.body for one in server.asked] == [
        {"reason": "r", "for_seconds": 600.0},
        {"reason": "", "for_seconds": 1800.0},
    ]
    words, _, rest = capsys.readouterr().out.partition("\n")
    assert words.startswith("the daemon's own client of the driver is closed until 20")
    assert json.loads(rest)["released"]["until"] == "2023-11-14T22:23:20.000Z"
    with canned(tmp_path / "t", {"POST /v1/release-driver": Answer(body={"released": None})}) as server:
        assert run(["release-driver", "--end", "--socket", str(tmp_path / "t")]) == 0
    assert server.asked[0].body == {"end": True}
    assert capsys.readouterr().out == "the driver is not released: the daemon reads the GPUs\n"


DRAIN = {
    "id": "inc-1",
    "phase": "stands",
    "since": 1700000000.0,
    "reason": "pid 41: stuck in uvm_release",
    "mend": "reboot the node",
    "slot": "2 of 5 nodes",
    "targets": [{"name": "slurm", "state": "failed", "text": "no rights", "retry_at": 1700000600.0}],
}


@pytest.mark.parametrize("after", [None, {**DRAIN, "id": "inc-2"}])
def test_undrain_waits_until_it_is_gone(
    tmp_path: Path, after: Json | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sends incident and reason; done when the node has no such request any more, or has another."""
    status = Answer(body={"drain": after})
    with canned(
        tmp_path / "s", {"POST /v1/undrain": Answer(body={"drain": DRAIN}), "GET /v1/status": status}
    ) as server:
        words = ["undrain", "--incident", "inc-1", "--reason", "rebooted", "--socket", str(tmp_path / "s")]
        assert run(words) == 0
    assert server.asked[0].body == {"incident": "inc-1", "reason": "rebooted"}
    assert capsys.readouterr().out == "the drain request is taken back\n"


def test_undrain_that_does_not_wait_shows_where_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each target with its own words; exit 0, as nothing was waited for."""
    with canned(tmp_path / "s", {"POST /v1/undrain": Answer(body={"drain": DRAIN})}) as server:
        words = ["undrain", "--incident", "inc-1", "--no-wait", "--give-up", "slurm"]
        assert run([*words, "--socket", str(tmp_path / "s")]) == 0
    assert server.asked[0].body == {"incident": "inc-1", "reason": "", "give_up": ["slurm"]}
    shown = capsys.readouterr().out
    assert "drain request inc-1: stands since" in shown
    assert "slurm: failed, again" in shown
    assert "no rights" in shown


def test_status_shows_the_drain_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it is for, what to do, its place, and who did not take it."""
    body = {**ANSWERS["GET /v1/status"].body, "drain": DRAIN}
    with canned(tmp_path / "s", {"GET /v1/status": Answer(body=body)}):
        run(["status", "--socket", str(tmp_path / "s")])
    shown = capsys.readouterr().out
    for words in (
        "drain request inc-1",
        "reboot the node",
        "place in the fleet: 2 of 5 nodes",
        "slurm: failed",
    ):
        assert words in shown


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["pause", "--for", "0s"], "--for"),
        (["release-driver", "--for", "0s"], "--for"),
        (["rules", "suspend", "idle", "--for", "0s"], "--for"),
        (["kill", "--pid", "4242", "--timeout", "0s"], "--timeout"),
    ],
)
def test_no_time_at_all_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], option: str
) -> None:
    """It names the option as it was written, and nobody is asked: no incident, no pause comes of it."""
    with canned(tmp_path / "s", ANSWERS) as server:
        assert run([*words, "--socket", str(tmp_path / "s")]) == 2
    assert server.asked == []
    err = capsys.readouterr().err
    assert option in err
    assert "over zero" in err
