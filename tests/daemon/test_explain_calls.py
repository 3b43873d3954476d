"""`explain pid` and `snapshot` over fakes: every rule's answer, the gates' reasons, and nothing changes."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.http_server import Answer
from reclaimerd.daemon.recorded_look import look_of
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ledger import Ledger, Pause
from reclaimerd.model.policy import FaultRule, Mode, Policy, RuleAction, UserProtection
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.snapshot import DriverReading, DriverState, Snapshot
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_rule,
)
from tests.daemon.test_api import MEMBER, NOBODY, ROOT, Story, a_story
from tests.fakes import a_rig

SLOW = a_rule("slow", for_seconds=10.0, readings=4)


def story(policy: Policy | None = None, look: Snapshot | None = None, **joints: object) -> Story:
    """Return an API over a host whose one holder is over the cap."""
    seen = a_busy_snapshot() if look is None else look
    return a_story(a_rig(seen, a_policy() if policy is None else policy, **joints))


async def asked(told: Story, pid: str = "100") -> tuple[int, dict[str, Any]]:
    """Ask about a process as a viewer; return status and body, as JSON makes it."""
    answer = await told.call("GET", f"/v1/explain/pid/{pid}", MEMBER)
    return answer.status, dict(json.loads(json.dumps(answer.body)))


def explained(told: Story, pid: str = "100", passes: int = 1) -> tuple[int, dict[str, Any]]:
    """Make passes, then ask."""

    async def ask() -> tuple[int, dict[str, Any]]:
        await told.rig.passes(passes)
        return await asked(told, pid)

    return asyncio.run(ask())


def after_a_pass(told: Story, path: str) -> Answer:
    """Make a pass, then ask for this path."""

    async def ask() -> Answer:
        await told.rig.passes(1)
        return await told.call("GET", path, MEMBER)

    return asyncio.run(ask())


def body_of(told: Story, pid: str = "100", passes: int = 1) -> dict[str, Any]:
    """Return the body of a good answer."""
    status, body = explained(told, pid, passes)
    assert status == 200, body
    return body


def observing(*rules: Any, **overrides: Any) -> Policy:
    """Return a policy under which no incident is left open: the rules hold and the mode observes."""
    return a_policy(*(rules or (SLOW,)), **overrides)


def test_a_rule_that_holds_says_all_of_it() -> None:
    """Values, since when, how long it must still hold, what it would do, and the gates' leave."""
    body = body_of(story(observing()), passes=3)
    assert (body["ref"], body["pid"], body["verdict"]["ruling"]) == ("100@1", 100, "watch")
    assert body["process"]["command"] == "python3 train.py"
    assert body["gpus"] == [
        {"gpu": GPU_A, "gpu_index": 0, "used_bytes": 8 * GIB, "how": "listed+node", "note": ""}
    ]
    (rule,) = body["rules"]
    assert (rule["rule"], rule["kind"], rule["standing"]) == ("slow", "memory", "holds")
    assert "holds 8.0 GiB, more than 4.0 GiB" in rule["text"]
    assert rule["held"] == {
        "since": WALL,
        "seconds": 2.0,
        "readings": 3,
        "seconds_left": 8.0,
        "readings_left": 1,
    }
    assert (rule["mode"], rule["own_mode"], rule["scope"]) == ("enforce", "enforce", "process")
    assert [(one["stage"], one["after_seconds"]) for one in rule["stages"]] == [
        ("sigterm", 0.0),
        ("sigkill", 300.0),
        ("drain", 60.0),
    ]
    assert rule["gates"] == {
        "stage": "sigterm",
        "due_seconds": 0.0,
        "permitted": True,
        "dry_run": False,
        "reasons": [],
        "text": "",
    }
    assert (body["protection"], body["incident"], body["notes"], body["doubt"]) == (None, None, [], "")


