"""Slurm's view in each look: read beside the passes, never waited for, and each failure a reading."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, cast

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.allocation import SlurmView
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answer, Answered, Silent
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.slurm_host import SlurmDaemon, SlurmHost
from reclaimerd.observe.slurm_jobs import ABSENT_SECONDS, SlurmEyes, jobs_of
from reclaimerd.observe.slurm_reader import SlurmReader
from tests.builders import MONO, a_busy_snapshot, a_process

DAEMON = SlurmDaemon(7, 1, "gpu01", 1000.0)
HOST = SlurmHost("/scontrol", "/slurmd", "/squeue", (DAEMON,))
NONE = SlurmHost("", "")


def in_job(job: str | None, *, trusted: bool = True) -> Workload:
    """Return a job's workload."""
    return Workload(
        WorkloadKind.SLURM_JOB, "slurm job", f"/{job}", names=WorkloadNames(job_id=job), trusted=trusted
    )


class Node:
    """A procfs worker and a reader with a script, and the jobs whose processes are seen."""

    def __init__(self) -> None:
        self.now = MONO
        self.jobs: list[str] = []
        self.host: SlurmHost | None = HOST
        self.answer: Answer | None = None
        self.view: Reading[SlurmView] | None = None
        self.held: asyncio.Event | None = None
        self.searched: list[dict[str, object]] = []
        self.read_for: list[list[str]] = []
        self.folder = "/etc/slurm"
        self.settings = AttributionSettings(scontrol="/s/scontrol")
        reader = cast("SlurmReader", self)
        self.eyes = SlurmEyes(self, cast("Probe", self), reader, lambda: self.settings, "/r")

    def clock(self) -> float:
        """Return the time."""
        return self.now

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with a process of each job."""
        members = [a_process(100 + n, workload=in_job(job)) for n, job in enumerate(self.jobs)]
        return a_busy_snapshot(*members, a_process(99), at=self.now)

    async def ask(self, op: str, args: dict[str, object]) -> Answer:
        """Answer for the worker."""
        assert op == "slurm"
        self.searched.append(args)
        if self.answer is not None:
            return self.answer
        told = None if self.host is None else to_wire(self.host)
        return Answered(({"slurm": told},), self.now, self.now)

    async def read(self, host: SlurmHost, jobs: Collection[str]) -> Reading[SlurmView]:
        """Answer for the reader."""
        assert host == self.host
        self.read_for.append(sorted(jobs))
        at = self.now
        if self.held is not None:
            await self.held.wait()
        return Known(SlurmView(at, 0.0, ())) if self.view is None else self.view

    async def look(self, seconds: float = 0.0, look: Look | None = None) -> Reading[SlurmView]:
        """Let time pass, make a look, let what it began go on, and return what the next look has."""
        self.now += seconds
        await self.eyes.sample(look or Look())
        for _ in range(5):
            await asyncio.sleep(0)
        return (await self.eyes.sample(look or Look())).slurm

    async def read_at(self, seconds: float = 0.0) -> float:
        """Return when the view of a look, which must be known, was read."""
        found = await self.look(seconds)
        assert isinstance(found, Known), found
        return found.value.read_at


def run(story: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    """Run a story on a node."""

    async def told() -> None:
        await story(Node())

    asyncio.run(told())


def test_a_view_is_read_at_its_interval_and_early_for_a_new_job() -> None:
    """Once at first, again after 30 s, after 5 s when a job is new, and not more often."""

    async def story(node: Node) -> None:
        assert await node.read_at() == MONO
        assert await node.read_at(29.0) == MONO
        assert await node.read_at(1.0) == MONO + 30
        node.jobs = ["5"]
        assert await node.read_at(4.9) == MONO + 30
        assert await node.read_at(0.1) == MONO + 35
        assert await node.read_at(5.0) == MONO + 35
        assert node.read_for == [[], [], ["5"]]
        assert node.searched[0] == {
            "root": "/r", "scontrol": "/s/scontrol", "slurmd": "", "folder": "/etc/slurm",
        }  # fmt: skip

    run(story)


def test_a_host_without_slurm_costs_one_question_in_ten_minutes() -> None:
    """And nobody but the disk is asked; a job that is seen there is another matter."""

    async def story(node: Node) -> None:
        node.host = NONE
        assert await node.look() == Absent("no Slurm node here")
        for _ in range(10):
            await node.look(59.0)
        assert len(node.searched) == 1
        await node.look(ABSENT_SECONDS - 590.0)
        assert len(node.searched) == 2
        node.jobs = ["5"]
        found = await node.look(5.0)
        assert isinstance(found, Unreadable)
        assert "[attribution] scontrol" in found.why
        assert node.read_for == []

    run(story)


def test_a_slurmd_that_goes_away_makes_no_host_without_slurm() -> None:
    """Users of its jobs may go on by ssh: they are in doubt, not outside of a scheduler that is not there."""

    async def story(node: Node) -> None:
        assert await node.read_at() == MONO
        node.host = SlurmHost("/scontrol", "/slurmd")
        assert await node.read_at(30.0) == MONO
        await node.look(30.0)
        found = await node.look(30.0)
        assert isinstance(found, Unreadable)
        assert found.why.startswith("slurmd ran on this host and does not now")
        node.host = HOST
        assert await node.read_at(30.0) == MONO + 120

    run(story)


def test_without_one_slurmd_nobody_is_judged() -> None:
    """Several, or none while a job's process lives: each with its reason."""

    async def story(node: Node) -> None:
        node.jobs = ["5"]
        node.host = SlurmHost("/scontrol", "/slurmd", daemons=(DAEMON, SlurmDaemon(8, 1, "gpu02", 1.0)))
        assert "several slurmd" in getattr(await node.look(), "why", "")
        node.host = SlurmHost("/scontrol", "/slurmd")
        assert "no slurmd runs" in getattr(await node.look(30.0), "why", "")
        assert node.read_for == []

    run(story)


