"""What proves that a target is gone and its memory back, and everything that does not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.proof import (
    TOLERANCE_BYTES,
    Proven,
    StillHeld,
    Unmeasured,
    finding_of,
    heirs_of,
    memory_is_back,
    tolerance_bytes,
)
from reclaimerd.model.incident import Incident, ProofKind
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import (
    GpuReading,
    Holder,
    Snapshot,
)
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    a_gpu,
    a_holder,
    a_process,
    a_ref,
    a_row,
    a_snapshot,
    a_target,
    an_incident,
)

_MINE = a_process(100)
_ME = _MINE.ref


def _after(gpu: GpuReading, *holders: Holder, **overrides: object) -> Snapshot:
    """Return a look in which the target (pid 100) is gone and its GPU reads like this."""
    fields: dict[str, object] = {"exited": frozenset({_ME}), **overrides}
    return a_snapshot(gpus=(gpu,), holders=holders, **fields)  # type: ignore[arg-type]  # free overrides


def _gone(gpu: GpuReading, *holders: Holder, **overrides: object) -> object:
    return finding_of(an_incident(a_target(_MINE)), _after(gpu, *holders, **overrides))


@pytest.mark.parametrize(
    ("gpu", "back"),
    [
        (a_gpu(used=0), True),
        (a_gpu(processes=(a_row(7, GIB),)), True),
        (a_gpu(used=GIB), False),
        (a_gpu(used=2 * GIB, processes=(a_row(7, GIB),)), False),
        (a_gpu(memory=Unreadable("slow")), False),
        (a_gpu(processes=()), True),
        (replace(a_gpu(), processes=Unreadable("slow")), False),
        (a_gpu(GPU_B), False),
    ],
)
def test_memory_is_back_when_its_processes_account_for_all_of_it(gpu: GpuReading, *, back: bool) -> None:
    """What can't be read, or is not there, is not back."""
    assert memory_is_back(GPU_A, a_snapshot(gpus=(gpu,))) is back


def test_a_gone_target_whose_gpu_is_empty_is_proven_exclusive() -> None:
    """One reading is enough when nobody else is on the GPU."""
    found = _gone(a_gpu(used=0))
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.EXCLUSIVE
    assert found.proof.residual_bytes == ((GPU_A, 0),)


def test_a_living_member_is_no_proof_although_the_memory_is_back() -> None:
    """A fall in used memory alone is never proof."""
    incident = an_incident(a_target(_MINE, a_process(101)))
    found = finding_of(incident, _after(a_gpu(used=0)))
    assert found == StillHeld("1 of 2 processes not gone")


def test_an_heir_is_no_proof_and_is_named() -> None:
    """The context lives on in a remembered descendant."""
    heir = a_holder(a_ref(300), listed=False, heir_of=_ME)
    snapshot = _after(a_gpu(processes=(a_row(100),)), heir)
    incident = an_incident(a_target(_MINE))
    assert heirs_of(incident, snapshot) == (heir,)
    found = finding_of(incident, snapshot)
    assert isinstance(found, StillHeld)
    assert "300@1" in found.why


def test_an_heir_that_joined_and_somebody_elses_heir_are_no_further_heirs() -> None:
    """Only living strangers to the incident that inherited from it count."""
    joined = a_holder(a_ref(300), heir_of=_ME)
    other = a_holder(a_ref(301), heir_of=a_ref(77))
    plain = a_holder(a_ref(302))
    incident = an_incident(a_target(_MINE), survivors=(a_ref(300),))
    assert heirs_of(incident, a_snapshot(holders=(joined, other, plain))) == ()


def test_a_pid_that_nvml_still_lists_is_no_proof() -> None:
    """The driver has not let go of it yet."""
    found = _gone(a_gpu(processes=(a_row(100),)))
    assert found == StillHeld(f"{GPU_A}: NVML still lists 100")


def test_a_stranger_with_the_targets_pid_that_holds_does_not_block_the_proof() -> None:
    """The row is the stranger's own: it has the node open."""
    stranger = a_process(100, start=999)
    gpu = a_gpu(processes=(a_row(100, 3 * GIB),))
    found = _gone(gpu, a_holder(stranger, used=3 * GIB), processes=(stranger,))
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.SHARED


def test_a_stranger_with_the_targets_pid_that_has_no_node_proves_nothing() -> None:
    """The row may still be the dead target's: an innocent process got the pid, and the memory is not back."""
    stranger = a_process(100, start=999)
    gpu = a_gpu(processes=(a_row(100, 8 * GIB),))
    assert isinstance(_gone(gpu, processes=(stranger,)), StillHeld)
    listed_only = a_holder(stranger, node=False)
    assert isinstance(_gone(gpu, listed_only, processes=(stranger,)), StillHeld)


