"""Claims about a drain that a person asks for: judged and counted as any other, and only a person ends it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from reclaimerd.daemon.api import followed
from reclaimerd.daemon.drain_calls import drain_call, undrain_call
from reclaimerd.daemon.drain_rows import drain_row
from reclaimerd.daemon.drains import attention_text
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.judge.drain_steps import may_join
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import DrainCode, DrainPhase
from reclaimerd.model.drain_ports import Asked, NotAsked, SlotTaken, SlotWaits
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import Mode, Policy
from tests.builders import WALL, a_busy_snapshot, a_process
from tests.daemon.test_drain_calls import ROOT, Host
from tests.daemon.test_drains import a_policy_with, a_stuck_rig, ends, stuck, the_drain
from tests.fakes import Rig, a_rig

PEER = Call("POST", "/v1/drain", {}, {}, cast("Any", None)).peer
WHY = "fan broken"


def a_calm_rig(**changes: Any) -> Rig:
    """Return a rig on which nothing is wrong."""
    return a_rig(a_busy_snapshot(), replace(a_policy_with(), **{"rules": (), **changes}))


async def lines_of(answer: Answer, rig: Rig, passes: int) -> list[dict[str, Any]]:
    """Return an answer's lines, while passes are made."""
    lines: list[dict[str, Any]] = []
    assert answer.lines is not None

    async def read() -> None:
        assert answer.lines is not None
        async for line in answer.lines:
            lines.append(dict(line))  # noqa: PERF401  # what came must be there though the rest never comes

    reading = asyncio.ensure_future(read())
    for _ in range(passes):
        await asyncio.sleep(0)
        await rig.passes(1)
    async with asyncio.timeout(10):
        await reading
    return lines


def drain(rig: Rig, passes: int = 4, **body: object) -> dict[str, Any]:
    """Ask for it, and return the result."""
    asked = Call("POST", "/v1/drain", {}, {"reason": WHY, **body}, PEER)

    async def run() -> list[dict[str, Any]]:
        service = cast("Service", Host(rig))
        return await lines_of(await drain_call(service, asked, ROOT, followed), rig, passes)

    return asyncio.run(run())[-1]


def undrain(rig: Rig, passes: int = 3) -> Answer:
    """Take it back."""
    body = {"incident": the_drain(rig).id, "reason": "mended"}

    async def run() -> Answer:
        answer = await undrain_call(
            cast("Service", Host(rig)), Call("POST", "/v1/undrain", {}, body, PEER), ROOT
        )
        await rig.passes(passes)
        return answer

    return asyncio.run(run())


def test_whom_the_policy_names_is_asked_with_who_and_why() -> None:
    """On a healthy host: one request of its own kind, one intent, and the order hears of its end."""
    rig = a_calm_rig()
    result = drain(rig)
    (request,) = rig.target.asked
    assert (request.code, request.gpus, request.pids) == (DrainCode.BY_HAND, (), ())
    assert request.reason == f"by hand: root: {WHY}"
    assert (result["exit_code"], result["drain"]["phase"]) == (ExitCode.OK, "stands")
    assert result["drain"]["incidents"][0]["by_hand"] is True
    (intent,) = rig.recorder.of_kind(RecordKind.INTENT)
    assert (intent.action, intent.actor) == ("drain", ROOT.actor)
    assert ends(rig) == ["handed_over to scheduler"]
    assert WHY in attention_text(the_drain(rig))