def test_asking_opens_nothing_and_writes_nothing() -> None:
    """No incident, no record, no act, whatever the gates would permit."""
    told = story(observing())
    body_of(told)
    state = told.rig.cycle.state
    before = (dict(state.incidents), state.ledger, state.sustained, len(told.rig.recorder.batches))
    asyncio.run(asked(told))
    assert before == (state.incidents, state.ledger, state.sustained, len(told.rig.recorder.batches))
    assert (state.incidents, told.rig.executor.permits) == ({}, [])


def test_every_reason_of_the_gates_has_its_mend() -> None:
    """Mode and pause at once, each with what to do."""
    told = story(observing(replace(SLOW, mode=Mode.OBSERVE)))
    told.rig.cycle.state.ledger = Ledger(pause=Pause("ann", "upgrade", WALL))
    gates = body_of(told)["rules"][0]["gates"]
    assert gates["permitted"] is False
    assert {reason["kind"] for reason in gates["reasons"]} == {"mode", "paused"}
    assert all(reason["mend"] for reason in gates["reasons"])


def test_a_rule_that_does_not_hold_and_one_that_can_not_be_known() -> None:
    """Each says its own; what can't be read is neither."""
    high = body_of(story(observing(a_rule("high", above=70 * GIB))))["rules"][0]
    assert (high["standing"], high["held"]) == ("does_not_hold", None)
    look = a_busy_snapshot()
    blind = replace(look, holders=tuple(replace(one, used_bytes=Unreadable("x")) for one in look.holders))
    unknown = body_of(story(observing(), blind))["rules"][0]
    assert (unknown["standing"], unknown["ruling"]) == ("unknown", "undetermined")


def test_a_rule_that_only_observes_asks_no_gate() -> None:
    """There is no step to ask about."""
    rule = body_of(story(observing(a_rule(action=RuleAction.OBSERVE))))["rules"][0]
    assert (rule["action"], rule["stages"], rule["gates"]) == ("observe", [], None)


def test_a_protected_process_says_what_protects_it() -> None:
    """At the top, and as the gate's reason."""
    guard = UserProtection("mine", uids=((1000, 1000),))
    body = body_of(story(a_policy(protections=(guard,))))
    assert body["protection"]["by"] == "mine"
    assert body["verdict"]["ruling"] == "spare"
    assert "protected" in {reason["kind"] for reason in body["rules"][0]["gates"]["reasons"]}


def test_its_open_incident_says_what_comes_next() -> None:
    """SIGTERM was sent: SIGKILL is next, in its time; no rule would open a second incident."""
    body = body_of(story(a_policy()), passes=2)
    assert body["incident"]["stage"] == "sigterm"
    gates = body["incident"]["gates"]
    assert (gates["stage"], gates["permitted"]) == ("sigkill", True)
    assert 0 < gates["due_seconds"] <= 300.0
    assert body["rules"][0]["gates"] is None
    assert "no rule opens a second one" in body["notes"][0]


def test_a_record_fault_that_binds_rules_alone_does_not_bind_an_operators_incident() -> None:
    """A full disk: the operator's step has leave, as in a pass."""
    told = story(observing())
    told.rig.order()

    async def ask() -> dict[str, Any]:
        await told.rig.passes(1)
        told.rig.cycle.state.record_fault = "no space left"
        return (await asked(told))[1]

    assert asyncio.run(ask())["incident"]["gates"]["reasons"] == []


def test_while_its_reset_is_under_way_nothing_else_is_due() -> None:
    """No gate is asked about a step that can't come."""
    told = story(a_policy())

    async def ask() -> dict[str, Any]:
        await told.rig.passes(1)
        state = told.rig.cycle.state
        (incident,) = state.incidents.values()
        run = ResetRun(AttemptId("a"), incident.id, BOOT, OPERATOR, (GPU_A,), WALL)
        state.ledger = replace(state.ledger, resets=(run,))
        return (await asked(told))[1]

    gates = asyncio.run(ask())["incident"]["gates"]
    assert (gates["stage"], gates["permitted"]) == (None, None)
    assert "reset is under way" in gates["text"]


