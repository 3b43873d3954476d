"""The cluster's worker, started as the daemon starts it, against a server over real TLS."""

import asyncio
import time
from pathlib import Path

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_cluster import ClusterDesk
from reclaimerd.host.wire import Decoder
from reclaimerd.model.allocation import ClusterAnswer
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.answers import Answer, Answered, Failed
from reclaimerd.observe.probe import Probe
from tests.rigs.fake_cluster import fake_cluster

pytestmark = [pytest.mark.process, pytest.mark.root]

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"nodeName": "gpu-1"}}


async def ask(probe: Probe, credentials: Path) -> Answer:
    """Return the worker's answer to one `pods`."""
    question = {"credentials": str(credentials), "node": "gpu-1", "seconds": 20}
    return await probe.ask("pods", question, answer_within=30)


def test_the_worker_answers_with_the_list_and_with_errors(tmp_path: Path) -> None:
    """The list as the parent decodes it; credentials that are gone are an error of this question alone."""

    async def story() -> None:
        probe = Probe("cluster", command_for("cluster"), WorkerSettings(answer_within_seconds=30))
        try:
            with fake_cluster(tmp_path / "c") as served:
                served.pods = [POD]
                before = time.time()
                answer = await ask(probe, served.kubeconfig("good"))
                assert isinstance(answer, Answered), answer
                told = Decoder(ClusterAnswer).from_object(answer.parts[0]["cluster"])
                assert [pod.uid for pod in told.pods] == ["u"]
                assert before <= told.began_at <= time.time()
                refused = await ask(probe, served.kubeconfig("bad", token="x" * 32))
                assert isinstance(refused, Failed)
                assert "does not know us" in refused.message
                assert "token" in refused.mend
                assert isinstance(await ask(probe, tmp_path / "none"), Failed)
                assert isinstance(await ask(probe, served.kubeconfig("good")), Answered)
        finally:
            await probe.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("op", "args"), [("look", {}), ("pods", {}), ("pods", {"credentials": "", "node": 1, "seconds": 1})]
)
def test_a_question_that_is_none_is_refused(op: str, args: dict[str, object]) -> None:
    """An error of ours is a ValueError, and nobody is asked."""
    with pytest.raises(ValueError, match=r"cluster worker knows no|takes credentials"):
        ClusterDesk().answer(op, args, lambda _part: None)
