"""The cluster's list in each look: read beside the passes, never waited for; a failure lets it age."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, cast

from reclaimerd.host.wire import to_wire
from reclaimerd.model.allocation import ClusterAnswer, ClusterView, PodState
from reclaimerd.model.policy import ClusterSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent
from reclaimerd.observe.cluster_eyes import FIRST_SECONDS, ClusterEyes
from reclaimerd.observe.probe import Probe
from tests.builders import MONO, a_busy_snapshot, a_process

POD = PodState("u1", "team", "train-0", "Running", labels=(("app", "a"),))
ANSWER = Answered(({"cluster": to_wire(ClusterAnswer(1000.0, (POD,)))},), 0.0, 0.0)
REFUSED = Failed("failed", "the cluster refused", "apply the role")


class Cluster:
    """A cluster's worker with a script, and whoever holds GPUs meanwhile."""

    def __init__(self) -> None:
        self.now = MONO
        self.holders = [100]
        self.answer: Answer | None = ANSWER
        self.released = asyncio.Event()
        self.asked: list[dict[str, object]] = []
        self.within: list[float] = []
        self.settings = ClusterSettings("/etc/kubeconfig", "gpu-1")
        self.eyes = ClusterEyes(self, cast("Probe", self), lambda: self.settings, lambda: self.now)

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with these holders."""
        return a_busy_snapshot(*map(a_process, self.holders), at=self.now)

    async def ask(self, op: str, args: dict[str, object], *, answer_within: float) -> Answer:
        """Return the scripted answer, or wait for one."""
        assert op == "pods"
        self.asked.append(args)
        self.within.append(answer_within)
        sent_at = self.now
        if self.answer is None:
            await self.released.wait()
        assert self.answer is not None
        if isinstance(self.answer, Answered):
            return replace(self.answer, sent_at=sent_at, answered_at=self.now)
        return self.answer

    async def look(self, seconds: float = 0.0) -> Reading[ClusterView]:
        """Let time pass, make a look, let what it began go on, and return what the next look has."""
        self.now += seconds
        await self.eyes.sample(Look())
        await settle()
        return (await self.eyes.sample(Look())).cluster


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def seen(at: float) -> Known[ClusterView]:
    """Return the view that was read then."""
    return Known(ClusterView(at, 1000.0, (POD,)))


def run(story: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    """Run a story on a host of a cluster."""

    async def told() -> None:
        await story(Cluster())

    asyncio.run(told())


def test_a_list_is_read_at_its_interval_and_early_for_a_new_holder() -> None:
    """Once at first, again after 30 s, after 10 s when somebody new holds a GPU, and not more often."""

    async def story(host: Cluster) -> None:
        assert await host.look() == seen(MONO)
        assert await host.look(29.0) == seen(MONO)
        assert await host.look(1.0) == seen(MONO + 30)
        assert len(host.asked) == 2
        host.holders.append(101)
        await host.look(9.9)
        assert len(host.asked) == 2
        assert await host.look(0.1) == seen(MONO + 40)
        await host.look(10.0)
        assert len(host.asked) == 3
        assert host.asked[0] == {"credentials": "/etc/kubeconfig", "node": "gpu-1", "seconds": 5.0}
        assert host.within[0] > host.settings.seconds

    run(story)


def test_nobody_is_asked_without_credentials() -> None:
    """As shipped; and a view that was read before is forgotten when they are taken out."""

    async def story(host: Cluster) -> None:
        host.settings = ClusterSettings()
        assert isinstance(await host.look(), Absent)
        assert host.asked == []
        host.settings = ClusterSettings("in-cluster")
        assert isinstance(await host.look(), Known)
        host.settings = ClusterSettings()
        assert isinstance(await host.look(), Absent)
        host.answer = REFUSED
        host.settings = ClusterSettings("in-cluster")
        assert isinstance(await host.look(), Unreadable)

    run(story)


def test_a_cluster_that_hangs_holds_up_no_look_but_the_first() -> None:
    """The first look waits a moment for the list; later ones have what there is, and ask nothing more."""

    async def story(host: Cluster) -> None:
        host.answer = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert isinstance((await host.eyes.sample(Look())).cluster, Unreadable)
        assert FIRST_SECONDS - 0.1 < loop.time() - began < FIRST_SECONDS + 4
        host.answer = ANSWER
        host.released.set()
        assert await host.look() == seen(MONO)
        host.answer = None
        host.released.clear()
        began = loop.time()
        assert await host.look(60) == seen(MONO)
        assert await host.look(300) == seen(MONO)
        assert loop.time() - began < 0.9
        assert len(host.asked) == 2

    run(story)


def test_a_failure_lets_the_view_age_and_then_stands_in_its_place() -> None:
    """Not at once: one refused question takes nothing away. Older than two intervals it says nothing."""

    async def story(host: Cluster) -> None:
        assert await host.look() == seen(MONO)
        host.answer = REFUSED
        assert await host.look(30) == seen(MONO)
        assert await host.look(30) == seen(MONO)
        assert await host.look(0.1) == Unreadable("the cluster refused; apply the role")
        host.answer = ANSWER
        assert await host.look(30) == seen(host.now)

    run(story)


def test_a_failure_is_a_reading_with_its_mend() -> None:
    """What the worker can't do, its silence, and an answer that can't be decoded."""

    async def story(host: Cluster) -> None:
        host.answer = Failed("failed", "no lightkube", "install it")
        assert await host.look() == Unreadable("no lightkube; install it")
        host.answer = Failed("failed", "no such thing")
        assert await host.look(30) == Unreadable("no such thing")
        host.answer = Silent("no answer from the cluster worker", host.now)
        assert await host.look(30) == Unreadable("no answer from the cluster worker")
        host.answer = Answered(({"cluster": {"pods": 3}},), 0.0, 0.0)
        assert isinstance(await host.look(30), Unreadable)
        host.answer = Answered((), 0.0, 0.0)
        assert await host.look(30) == Unreadable("the worker left it out")

    run(story)


def test_other_credentials_ask_anew_and_an_old_answer_is_nobodys() -> None:
    """Another node's pods must not stand for this one's; another interval alone changes nothing."""

    async def story(host: Cluster) -> None:
        assert await host.look() == seen(MONO)
        host.settings = replace(host.settings, refresh_seconds=20.0)
        assert await host.look() == seen(MONO)
        assert len(host.asked) == 1
        host.answer = None
        host.now += 20
        await host.eyes.sample(Look())
        await settle()
        assert len(host.asked) == 2
        host.settings = replace(host.settings, node="gpu-2")
        host.answer = ANSWER
        changed = asyncio.ensure_future(host.eyes.sample(Look()))
        await settle()
        host.released.set()
        assert isinstance((await changed).cluster, Unreadable)
        host.answer = REFUSED
        assert isinstance(await host.look(), Unreadable)
        assert [one["node"] for one in host.asked] == ["gpu-1", "gpu-1", "gpu-2"]

    run(story)
