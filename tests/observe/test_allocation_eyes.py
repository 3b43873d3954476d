"""The kubelet's list in each look: read beside the passes, never waited for, and each failure a reading."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from reclaimerd.host.wire import to_wire
from reclaimerd.model.allocation import (
    AllocatedDevice,
    AllocationView,
    ContainerAllocation,
    KubeletAnswer,
    SocketMark,
)
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.allocation_eyes import FIRST_SECONDS, AllocationEyes
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent
from reclaimerd.observe.probe import Probe
from tests.builders import MONO, a_busy_snapshot, a_process

CONTAINER = ContainerAllocation("team", "train-0", "main")
RUNTIME = "/run/containerd/containerd.sock"


class Kubelet:
    """A kubelet worker with a script, and whoever holds GPUs meanwhile."""

    def __init__(self, socket: Path) -> None:
        self.now = MONO
        self.socket = socket
        self.holders = [100]
        self.answer: Answer | None = None
        self.released = asyncio.Event()
        self.asked: list[dict[str, object]] = []
        self.settings = AttributionSettings(kubelet_socket=str(socket))
        self.eyes = AllocationEyes(
            self, cast("Probe", self), lambda: self.settings, lambda: 5.0, lambda: self.now
        )

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with these holders."""
        return a_busy_snapshot(*map(a_process, self.holders), at=self.now)

    async def ask(self, op: str, args: dict[str, object]) -> Answer:
        """Return the scripted answer, or wait for one."""
        assert op == "list"
        self.asked.append(args)
        if self.answer is None:
            await self.released.wait()
        assert self.answer is not None
        if isinstance(self.answer, Answered):
            return replace(self.answer, sent_at=self.now, answered_at=self.now)
        return self.answer

    async def look(self, seconds: float = 0.0) -> Reading[AllocationView]:
        """Let time pass, make a look, let what it began go on, and return what the next look has."""
        self.now += seconds
        await self.eyes.sample(Look())
        await settle()
        return (await self.eyes.sample(Look())).allocations

    async def view(self, seconds: float = 0.0) -> AllocationView:
        """Return a look's list, which must be known."""
        found = await self.look(seconds)
        assert isinstance(found, Known), found
        return found.value


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def a_mark(path: str, inode: int = 1, age: float = 3600.0) -> SocketMark:
    """Return a socket that was made an hour ago."""
    return SocketMark(path, FileIdentity(1, inode), inode, age)


def an_answer(
    kubelet: int = 1,
    runtime: int | None = 1,
    *,
    age: float = 3600.0,
    runtime_age: float = 3600.0,
    containers: tuple[ContainerAllocation, ...] = (CONTAINER,),
) -> Answered:
    """Return a list of one container, with the sockets' inodes."""
    marks = [a_mark("/kubelet.sock", kubelet, age)]
    if runtime is not None:
        marks.append(a_mark(RUNTIME, runtime, runtime_age))
    missing = () if runtime is not None else (RUNTIME,)
    return Answered(({"kubelet": to_wire(KubeletAnswer(containers, tuple(marks), missing))},), 0.0, 0.0)


def run(story: Callable[[Kubelet], Coroutine[Any, Any, None]], tmp_path: Path) -> None:
    """Run a story on a host with a kubelet's socket."""
    (tmp_path / "kubelet.sock").touch()

    async def told() -> None:
        await story(Kubelet(tmp_path / "kubelet.sock"))

    asyncio.run(told())


def test_a_list_is_read_at_its_interval_and_early_for_a_new_holder(tmp_path: Path) -> None:
    """Once at first, again after 30 s, after 5 s when somebody new holds a GPU, and not more often."""

    async def story(host: Kubelet) -> None:
        host.answer = an_answer()
        assert (await host.view()).containers == (CONTAINER,)
        assert (await host.view(29.0)).read_at == MONO
        assert len(host.asked) == 1
        assert (await host.view(1.0)).read_at == MONO + 30
        host.holders.append(101)
        await host.look(4.9)
        assert len(host.asked) == 2
        await host.look(0.1)
        await host.look(5.0)
        assert len(host.asked) == 3
        assert host.asked[0] == {
            "socket": str(host.socket),
            "runtimes": list(host.settings.runtime_sockets),
            "seconds": 4.0,
        }

    run(story, tmp_path)


