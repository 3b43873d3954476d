"""Resets beside the passes: each once, resumed at a start, put back at an end, and never a crash of ours."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.daemon.reset_tasks import ResetTasks
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reset_run import ResetPhase
from tests.judge.reset_builders import a_run

ONE, TWO = AttemptId("inc-1.1"), AttemptId("inc-2.1")


@dataclass(slots=True)
class FakeProcedure:
    """Runs until the test lets it go on."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    began: list[AttemptId] = field(default_factory=list)
    ended: list[AttemptId] = field(default_factory=list)
    cut: list[AttemptId] = field(default_factory=list)
    back: list[AttemptId] = field(default_factory=list)
    over: tuple[AttemptId, ...] = ()

    async def run(self, run: AttemptId) -> None:
        """Drive a run."""
        self.began.append(run)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cut.append(run)
            raise
        if self.error is not None:
            raise self.error
        self.ended.append(run)

    async def resume(self, ledger: Ledger) -> tuple[AttemptId, ...]:
        """Return what is not done."""
        return tuple(run.id for run in ledger.resets if not run.is_done)

    async def look_after(self) -> tuple[AttemptId, ...]:
        """Return what the test set."""
        return self.over

    async def put_back(self, run: AttemptId) -> None:
        """Note it."""
        self.back.append(run)


def tasks_of(procedure: FakeProcedure, woken: list[int]) -> ResetTasks:
    """Return the tasks over a fake procedure."""
    return ResetTasks(cast("ResetProcedure", procedure), lambda: woken.append(1))


async def moments() -> None:
    """Let whatever is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_run_goes_on_once_and_its_end_wakes_the_passes() -> None:
    """Begun twice it is one; when it has ended it can be begun again."""

    async def scene() -> None:
        procedure, woken = FakeProcedure(), list[int]()
        tasks = tasks_of(procedure, woken)
        tasks.begin(ONE)
        tasks.begin(ONE)
        await moments()
        assert (procedure.began, woken) == ([ONE], [])
        procedure.go_on.set()
        await moments()
        assert (procedure.ended, woken) == ([ONE], [1])
        tasks.begin(ONE)
        await moments()
        assert procedure.began == [ONE, ONE]

    asyncio.run(scene())


def test_a_fault_in_a_run_is_logged_and_wakes_the_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """It ends that reset's task and nothing else."""

    async def scene() -> None:
        procedure, woken = FakeProcedure(error=ValueError("no")), list[int]()
        tasks = tasks_of(procedure, woken)
        procedure.go_on.set()
        tasks.begin(ONE)
        await moments()
        assert woken == [1]

    asyncio.run(scene())
    said = capsys.readouterr()
    assert "reset_broke_off" in said.err + said.out
    assert "ValueError: no" in said.err + said.out


def test_a_start_takes_up_what_was_left() -> None:
    """And a tool that was left alone and has ended since."""

    async def scene() -> None:
        procedure = FakeProcedure(over=(TWO,))
        tasks = tasks_of(procedure, [])
        done = replace(a_run(), id=AttemptId("x"), phase=ResetPhase.DONE)
        await tasks.resume(Ledger(resets=(done, a_run())))
        await moments()
        assert procedure.began == [ONE]
        await tasks.look_after()
        await moments()
        assert procedure.began == [ONE, TWO]
        await tasks.stop()

    asyncio.run(scene())


def test_at_an_end_runs_are_let_go_of_where_they_stand() -> None:
    """Cut, and not put back: the record says how the next start goes on."""

    async def scene() -> None:
        procedure, woken = FakeProcedure(), list[int]()
        tasks = tasks_of(procedure, woken)
        tasks.begin(ONE)
        await moments()
        await tasks.stop()
        assert (procedure.cut, procedure.back) == ([ONE], [])
        await tasks.stop()

    asyncio.run(scene())


def test_an_end_without_a_next_start_puts_everything_back() -> None:
    """Whatever is not done, after it was stopped."""

    async def scene() -> None:
        procedure = FakeProcedure()
        tasks = tasks_of(procedure, [])
        tasks.begin(ONE)
        await moments()
        done = replace(a_run(), id=AttemptId("x"), phase=ResetPhase.DONE)
        await tasks.put_back(Ledger(resets=(done, a_run())))
        assert (procedure.cut, procedure.back) == ([ONE], [ONE])

    asyncio.run(scene())