def test_one_that_was_handed_over_is_taken_up_by_no_rule() -> None:
    """The note names the incident, and no gate is asked."""
    told = story(a_policy())

    async def ask() -> dict[str, Any]:
        await told.rig.passes(1)
        state = told.rig.cycle.state
        (incident,) = state.incidents.values()
        state.handed, state.incidents = {incident.id: incident}, {}
        return (await asked(told))[1]

    body = asyncio.run(ask())
    assert body["incident"] is None
    assert body["rules"][0]["gates"] is None
    assert "handed over" in body["notes"][0]


def test_in_the_foreground_and_under_dry_run_it_says_what_that_means() -> None:
    """No rule acts without a daemon; with --dry-run the leave is for a dry run."""
    body = body_of(story(observing(), foreground=True, dry_run=True))
    assert ["no daemon runs" in body["notes"][0], "--dry-run" in body["notes"][1]] == [True, True]
    assert body["rules"][0]["gates"]["dry_run"] is True


def test_one_that_can_not_be_read_is_explained_without_gates() -> None:
    """It is a holder, and nobody knows more: hands off, and no gate has anybody to look at."""
    look = a_busy_snapshot()
    body = body_of(story(look=replace(look, processes={}, unreadable={100: "its reads hang"})))
    assert body["process"] is None
    assert "its reads hang" in body["doubt"]
    assert (body["rules"][0]["standing"], body["rules"][0]["gates"]) == ("unknown", None)


def test_fault_rules_of_its_gpus_are_named() -> None:
    """A GPU's fault rule may tell its holders to go first."""
    rule = FaultRule("mend", xid_classes=("reset",), mode=Mode.OBSERVE)
    told = story(observing(fault_rules=(rule,)))
    xid = StandingXid(GPU_A, BOOT, 48, FaultClass.RESET, 7, WALL)
    told.rig.cycle.state.ledger = Ledger(xids=(xid,))
    (row,) = body_of(told)["fault_rules"]
    assert (row["gpu"], row["rule"], row["mode"]) == (GPU_A, "mend", "observe")
    assert "Xid 48" in row["text"]


def test_another_users_command_line_stays_as_inspect_shows_it() -> None:
    """Both calls show the same words, masked where they were read."""
    look = a_busy_snapshot(a_process(cmdline=Known(("train", "--token=***"))))
    told = story(observing(), look)
    body = body_of(told)
    shown = asyncio.run(told.call("GET", "/v1/processes/100", MEMBER)).body["process"]
    assert isinstance(shown, dict)
    assert body["process"]["command"] == shown["command"] == "train --token=***"


@pytest.mark.parametrize(
    ("pid", "processes", "what"),
    [("7", {}, "there is no process 7"), ("7", {7: a_process(7)}, "pid 7 holds no GPU that can be seen")],
)
def test_a_process_that_holds_nothing_is_exit_six(pid: str, processes: dict[int, Any], what: str) -> None:
    """After a fresh look that was asked for; and the answer says which of the two it is."""
    look = a_busy_snapshot()
    told = story(look=replace(look, processes={**look.processes, **processes}))
    status, body = explained(told, pid)
    assert (status, body["exit_code"]) == (404, 6)
    assert what in body["error"]
    assert told.desk.looked == [(7,)]


def test_who_holds_nothing_while_the_driver_is_silent_is_told_that_too() -> None:
    """What can't be seen is no "no": the answer says that the driver was not asked."""
    silent = DriverReading(DriverState.UNRESPONSIVE, since=MONO, why="no answer")
    look = replace(a_busy_snapshot(a_process(7)), holders=(), driver=silent)
    status, body = explained(story(look=look), "7")
    assert (status, body["exit_code"]) == (404, 6)
    assert body["error"] == "pid 7 holds no GPU that can be seen; driver unresponsive (no answer)"