def test_a_kubelet_that_hangs_holds_up_no_look_but_the_first(tmp_path: Path) -> None:
    """The first look waits a moment for the list; later ones have what there is, and ask nothing more."""

    async def story(host: Kubelet) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = (await host.eyes.sample(Look())).allocations
        assert isinstance(first, Unreadable)
        assert FIRST_SECONDS - 0.1 < loop.time() - began < FIRST_SECONDS + 4
        host.answer = an_answer()
        host.released.set()
        assert isinstance(await host.look(), Known)
        host.answer = None
        host.released.clear()
        host.now += 60
        began = loop.time()
        assert isinstance((await host.eyes.sample(Look())).allocations, Known)
        assert isinstance(await host.look(300), Known)
        assert loop.time() - began < 0.9
        assert len(host.asked) == 2
        host.answer = Silent("no answer from the kubelet worker", host.now)
        host.released.set()
        assert await host.look() == Unreadable("no answer from the kubelet worker")

    run(story, tmp_path)


def test_a_failure_is_a_reading_with_its_mend(tmp_path: Path) -> None:
    """What the worker can't do, and an answer that can't be decoded."""

    async def story(host: Kubelet) -> None:
        host.answer = Failed("failed", "no grpcio", "install it")
        assert await host.look() == Unreadable("no grpcio; install it")
        host.answer = Answered(({"kubelet": {"containers": 3}},), 0.0, 0.0)
        assert isinstance(await host.look(30), Unreadable)
        host.answer = Answered((), 0.0, 0.0)
        assert await host.look(30) == Unreadable("the worker left it out")

    run(story, tmp_path)


def test_without_a_socket_nobody_is_asked(tmp_path: Path) -> None:
    """No kubelet is Absent; one that was there and is gone is Unreadable; turned off is Absent."""

    async def story(host: Kubelet) -> None:
        host.answer = an_answer()
        host.socket.unlink()
        assert isinstance(await host.look(), Absent)
        assert host.asked == []
        host.socket.touch()
        assert isinstance(await host.look(30), Known)
        host.socket.unlink()
        gone = await host.look(30)
        assert isinstance(gone, Unreadable)
        assert "is gone" in gone.why
        host.settings = replace(host.settings, kubelet_socket="")
        assert isinstance(await host.look(), Absent)
        host.settings = replace(host.settings, kubelet_socket=f"{host.socket.parent}/{'x' * 300}")
        assert isinstance(await host.look(30), Unreadable)

    run(story, tmp_path)


def test_since_when_it_has_run_is_the_youngest_socket(tmp_path: Path) -> None:
    """At first sight by the sockets' age; a clock that was set back makes it as of now."""

    async def story(host: Kubelet) -> None:
        host.answer = an_answer(age=500.0, runtime_age=40.0)
        assert (await host.view()).steady_since == MONO - 40

    run(story, tmp_path)

    async def later(host: Kubelet) -> None:
        host.answer = an_answer(age=-3600.0)
        assert (await host.view()).steady_since == MONO

    run(later, tmp_path)


def test_a_socket_that_changed_is_a_start_as_of_the_reading(tmp_path: Path) -> None:
    """Of the kubelet or of a runtime, whatever age the wall clock gives it; then it ages with the clock."""

    async def story(host: Kubelet) -> None:
        host.answer = an_answer(1, 1)
        assert (await host.view()).steady_since == MONO - 3600
        host.answer = an_answer(2, 1)
        assert (await host.view(30)).steady_since == MONO + 30
        assert (await host.view(30)).steady_since == MONO + 30
        host.answer = an_answer(2, 5)
        assert (await host.view(30)).steady_since == MONO + 90

    run(story, tmp_path)


def test_a_device_that_is_taken_from_a_container_is_remembered(tmp_path: Path) -> None:
    """Case C92: what a container had in an earlier list, as long as we run; given back it is not lost."""

    async def story(host: Kubelet) -> None:
        device = AllocatedDevice("nvidia.com/gpu", "GPU-1")
        mine = replace(CONTAINER, devices=(device,))
        host.answer = an_answer(containers=(mine,))
        assert (await host.view()).formerly == ()
        host.answer = an_answer(containers=(CONTAINER,))
        assert (await host.view(30)).formerly == (mine,)
        host.answer = an_answer(containers=())
        assert (await host.view(30)).formerly == ()
        host.answer = an_answer(containers=(CONTAINER,))
        assert (await host.view(30)).formerly == (mine,)
        host.answer = an_answer(containers=(mine,))
        assert (await host.view(30)).formerly == ()

    run(story, tmp_path)


def test_a_runtime_that_is_gone_or_was_never_seen_makes_the_list_unfit(tmp_path: Path) -> None:
    """Never seen: name it in the policy. Gone: it does not run; back again it has just started."""

    async def story(host: Kubelet) -> None:
        host.answer = an_answer(runtime=None)
        assert "runtime_sockets" in (await host.view()).why
        host.answer = an_answer(runtime=1)
        assert (await host.view(30)).why == ""
        host.answer = an_answer(runtime=None)
        assert RUNTIME in (await host.view(30)).why
        host.answer = an_answer(runtime=7)
        back = await host.view(30)
        assert (back.why, back.steady_since) == ("", MONO + 90)

    run(story, tmp_path)
