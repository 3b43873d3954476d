"""The real worker on programs: what it answers, and that one hostile process costs the others nothing."""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answered, Failed
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.processes import ProcessReader
from reclaimerd.observe.sign_eyes import SignEyes
from tests.builders import MONO, a_busy_snapshot, a_process, a_ref
from tests.rigs.proc_children import device, script
from tests.rigs.raw_fuse import RawFuse, why_unavailable

pytestmark = pytest.mark.process

PAUSE = "\nimport signal\nready()\nsignal.pause()\n"
STUCK_EXEC = (
    "import mmap, os, sys\n"
    "mapped = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)\n"
    "mapped[0] = 1\n"
    "os.execv('/bin/sleep', ['sleep', '600'])\n"
)
"""Its program change waits for its dirty mapping and holds the lock that readers of its /proc files need."""


def start_of(pid: int) -> int:
    """Return a process's start ticks."""
    return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")).start_ticks


def with_worker(scene: Callable[[Probe], Coroutine[Any, Any, None]]) -> None:
    """Run a scene with a real worker."""

    async def run() -> None:
        probe = Probe("signs", command_for("procfs"), WorkerSettings(answer_within_seconds=30))
        try:
            await scene(probe)
        finally:
            await probe.close()

    asyncio.run(run())


class Holders:
    """A sampler that sees these processes hold a GPU."""

    def __init__(self, *readings: ProcessReading) -> None:
        self.readings = readings

    async def sample(self, _look: Look) -> Snapshot:
        """Return the look."""
        return a_busy_snapshot(*self.readings)


def test_the_worker_answers_for_each_and_says_who_is_gone() -> None:
    """A part for a living process, one for a dead; a question without sense is an error."""
    digest = hashlib.sha256(Path(sys.executable).resolve().read_bytes()).hexdigest()

    async def scene(probe: Probe) -> None:
        us, started = os.getpid(), start_of(os.getpid())
        answer = await probe.ask("signs", {"asked": [[us, started], [us, started + 1]]})
        assert isinstance(answer, Answered), answer
        told = [part for part in answer.parts if "pid" in part]
        assert told[0]["signs"]["sha256"]["value"] == digest
        assert told[1] == {"pid": us, "unreadable": "it is gone"}
        for args in ({}, {"asked": [[1]]}, {"asked": 5}):
            assert isinstance(await probe.ask("signs", args), Failed)
        nobody = await probe.ask("hidden", {"pids": [us]})
        assert isinstance(nobody, Answered)
        assert nobody.parts == ({"hidden": []},)

    with_worker(scene)


def test_real_signs_come_into_a_look() -> None:
    """From the worker through the eyes: hash, parents and figures of a real process, in its first look."""
    with script(PAUSE) as pid:
        reading = ProcessReader().look(pid, whole=False).reading
        digest = hashlib.sha256(Path(sys.executable).resolve().read_bytes()).hexdigest()
        ours = Path("/proc/self/comm").read_text(encoding="utf-8").strip()

        async def scene(probe: Probe) -> None:
            await probe.start()
            await probe.ask("hidden", {"pids": []})
            snapshot = await SignEyes(Holders(reading), probe, lambda: MONO).sample(Look(signs=True))
            signs = snapshot.signs[reading.ref]
            assert signs.sha256 == Known(digest)
            assert signs.connections == Known(())
            assert isinstance(signs.io_bytes, Known)
            assert signs.ancestors[0] == ours

        with_worker(scene)


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_process_that_makes_the_reader_hang_is_alone_unreadable() -> None:
    """C14: its readers wait; the worker is replaced, and those before and after it are read."""
    with RawFuse(withhold="write") as fuse, device(), script(PAUSE) as before, ExitStack() as stack:
        stuck = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", STUCK_EXEC, str(fuse.path("a"))], stdout=subprocess.DEVNULL
        )
        stack.callback(stuck.wait, 10)
        stack.callback(fuse.release)
        stack.callback(stuck.kill)
        fuse.wait_withheld()
        with script(PAUSE) as after:
            reading = [ProcessReader().look(pid, whole=False).reading for pid in (before, after)]
            readings = (reading[0], a_process(ref=a_ref(stuck.pid)), reading[1])

            async def scene(probe: Probe) -> None:
                eyes = SignEyes(Holders(*readings), probe, lambda: MONO)
                await eyes.sample(Look(signs=True))
                if eyes._task is not None:
                    await eyes._task
                signs = (await eyes.sample(Look(signs=True))).signs
                assert signs[readings[1].ref].sha256 == Unreadable("it did not answer before")
                for one in (readings[0], readings[2]):
                    assert isinstance(signs[one.ref].sha256, Known), signs[one.ref]
                assert probe.abandoned is None

            with_worker(scene)
