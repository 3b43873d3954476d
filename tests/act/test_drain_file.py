"""Claims about drain requests as files."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reclaimerd.act.drain_body import request_bytes, request_line
from reclaimerd.act.drain_file import DrainFile
from reclaimerd.errors import RecordError
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, NotAsked, TargetAnswer
from tests.act.drain_builders import a_request
from tests.builders import GPU_A


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """Writes like the recorder, without its thread; notes every path, or fails."""

    error: Exception | None = None
    written: list[Path] = field(default_factory=list)

    async def __call__(self, path: Path, content: bytes) -> None:
        """Write the file, or raise."""
        if self.error is not None:
            raise self.error
        self.written.append(path)
        await asyncio.to_thread(path.write_bytes, content)


def _ask(directory: Path, writer: PlainWriter, request: DrainRequest) -> TargetAnswer:
    port: DrainTargetPort = DrainFile(directory, writer)
    return asyncio.run(port.request(request))


def test_a_request_is_one_json_file(tmp_path: Path) -> None:
    """The file carries all that whoever is paged must know; times are UTC."""
    outcome = _ask(tmp_path, PlainWriter(), a_request())
    assert isinstance(outcome, Asked)
    assert json.loads((tmp_path / "inc-1.json").read_bytes()) == {
        "schema": 2,
        "id": "inc-1",
        "host": "node-7",
        "incident": "inc-1",
        "code": "stuck_exit",
        "reason": "pid 41: stuck in uvm_release",
        "gpus": [GPU_A],
        "pids": [41, 42],
        "evidence": ["pid 41: uvm_release for 300 s"],
        "since": "2023-11-14T22:03:20.000Z",
        "tried": ["sigkill after 30 s: sent"],
        "mend": "reboot the node",
        "pod": {"namespace": "team", "name": "train-0", "uid": "u-1"},
        "asked_at": "2023-11-14T22:13:20.250Z",
        "runbook": "docs/runbooks/drain_requested.md",
    }


def test_one_line_names_code_id_gpu_and_pids() -> None:
    """Printable ASCII within 200 characters, for schedulers that show no more."""
    line = request_line(a_request())
    assert line == f"reclaimerd: stuck_exit id=inc-1 gpu={GPU_A[:12]} pids=41,42"
    crowded = request_line(a_request(pids=tuple(range(100000, 100999)), gpus=(GPU_A,) * 99))
    assert len(crowded) <= 200
    assert crowded.isascii()


def test_taken_back_the_file_is_gone_and_no_other(tmp_path: Path) -> None:
    """Only the request's own file; a second time there is nothing to do; what is not ours stays."""
    target = DrainFile(tmp_path, PlainWriter())
    asyncio.run(target.request(a_request()))
    asyncio.run(target.request(a_request("inc-2")))
    assert isinstance(asyncio.run(target.status(a_request())), Asked)
    assert isinstance(asyncio.run(target.withdraw(a_request())), Asked)
    assert [path.name for path in tmp_path.iterdir()] == ["inc-2.json"]
    assert isinstance(asyncio.run(target.withdraw(a_request())), Asked)
    assert isinstance(asyncio.run(target.status(a_request())), NotAsked)
    (tmp_path / "inc-1.json").write_bytes(b"{}")
    assert isinstance(asyncio.run(target.withdraw(a_request())), NotAsked)
    assert (tmp_path / "inc-1.json").read_bytes() == b"{}"


