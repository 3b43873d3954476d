"""Each role against each call, over fakes: who may, what is refused does nothing, and what a viewer reads."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.access import Caller, Peer, Rights, Role, role_of
from reclaimerd.daemon.http_server import Answer
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import ActorRole
from reclaimerd.model.ledger import Breaker, Ledger, Pause
from reclaimerd.model.policy import AccessSettings
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_run import GpuBreaker
from tests.builders import GIB, GPU_A, OPERATOR, WALL, a_busy_snapshot, a_policy, a_process, a_rule
from tests.daemon.test_api import Story, a_story
from tests.fakes import a_rig

UID = 1000
"""Whose processes `a_busy_snapshot` shows."""
CALLERS = {
    role: Caller(role, replace(OPERATOR, name=role.word, uid=UID + 1), "" if role else "you are nobody")
    for role in Role
}
OWNER = Caller(Role.NONE, replace(OPERATOR, name="ann", uid=UID), "you are nobody", may_own=True)
VIEWERS = ["/v1/status", "/v1/ps", "/v1/processes/PID", "/v1/incidents", "/v1/incidents/ID", "/v1/rules",
    "/v1/explain/reset", "/v1/explain/pid/PID", "/metrics", "/v1/breakers",
    "/v1/reclaims/candidates"]  # fmt: skip
OPERATORS = ["/v1/evidence/PID", "/v1/stuck", "/v1/snapshot", "/v1/reclaims", "/v1/pause", "/v1/resume",
    "/v1/rules/NAME/suspend", "/v1/rules/NAME/resume", "/v1/drain", "/v1/undrain",
    "/v1/unkillable", "/v1/why"]  # fmt: skip
ADMINS = ["/v1/resets", "/v1/breakers/close", "/v1/release-driver", "/v1/reload", "/v1/audit/exports"]
OF_OWNERS = ("/v1/reclaims", "/v1/why")
NEEDED = {
    **dict.fromkeys(VIEWERS, Role.VIEWER),
    **dict.fromkeys(OPERATORS, Role.OPERATOR),
    **dict.fromkeys(ADMINS, Role.ADMIN),
}


def call(story: Story, method: str, path: str, caller: Caller, **body: object) -> Answer:
    """Make one call, and close a stream that it gives."""

    async def ask() -> Answer:
        answer = await story.call(method, path, caller, None, **body)
        if answer.lines is not None:
            await answer.lines.aclose()
        return answer

    return asyncio.run(ask())


def reasoned(story: Story, **access: Any) -> Story:
    """Return the story under these settings of `[access]`."""
    story.rig.cycle.policy = replace(story.rig.cycle.given, access=AccessSettings(**access))
    return story


def test_every_call_of_the_socket_is_in_the_table() -> None:
    """A new one must be put there, with its role."""
    assert {route.path: route.role for route in a_story().api.routes} == NEEDED


@pytest.mark.parametrize("path", NEEDED)
@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.word)
def test_a_role_below_the_needed_one_is_denied_and_nothing_happens(role: Role, path: str) -> None:
    """403 with the role that is missing, one record, no change; from the needed role on there is no 403."""
    story = a_story()
    route = next(one for one in story.api.routes if one.path == path)
    before = story.rig.cycle.state.ledger
    if role >= NEEDED[path]:
        if path in ("/v1/stuck", "/v1/evidence/PID", "/v1/snapshot", "/v1/release-driver", "/metrics"):
            return  # these work on the real host; their door is that of the others
        assert call(story, route.method, path, CALLERS[role]).status != 403
        return
    answer = call(story, route.method, path, CALLERS[role], targets=[{"pid": 100}], gpu=GPU_A)
    assert (answer.status, answer.body["needs_role"]) == (403, NEEDED[path].word)
    assert answer.body["exit_code"] == ExitCode.NOT_ALLOWED
    assert [one.kind for one in story.rig.recorder.entries] == [RecordKind.DENIED]
    assert story.rig.cycle.state.denied == 1
    assert story.rig.cycle.state.ledger == before
    assert story.rig.cycle.desk.waiting == []


@pytest.mark.parametrize("path", [path for path in NEEDED if not path.startswith(OF_OWNERS)])
def test_an_owner_may_call_for_a_kill_and_ask_why_and_for_nothing_else(path: str) -> None:
    """Ownership is no role."""
    story = a_story()
    route = next(one for one in story.api.routes if one.path == path)
    assert call(story, route.method, path, OWNER).status == 403


@pytest.mark.parametrize(
    ("uid", "groups", "role"),
    [
        (0, {5}, Role.ADMIN),
        (7, {1, 2, 3}, Role.ADMIN),
        (7, {1, 2}, Role.OPERATOR),
        (7, {1, 9}, Role.VIEWER),
        (7, {9}, Role.NONE),
        (7, set(), Role.NONE),
    ],
)
def test_the_highest_role_of_all_groups_counts(uid: int, groups: set[int], role: Role) -> None:
    """By gid; root needs none."""
    rights = Rights(viewers=frozenset({1}), operators=frozenset({2}), admins=frozenset({3}))
    assert role_of(Peer(50, uid, frozenset(groups)), rights) is role


def test_no_group_is_named_no_group_counts() -> None:
    """An empty set fits nobody, also not who is in no group."""
    assert role_of(Peer(50, 7, frozenset({0, 1, 2})), Rights()) is Role.NONE


ACTS = [
    ("/v1/reclaims", {"targets": [{"pid": 100}]}),
    ("/v1/resets", {"gpu": GPU_A}),
    ("/v1/pause", {}),
    ("/v1/resume", {}),
    ("/v1/rules/over-cap/suspend", {}),
    ("/v1/rules/over-cap/resume", {}),
    ("/v1/release-driver", {}),
    ("/v1/undrain", {"incident": "inc-1"}),
]


@pytest.mark.parametrize(("path", "body"), ACTS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("reason", ["", "   ", None])
def test_a_demanded_reason_is_asked_for_before_anything_is_done(
    path: str, body: dict[str, object], reason: str | None
) -> None:
    """400 with the option that mends it; no record, no order, no change."""
    story = reasoned(a_story(), require_reason=True)
    answer = call(story, "POST", path, CALLERS[Role.ADMIN], **body, reason=reason)
    assert (answer.status, answer.body["exit_code"]) == (400, ExitCode.USAGE)
    assert "--reason" in str(answer.body["mend"])
    assert story.rig.recorder.entries == []
    assert story.rig.cycle.state.ledger == Ledger()


def test_with_a_reason_it_goes_on_and_a_dry_run_needs_none() -> None:
    """The reason is on record."""
    story = reasoned(a_story(), require_reason=True)
    assert call(story, "POST", "/v1/pause", CALLERS[Role.OPERATOR], reason="course").status == 200
    assert story.rig.recorder.of_kind(RecordKind.PAUSED)[0].reason == "course"
    dry = call(story, "POST", "/v1/reclaims", CALLERS[Role.OPERATOR], targets=[{"pid": 100}], dry_run=True)
    assert dry.status == 200


def test_an_operator_ends_a_pause_and_leaves_the_breaker() -> None:
    """What remains is told; closing it alone is denied, and an administrator closes it."""
    story = a_story()
    broken = Ledger(pause=Pause("root", "", WALL), breaker=Breaker("too many", WALL))
    story.rig.cycle.state.ledger = broken
    answer = call(story, "POST", "/v1/resume", CALLERS[Role.OPERATOR])
    assert (answer.status, answer.body["breaker"]) == (200, {"reason": "too many", "since": WALL})
    assert story.rig.cycle.state.ledger == replace(broken, pause=None)
    denied = call(story, "POST", "/v1/resume", CALLERS[Role.OPERATOR])
    assert (denied.status, denied.body["needs_role"]) == (403, "admin")
    assert story.rig.cycle.state.ledger == replace(broken, pause=None)
    assert call(story, "POST", "/v1/resume", CALLERS[Role.ADMIN], reason="looked at").status == 200
    assert story.rig.cycle.state.ledger == Ledger()
    assert story.rig.recorder.of_kind(RecordKind.BREAKER_CLOSED)[0].reason == "too many; closed: looked at"


def test_a_gpu_s_breaker_is_an_administrator_s() -> None:
    """An operator is denied, and it stays."""
    story = a_story()
    story.rig.cycle.state.ledger = Ledger(gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL),))
    answer = call(story, "POST", "/v1/resume", CALLERS[Role.OPERATOR], gpu=GPU_A)
    assert (answer.status, answer.body["needs_role"]) == (403, "admin")
    assert len(story.rig.cycle.state.ledger.gpu_breakers) == 1


HIDDEN_WORD = "--password=hunter2"
READS = ["/v1/ps", "/v1/processes/100", "/v1/explain/pid/100", "/v1/status"]


def a_secret_story() -> Story:
    """Return a host on which a process with a secret in its command line is to be reclaimed."""
    process = a_process(cmdline=Known(("python3", "train.py", HIDDEN_WORD)))
    rig = a_rig(a_busy_snapshot(process), a_policy(a_rule(above=1 * GIB)))
    asyncio.run(rig.passes())
    assert rig.cycle.state.incidents
    return a_story(rig)


@pytest.mark.parametrize("path", READS)
def test_a_viewer_reads_no_command_line_of_others(path: str) -> None:
    """The program's name and an ellipsis; its own user, operators and administrators read it whole."""
    story = a_secret_story()
    stranger = replace(CALLERS[Role.VIEWER], actor=replace(OPERATOR, uid=UID + 1))
    assert HIDDEN_WORD not in str(call(story, "GET", path, stranger).body)
    assert HIDDEN_WORD in str(call(story, "GET", path, CALLERS[Role.OPERATOR]).body)
    own = replace(CALLERS[Role.VIEWER], actor=replace(OPERATOR, uid=UID))
    assert HIDDEN_WORD in str(call(story, "GET", path, own).body)


