"""What counts as a GPU's own use: never memory that somebody may have left behind."""

from dataclasses import replace

import pytest

from reclaimerd.model.memory import Baseline
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import (
    GpuReading,
    HostGpus,
)
from reclaimerd.observe.baselines import Baselines
from tests.builders import BOOT, GIB, GPU_A, GPU_B, a_gpu, a_row


def _host(*gpus: GpuReading, driver: str = "595") -> HostGpus:
    return HostGpus(driver, gpus, ())


def _learn(
    known: Baselines,
    *gpus: GpuReading,
    held: tuple[str, ...] = (),
    may_begin: bool = True,
    driver: str = "595",
) -> dict[str, int]:
    known.learn(
        BOOT, _host(*gpus, driver=driver), {gpu.uuid for gpu in gpus if gpu.uuid in held}, may_begin=may_begin
    )
    return {str(uuid): used for uuid, used in known.used_bytes().items()}


def test_an_idle_gpu_sets_it_and_only_a_lower_figure_changes_it() -> None:
    """The least that was seen."""
    known = Baselines()
    assert _learn(known, a_gpu(used=300)) == {GPU_A: 300}
    assert _learn(known, a_gpu(used=900)) == {GPU_A: 300}
    assert _learn(known, a_gpu(used=100)) == {GPU_A: 100}


def test_memory_left_behind_by_a_dead_holder_never_becomes_the_baseline() -> None:
    """Started on a busy GPU: what is still used once its holder died would else prove its own release."""
    known = Baselines()
    assert _learn(known, a_gpu(processes=(a_row(100),))) == {}
    assert _learn(known, a_gpu(used=8 * GIB)) == {}
    assert _learn(known, a_gpu(used=0)) == {}


def test_a_holder_that_nvml_does_not_list_counts_as_well() -> None:
    """Somebody has its node open."""
    known = Baselines()
    assert _learn(known, a_gpu(used=GIB), held=(GPU_A,)) == {}
    assert _learn(known, a_gpu(used=GIB)) == {}


def test_an_old_baseline_may_fall_after_the_gpu_was_held_and_never_rise() -> None:
    """Falling is always safe."""
    known = Baselines()
    _learn(known, a_gpu(used=300))
    assert _learn(known, a_gpu(used=8, processes=(a_row(100, 8),))) == {GPU_A: 300}
    assert _learn(known, a_gpu(used=8 * GIB)) == {GPU_A: 300}
    assert _learn(known, a_gpu(used=200)) == {GPU_A: 200}


def test_none_is_begun_while_a_target_is_watched_or_nothing_was_searched() -> None:
    """Its memory may be among what is used; unseen holders may be too."""
    known = Baselines()
    assert _learn(known, a_gpu(used=300), may_begin=False) == {}
    assert _learn(known, a_gpu(used=300)) == {GPU_A: 300}


@pytest.mark.parametrize(
    "gpu",
    [
        replace(a_gpu(used=5), memory=Unreadable("lost")),
        replace(a_gpu(used=5), processes=Unreadable("silent")),
    ],
)
def test_what_can_not_be_read_teaches_nothing(gpu: GpuReading) -> None:
    """Neither a figure nor that nobody is there."""
    known = Baselines()
    assert _learn(known, gpu) == {}


def test_a_list_that_could_not_be_read_may_have_hidden_a_holder() -> None:
    """After it, no first baseline is learnt on that GPU."""
    known = Baselines()
    _learn(known, replace(a_gpu(used=5), processes=Unreadable("silent")))
    assert _learn(known, a_gpu(used=8 * GIB)) == {}


@pytest.mark.parametrize(
    "changed",
    [a_gpu(used=500, mig=Known(value=True)), a_gpu(used=500, persistence=Known(value=False))],
    ids=["mig", "persistence"],
)
def test_it_is_void_when_the_mode_changes(changed: GpuReading) -> None:
    """Another mode has another use of its own: the higher figure is taken as new."""
    known = Baselines()
    _learn(known, a_gpu(used=300))
    assert _learn(known, changed) == {GPU_A: 500}
    busy = replace(changed, processes=Known((a_row(100),)))
    _learn(known, busy)
    assert _learn(known, a_gpu(used=300)) == {}, "void, and the GPU was held: no new one"


def test_it_is_void_when_the_driver_changes() -> None:
    """The same for another driver."""
    known = Baselines()
    _learn(known, a_gpu(used=300))
    assert _learn(known, a_gpu(used=500), driver="600") == {GPU_A: 500}


def test_gpus_are_learnt_apart() -> None:
    """A holder on one says nothing of the other."""
    known = Baselines()
    assert _learn(known, a_gpu(processes=(a_row(100),)), a_gpu(GPU_B, used=7)) == {GPU_B: 7}


def test_what_was_stored_is_taken_and_given_back() -> None:
    """With the GPUs that were held before our start: on those none is begun."""
    known = Baselines()
    kept = Baseline(GPU_B, f"{BOOT}/595/{a_gpu().mig}/{a_gpu().persistence}", 40)
    known.recall((kept,), {GPU_A})
    assert known.all() == (kept,)
    assert _learn(known, a_gpu(used=8 * GIB), a_gpu(GPU_B, used=90)) == {GPU_B: 40}
