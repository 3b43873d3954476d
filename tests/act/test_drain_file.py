"""Claims about drain requests as files."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reclaimerd.act.drain_hook import DrainFile, drain_request, request_bytes
from reclaimerd.errors import RecordError
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Outcome, OutcomeKind, Stage
from reclaimerd.model.ports import DrainPort
from reclaimerd.model.step import DrainRequest
from tests.builders import GPU_A, a_ref, a_step


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


def _request(incident: str = "inc-1") -> DrainRequest:
    step = replace(a_step(stage=Stage.DRAIN), incident=IncidentId(incident), targets=(a_ref(41), a_ref(42)))
    return drain_request(step, host="node-7", asked_at=1_700_000_000.25, evidence=("uvm_release: 300 s",))


def _ask(directory: Path, writer: PlainWriter, request: DrainRequest) -> Outcome:
    port: DrainPort = DrainFile(directory, writer)
    return asyncio.run(port.request(request))


def test_a_request_is_one_json_file(tmp_path: Path) -> None:
    """The file carries schema, host, incident, reason, GPUs, pids, evidence, UTC time and runbook."""
    outcome = _ask(tmp_path, PlainWriter(), _request())
    assert outcome.kind is OutcomeKind.ACCEPTED
    assert json.loads((tmp_path / "inc-1.json").read_bytes()) == {
        "schema": 1,
        "host": "node-7",
        "incident": "inc-1",
        "reason": "over-cap: holds 8.0 GiB, more than 4.0 GiB",
        "gpus": [GPU_A],
        "pids": [41, 42],
        "evidence": ["uvm_release: 300 s"],
        "asked_at": "2023-11-14T22:13:20.250Z",
        "runbook": "docs/runbooks/handed_over.md",
    }


def test_no_command_line_leaves_the_host() -> None:
    """Nothing of the target's command stands in the request."""
    assert b"train.py" not in request_bytes(_request())


def test_a_second_request_of_one_incident_changes_nothing(tmp_path: Path) -> None:
    """The same incident is ACCEPTED again, and the file is not rewritten."""
    writer = PlainWriter()
    _ask(tmp_path, writer, _request())
    before = (tmp_path / "inc-1.json").read_bytes()
    outcome = _ask(tmp_path, writer, replace(_request(), asked_at=1_800_000_000.0))
    assert outcome.kind is OutcomeKind.ACCEPTED
    assert "stands" in outcome.detail
    assert len(writer.written) == 1
    assert (tmp_path / "inc-1.json").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"incident": 5}', b'{"incident": "inc-2"}', b"\xff"])
def test_a_file_that_is_not_this_request_is_not_taken_for_it(tmp_path: Path, content: bytes) -> None:
    """A torn or foreign file is FAILED with what to do, and is left as it is."""
    path = tmp_path / "inc-1.json"
    path.write_bytes(content)
    outcome = _ask(tmp_path, PlainWriter(), _request())
    assert outcome.kind is OutcomeKind.FAILED
    assert "move it away" in outcome.detail
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RecordError("the writer is silent")]
)
def test_a_request_that_cannot_be_written_failed(tmp_path: Path, error: Exception) -> None:
    """An error of the writer is FAILED with its words: nobody was asked."""
    outcome = _ask(tmp_path, PlainWriter(error), _request())
    assert outcome.kind is OutcomeKind.FAILED
    assert str(error) in outcome.detail


@pytest.mark.parametrize("incident", ["", ".", "../inc", "a/b", "x\n", "-x", "a" * 200])
def test_an_incident_that_can_name_no_file_is_refused(tmp_path: Path, incident: str) -> None:
    """Nothing is written outside the directory, or under a hidden or endless name."""
    writer = PlainWriter()
    assert _ask(tmp_path, writer, _request(incident)).kind is OutcomeKind.FAILED
    assert writer.written == []


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    """A link in the file's place, or in the directory's, is FAILED, and its target is left alone."""
    directory = tmp_path / "drain"
    directory.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(request_bytes(_request()))
    (directory / "inc-1.json").symlink_to(elsewhere)
    writer = PlainWriter()
    assert _ask(directory, writer, _request()).kind is OutcomeKind.FAILED
    (tmp_path / "link").symlink_to(directory)
    assert _ask(tmp_path / "link", writer, _request("inc-2")).kind is OutcomeKind.FAILED
    assert writer.written == []
