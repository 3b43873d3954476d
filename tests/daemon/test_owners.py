"""An owner's order touches their own processes alone, at every moment, and buys no peace from the rules."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.last_look import Judged, LastLooker
from reclaimerd.errors import ExitCode
from reclaimerd.model.incident import Actor, ActorKind, ActorRole, Stage
from reclaimerd.model.policy import Mode
from reclaimerd.model.ports import NoLongerRight, StillRight
from reclaimerd.model.process import ProcessReading
from tests.builders import GIB, JUDGE, a_busy_snapshot, a_policy, a_process, a_rule
from tests.fakes import Rig, a_rig

UID = 1000
OWNER = Actor(ActorKind.OPERATOR, "ann", uid=UID, pid=4001, role=ActorRole.OWNER)
SETUID = (UID, 0, UID, UID)


def a_host(process: ProcessReading, *, cap: int = 70) -> Rig:
    """Return a host with one holder under a rule with this cap in GiB."""
    return a_rig(a_busy_snapshot(process), a_policy(a_rule(above=cap * GIB)))


def test_an_owner_s_own_process_is_told_to_go() -> None:
    """As an operator's order is."""
    rig = a_host(a_process())
    rig.order(actor=OWNER)
    asyncio.run(rig.passes())
    assert [permit.step.stage for permit in rig.executor.permits] == [Stage.SIGTERM]


@pytest.mark.parametrize(
    "uids", [(UID + 1,) * 4, SETUID, (0, 0, 0, 0), (UID, UID, 0, UID), (UID, UID, UID, 0)]
)
def test_one_foreign_uid_of_four_refuses_it(uids: tuple[int, int, int, int]) -> None:
    """Also when the call's own look saw another: the order is judged by the look that takes it up."""
    rig = a_host(a_process(uids=uids))
    ticket = rig.order(actor=OWNER)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NOT_ALLOWED
    assert rig.executor.permits == []
    assert rig.cycle.state.incidents == {}


def test_an_owner_joins_nobody_else_s_incident() -> None:
    """A rule's plan is not theirs to change or to hasten."""
    rig = a_host(a_process(), cap=1)
    asyncio.run(rig.passes())
    (before,) = rig.cycle.state.incidents.values()
    ticket = rig.order(actor=OWNER, force=True, grace_seconds=86400.0)
    asyncio.run(rig.passes())
    (after,) = rig.cycle.state.incidents.values()
    assert (after.actor, after.plan) == (before.actor, before.plan)
    assert ticket.exit_code is ExitCode.REFUSED


def test_an_owner_s_own_incident_may_be_hastened_by_them() -> None:
    """From another program of theirs, too."""
    rig = a_host(a_process())
    rig.order(actor=OWNER)
    asyncio.run(rig.passes())
    rig.order(actor=replace(OWNER, pid=4002, comm="reclaimctl"), force=True, grace_seconds=1.0)
    asyncio.run(rig.passes(1, step=60.0))
    (incident,) = rig.cycle.state.incidents.values()
    assert incident.plan.force


def test_a_rule_that_enforces_takes_over_from_an_owner_s_order() -> None:
    """An order with a day of grace keeps no rule away: the owner's ends, the rule's is opened and acts."""
    rig = a_host(a_process())
    rig.order(actor=OWNER, grace_seconds=86400.0, timeout_seconds=86400.0)
    asyncio.run(rig.passes())
    rig.cycle.policy = a_policy(a_rule(above=1 * GIB))
    asyncio.run(rig.passes(2))
    kinds = [one.actor.kind for one in rig.cycle.state.incidents.values() if not one.ended]
    assert kinds == [ActorKind.RULE]
    assert [permit.step.actor.kind for permit in rig.executor.permits] == [ActorKind.OPERATOR, ActorKind.RULE]


def test_a_rule_in_dry_run_leaves_an_owner_s_order_alone() -> None:
    """What only would act takes nothing over."""
    rig = a_host(a_process(), cap=70)
    rig.order(actor=OWNER)
    asyncio.run(rig.passes())
    rig.cycle.policy = a_policy(a_rule(above=1 * GIB, mode=Mode.DRY_RUN))
    asyncio.run(rig.passes(2))
    assert [one.actor.is_owner for one in rig.cycle.state.incidents.values()] == [True]


def test_a_process_that_an_owner_could_not_end_is_a_rule_s_as_before() -> None:
    """No hand-over and no cool-down of theirs stands in the rule's way."""
    rig = a_host(a_process())
    rig.order(actor=OWNER, grace_seconds=1.0, timeout_seconds=1.0)
    asyncio.run(rig.passes(6, step=60.0))
    assert [one.stage for one in rig.cycle.state.handed.values()] == [Stage.HANDED_OVER]
    assert rig.cycle.state.ledger.ended == ()
    rig.cycle.policy = a_policy(a_rule(above=1 * GIB))
    asyncio.run(rig.passes(2))
    assert rig.executor.permits[-1].step.actor.kind is ActorKind.RULE


class _Procfs:
    """Reads one process as it is told."""

    def __init__(self, reading: ProcessReading) -> None:
        self.reading = reading

    async def ask_each(self, pids: list[int], _tasks: list[int]) -> dict[int, object]:
        """Return the reading for every pid."""
        return dict.fromkeys(pids, _Look(self.reading))


class _Look:
    def __init__(self, reading: ProcessReading) -> None:
        self.reading = reading


@pytest.mark.parametrize("actor", [OWNER, replace(OWNER, role=ActorRole.OPERATOR)])
def test_the_last_look_withholds_an_owner_s_signal_from_what_is_theirs_no_more(actor: Actor) -> None:
    """It gained another uid between two passes, as a set-uid program does: an operator's is let through."""
    process = a_process(uids=SETUID)
    rig = a_host(process)
    rig.order(actor=replace(OWNER, uid=UID, role=ActorRole.OPERATOR))
    asyncio.run(rig.passes())
    step = replace(rig.executor.permits[0].step, actor=actor)
    judged = Judged(rig.cycle.policy, rig.sampler.snapshot, JUDGE, "")
    looker = LastLooker(_Procfs(process), lambda: judged)  # type: ignore[arg-type]  # it asks for this alone
    look = asyncio.run(looker(step, process.ref))
    members = asyncio.run(looker.members(step, (process.ref.pid,)))
    if actor.is_owner:
        assert look == NoLongerRight("it does not belong to the owner who asked")
        assert members == f"member {process.ref.pid} is not the owner's"
    else:
        assert look == StillRight()
        assert members == (process.ref,)
