"""Claims about taking a drain request back by hand."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from reclaimerd.daemon.access import Caller, Peer, Role
from reclaimerd.daemon.drain_calls import undrain_call
from reclaimerd.daemon.drain_rows import drain_row
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.service import Service
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import DrainPhase
from reclaimerd.model.drain_ports import NotAsked
from tests.builders import OPERATOR, WALL
from tests.daemon.test_drains import a_stuck_rig, the_drain
from tests.fakes import Rig, a_disk_error

ROOT = Caller(Role.ADMIN, OPERATOR)


@dataclass(slots=True)
class Host:
    """Stands for the service."""

    rig: Rig
    pacing: Pacing = field(init=False)

    def __post_init__(self) -> None:
        self.pacing = Pacing(lambda: self.rig.now[0])

    @property
    def cycle(self) -> Any:
        """Return the cycle."""
        return self.rig.cycle

    def wall(self) -> float:
        """Return the time."""
        return WALL


def undrain(rig: Rig, incident: str, passes: int = 1, **body: object) -> Answer:
    """Ask for it, and let passes follow."""
    call = Call("POST", "/v1/undrain", {}, {"incident": incident, **body}, Peer(4000, 0, frozenset()))

    async def run() -> Answer:
        answer = await undrain_call(cast("Service", Host(rig)), call, ROOT)
        await rig.passes(passes)
        return answer

    return asyncio.run(run())


def a_drained_rig() -> Rig:
    """Return a rig whose request stands."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    return rig


def test_an_operator_takes_it_back_on_record() -> None:
    """The order with who and why is durable first; then every target and the place, and it is gone."""
    rig = a_drained_rig()
    answer = undrain(rig, the_drain(rig).id, passes=2, reason="rebooted")
    body = cast("dict[str, Any]", answer.body)
    assert answer.status == 200
    assert body["drain"]["withdrawal"]["reason"] == "rebooted"
    assert [one.id for one in rig.target.withdrawn] == rig.fleet.released == [body["drain"]["id"]]
    assert rig.cycle.state.ledger.drain is None
    (entry,) = [one for one in rig.recorder.of_kind(RecordKind.DRAIN_STEP) if one.actor is not None]
    assert (entry.actor, entry.reason) == (OPERATOR, "an operator takes the request back: rebooted")


@pytest.mark.parametrize("incident", ["", "inc-nobody", "x" * 5000])
def test_another_name_takes_nothing_back(incident: str) -> None:
    """404 with the name that stands; nothing happened."""
    rig = a_drained_rig()
    answer = undrain(rig, incident)
    assert answer.status == 404
    assert the_drain(rig).id in str(answer.body)
    assert (rig.target.withdrawn, the_drain(rig).withdrawal) == ([], None)


def test_where_none_stands_there_is_none_to_take_back() -> None:
    """404; a second order after the first was followed as well."""
    rig = a_drained_rig()
    name = the_drain(rig).id
    undrain(rig, name, passes=2)
    answer = undrain(rig, name)
    assert answer.status == 404
    assert "no drain request of ours" in str(answer.body)


def test_ordered_twice_is_once() -> None:
    """The first order stays on record as it was."""
    rig = a_drained_rig()
    rig.target.farewell = NotAsked("away")
    name = the_drain(rig).id
    undrain(rig, name, reason="first")
    undrain(rig, name, reason="second")
    withdrawal = the_drain(rig).withdrawal
    assert withdrawal is not None
    assert withdrawal.why == "first"


def test_what_can_not_be_put_on_record_is_not_taken_back() -> None:
    """A disk that fails: the caller hears it, and the request stands."""
    rig = a_drained_rig()
    rig.recorder.errors = [a_disk_error()]
    with pytest.raises(RecordError):
        undrain(rig, the_drain(rig).id)
    asyncio.run(rig.passes(2))
    assert rig.target.withdrawn == []
    assert the_drain(rig).withdrawal is None


def test_a_target_that_can_not_let_go_is_left_to_a_person() -> None:
    """Named by an operator it is waited for no more, on record; the rest goes its way."""
    rig = a_drained_rig()
    rig.target.farewell = NotAsked("its API is gone for good", lasting=True)
    name = the_drain(rig).id
    undrain(rig, name)
    wrong = undrain(rig, name, passes=2, give_up=["nobody"])
    assert wrong.status == 404
    assert "--give-up one of: fake" in str(wrong.body)
    assert the_drain(rig).phase is DrainPhase.WITHDRAW
    undrain(rig, name, passes=2, give_up=[rig.target.name])
    assert rig.cycle.state.ledger.drain is None
    assert rig.fleet.released == [name]
    assert any("left to a person: fake" in one.reason for one in rig.recorder.of_kind(RecordKind.DRAIN_STEP))


@pytest.mark.parametrize("give_up", [[], ["nobody"]])
def test_an_order_that_is_refused_takes_nothing_back(give_up: list[str]) -> None:
    """A daemon with --dry-run acts for nobody; a target that is not there is a slip: nothing is begun."""
    rig = a_drained_rig()
    rig.cycle.joints = replace(rig.cycle.joints, dry_run=not give_up)
    answer = undrain(rig, the_drain(rig).id, give_up=give_up)
    assert answer.status == (404 if give_up else 409)
    assert (rig.target.withdrawn, the_drain(rig).withdrawal) == ([], None)


def test_a_row_has_all_that_is_known() -> None:
    """Phase, cause, mend, slot, incidents and each target's words."""
    rig = a_drained_rig()
    row = cast("dict[str, Any]", drain_row(the_drain(rig)))
    assert (row["phase"], row["code"], row["slot"]) == ("stands", "stuck_exit", "there is room")
    assert [one["state"] for one in row["targets"]] == ["asked"]
    assert [one["well_at"] for one in row["incidents"]] == [None]
    assert drain_row(None) is None
