"""Whose job a cgroup is: by root's own step daemon, and by a controller that may be away."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from reclaimerd.host.child import Child, Finished, Overran
from reclaimerd.host.oci_text import JobOwner
from reclaimerd.observe.slurm_places import (
    AGAIN_SECONDS,
    ASK_SECONDS,
    PROGRAMS,
    JobOwners,
    read_job_id,
    read_program,
)

SLUID = "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00"
STATUS = (
    "Name:\tslurmstepd\nTgid:\t7\nNSpid:\t7\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    "Gid:\t0\t0\t0\t0\nThreads:\t1\nSigPnd:\t0\nShdPnd:\t0\n"
)
ANSWER = (
    "JobId={job} JobName=x\n   UserId=alice(1000) GroupId=g(1)\n   Nice=0 Account=lab QOS=(null)\n"
    "   Partition=gpu AllocNode:Sid=a:1\n   NumNodes=2 NumCPUs=4\n"
)


class Tree:
    """A cgroup tree with one job, and a /proc with its daemons."""

    def __init__(self, folder: Path) -> None:
        self.base, self.proc = folder / "cgroup", folder / "proc"
        self.job = self.base / SLUID.strip("/")

    def step(self, name: str, pid: int, title: str, uid: int = 0) -> Path:
        """Add one step with one process beside its tasks."""
        daemons = self.job / name / "slurm"
        daemons.mkdir(parents=True)
        (daemons / "cgroup.procs").write_text(f"{pid}\n")
        process = self.proc / str(pid)
        process.mkdir(parents=True)
        (process / "status").write_text(STATUS.format(uid=uid))
        (process / "cmdline").write_bytes(title.encode() + b"\0")
        return daemons

    def read(self) -> str | None:
        """Return what is read of the job."""
        return read_job_id(SLUID, self.base, self.proc)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give a tree without a step."""
    return Tree(tmp_path)


@pytest.mark.root
def test_the_job_id_is_in_the_step_daemons_title(tree: Tree) -> None:
    """Every step's daemon says the same job; before there is a step, nothing is known."""
    assert tree.read() is None
    tree.step("step_extern", 7, "slurmstepd: [3385.extern]")
    tree.step("step_0", 8, "slurmstepd: [3385.0]")
    assert tree.read() == "3385"


@pytest.mark.root
def test_only_root_can_name_a_job(tree: Tree) -> None:
    """A user's process with the daemon's title, or one in a user's directory, names nothing."""
    tree.step("step_0", 7, "slurmstepd: [666.0]", uid=1000)
    daemons = tree.step("step_1", 8, "slurmstepd: [667.0]")
    os.chown(daemons, 1000, 1000)
    tree.step("step_2", 9, "/usr/sbin/slurmstepd")
    assert tree.read() is None


@pytest.mark.root
def test_two_answers_are_none(tree: Tree) -> None:
    """Steps that say different jobs leave the id unknown."""
    tree.step("step_0", 7, "slurmstepd: [1.0]")
    tree.step("step_1", 8, "slurmstepd: [2.0]")
    assert tree.read() is None


@pytest.mark.root
def test_scontrol_is_used_only_if_it_is_roots_alone(tmp_path: Path) -> None:
    """The first of the known places that nobody else can write; none where there is none."""
    assert read_program(tmp_path) == ""
    first, second = (tmp_path / name for name in PROGRAMS[:2])
    for path in (first, second):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    assert read_program(tmp_path) == str(first)
    os.chown(first, 1234, 1234)
    assert read_program(tmp_path) == str(second)


