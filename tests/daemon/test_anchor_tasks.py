"""The audit's head on its way off the host: when it is due, what is sent, and what a failure does."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reclaimerd.daemon.anchor_tasks import AnchorSender
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer
from reclaimerd.model.outlets import AnchorWebhook
from reclaimerd.record.audit_anchors import read_anchors
from reclaimerd.record.chain import Head
from tests.builders import BOOT, WALL

BOUND = 10.0
KEEPER = AnchorWebhook("https://keeper/", "/key", every_seconds=300.0, every_records=10)


def head(seq: int) -> Head:
    """Return a head with this number."""
    return Head(seq, f"{seq:064x}")


@dataclass(slots=True)
class Story:
    """A sender, what was posted by it, and what the next answers are (the last one for ever)."""

    answers: list[TargetAnswer] = field(default_factory=lambda: [Asked("took it")])
    settings: AnchorWebhook = KEEPER
    now: float = 1000.0
    posted: list[tuple[WebhookTarget, str, dict[str, Any]]] = field(default_factory=list)
    hangs: bool = False
    sender: AnchorSender = field(init=False)

    def __post_init__(self) -> None:
        self.sender = AnchorSender(lambda: self.settings, self.post, lambda: self.now, lambda: WALL, BOOT)

    async def post(self, webhook: WebhookTarget, message: str, body: str) -> TargetAnswer:
        """Keep what is posted, and answer."""
        self.posted.append((webhook, message, json.loads(body)))
        if self.hangs:
            await asyncio.Event().wait()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def look(self, seq: int | None, after: float = 0.0) -> list[int]:
        """Look some time later, let what follows happen, and return the numbers that were posted then."""
        self.now += after
        before = len(self.posted)
        self.sender.look(None if seq is None else head(seq))
        for _ in range(10):
            await asyncio.sleep(0)
        return [body["seq"] for _, _, body in self.posted[before:]]


def told(work: Callable[[], Awaitable[None]]) -> None:
    """Do the work with a bound."""

    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await work()

    asyncio.run(bounded())


def test_the_first_head_at_once_and_then_in_time_or_by_number() -> None:
    """Not the same one twice, not before its time, and before it when the log grew by so many records."""
    story = Story()

    async def work() -> None:
        assert await story.look(None) == []
        assert await story.look(5) == [5]
        assert await story.look(5, after=1e6) == []
        assert await story.look(6) == [6]
        assert await story.look(7, after=299.0) == []
        assert await story.look(7, after=1.0) == [7]
        assert await story.look(16) == []
        assert await story.look(17) == [17]
        assert story.sender.sent == head(17)

    told(work)


def test_what_is_sent_is_an_anchor_that_verify_reads(tmp_path: Any) -> None:
    """Host, boot, time, number and hash; posted as the policy says, under an id that names the record."""
    story = Story()
    told(lambda: _ignored(story.look(5)))
    ((webhook, message, body),) = story.posted
    assert webhook == WebhookTarget("https://keeper/", "/key")
    assert message == f"audit-head-5-{head(5).hash[:16]}"
    assert (body["schema"], body["kind"], body["boot"]) == (1, "audit_head", BOOT)
    (tmp_path / "kept").write_text(json.dumps(body) + "\n")
    assert read_anchors(tmp_path / "kept", body["host"]) == {5: head(5).hash}
    assert read_anchors(tmp_path / "kept", "another") == {}


async def _ignored(work: Awaitable[object]) -> None:
    await work


@pytest.mark.parametrize("answer", [NotAsked("refused"), NotAsked("gone", lasting=True), Foreign("not ours")])
def test_a_head_that_is_not_taken_is_a_fault_until_one_is(
    answer: TargetAnswer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Asked again when it is due and not in each pass, however the log grows; told once, and its end."""
    story = Story(answers=[answer, answer, Asked("took it")])

    async def work() -> None:
        assert await story.look(5) == [5]
        assert story.sender.fault() == answer.text
        assert await story.look(500, after=299.0) == []
        assert await story.look(500, after=1.0) == [500]
        assert await story.look(500, after=300.0) == [500]
        assert (story.sender.fault(), story.sender.sent) == ("", head(500))

    told(work)
    events = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert events == ["audit_anchor_not_sent", "audit_anchor_sent_again"]


def test_one_is_under_way_at_a_time_and_the_end_waits_for_none() -> None:
    """A receiver that hangs costs one task; `stop` ends it."""
    story = Story(hangs=True)

    async def work() -> None:
        assert await story.look(5) == [5]
        assert await story.look(5000, after=1e6) == []
        await story.sender.stop()
        assert len(asyncio.all_tasks()) == 1

    told(work)


def test_nobody_is_sent_anything_unless_the_policy_names_them() -> None:
    """As it is now: after a reload without the table there is neither a post nor a fault."""
    story = Story(answers=[NotAsked("refused")])

    async def work() -> None:
        await story.look(5)
        assert story.sender.fault()
        story.settings = replace(KEEPER, url="")
        assert await story.look(6, after=1e6) == []
        assert story.sender.fault() == ""

    told(work)
