"""`drain`, `breaker`, `completion` and the manual pages: what is asked, what is shown, what is refused."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click
import pytest

from reclaimerd.cli import completing
from reclaimerd.cli.main import reclaimctl, run
from reclaimerd.cli.man_pages import pages
from reclaimerd.cli.roff import Title, page
from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, canned

UUID = "GPU-11111111-2222-3333-4444-555555555555"
REQUEST: dict[str, Any] = {
    "id": "inc-1",
    "phase": "stands",
    "since": 1.0,
    "reason": "pid 7: stuck",
    "mend": "reboot",
    "incidents": [
        {"id": "inc-1", "reason": "pid 7: stuck", "by_hand": False},
        {"id": "inc-2", "reason": "by hand: ann: fan", "by_hand": True},
    ],
    "targets": [{"name": "file", "state": "asked", "text": "written"}],
}
REFUSED = {"kind": "paused", "text": "paused by ann", "mend": "reclaimctl resume"}


def a_result(code: int, drain: dict[str, Any] | None = None, **target: object) -> Answer:
    """Return a whole answer to an order."""
    row = {"pid": 0, "text": "drain requested", "reasons": [], **target}
    end = {"event": "result", "exit_code": code, "targets": [row], "drain": drain}
    return Answer(lines=({"event": "waiting", "pid": 0, "text": "drain request: ask"}, end))


def drain(folder: Path, answer: Answer, *words: str) -> tuple[int, list[Any]]:
    """Run `drain` against a canned answer; return the exit code and what was asked."""
    with canned(folder / "s", {"POST /v1/drain": answer}) as server:
        code = run(["drain", "--reason", "fan", *words, "--socket", str(folder / "s")])
    return code, [asked.body for asked in server.asked]


def test_drain_asks_and_shows_the_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its lines speak of the node, the request has every by-hand cause and target."""
    code, asked = drain(tmp_path, a_result(0, REQUEST), "--yes")
    assert (code, asked) == (0, [{"reason": "fan", "dry_run": False, "timeout_seconds": 60.0}])
    shown = capsys.readouterr().out
    for part in ("node  waiting: drain request: ask", "by hand: ann: fan", "file: asked", "reboot"):
        assert part in shown


@pytest.mark.parametrize(("words", "code"), [(["--no-wait"], 0), ([], 5)])
def test_what_goes_on_is_no_failure_for_who_does_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int
) -> None:
    """The time is up and the request stands: shown either way."""
    assert drain(tmp_path, a_result(5, REQUEST), "--yes", *words)[0] == code
    assert "drain request inc-1" in capsys.readouterr().out


def test_a_refusal_names_each_reason_with_its_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with exit 3."""
    assert drain(tmp_path, a_result(3, None, reasons=[REFUSED]), "--yes")[0] == ExitCode.REFUSED
    assert "paused: paused by ann; reclaimctl resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('by hand: fan\nfile: x:\n{\n  "a": 1\n}\nslurm: \x1b[2J', 6),
        ("file:\n{}\x1b[2J\n", 1),
        ("by hand: pid 7\n{\nno end", 1),
    ],
)
def test_only_the_file_of_a_dry_run_has_lines_below_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, lines: int
) -> None:
    """It is shown as it would be written; no other text makes a line or steers the terminal."""
    step = {"event": "step", "pid": 0, "stage": "drain", "outcome": "dry_run", "text": text}
    answer = Answer(lines=(step, {"event": "result", "exit_code": 0, "targets": [], "drain": None}))
    assert drain(tmp_path, answer, "--dry-run")[0] == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == lines
    assert "\x1b" not in shown
    assert "x0afile" not in shown


def test_an_answer_without_its_end_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The request may stand: it says where to look."""
    answer = Answer(lines=({"event": "opened", "pid": 0, "text": "incident inc-2"},))
    assert drain(tmp_path, answer, "--yes")[0] != 0
    assert "reclaimctl status" in capsys.readouterr().err


