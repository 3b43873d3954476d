"""Who holds what: two sources joined, the dying remembered, the dead told from the strangers."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from reclaimerd.model.identity import DeviceNumber, GpuUuid, ProcessRef
from reclaimerd.model.memory import RememberedHolder
from reclaimerd.model.process import (
    PF_EXITING,
    NodeHolding,
    ProcessLook,
    ProcessReading,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import GpuReading
from reclaimerd.observe import holder_memory
from reclaimerd.observe.holder_memory import Joined, Memory, Seen, joined, listed_bytes
from tests.builders import GIB, GPU_A, GPU_B, a_gpu, a_process, a_ref, a_row, a_task, a_workload

_A, _B = DeviceNumber(195, 0), DeviceNumber(195, 1)
_CTL = DeviceNumber(195, 255)
_OTHER = DeviceNumber(1, 3)
_WORKLOAD = a_workload()


def _process(pid: int, start: int = 1, **overrides: object) -> ProcessReading:
    """Return a process in the one workload of these tests."""
    fields: dict[str, object] = {"workload": _WORKLOAD, **overrides}
    return a_process(pid, start, **fields)


def _look(reading: ProcessReading | int, *devices: DeviceNumber, mapped: bool = False) -> ProcessLook:
    found = _process(reading) if isinstance(reading, int) else reading
    return ProcessLook(found, Known(tuple(NodeHolding(device, mapped) for device in devices)))


def _leaving(pid: int) -> ProcessLook:
    """Return a process in its exit path: its descriptors are gone, its memory is not."""
    return _look(_process(pid, tasks=(a_task(pid, "D", PF_EXITING),)))


def _zombie(pid: int) -> ProcessLook:
    return _look(_process(pid, tasks=(a_task(pid, "Z", PF_EXITING),)))


def _join(
    gpus: Iterable[GpuReading],
    *looks: ProcessLook,
    memory: Memory | None = None,
    unreadable: dict[int, str] | None = None,
) -> Joined:
    by_pid = {look.reading.ref.pid: look for look in looks}
    seen = Seen(tuple(gpus), frozenset({_CTL}), by_pid, unreadable or {})
    return joined(seen, memory or {})


def _remembered(
    ref: ProcessRef, gpu: str = GPU_A, used: int | None = 8 * GIB, ancestors: tuple[ProcessRef, ...] = ()
) -> dict[tuple[ProcessRef, GpuUuid], RememberedHolder]:
    uuid = GpuUuid(gpu)
    return {(ref, uuid): RememberedHolder(ref, uuid, 1000, _WORKLOAD.path, ancestors, used)}


_BLIND = replace(a_gpu(), processes=Unreadable("driver unresponsive"))


# --- two sources -----------------------------------------------------------------------------------


def test_a_holder_says_which_source_showed_it() -> None:
    """Listed, or its node open, or both: one alone is not two."""
    gpu = a_gpu(processes=(a_row(100, 2 * GIB), a_row(101, GIB)))
    found = _join([gpu], _look(100, _A), _look(101), _look(102, _A, mapped=True), _look(103, _OTHER))
    seen = [(holder.ref.pid, holder.listed, holder.node) for holder in found.holders]
    assert seen == [(100, True, True), (101, True, False), (102, False, True)]
    assert found.holders[0].used_bytes == Known(2 * GIB)
    assert isinstance(found.holders[2].used_bytes, Absent)
    assert not any(holder.remembered or holder.shared_node_only for holder in found.holders)


def test_a_process_on_two_gpus_is_two_holdings_with_their_own_figures() -> None:
    """Ordered by GPU, then pid."""
    gpus = (a_gpu(GPU_A, processes=(a_row(100, GIB),)), a_gpu(GPU_B, processes=(a_row(100, 3 * GIB),)))
    found = _join(gpus, _look(100, _A, _B))
    assert [(holder.gpu, holder.used_bytes) for holder in found.holders] == [
        (GPU_A, Known(GIB)),
        (GPU_B, Known(3 * GIB)),
    ]


def test_one_that_has_only_a_shared_node_may_hold_every_gpu() -> None:
    """By nvidiactl or nvidia-uvm alone; with a GPU's own node it holds that one only."""
    gpus = (a_gpu(GPU_A), a_gpu(GPU_B))
    both = _join(gpus, _look(100, _CTL)).holders
    assert [(holder.gpu, holder.shared_node_only) for holder in both] == [(GPU_A, True), (GPU_B, True)]
    one = _join(gpus, _look(100, _CTL, _B)).holders
    assert [(holder.gpu, holder.node, holder.shared_node_only) for holder in one] == [(GPU_B, True, False)]


