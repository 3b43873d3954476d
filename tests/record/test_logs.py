"""record/logs: one line an event, no field can break out of it, and no reader can stop the loop."""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from reclaimerd.record import logs

NO_JOURNAL = Path("/nowhere/socket")


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    """Leave structlog as it was found."""
    yield
    structlog.reset_defaults()


def test_json_lines(tmp_path: Path) -> None:
    """An event is one JSON object with its level, name, fields and time."""
    with (tmp_path / "log").open("w") as stream:
        lines = logs.configure(stream, journal=False)
        logs.event("pass_slow", seconds=3.5, gpu="GPU-1")
        logs.error("store_failed", why="no space")
        lines.close()
    first, second = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (first["level"], first["event"], first["seconds"], first["gpu"]) == (
        "info",
        "pass_slow",
        3.5,
        "GPU-1",
    )
    assert first["at"].endswith("Z")
    assert (second["level"], second["why"]) == ("error", "no space")


def test_journal_lines_carry_their_priority(tmp_path: Path) -> None:
    """For the journal a line begins with its priority and has no time of its own."""
    with (tmp_path / "log").open("w") as stream:
        lines = logs.configure(stream, journal=True, at=NO_JOURNAL)
        logs.event("pass_done", holders=3)
        logs.warning("pass_slow", why="the disk is slow")
        logs.error("store_failed")
        lines.close()
    assert (tmp_path / "log").read_text().splitlines() == [
        "<6>pass_done holders=3",
        '<4>pass_slow why="the disk is slow"',
        "<3>store_failed",
    ]


def test_the_journal_gets_fields(tmp_path: Path) -> None:
    """By its own socket an entry has each field by itself, one line each, whatever a value holds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal, (tmp_path / "log").open("w") as stream:
        journal.bind(str(tmp_path / "s"))
        journal.settimeout(5)
        lines = logs.configure(stream, journal=True, at=tmp_path / "s")
        logs.warning("pass_slow", gpu="GPU-1", why="x\nPRIORITY=0", **{"run.id": "a" * 20_000})
        lines.close()
        rows = journal.recv(1 << 18).decode("ascii").splitlines()
    message, *fields = rows
    assert message.startswith('MESSAGE=pass_slow gpu=GPU-1 why="x\\nPRIORITY=0" run.id=aaa')
    assert fields[:5] == [
        "PRIORITY=4",
        "SYSLOG_IDENTIFIER=reclaimerd",
        "RECLAIMERD_EVENT=pass_slow",
        "RECLAIMERD_GPU=GPU-1",
        'RECLAIMERD_WHY="x\\nPRIORITY=0"',
    ]
    assert fields[5:] == [f"RECLAIMERD_RUN_ID={'a' * (16 * 1024)}"]
    assert (tmp_path / "log").read_text() == ""


def test_a_journal_that_comes_anew_is_found(tmp_path: Path) -> None:
    """Its socket made again under the same path: the next entry goes there, and none goes elsewhere."""
    with (tmp_path / "log").open("w") as stream:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
            first.bind(str(tmp_path / "s"))
            first.settimeout(5)
            lines = logs.configure(stream, journal=True, at=tmp_path / "s")
            logs.event("before")
            assert first.recv(1 << 16).startswith(b"MESSAGE=before\n")
        (tmp_path / "s").unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as second:
            second.bind(str(tmp_path / "s"))
            second.settimeout(5)
            for name in ("after", "last"):
                logs.event(name)
                assert second.recv(1 << 16).startswith(f"MESSAGE={name}\n".encode())
        lines.close()
    assert (tmp_path / "log").read_text() == ""


def test_a_journal_that_is_away_for_a_while_is_asked_again_with_each_line(tmp_path: Path) -> None:
    """After the first refusal the kernel says "not connected", which is no reason to give up."""
    asked = threading.Event()
    back: list[socket.socket] = []

    def reopened() -> socket.socket | None:
        asked.set()
        return back.pop() if back else None

    def end() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.connect(str(tmp_path / "s"))
        return made

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
        first.bind(str(tmp_path / "s"))
        native = end()
    lines = logs.LineQueue(native.fileno(), str, reopen=reopened)
    for _ in range(2):
        asked.clear()
        lines.put("lost")
        assert asked.wait(30)
    (tmp_path / "s").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as second:
        second.bind(str(tmp_path / "s"))
        second.settimeout(30)
        back.append(end())
        lines.put("found")
        assert second.recv(100) == b"found\n"
    lines.close()
    native.close()


@pytest.mark.parametrize("journal", [True, False])
def test_a_hostile_field_stays_in_its_line(tmp_path: Path, *, journal: bool) -> None:
    """Newlines, escapes and odd bytes of a process's name are escaped: no forged line, no terminal trick."""
    hostile = "x\n<2>forged pid=1 \x1b[2J\u202e\udcff\x85"
    with (tmp_path / "log").open("w") as stream:
        lines = logs.configure(stream, journal=journal, at=NO_JOURNAL)
        logs.event("seen", comm=hostile)
        lines.close()
    content = (tmp_path / "log").read_bytes()
    assert content.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in content.rstrip(b"\n"))


def test_the_journal_is_known_by_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the stream that JOURNAL_STREAM names goes to the journal."""
    with (tmp_path / "log").open("w") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert logs.journal_attached(stream)
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
        assert not logs.journal_attached(stream)
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not logs.journal_attached(stream)
    assert not logs.journal_attached(stream)


@pytest.mark.timeout(30)
def test_a_reader_that_hangs_costs_lines_and_no_time() -> None:
    """A full pipe: events return at once, what does not fit is dropped, and the loss is reported."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    lines = logs.LineQueue(writer, lambda count: f"dropped {count}", most_waiting=10)
    began = time.monotonic()
    for _ in range(200):
        lines.put("x" * 1000)
    assert time.monotonic() - began < 1.0
    content = b""
    kept = reported = 0
    # The rest is reported after the next line that fits; reading makes room for it.
    while kept + reported < 200:
        content += os.read(reader, 65536)
        whole = content[: content.rfind(b"\n") + 1].splitlines()
        kept = sum(line == b"x" * 1000 for line in whole)
        reported = sum(int(line.split()[1]) for line in whole if line.startswith(b"dropped"))
    lines.close(5.0)
    os.close(writer)
    os.close(reader)
    assert kept + reported == 200
    assert reported > 100


def test_a_closed_stream_does_not_stop_the_daemon() -> None:
    """When nobody reads any more (EPIPE) lines are lost, and nothing raises."""
    reader, writer = os.pipe()
    os.close(reader)
    lines = logs.LineQueue(writer, lambda count: f"dropped {count}")
    lines.put("one")
    lines.put("two")
    lines.close(5.0)
    assert not lines._thread.is_alive()
    os.close(writer)


def test_without_a_configuration_nothing_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """In the foreground stdout is the command's answer, and often JSON."""
    structlog.reset_defaults()
    logs.warning("evidence_not_kept", pid=7)
    said = capsys.readouterr()
    assert said.out == ""
    assert json.loads(said.err) == {"level": "warning", "event": "evidence_not_kept", "pid": 7}
