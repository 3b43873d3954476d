"""Public incidents by their numbers, as a pass sees them: figures that are missing let no rule act."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import DriverState, Snapshot, unreadable_gpu
from tests.builders import GIB, a_busy_snapshot, a_gpu, a_policy, a_rule
from tests.daemon.reset_rigs import a_faulty_rig, two_gpus
from tests.fakes import Rig, a_rig

GREEDY = a_policy(a_rule(above=GIB))


def passes_over(snapshot: Snapshot) -> Rig:
    """Return what an enforcing rule made of a host whose holder is far over its cap."""
    rig = a_rig(snapshot, GREEDY)
    asyncio.run(rig.passes(5))
    return rig


def test_a_whole_list_is_acted_on() -> None:
    """The same host with every figure: the tests below could fail."""
    assert passes_over(a_busy_snapshot()).executor.sent != {}


def test_c74_a_list_that_can_not_be_true_lets_no_rule_act() -> None:
    """C74: the whole list is unreadable: nobody on it, and nobody with one of its numbers, is a target."""
    why = Unreadable("the layout of the driver's list is not the library's")
    seen = a_busy_snapshot()
    gpus = tuple(replace(gpu, processes=why) for gpu in seen.gpus)
    by_node = tuple(replace(one, listed=False, used_bytes=why) for one in seen.holders)
    rig = passes_over(replace(seen, gpus=gpus, holders=by_node))
    assert rig.executor.sent == {}
    assert rig.cycle.state.incidents == {}


@pytest.mark.parametrize(
    "why",
    ["NVML did not start: unknown error", "NVML does not work: library and driver have different versions"],
    ids=["c80", "c81"],
)
def test_c80_c81_a_driver_that_can_not_be_asked_has_no_caps_and_no_reset(why: str) -> None:
    """C80, C81: holders are known by their nodes alone: no memory rule acts, no fault rule resets."""
    seen = a_busy_snapshot()
    driver = replace(seen.driver, state=DriverState.UNKNOWN, why=why)
    gpus = tuple(unreadable_gpu(gpu, why) for gpu in seen.gpus)
    by_node = tuple(replace(one, listed=False, used_bytes=Unreadable(why)) for one in seen.holders)
    assert passes_over(replace(seen, driver=driver, gpus=gpus, holders=by_node)).executor.sent == {}
    rig = a_faulty_rig(replace(two_gpus(), driver=driver, gpus=(unreadable_gpu(a_gpu(), why),)))
    asyncio.run(rig.passes(5))
    assert rig.cycle.state.ledger.resets == ()
    assert not [event for event in rig.events if event.startswith("begin")]
