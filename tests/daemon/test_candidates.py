"""Whom a kill may be asked for: what each role reads of whom, what speaks against it, and the short wait."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.http_server import Answer
from reclaimerd.errors import ExitCode
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import UserProtection
from reclaimerd.model.process import WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Unreadable
from tests.builders import (
    GIB,
    GPU_A,
    OPERATOR,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_workload,
)
from tests.daemon.test_api import MEMBER, ROOT, Story, a_story
from tests.fakes import a_rig

UID = 1000
PATH = "/v1/reclaims/candidates"
NAMES = WorkloadNames(namespace="team", pod="train-0", pod_uid="u", container="main")
IN_POD = a_workload("pod", kind=WorkloadKind.POD, container_id="ab" * 32, names=NAMES)
OWNER = Caller(Role.NONE, replace(OPERATOR, name="ann", uid=UID), "you are nobody", may_own=True)


def a_host(snapshot: Any = None) -> Story:
    """Return an API over a host that was looked at: one holder of uid 1000, one of root's, one that hides."""
    own, roots = a_process(100, workload=IN_POD), a_process(101, uids=(0, 0, 0, 0), workload=IN_POD)
    seen = snapshot or a_snapshot(
        gpus=(replace(a_gpu(), processes=Unreadable("driver says no")),),
        processes=(own, roots, a_process(200)),
        holders=(a_holder(own.ref), a_holder(roots.ref), a_holder(a_ref(102))),
        unreadable={102: "it hangs"},
    )
    rig = a_rig(seen, a_policy(a_rule(above=70 * GIB)))
    asyncio.run(rig.passes())
    return a_story(rig)


def rows(story: Story, caller: Caller = ROOT, **query: str) -> dict[int, dict[str, Any]]:
    """Return the answer's rows by pid."""
    answer = asyncio.run(story.call("GET", PATH, caller, query))
    assert answer.status == 200, answer.body
    told: Any = answer.body["rows"]
    return {row["pid"]: row for row in told}


def test_an_operator_reads_each_holder_with_its_names() -> None:
    """Identity, user, memory, and what a container or pod is called by; no command line."""
    found = rows(a_host())
    assert sorted(found) == [100, 101, 102]
    row = found[100]
    assert (row["ref"], row["uid"], row["gpu"], row["used_bytes"]) == ("100@1", UID, GPU_A, 8 * GIB)
    assert (row["kind"], row["container_id"], row["workload"]) == ("pod", "ab" * 32, "team/train-0/main")
    assert row["refused"] is None
    assert "command" not in row


def test_a_holder_that_cannot_be_read_is_told_and_refused() -> None:
    """By identity alone, with why."""
    row = rows(a_host())[102]
    assert row["refused"] == {"kind": "unreadable", "text": "it can't be read: it hangs"}
    assert (row["uid"], row["names"]) == (None, {})


def test_a_protected_holder_is_told_with_what_protects_it() -> None:
    """And beside it one that is not."""
    story = a_host()
    guard = UserProtection("mine", uids=((0, 0),))
    story.rig.cycle.policy = replace(story.rig.cycle.policy, protections=(guard,))
    found = rows(story)
    assert found[101]["refused"]["kind"] == "protected"
    assert "mine" in found[101]["refused"]["text"]
    assert found[100]["refused"] is None


def test_a_name_that_a_user_can_forge_is_none() -> None:
    """A container's id in a directory that is not root's is not told."""
    forged = replace(IN_POD, trusted=False, names=None)
    row = rows(a_host(a_busy_snapshot(a_process(workload=forged))))[100]
    assert (row["container_id"], row["names"]) == ("", {})


def test_an_owner_reads_their_own_rows_alone() -> None:
    """Of others no pid, no start, no uid, nor what could not be looked at; whose list it is, is said."""
    story = a_host()
    body: Any = asyncio.run(story.call("GET", PATH, OWNER, {"pids": "101,200,999"})).body
    assert [row["ref"] for row in body["rows"]] == ["100@1", "200@1"]
    assert (body["rows"][0]["names"]["pod"], body["rows"][0]["refused"]) == ("train-0", None)
    assert body["only_uid"] == UID
    assert "101" not in str(body)
    assert "102" not in str(body)


def test_who_may_look_reads_everybody_s() -> None:
    """And is told that it is no owner's list."""
    body: Any = asyncio.run(a_host().call("GET", PATH, ROOT)).body
    assert (len(body["rows"]), body["only_uid"]) == (3, None)


