"""Claims about the program that runs the reset tool, run as the daemon runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from reclaimerd.act import reset_runner
from reclaimerd.act.reset_files import (
    OUTPUT_LIMIT_BYTES,
    Claim,
    Ended,
    Word,
    give_word,
    read_trace,
    reserve,
    take_claim,
)
from reclaimerd.act.reset_runner import FAILED, RAN, TAKEN, UNASKED, cgroups_of, is_inside, unit_cgroup
from reclaimerd.model.identity import AttemptId
from tests.act.reset_tools import RUN, Gate, program
from tests.rigs.simulated import wait_until

V2 = "0::/system.slice/reclaimerd.service\n"
HYBRID = "9:name=systemd:/system.slice/x.service\n4:memory:/m/x\n0::/\n"


def _command(directory: Path, tool: Sequence[str], *options: str) -> list[str]:
    head = [sys.executable, "-P", "-m", "reclaimerd.act.reset_runner"]
    return [*head, "--dir", str(directory), "--run", RUN, *options, "--", *tool]


def _run(directory: Path, tool: Sequence[str], *options: str) -> int:
    """Run it to its end; the word is there before it."""
    if directory.is_dir():
        give_word(directory, RUN, LONG_WORD)
    done = subprocess.run(_command(directory, tool, *options), check=False, timeout=30, capture_output=True)
    return done.returncode


LONG_WORD = Word(0.0, 1e9)
"""Good for thirty years after a boot."""


def _ended(directory: Path) -> Ended | None:
    return read_trace(directory, RUN).ended


@pytest.mark.process
def test_it_leaves_who_ran_and_how_it_ended(tmp_path: Path) -> None:
    """Ready and claim name the runner, the start tells when, the end has code and outputs; all are 0600."""
    tool = program(tmp_path / "tool", "echo one; echo two >&2; exit 7")
    assert _run(tmp_path, (tool,)) == RAN
    trace = read_trace(tmp_path, RUN)
    assert trace.ended == Ended(7, "one\ntwo\n")
    assert trace.claim is not None
    assert trace.ready is not None
    assert trace.claim.runner == trace.ready.runner
    assert trace.started is not None
    assert 0 < trace.started.after_word_seconds == trace.started.began_at < time.monotonic()
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.glob(f"{RUN}.*")}
    assert modes == {0o600}
    assert not list(tmp_path.glob(".*"))


@pytest.mark.process
def test_a_claimed_run_is_not_run(tmp_path: Path) -> None:
    """Where anybody has the claim, the tool is not started and nothing else is left."""
    tool = program(tmp_path / "tool", f"touch {tmp_path}/ran")
    assert take_claim(tmp_path, RUN, Claim(None, "given up"))
    assert _run(tmp_path, (tool,)) == TAKEN
    assert not (tmp_path / "ran").exists()
    assert read_trace(tmp_path, RUN).started is None


@pytest.mark.process
def test_of_many_runners_one_runs_the_tool(tmp_path: Path) -> None:
    """Runners that are started at once under one name: one wins, the others say so."""
    tool = program(tmp_path / "tool", f"echo ran >> {tmp_path}/ran")
    started = [subprocess.Popen(_command(tmp_path, (tool,))) for _ in range(5)]
    wait_until(lambda: len(list(tmp_path.glob(".*.ended.*.new"))) == 5, "all stand ready")
    give_word(tmp_path, RUN, LONG_WORD)
    codes = sorted(each.wait(30) for each in started)
    assert codes == [RAN, *[TAKEN] * 4]
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert _ended(tmp_path) == Ended(0, "")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.process
def test_inside_our_cgroup_it_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner below the cgroup that it was to be outside of leaves why, and no tool runs."""
    tool = program(tmp_path / "tool", f"touch {tmp_path}/ran")
    own = next((path for path in cgroups_of(Path("/proc/self/cgroup").read_text()) if path != "/"), "")
    if not own:
        pytest.skip("this process is in no cgroup of its own")
    monkeypatch.chdir("/")
    assert _run(tmp_path, (tool,), "--outside-of", own) == RAN
    ended = _ended(tmp_path)
    assert ended is not None
    assert ended.code is None
    assert "inside" in ended.why
    assert not (tmp_path / "ran").exists()
    assert read_trace(tmp_path, RUN).started is None


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return a gate for a tool; opened at the end whatever happened."""
    made = Gate(tmp_path / "go")
    yield made
    made.close()


@pytest.mark.process
def test_neither_runner_nor_tool_takes_notice_of_a_stop(tmp_path: Path, gate: Gate) -> None:
    """SIGTERM, SIGINT and SIGHUP to both change nothing: the tool ends by itself, and its end is left."""
    tool = program(tmp_path / "tool", f"read x < {gate.path}; echo well")
    give_word(tmp_path, RUN, LONG_WORD)
    runner = subprocess.Popen(_command(tmp_path, (tool,)))
    wait_until(lambda: read_trace(tmp_path, RUN).started is not None, "the tool runs")
    started = read_trace(tmp_path, RUN).started
    assert started is not None
    tool_pid = started.tool_pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(runner.pid, number)
        os.kill(tool_pid, number)
    gate.open()
    assert runner.wait(30) == RAN
    assert _ended(tmp_path) == Ended(0, "well\n")


@pytest.mark.process
def test_a_tool_outlives_its_runner(tmp_path: Path, gate: Gate) -> None:
    """SIGKILL of the runner does not end the tool, not even when it writes on."""
    tool = program(tmp_path / "tool", f"read x < {gate.path}; echo text; echo text; touch {tmp_path}/done")
    give_word(tmp_path, RUN, LONG_WORD)
    runner = subprocess.Popen(_command(tmp_path, (tool,)))
    wait_until(lambda: read_trace(tmp_path, RUN).started is not None, "the tool runs")
    runner.kill()
    runner.wait(30)
    gate.open()
    wait_until((tmp_path / "done").exists, "the tool ended by itself")
    assert _ended(tmp_path) is None


@pytest.mark.process
def test_an_exit_code_survives_a_parent_that_ignores_its_children(tmp_path: Path) -> None:
    """With SIGCHLD ignored, as some parents leave it, the tool's code is still its own."""
    tool = program(tmp_path / "tool", "exit 255")
    give_word(tmp_path, RUN, LONG_WORD)
    words = " ".join(_command(tmp_path, (tool,)))
    subprocess.run(["/bin/bash", "-c", f"trap '' CHLD; exec {words}"], check=True, timeout=30)
    assert _ended(tmp_path) == Ended(255, "")


