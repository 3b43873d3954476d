"""`slurm-unkillable` and `healthcheck`: one line, an exit code, never longer than 5 s, whoever is away."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli import commands_slurm
from reclaimerd.cli.main import run
from tests.cli.canned import REPOSITORY, Answer, canned

FOUND: dict[str, Any] = {
    "job": "77",
    "step": "batch",
    "looked": True,
    "recorded": True,
    "holders": [{"pid": 41, "gpus": ["GPU-a"], "text": "stuck in uvm\x1b[2J"}, {"pid": 42, "text": ""}],
}
STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOBID": "77",
    "SLURM_STEP_ID": "4294967291",
    "SLURM_STEPID": "4294967291",
}
WELL: dict[str, Any] = {"attention": [], "driver": {"state": "responsive"}, "gpus": [{}, {}]}


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what Slurm sets."""
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)


@pytest.mark.process
@pytest.mark.parametrize(
    "names", [("SLURM_JOB_SLUID", "SLURM_JOB_ID", "SLURM_STEP_ID"), ("SLURM_JOBID", "SLURM_STEPID")]
)
def test_slurms_own_environment_is_enough(tmp_path: Path, names: tuple[str, ...]) -> None:
    """No PATH, no arguments but the socket: job and step reach the daemon, the line says what it saw."""
    kept = [f"{name}={STEP.get(name, 's5K1KKYAYG5D00')}" for name in names]
    own = [f"PYTHONPATH={REPOSITORY}", "PYTHONDONTWRITEBYTECODE=1"]
    words = [sys.executable, "-m", "reclaimerd.cli.main", "slurm-unkillable", "--socket", str(tmp_path / "s")]
    with canned(tmp_path / "s", {"POST /v1/unkillable": Answer(body=FOUND)}) as server:
        done = subprocess.run(
            ["/usr/bin/env", "-i", *own, *kept, *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert [one.body for one in server.asked] == [{"job": "77", "step": "4294967291"}]
    assert done.stdout == (
        "step batch of job 77: the daemon looked; pid 41: stuck in uvm\\x1b[2J; pid 42: holds a GPU\n"
    )


@pytest.mark.process
def test_it_imports_nothing_heavy(tmp_path: Path) -> None:
    """Slurm waits for it: no engine, no rich, no pydantic."""
    script = (
        "import sys, json\nfrom reclaimerd.cli.main import run\n"
        "code = run(sys.argv[1:])\n"
        "heavy = ['rich', 'pydantic', 'structlog', 'asyncio', 'h11', 'reclaimerd.daemon.foreground']\n"
        "print(json.dumps([code, [name for name in heavy if name in sys.modules]]))"
    )
    with canned(tmp_path / "s", {"POST /v1/unkillable": Answer(body=FOUND)}):
        done = subprocess.run(
            [sys.executable, "-c", script, "slurm-unkillable", "--socket", str(tmp_path / "s")],
            env={**os.environ, **STEP, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []], done.stderr


@pytest.mark.usefixtures("step")
def test_without_a_daemon_slurm_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0, one line on stderr, and no engine is started in its place."""
    before = set(sys.modules)
    assert run(["slurm-unkillable", "--socket", str(tmp_path / "none")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("reclaimctl: job 77, step 4294967291: no daemon is running")
    assert "reclaimerd.daemon.foreground" not in set(sys.modules) - before


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize("words", ["slurm-unkillable", "healthcheck"])
def test_a_daemon_that_begins_and_does_not_end_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says that it works on it, and then nothing: the command ends at its own limit."""
    monkeypatch.setattr(commands_slurm, "MOST_SECONDS", 0.5)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(20)
        pending = b"HTTP/1.1 102 Processing\r\n\r\n"
        script = (
            "import socket, sys\ns = socket.socket(fileno=int(sys.argv[1]))\n"
            f"c, _ = s.accept()\nc.sendall({pending!r})\nwhile c.recv(65536):\n    pass\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(listener.fileno())], pass_fds=[listener.fileno()]
        ) as silent:
            began = time.monotonic()
            code = run([words, "--socket", str(path)])
            took = time.monotonic() - began
            assert silent.wait(20) == 0
    assert code == (0 if words == "slurm-unkillable" else 2)
    assert took < 2.5
    said = capsys.readouterr()
    assert "the daemon did not answer within 0.5 s" in said.out + said.err


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize("status", [403, 409, 500])
def test_a_refusal_is_told_and_slurm_goes_on(
    tmp_path: Path, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the daemon says against it stands in the line."""
    with canned(tmp_path / "s", {"POST /v1/unkillable": Answer(body={"error": "no"}, status=status)}):
        assert run(["slurm-unkillable", "--socket", str(tmp_path / "s")]) == 0
    assert capsys.readouterr().err == "reclaimctl: job 77, step 4294967291: no\n"


@pytest.mark.parametrize("job", ["", "x", "1;2"])
def test_by_hand_it_says_what_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a step in the environment nobody is asked."""
    monkeypatch.delenv("SLURM_JOBID", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", job)
    with canned(tmp_path / "s", {}) as server:
        assert run(["slurm-unkillable", "--socket", str(tmp_path / "s")]) == 2
    assert server.asked == []
    assert "UnkillableStepProgram" in capsys.readouterr().err


@pytest.mark.usefixtures("step")
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({**FOUND, "looked": False}, "step batch of job 77: the daemon was told; its look goes on"),
        (
            {**FOUND, "holders": []},
            "step batch of job 77: the daemon looked; no process of the job holds a GPU",
        ),
    ],
)
def test_what_was_seen_is_told(
    tmp_path: Path, body: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An old look is none."""
    with canned(tmp_path / "s", {"POST /v1/unkillable": Answer(body=body)}):
        assert run(["slurm-unkillable", "--socket", str(tmp_path / "s")]) == 0
    assert capsys.readouterr().out == f"{line}\n"


@pytest.mark.usefixtures("step")
def test_json_is_the_daemons_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the answer is printed whole."""
    with canned(tmp_path / "s", {"POST /v1/unkillable": Answer(body=FOUND)}):
        assert run(["slurm-unkillable", "--json", "--socket", str(tmp_path / "s")]) == 0
    assert json.loads(capsys.readouterr().out) == FOUND


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        (WELL, 0, "healthy: 2 GPUs, the driver is responsive"),
        ({**WELL, "driver": {"state": "slow"}}, 0, "healthy: 2 GPUs, the driver is slow"),
        ({**WELL, "attention": ["driver unresponsive"]}, 1, "needs a person: driver unresponsive"),
        (
            {**WELL, "attention": ["a drain stands\x1b", "b", "c"]},
            1,
            "needs a person: a drain stands\\x1b (and 2 more: reclaimctl status)",
        ),
        ({**WELL, "driver": {"state": "not read yet"}}, 2, "can't tell: the driver is not read yet"),
        ({**WELL, "driver": None}, 2, "can't tell: the driver is None"),
        ({"driver": WELL["driver"]}, 2, "can't tell: the daemon's answer has no list of concerns"),
    ],
)
def test_health_in_one_line(
    tmp_path: Path, body: dict[str, Any], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 for nothing, 1 for a person, 2 for what can't be told."""
    with canned(tmp_path / "s", {"GET /v1/status": Answer(body=body)}):
        assert run(["healthcheck", "--socket", str(tmp_path / "s")]) == code
        assert capsys.readouterr().out == f"{line}\n"
        assert run(["healthcheck", "--json", "--socket", str(tmp_path / "s")]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


def test_without_a_daemon_health_can_not_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and no engine is started that would look at a driver that may hang."""
    assert run(["healthcheck", "--socket", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().out.startswith("can't tell: no daemon is running")
