"""docs/openapi.json is the server's calls: each route and role, each body's fields, and real answers."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.http_server import Answer, Body, Call
from reclaimerd.model.ledger import Breaker, Pause, Suspension
from reclaimerd.model.policy import AccessSettings
from tests.builders import GIB, GPU_A, WALL, a_busy_snapshot, a_policy, a_process, a_rule
from tests.daemon.test_api import MEMBER, NOBODY, PEER, ROOT, Story, a_story
from tests.fakes import a_rig
from tests.rigs.schema_check import Json, faults, resolved

PAGE = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT: Json = json.loads(PAGE.read_text(encoding="utf-8"))
CALLS: list[tuple[str, str, Json]] = [
    (method.upper(), re.sub(r"[{}]", "", path), call)
    for path, item in DOCUMENT["paths"].items()
    for method, call in item.items()
]
RULE = "over-cap"
TARGET = {"pid": 100, "start_ticks": None}
EXAMPLES: list[tuple[str, str, Mapping[str, object]]] = [
    ("GET", "/v1/status", {}),
    ("GET", "/v1/ps", {}),
    ("GET", "/v1/reclaims/candidates", {}),
    ("GET", "/v1/processes/100", {}),
    ("GET", "/v1/incidents", {}),
    ("GET", "/v1/explain/pid/100", {}),
    ("GET", "/v1/rules", {}),
    ("GET", "/v1/breakers", {}),
    ("POST", "/v1/reclaims", {"targets": [TARGET], "reason": "x"}),
    ("POST", "/v1/pause", {"for_seconds": 60.0, "reason": "x"}),
    ("POST", "/v1/resume", {"reason": "x"}),
    ("POST", "/v1/breakers/close", {"reason": "x"}),
    ("POST", "/v1/drain", {"reason": "x"}),
    ("POST", f"/v1/rules/{RULE}/suspend", {"for_seconds": 60, "reason": "x"}),
    ("POST", f"/v1/rules/{RULE}/resume", {"reason": "x"}),
    ("POST", "/v1/audit/exports", {}),
]
WRONG: list[tuple[str, str, Mapping[str, object], Caller]] = [
    ("GET", "/v1/nothing", {}, ROOT),
    ("POST", "/v1/status", {}, ROOT),
    ("GET", "/v1/processes/x", {}, ROOT),
    ("POST", "/v1/pause", {"for_seconds": -1}, ROOT),
    ("POST", "/v1/pause", {}, MEMBER),
    ("GET", "/v1/status", {}, NOBODY),
    ("POST", "/v1/reload", {}, ROOT),
    ("POST", "/v1/rules/none/suspend", {}, ROOT),
    ("POST", "/v1/undrain", {"incident": "inc-1"}, ROOT),
]


@dataclass(frozen=True, slots=True)
class Watched:
    """A body whose fields are noted as they are read."""

    body: Mapping[str, object]
    read: set[str]

    def get(self, key: str) -> object:
        """Note the field and return it."""
        self.read.add(key)
        return self.body.get(key)


def a_full_story() -> Story:
    """Return an API whose status has something to say of most things."""
    rig = a_rig(a_busy_snapshot(a_process()), a_policy(a_rule(RULE, above=1 * GIB)))
    story = a_story(rig)
    asyncio.run(rig.passes())
    rig.cycle.state.ledger = replace(
        rig.cycle.state.ledger,
        pause=Pause("ann", "course", WALL, WALL + 60.0),
        breaker=Breaker("too many", WALL),
        suspended=(Suspension(RULE, "ann", "", WALL),),
    )
    return story


def call_at(method: str, path: str) -> Json:
    """Return the description of the call that a path belongs to."""
    parts = path.split("/")

    def fits(template: str) -> bool:
        own = template.split("/")
        return len(own) == len(parts) and all(
            a in (b, b) or a.isupper() for a, b in zip(own, parts, strict=True)
        )

    return next(call for verb, template, call in CALLS if verb == method and fits(template))


def schema_of(call: Json, code: str = "200") -> Json:
    """Return the schema of an answer."""
    answer = call["responses"][code]
    answer = resolved(answer["$ref"], DOCUMENT) if "$ref" in answer else answer
    (content,) = answer["content"].values()
    return dict(content["schema"])


async def bodies_of(answer: Answer) -> list[Json]:
    """Return an answer's body, or the first line of its stream, as they go over the wire."""
    if answer.lines is None:
        return [json.loads(json.dumps(answer.body))]
    first = await anext(answer.lines)
    await answer.lines.aclose()
    return [json.loads(json.dumps(first))]


