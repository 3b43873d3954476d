"""The operator's hands from end to end: a drain by hand, breakers, and what a shell completes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.hung_driver import drains
from tests.e2e.rig import GPU_A, GPU_B, Json, Rig, Table, rule, simulated_host
from tests.e2e.test_drain import a_program, told
from tests.rigs.simulated import wait_until

pytestmark = pytest.mark.slow

WHY = "fan broken"


@pytest.fixture(scope="module")
def served() -> Iterator[Rig]:
    """Return one simulated host with a running daemon, for all that leaves it as it was."""
    with simulated_host(rule(above="70GiB")) as rig:
        rig.start_daemon()
        rig.passes(1)
        yield rig


def undrained(rig: Rig, shown: Json) -> None:
    """Take the request back, and wait until it is gone."""
    done = rig.ctl("undrain", "--incident", str(shown["id"]), "--reason", "mended")
    assert (done.code, done.answer) == (0, {"drain": None})


def test_a_drain_by_hand_reaches_the_file_and_is_taken_back(served: Rig) -> None:
    """Who and why are in it, in status, in the incident and in the log; undrain removes it."""
    done = served.ctl("drain", "--reason", WHY, "--yes")
    assert (done.code, done.answer["drain"]["phase"]) == (0, "stands"), done.err
    (path,) = drains(served)
    body = json.loads(path.read_bytes())
    assert (body["code"], body["gpus"], body["pids"]) == ("by_hand", [], [])
    assert body["reason"].endswith(f": {WHY}")
    status = served.ctl("status")
    assert status.code == 10
    assert any(WHY in line for line in status.answer["attention"])
    story = served.ask(f"/v1/incidents/{body['incident']}")
    assert WHY in json.dumps(story)
    again = served.ctl("drain", "--reason", "once more", "--yes")
    assert (again.code, len(drains(served))) == (3, 1)
    undrained(served, done.answer["drain"])
    assert drains(served) == []
    wait_until(lambda: not served.ask("/v1/status")["attention"], "nobody is called any more")
    assert served.verify_audit().code == 0


def test_nobody_at_a_terminal_and_no_yes_is_no_drain(served: Rig) -> None:
    """Exit 3 with the mend; nothing is asked."""
    done = served.ctl("drain", "--reason", WHY)
    assert (done.code, drains(served)) == (3, [])
    assert "--yes" in done.err
    assert served.ask("/v1/status")["drain"] is None


def test_a_dry_run_shows_what_would_be_sent(served: Rig) -> None:
    """The file's body is on record, word for word; there is no file and no request."""
    before = len(served.records("outcome"))
    done = served.ctl("drain", "--reason", WHY, "--dry-run")
    assert (done.code, drains(served)) == (0, []), done.err
    assert served.ask("/v1/status")["drain"] is None
    assert '"code": "by_hand"' in json.dumps(served.records("outcome")[before:]).replace('\\"', '"')


def test_a_pause_binds_it(served: Rig) -> None:
    """Refused with the reason; after the pause nothing comes of it."""
    assert served.ctl("pause", "--reason", "course").code == 0
    done = served.ctl("drain", "--reason", WHY, "--yes")
    assert done.code == 3
    assert "paused" in done.err
    assert served.ctl("resume").code == 0
    served.passes(3)
    assert (drains(served), served.ask("/v1/status")["drain"]) == ([], None)


def test_breakers_are_listed_and_none_is_there_to_close(served: Rig) -> None:
    """The host's and each GPU's; to close what is closed is no success."""
    rows = served.ctl("breaker").answer["breakers"]
    assert [(one["scope"], one["gpu"], one["open"]) for one in rows] == [
        ("host", None, False),
        ("gpu", GPU_A, False),
        ("gpu", GPU_B, False),
    ]
    for words in ([], ["--gpu", GPU_A]):
        assert served.ctl("breaker", "close", "--reason", "looked", *words).code == 6