def test_a_stranger_that_holds_another_gpu_proves_nothing_here() -> None:
    """What a stranger has open elsewhere says nothing of this GPU's row."""
    stranger = a_process(100, start=999)
    gpu = a_gpu(processes=(a_row(100, 8 * GIB),))
    assert isinstance(_gone(gpu, a_holder(stranger, GPU_B), processes=(stranger,)), StillHeld)


def test_memory_that_is_not_back_while_nobody_is_seen_is_still_held() -> None:
    """Somebody holds it whom we don't see: that is no release, and no doubt about the figure."""
    found = _gone(a_gpu(used=8 * GIB))
    assert isinstance(found, StillHeld)
    assert str(8 * GIB) in found.why


@pytest.mark.parametrize(("over", "proven"), [(0, True), (1, False)])
@pytest.mark.parametrize("total", [8 * GIB, 80 * GIB])
def test_the_tolerance_is_exact(over: int, total: int, *, proven: bool) -> None:
    """At the tolerance it is back, one byte above it is not, on a large GPU and on a small one."""
    used = tolerance_bytes(total) + over
    assert isinstance(_gone(a_gpu(used=used, total=total)), Proven) is proven


def test_the_tolerance_is_the_larger_of_its_two_figures() -> None:
    """64 MiB at least, 0.5 % of a large GPU."""
    assert tolerance_bytes(GIB) == TOLERANCE_BYTES
    assert tolerance_bytes(1000 * GIB) == 5 * GIB


def test_the_baseline_is_taken_off() -> None:
    """What the driver itself uses is not the target's."""
    gpu = a_gpu(used=2 * GIB)
    assert isinstance(_gone(gpu), StillHeld)
    found = _gone(gpu, baselines={GPU_A: 2 * GIB})
    assert isinstance(found, Proven)
    assert found.proof.residual_bytes == ((GPU_A, 0),)


def test_others_on_the_gpu_make_the_proof_shared() -> None:
    """Their own figures must account for all that is used."""
    gpu = a_gpu(processes=(a_row(200, 5 * GIB),))
    found = _gone(gpu, a_holder(200, used=5 * GIB))
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.SHARED


def test_a_holder_that_is_not_listed_makes_the_gpu_shared_too() -> None:
    """It may allocate between two looks."""
    found = _gone(a_gpu(used=0), a_holder(200, listed=False, used_bytes=Absent("not listed")))
    assert isinstance(found, Proven)
    assert found.proof.kind is ProofKind.SHARED


def test_a_monitor_that_only_has_the_node_open_accounts_for_nothing() -> None:
    """Nobody is listed, so no context could hold what is used: it is still held, and no mere doubt."""
    monitor = a_holder(200, listed=False, used_bytes=Absent("not listed"))
    found = _gone(a_gpu(used=8 * GIB), monitor)
    assert isinstance(found, StillHeld)
    assert f"{8 * GIB} bytes are still used and no context accounts for them" in found.why
    assert isinstance(_gone(a_gpu(used=8 * GIB), monitor, baselines={GPU_A: 8 * GIB}), Proven)


def test_more_than_the_others_account_for_is_unmeasured_on_a_shared_gpu() -> None:
    """They may have allocated meanwhile: inconclusive, never RECLAIMED."""
    gpu = a_gpu(used=7 * GIB, processes=(a_row(200, 5 * GIB),))
    found = _gone(gpu, a_holder(200, used=5 * GIB))
    assert isinstance(found, Unmeasured)
    assert found.proof.kind is ProofKind.RELEASED_UNMEASURED
    assert found.proof.residual_bytes == ((GPU_A, 2 * GIB),)


def test_others_that_account_for_more_than_is_used_prove_nothing() -> None:
    """Memory that is counted twice would hide just as much that the target left behind."""
    gpu = a_gpu(used=10 * GIB, processes=(a_row(200, 9 * GIB), a_row(201, 9 * GIB)))
    assert isinstance(_gone(gpu, a_holder(200), a_holder(201)), Unmeasured)


def test_a_small_surplus_of_the_others_is_within_their_own_tolerance() -> None:
    """The lists and the total are read at two instants: 5 % between them is no contradiction."""
    gpu = a_gpu(used=20 * GIB, processes=(a_row(200, 21 * GIB),))
    assert isinstance(_gone(gpu, a_holder(200)), Proven)


def test_an_unreadable_neighbour_leaves_it_unmeasured() -> None:
    """Its share of what is used is unknown."""
    gpu = a_gpu(used=0, processes=(a_row(200, used_bytes=Unreadable("no permission")),))
    assert isinstance(_gone(gpu, a_holder(200)), Unmeasured)


@pytest.mark.parametrize(
    "gpu",
    [
        replace(a_gpu(used=0), memory=Unreadable("lost")),
        replace(a_gpu(used=0), memory=Absent("v2 is not offered")),
        replace(a_gpu(used=0), processes=Unreadable("driver unresponsive")),
        replace(a_gpu(used=0), processes=Absent("not offered")),
    ],
    ids=["memory unreadable", "memory absent", "lists unreadable", "lists absent"],
)
def test_what_can_not_be_read_is_unmeasured(gpu: GpuReading) -> None:
    """Gone, and the memory can't be shown to be back: never RECLAIMED."""
    assert isinstance(_gone(gpu), Unmeasured)


