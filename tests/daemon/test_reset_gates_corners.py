"""Corners of the gates of a reset under way that a changed line would pass through unseen."""

from dataclasses import replace

import pytest

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.news import News
from reclaimerd.daemon.reset_gates import ResetGates
from reclaimerd.judge.reset_verdict import verified
from reclaimerd.model.incident import Actor, ActorKind
from reclaimerd.model.ledger import Suspension
from reclaimerd.model.policy import Mode
from reclaimerd.model.step import ReasonKind
from tests.builders import WALL, a_process, a_snapshot, a_target, an_incident
from tests.daemon.reset_host import FakeHost
from tests.daemon.reset_rigs import MEND, a_reset_rig, fault_policy, two_gpus

RUN = FakeHost().run
GAP = "3 records of the kernel's log were overwritten"


def test_a_suspended_rule_says_who_suspended_it() -> None:
    """As a pause binds, with the mend that lets it go on; not as a mode that somebody wrote."""
    rig = a_reset_rig(policy=fault_policy(mode=Mode.OBSERVE))
    stands = Suspension(MEND.name, "ann", "we look at it", WALL)
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, suspended=(stands,))
    gates = ResetGates(lambda: rig.cycle, News(None, None))
    (reason,) = gates.withdrawn(replace(RUN, actor=Actor(ActorKind.RULE, MEND.name)))
    assert reason.kind is ReasonKind.PAUSED
    assert f"rules resume {MEND.name}" in reason.mend


def test_the_last_look_itself_counts() -> None:
    """Not only the leave: a GPU that is not there any more refuses."""
    gates = ResetGates(a_reset_rig_cycle, News(None, None))
    assert gates.last(two_gpus(), RUN) == ()
    assert ReasonKind.GPU_UNKNOWN in {one.kind for one in gates.last(a_snapshot(gpus=()), RUN)}


@pytest.mark.parametrize(("lost_at", "tool_at", "told"), [
    (WALL, WALL - 1, True), (WALL, WALL + 1, False), (WALL, None, True), (WALL - 9, None, False),
    (None, None, False),
])  # fmt: skip
def test_a_gap_since_the_tool_began_is_no_verified_reset(
    lost_at: float | None, tool_at: float | None, *, told: bool
) -> None:
    """Of the run's beginning where the tool never ran; whatever else is wrong stays said."""
    news = News(None, None)
    news._lost, news._lost_at = GAP, lost_at
    gates = ResetGates(a_reset_rig_cycle, news)
    run = replace(RUN, tool_at=tool_at, began_at=WALL - 5)
    look = replace(two_gpus(), unreadable={7: "it hangs"})
    plain = verified(run, look, a_reset_rig_cycle().state.ledger)
    assert plain
    assert gates.verified(run, look) == ((*plain, GAP) if told else plain)


def test_the_incidents_processes_are_the_targets() -> None:
    """Where the incident is still there; a run that lost its own has none."""
    rig = a_reset_rig()
    gates = ResetGates(lambda: rig.cycle, News(None, None))
    assert gates._targets(RUN) == frozenset()
    incident = an_incident(a_target(a_process()), id=RUN.incident)
    rig.cycle.state.incidents[RUN.incident] = incident
    assert gates._targets(RUN) == frozenset(incident.processes)


def a_reset_rig_cycle() -> Cycle:
    """Return the cycle of a rig over two healthy GPUs."""
    return a_reset_rig().cycle
