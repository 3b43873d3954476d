"""What is asked of Slurm's programs, and whether an answer is sound: any doubt about it convicts nobody."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from reclaimerd.host.child import Child, Finished, Overran
from reclaimerd.host.slurm_text import UNKNOWN_JOB, GresMap, SlurmNode
from reclaimerd.model.allocation import SlurmView
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.observe.slurm_host import SlurmDaemon, SlurmHost
from reclaimerd.observe.slurm_reader import (
    AGAIN_SECONDS,
    ASK_SECONDS,
    GRES_SECONDS,
    MOST_JOBS,
    SLACK_SECONDS,
    SlurmReader,
    why_no_map,
    why_unfit,
)

WALL = 1_796_051_700.0
AGE = 1000.0
STARTED = WALL - AGE
HOST = SlurmHost("/s/scontrol", "/s/slurmd", "/s/squeue", (SlurmDaemon(7, 1, "gpu01", AGE),))
NODE = (
    "NodeName=gpu01 Arch=x\n   Gres=gpu:2\n   GresUsed={used}\n   State=IDLE\n"
    f"   SlurmdStartTime={STARTED:.0f}\n"
)
CONFIG = "KillWait = 30 sec\nUnkillableStepTimeout = 60 sec\nSLURM_CONF = /etc/slurm/slurm.conf\n"
GRES = "".join(f"slurmd: Gres Name=gpu Count=1 Index={n} ID=7 File=/dev/nvidia{n} (null)\n" for n in (1, 0))
JOB = (
    "JobId={job} JobName=x\n   UserId=alice(1001) Account=lab\n   JobState=RUNNING\n   NumNodes=1 NumCPUs=1\n"
    "     Nodes=gpu01 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:{index})\n"
)


class Slurm:
    """Slurm's programs, by a script: jobs by id with their index, what answers, what is asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.jobs: dict[str, int] = {}
        self.listed: list[str] = []
        self.used = "gpu:0(IDX:N/A)"
        self.away: set[str] = set()
        self.texts: dict[str, str] = {}
        self.left: Child | None = None
        self.asked: list[str] = []
        self.host = HOST
        self.reader = SlurmReader((lambda: self.now, lambda: WALL), self.run)

    async def run(self, argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
        """Answer one question."""
        assert tuple(argv[:3]) == ("/usr/bin/env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s")
        program, *words = argv[3:]
        question = " ".join((program.rpartition("/")[2], *words))
        self.asked.append(question)
        assert deadline_seconds == (GRES_SECONDS if "-G" in words else ASK_SECONDS)
        if self.left is not None:
            return Overran(1, gone=False, out="", err="", child=self.left)
        if any(question.startswith(one) for one in self.away):
            return Finished(
                1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
            )
        return self._answer(question)

    def _answer(self, question: str) -> Finished:
        fixed = {
            "scontrol show node gpu01 -d": NODE.format(used=self.used),
            "scontrol show config": CONFIG,
            "scontrol show aliases": "gpu01\n",
            "squeue -h -w gpu01 -o %A": "\n".join(self.listed),
            **self.texts,
        }
        if question in fixed:
            return Finished(0, fixed[question], "")
        if question == "slurmd -G -N gpu01":
            return Finished(0, "", GRES)
        job = question.removeprefix("scontrol show job -d ")
        if job not in self.jobs:
            return Finished(1, "", f"slurm_load_jobs error: {UNKNOWN_JOB}")
        return Finished(0, JOB.format(job=job, index=self.jobs[job]), "")

    def read(self, *jobs: str) -> Reading[SlurmView]:
        """Return what is read."""
        self.asked.clear()
        return asyncio.run(self._read(jobs))

    async def _read(self, jobs: Sequence[str]) -> Reading[SlurmView]:
        return await self.reader.read(self.host, jobs)

    def view(self, *jobs: str) -> SlurmView:
        """Return a view, which must be known."""
        found = self.read(*jobs)
        assert isinstance(found, Known), found
        return found.value


def test_a_view_has_the_jobs_the_map_and_the_deadlines() -> None:
    """Each job asked for by itself; one that the controller does not know is gone."""
    slurm = Slurm()
    slurm.jobs = {"5": 1}
    slurm.used = "gpu:1(IDX:1)"
    view = slurm.view("5", "6")
    assert [(job.id, job.uid, job.account, job.gpu_indices) for job in view.jobs] == [
        ("5", 1001, "lab", (1,))
    ]
    assert (view.devices, view.gone, view.why) == (((0, 1), (1, 0)), ("6",), "")
    assert (view.kill_wait_seconds, view.unkillable_seconds) == (30.0, 60.0)
    assert (view.read_at, view.read_wall) == (100.0, WALL)
    assert slurm.reader.folder == "/etc/slurm"


def test_settings_are_read_once_and_the_map_once_a_slurmd() -> None:
    """`slurmd -G` may open the driver: it runs again for another slurmd, and not by time."""
    slurm = Slurm()
    slurm.view()
    assert "slurmd -G -N gpu01" in slurm.asked
    slurm.view()
    assert slurm.asked == ["scontrol show node gpu01 -d"]
    slurm.now += AGAIN_SECONDS
    slurm.view()
    assert slurm.asked == ["scontrol show config", "scontrol show node gpu01 -d"]
    slurm.host = replace(HOST, daemons=(SlurmDaemon(8, 1, "gpu01", AGE),))
    slurm.view()
    assert "slurmd -G -N gpu01" in slurm.asked


def test_a_map_that_failed_is_tried_again_later() -> None:
    """The view says why nobody can be judged by it, and no child is started each time."""
    slurm = Slurm()
    slurm.away = {"slurmd -G"}
    assert "which GPU is which" in slurm.view().why
    slurm.away = set()
    assert "which GPU is which" in slurm.view().why
    slurm.now += AGAIN_SECONDS
    assert slurm.view().why == ""


def test_who_has_a_gpu_and_shows_no_process_is_asked_for_too() -> None:
    """A salloc whose user works by ssh: the node's used GPUs show that there is one, squeue which."""
    slurm = Slurm()
    slurm.jobs = {"5": 0, "6": 1}
    slurm.listed = ["5", "6"]
    slurm.used = "gpu:2(IDX:0-1)"
    assert [job.id for job in slurm.view("5").jobs] == ["5", "6"]
    assert "squeue -h -w gpu01 -o %A" in slurm.asked
    assert [job.id for job in slurm.view("5").jobs] == ["5", "6"]
    assert "squeue -h -w gpu01 -o %A" not in slurm.asked
    slurm.jobs, slurm.used = {"5": 0}, "gpu:1(IDX:0)"
    assert slurm.view("5").gone == ("6",)
    assert slurm.view("5").gone == ()


@pytest.mark.parametrize("fault", ["no squeue", "away", "words"])
def test_gpus_of_unknown_jobs_convict_nobody(fault: str) -> None:
    """No squeue, one that does not answer, one that says something else: the view is not fit."""
    slurm = Slurm()
    slurm.used = "gpu:1(IDX:0)"
    slurm.host = replace(HOST, squeue="") if fault == "no squeue" else HOST
    slurm.away = {"squeue"} if fault == "away" else set()
    slurm.listed = ["x"] if fault == "words" else ["5"]
    assert slurm.view().why == "GPUs of this node are given to jobs that squeue does not list"


def test_more_jobs_than_the_bound_convict_nobody() -> None:
    """No more are asked for, and the view says so."""
    slurm = Slurm()
    slurm.jobs = {str(one): 0 for one in range(100, 100 + MOST_JOBS + 3)}
    slurm.used = "gpu:1(IDX:0)"
    view = slurm.view(*slurm.jobs)
    assert len(view.jobs) == MOST_JOBS
    assert view.why == f"more than {MOST_JOBS} jobs are on this node"


@pytest.mark.parametrize(
    "silent",
    ["scontrol show node", "scontrol show config", "scontrol show job -d 5", "scontrol show job -d 6"],
)
def test_a_controller_that_does_not_answer_is_no_view(silent: str) -> None:
    """A job is then not gone: whoever can't be heard has not said so."""
    slurm = Slurm()
    slurm.jobs, slurm.listed, slurm.used = {"5": 0, "6": 1}, ["5", "6"], "gpu:2(IDX:0-1)"
    slurm.away = {silent}
    assert slurm.read("5") == Unreadable("Slurm's controller does not answer")


def test_a_program_that_cannot_be_ended_is_the_only_one() -> None:
    """While it lives no other is started; then it goes on."""
    slurm = Slurm()
    slurm.left = Child(1, -1)
    assert slurm.read() == Unreadable("Slurm's controller does not answer")
    assert len(slurm.asked) == 1
    slurm.read()
    assert slurm.asked == []
    slurm.left.code, slurm.left = -9, None
    assert slurm.view().why == ""


def test_a_program_that_does_not_start_is_no_view() -> None:
    """An error of the system's is no error of ours."""

    async def broken(argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
        raise OSError(argv, deadline_seconds)

    reader = SlurmReader((lambda: 0.0, lambda: WALL), broken)
    found = asyncio.run(reader.read(HOST, ()))
    assert found == Unreadable("Slurm's controller does not answer")
    assert reader.folder == ""


def test_the_node_is_named_by_slurm_where_slurmd_does_not() -> None:
    """By the one alias of this host's; two are none."""
    slurm = Slurm()
    slurm.host = replace(HOST, daemons=(SlurmDaemon(7, 1, "", AGE),))
    assert slurm.view().why == ""
    other = Slurm()
    other.host = slurm.host
    other.texts = {"scontrol show aliases": "gpu01 gpu02"}
    found = other.read()
    assert isinstance(found, Unreadable)
    assert "can't be told" in found.why


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("scontrol show node gpu01 -d", "does not know the node gpu01"),
        ("scontrol show config", "does not tell Slurm's deadlines"),
    ],
)
def test_an_answer_of_another_form_is_no_view(question: str, words: str) -> None:
    """And its reason is another than silence."""
    slurm = Slurm()
    slurm.texts = {question: "what?"}
    found = slurm.read()
    assert isinstance(found, Unreadable)
    assert words in found.why