def test_a_changed_directory_leaves_no_file_behind(tmp_path: Path) -> None:
    """Taken back, or asked again, the file goes from where an earlier policy had it; no other file does."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    answer = _ask(old, PlainWriter(), a_request())
    _ask(old, PlainWriter(), a_request("inc-2"))
    assert isinstance(answer, Asked)
    moved = DrainFile(new, PlainWriter(), lambda: answer.place)
    assert asyncio.run(moved.request(a_request())) == Asked(
        f"drain request written to {new}/inc-1.json", str(new)
    )
    assert [path.name for path in old.iterdir()] == ["inc-2.json"]
    _ask(old, PlainWriter(), a_request())
    assert isinstance(asyncio.run(moved.withdraw(a_request())), Asked)
    assert [path.name for path in old.iterdir()] == ["inc-2.json"]
    assert list(new.iterdir()) == []


def test_a_file_of_an_earlier_directory_that_can_not_go_is_not_called_gone(tmp_path: Path) -> None:
    """The text says which file; nothing is followed there."""
    answer = _ask(tmp_path, PlainWriter(), a_request())
    assert isinstance(answer, Asked)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    back = asyncio.run(DrainFile(tmp_path / "new", PlainWriter(), lambda: str(link)).withdraw(a_request()))
    assert isinstance(back, NotAsked)
    assert f"{link}/inc-1.json, of an earlier policy" in back.text
    assert (tmp_path / "inc-1.json").exists()


def test_a_plan_is_the_file_byte_for_byte(tmp_path: Path) -> None:
    """What a dry run shows is what would be written, and nothing is."""
    plan = DrainFile(tmp_path, PlainWriter()).plan(a_request())
    assert plan == f"{tmp_path}/inc-1.json:\n{request_bytes(a_request()).decode()}"
    assert list(tmp_path.iterdir()) == []


def test_no_command_line_leaves_the_host() -> None:
    """Nothing of the target's command stands in the request."""
    assert b"train.py" not in request_bytes(a_request())


def test_a_second_request_of_one_incident_changes_nothing(tmp_path: Path) -> None:
    """The same incident is ACCEPTED again, and the file is not rewritten."""
    writer = PlainWriter()
    _ask(tmp_path, writer, a_request())
    before = (tmp_path / "inc-1.json").read_bytes()
    outcome = _ask(tmp_path, writer, replace(a_request(), asked_at=1_800_000_000.0))
    assert isinstance(outcome, Asked)
    assert "stands" in outcome.text
    assert len(writer.written) == 1
    assert (tmp_path / "inc-1.json").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"incident": 5}', b'{"incident": "inc-2"}', b"\xff"])
def test_a_file_that_is_not_this_request_is_not_taken_for_it(tmp_path: Path, content: bytes) -> None:
    """A torn or foreign file is FAILED with what to do, and is left as it is."""
    path = tmp_path / "inc-1.json"
    path.write_bytes(content)
    outcome = _ask(tmp_path, PlainWriter(), a_request())
    assert isinstance(outcome, NotAsked)
    assert "move it away" in outcome.text
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RecordError("the writer is silent")]
)
def test_a_request_that_cannot_be_written_failed(tmp_path: Path, error: Exception) -> None:
    """An error of the writer is FAILED with its words: nobody was asked."""
    outcome = _ask(tmp_path, PlainWriter(error), a_request())
    assert isinstance(outcome, NotAsked)
    assert str(error) in outcome.text


@pytest.mark.parametrize("incident", ["", ".", "../inc", "a/b", "x\n", "-x", "a" * 200])
def test_an_incident_that_can_name_no_file_is_refused(tmp_path: Path, incident: str) -> None:
    """Nothing is written outside the directory, or under a hidden or endless name."""
    writer = PlainWriter()
    assert isinstance(_ask(tmp_path, writer, a_request(incident)), NotAsked)
    assert writer.written == []


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """A link in the file's place, or in the directory's, is FAILED, and its target is left alone."""
    directory = tmp_path / "drain"
    directory.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(request_bytes(a_request()))
    (directory / "inc-1.json").symlink_to(elsewhere)
    writer = PlainWriter()
    assert isinstance(_ask(directory, writer, a_request()), NotAsked)
    (tmp_path / "link").symlink_to(directory)
    assert isinstance(_ask(tmp_path / "link", writer, a_request("inc-2")), NotAsked)
    assert writer.written == []