@pytest.mark.process
def test_endless_output_is_cut(tmp_path: Path) -> None:
    """What the tool prints is kept up to the limit, and any bytes are read back."""
    tool = program(tmp_path / "tool", r"printf '\377\001'; head -c 200000 /dev/zero")
    assert _run(tmp_path, (tool,)) == RAN
    ended = _ended(tmp_path)
    assert ended is not None
    assert ended.code == 0
    assert len(ended.text) == OUTPUT_LIMIT_BYTES
    assert ended.text.startswith("�\x01\x00")


@pytest.mark.process
def test_a_word_past_its_time_is_no_word(tmp_path: Path) -> None:
    """The tool is not started, nothing is claimed, and nothing but that it stood ready is left."""
    tool = program(tmp_path / "tool", f"touch {tmp_path}/ran")
    give_word(tmp_path, RUN, Word(0.5, 1.0))
    command = _command(tmp_path, (tool,), "--word-within=0.3")
    assert subprocess.run(command, check=False, timeout=30).returncode == UNASKED
    assert not (tmp_path / "ran").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{RUN}.go", f"{RUN}.ready", "tool"]


def test_a_turn_that_comes_too_late_after_the_claim_is_not_run(tmp_path: Path) -> None:
    """Held up between the claim and the tool: the end says why, and the tool is not started."""
    order = reset_runner.Order(tmp_path, RUN, "", 1.0, ("/bin/touch", str(tmp_path / "ran")))
    ended = reset_runner._run_tool(order, Word(0.5, 1.0))
    assert ended.code is None
    assert "too late" in ended.why
    assert not (tmp_path / "ran").exists()


