"""`evidence` and `doctor --stuck`: what they ask for, print and write, and what perf's text is made into."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from reclaimerd import __version__
from reclaimerd.cli import perf_sample
from reclaimerd.cli.evidence_text import stuck_blocks
from reclaimerd.cli.main import run
from reclaimerd.cli.perf_sample import counted_stacks, running_tasks, sample_running
from reclaimerd.cli.progress import result_blocks
from reclaimerd.cli.report import inspect_blocks
from reclaimerd.daemon.stuck_rows import StuckReport
from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, canned, reclaimctl
from tests.rigs.kernel_children import child, stuck_in_flush
from tests.rigs.raw_fuse import why_unavailable

HOSTILE = "\x1b[2Jroot\nx"
SAMPLE = {
    "at_seconds": 0.0,
    "state": "R",
    "flags": "0x40040c",
    "cpu_ticks": 7,
    "processor": 1,
    "switches": [1, 2],
    "sigkill_pending": True,
    "wchan": "",
    "stack": ["nvidia_close [nvidia]"],
}
PAGE: dict[str, Any] = {
    "schema": 1,
    "reclaimerd": __version__,
    "host": "node",
    "kernel": "6.18",
    "taken_at": 1700000000.0,
    "pid": 42,
    "ref": "42@7",
    "comm": HOSTILE,
    "plight": "exiting for 4 m 10 s; spinning in uvm_spin_loop (driver)",
    "signs": ["in uvm_spin_loop"],
    "process": {"command": HOSTILE, "cgroup": "1:a:/\n0::/"},
    "tasks": [{"tid": 42, "comm": HOSTILE, "samples": [SAMPLE]}],
    "wait_chain": [],
    "locks": [],
    "kernel_log": [{"ago_seconds": 3.0, "topic": "nvidia", "text": "NVRM: Xid"}],
    "driver": {"state": "unresponsive", "holders": []},
    "missing": [],
}
ROW: dict[str, Any] = {
    "pid": 42,
    "ref": "42@7",
    "comm": HOSTILE,
    "kernel_thread": False,
    "condition": "exiting",
    "states": "D",
    "tasks": 1,
    "text": "exiting for 3 s; blocked",
    "driver": "stack",
    "driver_text": "nvidia_close [nvidia]",
    "signature": "nvidia_close_rwlock",
    "stack": ["nvidia_close [nvidia]"],
}
PERF_TEXT = """\
   16371
\tffffffff8177f695 uvm_spin_loop ([nvidia_uvm])
\tffffffff81780560 do_exit+0x12 ([kernel.kallsyms])
\t    7f32040ee043 [unknown] ([unknown])

   16371
\tffffffff8177f695 uvm_spin_loop ([nvidia_uvm])
\tffffffff81780560 do_exit ([kernel.kallsyms])

   16372
\t    7f32040ee043 main (/usr/bin/python3)
"""


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Return where the canned daemon listens."""
    return tmp_path / "s"


def evidence(socket: Path, *words: str, page: dict[str, Any] | None = None) -> int:
    """Ask a canned daemon for evidence."""
    with canned(socket, {"GET /v1/evidence/42": Answer(PAGE if page is None else page)}) as server:
        code = run(["evidence", "42", "--socket", str(socket), *words])
    assert [asked.target for asked in server.asked] == ["/v1/evidence/42"]
    return code


