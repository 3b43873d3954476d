"""How an answer is fetched: the socket's every way to fail, and the way without a daemon."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli.main import run
from tests.cli.canned import Answer, canned, command, environment, reclaimctl

RESULT = {
    "event": "result",
    "exit_code": 0,
    "targets": [{"pid": 42, "ref": "42@7", "exit_code": 0, "end": "reclaimed", "text": "ok"}],
}
LINES: tuple[dict[str, Any], ...] = (
    {"event": "opened", "incident": "i1", "pid": 42, "at": 1.0},
    {"event": "step", "pid": 42, "stage": "sigterm", "outcome": "sent", "at": 2.0},
    RESULT,
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Give a directory that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="reclaimctl-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@dataclass(frozen=True, slots=True)
class _ForegroundOptions:
    config: Path | None
    state_dir: Path
    log_dir: Path
    socket: Path
    simulate: Path | None
    takeover: bool


@dataclass(frozen=True, slots=True)
class _ForegroundReply:
    status: int
    body: dict[str, Any]


def _stub_foreground(monkeypatch: pytest.MonkeyPatch, raises: type[BaseException] | None = None) -> list[Any]:
    """Put a stub in the engine's place; return what it will have been asked."""
    calls: list[Any] = []

    def request(options: _ForegroundOptions, *asked: Any) -> _ForegroundReply:
        calls.append((options, *asked[:4]))
        if raises is not None:
            raise raises
        for line in LINES:
            if asked[4] is not None:
                asked[4](line)
        return _ForegroundReply(200, RESULT if asked[0] == "POST" else {"rows": [], "driver": {}})

    stub = types.ModuleType("reclaimerd.daemon.foreground")
    stub.__dict__.update(ForegroundOptions=_ForegroundOptions, request=request)
    monkeypatch.setitem(sys.modules, "reclaimerd.daemon.foreground", stub)
    return calls


@pytest.mark.process
def test_kill_imports_nothing_heavy(tmp_path: Path) -> None:
    """A kill through the daemon imports no rich, pydantic, structlog, h11 or asyncio, durations included."""
    script = (
        "import sys, json\nfrom reclaimerd.cli.main import run\n"
        "code = run(sys.argv[1:])\n"
        "heavy = ['rich', 'pydantic', 'structlog', 'asyncio', 'h11', 'http.client', 'tenacity',"
        " 'pynvml', 'sqlite3', 'reclaimerd.daemon.foreground']\n"
        "print(json.dumps([code, [name for name in heavy if name in sys.modules]]))"
    )
    path = tmp_path / "s"
    with canned(path, {"POST /v1/reclaims": Answer(lines=LINES)}):
        arguments = ["kill", "--pid", "42", "--grace", "1s", "--socket", str(path)]
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []], done.stderr