class Terminal:
    """Standard input as a terminal is."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize("said", [True, False])
def test_at_a_terminal_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, said: bool
) -> None:
    """No is no: nothing is sent."""
    questions: list[str] = []

    def answered(question: str, **_given: object) -> bool:
        questions.append(question)
        return said

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", answered)
    code, asked = drain(tmp_path, a_result(0, REQUEST))
    assert (code, len(asked)) == ((0, 1) if said else (3, 0))
    assert questions == ["ask that this node be drained (fan)?"]


def test_breakers_are_a_table_and_what_closes_an_open_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """State, since, why; a closed one has no instruction."""
    rows = [
        {
            "scope": "host",
            "gpu": None,
            "open": True,
            "since": 1.0,
            "reason": "3 workloads",
            "closes": "an admin",
        },
        {"scope": "gpu", "gpu": UUID, "open": False, "since": None, "reason": "", "closes": ""},
    ]
    with canned(tmp_path / "s", {"GET /v1/breakers": Answer({"breakers": rows})}):
        assert run(["breaker", "--socket", str(tmp_path / "s")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["BREAKER", "STATE"],
        ["host", "OPEN"],
        [UUID, "closed"],
    ]
    assert lines[3:] == ["host is closed by an admin"]


OPEN: list[dict[str, Any]] = [
    {"scope": "host", "gpu": None, "open": True, "since": 1.5, "reason": "3 workloads", "closes": "an admin"},
    {"scope": "gpu", "gpu": UUID, "open": True, "since": 7.0, "reason": "failed twice", "closes": "an admin"},
]
CLOSED = [one | {"open": False, "since": None, "reason": ""} for one in OPEN]
CLOSES = "POST /v1/breakers/close"


def closing(folder: Path, rows: list[dict[str, Any]], *words: str) -> tuple[int, list[Any]]:
    """Run `breaker close` where these breakers are; return its exit code and the orders that went out."""
    answers = {"GET /v1/breakers": Answer({"breakers": rows}), CLOSES: Answer({"gpu": None, "breaker": None})}
    with canned(folder / "s", answers) as server:
        code = run(["breaker", "close", "--reason", "x", *words, "--socket", str(folder / "s")])
    assert server.faults == []
    return code, [one.body for one in server.asked if one.method == "POST"]


@pytest.mark.parametrize(
    ("words", "body"), [([], {"since": 1.5}), (["--gpu", UUID], {"gpu": UUID, "since": 7.0})]
)
def test_close_asks_for_one_breaker_alone(
    tmp_path: Path, words: list[str], body: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The host's, or a GPU's, as it was open; never both, and no pause. What was closed is said."""
    assert closing(tmp_path, OPEN, *words) == (0, [{"reason": "x", **body}])
    assert ("failed twice" if words else "3 workloads") in capsys.readouterr().out


def test_close_may_name_the_opening_that_was_seen(tmp_path: Path) -> None:
    """Then nothing else is asked first."""
    found = closing(tmp_path, OPEN, "--since", "1970-01-01T00:00:01Z")
    assert found == (0, [{"reason": "x", "since": 1.0}])


@pytest.mark.parametrize("rows", [CLOSED, []])
def test_close_of_what_is_closed_is_the_daemon_s_to_refuse(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    """It is asked for without an opening."""
    assert closing(tmp_path, rows) == (0, [{"reason": "x"}])


@pytest.mark.parametrize(
    ("said", "words", "orders"),
    [
        (False, [], []),
        (True, [], [{"reason": "x", "since": 1.5}]),
        (None, ["--yes"], [{"reason": "x", "since": 1.5}]),
        (None, ["--since", "1970-01-01T00:00:01Z"], [{"reason": "x", "since": 1.0}]),
    ],
)
def test_at_a_terminal_a_person_says_that_they_mean_this_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, said: bool | None, words: list[str], orders: list[Any]
) -> None:
    """With why it opened; a no closes nothing, --yes and --since answer beforehand."""
    questions: list[str] = []

    def answered(question: str, **_given: object) -> bool:
        questions.append(question)
        return bool(said)

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", answered)
    code, sent = closing(tmp_path, OPEN, *words)
    assert (code, sent) == (0 if orders else 3, orders)
    assert len(questions) == (0 if said is None else 1)
    assert all("3 workloads" in one for one in questions)


def test_close_needs_a_reason(tmp_path: Path) -> None:
    """A usage error, before anybody is asked."""
    with canned(tmp_path / "s", {}) as server:
        assert run(["breaker", "close", "--socket", str(tmp_path / "s")]) == ExitCode.USAGE
    assert server.asked == []


def offered(
    folder: Path, answers: dict[str, Answer], what: Any = completing.gpus, begun: str = ""
) -> list[str]:
    """Return what is offered against canned answers."""
    with canned(folder / "s", answers):
        ctx = click.Context(reclaimctl)
        ctx.meta["reclaimerd.socket"] = folder / "s"
        return list(what(ctx, click.Option(["--x"]), begun))


def test_names_are_offered_as_the_daemon_knows_them(tmp_path: Path) -> None:
    """GPUs, incidents, this node's request, rules; only what begins so."""
    status = {"GET /v1/status": Answer({"gpus": [{"uuid": UUID}, {"uuid": "MIG-2"}], "drain": REQUEST})}
    assert offered(tmp_path, status, begun="GPU") == [UUID]
    (tmp_path / "s").unlink()
    assert offered(tmp_path, status, completing.drains) == ["inc-1", "inc-2"]
    (tmp_path / "s").unlink()
    rules = {"GET /v1/rules": Answer({"rules": [{"name": "a"}, {"name": "a b; rm"}, {"name": "b"}]})}
    assert offered(tmp_path, rules, completing.rules) == ["a", "b"]
    (tmp_path / "s").unlink()
    some = {"GET /v1/incidents": Answer({"incidents": [{"id": "inc-9"}]})}
    assert offered(tmp_path, some, completing.incidents) == ["inc-9"]


