"""The procfs worker's view of the kernel, asked through a real probe, and a process that makes it hang."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_kernel import answer_kernel
from reclaimerd.host.wire import Decoder
from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.reading import Absent, Unreadable
from reclaimerd.observe.answers import Answered, Gone, Silent, UnreadableProcess
from reclaimerd.observe.kernel_facts import KernelAnswer
from reclaimerd.observe.kernel_looks import ask_kernel_log, ask_kernel_looks, ask_kernel_scan
from reclaimerd.observe.kernel_scan import KernelScan
from reclaimerd.observe.probe import Probe
from tests.rigs.kernel_children import PAUSE, child, hanging_exec, stuck_in_flush
from tests.rigs.raw_fuse import why_unavailable

pytestmark = pytest.mark.process
needs_fuse = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


def asked(question: Callable[[Probe], Awaitable[Any]]) -> Any:
    """Ask a worker of our own, and end it."""

    async def ask() -> Any:
        probe = Probe("procfs", command_for("procfs"), WorkerSettings(answer_within_seconds=10))
        try:
            return await question(probe)
        finally:
            await probe.close()

    return asyncio.run(ask())


def test_looks_at_the_living_and_the_dead_come_in_one_answer() -> None:
    """The living are read with their tasks, who is gone is said to be gone."""
    with child(PAUSE) as started:
        looks = asked(lambda probe: ask_kernel_looks(probe, [started.pid, os.getpid(), 4_194_305]))
    assert isinstance(looks[started.pid], KernelLook)
    assert looks[started.pid].ppid == os.getpid()
    assert looks[4_194_305] == Gone()


@pytest.mark.root
@needs_fuse
def test_a_process_that_makes_the_reader_hang_costs_little_and_the_others_are_looked_at() -> None:
    """It alone is unreadable; the search leaves it out by name and has the stuck one beside it."""
    with hanging_exec() as hanging, stuck_in_flush() as stuck:

        async def both(probe: Probe) -> tuple[Any, Any]:
            looks = await ask_kernel_looks(probe, [stuck, hanging, os.getpid()])
            return looks, await ask_kernel_scan(probe, seconds=5.0)

        began = time.monotonic()
        looks, scan = asked(both)
        took = time.monotonic() - began
    assert isinstance(looks[hanging], UnreadableProcess)
    assert isinstance(looks[stuck], KernelLook)
    assert isinstance(looks[os.getpid()], KernelLook)
    assert isinstance(scan, KernelScan)
    named = {
        int(line.partition(":")[0].removeprefix("pid ")) for line in scan.skipped if line.startswith("pid ")
    }
    assert hanging in named
    # On a host without CPU to spare a slow look may be taken for a hanging one: then it is named as well.
    assert stuck in {one.look.ref.pid for one in scan.suspects} | named
    assert took < 30


def test_the_log_comes_as_lines_or_as_a_reason() -> None:
    """Whatever this machine allows, there is an answer in words."""
    log = asked(ask_kernel_log)
    assert log.lines or log.missing or log.lines == ()


class _Mute:
    """A worker that answers one thing."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def ask(
        self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
    ) -> Any:
        """Return the one answer."""
        del op, args, answer_within
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        Silent("no answer", 0.0),
        Answered((), 0.0, 0.0),
        Answered(({"pid": 7, "kernel": {"ref": 1}},), 0.0, 0.0),
        Answered(({"pid": 7, "nonsense": 1},), 0.0, 0.0),
        Answered(({"kernel_scan": {}, "kernel_log": []},), 0.0, 0.0),
    ],
)
def test_no_answer_and_nonsense_are_reasons_and_never_an_exception(answer: Any) -> None:
    """A silent worker, an empty answer, another shape: unreadable with a reason, never "nothing there"."""
    looks = asyncio.run(ask_kernel_looks(_Mute(answer), [7]))
    assert isinstance(looks[7], UnreadableProcess)
    assert looks[7].why
    assert isinstance(asyncio.run(ask_kernel_scan(_Mute(answer), seconds=1.0)), str)
    assert asyncio.run(ask_kernel_log(_Mute(answer))).missing


def test_an_unknown_question_and_faulty_devices_are_refused() -> None:
    """The worker's desk says what it does not understand."""
    with pytest.raises(ValueError, match="knows no 'kernel_panic'"):
        answer_kernel("kernel_panic", {}, print, print)
    with pytest.raises(ValueError, match="pairs of major and minor"):
        answer_kernel("kernel_scan", {"devices": [[1]]}, print, print)


@pytest.mark.root
def test_the_facts_for_a_reset_come_from_a_real_worker() -> None:
    """Through the wire and back: this machine has no such GPU, and nothing of it is busy in a driver."""

    async def both(probe: Probe) -> tuple[Any, Any]:
        args = {"addresses": ["0000:3b:00.0"], "devices": [], "ours": [], "root": None, "sys_root": None}
        facts = await probe.ask("kernel_facts", args)
        return facts, await probe.ask("kernel_threads", {"pids": [2, 4_194_305]})

    facts, threads = asked(both)
    found = Decoder(KernelAnswer).from_object(facts.parts[0]["kernel_facts"]).facts
    assert (found.present, found.missing) == (("0000:3b:00.0",), ())
    assert {type(module.users) for module in found.modules} == {Absent}
    assert threads.parts == ({"busy": [], "skipped": []},)


@pytest.mark.root
@needs_fuse
def test_a_process_that_makes_the_reader_hang_is_left_out_of_the_facts_by_name() -> None:
    """It costs one limit and a new worker; how many files are open is then unreadable, never fewer."""
    with hanging_exec() as hanging:
        args: dict[str, object] = {"addresses": [], "devices": [], "ours": [], "root": None, "sys_root": None}
        answer = asked(lambda probe: probe.ask("kernel_facts", args))
    assert isinstance(answer, Answered), answer
    found = Decoder(KernelAnswer).from_object(answer.parts[0]["kernel_facts"]).facts
    assert f"pid {hanging}: left out: it did not answer before" in found.skipped
    assert isinstance(found.opens, Unreadable)
