"""The kubelet's worker, started as the daemon starts it, against a real gRPC server."""

import asyncio
from pathlib import Path

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_kubelet import KubeletDesk
from reclaimerd.host.wire import Decoder
from reclaimerd.model.allocation import AllocatedDevice, KubeletAnswer
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent
from reclaimerd.observe.probe import Probe
from tests.rigs.kubelet import Container, Pod, gpu, kubelet

pytestmark = [pytest.mark.process, pytest.mark.root]


async def ask(probe: Probe, socket: Path, seconds: float = 20.0) -> Answer:
    """Return the worker's answer to one `list`."""
    return await probe.ask("list", {"socket": str(socket), "runtimes": [], "seconds": seconds})


def test_the_worker_answers_with_the_list_and_with_errors(tmp_path: Path) -> None:
    """The list as the parent decodes it; a kubelet that is gone is an error of this question alone."""

    async def story() -> None:
        probe = Probe("kubelet", command_for("kubelet"), WorkerSettings(answer_within_seconds=30))
        try:
            with kubelet(tmp_path / "k", Pod("p", [Container("c", [gpu("GPU-1")])])) as served:
                answer = await ask(probe, served.socket)
                assert isinstance(answer, Answered), answer
                told = Decoder(KubeletAnswer).from_object(answer.parts[0]["kubelet"])
                assert told.containers[0].devices == (AllocatedDevice("nvidia.com/gpu", "GPU-1"),)
                served.stop()
                gone = await ask(probe, served.socket)
                assert isinstance(gone, Failed)
                assert "No such file" in gone.message
                served.start()
                assert isinstance(await ask(probe, served.socket), Answered)
        finally:
            await probe.close()

    asyncio.run(story())


def test_a_kubelet_that_hangs_longer_than_its_call_is_silence(tmp_path: Path) -> None:
    """The parent's own limit holds whatever the call does, and the next question is not waited for."""

    async def story() -> None:
        probe = Probe("kubelet", command_for("kubelet"), WorkerSettings(answer_within_seconds=30))
        try:
            with kubelet(tmp_path / "k") as served:
                assert isinstance(await ask(probe, served.socket), Answered)
                served.freeze()
                probe.take_limits(WorkerSettings(answer_within_seconds=0.5))
                assert isinstance(await ask(probe, served.socket), Silent)
                loop = asyncio.get_running_loop()
                began = loop.time()
                assert isinstance(await ask(probe, served.socket), Silent)
                assert loop.time() - began < 0.4
        finally:
            await probe.close()

    asyncio.run(story())


@pytest.mark.parametrize(("op", "args"), [("look", {}), ("list", {}), ("list", {"socket": 1})])
def test_a_question_that_is_none_is_refused(op: str, args: dict[str, object]) -> None:
    """An error of ours is a ValueError, and nothing is asked."""
    with pytest.raises(ValueError, match=r"kubelet worker knows no|takes socket"):
        KubeletDesk().answer(op, args, lambda _part: None)