def test_what_is_hidden_names_the_program() -> None:
    """`ps` of a viewer is of use."""
    row = call(a_secret_story(), "GET", "/v1/ps", CALLERS[Role.VIEWER]).body["rows"]
    assert isinstance(row, list)
    assert (row[0]["command"], row[0]["comm"]) == ("python3 …", "python3")


def test_an_owner_s_order_has_their_right_on_record() -> None:
    """And one about a process of another uid is denied: 403, on record, nothing placed."""
    story = a_story()
    asyncio.run(story.rig.passes())

    async def order(caller: Caller, **body: object) -> Answer:
        answer = await story.call("POST", "/v1/reclaims", caller, None, targets=[{"pid": 100}], **body)
        if answer.lines is not None:
            await anext(answer.lines)
            coming = asyncio.ensure_future(anext(answer.lines))
            await asyncio.sleep(0)
            await story.rig.cycle.run_pass()
            await coming
            await answer.lines.aclose()
        return answer

    other = replace(OWNER, actor=replace(OWNER.actor, uid=UID + 1))
    denied = asyncio.run(order(other))
    assert (denied.status, denied.body["needs_role"]) == (403, "operator")
    assert story.rig.executor.permits == []
    assert asyncio.run(order(OWNER)).status == 200
    (opened,) = story.rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)
    assert opened.actor is not None
    assert (opened.actor.role, opened.actor.uid) == (ActorRole.OWNER, UID)
    assert len(story.rig.executor.permits) == 1


def test_an_owner_who_orders_too_often_waits() -> None:
    """429 past the burst, no order placed; after ten seconds one more is let through."""
    story = a_story()
    asyncio.run(story.rig.passes())
    found = [call(story, "POST", "/v1/reclaims", OWNER, targets=[{"pid": 100}]).status for _ in range(7)]
    assert found == [200] * 5 + [429] * 2
    story.rig.age(30.0)
    assert call(story, "POST", "/v1/reclaims", OWNER, targets=[{"pid": 100}]).status == 200


def test_an_owner_names_at_most_eight() -> None:
    """Whatever they say of max_targets."""
    targets = [{"pid": pid} for pid in range(100, 109)]
    answer = call(a_story(), "POST", "/v1/reclaims", OWNER, targets=targets, max_targets=4096)
    assert answer.status == 400
