"""Who was given the GPU that it holds: a verdict against somebody needs every doubt excluded."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given as example
from hypothesis import strategies

from reclaimerd.judge.allocation import DEFAULT_TERMS, allocation_of
from reclaimerd.model.allocation import (
    Allocation,
    AllocationRuling,
    AllocationTerms,
    AllocationView,
    ContainerAllocation,
    MigDevice,
)
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.builders import GPU_A, GPU_B, MONO, a_gpu, a_process, a_row, a_snapshot
from tests.judge.allocation_builders import OTHERS, REPLICA_A, a_pod_process, a_view, given, with_list

MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"
STRICT = AllocationTerms(pod_shares=False)


def asked(
    view: AllocationView,
    reading: ProcessReading | None = None,
    terms: AllocationTerms = DEFAULT_TERMS,
) -> Allocation:
    """Return the answer on one process that holds GPU A."""
    process = a_pod_process() if reading is None else reading
    return allocation_of(process, GPU_A, with_list([process], view), MONO, terms)


def test_the_thief_holds_what_its_container_was_not_given() -> None:
    """Case C57: a listed container without a GPU, on one that another pod was given, with the evidence."""
    answer = asked(a_view(given("worker"), given("main", GPU_A, pod="other-0")))
    assert answer.ruling is AllocationRuling.UNALLOCATED
    assert answer.text == "container worker of pod team/train-0 was given no GPU"
    assert answer.evidence == (
        "the kubelet's list of 5 s ago names 2 containers",
        "team/train-0/worker: no GPU",
        f"{GPU_A} was given to team/other-0/main",
    )
    assert not answer.exclusive


def test_one_that_overreaches_holds_another_gpu_than_its_own() -> None:
    """What it was given stands in the text."""
    answer = asked(a_view(given("worker", GPU_B)))
    assert answer.ruling is AllocationRuling.UNALLOCATED
    assert answer.text.endswith(f"was given nvidia.com/gpu {GPU_B}, not this GPU")


def test_a_container_that_the_list_never_names_is_judged_by_its_pod() -> None:
    """An init or debug container of a pod with GPUs, on a GPU that another pod was given."""
    view = a_view(given("main", GPU_B), given("main", GPU_A, pod="other-0"))
    answer = asked(view, a_pod_process(container="debugger-x"))
    assert answer.ruling is AllocationRuling.UNALLOCATED


def test_an_init_container_may_have_more_gpus_than_its_pods_others() -> None:
    """What an init container was given is never in the list: on a GPU that is nobody's it is UNKNOWN."""
    answer = asked(a_view(given("main", GPU_B), OTHERS), a_pod_process(container="fetch-model"))
    assert answer.ruling is AllocationRuling.UNKNOWN
    assert answer.text.endswith("is not in the kubelet's list, and nobody else was given this GPU")


@pytest.mark.parametrize(
    ("device", "exclusive"), [(GPU_A, True), (REPLICA_A, False), ("nvidia0", True), ("nvidia0/vgpu1", False)]
)
def test_who_was_given_the_gpu_may_hold_it(device: str, *, exclusive: bool) -> None:
    """Case C94: by UUID, by minor, or a share of it in turns, which is not its own alone."""
    answer = asked(a_view(given("worker", device), OTHERS))
    assert answer.ruling is AllocationRuling.ALLOWED
    assert answer.exclusive is exclusive
    assert answer.evidence == (f"team/train-0/worker: nvidia.com/gpu {device}",)


def test_a_gpu_that_two_pods_were_given_is_nobodys_alone() -> None:
    """Two owners (after a forced deletion): allowed, and not exclusive."""
    answer = asked(a_view(given("worker", GPU_A), given("main", GPU_A, pod="other-0")))
    assert answer.ruling is AllocationRuling.ALLOWED
    assert not answer.exclusive


def test_what_one_container_was_given_counts_for_its_pod_unless_the_rule_says_otherwise() -> None:
    """By default it does, and the evidence says whose it is; under strict terms only the container counts."""
    view = a_view(given("main", GPU_A), given("worker"))
    shared = asked(view)
    assert shared.ruling is AllocationRuling.ALLOWED
    assert shared.text == f"container main of its pod was given nvidia.com/gpu {GPU_A}"
    assert shared.exclusive
    assert asked(view, terms=STRICT).ruling is AllocationRuling.UNALLOCATED
    assert asked(view, a_pod_process(container="main"), STRICT).ruling is AllocationRuling.ALLOWED


THIEF = a_view(given("worker"), OTHERS)


def _names_unknown(reading: ProcessReading) -> ProcessReading:
    return replace(reading, workload=replace(reading.workload, names=None))


def _half_named(reading: ProcessReading) -> ProcessReading:
    names = reading.workload.names
    assert names is not None
    return replace(reading, workload=replace(reading.workload, names=replace(names, container=None)))


