"""How many GPUs one user may hold: who counts, who goes, and that it is one at a time."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import Evaluation, evaluate
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.user_limit import user_limit_condition
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.policy import Rule, RuleKind, Selector, Threshold, UserProtection
from reclaimerd.model.process import PF_EXITING, ProcessReading, Workload, WorkloadKind
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    GPU_A,
    GPU_B,
    MONO,
    OURS,
    WALL,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_row,
    a_rule,
    a_snapshot,
    a_task,
)
from tests.judge.allocation_builders import a_pod_process
from tests.judge.ending_builders import a_job, a_job_process, a_slurm, last_of

GPU_C = GpuUuid("GPU-cccccccc-0000-0000-0000-000000000000")
GPUS = (GPU_A, GPU_B, GPU_C)
CONTEXT = JudgeContext(OURS, lambda _pattern, _text: False, {})
Held = tuple[ProcessReading, tuple[GpuUuid, ...]]


def a_limit(most: int | None = 1, **fields: Any) -> Rule:
    """Return an enforcing rule that holds at once, for large workloads too."""
    whole = {"kind": RuleKind.USER_LIMIT, "above": Threshold(), "gpus_at_most": most, "large_jobs": True}
    return a_rule("limit", **{**whole, **fields})


def of_user(pid: int, age: float, *gpus: GpuUuid, uid: int = 1000, **fields: Any) -> Held:
    """Return a process of this user's that holds these GPUs."""
    return a_process(pid, **{"uids": (uid,) * 4, "age_seconds": age, **fields}), gpus


def host(*held: Held, **fields: Any) -> Snapshot:
    """Return a look at a host with three GPUs that these hold."""
    gpus = tuple(
        a_gpu(gpu, minor=number, processes=[a_row(one.ref.pid) for one, own in held if gpu in own])
        for number, gpu in enumerate(GPUS)
    )
    holders = [a_holder(one, gpu) for one, own in held for gpu in own]
    return a_snapshot(gpus=gpus, processes=[one for one, _ in held], holders=holders, **fields)


def judged(look: Snapshot, *rules: Rule, **policy: Any) -> Evaluation:
    """Return what one look makes of it."""
    return evaluate(look, a_policy(*rules, **policy), (), CONTEXT)


def taken(found: Evaluation) -> list[int]:
    """Return whom the rules take."""
    return [one.ref.pid for one in found.verdicts if one.ruling is Ruling.RECLAIM]


def texts(found: Evaluation) -> dict[int, tuple[Ruling, str]]:
    """Return each pid's ruling and its last reason."""
    return {one.ref.pid: (one.ruling, one.reasons[-1].text) for one in found.verdicts}


def test_the_youngest_goes_and_one_at_a_time() -> None:
    """Three GPUs where one is allowed: two must go, and the second only after the first."""
    held = [of_user(101, 300.0, GPU_A), of_user(102, 100.0, GPU_B), of_user(103, 200.0, GPU_C)]
    found = judged(host(*held), a_limit())
    assert taken(found) == [102]
    assert texts(found)[102][1] == "uid 1000 (3 processes) holds 3 GPUs, more than 1"
    assert texts(found)[103] == (
        Ruling.WATCH,
        "uid 1000 (3 processes) holds 3 GPUs, more than 1; pid 102 goes first",
    )
    newer = of_user(104, 1.0, GPU_B)
    again = evaluate(host(*held, newer), a_policy(a_limit()), found.sustained, CONTEXT, found.past)
    assert taken(again) == [102]
    gone = evaluate(host(held[0], held[2]), a_policy(a_limit()), again.sustained, CONTEXT, again.past)
    assert taken(gone) == [103]
    assert taken(judged(host(held[0]), a_limit())) == []


def test_at_the_limit_nobody_goes() -> None:
    """Two processes on one GPU hold one GPU; two users are counted apart."""
    assert taken(judged(host(of_user(101, 9.0, GPU_A), of_user(102, 8.0, GPU_A)), a_limit())) == []
    two = host(of_user(101, 9.0, GPU_A), of_user(102, 8.0, GPU_B, uid=2000))
    found = judged(two, a_limit())
    assert texts(found)[101] == (Ruling.WATCH, "uid 1000 (1 process): holds 1 GPUs, not more than 1")
    assert taken(judged(host(of_user(101, 9.0, *GPUS)), a_limit(3))) == []
    assert taken(judged(host(of_user(101, 9.0, *GPUS)), a_limit(None))) == []


def test_whose_going_gives_no_gpu_back_is_not_the_first_to_go() -> None:
    """The youngest shares its GPU with an older one: it would die for nothing."""
    held = [of_user(101, 300.0, GPU_A), of_user(102, 200.0, GPU_B), of_user(103, 1.0, GPU_A)]
    assert taken(judged(host(*held), a_limit())) == [102]
    pairs = [of_user(101, 300.0, GPU_A, GPU_B), of_user(102, 200.0, GPU_A, GPU_B)]
    assert taken(judged(host(*pairs), a_limit())) == [102]


