"""How one command in the foreground ends: what its own reset changed comes back, whatever else fails."""

import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon import foreground as module
from reclaimerd.daemon.foreground import ForegroundOptions, ForegroundReply
from reclaimerd.errors import RecordError
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy


@dataclass(slots=True)
class Ending:
    """What the end of a command asks of its engine, in order; `error` is what the hand-back raises."""

    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    async def keep_off(self, _: Ledger) -> None:
        """Note it."""
        self.asked.append("keep_off")

    async def put_back(self, _: Ledger) -> None:
        """Note it."""
        self.asked.append("put_back")

    async def hand_back(self, *_: object) -> None:
        """Note it, and fail as the test wants."""
        self.asked.append("hand_back")
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        """Note it."""
        self.asked.append("close")


def end_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ending: Ending, method: str) -> list[str]:
    """Return what the end of a command with this method asked for."""
    state = SimpleNamespace(ledger=Ledger())
    cycle = SimpleNamespace(state=state, hand_back=ending.hand_back)
    engine = SimpleNamespace(
        cycle=cycle, resets=ending, close=ending.close, taken_from=None, me=SimpleNamespace(pid=os.getpid())
    )

    async def nothing(*_: object) -> tuple[object, ...]:
        return ()

    async def built(*_: object) -> Any:
        return engine

    async def answered(*_: object) -> ForegroundReply:
        return ForegroundReply(200, {})

    async def before(_loop: object, answering: Coroutine[object, object, ForegroundReply]) -> ForegroundReply:
        return await answering

    async def ended(_: float) -> None:
        return None

    def service(*_: object) -> Any:
        return SimpleNamespace(engine=engine, run=lambda: ended(0.0), wall=lambda: 0.0, finish_evidence=ended)

    monkeypatch.setattr(module, "start_workers", nothing)
    monkeypatch.setattr(module, "build", built)
    monkeypatch.setattr(module, "load", lambda *_, **__: LoadedPolicy(Policy()))
    monkeypatch.setattr(module, "Service", service)
    monkeypatch.setattr(module, "_answered", answered)
    monkeypatch.setattr(module, "_before", before)
    monkeypatch.setattr(module, "release", lambda *_: None)
    options = ForegroundOptions(None, tmp_path, tmp_path, tmp_path / "none.sock", None)
    assert module.request(options, method, "/x", {}, None, None).status == 200
    return ending.asked


@pytest.mark.parametrize("error", [None, RecordError("the disk is gone")])
def test_what_a_reset_changed_is_put_back_also_when_nothing_can_be_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None
) -> None:
    """The order's own end may not be written: the clients that were stopped must run again all the same."""
    asked = end_of(monkeypatch, tmp_path, Ending(error), "POST")
    assert asked == ["keep_off", "hand_back", "put_back", "close"]


def test_a_command_that_only_reads_puts_nothing_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It changes nothing on the host, not even for the better."""
    assert "put_back" not in end_of(monkeypatch, tmp_path, Ending(), "GET")