def test_it_describes_each_call_with_its_role_and_no_other() -> None:
    """Method, path, least role, whether an owner may, and whether a reason can be demanded."""
    told = {
        (method, path, call["x-role"], call.get("x-owner", False), call.get("x-acts", False))
        for method, path, call in CALLS
    }
    served = {(one.method, one.path, one.role.word, one.owner, one.acts) for one in a_story().api.routes}
    assert told == served


@pytest.mark.parametrize(("method", "path", "body"), EXAMPLES, ids=lambda value: str(value)[:40])
def test_an_answer_is_as_described(method: str, path: str, body: Mapping[str, object]) -> None:
    """No field is missing, of another type, or undescribed."""
    story = a_full_story()

    async def ask() -> list[Json]:
        answer = await story.api.answer(Call(method, path, {}, body, PEER), ROOT)
        assert answer.status == 200, answer.body
        return await bodies_of(answer)

    for told in asyncio.run(ask()):
        assert list(faults(told, schema_of(call_at(method, path)), DOCUMENT)) == []


@pytest.mark.parametrize(("method", "path", "body", "caller"), WRONG, ids=lambda value: str(value)[:40])
def test_a_refusal_is_as_described(
    method: str, path: str, body: Mapping[str, object], caller: Caller
) -> None:
    """Whatever is wrong: the same form."""
    answer = asyncio.run(a_story().api.answer(Call(method, path, {}, body, PEER), caller))
    assert answer.status >= 400
    schema = {"$ref": "#/components/schemas/Error"}
    assert list(faults(json.loads(json.dumps(answer.body)), schema, DOCUMENT)) == []


def posts() -> Iterator[tuple[str, Json]]:
    """Yield the path of each call that takes a body, and its description."""
    for method, path, call in CALLS:
        if method == "POST":
            yield path, call


FULL: Mapping[str, Mapping[str, object]] = {
    "/v1/reclaims": {"targets": [TARGET]},
    "/v1/resets": {"gpu": GPU_A},
    "/v1/undrain": {"incident": "inc-1"},
    "/v1/unkillable": {"job": "1", "step": "0"},
}
UNREAD: Mapping[str, frozenset[str]] = {
    "/v1/undrain": frozenset(
        {"give_up", "reason"}
    ),  # no request stands in this story: test_drain_calls has it
    "/v1/unkillable": frozenset(),
    "/v1/release-driver": frozenset({"end", "for_seconds", "reason"}),  # not over fakes: test_release_calls
}


@pytest.mark.parametrize(("path", "call"), list(posts()), ids=lambda value: str(value)[:40])
def test_the_fields_of_a_body_are_those_that_are_read(path: str, call: Json) -> None:
    """Each described field is read, each field that is read is described."""
    story = a_full_story()
    story.rig.cycle.policy = replace(story.rig.cycle.given, access=AccessSettings(require_reason=True))
    read: set[str] = set()
    given = {"reason": "x", **FULL.get(path, {})}
    asked = Call("POST", path.replace("NAME", RULE), {}, cast("Body", Watched(given, read)), PEER)

    async def ask() -> None:
        answer = await story.api.answer(asked, ROOT)
        if answer.lines is not None:
            await answer.lines.aclose()

    if path not in ("/v1/release-driver", "/v1/unkillable"):
        asyncio.run(ask())
    described = set(call["requestBody"]["content"]["application/json"]["schema"]["properties"])
    if path == "/v1/unkillable":
        read |= {"job", "step"}
    assert described - UNREAD.get(path, frozenset()) == read - UNREAD.get(path, frozenset())


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    """No dead end, and nothing left over."""
    text = PAGE.read_text(encoding="utf-8")
    references = set(re.findall(r'"\$ref": "(#/[^"]+)"', text))
    for reference in references:
        assert resolved(reference, DOCUMENT)
    schemas: dict[str, Any] = DOCUMENT["components"]["schemas"]
    assert {f"#/components/schemas/{name}" for name in schemas} <= references
