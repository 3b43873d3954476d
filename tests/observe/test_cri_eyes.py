"""What a runtime says joined to each look: asked beside the passes, never waited for, filling gaps alone."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.allocation import ClusterView
from reclaimerd.model.policy import AttributionSettings, Policy
from reclaimerd.model.ports import Look
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent
from reclaimerd.observe.cri_eyes import AGAIN_SECONDS, MOST_ASKED, CriEyes
from reclaimerd.observe.probe import Probe
from tests.builders import MONO, WALL, a_busy_snapshot, a_process

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
CID = "ab" * 32
TOLD = WorkloadNames(
    namespace="told", pod="told-0", pod_uid=U, container="told", labels=(("app", "llm"),), hosts=2,
    spread_known=True, spare_mark="yes",
)  # fmt: skip
BARE = WorkloadNames(pod_uid=U)
NO_CLUSTER: Reading[ClusterView] = Absent("nobody is asked")
SILENT = Silent("no answer", MONO)


def in_pod(names: WorkloadNames | None = BARE, cid: str = CID, **parts: Any) -> Workload:
    """Return a container in a pod."""
    fields: dict[str, Any] = {"kind": WorkloadKind.POD, "name": "pod", "path": f"/kubepods/pod{U}"}
    return Workload(**(fields | parts), container_id=cid, names=names)


def part(names: WorkloadNames = TOLD, cid: str = CID, uid: str = U) -> dict[str, object]:
    """Return one part of the worker's answer."""
    return {"container": cid, "pod_uid": uid, "names": to_wire(names)}


class Host:
    """A `cri` worker with a script, and whoever holds GPUs meanwhile."""

    def __init__(self, socket: Path) -> None:
        socket.touch()
        self.now = MONO
        self.workloads = [in_pod()]
        self.cluster = NO_CLUSTER
        self.answer: Answer | None = Answered((part(),), 0.0, 0.0)
        self.released = asyncio.Event()
        self.asked: list[dict[str, object]] = []
        self.closed = 0
        self.socket = socket
        settings = AttributionSettings(runtime_sockets=("/nowhere/crio.sock", str(socket)))
        self.policy = Policy(attribution=settings)
        self.eyes = self.made()

    def made(self, patience_seconds: float = 0.0) -> CriEyes:
        """Return eyes on this host."""
        worker = cast("Probe", self)
        return CriEyes(self, worker, lambda: self.policy, lambda: self.now, patience_seconds=patience_seconds)

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with a process in each workload."""
        readings = [a_process(100 + n, workload=one) for n, one in enumerate(self.workloads)]
        return a_busy_snapshot(*readings, at=self.now, cluster=self.cluster)

    async def ask(self, op: str, args: dict[str, object], *, answer_within: float) -> Answer:
        """Return the scripted answer, or wait for one."""
        assert op == "names"
        assert isinstance(args["seconds"], float)
        assert args["seconds"] < answer_within
        self.asked.append(args)
        if self.answer is None:
            await self.released.wait()
        assert self.answer is not None
        return self.answer

    async def close(self) -> None:
        """Note that the worker was ended."""
        self.closed += 1

    async def look(self, seconds: float = 0.0, look: Look | None = None) -> WorkloadNames | None:
        """Let time pass, make a look, let what it began go on; return what the next look says of pid 100."""
        self.now += seconds
        await self.eyes.sample(look or Look())
        for _ in range(5):
            await asyncio.sleep(0)
        return (await self.eyes.sample(look or Look())).processes[100].workload.names


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Host], Coroutine[Any, Any, None]]], None]:
    """Give what runs a story on a host of a runtime."""

    def runs(story: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        async def told() -> None:
            await story(Host(tmp_path / "containerd.sock"))

        asyncio.run(told())

    return runs


Run = Callable[[Callable[[Host], Coroutine[Any, Any, None]]], None]


def test_what_the_record_lacks_is_filled_from_the_next_look_on(run: Run) -> None:
    """Asked once, of the sockets that stand; it is kept, and the worker's memory is given back."""

    async def story(host: Host) -> None:
        first = (await host.eyes.sample(Look())).processes[100].workload.names
        assert first == BARE
        assert await host.look() == TOLD
        assert await host.look(10 * AGAIN_SECONDS) == TOLD
        (asked,) = host.asked
        assert asked == {"sockets": [str(host.socket)], "asked": [[CID, U]], "seconds": 4.0}
        assert host.closed == 1

    run(story)


def test_what_the_record_says_stays(run: Run) -> None:
    """Names, labels, spread and mark that are there already; pod and namespace go together."""

    async def story(host: Host) -> None:
        own = WorkloadNames(
            namespace="team", pod="train-0", pod_uid=U, container="main", labels=(("k", "v"),), hosts=3,
            spare_mark="mine",
        )  # fmt: skip
        host.workloads = [in_pod(own)]
        found = await host.look()
        assert found is not None
        assert (found.namespace, found.pod, found.container) == ("team", "train-0", "main")
        assert (found.labels, found.hosts, found.spare_mark) == ((("k", "v"),), 3, "mine")
        assert found.spread_known
        host.workloads = [in_pod(WorkloadNames(namespace="half", pod_uid=U))]
        found = await host.look()
        assert found is not None
        assert (found.namespace, found.pod) == ("told", "told-0")

    run(story)