def test_a_gpu_that_vanished_is_unmeasured() -> None:
    """It is not there to be read."""
    found = finding_of(an_incident(a_target(_MINE)), _after(a_gpu(GPU_B, used=0)))
    assert isinstance(found, Unmeasured)
    assert GPU_A in found.proof.text


def test_a_target_without_a_known_gpu_is_unmeasured() -> None:
    """There is no figure that could prove anything."""
    found = finding_of(an_incident(a_target(_MINE, gpus=())), _after(a_gpu(used=0)))
    assert isinstance(found, Unmeasured)


def _on_two(first: GpuReading, second: GpuReading, *holders: Holder) -> object:
    incident = an_incident(a_target(_MINE, gpus=(GPU_A, GPU_B)))
    snapshot = a_snapshot(gpus=(first, second), holders=holders, exited=frozenset({_ME}))
    return finding_of(incident, snapshot)


def test_of_two_gpus_the_gravest_finding_counts() -> None:
    """Held before unmeasured, unmeasured before proven, shared before exclusive."""
    free, blind = a_gpu(used=0), replace(a_gpu(used=0), memory=Unreadable("lost"))
    free_b, held_b = a_gpu(GPU_B, used=0), a_gpu(GPU_B, used=9 * GIB)
    assert isinstance(_on_two(blind, held_b), StillHeld)
    assert isinstance(_on_two(blind, free_b), Unmeasured)
    both = _on_two(free, free_b)
    assert isinstance(both, Proven)
    assert both.proof.kind is ProofKind.EXCLUSIVE
    assert both.proof.residual_bytes == ((GPU_A, 0), (GPU_B, 0))
    one_shared = _on_two(free, a_gpu(GPU_B, processes=(a_row(200, GIB),)), a_holder(200, GPU_B, used=GIB))
    assert isinstance(one_shared, Proven)
    assert one_shared.proof.kind is ProofKind.SHARED


_READINGS = st.sampled_from(["known", "unreadable", "absent"])


def _as(kind: str, value: object) -> object:
    if kind == "known":
        return Known(value)
    return Unreadable("x") if kind == "unreadable" else Absent("x")


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[Incident, Snapshot]:
    """Draw an incident of one to three processes, and any look at its GPU and at others."""
    members = tuple(a_process(100 + number) for number in range(draw(st.integers(1, 3))))
    refs = [member.ref for member in members]
    exited = frozenset(draw(st.sets(st.sampled_from(refs))))
    if draw(st.booleans()):
        exited = frozenset(refs)
    heir_of = draw(st.none() | st.sampled_from(refs))
    holders = (a_holder(a_ref(300), heir_of=heir_of, listed=False),) if draw(st.booleans()) else ()
    rows = tuple(
        a_row(pid, used_bytes=_as(draw(_READINGS), draw(st.integers(0, 20 * GIB))))
        for pid in draw(st.sets(st.sampled_from([100, 101, 200, 201])))
    )
    gpu = a_gpu(used=draw(st.integers(0, 80 * GIB)), processes=rows)
    if draw(_READINGS) != "known":
        gpu = replace(gpu, memory=Unreadable("x"))
    if draw(_READINGS) != "known":
        gpu = replace(gpu, processes=Absent("x"))
    baselines = {GPU_A: draw(st.integers(0, GIB))}
    snapshot = a_snapshot(
        gpus=(gpu,) if draw(st.integers(0, 9)) else (), holders=holders, exited=exited, baselines=baselines
    )
    return an_incident(a_target(*members)), snapshot


@given(_worlds())
def test_nothing_is_proven_while_anything_is_left_or_unreadable(world: tuple[Incident, Snapshot]) -> None:
    """Proven means: all gone, no heir, nothing of it listed, and every figure was read and adds up."""
    incident, snapshot = world
    found = finding_of(incident, snapshot)
    gpu = snapshot.gpu(GPU_A)
    if not isinstance(found, Proven):
        return
    assert set(incident.processes) <= snapshot.exited
    assert not any(holder.heir_of in incident.processes for holder in snapshot.holders)
    assert gpu is not None
    assert isinstance(gpu.memory, Known)
    assert isinstance(gpu.processes, Known)
    figures = [row.used_bytes for row in gpu.processes.value]
    assert all(isinstance(figure, Known) for figure in figures)
    assert not {row.pid for row in gpu.processes.value} & {ref.pid for ref in incident.processes}
    others = sum(figure.value for figure in figures if isinstance(figure, Known))
    most = others + snapshot.baselines[GPU_A] + tolerance_bytes(gpu.memory.value.total_bytes)
    assert gpu.memory.value.used_bytes <= most
