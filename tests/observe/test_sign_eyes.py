"""The signs of programs in each look: read beside the passes, never waited for, each failure a reading."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProgramSigns
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe import sign_eyes as sign_eyes_module
from reclaimerd.observe.answers import Answer, Answered, Silent
from reclaimerd.observe.program_signs import SignsOf
from reclaimerd.observe.sign_eyes import EARLY_SECONDS, EVERY_SECONDS, SignEyes
from tests.builders import MONO, a_busy_snapshot, a_process, a_ref

PROGRAM = FileIdentity(1, 7)
ASKING = Look(signs=True)


def signs_of(pid: int) -> ProgramSigns:
    """Return signs that only this process has."""
    return ProgramSigns(Known(pid), Known(f"{pid:064x}"), Known(()), ("python3",))


class Host:
    """A worker with a script, whoever holds GPUs meanwhile, and a clock."""

    def __init__(self, *pids: int) -> None:
        self.now = MONO
        self.pids = list(pids)
        self.exe: Reading[FileIdentity] = Known(PROGRAM)
        self.answer: Answer | None = None
        self.parts: list[Any] | None = None
        self.asked: list[list[int]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.eyes = SignEyes(self, self, lambda: self.now)

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with these holders."""
        return a_busy_snapshot(*(a_process(pid, exe_file=self.exe) for pid in self.pids), at=self.now)

    async def ask(self, op: str, args: Any = None, *, answer_within: float | None = None) -> Answer:
        """Return what the script says, or each one's own signs."""
        assert (op, answer_within) == ("signs", sign_eyes_module.ANSWER_SECONDS)
        pids = [pid for pid, _start in args["asked"]]
        self.asked.append(pids)
        await self.free.wait()
        parts = [to_wire(SignsOf(pid, signs_of(pid), PROGRAM)) for pid in pids]
        parts = [{"reading": True}, *parts] if self.parts is None else self.parts
        return self.answer or Answered(tuple(parts), self.now, self.now)

    async def look(self, look: Look = ASKING) -> dict[int, ProgramSigns]:
        """Look once, and let what is read beside it come in."""
        found = (await self.eyes.sample(look)).signs
        for _ in range(20):
            await asyncio.sleep(0)
        return {ref.pid: signs for ref, signs in found.items()}


def played(scene: Callable[[Host], Coroutine[Any, Any, None]], *pids: int) -> None:
    """Play a scene."""

    async def run() -> None:
        await scene(Host(*pids))

    asyncio.run(run())


def test_a_look_that_does_not_ask_costs_nothing() -> None:
    """No rule needs it: nobody is asked, and the look has none."""

    async def scene(host: Host) -> None:
        assert await host.look(Look()) == {}
        assert host.asked == []

    played(scene, 100)


def test_each_holder_is_read_at_most_every_half_minute() -> None:
    """The very first look waits a moment for its answer; later ones take what there is."""

    async def scene(host: Host) -> None:
        assert await host.look() == {100: signs_of(100), 200: signs_of(200)}
        await host.look()
        host.now += EVERY_SECONDS - 1
        await host.look()
        assert host.asked == [[100, 200]]
        host.pids.append(300)
        assert (await host.look())[300].sha256 == Unreadable("not read yet")
        assert (await host.look())[300] == signs_of(300)
        host.now += 1
        await host.look()
        assert host.asked == [[100, 200], [300], [100, 200]]

    played(scene, 100, 200)


def test_a_pass_never_waits_for_a_worker_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the very first look waits, and that one is bounded; meanwhile nobody is asked twice."""
    monkeypatch.setattr(sign_eyes_module, "FIRST_SECONDS", 0.01)

    async def scene(host: Host) -> None:
        host.free.clear()
        for _ in range(3):
            assert (await host.look())[100].io_bytes == Unreadable("not read yet")
        assert len(host.asked) == 1
        host.free.set()
        await host.look()
        assert (await host.look())[100] == signs_of(100)

    played(scene, 100)


def test_a_hash_is_told_only_of_the_program_that_runs_now() -> None:
    """After another program's start the old hash is of nobody; it is read anew soon, and not each moment."""

    async def scene(host: Host) -> None:
        await host.look()
        host.exe = Known(FileIdentity(1, 8))
        found = (await host.look())[100]
        assert isinstance(found.sha256, Unreadable)
        assert found.io_bytes == Known(100)
        assert len(host.asked) == 1
        host.now += EARLY_SECONDS
        await host.look()
        assert len(host.asked) == 2
        host.exe = Unreadable("hands off")
        assert isinstance((await host.look())[100].sha256, Unreadable)

    played(scene, 100)


@pytest.mark.parametrize(
    ("answer", "parts", "why"),
    [
        (Silent("it does not answer", MONO), None, "it does not answer"),
        (None, [{"pid": 100, "unreadable": "permission denied"}], "permission denied"),
        (None, [{"pid": 100, "signs": {}, "file": None}], "not a SignsOf"),
        (None, [{"pid": 7, "unreadable": "x"}, "nonsense"], "left it out"),
    ],
)
def test_every_failure_is_a_reading(answer: Answer | None, parts: list[Any] | None, why: str) -> None:
    """Whatever the worker does: the holder has signs, all unreadable, that say why; nothing is empty."""

    async def scene(host: Host) -> None:
        host.answer, host.parts = answer, parts
        found = (await host.look())[100]
        for reading in (found.io_bytes, found.sha256, found.connections):
            assert isinstance(reading, Unreadable)
            assert why in reading.why

    played(scene, 100)


def test_another_process_of_the_same_pid_has_nothing_of_it() -> None:
    """Signs belong to one life of one process."""

    async def scene(host: Host) -> None:
        await host.look()
        host.eyes._kept = {a_ref(100, start=2): kept for kept in host.eyes._kept.values()}
        assert (await host.look())[100].sha256 == Unreadable("not read yet")

    played(scene, 100)


def test_a_flood_of_holders_is_bounded_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many are read, in shares of a few; the rest is named as not read."""
    monkeypatch.setattr(sign_eyes_module, "MOST_HOLDERS", 20)

    async def scene(host: Host) -> None:
        await host.look()
        found = await host.look()
        assert [len(pids) for pids in host.asked] == [16, 4]
        assert len(found) == 30
        assert sum(isinstance(one.sha256, Known) for one in found.values()) == 20
        last = found[max(found)].sha256
        assert isinstance(last, Unreadable)
        assert "more than 20" in last.why

    played(scene, *range(100, 130))


@pytest.mark.parametrize("look", [Look(signs=True, reset=True), Look(signs=True, without_driver=True)])
def test_before_a_reset_nobody_is_asked(look: Look) -> None:
    """The look must stay fresh; what is known is told."""

    async def scene(host: Host) -> None:
        await host.look()
        host.now += EVERY_SECONDS
        assert await host.look(replace(look)) == {100: signs_of(100)}
        assert len(host.asked) == 1

    played(scene, 100)
