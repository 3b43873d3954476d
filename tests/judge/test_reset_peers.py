"""GPUs that only go together are found, and what can't be read is never alone."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.reset_gate import reset_gpus, reset_reasons
from reclaimerd.judge.reset_peers import Alone, Group, Joint, Unknown, group_of
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import Generation, GpuFacts, NvLinks, ResetFacts, UnitFacts
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import ReasonKind
from tests.builders import GPU_A, GPU_B, a_holder, a_process
from tests.judge.reset_builders import GPU_C, asking, gpu_facts, reset_facts, reset_policy, with_facts

OLD, MIDDLE, NEW = Generation.BEFORE_AMPERE, Generation.AMPERE, Generation.LATER
NAMES = (GPU_A, GPU_B, GPU_C)


def gpu(index: int, age: Generation, *peers: int, switched: bool = False, **more: Any) -> GpuFacts:
    """Return GPU A, B or C, linked to the others by their numbers or to a switch."""
    addresses = tuple(f"0000:0{peer}:00.0" for peer in peers)
    links = NvLinks(len(peers) + int(switched), addresses, switched)
    fields: dict[str, Any] = {"generation": Known(age), "links": Known(links)}
    return gpu_facts(NAMES[index], index, **(fields | more))


def grouped(*facts: GpuFacts, fabric_manager: bool = False, **more: Any) -> Group:
    """Return what goes with GPU A on a host with these."""
    units = Known(UnitFacts((), fabric_manager=fabric_manager))
    fields: dict[str, Any] = {"gpus": Known(facts), "units": units}
    return group_of(GPU_A, reset_facts((), **(fields | more)))


@pytest.mark.parametrize("generation", Generation)
def test_without_a_link_every_generation_goes_alone(generation: Generation) -> None:
    """No active NVLink, or none offered: alone."""
    assert grouped(gpu(0, generation)) == Alone()
    assert grouped(gpu(0, generation, links=Absent("not supported"))) == Alone()


def test_before_ampere_all_that_links_join_go_together() -> None:
    """A to B and B to C makes three, seen from whichever end; a bridge to no GPU makes none."""
    found = grouped(gpu(0, OLD, 1), gpu(1, OLD), gpu(2, OLD, 1))
    assert isinstance(found, Joint)
    assert found.gpus == NAMES
    alone = replace(gpu(0, OLD), links=Known(NvLinks(1)))
    assert grouped(alone, gpu(1, OLD)) == Alone()


def test_before_ampere_a_switch_joins_all_on_it() -> None:
    """All switched GPUs are one group, and one that is not on the switch stays out."""
    found = grouped(gpu(0, OLD, switched=True), gpu(1, OLD, switched=True), gpu(2, OLD))
    assert isinstance(found, Joint)
    assert found.gpus == (GPU_A, GPU_B)


def test_ampere_on_a_switch_goes_alone_while_the_fabric_manager_runs() -> None:
    """Without it all of the switch go together; direct links don't matter."""
    pair = (gpu(0, MIDDLE, switched=True), gpu(1, MIDDLE, switched=True))
    assert grouped(*pair, fabric_manager=True) == Alone()
    found = grouped(*pair)
    assert isinstance(found, Joint)
    assert found.gpus == (GPU_A, GPU_B)
    assert grouped(gpu(0, MIDDLE, 1), gpu(1, MIDDLE, 0)) == Alone()


@pytest.mark.parametrize("fabric", [Known("in progress"), Known("completed"), Absent("not supported")])
def test_later_ones_go_alone_whatever_their_fabric_says(fabric: Any) -> None:
    """Hopper and later depend on no fabric manager; an unfinished fabric is no sign of a fault."""
    assert grouped(gpu(0, NEW, switched=True, fabric=fabric)) == Alone()
    assert grouped(gpu(0, NEW, 1, fabric=Unreadable("x"))) == Alone()


@pytest.mark.parametrize(
    "facts",
    [
        (gpu(0, OLD, links=Unreadable("x")),),
        (gpu(0, OLD, generation=Unreadable("x")),),
        (gpu(0, OLD, 1, generation=Absent("x")), gpu(1, OLD)),
        (gpu(0, OLD, 1), gpu(1, OLD), gpu(2, OLD, links=Unreadable("x"))),
        (gpu(0, OLD, 7),),
        (gpu(0, MIDDLE, switched=True), gpu(1, MIDDLE, links=Unreadable("x"))),
        (gpu(0, NEW, switched=True, fabric=Unreadable("x")),),
        (gpu(1, NEW),),
    ],
    ids=["links", "generation", "no word", "a third one's links", "stranger", "switch", "fabric", "no facts"],
)
def test_what_can_not_be_told_is_unknown(facts: tuple[GpuFacts, ...]) -> None:
    """Any doubt about who is joined is no answer of alone."""
    assert isinstance(grouped(*facts), Unknown)


@pytest.mark.parametrize("units", [Unreadable("hung"), Absent("no systemd")])
def test_an_unknown_fabric_manager_is_unknown(units: Any) -> None:
    """Nobody knows whether it runs, so nobody knows who goes together."""
    assert isinstance(grouped(gpu(0, MIDDLE, switched=True), units=units), Unknown)
    unread = ResetFacts(0.0, Unreadable("x"), Unreadable("x"), Unreadable("x"))
    assert isinstance(group_of(GPU_A, unread), Unknown)


PAIR = (gpu(0, OLD, 1), gpu(1, OLD, 0))


def asked(snapshot: Snapshot, **settings: Any) -> list[ReasonKind]:
    """Return the kinds of the gate's reasons for GPU A."""
    context = asking(snapshot, policy=reset_policy(**settings))
    return [reason.kind for reason in reset_reasons(GPU_A, frozenset(), context)]


def test_a_joint_reset_needs_the_policy_and_everyone_free() -> None:
    """Refused by name unless the policy lets peers go; then each of them is asked about."""
    free = with_facts(*PAIR)
    assert asked(free) == [ReasonKind.PEERS]
    assert asked(free, peers=True) == []
    busy = replace(free, processes={100: a_process()}, holders=(a_holder(gpu=GpuUuid(GPU_B), listed=False),))
    assert asked(busy, peers=True) == [ReasonKind.HOLDERS]
    assert ReasonKind.HOLDERS not in asked(busy)


def test_which_gpus_one_command_takes() -> None:
    """The one that was asked about first, then its peers; only itself while the policy says no."""
    free = with_facts(*PAIR)
    allowed = asking(free, policy=reset_policy(peers=True))
    assert reset_gpus(GPU_B, allowed) == (GPU_B, GPU_A)
    assert reset_gpus(GPU_B, asking(free)) == (GPU_B,)
    assert reset_gpus(GPU_B, asking(replace(free, reset_facts=None))) == (GPU_B,)


def test_unknown_peers_refuse_whatever_the_policy_says() -> None:
    """Letting peers go is no leave to guess who they are."""
    blind = with_facts(gpu(0, OLD, links=Unreadable("timeout")))
    assert asked(blind) == asked(blind, peers=True) == [ReasonKind.PEERS]