def test_several_rows_of_one_pid_add_up_unless_one_is_unreadable() -> None:
    """Compute and graphics, or MIG instances; None is unreadable and never 0."""
    gpu = a_gpu(processes=(a_row(100, GIB), a_row(100, 2 * GIB), a_row(101, GIB)))
    assert listed_bytes(gpu, 100) == Known(3 * GIB)
    assert listed_bytes(gpu, 102) is None
    partly = a_gpu(processes=(a_row(100, GIB), a_row(100, used_bytes=Unreadable("None"))))
    assert isinstance(listed_bytes(partly, 100), Unreadable)
    assert listed_bytes(_BLIND, 100) is None


# --- memory ----------------------------------------------------------------------------------------


def test_a_healthy_holder_is_remembered_with_what_it_held() -> None:
    """Uid, workload and bytes: a dying task shows none of it."""
    found = _join([a_gpu(processes=(a_row(100, 2 * GIB),))], _look(100, _A))
    assert found.memory == _remembered(a_ref(100), used=2 * GIB)


def test_an_exiting_holder_that_shows_nothing_still_holds() -> None:
    """Remembered, its bytes unreadable and said in words; and it stays remembered."""
    memory = _remembered(a_ref(100))
    found = _join([a_gpu()], _leaving(100), memory=memory)
    (holder,) = found.holders
    assert (holder.ref, holder.remembered, holder.listed, holder.node) == (a_ref(100), True, False, False)
    assert isinstance(holder.used_bytes, Unreadable)
    assert str(8 * GIB) in holder.used_bytes.why
    assert found.memory == memory


def test_an_exiting_process_that_was_never_a_holder_is_none() -> None:
    """Somebody else's exit is not our matter."""
    assert _join([a_gpu()], _leaving(100)).holders == ()


def test_an_exiting_holder_that_is_first_seen_then_is_not_taken_for_healthy() -> None:
    """Its uid and workload may already be gone: it holds, and is not remembered as it looks now."""
    found = _join([a_gpu(processes=(a_row(100),))], _leaving(100))
    assert [holder.listed for holder in found.holders] == [True]
    assert found.memory == {}


@pytest.mark.parametrize("used", [None, 5])
def test_one_that_can_not_be_read_still_holds(used: int | None) -> None:
    """Neither its descriptors nor itself: unreadable is not gone."""
    memory = _remembered(a_ref(100), used=used)
    itself = _join([a_gpu()], memory=memory, unreadable={100: "no answer"})
    nodes = ProcessLook(_process(100), Unreadable("no permission"))
    its_nodes = _join([a_gpu()], nodes, memory=memory)
    for found in (itself, its_nodes):
        assert [holder.remembered for holder in found.holders] == [True]
        assert isinstance(found.holders[0].used_bytes, Unreadable)
        assert found.memory == memory


@pytest.mark.parametrize(
    "look",
    [_look(100), _zombie(100), _look(_process(100, 7))],
    ids=["let go", "released", "a stranger's pid"],
)
def test_one_that_is_readable_and_shows_nothing_is_no_holder_any_more(look: ProcessLook) -> None:
    """Nor is it remembered longer."""
    found = _join([a_gpu()], look, memory=_remembered(a_ref(100)))
    assert found.holders == ()
    assert found.memory == {}


def test_a_figure_that_became_unreadable_leaves_the_last_one_in_memory() -> None:
    """And a new figure replaces it."""
    memory = _remembered(a_ref(100), used=8 * GIB)
    blind = _join([a_gpu(processes=(a_row(100, used_bytes=Unreadable("x")),))], _look(100, _A), memory=memory)
    assert blind.memory == memory
    less = _join([a_gpu(processes=(a_row(100, GIB),))], _look(100, _A), memory=memory)
    assert less.memory == _remembered(a_ref(100), used=GIB)