@pytest.mark.parametrize("path", ["/v1/explain/pid/7", "/v1/processes/7"])
def test_one_that_could_not_be_read_says_why(path: str) -> None:
    """Unreadable is not "no process", and a script must not take it for one that is gone."""
    told = story(look=replace(a_busy_snapshot(), unreadable={7: "its reads hang"}))
    answer = after_a_pass(told, path)
    assert (answer.status, answer.body["exit_code"]) == (409, 3)
    assert answer.body["error"] == "pid 7 can't be read: its reads hang"


@pytest.mark.parametrize("path", ["/v1/explain/pid/7", "/v1/processes/7"])
def test_without_a_fresh_look_nobody_is_said_to_be_gone(path: str) -> None:
    """The last look was of others: whether this one lives is not known."""
    told = story()
    told.desk.fresh = False
    answer = after_a_pass(told, path)
    assert (answer.status, answer.body["exit_code"]) == (409, 3)
    assert answer.body["error"] == "no fresh look came within 12 s: whether there is a process 7 is not known"


def test_one_whose_incident_is_open_names_it() -> None:
    """It let its GPU go, and the incident is not closed yet: there the rest is told."""
    told = story(a_policy())

    async def ask() -> dict[str, Any]:
        await told.rig.passes(1)
        told.rig.cycle.state.evaluation = replace(told.rig.cycle.state.evaluation, verdicts=())  # type: ignore[type-var]  # it was judged
        told.desk.fresh = False
        return (await asked(told))[1]

    assert "reclaimctl incidents show inc-" in asyncio.run(ask())["mend"]


def test_before_the_first_look_one_is_taken() -> None:
    """And where none comes that is said."""
    told = story(observing())
    assert explained(told, passes=0)[0] == 200
    told = story(observing())
    told.desk.fresh = False
    status, body = explained(told, passes=0)
    assert (status, body["exit_code"]) == (409, 3)


@pytest.mark.parametrize("pid", ["x", "-1", "1e3"])
def test_what_is_no_pid_is_wrong_usage(pid: str) -> None:
    """Exit 2."""
    status, body = explained(story(), pid)
    assert (status, body["exit_code"]) == (400, 2)


def test_the_snapshot_is_for_operators_alone() -> None:
    """It has every user's command lines and the kernel's stacks: a viewer gets none of it."""
    told = story(observing())

    async def ask() -> list[tuple[int, dict[str, Any]]]:
        answers = [await told.call("GET", "/v1/snapshot", one) for one in (ROOT, MEMBER, NOBODY)]
        return [(answer.status, dict(answer.body)) for answer in answers]

    root, member, nobody = asyncio.run(ask())
    assert [root[0], member[0], nobody[0]] == [200, 403, 403]
    assert "snapshot" not in member[1]
    found = look_of(json.loads(json.dumps(root[1])), "the answer")
    assert found.look == replace(a_busy_snapshot(), at=MONO)
    assert found.ours.pid == 900


def test_a_snapshot_is_a_fresh_look_with_what_any_policy_may_ask() -> None:
    """Utilisation and freezers once, though no rule of the policy in force asks for them."""
    told = story(observing())
    asyncio.run(told.rig.passes(1))
    asyncio.run(told.call("GET", "/v1/snapshot", ROOT))
    asyncio.run(told.rig.passes(1))
    looks = told.rig.sampler.looks
    assert [(one.utilisation, one.freezers) for one in looks] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_where_no_fresh_look_comes_the_last_is_the_snapshot() -> None:
    """Before any look there is none: exit 3."""
    told = story(observing())
    told.desk.fresh = False
    before = asyncio.run(told.call("GET", "/v1/snapshot", ROOT))
    assert (before.status, before.body["exit_code"]) == (409, 3)
    asyncio.run(told.rig.passes(1))
    assert asyncio.run(told.call("GET", "/v1/snapshot", ROOT)).status == 200


def test_nobody_is_explained_to_nobody() -> None:
    """A caller without a role is told nothing."""
    told = story(observing())
    answer = asyncio.run(told.call("GET", f"/v1/explain/pid/{a_ref().pid}", NOBODY))
    assert answer.status == 403
    assert "rules" not in answer.body
