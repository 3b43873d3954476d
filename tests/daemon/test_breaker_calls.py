"""`POST /v1/breakers/close` with `since`: whoever closes a breaker closes the opening that they saw."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Breaker, Ledger, Pause
from reclaimerd.model.reset_run import GpuBreaker
from tests.builders import GPU_A, WALL
from tests.daemon.test_api import ROOT, Story, a_story

OPENED = WALL + 0.9
"""Shown as a whole second, it is within the second that was seen."""
PATH = "/v1/breakers/close"


def tripped() -> Story:
    """Return an API over a host whose breaker is open, and a GPU's too."""
    story = a_story()
    ledger = Ledger(
        breaker=Breaker("3 workloads", OPENED), gpu_breakers=(GpuBreaker(GPU_A, "twice", OPENED),)
    )
    story.rig.cycle.state.ledger = ledger
    return story


def close(story: Story, path: str = PATH, **body: object) -> tuple[int, dict[str, Any]]:
    """Ask for it once."""
    answer = asyncio.run(story.call("POST", path, ROOT, None, reason="looked", **body))
    return answer.status, dict(answer.body)


@pytest.mark.parametrize("body", [{}, {"gpu": GPU_A}], ids=str)
@pytest.mark.parametrize("path", [PATH, "/v1/resume"])
def test_a_newer_opening_than_the_one_seen_stays_open(path: str, body: dict[str, Any]) -> None:
    """409 with exit 3, why it opened, and the command that shows it; nothing is on record, a pause stays."""
    story = tripped()
    story.rig.cycle.state.ledger = replace(story.rig.cycle.state.ledger, pause=Pause("root", "", WALL))
    before = story.rig.cycle.state.ledger
    status, told = close(story, path, since=WALL - 60.0, **body)
    assert (status, told["exit_code"]) == (409, ExitCode.REFUSED)
    assert "opened again" in told["error"]
    assert ("twice" if body else "3 workloads") in told["error"]
    assert "reclaimctl breaker" in told["mend"]
    assert story.rig.cycle.state.ledger == before
    assert story.rig.recorder.entries == []


@pytest.mark.parametrize("since", [None, WALL, OPENED, OPENED + 5.0])
@pytest.mark.parametrize("body", [{}, {"gpu": GPU_A}], ids=str)
def test_the_one_that_was_seen_is_closed(body: dict[str, Any], since: float | None) -> None:
    """Also by its whole second, as people read it; without `since` whatever is open."""
    story = tripped()
    assert close(story, since=since, **body)[0] == 200
    assert [entry.kind for entry in story.rig.recorder.entries] == [RecordKind.BREAKER_CLOSED]


@pytest.mark.parametrize("since", ["now", True, -1, float("nan"), [1]])
def test_an_instant_that_is_none_is_a_fault(since: object) -> None:
    """400, and it stays open."""
    story = tripped()
    status, told = close(story, since=since)
    assert (status, told["exit_code"]) == (400, ExitCode.USAGE)
    assert story.rig.cycle.state.ledger.breaker is not None


def test_the_list_says_how_to_close_this_opening_and_no_other() -> None:
    """The command carries the second in which it opened."""
    story = tripped()
    rows: Any = asyncio.run(story.call("GET", "/v1/breakers")).body["breakers"]
    told = [row["closes"] for row in rows if row["open"]]
    assert len(told) == 2
    assert all(text.endswith("--since 2027-01-15T08:00:00Z") for text in told)
