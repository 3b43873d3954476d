"""The worker `cri`, started as the daemon starts it, against a real gRPC server."""

import asyncio
from pathlib import Path

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_cri import CriDesk
from reclaimerd.host.wire import Decoder
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe.answers import Answered, Failed
from reclaimerd.observe.probe import Probe
from tests.rigs.cri import Served, runtime

UID = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
CID = "ab" * 32


@pytest.mark.process
@pytest.mark.root
def test_the_worker_answers_with_names_and_with_errors(tmp_path: Path) -> None:
    """The names as the parent decodes them; a runtime that is gone is an error of this question alone."""

    async def story() -> None:
        probe = Probe("cri", command_for("cri"), WorkerSettings(answer_within_seconds=30))
        try:
            with runtime(tmp_path / "c", Served(CID, UID, labels={"app": "llm"})) as served:
                asked = {"sockets": [str(served.socket)], "asked": [[CID, UID], ["0", UID]], "seconds": 20.0}
                answer = await probe.ask("names", asked)
                assert isinstance(answer, Answered), answer
                (part,) = answer.parts
                assert (part["container"], part["pod_uid"]) == (CID, UID)
                assert Decoder(WorkloadNames).from_object(part["names"]).labels == (("app", "llm"),)
                served.stop()
                gone = await probe.ask("names", asked)
                assert isinstance(gone, Failed)
                assert "No such file" in gone.message
        finally:
            await probe.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("op", "args", "words"),
    [
        ("look", {}, "knows no"),
        ("names", {"sockets": []}, "takes sockets"),
        ("names", {"sockets": [], "asked": [["one"]], "seconds": 1}, "container id and pod uid"),
    ],
)
def test_a_question_that_is_none_is_refused(op: str, args: dict[str, object], words: str) -> None:
    """An error of ours is a ValueError, and nothing is asked or answered."""
    said: list[object] = []
    with pytest.raises(ValueError, match=words):
        CriDesk().answer(op, args, said.append)
    assert said == []