SHELL = """
source "$SCRIPT"
COMP_WORDS=({words})
COMP_CWORD={last}
COMP_TYPE=9 COMP_KEY=9
_reclaimctl_completion reclaimctl
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(rig: Rig, folder: Path, *words: str) -> list[str]:
    """Return what a real bash offers for the last of these words."""
    script = folder / "completion.bash"
    script.write_text(rig.ctl("completion", "bash").out, encoding="utf-8")
    own = folder / "reclaimctl"
    own.write_text(f'#!/bin/sh\nexec {sys.executable} -m reclaimerd.cli.main "$@"\n', encoding="utf-8")
    own.chmod(0o755)
    asked = ["reclaimctl", "--simulate", str(rig.host), *words]
    text = SHELL.format(words=" ".join(f"'{one}'" for one in asked), last=len(asked) - 1)
    path = f"{folder}:{os.environ['PATH']}"
    ran = subprocess.run(
        [str(shutil.which("bash")), "--norc", "-c", text],
        env={**os.environ, "SCRIPT": str(script), "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert ran.stderr == ""
    return [line for line in ran.stdout.splitlines() if line]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_options_and_what_the_daemon_knows(served: Rig, tmp_path: Path) -> None:
    """Commands and options from the program; GPUs and rules from the daemon."""
    assert completed(served, tmp_path, "undr") == ["undrain"]
    assert completed(served, tmp_path, "drain", "--re") == ["--reason"]
    assert completed(served, tmp_path, "breaker", "close", "--gpu", "GPU-") == [GPU_A, GPU_B]
    assert completed(served, tmp_path, "rules", "suspend", "over") == ["over-cap"]


def test_without_a_daemon_a_shell_is_offered_nothing(served: Rig, tmp_path: Path) -> None:
    """A daemon that is stopped answers nobody: the command ends all the same, silent; no engine starts."""
    pid = served.daemons[-1].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert completed(served, tmp_path, "breaker", "close", "--gpu", "GPU-") == []
    finally:
        os.kill(pid, signal.SIGCONT)


def test_observing_nothing_leaves_the_host(tmp_path: Path) -> None:
    """By the policy's mode: the plan is on record, no target is asked, though an arbiter has room."""
    program = a_program(tmp_path)
    tables: dict[str, Table] = {
        "daemon": {"mode": "observe"},
        "drain.fleet": {"arbiter": "receiver"},
        "drain.command": {"program": str(program)},
    }
    with simulated_host(tables=tables) as rig:
        rig.start_daemon()
        done = rig.ctl("drain", "--reason", WHY, "--yes")
        assert (done.code, drains(rig), told(program)) == (0, [], []), done.err
        outcome = rig.wait_record("outcome")
        assert outcome["outcome"]["kind"] == "dry_run"
        assert str(program) in json.dumps(outcome)


def test_the_fleet_and_the_day_bind_it(tmp_path: Path) -> None:
    """Nobody counts the fleet's nodes: the file alone; and one a day is one a day."""
    program = a_program(tmp_path)
    tables: dict[str, Table] = {
        "budgets": {"drains_per_day": 1},
        "drain.command": {"program": str(program)},
    }
    with simulated_host(tables=tables) as rig:
        rig.start_daemon()
        done = rig.ctl("drain", "--reason", WHY, "--yes")
        states = {one["name"]: one["state"] for one in done.answer["drain"]["targets"]}
        assert states == {"file": "asked", "command": "failed"}
        assert told(program) == []
        undrained(rig, done.answer["drain"])
        second = rig.ctl("drain", "--reason", WHY, "--yes")
        assert (second.code, drains(rig)) == (3, [])
        assert "budget" in second.err


def test_without_the_daemon_root_drains_and_undrains() -> None:
    """The command asks each target itself; the daemon that comes later finds the request and keeps it."""
    with simulated_host() as rig:
        done = rig.ctl("drain", "--reason", WHY, "--yes")
        assert (done.code, done.answer["drain"]["phase"]) == (0, "stands"), done.err
        (path,) = drains(rig)
        rig.start_daemon()
        rig.passes(3)
        assert drains(rig) == [path]
        undrained(rig, done.answer["drain"])
        assert drains(rig) == []
        assert rig.verify_audit().code == 0


def test_a_breaker_that_tripped_is_closed_by_its_own_command() -> None:
    """Two workloads at once trip it; the list says why; closed, a pause beside it still stands."""
    tables: dict[str, Table] = {"breaker": {"workloads_per_pass": 1, "gpu_percent": 100}}
    with simulated_host(rule(), tables=tables) as rig:
        one, other = rig.launch(), rig.launch(gpu=GPU_B)
        rig.start_daemon()
        rig.wait_record("breaker_tripped")
        assert one.pid != other.pid
        assert rig.ctl("pause", "--reason", "looking").code == 0
        host = rig.ctl("breaker").answer["breakers"][0]
        assert (host["open"], "2 workloads" in host["reason"]) == (True, True)
        assert "breaker close" in host["closes"]
        assert rig.ctl("breaker", "close", "--reason", "both are rogues").code == 0
        status = rig.ask("/v1/status")
        assert (status["breaker"], status["paused"]["reason"]) == (None, "looking")
        (closed,) = rig.records("breaker_closed")
        assert closed["reason"].endswith("closed: both are rogues")
