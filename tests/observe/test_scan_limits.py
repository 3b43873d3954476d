"""What the full scan could not look at is named, and a flood costs a bounded amount."""

import json
import os
from pathlib import Path

import pytest

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.process import ScanResult
from reclaimerd.observe import open_nodes
from reclaimerd.observe.holders import scan
from reclaimerd.observe.processes import ProcessReader
from tests.rigs.proc_children import device, script

pytestmark = pytest.mark.process

IDLE = "\nimport signal\nready()\nsignal.pause()\n"
FULL = DeviceNumber(1, 7)


def test_progress_hears_each_pid_and_those_left_out_are_named() -> None:
    """A pid that did not answer before is not looked at, and the result says so."""
    body, heard = IDLE, list[int]()
    with device() as (slave, _path, number), script(body, keep=(slave,)) as one, script(body) as two:
        reader = ProcessReader()
        reader.watch_devices([number])
        result = scan(reader, root=os.getpid(), deep=False, progress=heard.append, without=frozenset({one}))
        assert two in heard
        assert one not in heard
        assert one not in {row.pid for row in result.rows}
        assert any(line.startswith(f"pid {one}: left out") for line in result.skipped)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_process_that_may_not_be_read_is_named() -> None:
    """Without the right to look, the process is named as not looked at; it is never "holds nothing"."""
    with device() as (slave, _path, number), script(IDLE, keep=(slave,)) as pid:
        out, into = os.pipe()
        asker = os.fork()
        if asker == 0:
            _ask_as_nobody(number, pid, into)
        os.close(into)
        with os.fdopen(out, "rb") as said:
            answer = json.load(said)
        os.waitpid(asker, 0)
        assert pid not in answer["rows"]
        assert f"pid {pid}: descriptors: permission denied" in answer["skipped"]
        assert "permission denied" in answer["nodes"]


def _ask_as_nobody(number: DeviceNumber, pid: int, into: int) -> None:
    """Scan and look as an ordinary user in a child of ours; never returns."""
    answer: dict[str, object] = {}
    try:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        reader = ProcessReader()
        reader.watch_devices([number])
        result = scan(reader, root=os.getppid(), deep=False)
        answer = {
            "rows": [row.pid for row in result.rows],
            "skipped": result.skipped,
            "nodes": repr(reader.look(pid, whole=False).nodes),
        }
    finally:
        os.write(into, json.dumps(answer).encode())
        os._exit(0)


def test_a_flood_of_descriptors_is_bounded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound the process is named as not looked at whole."""
    monkeypatch.setattr(open_nodes, "_MOST_DESCRIPTORS", 8)
    with script("\nkept = [os.open('/dev/null', os.O_RDONLY) for _ in range(20)]\n" + IDLE) as pid:
        result = _scanned(FULL)
        assert any(line.startswith(f"pid {pid}: descriptors: 8 of 2") for line in result.skipped)


def test_the_list_of_what_was_skipped_is_bounded() -> None:
    """Many pids left out give a bounded list that tells how many more there are."""
    reader = ProcessReader()
    everybody = frozenset(range(1, 4_194_304))
    result = scan(reader, root=None, deep=False, without=everybody)
    assert result.looked_at == 0
    assert len(result.skipped) <= 65
    number_of_processes = sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
    if number_of_processes > 70:
        assert result.skipped[-1].endswith(" more")


def _scanned(watched: DeviceNumber) -> ScanResult:
    """Scan our own descendants once with a fresh reader."""
    reader = ProcessReader()
    reader.watch_devices([watched])
    return scan(reader, root=os.getpid(), deep=False)