def test_a_controller_that_is_away_lets_the_view_age() -> None:
    """The old one stays for two intervals, then its reason is shown; the next answer counts again."""

    async def story(node: Node) -> None:
        assert await node.read_at() == MONO
        node.view = Unreadable("away")
        assert await node.read_at(30.0) == MONO
        assert await node.read_at(30.0) == MONO
        assert await node.look(30.0) == Unreadable("away")
        node.view = None
        assert await node.read_at(30.0) == MONO + 120

    run(story)


def test_a_pass_never_waits_for_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look waits a moment, no later one does, and only one question is open at a time."""
    monkeypatch.setattr("reclaimerd.observe.slurm_jobs.FIRST_SECONDS", 0.01)

    async def story(node: Node) -> None:
        node.held = asyncio.Event()
        assert await node.look() == Unreadable("Slurm has not answered yet")
        await node.look(60.0)
        assert len(node.read_for) == 1
        node.held.set()
        assert await node.read_at() == MONO

    run(story)


@pytest.mark.parametrize("look", [Look(reset=True), Look(without_driver=True)])
def test_before_a_reset_nothing_is_begun(look: Look) -> None:
    """Slurmd's list of its GPUs may open the driver."""

    async def story(node: Node) -> None:
        assert await node.look(look=look) == Unreadable("Slurm has not answered yet")
        assert node.searched == []

    run(story)


def test_a_worker_that_does_not_answer_is_a_reading() -> None:
    """Its silence, and a disk that hangs below it."""

    async def story(node: Node) -> None:
        node.answer = Silent("busy", node.now)
        assert await node.look() == Unreadable("busy")
        node.answer, node.host = None, None
        assert "disk" in getattr(await node.look(30.0), "why", "")

    run(story)


def test_only_proven_jobs_are_asked_for() -> None:
    """Not one that a user may have named, not one whose id is not known, and nothing that is no number."""
    workloads = [in_job("5"), in_job("6", trusted=False), in_job(None), in_job("-x")]
    members = [a_process(100 + n, workload=one) for n, one in enumerate(workloads)]
    assert jobs_of(a_busy_snapshot(*members)) == {"5"}
