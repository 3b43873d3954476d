"""Progress is what was let go; what can't be read is neither progress nor its end."""

from dataclasses import replace

import pytest

from reclaimerd.judge.release import release_of, released_since
from reclaimerd.model.incident import Release
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import GpuReading
from tests.builders import (
    GIB,
    MONO,
    a_busy_snapshot,
    a_gpu,
    a_process,
    a_row,
    a_snapshot,
    a_target,
    a_task,
    an_incident,
)

_MARK = Release(tasks=3, gpu_bytes=8 * GIB, at=MONO - 50)


def test_it_counts_living_tasks_and_listed_bytes_of_its_own_processes_only() -> None:
    """A dead task, another process's row and another GPU's row count nothing."""
    mine = a_process(100, tasks=(a_task(100, "Z"), a_task(101), a_task(102)))
    gpus = (
        a_gpu(processes=(a_row(100, 2 * GIB), a_row(200, 5 * GIB))),
        a_gpu("GPU-other", processes=(a_row(100, 7 * GIB),)),
    )
    snapshot = a_snapshot(gpus=gpus, processes=(mine, a_process(200)))
    assert release_of(an_incident(a_target(mine)), snapshot) == Release(2, 2 * GIB, MONO)


def test_a_process_read_by_its_leader_counts_all_the_threads_it_says_it_has() -> None:
    """Reading fewer tasks is no release."""
    mine = a_process(100, thread_count=40, whole=False)
    found = release_of(an_incident(a_target(mine)), a_busy_snapshot(mine))
    assert found == Release(40, 8 * GIB, MONO)


def test_one_that_is_proven_gone_counts_nothing() -> None:
    """A member's end is the greatest release of all."""
    one, two = a_process(100), a_process(101)
    snapshot = a_busy_snapshot(two, exited=frozenset({one.ref}))
    assert release_of(an_incident(a_target(one, two)), snapshot) == Release(1, 8 * GIB, MONO)


def test_a_process_that_can_not_be_read_is_taken_as_it_was() -> None:
    """Unknown is never zero: else one failed look would pass for progress and hide the later ones."""
    incident = an_incident(release=_MARK)
    blind = a_snapshot(gpus=(a_gpu(processes=(a_row(100),)),), unreadable={100: "no answer"})
    found = release_of(incident, blind)
    assert found == Release(3, 8 * GIB, MONO)
    assert not released_since(_MARK, found)


@pytest.mark.parametrize(
    "gpus",
    [
        (replace(a_gpu(), processes=Unreadable("silent")),),
        (a_gpu(processes=(a_row(100, used_bytes=Unreadable("no figure")),)),),
        (),
    ],
    ids=["list unreadable", "figure unreadable", "GPU vanished"],
)
def test_a_silent_driver_leaves_the_bytes_as_they_were(gpus: tuple[GpuReading, ...]) -> None:
    """An unreadable list, an unreadable figure and a vanished GPU are no release of memory."""
    mine = a_process(100, tasks=(a_task(100), a_task(101), a_task(102)))
    incident = an_incident(a_target(mine), release=_MARK)
    assert release_of(incident, a_snapshot(gpus=gpus, processes=(mine,))) == Release(3, 8 * GIB, MONO)


def test_without_a_mark_what_can_not_be_read_sets_none() -> None:
    """The first mark is a whole one: half of it would make the next whole look seem progress or growth."""
    mine = a_process(100)
    incident = an_incident(a_target(mine))
    assert release_of(incident, a_snapshot(gpus=(a_gpu(processes=(a_row(100),)),))) is None
    assert release_of(incident, a_snapshot(gpus=(), processes=(mine,))) is None


@pytest.mark.parametrize(
    ("tasks", "gpu_bytes", "expected"),
    [(3, 8, False), (2, 8, True), (3, 7, True), (2, 9, True), (4, 7, True), (4, 9, False), (3, 9, False)],
)
def test_fewer_tasks_or_fewer_bytes_are_progress(tasks: int, gpu_bytes: int, *, expected: bool) -> None:
    """Either is enough; growth and standstill are none."""
    before = Release(3, 8, MONO)
    assert released_since(before, Release(tasks, gpu_bytes, MONO + 1)) is expected
