"""Workloads with names: asked for once, remembered, kept by who exits, and never a reason to wait."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.ports import Look
from reclaimerd.model.process import PF_EXITING, ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.observe.answers import Answer, Answered, Silent
from reclaimerd.observe.places import AGAIN_SECONDS, MOST_ASKED, NamedSampler, Places
from reclaimerd.observe.probe import Probe
from tests.builders import a_process, a_snapshot, a_task, a_workload

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
C = "3f2a" * 16
PATH = "/kubepods.slice/pod"
POD = Workload(WorkloadKind.POD, "pod 9a15d2b5…", PATH, container_id=C, names=WorkloadNames(pod_uid=U))
FOUND = WorkloadNames(namespace="ml", pod="train-0", pod_uid=U, container="train", labels=(("app", "x"),))
JOB = Workload(WorkloadKind.SLURM_JOB, "slurm job 5", "/slurm/job_5", names=WorkloadNames(job_id="5"))


class Worker:
    """A procfs worker that answers from a script, and remembers what it was asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.names: dict[str, WorkloadNames] = {C: FOUND}
        self.asked: list[list[list[str]]] = []
        self.silent = False

    async def ask(self, op: str, args: Mapping[str, Any], *, answer_within: float) -> Answer:
        """Answer one question."""
        assert answer_within <= 1.0
        assert args["root"] == "/records"
        if op == "scontrol":
            return Answered(({"program": ""},), self.now, self.now)
        self.asked.append(args["asked"])
        if self.silent:
            return Silent("busy", self.now)
        found = [self.names.get(cid) or self.names.get(path) for cid, path, _ in args["asked"]]
        parts = tuple({"names": None if one is None else to_wire(one)} for one in found)
        return Answered(parts, self.now, self.now)

    def places(self) -> Places:
        """Return what asks this worker."""
        return Places(cast("Probe", self), lambda: self.now, Path("/records"), patience_seconds=5.0)


def named(places: Places, *readings: ProcessReading, ask: bool = True) -> list[Workload]:
    """Return the workloads after one look."""
    found = asyncio.run(places.named({one.ref.pid: one for one in readings}, ask=ask))
    return [found[one.ref.pid].workload for one in readings]


def test_a_container_is_asked_for_once_and_all_its_processes_are_named() -> None:
    """Two processes of one container cost one question, and later looks none."""
    worker = Worker()
    places = worker.places()
    two = (a_process(1, workload=POD), a_process(2, workload=POD))
    for _ in range(3):
        assert [one.names for one in named(places, *two)] == [FOUND, FOUND]
        worker.now += AGAIN_SECONDS * 10
    assert worker.asked == [[[C, PATH, U]]]
    assert named(places, two[0])[0].best_name == "ml/train-0/train"


def test_what_has_no_names_is_not_asked_for() -> None:
    """Units, and whatever the path does not prove, cost no question and get no name."""
    worker = Worker()
    untrusted = replace(POD, trusted=False, names=None)
    before = (
        a_process(1, workload=untrusted),
        a_process(2),
        a_process(3, workload=replace(POD, container_id="")),
    )
    assert named(worker.places(), *before) == [one.workload for one in before]
    assert worker.asked == []


def test_no_record_leaves_the_plain_name_and_is_asked_for_again_later() -> None:
    """A container without a record, or a silent worker, is asked for again after 30 s, not each pass."""
    for silent in (False, True):
        worker = Worker()
        worker.names, worker.silent = {}, silent
        places = worker.places()
        for _ in range(3):
            assert named(places, a_process(1, workload=POD)) == [POD]
        assert len(worker.asked) == 1
        worker.now += AGAIN_SECONDS
        worker.names, worker.silent = {C: FOUND}, False
        assert named(places, a_process(1, workload=POD))[0].names == FOUND


def test_a_process_that_exits_keeps_its_workload() -> None:
    """Its cgroup may be gone: kind, path and names stay those of its healthy life; a stranger has its own."""
    places = Worker().places()
    healthy = a_process(1, workload=POD)
    full = named(places, healthy)[0]
    lost = Workload(WorkloadKind.NONE, "no proven workload", trusted=False)
    exiting = replace(healthy, tasks=(a_task(1, "D", PF_EXITING),), workload=lost)
    dead = replace(healthy, tasks=(a_task(1, "Z"),), whole=True, workload=lost)
    assert named(places, exiting) == [full]
    assert named(places, dead, ask=False) == [full]
    stranger = replace(exiting, ref=replace(healthy.ref, start_ticks=99))
    assert named(places, stranger) == [lost]
    assert named(places, replace(healthy, workload=a_workload())) == [a_workload()]


def test_a_sluid_gets_its_job_id_and_a_job_its_user() -> None:
    """The step daemon's job id becomes a name; without scontrol user and partition stay unknown."""
    worker = Worker()
    sluid = Workload(WorkloadKind.SLURM_JOB, "slurm job s5K…", "/slurm/s5K")
    worker.names = {"/slurm/s5K": WorkloadNames(job_id="3385")}
    found = named(worker.places(), a_process(1, workload=sluid), a_process(2, workload=JOB))
    assert [one.best_name for one in found] == ["job 3385", "job 5"]
    assert worker.asked == [[["", "/slurm/s5K", ""]]]
    owned = replace(JOB, names=WorkloadNames(job_id="5", user="alice", partition="gpu"))
    assert owned.best_name == "job 5 (alice)"


def test_a_flood_of_new_workloads_is_asked_for_in_turns() -> None:
    """One question has at most 64 workloads; the next look asks for the rest."""
    worker = Worker()
    places = worker.places()
    worker.names = {}
    many = [
        a_process(pid, workload=replace(POD, container_id=f"{pid:064x}")) for pid in range(1, MOST_ASKED + 11)
    ]
    named(places, *many)
    named(places, *many)
    assert [len(asked) for asked in worker.asked] == [MOST_ASKED, 10]


@pytest.mark.parametrize("look", [Look(reset=True), Look(without_driver=True)])
def test_a_look_before_a_reset_asks_nobody(look: Look) -> None:
    """Such a look is at most 200 ms old when it is used: what is remembered must do."""
    worker = Worker()
    snapshot = replace(a_snapshot(), processes={1: a_process(1, workload=POD)})

    class Eyes:
        async def sample(self, _look: Look) -> Any:
            return snapshot

    sampler = NamedSampler(Eyes(), worker.places())
    assert asyncio.run(sampler.sample(look)).processes[1].workload == POD
    assert worker.asked == []
    assert asyncio.run(sampler.sample(Look())).processes[1].workload.names == FOUND
    assert asyncio.run(sampler.sample(look)).processes[1].workload.names == FOUND


@pytest.mark.parametrize(
    ("workload", "best"),
    [
        (POD, "pod 9a15d2b5…"),
        (replace(POD, names=FOUND), "ml/train-0/train"),
        (replace(POD, names=replace(FOUND, container=None)), "ml/train-0"),
        (
            Workload(WorkloadKind.CONTAINER, "container 3f2a…", names=WorkloadNames(container="web")),
            "container web",
        ),
        (JOB, "job 5"),
        (a_workload(), "train.service"),
    ],
)
def test_the_best_name(workload: Workload, best: str) -> None:
    """People read namespace/pod/container, the job and its user, the container; else the plain name."""
    assert workload.best_name == best