def test_no_slurmd_program_says_where_to_name_it() -> None:
    """The jobs are told still."""
    slurm = Slurm()
    slurm.host = replace(HOST, slurmd="")
    assert "[attribution] slurmd" in slurm.view().why


GOOD_MAP = GresMap(2, ((0, 1), (1, 0)))
GOOD_NODE = SlurmNode(2, frozenset(), frozenset({"ALLOCATED"}), STARTED)


@pytest.mark.parametrize(
    ("host", "gres", "node", "words"),
    [
        (HOST, GOOD_MAP, GOOD_NODE, ""),
        (HOST, GOOD_MAP, replace(GOOD_NODE, started_at=STARTED - SLACK_SECONDS), ""),
        (HOST, GOOD_MAP, replace(GOOD_NODE, started_at=STARTED - SLACK_SECONDS - 1), "another slurmd"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, started_at=STARTED + SLACK_SECONDS + 1), "another slurmd"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, started_at=None), "another slurmd"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, states=frozenset({"IDLE", "*"})), "does not reach this node: *"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, states=frozenset({"DOWN"})), "does not reach this node: DOWN"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, states=frozenset()), "no state"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, states=frozenset({"IDLE", "MAINT"})), "in maintenance"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, states=frozenset({"IDLE", "DRAIN"})), ""),
        (HOST, GresMap(2, why="no"), GOOD_NODE, "no"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, gpus=3), "slurmd has 2 GPUs, and its controller 3"),
        (HOST, GOOD_MAP, replace(GOOD_NODE, gpus=None), "its controller None"),
        (replace(HOST, gres_age_seconds=AGE - SLACK_SECONDS), GOOD_MAP, GOOD_NODE, ""),
        (replace(HOST, gres_age_seconds=AGE - SLACK_SECONDS - 1), GOOD_MAP, GOOD_NODE, "restart slurmd"),
    ],
)
def test_any_doubt_about_the_answer_is_said(
    host: SlurmHost, gres: GresMap, node: SlurmNode, words: str
) -> None:
    """Another cluster's controller, a node that is away, a map that may be old: all convict nobody."""
    unfit, no_map = why_unfit(host, node, WALL), why_no_map(host, gres, node)
    assert words in unfit or words in no_map
    assert bool(unfit or no_map) == bool(words)
    about_gpus = gres != GOOD_MAP or node.gpus != GOOD_NODE.gpus or "gres.conf" in no_map
    assert bool(unfit) == bool(words and not about_gpus), "a job's end needs no map of GPUs"
