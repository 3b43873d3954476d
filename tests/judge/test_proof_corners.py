"""Corners of the proof that a changed line would pass through unseen; docs/mutation.md tells of them."""

from dataclasses import replace

from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.judge.proof import Proven, StillHeld, Unmeasured, finding_of, tolerance_bytes
from reclaimerd.model.incident import ProofKind, Subject
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import DriverReading, DriverState
from tests.builders import (
    GIB,
    MONO,
    a_gpu,
    a_holder,
    a_process,
    a_ref,
    a_row,
    a_snapshot,
    a_target,
    an_incident,
)

ME = a_process()
GONE = frozenset({ME.ref})


def test_the_tolerance_is_64_mib_or_half_a_percent() -> None:
    """To the byte; whichever is more."""
    assert tolerance_bytes(GIB) == 64 * 1024 * 1024
    assert tolerance_bytes(200 * GIB) == GIB


def test_one_that_held_no_gpu_is_unmeasured_and_says_so() -> None:
    """There is no memory that could be back."""
    found = finding_of(an_incident(a_target(ME, gpus=())), a_snapshot(exited=GONE))
    assert isinstance(found, Unmeasured)
    assert found.proof.text == "it held no GPU that is known"


def test_a_row_of_the_target_is_no_strangers_though_the_look_still_has_its_node() -> None:
    """Only somebody else who got the pid makes such a row his own."""
    gpu = a_gpu(processes=(a_row(100),))
    look = a_snapshot(gpus=(gpu,), holders=(a_holder(ME),), exited=GONE)
    found = finding_of(an_incident(a_target(ME)), look)
    assert isinstance(found, StillHeld)
    assert "NVML still lists 100" in found.why


def test_memory_of_one_whom_only_nvml_lists_makes_a_gpu_shared() -> None:
    """A second reading must agree, though nobody was seen with the node open."""
    look = a_snapshot(gpus=(a_gpu(processes=(a_row(300),)),), exited=GONE)
    found = finding_of(an_incident(a_target(ME)), look)
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.SHARED


def test_a_load_that_can_not_be_read_is_no_latch_and_no_obstacle() -> None:
    """The memory proves it all the same."""
    idle = replace(a_gpu(), utilisation=Unreadable("no"))
    found = finding_of(an_incident(a_target(ME)), a_snapshot(gpus=(idle,), exited=GONE))
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.EXCLUSIVE
    assert "busy" not in found.proof.text
    assert isinstance(idle.memory, Known)


def test_a_silent_driver_without_evidence_has_nothing_behind_the_seconds() -> None:
    """The sentence ends where nothing more is known."""
    silent = DriverReading(DriverState.UNRESPONSIVE, MONO - 900, "no answer")
    watch = an_incident(a_target(members=(), root=a_ref(0, 0)), subject=Subject.DRIVER)
    found = drain_reason_of(watch, a_snapshot(driver=silent))
    assert found is not None
    assert found.text == "driver unresponsive for 900 s"
