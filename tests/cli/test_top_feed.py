"""How `top` asks the daemon: reading calls alone, and what becomes of each kind of answer."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli.main import run
from reclaimerd.cli.render import Table
from reclaimerd.cli.top_feed import Feed
from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, Server, canned, environment
from tests.cli.test_commands import HOSTILE, PROCESS, PS, STATUS
from tests.rigs.simulated import wait_until

REF = "4242@987654321"
FOUND = {**PROCESS, "process": {**PROCESS["process"], "ref": REF}}
ANSWERS = {
    "GET /v1/status": Answer(body=STATUS),
    "GET /v1/ps": Answer(body=PS),
    "GET /v1/processes/4242": Answer(body=FOUND),
}
GONE = Answer(status=404, body={"error": "there is no process 4242", "exit_code": 6})


def started(path: Path) -> Feed:
    """Return a feed that asks often."""
    feed = Feed(path, 0.01)
    feed.start()
    return feed


def test_figures_and_one_process(tmp_path: Path) -> None:
    """Both answers make the rows; one process is asked for only while it is inspected; all calls are GET."""
    with canned(tmp_path / "s", ANSWERS) as server:
        feed = started(tmp_path / "s")
        wait_until(lambda: feed.news.figures is not None, "figures")
        assert _targets(server) == {"/v1/status", "/v1/ps"}
        feed.inspect(REF)
        wait_until(lambda: feed.news.inspected is not None, "the process")
        feed.inspect("")
        wait_until(lambda: feed.news.inspected is None, "no process any more")
        feed.stop()
        assert feed.news.figures is not None
        row = feed.news.figures.rows[0]
        assert (row.pid, row.user, row.why, row.sm_percent) == (4242, "uid 4294967290", "over-cap", None)
        assert {one.method for one in server.asked} == {"GET"}


def _targets(server: Server) -> set[str]:
    return {one.target for one in server.asked}


def test_away_and_back(tmp_path: Path) -> None:
    """The figures stay with their age, the trouble is said, and it goes on when the daemon is back."""
    path = tmp_path / "s"
    with canned(path, ANSWERS):
        feed = started(path)
        wait_until(lambda: feed.news.figures is not None, "figures")
    path.unlink()
    wait_until(lambda: feed.news.trouble != "", "trouble")
    before = feed.news
    assert "no daemon is running" in before.trouble
    assert before.figures is not None
    with canned(path, ANSWERS):
        wait_until(lambda: feed.news.trouble == "" and feed.news.answered_at != before.answered_at, "back")
        feed.stop()


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        (Answer(status=403, body={"error": "your role is none", "mend": "ask", "exit_code": 4}), True),
        (Answer(status=500, body={"error": "busy " + HOSTILE}), False),
        (Answer(body={"rows": 5}, cut=True), False),
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, answer: Answer, *, over: bool) -> None:
    """A missing role ends it with the daemon's own words; anything else is said, and asked again."""
    with canned(tmp_path / "s", {**ANSWERS, "GET /v1/ps": answer}):
        feed = started(tmp_path / "s")
        wait_until(lambda: bool(feed.news.trouble), "trouble")
        feed.stop()
        assert (feed.news.over is not None) == over
        assert feed.news.figures is None


def test_a_bug_does_not_leave_old_figures_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the feed with a sentence, which the command then says."""
    monkeypatch.setattr("reclaimerd.cli.top_feed.figures_of", lambda *_: 1 / 0)
    with canned(tmp_path / "s", ANSWERS):
        feed = Feed(tmp_path / "s", 0.01)
        feed.run()
    assert "ZeroDivisionError" in str(feed.news.over)


def test_a_process_that_left(tmp_path: Path) -> None:
    """What was known last stays, with why there is no more; another process of that number is not taken."""
    known = Feed(tmp_path / "s", 60.0)
    known.inspect(REF)
    for answer, word in ((ANSWERS["GET /v1/processes/4242"], ""), (GONE, "there is no process 4242")):
        with canned(tmp_path / "s", {**ANSWERS, "GET /v1/processes/4242": answer}):
            known.news = known.poll()
        (tmp_path / "s").unlink()
        assert known.news.inspected is not None
        assert known.news.inspected.trouble == word
        assert known.news.inspected.blocks[0] == f"process {REF}"
    other = {**PROCESS, "process": {**PROCESS["process"], "ref": "4242@1"}}
    with canned(tmp_path / "s", {**ANSWERS, "GET /v1/processes/4242": Answer(body=other)}):
        known.news = known.poll()
    assert known.news.inspected is not None
    assert "is gone" in known.news.inspected.trouble
    (tmp_path / "s").unlink()
    with canned(tmp_path / "s", {**ANSWERS, "GET /v1/ps": Answer(body={**PS, "rows": []})}) as server:
        known.news = known.poll()
        assert _targets(server) == {"/v1/status", "/v1/ps"}
    assert known.news.inspected is not None
    assert "holds no GPU any more" in known.news.inspected.trouble
    assert any(isinstance(block, Table) for block in known.news.inspected.blocks)


def test_once_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """One screen with every row, as wide as COLUMNS says, and both answers as JSON."""
    monkeypatch.setenv("COLUMNS", "80")
    with canned(tmp_path / "s", ANSWERS):
        assert run(["top", "--once", "--socket", str(tmp_path / "s")]) == 0
        plain = capsys.readouterr().out
        assert run(["top", "--json", "--socket", str(tmp_path / "s")]) == 0
        body = json.loads(capsys.readouterr().out)
    lines = plain.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert all(line.isprintable() for line in lines)
    assert [line.split()[0] for line in lines if "  8.0 GiB  " in line] == ["4242"]
    assert (body["ps"]["rows"][0]["ref"], body["status"]["mode"]) == (REF, "enforce")


def test_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It refuses with a sentence that names what to call in its place, and asks nobody."""
    with canned(tmp_path / "s", ANSWERS) as server:
        assert run(["top", "--socket", str(tmp_path / "s")]) == ExitCode.USAGE
        assert server.asked == []
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("reclaimctl: top needs a terminal")
    assert "reclaimctl ps" in said.err


def test_only_top_pays_for_it() -> None:
    """`--help`, which knows every command, imports neither curses nor a module of the screen."""
    code = (
        "import sys\nfrom reclaimerd.cli.main import run\nrun(['--help'])\n"
        "heavy = [one for one in sys.modules if 'curses' in one or one.startswith('reclaimerd.cli.top')]\n"
        "print('heavy', heavy, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stderr.strip() == "heavy []"
    assert " top " in ran.stdout