def test_evidence_is_printed_for_people_and_no_name_steers_the_terminal(
    socket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdict, tasks and log are there; a hostile name is escaped and stays in its line."""
    assert evidence(socket) == 0
    shown = capsys.readouterr().out
    assert "verdict: exiting for 4 m 10 s" in shown
    assert "nvidia_close [nvidia]" in shown
    assert "\x1b" not in shown
    assert "\nx" not in shown


def test_evidence_as_json_is_the_page_with_times_in_utc(
    socket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tools get everything."""
    assert evidence(socket, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["taken_at"] == "2023-11-14T22:13:20.000Z"
    assert shown["tasks"][0]["samples"][0]["flags"] == "0x40040c"


@pytest.mark.parametrize("name", ["out.txt", "out.json"])
def test_evidence_is_written_private_and_a_link_is_not_followed(
    socket: Path, tmp_path: Path, name: str
) -> None:
    """The file is the owner's alone; what a link in its place pointed at keeps its content."""
    precious = tmp_path / "precious"
    precious.write_text("keep")
    out = tmp_path / name
    out.symlink_to(precious)
    assert evidence(socket, "--out", str(out)) == 0
    assert not out.is_symlink()
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert precious.read_text() == "keep"
    assert ("taken_at" in out.read_text()) == name.endswith(".json")


@pytest.mark.parametrize("command", ["evidence", "inspect"])
def test_a_process_may_be_named_as_it_is_printed_and_another_is_not_taken_for_it(
    socket: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """PID@START of `ps` works; where the number was given away since, nothing of the other is shown."""
    answers = {
        "GET /v1/evidence/42": Answer(PAGE),
        "GET /v1/processes/42": Answer({"process": {"pid": 42, "ref": str(PAGE["ref"])}}),
    }
    with canned(socket, answers):
        assert run([command, str(PAGE["ref"]), "--socket", str(socket)]) == 0
        capsys.readouterr()
        assert run([command, "42@1", "--socket", str(socket)]) == ExitCode.NO_TARGET
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "process 42@1 is gone" in shown.err


@pytest.mark.parametrize("word", ["abc", "0", "42@", "-1", "4 2", "42@x"])
@pytest.mark.parametrize("command", ["evidence", "inspect"])
def test_what_is_no_process_is_a_usage_error(
    socket: Path, capsys: pytest.CaptureFixture[str], command: str, word: str
) -> None:
    """Exit 2, nobody is asked, and the words say what to write."""
    with canned(socket, {}) as server:
        assert run([command, "--socket", str(socket), "--", word]) == ExitCode.USAGE
    assert server.asked == []
    assert "write PID or PID@START" in capsys.readouterr().err


def test_a_file_that_can_not_be_written_is_one_sentence(
    socket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named, with its cause, and before anything is collected for ten seconds."""
    with canned(socket, {}) as server:
        words = ["evidence", "42", "--socket", str(socket), "--out", str(tmp_path / "no" / "out.txt")]
        assert run(words) == ExitCode.USAGE
    assert server.asked == []
    assert "can't be written: there is no directory" in capsys.readouterr().err


@pytest.mark.parametrize("page", [{"schema": 9}, {**PAGE, "plight": "", "tasks": [{"samples": []}]}])
def test_a_page_of_another_version_is_one_sentence(
    socket: Path, page: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and the way out: --json."""
    assert evidence(socket, page=page) == ExitCode.INTERNAL
    assert "use --json" in capsys.readouterr().err


def test_perf_is_asked_only_for_tasks_in_r_and_only_as_root(
    socket: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page names task and CPU; who is not root is told so."""
    assert running_tasks(PAGE) == {42: 1}
    assert running_tasks({"tasks": [{"tid": 1, "samples": [{**SAMPLE, "state": "D"}]}]}) == {}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert evidence(socket, "--perf") == 0
    assert "SAMPLED: not available: sampling needs root" in capsys.readouterr().out


def test_without_perf_or_without_a_task_in_r_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What to install, or that there is nothing to sample; a program that others may change is not run."""
    assert "no task in R" in sample_running({})["text"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(perf_sample, "PERF", tmp_path / "perf")
    assert sample_running({1: 0})["text"] == "not available: install linux-perf"
    (tmp_path / "perf").write_text("#!/bin/sh\n")
    (tmp_path / "perf").chmod(0o777)
    assert "can be written" in sample_running({1: 0})["text"]


def test_perfs_text_becomes_counted_kernel_stacks() -> None:
    """Module tags as the kernel writes them, the user's own frames left out, equal stacks counted."""
    assert counted_stacks(PERF_TEXT) == {(16371, ("uvm_spin_loop [nvidia_uvm]", "do_exit")): 2}


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(not perf_sample.PERF.exists(), reason="linux-perf is not installed")
def test_a_task_that_spins_in_the_kernel_is_sampled_by_its_cpu() -> None:
    """A real spin: its system call is in the stacks, and no file is left."""
    cpu = min(os.sched_getaffinity(0))
    body = f"\nos.sched_setaffinity(0, {{{cpu}}})\nready()\nwhile True:\n    os.listdir('/proc')\n"
    with child(body) as started:
        found = sample_running({started.pid: cpu})
    if not found["stacks"]:
        pytest.skip(f"perf shows nothing on this machine: {found['text']}")
    assert any("iterate_dir" in one["stack"] for one in found["stacks"])
    assert {one["tid"] for one in found["stacks"]} == {started.pid}


def test_rows_are_shown_with_verdict_and_stack_and_what_was_skipped() -> None:
    """One line says how many, each row its verdict; nothing found says how much was looked at."""
    body: dict[str, Any] = {"rows": [ROW], "processes": 9, "tasks": 30, "watched_seconds": 4.0}
    lines = [
        str(block) for block in stuck_blocks({**body, "notes": ["AB-BA"], "skipped": ["pid 9: it hangs"]})
    ]
    for part in (
        "1 stuck",
        "exiting for 3 s; blocked",
        "    nvidia_close [nvidia]",
        "NOTE: AB-BA",
        "pid 9: it hangs",
    ):
        assert any(part in line for line in lines), part
    assert list(stuck_blocks({**body, "rows": []})) == [
        "nothing is stuck that touches a GPU driver (9 processes, 30 tasks, watched for 4s)"
    ]
    assert list(stuck_blocks({}))


@pytest.mark.parametrize(("skipped", "code"), [([], 0), (["pid 9: it hangs"], 10)])
def test_what_could_not_be_looked_at_is_never_nothing(
    skipped: list[str], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No row is exit 0 only when everything was looked at."""

    async def nothing(_devices: object) -> StuckReport:
        return StuckReport((), 4.0, 9, 30, tuple(skipped))

    monkeypatch.setattr("reclaimerd.daemon.stuck_scan.find_stuck_here", nothing)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run(["doctor", "--stuck"]) == code
    assert ("of what could be looked at" in capsys.readouterr().out) == bool(skipped)


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_doctor_finds_a_stuck_process_without_a_daemon() -> None:
    """The real command on the real host: exit 10, and the process in its JSON."""
    with stuck_in_flush() as pid:
        ran = reclaimctl("doctor", "--stuck", "--json")
    assert ran.returncode == ExitCode.ATTENTION, ran.stderr
    row = next(row for row in json.loads(ran.stdout)["rows"] if row["pid"] == pid)
    assert row["signature"] == "fuse_flush"


def test_inspect_and_kill_show_the_plight() -> None:
    """The verdict in words, where a person looks first and where a kill gave up."""
    plight = {"text": "exiting for 9 s; spinning", "evidence": ["in uvm_spin_loop"]}
    shown = list(inspect_blocks({"process": {"ref": "42@7"}, "plight": plight}))
    assert "in the kernel: exiting for 9 s; spinning" in shown
    assert "  in uvm_spin_loop" in shown
    task = {"ref": "42@7", "text": "exiting (1 task in D)", "plight": plight["text"]}
    told = list(result_blocks({"targets": [{"exit_code": 5, "tasks": [task]}]}))
    assert "  exiting for 9 s; spinning" in told
