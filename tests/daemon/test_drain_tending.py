"""Claims about what holds a drain request up, and when every cause of it is over."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drain_tending import ITSELF, UNSEEN, why_held
from reclaimerd.daemon.drains import attention_text, take_answers
from reclaimerd.daemon.opening import Moment
from reclaimerd.model.drain import DrainPhase, Joined, Withdrawal
from reclaimerd.model.drain_ports import SlotTaken, SlotWaits
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.ledger import Pause
from reclaimerd.model.policy import FaultDomain, Mode, Policy
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from tests.builders import GIB, GPU_A, GPU_B, MONO, WALL, a_busy_snapshot, a_gpu, a_process
from tests.daemon.test_drains import a_stuck_rig, gone, stuck, the_drain
from tests.fakes import Rig

LATER = IncidentId("inc-later")


def a_waiting_rig() -> Rig:
    """Return a rig whose request waits for a place in the fleet."""
    rig = a_stuck_rig()
    rig.fleet.answer = SlotWaits("5 of 5 nodes are drained")
    asyncio.run(rig.passes(6))
    assert the_drain(rig).phase is DrainPhase.SLOT
    return rig


def test_nobody_is_asked_for_what_is_no_longer_so() -> None:
    """The fleet was full for an hour; the task is on its way out now: the node is not drained for that."""
    rig = a_waiting_rig()
    rig.show(a_busy_snapshot())
    rig.fleet.answer = SlotTaken("there is room")
    asyncio.run(rig.passes(6, step=700.0))
    assert rig.target.asked == []
    assert UNSEEN in attention_text(the_drain(rig))
    rig.show(stuck(a_process()))
    asyncio.run(rig.passes(6, step=700.0))
    assert len(rig.target.asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda policy: replace(policy, mode=Mode.OBSERVE),
        lambda policy: replace(policy, mode=Mode.DRY_RUN),
        lambda policy: replace(policy, rules=()),
        lambda policy: replace(policy, drain=replace(policy.drain, fault_domains=(FaultDomain.DRIVER,))),
    ],
)
def test_a_policy_that_no_longer_wants_it_asks_nobody(change: Callable[[Policy], Policy]) -> None:
    """Observing, without the rule, or without that fault domain: what waited is not asked after a reload."""
    rig = a_waiting_rig()
    before = rig.cycle.policy
    rig.cycle.policy = change(before)
    rig.fleet.answer = SlotTaken("there is room")
    asyncio.run(rig.passes(4, step=700.0))
    assert rig.target.asked == []
    rig.cycle.policy = before
    asyncio.run(rig.passes(4, step=700.0))
    assert len(rig.target.asked) == 1


@pytest.mark.parametrize(
    ("by", "dry_run", "pause", "hold", "why"),
    [
        ("", "dry", None, "", "dry"),
        ("", "", Pause("root", "a look", WALL, None), "", "paused by root: a look"),
        ("", "", None, "/etc/HOLD", "the file /etc/HOLD says hold"),
        ("", "", None, "", ""),
        (ITSELF, "dry", None, "", "dry"),
        (ITSELF, "", Pause("root", "a look", WALL, None), "", "paused by root: a look"),
        (ITSELF, "", None, "/etc/HOLD", "the file /etc/HOLD says hold"),
        (ITSELF, "", None, "", ""),
        ("root", "dry", None, "", "dry"),
        ("root", "", Pause("root", "a look", WALL, None), "/etc/HOLD", ""),
    ],
)
def test_what_holds_asking_and_taking_back(
    by: str, dry_run: str, pause: Pause | None, hold: str, why: str
) -> None:
    """What stops rules stops us in both; a person takes back in spite of it, but for a dry run."""
    rig = a_waiting_rig()
    state = rig.cycle.state
    state.ledger = replace(state.ledger, pause=pause)
    order = Withdrawal(by, "mended", WALL) if by else None
    drain = replace(the_drain(rig), withdrawal=order)
    assert why_held(drain, state, rig.cycle.policy, (dry_run, hold)) == why


def test_before_the_first_look_nobody_is_asked() -> None:
    """After a start nothing is known of the cause."""
    rig = a_waiting_rig()
    rig.cycle.state.snapshot = None
    assert why_held(the_drain(rig), rig.cycle.state, rig.cycle.policy, ("", "")) == UNSEEN


def of_an_earlier_boot(rig: Rig, *more: Joined) -> None:
    """Let the request be one of an earlier boot, of which no incident is left; `more` joined it since."""
    ledger = rig.cycle.state.ledger
    assert ledger.drain is not None
    drain = replace(ledger.drain, boot_id="an earlier one", joined=(*ledger.drain.joined, *more))
    rig.cycle.state.ledger = replace(ledger, drain=drain)


def a_well_look(*gpus: str) -> Snapshot:
    """Return an idle host with these GPUs."""
    found = tuple(a_gpu(uuid, recovery_action=Known(RecoveryAction.NONE)) for uuid in gpus)
    return replace(a_busy_snapshot(), gpus=found, holders=(), processes={})


def test_a_boot_ends_no_cause_that_came_after_it() -> None:
    """An incident of this boot joined the old request: its own cause stands, and so does the drain."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=10.0)
    asyncio.run(rig.passes(8))
    ((name, incident),) = rig.cycle.state.handed.items()
    rig.cycle.state.handed = {LATER: replace(incident, id=LATER)}
    of_an_earlier_boot(rig, Joined(LATER, "GPU B is lost", WALL, gpus=(GPU_B,)))
    rig.show(a_well_look(GPU_A, GPU_B))
    asyncio.run(rig.passes(6, step=10.0))
    wells = {one.incident: one.well_at is not None for one in the_drain(rig).joined}
    assert wells == {name: True, LATER: False}
    assert the_drain(rig).joined[0].told
    assert rig.target.withdrawn == []