class Controller:
    """Answers scontrol's questions from a script; `gate` holds an answer back."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: list[str] = []
        self.found = 0
        self.program = "/usr/bin/scontrol"
        self.away = False
        self.left: Child | None = None
        self.code = 0
        self.gate: asyncio.Event | None = None

    async def find(self) -> str:
        """Return the program."""
        self.found += 1
        return self.program

    async def run(self, argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
        """Answer one question."""
        assert tuple(argv[:-1]) == ("/usr/bin/env", self.program, "show", "job")
        assert deadline_seconds == ASK_SECONDS
        self.asked.append(argv[-1])
        if self.gate is not None:
            await self.gate.wait()
        if self.left is not None:
            return Overran(1, gone=False, out="", err="", child=self.left)
        if self.away:
            return Overran(1, gone=True, out="", err="", child=Child(1, -1, code=0))
        return Finished(self.code, ANSWER.format(job=argv[-1]), "")

    def owners(self, patience: float = 5.0) -> JobOwners:
        """Return what asks this controller."""
        return JobOwners(self.find, lambda: self.now, patience_seconds=patience, run=self.run)


ALICE = JobOwner("alice", "gpu", "lab", 2)


def test_a_job_is_asked_for_once_while_it_is_seen() -> None:
    """A thousand nodes must not ask each minute: a job that is seen all the time is asked for once."""

    async def scene() -> None:
        controller = Controller()
        owners = controller.owners()
        for _ in range(5):
            assert await owners.owners({"5"}) == {"5": ALICE}
            controller.now += AGAIN_SECONDS / 2
        assert controller.asked == ["5"]
        controller.now += AGAIN_SECONDS  # not seen for a minute: the number may be another job's by now
        await owners.owners({"5"})
        assert controller.asked == ["5", "5"]
        assert controller.found == 1

    asyncio.run(scene())


def test_a_controller_that_is_away_makes_nobody_wait() -> None:
    """The first question without an answer ends the round; all are unknown for a minute, then asked again."""

    async def scene() -> None:
        controller = Controller()
        controller.away = True
        owners = controller.owners()
        unknown = {job: JobOwner() for job in ("1", "2", "3")}
        assert await owners.owners(unknown) == unknown
        assert controller.asked == ["1"]
        assert await owners.owners(unknown) == unknown
        assert controller.asked == ["1"]
        controller.now += AGAIN_SECONDS
        controller.away = False
        assert (await owners.owners(unknown))["3"] == ALICE

    asyncio.run(scene())


def test_one_scontrol_that_cannot_be_ended_is_the_only_one() -> None:
    """It sleeps on a dead file system: no second one a minute, and asked again when it is gone."""

    async def scene() -> None:
        controller = Controller()
        controller.left = Child(1, -1)
        owners = controller.owners()
        for _ in range(3):
            assert await owners.owners({"5"}) == {"5": JobOwner()}
            controller.now += AGAIN_SECONDS
        assert controller.asked == ["5"]
        controller.left.code = -9
        controller.left = None
        assert await owners.owners({"5"}) == {"5": ALICE}

    asyncio.run(scene())


def test_the_passes_do_not_wait_and_get_the_answer_later() -> None:
    """Without patience the first call returns at once, with nothing; the answer is there when it came."""

    async def scene() -> None:
        controller = Controller()
        controller.gate = asyncio.Event()
        owners = controller.owners(patience=0.0)
        assert await owners.owners({"5"}) == {}
        await asyncio.sleep(0)
        assert await owners.owners({"5"}) == {}
        controller.gate.set()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5)
        assert owners.known({"5"}) == {"5": ALICE}
        assert controller.asked == ["5"]

    asyncio.run(scene())


@pytest.mark.parametrize("why", ["no program", "refused", "can't start"])
def test_no_answer_is_unknown(why: str) -> None:
    """No scontrol, a job that it does not know, a program that does not start: unknown, and no error."""

    async def scene() -> None:
        controller = Controller()
        controller.program = "" if why == "no program" else controller.program
        controller.code = 1 if why == "refused" else 0
        owners = controller.owners()
        if why == "can't start":

            async def broken(argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
                raise OSError(argv, deadline_seconds)

            owners = JobOwners(controller.find, lambda: 0.0, patience_seconds=5.0, run=broken)
        assert await owners.owners({"5"}) == {"5": JobOwner()}
        assert controller.asked == (["5"] if why == "refused" else [])

    asyncio.run(scene())