def test_kinds_of_records_are_offered_without_asking_anybody() -> None:
    """They are the program's own words."""
    ctx = click.Context(reclaimctl)
    assert completing.kinds(ctx, click.Option(["--x"]), "re") == ["refused", "resumed", "reset_step"]


@pytest.mark.parametrize(
    "answer", [Answer({"error": "no"}, status=403), Answer({"gpus": None}), Answer({"gpus": [7]})]
)
def test_what_is_no_answer_offers_nothing(tmp_path: Path, answer: Answer) -> None:
    """Denied, or not as it should be: silence at the prompt."""
    assert offered(tmp_path, {"GET /v1/status": answer}) == []


def test_nobody_there_offers_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No socket: no engine in the foreground, no word."""
    ctx = click.Context(reclaimctl)
    ctx.meta["reclaimerd.socket"] = tmp_path / "none"
    assert completing.gpus(ctx, click.Option(["--x"]), "") == []
    assert capsys.readouterr() == ("", "")


def test_an_answer_that_does_not_end_is_not_waited_for(tmp_path: Path) -> None:
    """It began and hangs: given up long before a call of any other command would be."""
    hangs = Answer(lines=({"gpus": []}, {"gpus": []}), hold=threading.Event())
    began = time.monotonic()
    assert offered(tmp_path, {"GET /v1/status": hangs}) == []
    assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shells_script_is_printed_and_its_shell_reads_it(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the variable by which it calls us; no hint goes into a file."""
    assert run(["completion", shell]) == 0
    said = capsys.readouterr()
    assert "_RECLAIMCTL_COMPLETE" in said.out
    assert said.err == ""
    if shutil.which(shell) is None:
        pytest.skip(f"the script is made; there is no {shell} here to read it")
    script = tmp_path / "script"
    script.write_text(said.out, encoding="utf-8")
    read = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (read.returncode, read.stderr) == (0, "")


def test_every_group_and_program_has_a_page(tmp_path: Path) -> None:
    """reclaimctl.1, one for each group, the daemon's and the policy's, and none beside them."""
    assert run(["manual", "--format", "man", "--out", str(tmp_path / "man")]) == 0
    groups = [name for name, one in reclaimctl.commands.items() if isinstance(one, click.Group)]
    wanted = {"reclaimctl.1", "reclaimerd.8", "reclaimerd.toml.5", *(f"reclaimctl-{one}.1" for one in groups)}
    assert {path.name for path in (tmp_path / "man").iterdir()} == wanted
    text = (tmp_path / "man" / "reclaimctl-breaker.1").read_text(encoding="utf-8")
    assert "reclaimctl breaker close" in text
    assert "reclaimctl kill" not in text


def test_pages_without_a_folder_are_a_slip(tmp_path: Path) -> None:
    """Usage; and a folder that can't be made is named with its mend."""
    assert run(["manual", "--format", "man"]) == ExitCode.USAGE
    (tmp_path / "file").touch()
    assert run(["manual", "--format", "man", "--out", str(tmp_path / "file" / "man")]) == ExitCode.INTERNAL


@pytest.mark.parametrize(
    "checker", [("groff", "-man", "-ww", "-z", "-K", "utf8"), ("mandoc", "-T", "lint", "-W", "error")]
)
def test_roff_has_nothing_to_say_against_a_page(checker: tuple[str, ...], tmp_path: Path) -> None:
    """No warning, for all of them."""
    if shutil.which(checker[0]) is None:
        pytest.skip(f"there is no {checker[0]} here")
    for name, text in pages(reclaimctl):
        (tmp_path / name).write_text(text, encoding="utf-8")
        words = [*checker, str(tmp_path / name)]
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (said.returncode, said.stdout + said.stderr) == (0, ""), name


@pytest.mark.parametrize(
    ("markdown", "wanted"),
    [
        ("a `b-c` **d** [e](f.md)", [".PP", "a \\fBb\\-c\\fR \\fBd\\fR e"]),
        (".TH of a text", [".PP", "\\&.TH of a text"]),
        ("one\ntwo", [".PP", "one", "two"]),
        ('## A `b`\n\n### c "d"', ['.SH "A B"', '.SS "c \\(dqd\\(dq"']),
        ("    'x \\ y", [".PP", ".RS 4", ".nf", "\\&'x \\e y", ".fi", ".RE"]),
        ("- `--x`: y\n- z", [".TP", "\\fB\\-\\-x\\fR", "y", ".IP \\(bu 3", "z"]),
        (
            "| k | value | m |\n| --- | --- | --- |\n| `a` | b\\|c | d |",
            [".TP", "\\fBa\\fR", "d", ".br", "Value: b|c."],
        ),
        ("| k | m |\n| --- | --- |\n| a |  |", [".TP", "a", "\\&"]),
    ],
)  # fmt: skip
def test_markdown_becomes_roff(markdown: str, wanted: list[str]) -> None:
    """No character of a text is ever taken for a request."""
    made = page(Title("x", 1, "y", "1"), f"# x\n\nz\n\n{markdown}\n")
    assert made.splitlines()[5:] == wanted