@pytest.mark.parametrize("gpus", [(GPU_A,), (GPU_A, GPU_B)])
def test_a_boot_must_bring_back_the_gpus_of_all_that_joined(gpus: tuple[str, ...]) -> None:
    """The first incident's GPU is well; the second's is missing: nothing is taken back by itself."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=10.0)
    asyncio.run(rig.passes(8))
    rig.cycle.state.handed.clear()
    of_an_earlier_boot(rig, Joined(LATER, "GPU B is lost", WALL, told=True, gpus=(GPU_B,)))
    rig.show(a_well_look(*gpus))
    asyncio.run(rig.passes(6, step=10.0))
    assert bool(rig.target.withdrawn) is (len(gpus) > 1)


def test_the_settling_time_is_one_without_a_break() -> None:
    """Well, ill, and well again: it begins anew; the time between counts for nothing."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=600.0)
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    well = rig.sampler.snapshot
    asyncio.run(rig.passes(3, step=100.0))
    action = Known(RecoveryAction.GPU_RESET)
    rig.show(replace(well, gpus=tuple(replace(gpu, recovery_action=action) for gpu in well.gpus)))
    asyncio.run(rig.passes(10, step=100.0))
    rig.show(well)
    asyncio.run(rig.passes(6, step=100.0))
    assert rig.target.withdrawn == []
    asyncio.run(rig.passes(2, step=100.0))
    assert len(rig.target.withdrawn) == 1


def test_a_clock_that_jumps_does_not_settle_anything() -> None:
    """The wall clock of a fresh boot may be set by hours: only time that went by counts."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=600.0)
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    asyncio.run(rig.passes(2))
    seen = rig.sampler.snapshot
    rig.sampler.snapshot = replace(seen, taken_at=seen.taken_at + 86400.0)
    asyncio.run(rig.passes(4))
    assert rig.target.withdrawn == []


def test_memory_that_nobody_accounts_for_keeps_the_node_drained() -> None:
    """The task died late and no fault is told, but its memory did not come back: that GPU is not well."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=10.0)
    asyncio.run(rig.passes(8))
    gone(rig, a_process().ref)
    leaked = a_gpu(GPU_A, used=8 * GIB, recovery_action=Known(RecoveryAction.NONE))
    rig.show(replace(rig.sampler.snapshot, gpus=(leaked, *rig.sampler.snapshot.gpus[1:])))
    asyncio.run(rig.passes(6, step=100.0))
    assert the_drain(rig).joined[0].well_at is not None
    assert rig.target.withdrawn == []


def test_one_command_tells_no_incident_that_it_does_not_know() -> None:
    """The daemon is away and the request stands: its incident is told by the daemon that has it."""
    rig = a_waiting_rig()
    ledger = replace(rig.cycle.state.ledger, drain=replace(the_drain(rig), phase=DrainPhase.DONE))
    draft = Draft({}, ledger)
    take_answers(draft, Moment(MONO, WALL), foreground=True)
    assert draft.ledger == ledger


def test_one_command_judges_no_cause_and_takes_nothing_back() -> None:
    """A look of one command's orders no withdrawal, whatever the policy says."""
    rig = a_stuck_rig(auto_withdraw=True, settling_seconds=1.0)
    asyncio.run(rig.passes(8))
    rig.cycle.joints = replace(rig.cycle.joints, foreground=True)
    gone(rig, a_process().ref)
    asyncio.run(rig.passes(6, step=100.0))
    assert (rig.target.withdrawn, the_drain(rig).joined[0].well_at) == ([], None)