def test_what_the_look_left_out_is_told_to_an_owner_without_whom() -> None:
    """Its sentences name others' processes: their number alone."""
    seen = a_busy_snapshot(a_process(workload=IN_POD))
    story = a_host(replace(seen, scan=replace(seen.scan, skipped=("pid 4242: hangs", "pid 4243: hangs"))))
    body: Any = asyncio.run(story.call("GET", PATH, OWNER)).body
    assert body["skipped"] == ["2 processes or folders of the host"]
    whole: Any = asyncio.run(story.call("GET", PATH, ROOT)).body
    assert len(whole["skipped"]) == 2


def test_a_setuid_process_is_not_its_owner_s() -> None:
    """All four uids, as for the order."""
    assert rows(a_host(a_busy_snapshot(a_process(uids=(UID, 0, UID, UID)))), OWNER) == {}


def test_a_viewer_without_a_right_to_kill_reads_that_it_takes_one() -> None:
    """They may look, and the list says what would come of it."""
    assert {row["refused"]["kind"] for row in rows(a_host(), MEMBER).values()} <= {"role", "unreadable"}


def test_a_named_process_that_holds_nothing_is_told_of() -> None:
    """With its start, so that the order can name it."""
    row = rows(a_host(), pids="200,201")[200]
    assert (row["ref"], row["gpu"], row["used_bytes"]) == ("200@1", "", None)


@pytest.mark.parametrize("caller", [ROOT, OWNER])
def test_only_who_may_look_makes_us_look_again(caller: Caller) -> None:
    """An unknown pid costs a pass; any user may ask when owners may."""
    story = a_host()
    rows(story, caller, pids="999")
    assert story.desk.looked == ([(999,)] if caller is ROOT else [])


@pytest.mark.parametrize("pids", ["x", "1", "0", "4194305", "1,,2", "-5", "2 3", "9" * 400, ",", "\u0662"])
def test_pids_that_are_none_are_refused(pids: str) -> None:
    """400 with exit 2, and no look."""
    story = a_host()
    answer = asyncio.run(story.call("GET", PATH, ROOT, {"pids": pids}))
    assert (answer.status, answer.body["exit_code"]) == (400, ExitCode.USAGE)
    assert story.desk.looked == []


def test_what_could_not_be_listed_is_said() -> None:
    """So that nobody is not taken for certain."""
    body: Any = asyncio.run(a_host().call("GET", PATH)).body
    assert body["gpus"][0]["note"] == "unreadable (driver says no)"
    assert body["grace_seconds"] == 30.0


def order(story: Story, **body: object) -> tuple[list[dict[str, Any]], Answer]:
    """Order a kill, make two passes, and return the lines that came up to the result, or the refusal."""

    async def ask() -> tuple[list[dict[str, Any]], Answer]:
        answer = await story.call("POST", "/v1/reclaims", ROOT, None, **body)
        lines: list[dict[str, Any]] = []
        if answer.lines is not None:
            reading = asyncio.ensure_future(_all(answer.lines, lines))
            await asyncio.sleep(0)
            await story.rig.passes()
            await asyncio.wait_for(reading, 20)
        return lines, answer

    return asyncio.run(ask())


async def _all(stream: Any, lines: list[dict[str, Any]]) -> None:
    lines.extend([dict(line) async for line in stream])


def test_without_waiting_the_result_comes_with_the_incident_which_goes_on() -> None:
    """Exit 0 with the incident's id after one pass; it stays open, and its signal was sent."""
    story = a_story()
    lines, _ = order(story, targets=[{"pid": 100}], wait=False)
    result = lines[-1]
    (incident,) = story.rig.cycle.state.incidents.values()
    (target,) = result["targets"]
    assert (result["event"], result["exit_code"]) == ("result", ExitCode.OK)
    assert (target["incident"], target["end"], target["exit_code"]) == (incident.id, "", ExitCode.OK)
    assert "goes on" in target["text"]
    assert not incident.ended
    assert [permit.step.stage for permit in story.rig.executor.permits] == [Stage.SIGTERM]
    assert story.rig.cycle.desk.under_way == []


def test_without_waiting_a_declined_order_has_its_own_end() -> None:
    """Exit 6 beside an accepted one, and that is the whole's."""
    lines, _ = order(a_story(), targets=[{"pid": 100}, {"pid": 999}], wait=False)
    codes = {target["pid"]: target["exit_code"] for target in lines[-1]["targets"]}
    assert codes == {100: ExitCode.OK, 999: ExitCode.NO_TARGET}
    assert lines[-1]["exit_code"] == ExitCode.NO_TARGET


def test_in_the_foreground_nobody_would_carry_it_on() -> None:
    """400 with the mend, and no order is placed."""
    story = a_story()
    story.rig.cycle.joints = replace(story.rig.cycle.joints, foreground=True)
    lines, answer = order(story, targets=[{"pid": 100}], wait=False)
    assert (answer.status, answer.body["exit_code"], lines) == (400, ExitCode.USAGE, [])
    assert "leave --no-wait out" in str(answer.body["mend"])
    asyncio.run(story.rig.passes())
    assert story.rig.executor.permits == []