def test_without_a_reason_nothing_is_ordered() -> None:
    """A fault of the order, whatever the policy demands."""
    rig = a_calm_rig()
    with pytest.raises(ReclaimerdError, match="needs a reason"):
        drain(rig, reason="  ")
    assert (rig.target.asked, rig.cycle.desk.waiting) == ([], [])


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DRY_RUN])
@pytest.mark.parametrize("asked", [True, False], ids=["asked dry", "by mode"])
def test_in_a_dry_run_the_plan_is_on_record_and_nobody_is_asked(mode: Mode, *, asked: bool) -> None:
    """By the policy's mode or by --dry-run: it takes the road to the last call, and spends no real budget."""
    rig = a_calm_rig(mode=Mode.ENFORCE if asked else mode)
    result = drain(rig, dry_run=asked)
    assert result["exit_code"] == ExitCode.OK
    assert (rig.target.asked, rig.fleet.taken, rig.cycle.state.ledger.drain) == ([], [], None)
    (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
    assert outcome.action == "drain"
    assert rig.cycle.state.ledger.spends == ()
    assert ends(rig) == ["stood_down"]


@pytest.mark.parametrize(
    ("stands", "kind"),
    [
        (Ledger(pause=Pause("ann", "course", WALL)), "paused"),
        (Ledger(breaker=Breaker("too much", WALL)), "breaker"),
        (Ledger(spends=(Spend(SpendKind.DRAIN, "inc-0", WALL),)), "budget"),
    ],
    ids=["pause", "breaker", "budget"],
)
def test_what_binds_other_drains_binds_a_person(stands: Ledger, kind: str) -> None:
    """Refused at once with the reason; nobody is asked, and no request stands, also not later."""
    rig = a_calm_rig()
    rig.cycle.state.ledger = stands
    result = drain(rig)
    assert result["exit_code"] == ExitCode.REFUSED
    assert [one["kind"] for one in result["targets"][0]["reasons"]] == [kind]
    rig.cycle.state.ledger = Ledger()
    asyncio.run(rig.passes(4))
    assert (rig.target.asked, rig.cycle.state.ledger.drain) == ([], None)


def test_it_spends_the_day_budget() -> None:
    """One request a day as this policy says: taken back, a second one is refused."""
    rig = a_calm_rig()
    drain(rig)
    undrain(rig)
    assert rig.cycle.state.ledger.drain is None
    assert drain(rig)["targets"][0]["reasons"][0]["kind"] == "budget"
    assert len(rig.target.asked) == 1


def test_while_the_fleet_is_full_the_order_is_left_and_the_request_goes_on() -> None:
    """The time of the order is up, nobody was asked; then there is room."""
    rig = a_calm_rig()
    rig.fleet.answer = SlotWaits("5 of 5 nodes are drained")
    result = drain(rig, passes=6, timeout_seconds=2)
    assert (result["exit_code"], result["drain"]["phase"]) == (ExitCode.TIME_UP, "slot")
    assert rig.target.asked == []
    rig.fleet.answer = SlotTaken("there is room")
    asyncio.run(rig.passes(6, step=700.0))
    assert len(rig.target.asked) == 1


def test_asked_twice_it_is_one_request() -> None:
    """The second is told of the first, and adds nothing."""
    rig = a_calm_rig()
    drain(rig)
    result = drain(rig)
    assert result["exit_code"] == ExitCode.REFUSED
    assert the_drain(rig).id in result["targets"][0]["text"]
    assert len(the_drain(rig).joined) == 1


def test_while_one_is_taken_back_none_is_left_to_bind_later() -> None:
    """A target keeps the old request for hours: the order is refused at once, and nothing comes of it."""
    rig = a_calm_rig()
    drain(rig)
    rig.target.farewell = NotAsked("not now")
    undrain(rig)
    assert the_drain(rig).phase is DrainPhase.WITHDRAW
    result = drain(rig, timeout_seconds=0)
    assert result["exit_code"] == ExitCode.REFUSED
    assert "is being taken back" in result["targets"][0]["text"]
    assert rig.cycle.state.incidents == {}
    rig.target.farewell = Asked("forgotten")
    asyncio.run(rig.passes(6, step=700.0))
    assert (rig.cycle.state.ledger.drain, len(rig.target.asked)) == (None, 1)


def test_it_joins_a_request_of_incidents_and_costs_nothing_then() -> None:
    """The targets are asked once; who joined and why is on record and shown."""
    rig = a_stuck_rig()
    asyncio.run(rig.passes(8))
    before = rig.cycle.state.ledger.spends
    assert drain(rig)["exit_code"] == ExitCode.OK
    request = the_drain(rig)
    assert [one.by_hand for one in request.joined] == [False, True]
    assert (len(rig.target.asked), rig.cycle.state.ledger.spends) == (1, before)
    assert any(f"joins: by hand: root: {WHY}" in one.reason for one in rig.recorder.entries)


def test_it_never_takes_itself_back() -> None:
    """With auto_withdraw, on a healthy host, for a day; joined causes that are over change nothing."""
    rig = a_calm_rig(drain=a_policy_with(auto_withdraw=True, settling_seconds=1.0).drain)
    drain(rig)
    asyncio.run(rig.passes(20, step=3600.0))
    assert the_drain(rig).phase is DrainPhase.STANDS
    assert rig.target.withdrawn == []
    undrain(rig)
    assert (len(rig.target.withdrawn), rig.cycle.state.ledger.drain) == (1, None)


def test_after_a_boot_it_binds_on() -> None:
    """What a person wants is not over with a boot, though no incident of the old one is left."""
    rig = a_calm_rig()
    drain(rig)
    again = a_rig(replace(a_busy_snapshot(), boot_id="later"), rig.cycle.given)
    again.cycle.state.ledger = rig.cycle.state.ledger
    asyncio.run(again.passes(6, step=700.0))
    assert [one.id for one in again.target.asked] == [the_drain(again).id]
    assert may_join(the_drain(again))
    assert the_drain(again).joined[0].well_at is None


def change_of(mode: Mode) -> Callable[[Policy], Policy]:
    """Return what a reload makes of the policy."""
    return lambda policy: replace(policy, mode=mode)


def test_a_policy_that_only_observes_asks_nobody_any_more() -> None:
    """It waited for a place when the mode went back: it waits on, until acts are wanted again."""
    rig = a_calm_rig()
    rig.fleet.answer = SlotWaits("full")
    drain(rig, timeout_seconds=0)
    rig.cycle.policy = change_of(Mode.OBSERVE)(rig.cycle.given)
    rig.fleet.answer = SlotTaken("there is room")
    asyncio.run(rig.passes(4, step=700.0))
    assert rig.target.asked == []
    rig.cycle.policy = change_of(Mode.ENFORCE)(rig.cycle.given)
    asyncio.run(rig.passes(4, step=700.0))
    assert len(rig.target.asked) == 1


def test_taken_back_nobody_is_called_for_it() -> None:
    """Its incident leaves the list of what was handed over, on record."""
    rig = a_calm_rig()
    drain(rig)
    name = the_drain(rig).id
    assert name in rig.cycle.state.handed
    undrain(rig)
    assert rig.cycle.state.handed == {}
    (late,) = rig.recorder.of_kind(RecordKind.LATE_RELEASE)
    assert (late.incident, late.reason) == (name, "the drain by hand was taken back")


def test_that_nobody_took_it_is_the_operators() -> None:
    """Exit 5 with each target's words; the request stands and tries again."""
    rig = a_calm_rig()
    rig.target.answer = NotAsked("no rights", lasting=True)
    result = drain(rig, passes=6)
    assert result["exit_code"] == ExitCode.TIME_UP
    assert "no rights" in result["targets"][0]["text"]
    assert ends(rig) == ["handed_over to operator"]
    row = cast("dict[str, Any]", drain_row(the_drain(rig)))
    assert row["code"] == "by_hand"


def test_a_killed_stuck_task_beside_it_still_has_its_own_cause() -> None:
    """By hand first, then an incident joins: its own end is told, the person's word stays."""
    rig = a_rig(a_busy_snapshot(a_process()), a_policy_with())
    drain(rig, passes=2)
    rig.show(stuck(a_process()))
    asyncio.run(rig.passes(8))
    assert [one.by_hand for one in the_drain(rig).joined] == [True, False]
    rig.show(a_busy_snapshot(a_process(pid=7)))
    asyncio.run(rig.passes(6, step=100.0))
    assert the_drain(rig).withdrawal is None
