"""Our own hold on the driver, let go of and taken back, with real workers."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.answers import Answered, Failed, Silent, SilentCause
from reclaimerd.observe.driver_grip import CLOSED_WHY, DriverGrip
from reclaimerd.observe.probe import Probe
from tests.rigs.proc_children import script

pytestmark = pytest.mark.process

WORKER = """
import json, os, signal, socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
def say(**message): sock.sendall(json.dumps(message).encode() + b"\\n")
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
say(hello={"pid": os.getpid(), "start_ticks": int(stat[19]), "boot_id": boot})
for line in sock.makefile("rb"):
    request = json.loads(line)
    if request["op"] == "slow": time.sleep(0.5)
    if request["op"] == "hang": signal.pause()
    say(id=request["id"], done=True)
"""
LIMITS = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)


@asynccontextmanager
async def a_probe(limits: WorkerSettings = LIMITS) -> AsyncIterator[Probe]:
    """Give an nvml probe that has answered once."""
    probe = Probe("nvml", lambda fd: [sys.executable, "-I", "-S", "-c", WORKER, str(fd)], limits)
    try:
        assert isinstance(await probe.ask("host", answer_within=20), Answered)
        yield probe
    finally:
        probe.reopen()
        await probe.close()


def is_gone(pid: int) -> bool:
    """Tell whether a worker of ours is gone and reaped."""
    return not Path(f"/proc/{pid}").exists()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one coroutine function."""
    asyncio.run(test())


def test_let_go_ends_the_worker_and_no_question_starts_another() -> None:
    """The process is gone; every later question is answered at once, and it is nobody's silence."""

    async def test() -> None:
        async with a_probe() as probe:
            grip = DriverGrip(probe)
            (pid,) = probe.worker_pids()
            assert await grip.let_go()
            assert is_gone(pid)
            for _ in range(3):
                silent = await probe.ask("host")
                assert isinstance(silent, Silent)
                assert (silent.why, silent.cause) == (CLOSED_WHY, SilentCause.CLOSED)
            await probe.start()
            assert probe.worker_pids() == ()
            assert probe.silent_since is None

    run(test)


def test_take_back_lets_the_next_question_start_a_worker_at_once() -> None:
    """No back-off: nothing failed."""

    async def test() -> None:
        async with a_probe() as probe:
            grip = DriverGrip(probe)
            (before,) = probe.worker_pids()
            await grip.let_go()
            grip.take_back()
            assert isinstance(await probe.ask("host"), Answered)
            (after,) = probe.worker_pids()
            assert after != before

    run(test)


def test_take_back_without_let_go_does_nothing() -> None:
    """The worker goes on; letting go twice is letting go once."""

    async def test() -> None:
        async with a_probe() as probe:
            grip = DriverGrip(probe)
            pids = probe.worker_pids()
            grip.take_back()
            assert isinstance(await probe.ask("host"), Answered)
            assert probe.worker_pids() == pids
            assert await grip.let_go()
            assert await grip.let_go()

    run(test)


def test_a_reset_and_a_person_need_it_closed_each_for_himself() -> None:
    """Who takes his own back opens it only when the other is done with it; askers hear the person's."""

    async def test() -> None:
        async with a_probe() as probe:
            grip = DriverGrip(probe)
            assert await grip.release("released by root")
            assert grip.left() == ()
            grip.take_back()
            assert await why_closed(probe) == "released by root"
            assert await grip.let_go()
            assert await why_closed(probe) == "released by root"
            grip.end_release()
            assert await why_closed(probe) != ""
            grip.take_back()
            assert isinstance(await probe.ask("host"), Answered)
            assert await grip.let_go()
            assert await grip.release("released by ann")
            grip.take_back()
            assert await why_closed(probe) == "released by ann"
            grip.end_release()
            assert isinstance(await probe.ask("host"), Answered)

    run(test)


async def why_closed(probe: Probe) -> str:
    """Return what an asker is told of a probe that is closed."""
    silent = await probe.ask("host")
    assert isinstance(silent, Silent)
    assert silent.cause is SilentCause.CLOSED
    return silent.why


def test_a_question_in_flight_ends_first_and_those_behind_it_are_told() -> None:
    """An ordinary pass is not cut off; one that waited its turn does not start the worker again."""

    async def test() -> None:
        async with a_probe() as probe:
            asking = asyncio.ensure_future(probe.ask("slow"))
            await asyncio.sleep(0.05)
            behind = asyncio.ensure_future(probe.ask("host"))
            await asyncio.sleep(0)
            assert await DriverGrip(probe).let_go()
            assert isinstance(await asking, Answered)
            told = await behind
            assert isinstance(told, Silent)
            assert told.cause is SilentCause.CLOSED
            assert probe.worker_pids() == ()
            grip_again = await probe.ask("host")
            assert isinstance(grip_again, Silent)

    run(test)


def test_a_worker_that_hangs_is_ended_all_the_same() -> None:
    """Past the limit of its question it is killed; it was only asleep, so none of ours is left."""

    async def test() -> None:
        async with a_probe(WorkerSettings(answer_within_seconds=0.3, hung_after_seconds=60)) as probe:
            (pid,) = probe.worker_pids()
            silent = await probe.ask("hang")
            assert isinstance(silent, Silent | Failed)
            assert await DriverGrip(probe).let_go()
            assert is_gone(pid)

    run(test)


def test_a_worker_that_cannot_be_ended_is_left_and_that_is_said() -> None:
    """One that was abandoned and lives on holds the driver still: then nothing may be reset."""

    async def test() -> None:
        async with a_probe() as probe:
            grip = DriverGrip(probe)
            with script("ready(); import signal; signal.pause()") as child:
                await probe.adopt_abandoned(read_ref(child))
                assert not await grip.let_go()
            assert await grip.let_go()

    run(test)


def read_ref(pid: int) -> ProcessRef:
    """Return the identity of a child."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ProcessRef(boot_id, pid, int(stat[19]))
