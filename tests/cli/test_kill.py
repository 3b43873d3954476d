"""`kill` by names and with a question: what is shown, what is asked for, and what a no leaves undone."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli.main import run
from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, Server, canned, command, environment
from tests.cli.test_kill_targets import FOREIGN, GPU_A, GPU_B, PROTECTED, a_row, in_job, in_pod, told

HOSTILE = "\x1b[2Jroot\n\u202eexe"
NOBODY = 4294967290
HOST = told(
    a_row(4242, 11, uid=NOBODY, workload="team/train-0/main", used_bytes=8 * 2**30, **in_pod("train-0")),
    a_row(4242, 11, uid=NOBODY, workload="team/train-0/main", gpu=GPU_B, gpu_index=1, used_bytes=2**30),
    a_row(77, 5, uid=NOBODY - 1, workload=HOSTILE, used_bytes=None, **in_job("4711")),
    a_row(9, 1, uid=NOBODY, refused=PROTECTED),
)
DONE = ({"event": "accepted", "text": "1"}, {"event": "result", "exit_code": 0, "targets": []})
ACCEPTED = {
    "pid": 4242, "exit_code": 0, "end": "", "text": "accepted; incident inc-1 goes on", "incident": "inc-1",
    "stages": [], "tasks": [], "reasons": [],
}  # fmt: skip
LISTING = """\
GPU 0 is GPU-aaaaaaaa-0000-4000-8000-000000000000
PID@START  USER            WORKLOAD                  GPU  MEMORY   WHAT WILL BE DONE
4242@11    uid 4294967290  team/train-0/main         0,1  9.0 GiB  SIGTERM, after 30s SIGKILL, at most 9s
77@5       uid 4294967289  \\x1b[2Jroot\\x0a\\u202eexe  0    unknown  SIGTERM, after 30s SIGKILL, at most 9s
9@1        uid 4294967290  -                         0    4 B      nothing: protected by keep: its program
"""
SECONDS = 30.0
CTRL_C = b"\x03"


@contextmanager
def host(tmp_path: Path, seen: Any = None, lines: Any = DONE) -> Iterator[Server]:
    """Serve a host on which these are seen."""
    answers = {
        "GET /v1/reclaims/candidates": Answer(body=HOST if seen is None else seen),
        "POST /v1/reclaims": Answer(lines=lines),
    }
    with canned(tmp_path / "s", answers) as server:
        yield server


def orders(server: Server) -> list[Any]:
    """Return the bodies of the orders that came."""
    return [one.body for one in server.asked if one.method == "POST"]


def at_terminal(tmp_path: Path, *words: str, answer: bytes) -> tuple[int, str, str]:
    """Run a command on a terminal and answer its question; return its exit code, the screen, and stdout.

    The answer Ctrl-C is a SIGINT: the terminal is not the command's controlling one.
    """
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        command(*words, "--socket", str(tmp_path / "s")),
        env={**environment(), "TERM": "dumb", "NO_COLOR": "1"},
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
    )
    os.close(follower)
    screen, until = b"", time.monotonic() + SECONDS
    due_at = 0.0
    while child.poll() is None and time.monotonic() < until:
        if select.select([leader], [], [], 0.05)[0]:
            try:
                screen += os.read(leader, 65536)
            except OSError:  # the child closed its end
                break
        if b"[y/N]" in screen and time.monotonic() >= due_at:
            # A SIGINT that comes just before its read is not felt: as a person would, press again.
            due_at = time.monotonic() + (3.0 if answer == CTRL_C else SECONDS)
            child.send_signal(signal.SIGINT) if answer == CTRL_C else os.write(leader, answer)
    try:
        out, _ = child.communicate(timeout=SECONDS)
    finally:
        child.kill()
    while select.select([leader], [], [], 0)[0]:
        try:
            screen += os.read(leader, 65536)
        except OSError:
            break
    os.close(leader)
    return child.returncode, screen.decode().replace("\r\n", "\n"), out.decode()


def test_the_listing_says_who_and_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Golden: identity, user, workload, GPUs, memory, what will be done; names are escaped."""
    words = ["kill", "--gpu", "0", "--force", "--timeout", "9s", "--yes", "--socket", str(tmp_path / "s")]
    with host(tmp_path):
        assert run(words) == 0
    assert capsys.readouterr().out.startswith(LISTING)


def test_each_is_asked_for_by_the_start_that_was_shown(tmp_path: Path) -> None:
    """The protected one as a dry run alone; the names themselves do not reach the engine."""
    with host(tmp_path) as server:
        run(["kill", "--gpu", "0", "--yes", "--socket", str(tmp_path / "s")])
    (body,) = orders(server)
    assert body["targets"] == [
        {"pid": 4242, "start_ticks": 11},
        {"pid": 77, "start_ticks": 5},
        {"pid": 9, "start_ticks": 1, "dry_run": True},
    ]
    assert not {"gpus", "containers", "jobs", "pods", "yes", "wait"} & set(body)


@pytest.mark.parametrize(
    ("words", "pids"),
    [
        (["--pod", "team/train-0"], [4242]),
        (["--job", "4711"], [77]),
        (["--job", "4711", "--pid", "4242"], [4242, 77]),
        (["--gpu", "1", "--job", "4711"], [4242, 77]),
    ],
)
def test_names_add_up(tmp_path: Path, words: list[str], pids: list[int]) -> None:
    """And each process is asked for once."""
    with host(tmp_path) as server:
        run(["kill", *words, "--yes", "--socket", str(tmp_path / "s")])
    assert [target["pid"] for target in orders(server)[0]["targets"]] == pids


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "0"],
        ["--gpu", "0", "--force"],
        ["--container", "web"],
        ["--job", "4711", "--force"],
        ["--pod", "team/train-0"],
        ["--pid", "4242", "--pid", "77"],
        ["--pid", "4242", "--pid", "77", "--force"],
        ["--pid", "4242", "--job", "4711"],
    ],
)
def test_without_a_terminal_more_than_one_needs_a_yes(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with the sentence; nobody was asked anything."""
    with host(tmp_path) as server:
        assert run(["kill", *words, "--socket", str(tmp_path / "s")]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "nobody is at a terminal to be asked; nothing was done; --yes answers beforehand" in err
    assert server.asked == []


@pytest.mark.parametrize(
    "words", [["--pid", "4242"], ["--pid", "4242", "--force"], ["--pid", "4242", "--yes"]]
)
def test_one_pid_without_a_terminal_goes_straight(tmp_path: Path, words: list[str]) -> None:
    """One call and no list: as it always was."""
    with host(tmp_path) as server:
        assert run(["kill", *words, "--socket", str(tmp_path / "s")]) == 0
    assert [one.method for one in server.asked] == ["POST"]


def test_a_dry_run_needs_no_yes(tmp_path: Path) -> None:
    """Nothing is done, so there is nothing to ask."""
    with host(tmp_path) as server:
        assert run(["kill", "--gpu", "0", "--dry-run", "--socket", str(tmp_path / "s")]) == 0
    assert orders(server)[0]["dry_run"] is True


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 3), (b"\n", 3), (CTRL_C, 130), (b"\x04", 130)])
@pytest.mark.parametrize("words", [["--pid", "4242"], ["--gpu", "0", "--force"]])
def test_anything_but_a_yes_leaves_everything_undone(
    tmp_path: Path, answer: bytes, code: int, words: list[str]
) -> None:
    """No, Enter, Ctrl-C, Ctrl-D: no order goes out."""
    with host(tmp_path) as server:
        ended, screen, _ = at_terminal(tmp_path, "kill", *words, answer=answer)
    assert ended == code, screen
    assert "4242@11" in screen
    assert orders(server) == []


@pytest.mark.process
def test_a_yes_sends_exactly_who_was_shown(tmp_path: Path) -> None:
    """One --pid without @START gets the start that was on the list; --json leaves stdout to the object."""
    with host(tmp_path) as server:
        ended, screen, out = at_terminal(tmp_path, "kill", "--pid", "4242", "--json", answer=b"y\n")
    assert ended == 0, screen
    assert "do this to 1 process? [y/N]" in screen
    assert orders(server)[0]["targets"] == [{"pid": 4242, "start_ticks": 11}]
    assert json.loads(out)["exit_code"] == 0


@pytest.mark.process
def test_force_answers_for_one_pid_alone_on_a_terminal(tmp_path: Path) -> None:
    """`kill --pid P --force` never asks."""
    with host(tmp_path) as server:
        ended, screen, _ = at_terminal(tmp_path, "kill", "--pid", "4242", "--force", answer=b"n\n")
    assert ended == 0, screen
    assert [one.method for one in server.asked] == ["POST"]
    assert "[y/N]" not in screen


@pytest.mark.process
def test_where_all_are_refused_nobody_is_asked(tmp_path: Path) -> None:
    """There is nothing to say yes to; the engine says why, on record, by a dry run."""
    with host(tmp_path, told(a_row(9, 1, refused=PROTECTED))) as server:
        _, screen, _ = at_terminal(tmp_path, "kill", "--gpu", "0", answer=b"n\n")
    assert "[y/N]" not in screen
    assert [target["dry_run"] for target in orders(server)[0]["targets"]] == [True]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--gpu", "7", "--yes"], 6, "there is no GPU '7'; nothing was done"),
        (["--gpu", "1", "--pod", "team/none", "--yes"], 6, "no pod 'team/none'"),
        (["--gpu", "GPU-aaaa", "--yes"], 2, "2 GPUs go by 'GPU-aaaa'; nothing was done"),
        (["--gpu", "0", "--max-targets", "2", "--yes"], 2, "3 processes are more than 2; nothing was done"),
        ([], 2, "nobody is named"),
        (["--yes"], 2, "nobody is named"),
        (["--job", "x", "--yes"], 2, "no job's number"),
        (["--job", "\u0664", "--yes"], 2, "no job's number"),
        (["--pod", "train", "--yes"], 2, "NAMESPACE/NAME"),
        (["--pod", "a/b\x1b[2J", "--yes"], 2, "NAMESPACE/NAME"),
        (["--container", "", "--yes"], 2, "names nothing"),
    ],
)
def test_names_that_mean_nobody_or_too_many_order_nothing(
    tmp_path: Path, words: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence on stderr, and no order."""
    with host(tmp_path) as server:
        assert run(["kill", *words, "--socket", str(tmp_path / "s")]) == code
    err = capsys.readouterr().err
    assert sentence in err
    assert all(line.isprintable() for line in err.splitlines())
    assert orders(server) == []


def test_a_demanded_reason_is_asked_for_before_the_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with the mend, and no order."""
    with host(tmp_path, {**HOST, "require_reason": True}) as server:
        assert run(["kill", "--gpu", "0", "--yes", "--socket", str(tmp_path / "s")]) == ExitCode.USAGE
        assert orders(server) == []
        assert run(["kill", "--gpu", "0", "--yes", "--reason", "x", "--socket", str(tmp_path / "s")]) == 0
    assert "--reason TEXT" in capsys.readouterr().err


def test_others_processes_are_listed_and_refused_beside_one_s_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 4, which is the gravest; the own one was asked for, the other stands in the result with why."""
    lines = ({"event": "result", "exit_code": 0, "targets": [{**ACCEPTED, "end": "reclaimed"}]},)
    with host(tmp_path, told(a_row(4242), a_row(77, refused=FOREIGN)), lines) as server:
        code = run(["kill", "--gpu", GPU_A, "--yes", "--json", "--socket", str(tmp_path / "s")])
    assert code == ExitCode.NOT_ALLOWED
    assert [target["pid"] for target in orders(server)[0]["targets"]] == [4242]
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert [(one["pid"], one["exit_code"]) for one in result["targets"]] == [(4242, 0), (77, 4)]
    assert result["exit_code"] == ExitCode.NOT_ALLOWED
    assert set(result["targets"][0]) == set(result["targets"][1])
    assert "pid 77: not yours by all four uids" in err


def test_without_waiting_it_says_how_to_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine is told, and each incident is named with the command that shows it."""
    lines = ({"event": "result", "exit_code": 0, "targets": [ACCEPTED]},)
    with host(tmp_path, lines=lines) as server:
        assert run(["kill", "--pid", "4242", "--no-wait", "--socket", str(tmp_path / "s")]) == 0
        text = capsys.readouterr().out
        assert run(["kill", "--pid", "4242", "--no-wait", "--json", "--socket", str(tmp_path / "s")]) == 0
    assert [body["wait"] for body in orders(server)] == [False, False]
    assert text == "pid 4242: accepted; follow it with `reclaimctl incidents show inc-1`\n"
    assert json.loads(capsys.readouterr().out) == {"exit_code": 0, "targets": [ACCEPTED]}


TREE = ["kill", "--pid", "4242", "--scope", "tree"]


def going_along(*pids: int, **overrides: Any) -> dict[str, Any]:
    """Return what the daemon tells of who goes along with 4242, each of its user."""
    rows = [
        {"pid": pid, "ref": f"{pid}@3", "uid": NOBODY, "comm": "loader", "refused": None, "of": 4242}
        for pid in pids
    ]
    told = {"processes": len(rows) + 1, "uids": [NOBODY], "foreign": 0, "more": 0, "rows": rows}
    return {**HOST, "along": {**told, **overrides}}


@pytest.mark.process
def test_who_goes_along_is_shown_before_the_question_and_bound_by_it(tmp_path: Path) -> None:
    """By pid, user and program; the question counts them, and the order carries what was shown."""
    seen = going_along(5001, 5002)
    seen["along"]["rows"][1] |= {"comm": HOSTILE, "uid": 0}
    seen["along"]["uids"] = [0, NOBODY]
    with host(tmp_path, seen) as server:
        ended, screen, _ = at_terminal(tmp_path, *TREE, answer=b"y\n")
    assert ended == 0, screen
    listed, _, asked = screen.partition("do this to")
    assert "5001@3" in listed
    assert "uid 4294967290" in listed
    assert "\x1b[2J" not in listed
    assert asked.startswith(" 1 process and 2 that go along, of 2 users? [y/N]")
    assert [one.target for one in server.asked if one.method == "GET"] == [
        "/v1/reclaims/candidates?pids=4242",
        "/v1/reclaims/candidates?pids=4242&scope=tree",
    ]
    (order,) = orders(server)
    assert order["shown"] == {"processes": 3, "uids": [0, NOBODY]}


@pytest.mark.process
def test_a_no_to_who_goes_along_leaves_everything_undone(tmp_path: Path) -> None:
    """A long list is cut, and says how many more there are."""
    seen = going_along(*range(5001, 5041), more=7, processes=48)
    with host(tmp_path, seen) as server:
        ended, screen, _ = at_terminal(tmp_path, *TREE, "--max-targets", "48", answer=b"n\n")
    assert ended == 3, screen
    assert screen.count("@3") == 20
    assert "and 27 more go along" in screen
    assert orders(server) == []


@pytest.mark.parametrize("yes", [["--yes"], []])
def test_without_a_question_nothing_was_shown_that_binds(tmp_path: Path, yes: list[str]) -> None:
    """--yes, or one pid without a terminal: --max-targets alone binds, in the daemon."""
    with host(tmp_path, going_along(5001)) as server:
        assert run([*TREE, *yes, "--socket", str(tmp_path / "s")]) == 0
        assert run(["kill", "--gpu", "1", "--scope", "tree", "--yes", "--socket", str(tmp_path / "s")]) == 0
    assert all("shown" not in order for order in orders(server))
    assert [order["max_targets"] for order in orders(server)] == [8, 8]


def test_more_with_what_goes_along_than_max_targets_orders_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3, the list and the mend; with the number raised it goes out."""
    words = ["kill", "--gpu", "1", "--scope", "workload", "--yes", "--socket", str(tmp_path / "s")]
    with host(tmp_path, going_along(*range(5001, 5010))) as server:
        assert run(words) == ExitCode.REFUSED
        out, err = capsys.readouterr()
        assert "10 processes would be signalled, more than 8; nothing was done" in err
        assert "--max-targets 10" in err
        assert "5001@3" in out
        assert orders(server) == []
        assert run([*words, "--max-targets", "10"]) == 0
    assert len(orders(server)) == 1


def test_others_who_go_along_and_a_daemon_that_does_not_tell_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An owner reads their number; an older daemon says nothing, which is no nobody."""
    words = ["kill", "--gpu", "1", "--scope", "tree", "--yes", "--socket", str(tmp_path / "s")]
    with host(tmp_path, going_along(5001, foreign=2, processes=4)):
        run(words)
    assert "2 of others go along, so the order would be refused" in capsys.readouterr().out
    (tmp_path / "s").unlink()
    with host(tmp_path):
        run(words)
    assert "who goes along was not told" in capsys.readouterr().out


def test_an_owner_s_list_has_their_own_and_a_foreign_pid_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 4 for it, whether it lives or not; what is theirs goes."""
    words = ["kill", "--pid", "4242", "--pid", "31", "--yes", "--gpu", "0", "--socket", str(tmp_path / "s")]
    with host(tmp_path, told(a_row(4242), only_uid=1000)) as server:
        assert run(words) == ExitCode.NOT_ALLOWED
        assert [target["pid"] for target in orders(server)[0]["targets"]] == [4242]
        assert "pid 31: no process of yours by all four uids is seen" in capsys.readouterr().err
        assert run(["kill", "--gpu", "1", "--yes", "--socket", str(tmp_path / "s")]) == ExitCode.NO_TARGET
    assert "of others' processes nothing is told to you" in capsys.readouterr().err
