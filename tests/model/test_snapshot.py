"""What a snapshot answers: by whole identity, never by pid alone."""

from dataclasses import fields

import pytest

from reclaimerd.model.process import (
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import (
    GpuReading,
    unreadable_gpu,
)
from tests.builders import (
    GPU_A,
    GPU_B,
    a_gpu,
    a_holder,
    a_process,
    a_ref,
    a_snapshot,
    a_task,
)

_READINGS = {"memory", "processes", "utilisation", "mig", "persistence", "recovery_action", "mig_devices"}


def test_a_process_is_found_by_its_whole_identity() -> None:
    """A stranger with the same pid is not it, and neither is nobody."""
    mine = a_process(100, start=5)
    snapshot = a_snapshot(processes=(mine,))
    assert snapshot.process(mine.ref) is mine
    assert snapshot.process(a_ref(100, 6)) is None
    assert snapshot.process(a_ref(101, 5)) is None


def test_a_gpu_is_found_by_its_uuid() -> None:
    """And one that was not seen is None."""
    first, second = a_gpu(GPU_A), a_gpu(GPU_B)
    assert a_snapshot(gpus=(first, second)).gpu(GPU_B) is second
    assert a_snapshot(gpus=(first,)).gpu(GPU_B) is None


def test_holders_are_found_by_gpu_and_gpus_by_holder() -> None:
    """A process may hold several GPUs, a GPU may have several holders; a stranger's pid counts for none."""
    both = (a_holder(100, GPU_A), a_holder(100, GPU_B))
    other = a_holder(200, GPU_A)
    snapshot = a_snapshot(holders=(*both, other))
    assert snapshot.holders_of(GPU_A) == (both[0], other)
    assert snapshot.gpus_of(a_ref(100)) == (GPU_A, GPU_B)
    assert snapshot.gpus_of(a_ref(100, start=9)) == ()


def test_a_blind_gpu_keeps_its_identity_and_nothing_else() -> None:
    """Every reading is unreadable with the reason; no old value survives."""
    seen = a_gpu(GPU_B, used=5)
    blind = unreadable_gpu(seen, "driver unresponsive")
    for field in fields(GpuReading):
        value = getattr(blind, field.name)
        if field.name in _READINGS:
            assert value == Unreadable("driver unresponsive")
        else:
            assert value == getattr(seen, field.name)


@pytest.mark.parametrize("state", list("RSDTtIZXx"))
@pytest.mark.parametrize("flags", [0, PF_EXITING, PF_POSTCOREDUMP])
def test_a_task_is_dead_by_letter_and_exiting_by_flag(state: str, flags: int) -> None:
    """Never both."""
    task = a_task(1, state, flags)
    assert task.is_dead is (state in "ZXx")
    assert task.is_exiting is (bool(flags) and state not in "ZXx")


def test_a_process_is_released_only_when_all_were_listed_and_are_dead() -> None:
    """The leader alone says nothing of its threads."""
    dead, leaving = a_task(100, "Z"), a_task(101, "D", PF_EXITING)
    assert a_process(tasks=(dead,)).is_released
    assert not a_process(tasks=(dead,), whole=False).is_released
    assert not a_process(tasks=(dead, leaving)).is_released
    assert a_process(tasks=(dead, leaving)).is_leaving
    assert not a_process(tasks=(dead, a_task(101))).is_leaving
