"""Public incidents by their numbers: a workload chooses its own name, and no reader is misled by it."""

import json
from pathlib import Path

import pytest
import structlog

from reclaimerd.cli.main import run
from reclaimerd.record import logs
from tests.cli.canned import Answer, canned
from tests.cli.test_commands import ROW

NAMES = [
    "my,proc\nname",
    "4242, GPU-0, 512 MiB\n4243, forged",
    "\x1b[2J\x1b[1;1HNo processes",
    "\u202eexe\x07\x9b31m\udcff",
    "ERR!",
]


def the_row(name: str) -> dict[str, object]:
    """Return the answer to `ps` with one process of this name."""
    row = {**ROW, "comm": name, "command": name, "workload": name}
    return {"driver": {"state": "responsive", "text": "responsive"}, "rows": [row], "skipped": []}


@pytest.mark.parametrize("name", NAMES)
def test_c83_a_name_stays_in_its_cell_and_the_pid_beside_it(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """C83: commas, newlines and escapes make no second row, no other pid, and reach no terminal."""
    with canned(tmp_path / "s", {"GET /v1/ps": Answer(body=the_row(name))}):
        assert run(["ps", "--socket", str(tmp_path / "s")]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.startswith("GPU")
    assert line.isprintable()
    assert line.split()[1] == ROW["ref"]


@pytest.mark.parametrize("name", NAMES)
def test_c83_json_gives_the_name_back_as_it_is(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """C83: a program reads the very name; what is printed is ASCII without a control character."""
    with canned(tmp_path / "s", {"GET /v1/ps": Answer(body=the_row(name))}):
        assert run(["ps", "--json", "--socket", str(tmp_path / "s")]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    (row,) = json.loads(out)["rows"]
    assert (row["comm"], row["ref"]) == (name, ROW["ref"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("journal", [True, False])
def test_c83_a_name_makes_no_second_line_in_the_log(tmp_path: Path, name: str, *, journal: bool) -> None:
    """C83: one event, one line, no control character, whatever the name."""
    try:
        with (tmp_path / "log").open("w") as stream:
            lines = logs.configure(stream, journal=journal, at=tmp_path / "none")
            logs.warning("holder_seen", pid=4242, comm=name)
            lines.close()
    finally:
        structlog.reset_defaults()
    (line,) = (tmp_path / "log").read_bytes().removesuffix(b"\n").split(b"\n")
    assert all(32 <= byte < 127 for byte in line)
    assert b"4242" in line