@pytest.mark.parametrize("piece", [1, 7, 0])
def test_stream_in_any_pieces(tmp_path: Path, piece: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines arrive whole however the server cuts its chunks."""
    path = tmp_path / "s"
    with canned(path, {"POST /v1/reclaims": Answer(lines=LINES, piece=piece)}):
        assert run(["kill", "--pid", "42", "--socket", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[8:] for line in lines] == ["  pid 42  incident i1 opened", "  pid 42  SIGTERM sent"]


@pytest.mark.process
def test_lines_are_printed_as_they_come(tmp_path: Path) -> None:
    """The first step is on the screen while the rest has not happened yet."""
    path, hold = tmp_path / "s", threading.Event()
    with (
        canned(path, {"POST /v1/reclaims": Answer(lines=LINES, hold=hold)}),
        subprocess.Popen(
            command("kill", "--pid", "42", "--socket", str(path)),
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        assert "opened" in child.stdout.readline()
        assert child.poll() is None
        hold.set()
        assert "SIGTERM sent" in child.stdout.readline()
        assert child.wait(20) == 0


@pytest.mark.process
def test_interrupt_says_what_goes_on(tmp_path: Path) -> None:
    """Ctrl-C ends the client with 130 and says that the incident goes on."""
    path, hold = tmp_path / "s", threading.Event()
    with (
        canned(path, {"POST /v1/reclaims": Answer(lines=LINES, hold=hold)}),
        subprocess.Popen(
            command("kill", "--pid", "42", "--socket", str(path)),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        said = child.stderr.read()
        hold.set()
    assert "goes on in the daemon" in said
    assert "Traceback" not in said


@pytest.mark.process
def test_reader_that_goes_away_changes_nothing(tmp_path: Path) -> None:
    """`kill | head -1` still waits for the result and leaves with the act's own exit code."""
    many = [{"event": "note", "pid": 42, "text": "x" * 2000}] * 200
    last = {**RESULT, "exit_code": 5}
    path, hold = tmp_path / "s", threading.Event()
    with (
        canned(path, {"POST /v1/reclaims": Answer(lines=(LINES[0], *many, last), hold=hold)}),
        subprocess.Popen(
            command("kill", "--pid", "42", "--socket", str(path)),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        hold.set()
        assert child.wait(20) == 5
        assert "Traceback" not in child.stderr.read()


@pytest.mark.parametrize(
    "answer",
    [Answer(body={"rows": [], "driver": {}, "dead": []}, cut=True), Answer(lines=LINES[:2], cut=True)],
)
def test_answer_cut_short_is_an_error(
    tmp_path: Path, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon that dies in mid-answer is exit 1 with the mend, never taken as an answer."""
    path = tmp_path / "s"
    with canned(path, {"GET /v1/ps": answer, "POST /v1/reclaims": answer}):
        call = ["kill", "--pid", "42"] if answer.lines else ["ps"]
        assert run([*call, "--socket", str(path)]) == 1
    said = capsys.readouterr().err
    assert "went away in mid-answer" in said
    assert "reclaimctl incidents" in said


def test_stream_without_result_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kill whose stream ends before its result is never exit 0."""
    path = tmp_path / "s"
    with canned(path, {"POST /v1/reclaims": Answer(lines=LINES[:2])}):
        assert run(["kill", "--pid", "42", "--socket", str(path)]) == 1
    assert "before its result" in capsys.readouterr().err


@pytest.mark.parametrize(
    "reply", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n[1]", b"HTTP/1.1 200 OK\r\n\r\n{"]
)
def test_stranger_on_the_socket(tmp_path: Path, reply: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever speaks another language on the socket gives exit 1 in one sentence."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def speak() -> None:
            channel, _ = listener.accept()
            with channel:
                channel.recv(65536)
                channel.sendall(reply)

        thread = threading.Thread(target=speak)
        thread.start()
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 1
        thread.join(10)
    said = capsys.readouterr().err
    assert "answer" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (403, {"error": "uid 5 may not kill", "mend": "ask root", "exit_code": 4}, 4),
        (404, {"error": "no such process", "mend": "see ps", "exit_code": 6}, 6),
        (409, {"error": "refused"}, 3),
        (500, {"error": "broken", "exit_code": 77}, 1),
        (503, {"error": "the store is corrupt", "exit_code": 11}, 11),
        (403, {}, 4),
    ],
)
def test_errors_keep_their_exit_code(
    tmp_path: Path, status: int, body: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is one sentence with its mend on stderr, an object in JSON, and its own exit code."""
    path = tmp_path / "s"
    with canned(path, {"GET /v1/processes/42": Answer(body=body, status=status)}):
        assert run(["inspect", "42", "--json", "--socket", str(path)]) == code
    out, err = capsys.readouterr()
    assert err.startswith(f"reclaimctl: {body.get('error', 'the daemon answered')}")
    assert body.get("mend", "") in err
    assert json.loads(out)["exit_code"] == code


UNKNOWN = Answer(
    status=503, body={"error": "who you are can't be told at the moment", "mend": "again", "exit_code": 3}
)


class InTurn(dict[str, Answer]):
    """Answers each call with the next of these, the last again and again."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.left = list(answers)

    def __missing__(self, _call: str) -> Answer:
        """Return the next one."""
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.mark.parametrize("words", [["inspect", "42"], ["kill", "--pid", "42", "--yes"]])
def test_who_can_t_be_told_asks_again(tmp_path: Path, words: list[str]) -> None:
    """503 says that nothing was done: a short while of it is not seen, by an order neither."""
    good = Answer(lines=LINES) if words[0] == "kill" else Answer({"error": "x", "exit_code": 0})
    with canned(tmp_path / "s", InTurn(UNKNOWN, UNKNOWN, good)) as server:
        assert run([*words, "--socket", str(tmp_path / "s")]) == 0
    assert len(server.asked) == 3


def test_who_can_t_be_told_for_long_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3 with the daemon's words, after the time in which it must answer."""
    monkeypatch.setattr("reclaimerd.cli.client.SILENT_SECONDS", 0.3)
    with canned(tmp_path / "s", InTurn(UNKNOWN)) as server:
        assert run(["inspect", "42", "--socket", str(tmp_path / "s")]) == 3
    assert "who you are can't be told at the moment; again" in capsys.readouterr().err
    assert 1 < len(server.asked) < 20


@pytest.mark.root
@pytest.mark.process
@needs_root
def test_socket_that_is_not_ours_is_exit_4(open_directory: Path) -> None:
    """EACCES on connect is exit 4 for who is not in the group, and no foreground engine starts."""
    path = open_directory / "s"
    with canned(path, {}) as server:
        path.chmod(0o660)
        done = reclaimctl("ps", "--socket", str(path), as_nobody=True)
    assert done.returncode == 4, done.stderr
    assert "join the group reclaimerd" in done.stderr
    assert server.asked == []


@pytest.mark.root
@pytest.mark.process
@needs_root
@pytest.mark.parametrize("stale", [False, True])
def test_without_daemon_and_root_is_exit_7(open_directory: Path, *, stale: bool) -> None:
    """Absent and refused sockets are exit 7 with the mend for who is not root."""
    path = open_directory / "s"
    if stale:
        with socket.socket(socket.AF_UNIX) as left_over:
            left_over.bind(str(path))
        path.chmod(0o666)
    done = reclaimctl("kill", "--pid", "42", "--socket", str(path), as_nobody=True)
    assert done.returncode == 7, done.stderr
    assert "systemctl start reclaimerd" in done.stderr
    assert "may still be carried out" not in done.stderr


@pytest.mark.root
@pytest.mark.process
@needs_root
def test_silent_daemon_is_no_daemon(open_directory: Path) -> None:
    """A socket that accepts and never answers is given up after 2 s, and the words say what was sent."""
    path = open_directory / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        path.chmod(0o666)
        before = time.monotonic()
        done = reclaimctl("kill", "--pid", "42", "--socket", str(path), as_nobody=True)
        took = time.monotonic() - before
    assert done.returncode == 7
    assert 2 <= took < 3.5
    assert "it may still be carried out" in done.stderr


def test_full_backlog_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon that accepts nobody any more (full backlog) is given up after 2 s as well."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    fillers: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        with suppress(BlockingIOError):
            while len(fillers) < 64:
                filler = socket.socket(socket.AF_UNIX)
                fillers.append(filler)
                filler.setblocking(False)
                filler.connect(str(tmp_path / "s"))
        before = time.monotonic()
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 7
        assert time.monotonic() - before < 3
    for filler in fillers:
        filler.close()
    assert "accepted no connection within 2 s" in capsys.readouterr().err


def test_root_goes_on_in_the_foreground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a daemon root gets the foreground engine, with every place named and the steps printed."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    calls = _stub_foreground(monkeypatch)
    socket_path = tmp_path / "none"
    arguments = ["--state-dir", "/s", "kill", "--pid", "42@7", "--takeover", "--socket", str(socket_path)]
    assert run([*arguments, "--log-dir", "/l", "--config", "/c"]) == 0
    options, method, path, _query, body = calls[0]
    assert options == _ForegroundOptions(Path("/c"), Path("/s"), Path("/l"), socket_path, None, takeover=True)
    assert (method, path, body["targets"]) == ("POST", "/v1/reclaims", [{"pid": 42, "start_ticks": 7}])
    assert "takeover" not in body
    out, err = capsys.readouterr()
    assert "SIGTERM sent" in out
    assert err == ""


def test_root_is_told_of_a_silent_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root goes on without a silent daemon within 3 s, and is told."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    calls = _stub_foreground(monkeypatch)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        before = time.monotonic()
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 0
        assert time.monotonic() - before < 3
    assert len(calls) == 1
    assert "going on in the foreground" in capsys.readouterr().err


def test_simulation_needs_no_root_and_never_asks_the_real_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --simulate every place lies below that directory, so that no real process is meant."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    calls = _stub_foreground(monkeypatch)
    assert run(["--simulate", str(tmp_path), "ps"]) == 0
    options = calls[0][0]
    assert options.simulate == tmp_path
    assert {options.state_dir.parent, options.log_dir.parent, options.socket.parent} == {tmp_path}


def test_interrupt_in_the_foreground(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the foreground is 130 too, and says that no further step is taken."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    _stub_foreground(monkeypatch, raises=KeyboardInterrupt)
    assert run(["kill", "--pid", "42", "--socket", str(tmp_path / "none")]) == 130
    assert "no further step is taken" in capsys.readouterr().err


def test_bug_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug ends as exit 1 in one line that says where, without a traceback."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    _stub_foreground(monkeypatch, raises=ZeroDivisionError)
    assert run(["ps", "--socket", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("reclaimctl: internal error: ZeroDivisionError")
    assert len(said.splitlines()) == 1