def test_whom_it_does_not_concern_and_who_is_protected_is_not_counted() -> None:
    """An exemption, a protection: what they hold is held against nobody."""
    held = [of_user(101, 300.0, GPU_A), of_user(102, 200.0, GPU_B)]
    assert taken(judged(host(*held), a_limit())) == [102]
    exempt = a_limit(exempt=Selector(gpus=(GPU_A,)))
    assert taken(judged(host(*held), exempt)) == []
    spared = UserProtection("mine", unit="train-101.service")
    assert taken(judged(host(*held), a_limit(), protections=(spared,))) == []


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (a_pod_process(102), "in a container"),
        (a_process(102, workload=Workload(WorkloadKind.CONTAINER, "container x", "/docker/x")), "container"),
        (
            a_process(102, workload=Workload(WorkloadKind.MACHINE, "machine x", "/machine.slice/x")),
            "container",
        ),
        (a_process(102, workload=Workload(WorkloadKind.NOMAD, "task x", "/nomad.slice/x")), "container"),
        (a_process(102, uids=(0, 1000, 1000, 1000)), "root has no limit"),
    ],
)
def test_a_uid_in_a_container_and_root_are_not_counted(reading: ProcessReading, why: str) -> None:
    """All pods may run as one uid: that is no user of this host who has too much."""
    found = judged(host(of_user(101, 300.0, GPU_A), (reading, (GPU_B, GPU_C))), a_limit())
    assert taken(found) == []
    assert why in texts(found)[102][1]


def test_what_slurm_gave_by_a_job_is_not_counted() -> None:
    """What it was not given is, and where that is not known nothing is."""
    session = of_user(101, 300.0, GPU_C)
    job = (a_job_process(200, age_seconds=100.0), (GPU_A, GPU_B))

    def found(indices: tuple[int, ...] | None, **fields: Any) -> Evaluation:
        view = a_slurm(a_job(gpu_indices=indices, **fields), devices=((0, 1), (1, 0), (2, 2)))
        return judged(last_of(host(session, job, slurm=Known(view))), a_limit())

    assert taken(found((0, 1))) == []
    assert texts(found((0, 1)))[200] == (Ruling.WATCH, "the rule does not concern it")
    assert taken(found((1,))) == [200]
    assert texts(found(None))[101][0] is Ruling.UNDETERMINED
    assert taken(found((), state="COMPLETING", ended_at=WALL)) == []
    view = a_slurm(a_job(gpu_indices=(0, 1)))
    alone = judged(last_of(host(job, slurm=Known(view))), a_limit())
    assert texts(alone) == {200: (Ruling.WATCH, "the rule does not concern it")}
    without = judged(host(session, job), a_limit(2))
    assert taken(without) == [200]


def test_what_is_not_known_of_one_is_not_known_of_all() -> None:
    """A selector that can't be answered, a process that ends, a GPU whose list can't be read."""
    held = [of_user(101, 300.0, GPU_A), of_user(102, 200.0, GPU_B)]
    unknown = a_limit(exempt=Selector(cmdline=("serve",)))
    blind = of_user(103, 1.0, GPU_C, cmdline=Unreadable("hangs"))
    assert taken(judged(host(*held), unknown)) == [102]
    assert {one for one, _ in texts(judged(host(*held, blind), unknown)).values()} == {Ruling.UNDETERMINED}
    leaves = of_user(103, 1.0, GPU_C, tasks=(a_task(103, flags=PF_EXITING),))
    assert taken(judged(host(*held, leaves), a_limit())) == []
    look = host(*held)
    silent = tuple(
        replace(gpu, processes=Unreadable("driver")) if gpu.uuid == GPU_B else gpu for gpu in look.gpus
    )
    rows = tuple(replace(row, listed=False) if row.gpu == GPU_B else row for row in look.holders)
    found = judged(replace(look, gpus=silent, holders=rows), a_limit())
    assert taken(found) == []
    assert {one for one, _ in texts(found).values()} == {Ruling.UNDETERMINED}


def test_one_source_alone_is_no_holding() -> None:
    """Open nodes of GPUs that the driver lists nobody on: CUDA opens them all."""
    look = host(of_user(101, 300.0, GPU_A), of_user(102, 200.0, GPU_B))
    rows = tuple(replace(row, listed=row.gpu == GPU_A) for row in look.holders)
    found = judged(replace(look, holders=rows), a_limit())
    assert taken(found) == []
    assert texts(found)[101][1].endswith("but only one source shows it")
    three = host(of_user(101, 300.0, GPU_A), of_user(102, 200.0, GPU_B), of_user(103, 1.0, GPU_C))
    some = tuple(replace(row, listed=row.gpu != GPU_C) for row in three.holders)
    partly = judged(replace(three, holders=some), a_limit())
    assert taken(partly) == [102]
    assert texts(partly)[103][1].endswith("it holds none of them")


def test_too_many_that_are_known_stand_by_themselves() -> None:
    """A GPU that was not seen at all adds doubt only where it would decide."""
    rows = [a_holder(101, gpu) for gpu in GPUS]
    look = a_snapshot(gpus=(a_gpu(GPU_A), a_gpu(GPU_B)), at=MONO)
    assert user_limit_condition(a_limit(1), rows, look).text == "holds 2 GPUs, more than 1"
    assert user_limit_condition(a_limit(2), rows, look).text == f"the process list of {GPU_C} is not known"
    assert user_limit_condition(a_limit(3), rows, look).text == "holds 3 GPUs, not more than 3"