def _untrusted(reading: ProcessReading) -> ProcessReading:
    return replace(reading, workload=replace(reading.workload, trusted=False))


def _no_container(reading: ProcessReading) -> ProcessReading:
    return replace(reading, workload=replace(reading.workload, container_id=""))


def _static(reading: ProcessReading) -> ProcessReading:
    path = "/kubepods/poda5363f4f31e043bdae3c93aca4991903"
    return replace(reading, workload=replace(reading.workload, path=path))


def _just_begun(reading: ProcessReading) -> ProcessReading:
    return replace(reading, age_seconds=1.0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_names_unknown, "names of its pod and container are not known"),
        (_half_named, "names of its pod and container are not known"),
        (_untrusted, "proves nothing"),
        (_no_container, "none of its containers"),
        (_static, "static"),
        (_just_begun, "older than the process"),
    ],
)
def test_a_doubt_about_the_process_is_unknown(
    change: Callable[[ProcessReading], ProcessReading], why: str
) -> None:
    """Each doubt by itself turns the thief's verdict into UNKNOWN, and says why."""
    assert asked(THIEF).ruling is AllocationRuling.UNALLOCATED
    answer = asked(THIEF, change(a_pod_process()))
    assert answer.ruling is AllocationRuling.UNKNOWN
    assert why in answer.text


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (a_view(), "list is empty"),
        (a_view(OTHERS), "not in the kubelet's list"),
        (replace(THIEF, read_at=MONO - 61.0), "61 s old"),
        (replace(THIEF, steady_since=MONO - 119.0), "started 119 s ago"),
        (replace(THIEF, why="no runtime was found"), "no runtime was found"),
        (a_view(given("worker"), given("worker")), "more than once"),
        (a_view(given("main")), "not in the kubelet's list, and its pod was given no GPU"),
        (a_view(given("worker", claims=("team/gpus",))), "resource claim team/gpus"),
        (a_view(given("worker"), given("main", claims=("team/gpus",))), "resource claim team/gpus"),
        (a_view(given("worker", "tegra")), "can't be told"),
        (a_view(given("worker"), given("main", MIG)), "can't be told"),
        (a_view(given("worker", f"{GPU_B}::1")), "shares of GPUs in turns"),
        (a_view(given("worker"), given("main", REPLICA_A, pod="other-0")), "shared in turns"),
    ],
)
def test_a_doubt_about_the_list_is_unknown(view: AllocationView, why: str) -> None:
    """Case C95: stale, restarted, empty, without the pod, DRA, odd ids, time-slicing: UNKNOWN."""
    answer = asked(view)
    assert answer.ruling is AllocationRuling.UNKNOWN
    assert why in answer.text


def test_a_list_that_is_empty_convicts_nobody_outside_pods_either() -> None:
    """Under terms that would convict a host's process."""
    answer = asked(a_view(), a_process(), AllocationTerms(outside_pods=True))
    assert (answer.ruling, answer.text) == (AllocationRuling.UNKNOWN, "the kubelet's list is empty")


@pytest.mark.parametrize("reading", [Absent("no kubelet here"), Unreadable("it hangs")])
def test_without_a_list_all_is_unknown(reading: Absent | Unreadable) -> None:
    """The reading's own words are the answer."""
    process = a_pod_process()
    answer = allocation_of(process, GPU_A, with_list([process], reading), MONO)
    assert (answer.ruling, answer.text) == (AllocationRuling.UNKNOWN, reading.why)


def test_the_list_still_clears_somebody_where_it_may_not_convict() -> None:
    """After a restart, and beside a claim, a container that was given the GPU is allowed it."""
    view = replace(a_view(given("worker", GPU_A, claims=("team/x",))), steady_since=MONO)
    assert asked(view).ruling is AllocationRuling.ALLOWED
    assert asked(replace(view, read_at=MONO - 61.0)).ruling is AllocationRuling.UNKNOWN


def test_who_was_given_it_before_is_ending() -> None:
    """Case C92: an evicted pod stays in the list of older kubelets while its devices are taken from it."""
    view = a_view(given("worker"), OTHERS, formerly=(given("worker", GPU_A),))
    answer = asked(view)
    assert answer.ruling is AllocationRuling.UNKNOWN
    assert "it is ending" in answer.text
    other = a_view(given("worker"), OTHERS, formerly=(given("worker", GPU_A, pod="other-0"),))
    assert asked(other).ruling is AllocationRuling.UNALLOCATED


