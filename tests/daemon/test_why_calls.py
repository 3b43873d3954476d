"""`GET /v1/why`: an owner is told of their own processes alone; questions are bounded and checked."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon import why_calls
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.record.audit_index import AuditIndex
from reclaimerd.record.why_found import Asked, read_why
from tests.daemon.test_api import MEMBER, NOBODY, ROOT, Story, a_story
from tests.docs.test_openapi import DOCUMENT, call_at, schema_of
from tests.record.review_rig import stories
from tests.rigs.schema_check import faults

REFUSAL = "acts are paused"
"""A refusal's text, which may name anybody."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a log of three incidents: pid 101 of uid 1001, 102 of 1002, 103 of 1000."""
    made = tmp_path_factory.mktemp("why")
    stories(made / "log", 3)
    return made


def owner(uid: int) -> Caller:
    """Return somebody without a role where the policy has owners."""
    return Caller(Role.NONE, replace(ROOT.actor, uid=uid), "you are nobody", may_own=True)


def ask(story: Story, caller: Caller, **query: str) -> tuple[int, dict[str, Any]]:
    """Ask once; return status and body, as they go over the wire."""
    answer = asyncio.run(story.call("GET", "/v1/why", caller, query))
    return answer.status, json.loads(json.dumps(answer.body))


def test_an_operator_is_told_all_as_the_schema_says(folder: Path) -> None:
    """Texts of refusals included."""
    status, body = ask(a_story(folder=folder), ROOT, pid="102")
    assert (status, body["answer"], body["only_uid"]) == (200, "signalled", None)
    assert REFUSAL in json.dumps(body)
    assert list(faults(body, schema_of(call_at("GET", "/v1/why")), DOCUMENT)) == []


def test_an_owner_is_told_of_their_own_without_what_may_name_others(folder: Path) -> None:
    """Who, why, the step that was sent and the end; no text of a refusal."""
    status, body = ask(a_story(folder=folder), owner(1001), pid="101")
    assert (status, body["answer"], body["only_uid"]) == (200, "signalled", 1001)
    (one,) = body["incidents"]
    assert (one["actors"][0]["name"], one["why"]) == ("leak", "it leaks 3 MiB/s")
    assert [step["detail"] for step in one["steps"]] == ["signal 9"]
    assert one["words"][0]["reasons"] == [{"kind": "paused", "text": "", "mend": ""}]
    assert REFUSAL not in json.dumps(body)


@pytest.mark.parametrize("pid", ["102", "103"])
def test_an_owner_is_told_nothing_of_others(folder: Path, pid: str) -> None:
    """Not even that there is something."""
    status, body = ask(a_story(folder=folder), owner(1001), pid=pid)
    assert (status, body["answer"], body["incidents"], body["named_by"]) == (200, "not_on_record", [], [])


@pytest.mark.parametrize("caller", [NOBODY, MEMBER])
def test_who_has_no_right_is_denied(folder: Path, caller: Caller) -> None:
    """403 with the role, where the policy has no owners."""
    status, body = ask(a_story(folder=folder), caller, pid="101")
    assert (status, body["needs_role"]) == (403, "operator")


@pytest.mark.parametrize(
    "query",
    [{}, {"pid": "1", "job": "2"}, {"pid": "x"}, {"pid": "0"}, {"job": "1", "start": "2"}, {"job": "1_2"},
     {"pod": "../.."}, {"pid": "1", "since": "nan"}, {"pid": "1", "limit": "1000"}],
    ids=str,
)  # fmt: skip
def test_a_question_that_can_t_be_read_is_400(folder: Path, query: dict[str, str]) -> None:
    """And no file is read for it."""
    assert ask(a_story(folder=folder), ROOT, **query)[0] == 400


def test_who_asks_too_often_waits(folder: Path) -> None:
    """429 past the burst, for each uid by itself."""
    story = a_story(folder=folder)
    assert [ask(story, owner(1001), pid="101")[0] for _ in range(6)] == [200] * 5 + [429]
    assert ask(story, owner(1002), pid="101")[0] == 200


def test_owners_questions_never_hold_up_an_operator(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner's reading hangs on a long log, more of theirs wait behind it; the operator's is answered."""
    story, go_on, begun = a_story(folder=folder), threading.Event(), threading.Event()

    def slow_for_owners(directory: Path, asked: Asked, index: AuditIndex | None) -> dict[str, Any]:
        if asked.uid is not None:
            begun.set()
            go_on.wait(30)
        return read_why(directory, asked, index)

    monkeypatch.setattr(why_calls, "read_why", slow_for_owners)

    async def run() -> int:
        theirs = [story.call("GET", "/v1/why", owner(1001), {"pid": "101"}) for _ in range(3)]
        waiting = asyncio.gather(*theirs)
        await asyncio.to_thread(begun.wait, 30)
        try:
            async with asyncio.timeout(20):
                answer = await story.call("GET", "/v1/why", ROOT, {"pid": "101"})
            assert not waiting.done()
        finally:
            go_on.set()
            await waiting
        return answer.status

    assert asyncio.run(run()) == 200


def test_without_a_log_nothing_is_on_record(tmp_path: Path) -> None:
    """A daemon that has just been installed."""
    assert ask(a_story(folder=tmp_path), ROOT, job="1")[1]["answer"] == "not_on_record"


def test_one_who_asks_again_before_the_answer_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 with the mend, for that uid alone; once it is answered they may ask again."""
    story, go_on = a_story(folder=folder), threading.Event()

    def slow(directory: Path, asked: Asked, index: AuditIndex | None) -> dict[str, Any]:
        go_on.wait(30)
        return read_why(directory, asked, index)

    monkeypatch.setattr(why_calls, "read_why", slow)

    async def run() -> list[int]:
        def question(uid: int) -> Any:
            return story.call("GET", "/v1/why", owner(uid), {"pid": "101"})

        first = asyncio.ensure_future(question(1001))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(question(1002))
        try:
            async with asyncio.timeout(20):
                again = await question(1001)
        finally:
            go_on.set()
        assert again.status == 429
        assert "is not answered yet" in str(again.body["error"])
        assert again.body["mend"]
        ended = [(await one).status for one in (first, other)]
        return [*ended, (await question(1001)).status]

    assert asyncio.run(run()) == [200, 200, 200]


def test_an_owner_s_reading_ends_at_its_deadline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread itself gives up, so that the next question is read; what mends it is said."""
    story = a_story(folder=folder)
    monkeypatch.setattr(why_calls, "OWNERS_SECONDS", -1.0)
    status, body = ask(story, owner(1001), pid="101")
    assert status == 409
    assert "took longer than" in body["error"]
    assert "--since" in body["mend"]
    assert ask(story, ROOT, pid="102")[0] == 200
    monkeypatch.setattr(why_calls, "OWNERS_SECONDS", 10.0)
    assert ask(story, owner(1001), pid="101")[0] == 200
