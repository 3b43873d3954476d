"""Short builders of the kubelet's list and of processes in pods, for tests of what was given to whom."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reclaimerd.model.allocation import AllocatedDevice, AllocationView, ContainerAllocation
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Known, Reading
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GPU_A, GPU_B, MONO, a_busy_snapshot, a_process

POD_UID = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
CONTAINER_ID = "c" * 64
UNIT_GPU = "nvidia.com/gpu"


def a_pod_process(pid: int = 100, container: str = "worker", **names: Any) -> ProcessReading:
    """Return a process of `team/train-0/worker`, ten minutes old."""
    known = replace(
        WorkloadNames(namespace="team", pod="train-0", pod_uid=POD_UID, container=container), **names
    )
    path = f"/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice"
    workload = Workload(WorkloadKind.POD, "team/train-0", path=path, container_id=CONTAINER_ID, names=known)
    return a_process(pid, workload=workload, age_seconds=600.0)


def given(
    container: str = "worker", *ids: str, pod: str = "train-0", resource: str = UNIT_GPU, **fields: Any
) -> ContainerAllocation:
    """Return one container of the list with these devices."""
    devices = tuple(AllocatedDevice(resource, one) for one in ids)
    return replace(ContainerAllocation("team", pod, container, devices), **fields)


def a_view(*containers: ContainerAllocation, **overrides: Any) -> AllocationView:
    """Return a list that was read 5 s ago from a kubelet that has run for an hour."""
    return replace(AllocationView(MONO - 5.0, containers, MONO - 3600.0), **overrides)


def with_list(
    readings: Iterable[ProcessReading], allocations: Reading[AllocationView] | AllocationView
) -> Snapshot:
    """Return a look in which each of these processes holds 8 GiB of GPU A, and the kubelet said this."""
    reading = Known(allocations) if isinstance(allocations, AllocationView) else allocations
    return a_busy_snapshot(*readings, allocations=reading)


OTHERS = given("main", GPU_B, pod="other-0")
"""Somebody else's container with a GPU of its own."""
REPLICA_A = f"{GPU_A}::3"
