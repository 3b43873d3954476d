"""`reclaimctl why`: the sentence first, each exit code, who may not read the files, a broken record."""

import json
import os
import tempfile
from functools import partial
from pathlib import Path

import pytest

from reclaimerd.cli import commands_review, commands_why
from reclaimerd.cli.main import run
from reclaimerd.cli.why_text import incident_lines
from reclaimerd.record import audit_index, why_found
from reclaimerd.record.chain import CURRENT_NAME
from tests.cli.canned import Answer, canned
from tests.record.log_rig import Log
from tests.record.review_rig import stories
from tests.rigs.other_user import as_user

NOBODY = 65534
IMPORTED = (audit_index, why_found, commands_review)
"""What `as_user` needs: a user who may not reach this Python imports nothing."""


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of four incidents."""
    return stories(tmp_path / "log", 4)


def why(log: Log, *words: str) -> int:
    """Run it over this log, where no daemon is."""
    where = ["--log-dir", str(log.directory), "--state-dir", str(log.directory)]
    return run(["why", *words, *where, "--socket", str(log.directory / "none")])


def test_the_answer_comes_first_then_who_when_how_and_why(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence an incident with its steps and its end; why, whom, and the command for all of it."""
    assert why(log, "--pid", "103@1030") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Yes: reclaimerd sent a signal to process 103@1030."
    assert "rule leak signalled 103@1030: SIGTERM refused (paused); signal 9 sent" in lines[2]
    assert "its GPUs are proven free" in lines[2]
    assert "  why       it leaks 3 MiB/s" in lines
    assert "  refused   sigterm (paused): acts are paused; reclaimctl resume" in lines
    assert "  story     reclaimctl audit show inc-3" in lines
    assert lines[-1].endswith("until now.")