def test_two_pods_of_one_name_are_not_told_apart() -> None:
    """A pod made anew while a process of the old one lives: the list is about one of them."""
    old, new = a_pod_process(100), a_pod_process(101, pod_uid="00000000-c152-46b9-96e0-d57032629e1f")
    snapshot = with_list([old, new], THIEF)
    assert allocation_of(old, GPU_A, snapshot, MONO).ruling is AllocationRuling.UNKNOWN
    same = with_list([old, a_pod_process(101)], THIEF)
    assert allocation_of(old, GPU_A, same, MONO).ruling is AllocationRuling.UNALLOCATED


def test_static_pods_spared_namespaces_and_host_processes_by_the_terms() -> None:
    """Each is UNKNOWN unless the terms say otherwise; a host process is then convicted by its unit's name."""
    assert asked(THIEF, _static(a_pod_process()), AllocationTerms(static_pods=True)).ruling is (
        AllocationRuling.UNALLOCATED
    )
    spared = asked(THIEF, terms=AllocationTerms(spared_namespaces=("team",)))
    assert spared.ruling is AllocationRuling.UNKNOWN
    unit = a_process()
    assert asked(THIEF, unit).ruling is AllocationRuling.UNKNOWN
    answer = asked(THIEF, unit, AllocationTerms(outside_pods=True))
    assert answer.ruling is AllocationRuling.UNALLOCATED
    assert "train-100.service" in answer.text
    untrusted = replace(unit, workload=Workload(WorkloadKind.NONE, "no proven workload", trusted=False))
    assert asked(THIEF, untrusted, AllocationTerms(outside_pods=True)).ruling is AllocationRuling.UNKNOWN


@pytest.mark.parametrize(
    ("instance", "ruling"),
    [((3, 0), AllocationRuling.ALLOWED), ((4, 0), AllocationRuling.UNKNOWN),
     ((None, None), AllocationRuling.ALLOWED)],
)  # fmt: skip
def test_a_mig_device_is_given_by_its_instance(
    instance: tuple[int | None, int | None], ruling: AllocationRuling
) -> None:
    """Its own instance is allowed, another's is never a conviction; where NVML names none the GPU counts."""
    process = a_pod_process()
    row = a_row(100, gpu_instance=instance[0], compute_instance=instance[1])
    gpu = a_gpu(GPU_A, processes=[row], mig_devices=Known((MigDevice(MIG, 3, 0),)))
    snapshot = a_snapshot(gpus=[gpu], processes=[process], allocations=Known(a_view(given("worker", MIG))))
    answer = allocation_of(process, GPU_A, snapshot, MONO)
    assert answer.ruling is ruling
    assert answer.exclusive is (ruling is AllocationRuling.ALLOWED)


DEVICES = strategies.sampled_from(
    [GPU_A, GPU_B, REPLICA_A, f"{GPU_B}::0", MIG, "nvidia0", "nvidia1", "tegra"]
)
CONTAINERS = strategies.builds(
    lambda name, ids, pod, claims: given(name, *ids, pod=pod, claims=claims),
    strategies.sampled_from(["worker", "main"]),
    strategies.lists(DEVICES, max_size=2),
    strategies.sampled_from(["train-0", "other-0"]),
    strategies.sampled_from([(), (), ("team/x",)]),
)


@example(
    containers=strategies.lists(CONTAINERS, max_size=5),
    age=strategies.floats(0, 200),
    steady=strategies.floats(0, 300),
    shares=strategies.booleans(),
)
def test_nobody_is_convicted_who_was_given_it_or_where_anything_is_in_doubt(
    containers: list[ContainerAllocation], age: float, steady: float, *, shares: bool
) -> None:
    """Over lists of every make: UNALLOCATED only by a fresh, steady list that names the pod and no claim."""
    view = a_view(*containers, read_at=MONO - age, steady_since=MONO - steady)
    answer = asked(view, terms=AllocationTerms(pod_shares=shares))
    if answer.ruling is not AllocationRuling.UNALLOCATED:
        return
    pod = view.of_pod("team", "train-0")
    own = [one for one in pod if one.container == "worker"]
    ids = {device.id for one in (pod if shares else own) for device in one.devices}
    assert age <= 60
    assert steady >= 120
    assert pod
    assert not any(one.claims for one in pod)
    assert not ids & {GPU_A, REPLICA_A, "nvidia0", "tegra", MIG}


def test_where_the_driver_names_no_process_a_mig_device_stands_for_its_gpu() -> None:
    """A list of processes that can't be read convicts nobody."""
    gpu = a_gpu(GPU_A, processes=[], mig_devices=Known((MigDevice(MIG, 3, 0),)))
    snapshot = a_snapshot(
        gpus=[replace(gpu, processes=Unreadable("driver unresponsive"))],
        processes=[a_pod_process()],
        allocations=Known(a_view(given("worker", MIG))),
    )
    assert allocation_of(a_pod_process(), GPU_A, snapshot, MONO).ruling is AllocationRuling.ALLOWED
