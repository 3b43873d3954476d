"""What we ask of a container runtime, of a real containerd and of the tests' own: both say the same."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe.cri import CriQuestion, read_cri_names
from tests.rigs.containerd import containerd
from tests.rigs.cri import Served, runtime

pytestmark = [pytest.mark.process, pytest.mark.root, pytest.mark.slow]

UID = str(uuid.uuid4())
POD = Served(
    "ab" * 32,
    UID,
    labels={"app": "llm", "leaderworkerset.sigs.k8s.io/name": "big"},
    annotations={"reclaimerd.io/spare": "till friday"},
)
NAMES = WorkloadNames(
    namespace="team", pod="train-0", pod_uid=UID, container="main", hosts=2, spread_known=True,
    labels=(("app", "llm"), ("leaderworkerset.sigs.k8s.io/name", "big")), spare_mark="till friday",
)  # fmt: skip
Made = Callable[[Served], tuple[Path, str]]
"""Makes a pod; returns the runtime's socket and the container's id."""


@pytest.fixture(params=["containerd", "ours"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """Give what makes a pod on each runtime, without one before."""
    with ExitStack() as stack:
        if request.param == "containerd":
            real = stack.enter_context(containerd())
            yield lambda pod: (real.socket, real.make(pod))
            return
        served = stack.enter_context(runtime(tmp_path / "ours"))
        rows: list[Served] = []

        def make(pod: Served) -> tuple[Path, str]:
            rows.append(replace(pod, sandbox=pod.id[::-1]))
            served.serve(*rows)
            return served.socket, pod.id

        yield make


def test_a_pod_is_told_as_the_kubelet_made_it(made: Made) -> None:
    """Names, labels, mark and spread of two pods; another uid or another id: nothing."""
    socket, container = made(POD)
    other = Served("cd" * 32, str(uuid.uuid4()), pod="train-1")
    _, second = made(other)
    asked = [
        CriQuestion(container, UID),
        CriQuestion(second, other.uid),
        CriQuestion(second, UID),
        CriQuestion("0" * 64, UID),
        CriQuestion(container[:12], UID),
    ]
    found = read_cri_names([socket], asked, 10)
    assert found[asked[0]] == NAMES
    assert found[asked[1]] == WorkloadNames(
        namespace="team", pod="train-1", pod_uid=other.uid, container="main", spread_known=True
    )
    assert len(found) == 2