def test_a_flood_of_holders_pushes_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound newcomers are not remembered; all are holders all the same."""
    monkeypatch.setattr(holder_memory, "MOST_REMEMBERED", 2)
    old = _look(500, _A)
    before = _join([a_gpu()], old).memory
    found = _join([a_gpu()], *(_look(pid, _A) for pid in (100, 101, 102)), old, memory=before)
    assert len(found.holders) == 4
    assert [ref.pid for ref, _ in found.memory] == [500, 100]


# --- a silent driver -------------------------------------------------------------------------------


def test_while_the_driver_is_silent_nobody_is_known_to_have_let_go() -> None:
    """A remembered holder without a visible node is no holder only when the list says so too."""
    memory = _remembered(a_ref(100))
    found = _join([_BLIND], _look(100), memory=memory)
    assert [(holder.remembered, holder.listed) for holder in found.holders] == [(True, False)]
    assert found.memory == memory
    assert _join([a_gpu()], _look(100), memory=memory).holders == ()


def test_one_that_died_while_the_driver_was_silent_is_known_when_it_answers() -> None:
    """Else its heir would be a stranger, and its dead row nobody's."""
    parent, child = _process(100), _process(200, ppid=100)
    first = _join([a_gpu(processes=(a_row(100),))], _look(parent, _A), _look(child, _A))
    silent = _join([_BLIND], _look(child, _A), memory=first.memory)
    assert [holder.ref.pid for holder in silent.holders] == [200]
    after = _join([a_gpu(processes=(a_row(100, GIB),))], _look(child, _A), memory=silent.memory)
    assert [holder.heir_of for holder in after.holders] == [parent.ref]


def test_the_dead_are_forgotten_once_the_driver_no_longer_lists_them() -> None:
    """Silence keeps them, an answer without them lets them go."""
    silent = _join([_BLIND], memory=_remembered(a_ref(100)))
    assert silent.holders == ()
    assert silent.memory == _remembered(a_ref(100))
    assert _join([a_gpu()], memory=silent.memory).memory == {}


# --- dead listings and heirs -----------------------------------------------------------------------


def test_a_listed_pid_that_never_existed_is_evidence_and_no_holder() -> None:
    """Nobody knows who it was."""
    found = _join([a_gpu(processes=(a_row(4242, GIB),))])
    assert found.holders == ()
    (listing,) = found.dead_listings
    assert (listing.pid, listing.ref, listing.used_bytes) == (4242, None, Known(GIB))


@pytest.mark.parametrize("looks", [(), (_zombie(100),)], ids=["reaped", "unreaped"])
def test_a_listed_pid_that_is_dead_is_known_by_our_memory_of_it(looks: tuple[ProcessLook, ...]) -> None:
    """Evidence with a name; it is remembered for as long as it is listed."""
    memory = _remembered(a_ref(100))
    found = _join([a_gpu(processes=(a_row(100, used_bytes=Unreadable("x")),))], *looks, memory=memory)
    assert found.holders == ()
    (listing,) = found.dead_listings
    assert listing.ref == a_ref(100)
    assert isinstance(listing.used_bytes, Unreadable)
    assert found.memory == memory


def test_a_listed_pid_that_can_not_be_read_is_not_called_dead() -> None:
    """Unreadable is alive until the contrary is proven."""
    found = _join([a_gpu(processes=(a_row(100),))], unreadable={100: "no answer"})
    assert found.dead_listings == ()


def _family() -> tuple[Memory, ProcessReading]:
    """Return the memory after parent and child were seen healthy, and the child."""
    parent = _process(100)
    heir = _process(200, ppid=100)
    gpu = a_gpu(processes=(a_row(100),))
    return _join([gpu], _look(parent, _A), _look(heir, _A)).memory, heir


def test_a_remembered_descendant_that_holds_the_node_inherits() -> None:
    """With the dead listing's bytes: its own would be none."""
    memory, heir = _family()
    found = _join([a_gpu(processes=(a_row(100, 8 * GIB),))], _look(heir, _A), memory=memory)
    (holder,) = found.holders
    assert (holder.ref, holder.heir_of, holder.used_bytes) == (heir.ref, a_ref(100), Known(8 * GIB))


