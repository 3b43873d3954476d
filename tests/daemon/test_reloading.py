"""A reload that can't be read comes to an end, and the service manager hears of it."""

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon import past
from reclaimerd.daemon.reloading import Reload
from reclaimerd.errors import RecordError
from reclaimerd.model.policy import AccessSettings, Policy

if TYPE_CHECKING:
    from reclaimerd.daemon.service import Service


class Desk:
    """A service that notes what is done with it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.life_signs = SimpleNamespace(
            reload_began=lambda: self.seen.append("began"), reload_ended=lambda: self.seen.append("ended")
        )
        self.pacing = SimpleNamespace(wake=lambda: None)
        self.engine = SimpleNamespace(take_policy=lambda _loaded: self.seen.append("taken"))
        self.cycle = SimpleNamespace(write=self._write)

    async def _write(self, _change: object, records: tuple[Any, ...]) -> None:
        self.seen += [record.kind.value for record in records]


async def _open_to(_access: AccessSettings) -> None:
    """Open the door to nobody."""


def test_a_disk_that_does_not_answer_ends_the_reload_and_not_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old policy stays, on record; when the disk answers, the next reload takes the file."""
    monkeypatch.setattr(past, "READING_SECONDS", 0.1)
    released, began = threading.Event(), []

    def read() -> LoadedPolicy:
        began.append(threading.current_thread())
        released.wait(20)
        return LoadedPolicy(Policy())

    async def scenario(desk: Desk) -> None:
        reload = Reload(cast("Service", desk), read, _open_to)
        for _ in range(2):
            with pytest.raises(RecordError, match="reading the policy"):
                await reload.take()
        assert desk.seen == ["began", "note", "ended"] * 2
        assert len(began) == 1, "a second reading beside one that hangs"
        released.set()
        await asyncio.to_thread(began[0].join, 20)
        monkeypatch.setattr(past, "READING_SECONDS", 20.0)
        await reload.take()
        assert desk.seen[6:] == ["began", "taken", "policy_loaded", "ended"]

    asyncio.run(scenario(Desk()))
