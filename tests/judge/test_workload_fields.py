"""What a selector asks of a workload: each field by its kind, nothing of a boundary that nobody proves."""

from dataclasses import replace

import pytest

from reclaimerd.judge.selectors import matches
from reclaimerd.judge.tri import Tri
from reclaimerd.model.policy import LabelOperator, LabelTerm, Selector
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from tests.builders import a_process, a_workload
from tests.judge.test_selectors import LOOKUPS

NAMES = WorkloadNames(
    namespace="team-a", pod="p", labels=(("app", "train"), ("tier", "low")), labels_whole=True
)
POD = Workload(WorkloadKind.POD, "pod", path="/kubepods/p", names=NAMES, runtime="cri-containerd")
CONTAINER = Workload(WorkloadKind.CONTAINER, "container", path="/docker/c", runtime="docker")
JOB = Workload(
    WorkloadKind.SLURM_JOB,
    "job",
    path="/slurm/job_7",
    names=WorkloadNames(job_id="7", partition="gpu", account="physics"),
)
UNIT = a_workload("train.service")
BARE = Workload(WorkloadKind.NONE, "no workload")

IN, NOT_IN, EXISTS, ABSENT = LabelOperator


def term(key: str, operator: LabelOperator, *values: str) -> Selector:
    """Return a selector of one label term."""
    return Selector(labels=(LabelTerm(key, operator, values),))


def ask(selector: Selector, workload: Workload) -> Tri:
    """Return the selector's answer on a process in this workload."""
    return matches(selector, a_process(workload=workload), None, LOOKUPS).answer


def renamed(workload: Workload, **fields: object) -> Workload:
    """Return the workload with other names."""
    return replace(workload, names=replace(workload.names or WorkloadNames(), **fields))  # type: ignore[arg-type] # any field


@pytest.mark.parametrize(
    ("selector", "workload", "answer"),
    [
        (Selector(unit=("train.*",)), UNIT, Tri.YES),
        (Selector(unit=("serve.*",)), UNIT, Tri.NO),
        (Selector(unit=("*",)), BARE, Tri.NO),
        (Selector(runtimes=("docker", "crio")), CONTAINER, Tri.YES),
        (Selector(runtimes=("crio",)), CONTAINER, Tri.NO),
        (Selector(runtimes=("cri-containerd",)), POD, Tri.YES),
        (Selector(runtimes=("crio",)), replace(POD, runtime=""), Tri.UNKNOWN),
        (Selector(runtimes=("crio",)), UNIT, Tri.NO),
        (Selector(namespaces=("team-*",)), POD, Tri.YES),
        (Selector(namespaces=("kube-*",)), POD, Tri.NO),
        (Selector(namespaces=("*",)), replace(POD, names=None), Tri.UNKNOWN),
        (Selector(namespaces=("*",)), renamed(POD, namespace=None), Tri.UNKNOWN),
        (Selector(namespaces=("*",)), CONTAINER, Tri.UNKNOWN),
        (Selector(namespaces=("*",)), UNIT, Tri.NO),
        (Selector(namespaces=("*",)), JOB, Tri.NO),
        (Selector(partitions=("g*",)), JOB, Tri.YES),
        (Selector(partitions=("cpu",)), JOB, Tri.NO),
        (Selector(partitions=("g*",)), renamed(JOB, partition=None), Tri.UNKNOWN),
        (Selector(partitions=("g*",)), replace(JOB, names=None), Tri.UNKNOWN),
        (Selector(partitions=("g*",)), POD, Tri.NO),
        (Selector(accounts=("phys*",)), JOB, Tri.YES),
        (Selector(accounts=("math",)), JOB, Tri.NO),
        (Selector(accounts=("math",)), renamed(JOB, account=None), Tri.UNKNOWN),
        (Selector(accounts=("math",)), UNIT, Tri.NO),
    ],
)
def test_each_field(selector: Selector, workload: Workload, answer: Tri) -> None:
    """Another kind of workload is NO; the right kind, of which it is not known, is UNKNOWN."""
    assert ask(selector, workload) is answer


@pytest.mark.parametrize(
    ("selector", "answer"),
    [
        (term("app", IN, "train", "serve"), Tri.YES),
        (term("app", IN, "serve"), Tri.NO),
        (term("team", IN, "a"), Tri.NO),
        (term("app", NOT_IN, "serve"), Tri.YES),
        (term("app", NOT_IN, "train"), Tri.NO),
        (term("team", NOT_IN, "a"), Tri.YES),
        (term("app", EXISTS), Tri.YES),
        (term("team", EXISTS), Tri.NO),
        (term("team", ABSENT), Tri.YES),
        (term("app", ABSENT), Tri.NO),
        (Selector(labels=(LabelTerm("app", EXISTS), LabelTerm("tier", IN, ("low",)))), Tri.YES),
        (Selector(labels=(LabelTerm("app", EXISTS), LabelTerm("tier", IN, ("high",)))), Tri.NO),
    ],
)
def test_labels_as_kubernetes_selects(selector: Selector, answer: Tri) -> None:
    """All terms must hold; a missing key satisfies `notin` and `!key`; only whole lists say anything."""
    assert ask(selector, POD) is answer
    assert ask(selector, renamed(POD, labels_whole=False)) is Tri.UNKNOWN
    assert ask(selector, replace(POD, names=None)) is Tri.UNKNOWN
    assert ask(selector, CONTAINER) is Tri.UNKNOWN
    assert ask(selector, UNIT) is Tri.NO


@pytest.mark.parametrize("workload", [POD, CONTAINER, JOB, UNIT, BARE])
@pytest.mark.parametrize(
    "selector",
    [
        Selector(unit=("*",)),
        Selector(runtimes=("docker",)),
        Selector(namespaces=("*",)),
        Selector(partitions=("*",)),
        Selector(accounts=("*",)),
        term("app", EXISTS),
        term("app", ABSENT),
    ],
)
def test_what_nobody_proves_is_unknown(selector: Selector, workload: Workload) -> None:
    """A boundary that a user could have made is neither a match nor clear of an exemption."""
    assert ask(selector, replace(workload, trusted=False)) is Tri.UNKNOWN