@pytest.mark.process
@pytest.mark.parametrize("text", ["[]", "{}", "x", '{"given_at": 1, "not_after": NaN}'])
def test_a_word_that_is_none_of_ours_runs_nothing(tmp_path: Path, text: str) -> None:
    """Whatever else stands there is an error, and nothing is claimed."""
    tool = program(tmp_path / "tool", f"touch {tmp_path}/ran")
    (tmp_path / f"{RUN}.go").write_text(text)
    command = _command(tmp_path, (tool,))
    assert subprocess.run(command, check=False, timeout=30, capture_output=True).returncode == FAILED
    assert not (tmp_path / "ran").exists()
    assert read_trace(tmp_path, RUN).claim is None


@pytest.mark.process
def test_without_a_place_for_the_record_nothing_runs(tmp_path: Path) -> None:
    """A directory that is not there is an error, and the tool is not started."""
    tool = program(tmp_path / "tool", f"touch {tmp_path}/ran")
    assert _run(tmp_path / "none", (tool,)) == FAILED
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--dir", "/tmp", "--run", "../x", "--", "/bin/true"],
        ["--dir", "here", "--run", "x", "--", "/bin/true"],
        ["--dir", "/tmp", "--run", "x", "--", "true"],
        ["--dir", "/tmp", "--run", "x"],
    ],
)
def test_a_wrong_order_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A name that leaves the directory, a relative path or no tool at all ends with 2."""
    with pytest.raises(SystemExit) as ended:
        reset_runner.main(words)
    assert ended.value.code == 2
    assert "reset_runner" in capsys.readouterr().err


def test_which_cgroup_is_ours() -> None:
    """The unit's path is v2's, else the one of systemd's own hierarchy; the root is nobody's own."""
    assert unit_cgroup(V2) == "/system.slice/reclaimerd.service"
    assert unit_cgroup(HYBRID) == "/system.slice/x.service"
    assert unit_cgroup("0::/\n") == ""
    assert cgroups_of(HYBRID) == ("/system.slice/x.service", "/m/x", "/")


@pytest.mark.parametrize(
    ("path", "boundary", "inside"),
    [
        ("/system.slice/a.service", "/system.slice/a.service", True),
        ("/system.slice/a.service/x", "/system.slice/a.service", True),
        ("/system.slice/a.service2", "/system.slice/a.service", False),
        ("/system.slice", "/system.slice/a.service", False),
        ("/", "/", False),
        ("/x", "", False),
    ],
)
def test_what_is_inside(path: str, boundary: str, *, inside: bool) -> None:
    """A path is inside by whole names; the root bounds nothing."""
    assert is_inside(path, boundary) is inside


def test_a_claim_is_taken_once(tmp_path: Path) -> None:
    """The second claim fails and leaves the first as it was, with nothing beside it."""
    assert take_claim(tmp_path, RUN, Claim(None, "first"))
    assert not take_claim(tmp_path, RUN, Claim(None, "second"))
    assert read_trace(tmp_path, RUN).claim == Claim(None, "first")
    assert [path.name for path in tmp_path.iterdir()] == [f"{RUN}.claim"]


def test_the_room_for_the_end_is_there_before(tmp_path: Path) -> None:
    """Room for the longest end is reserved before the tool runs, and given back with the real one."""
    longest = Ended(0, "\x01" * OUTPUT_LIMIT_BYTES)
    with reserve(tmp_path, RUN, Claim(None, "")) as reserved:
        assert os.fstat(reserved.end).st_size >= len(json.dumps(longest.text)) + 100
        reserved.leave_end(longest)
    assert _ended(tmp_path) == longest
    assert (tmp_path / f"{RUN}.ended").stat().st_size == len(json.dumps(longest.text)) + len(
        '{"code": 0, "text": , "why": ""}\n'
    )


@pytest.mark.parametrize("text", ["[]", "{}", "nothing", '{"code": true, "text": "", "why": ""}'])
def test_a_file_that_is_none_of_ours_is_an_error(tmp_path: Path, text: str) -> None:
    """Whatever else stands there is never read as an end."""
    (tmp_path / f"{RUN}.ended").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        read_trace(tmp_path, RUN)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in a file's place is an error, not an answer."""
    (tmp_path / "elsewhere").write_text('{"code": 0, "text": "", "why": ""}')
    (tmp_path / f"{RUN}.ended").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        read_trace(tmp_path, RUN)


def test_no_directory_is_an_empty_trace(tmp_path: Path) -> None:
    """Before the first reset nothing stands anywhere."""
    assert read_trace(tmp_path / "none", AttemptId("x.1")).claim is None