def test_labels_are_never_whole_and_a_mark_is_never_known_to_be_none(run: Run) -> None:
    """A runtime has them as they were when the pod was made: whoever sets one later is not overlooked."""

    async def story(host: Host) -> None:
        host.answer = Answered((part(WorkloadNames(pod_uid=U, spread_known=True)),), 0.0, 0.0)
        found = await host.look()
        assert found is not None
        assert found.spread_known
        assert not found.labels_whole
        assert not found.mark_known

    run(story)


@pytest.mark.parametrize("cluster", [Unreadable("away"), Known(ClusterView(MONO, WALL, ()))])
def test_where_the_cluster_is_asked_the_runtime_does_not_stand_in_for_it(
    run: Run, cluster: Reading[ClusterView]
) -> None:
    """Names and marks come, but how large a pod is stays the cluster's to say: it knows the pod's owner."""

    async def story(host: Host) -> None:
        host.cluster = cluster
        found = await host.look()
        assert found is not None
        assert (found.pod, found.spare_mark, found.hosts) == ("told-0", "yes", 2)
        assert not found.spread_known

    run(story)


def test_a_pod_that_the_cluster_has_told_of_is_left_as_it_is(run: Run) -> None:
    """Its view is newer: nobody is asked, and what was told before is not joined."""

    async def story(host: Host) -> None:
        assert await host.look() == TOLD
        fresh = WorkloadNames(namespace="team", pod="train-0", pod_uid=U, labels_whole=True, mark_known=True)
        host.workloads = [in_pod(fresh), in_pod(fresh, "cd" * 32)]
        assert await host.look() == fresh
        assert len(host.asked) == 1

    run(story)


@pytest.mark.parametrize(
    "workload",
    [
        in_pod(None, trusted=False),
        in_pod(BARE, trusted=False),
        in_pod(WorkloadNames()),
        in_pod(BARE, cid=""),
        in_pod(WorkloadNames(container="c"), kind=WorkloadKind.CONTAINER),
    ],
)
def test_nobody_is_asked_about_what_no_path_proves(run: Run, workload: Workload) -> None:
    """Untrusted, without a pod's uid, without a container, no pod at all."""

    async def story(host: Host) -> None:
        host.workloads = [workload]
        assert await host.look() == workload.names
        assert host.asked == []

    run(story)


def test_a_runtime_that_hangs_holds_up_no_look(run: Run) -> None:
    """Looks go on without it and none asks again meanwhile; its late answer is used."""

    async def story(host: Host) -> None:
        host.answer = None
        for _ in range(3):
            assert await asyncio.wait_for(host.look(1.0), 1.0) == BARE
        assert len(host.asked) == 1
        host.answer = Answered((part(),), 0.0, 0.0)
        host.released.set()
        assert await host.look() == TOLD

    run(story)


@pytest.mark.parametrize(
    "answer",
    [
        Failed("failed", "gone"),
        SILENT,
        Answered((), 0.0, 0.0),
        Answered(({"container": CID, "pod_uid": U, "names": {"pod": 7}}, "x"), 0.0, 0.0),
        Answered((part(cid="cd" * 32), part(uid="another")), 0.0, 0.0),
    ],
)
def test_without_an_answer_it_is_asked_again_after_five_minutes(run: Run, answer: Answer) -> None:
    """An error, silence, nothing, what can't be read, an answer about others: names stay as they are."""

    async def story(host: Host) -> None:
        host.answer = answer
        assert await host.look() == BARE
        assert await host.look(AGAIN_SECONDS - 1) == BARE
        assert len(host.asked) == 1
        assert host.closed == (answer is not SILENT)
        host.answer = Answered((part(),), 0.0, 0.0)
        assert await host.look(1.0) == TOLD
        assert len(host.asked) == 2

    run(story)


def test_one_question_is_bounded(run: Run) -> None:
    """The rest are asked for in the next; two processes of one container are one row."""

    async def story(host: Host) -> None:
        host.workloads = [in_pod(cid=f"{n:064x}") for n in range(MOST_ASKED + 3)] * 2
        await host.look()
        await host.look()
        rows = [one["asked"] for one in host.asked]
        assert [len(cast("list[object]", one)) for one in rows] == [MOST_ASKED, 3]

    run(story)


@pytest.mark.parametrize("look", [Look(reset=True), Look(without_driver=True)])
def test_before_a_reset_nobody_is_asked(run: Run, look: Look) -> None:
    """The look must stay fresh; what is remembered is joined."""

    async def story(host: Host) -> None:
        assert await host.look(look=look) == BARE
        assert host.asked == []
        await host.look()
        assert await host.look(look=look) == TOLD

    run(story)


def test_without_a_socket_no_worker_is_started(run: Run) -> None:
    """A host without a runtime, and one whose runtime comes later."""

    async def story(host: Host) -> None:
        host.socket.unlink()
        assert await host.look() == BARE
        assert host.asked == []
        host.socket.touch()
        assert await host.look() == TOLD

    run(story)


def test_one_command_waits_a_moment(run: Run) -> None:
    """With patience the first look has the answer, and one that hangs costs the patience alone."""

    async def story(host: Host) -> None:
        first = await host.made(5.0).sample(Look())
        assert first.processes[100].workload.names == TOLD
        host.answer = None
        eyes = host.made(0.05)
        hung = await asyncio.wait_for(eyes.sample(Look()), 1.0)
        assert hung.processes[100].workload.names == BARE
        host.answer = Failed("failed", "enough")
        host.released.set()

    run(story)