def test_nobody_on_record_says_so_with_the_span_and_where_else_to_look(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 6; the span of the record, and what was removed before it."""
    assert why(log, "--job", "4711") == 6
    out = capsys.readouterr().out
    assert "it was not reclaimerd; no record is about job 4711" in out
    assert "until now" in out
    assert "OOM killer" in out
    assert "sacct -j 4711" in out
    assert "removed by retention" not in out
    oldest = min(log.directory.glob("audit-0*"))
    oldest.unlink()
    why(log, "--job", "4711")
    assert "were removed by retention" in capsys.readouterr().out


def test_json_is_the_answer_with_its_question(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """Its keys are what scripts hold on to; times are RFC 3339."""
    assert why(log, "--pid", "102", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "asked", "answer", "chain", "processes", "incidents", "more", "named_by", "covers", "faults",
        "unanchored",
    }  # fmt: skip
    assert told["asked"] == {
        "pid": 102,
        "start_ticks": None,
        "job": "",
        "pod": "",
        "since": None,
        "limit": 20,
    }
    assert (told["answer"], told["chain"]) == ("signalled", "intact")
    assert told["unanchored"].startswith("there is no anchor in ")
    assert told["covers"]["first_at"].endswith("Z")
    assert set(told["incidents"][0]) >= {"incident", "answer", "actors", "why", "steps", "words", "end"}


def test_a_broken_record_can_t_be_trusted(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 9, said first, also where another record than the asked one was taken away."""
    path = log.directory / CURRENT_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert why(log, "--pid", "4242") == 9
    out = capsys.readouterr().out
    assert out.startswith("ATTENTION: the record is broken (")
    assert "can't be trusted" in out.splitlines()[0]
    assert why(log, "--pid", "4242", "--json") == 9
    assert json.loads(capsys.readouterr().out)["chain"] == "broken"


def test_the_chain_of_a_large_log_is_checked_only_when_asked(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then the answer says that nobody checked; `--verify` does."""
    monkeypatch.setattr(commands_why, "MOST_CHECKED_BYTES", 10)
    path = log.directory / CURRENT_NAME
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert why(log, "--pid", "4242") == 6
    assert "was not checked" in capsys.readouterr().err
    assert why(log, "--pid", "4242", "--verify") == 9


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name one of --job, --pod, --pid"),
        (["--pid", "1", "--job", "2"], "name one of --job, --pod, --pid"),
        (["--pid", "x"], "is no process"),
        (["--job", "4711_1"], "is no job's number"),
        (["--pod", "train-0"], "is no pod"),
        (["--pid", "1", "--since", "yesterday"], "neither an instant"),
        (["--pid", "1", "--limit", "0"], "is not in the range"),
    ],
)
def test_wrong_words_are_exit_2(
    log: Log, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    """And nothing is answered."""
    assert why(log, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_without_any_record_nobody_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 6, and not "it was not us"."""
    assert why(Log(tmp_path / "none"), "--pid", "1") == 6
    out, err = capsys.readouterr()
    assert out == ""
    assert "nobody can tell; reclaimerd never ran here" in err


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_who_may_not_read_the_files_asks_the_daemon(log: Log) -> None:
    """Its answer is told with whose records were looked at; without a daemon exit 4, as `audit` refuses."""
    assert IMPORTED
    assert why(log, "--pid", "101") == 0  # What is imported late is imported now.
    found = {"answer": "not_on_record", "incidents": [], "processes": [], "named_by": [], "faults": []}
    covers = {"first_at": 1.0, "first_seq": 1, "older_removed": False, "looked_from_at": 1.0}
    body = {**found, "more": False, "covers": covers, "chain": "not_checked", "only_uid": NOBODY}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        socket, files = folder / "s", folder / "log"
        files.mkdir(0o700)
        words = ["why", "--pid", "101", "--log-dir", str(files), "--state-dir", str(files)]
        asked = partial(as_user, folder, NOBODY, [NOBODY], lambda: run([*words, "--socket", str(socket)]))
        code, out, err = asked()
        assert (code, out) == (4, "")
        assert "you may not read the audit log" in err
        with canned(socket, {"GET /v1/why": Answer(body)}):
            assert asked()[0] == 4  # A socket that is closed to them is no other refusal.
            socket.chmod(0o666)
            code, out, err = asked()
        assert code == 6
        assert out.startswith("No: what is on record about your own processes says nothing of process 101.")
        assert "takes the right to read its files" in err
        assert f"Only records about processes of uid {NOBODY} were looked at." in out


def test_a_record_of_another_form_is_no_traceback() -> None:
    """What somebody edited into the log is told as far as it can be."""
    lines = list(incident_lines({"incident": 7, "steps": [{"action": 1}], "words": ["x", {}], "actors": 3}))
    assert lines[-1] == "  story     reclaimctl audit show 7"
    assert "nobody on record" in lines[0]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"outcome": "sent", "detail": "SIGTERM and SIGCONT", "after_seconds": 3.04},
         "SIGTERM and SIGCONT sent after 3.0 s"),
        ({"outcome": "", "detail": ""}, "SIGTERM begun, and no outcome is on record"),
        ({"outcome": "dry_run", "detail": "would send SIGTERM"}, "dry run, would send SIGTERM"),
        ({"outcome": "not_sent_to_it"}, "SIGTERM not sent to this process"),
        ({"outcome": "already_gone", "detail": "no such process"},
         "SIGTERM not sent, already gone (no such process)"),
        ({"outcome": "planned", "detail": "in 30 s"}, "SIGTERM only planned (in 30 s)"),
    ],
)  # fmt: skip
def test_each_outcome_has_its_words(step: dict[str, object], says: str) -> None:
    """What was not sent never reads as if it was."""
    head, *_ = incident_lines({"steps": [{"action": "sigterm", **step}]})
    assert says in head


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ({"end": "reclaimed", "end_after_seconds": 4.5}, "it was gone within 3.5 s of SIGTERM"),
        ({"end": "unverified", "end_after_seconds": 2}, "could not be verified"),
        ({"end": "stood_down", "end_reason": "withdrawn"}, "then it was left alone (withdrawn)"),
        (
            {"end": "handed_over to operator"},
            "it still held its GPU, and the matter was handed over to operator",
        ),
        ({}, "no end is on record"),
    ],
)
def test_each_end_has_its_words(end: dict[str, object], says: str) -> None:
    """How soon it ended counts from the last signal that was sent."""
    steps = [
        {"action": "sigterm", "outcome": "sent", "did": "yes", "after_seconds": 1.0},
        {"action": "sigkill", "outcome": "already_gone", "did": "no", "after_seconds": 4.0},
    ]
    head, *_ = incident_lines({"steps": steps, **end})
    assert says in head