def test_a_grandchild_inherits_too() -> None:
    """Ancestors are remembered as a chain, nearest first."""
    memory, child = _family()
    grandchild = _process(300, ppid=200)
    gpu = a_gpu(processes=(a_row(100),))
    memory = _join(
        [gpu], _look(_process(100), _A), _look(child, _A), _look(grandchild, _A), memory=memory
    ).memory
    assert memory[a_ref(300), GPU_A].ancestors == (a_ref(200), a_ref(100))
    found = _join([gpu], _look(grandchild, _A), memory=memory)
    assert [holder.heir_of for holder in found.holders] == [a_ref(100)]


def test_an_heir_in_its_exit_path_is_still_the_heir() -> None:
    """It shows no node any more and is remembered."""
    memory, _ = _family()
    found = _join([a_gpu(processes=(a_row(100),))], _leaving(200), memory=memory)
    assert [(holder.remembered, holder.heir_of) for holder in found.holders] == [(True, a_ref(100))]


@pytest.mark.parametrize(
    "heir",
    [
        _process(200, ppid=100, uids=(0, 0, 0, 0)),
        _process(200, ppid=100, workload=a_workload("other.service")),
        _process(200, ppid=1),
    ],
    ids=["another uid", "another workload", "no descendant"],
)
def test_nobody_else_inherits(heir: ProcessReading) -> None:
    """Whoever got the descriptor passed is a holder, not an heir."""
    parent = _process(100)
    gpu = a_gpu(processes=(a_row(100),))
    memory = _join([gpu], _look(parent, _A), _look(heir, _A)).memory
    found = _join([gpu], _look(heir, _A), memory=memory)
    assert [holder.heir_of for holder in found.holders] == [None]
    assert found.dead_listings[0].ref == a_ref(100)


def test_one_that_is_listed_itself_is_nobodys_heir() -> None:
    """It has a context of its own."""
    memory, heir = _family()
    gpu = a_gpu(processes=(a_row(100), a_row(200)))
    assert [holder.heir_of for holder in _join([gpu], _look(heir, _A), memory=memory).holders] == [None]


def test_an_heir_is_one_on_the_same_gpu_only() -> None:
    """A dead listing elsewhere is another context."""
    memory, heir = _family()
    gpus = (a_gpu(GPU_A), a_gpu(GPU_B, processes=(a_row(100),)))
    assert [holder.heir_of for holder in _join(gpus, _look(heir, _A), memory=memory).holders] == [None]


def test_a_parent_that_is_younger_than_its_child_is_a_stranger_with_its_pid() -> None:
    """The real parent died and its pid was given away: no ancestor."""
    child, stranger = _process(200, 5, ppid=100), _process(100, 9)
    found = _join([a_gpu()], _look(child, _A), _look(stranger, _A))
    assert found.memory[child.ref, GPU_A].ancestors == ()


def test_a_stranger_that_got_a_dead_holders_pid_is_not_taken_for_it() -> None:
    """Its row is the dead one's for as long as the heir lives; the stranger has no node."""
    memory, heir = _family()
    stranger = _process(100, 50)
    gpu = a_gpu(processes=(a_row(100, 8 * GIB),))
    found = _join([gpu], _look(heir, _A), _look(stranger), memory=memory)
    assert [(holder.ref, holder.heir_of) for holder in found.holders] == [(heir.ref, a_ref(100))]
    assert [listing.ref for listing in found.dead_listings] == [a_ref(100)]
    again = _join([gpu], _look(heir, _A), _look(stranger), memory=found.memory)
    assert again == found


@pytest.mark.parametrize("nodes", [Known((NodeHolding(_A),)), Unreadable("no permission")])
def test_a_stranger_that_may_hold_is_a_holder_although_its_pid_was_anothers(
    nodes: Known[tuple[NodeHolding, ...]] | Unreadable,
) -> None:
    """With the node open, or unreadable, the row counts as its own."""
    look = ProcessLook(_process(100, 50), nodes)
    found = _join([a_gpu(processes=(a_row(100),))], look, memory=_remembered(a_ref(100)))
    assert [(holder.ref, holder.listed) for holder in found.holders] == [(a_ref(100, 50), True)]
    assert found.dead_listings == ()