def test_a_target_may_be_a_dry_run_beside_one_that_is_none() -> None:
    """Nothing is sent to the one, SIGTERM to the other."""
    first, second = a_process(100), a_process(101)
    seen = a_snapshot(
        gpus=(a_gpu(),),
        processes=(first, second),
        holders=(a_holder(first.ref), a_holder(second.ref)),
    )
    story = a_host(seen)
    tickets: list[Ticket] = story.rig.cycle.desk.waiting
    assert tickets == []
    order(story, targets=[{"pid": 100, "dry_run": True}, {"pid": 101}], wait=False)
    real = [permit.step.target.root.pid for permit in story.rig.executor.permits if not permit.step.dry_run]
    assert real == [101]


ROOT_OF_TREE = a_process(100)
CHILD = a_process(101, ppid=100, comm="loader")
GUEST = a_process(102, ppid=101, uids=(0, 0, 0, 0), comm="helper")
TREE = a_snapshot(
    gpus=(a_gpu(),), processes=(ROOT_OF_TREE, CHILD, GUEST), holders=(a_holder(ROOT_OF_TREE.ref),)
)


def along(story: Story, caller: Caller = ROOT, scope: str = "tree", pids: str = "100") -> Any:
    """Return what the answer says of who goes along; None where it says nothing."""
    answer = asyncio.run(story.call("GET", PATH, caller, {"pids": pids, "scope": scope}))
    assert answer.status == 200, answer.body
    return answer.body["along"]


def test_who_goes_along_is_told_with_pid_user_and_program() -> None:
    """By a fresh look, as an order would take them; how many it is in all, and of which uids."""
    story = a_host(TREE)
    told = along(story)
    assert (told["processes"], told["uids"], told["foreign"]) == (3, [0, UID], 0)
    assert [(row["ref"], row["uid"], row["comm"], row["of"]) for row in told["rows"]] == [
        ("102@1", 0, "helper", 100),
        ("101@1", UID, "loader", 100),
    ]
    assert story.desk.looked == [(100,)]


def test_nobody_goes_along_with_a_process_alone() -> None:
    """And without a scope nothing is said of it, nor looked for."""
    story = a_host(TREE)
    assert along(story, scope="process") is None
    assert story.desk.looked == []


def test_a_long_list_is_bounded_and_its_number_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows up to the bound; `processes` counts everybody."""
    monkeypatch.setattr("reclaimerd.daemon.candidates.MOST_ALONG", 1)
    told = along(a_host(TREE))
    assert (len(told["rows"]), told["more"], told["processes"]) == (1, 1, 3)


def test_two_targets_of_one_tree_count_each_process_once() -> None:
    """Who is a target does not go along."""
    told = along(a_host(TREE), pids="100,101")
    assert told["processes"] == 3
    assert [row["pid"] for row in told["rows"]] == [102]


def test_an_owner_is_told_of_their_own_and_how_many_are_not() -> None:
    """Others who go along are a number: the order would be refused for them."""
    told = along(a_host(TREE), OWNER)
    assert ([row["pid"] for row in told["rows"]], told["foreign"], told["uids"]) == ([101], 1, [UID])
    assert "helper" not in str(told)


def test_an_owner_learns_nothing_of_others_trees() -> None:
    """Not even how large they are."""
    told = along(a_host(TREE), OWNER, pids="102")
    assert (told["processes"], told["rows"], told["foreign"]) == (0, [], 0)


def test_an_owner_may_ask_who_goes_along_as_often_as_they_may_order() -> None:
    """Each costs a look: 429 past the burst, and no look."""
    story = a_host(TREE)
    for _ in range(5):
        along(story, OWNER)
    looked = len(story.desk.looked)
    answer = asyncio.run(story.call("GET", PATH, OWNER, {"pids": "100", "scope": "tree"}))
    assert answer.status == 429
    assert len(story.desk.looked) == looked


def test_who_may_not_order_makes_no_look_for_it() -> None:
    """A viewer reads the holders alone."""
    story = a_host(TREE)
    assert along(story, MEMBER) is None
    assert story.desk.looked == []


@pytest.mark.parametrize("query", [{"scope": "host"}, {"scope": "tree"}])
def test_a_scope_that_is_none_or_of_nobody_is_refused(query: dict[str, str]) -> None:
    """400, and no look."""
    story = a_host(TREE)
    assert asyncio.run(story.call("GET", PATH, ROOT, query)).status == 400
    assert story.desk.looked == []
