"""Workers that are late, silent, dead, stopped or unkillable: real processes, scripted in a few lines.

Bounds are generous: the machine may be busy. What is shown is the order of magnitude and the outcome.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.host.wire import to_json
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.process import ProcessLook
from reclaimerd.model.reading import Known
from reclaimerd.observe.answers import (
    Answer,
    Answered,
    Failed,
    Gone,
    ProbeKind,
    Silent,
    SilentCause,
    UnreadableProcess,
)
from reclaimerd.observe.patience import FIRST_SECONDS
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.worker_seat import back_off_seconds
from tests.builders import a_process

pytestmark = pytest.mark.process

_PRELUDE = """
import json, os, socket, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
def say(**message): sock.sendall(json.dumps(message).encode() + b"\\n")
def part(value): say(id=request["id"], parts=[value])
def done(): say(id=request["id"], done=True)
def look(pid, kind, value): part({"pid": pid, kind: value})
def burn(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end: pass
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
boot = open("/proc/sys/kernel/random/boot_id").read().strip()
say(hello={"pid": os.getpid(), "start_ticks": int(stat[19]), "boot_id": boot})
for line in sock.makefile("rb"):
    request = json.loads(line)
    op, args = request["op"], request["args"]
"""
_QUICK = WorkerSettings(answer_within_seconds=0.3, hung_after_seconds=60)
_PATIENT = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)


class _Clock:
    """The monotonic clock, and a hand to move it on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def _command(body: str) -> Callable[[int], list[str]]:
    """Return what starts a worker that runs these lines for each request."""
    script = _PRELUDE + "".join(f"    {line}\n" for line in body.strip().splitlines())
    return lambda fd: [sys.executable, "-I", "-S", "-c", script, str(fd)]


@asynccontextmanager
async def _probe(
    body: str,
    limits: WorkerSettings = _PATIENT,
    clock: Callable[[], float] = time.monotonic,
    role: str = "nvml",
) -> AsyncIterator[Probe]:
    """Give a probe with a scripted worker; at the end no worker may be left."""
    probe = Probe(role, _command(body), limits, clock)
    try:
        yield probe
    finally:
        pids = probe.worker_pids()
        await probe.close()
        for pid in pids:
            await _until(lambda pid=pid: not _is_alive(pid))  # type: ignore[misc]  # a default argument


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def _until(true: Callable[[], bool]) -> None:
    """Wait for a state, at most 20 s."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about within 20 s")


async def _warm(probe: Probe) -> int:
    """Have the worker started and answering, whatever the limits; return its pid."""
    for _ in range(200):
        if isinstance(await probe.ask("warm", answer_within=20), Answered):
            return probe.worker_pids()[0]
        await asyncio.sleep(0.05)
    raise AssertionError("the worker did not start")


async def _timed(answer: "asyncio.Future[Answer] | object") -> tuple[Answer, float]:
    began = time.monotonic()
    return await answer, time.monotonic() - began  # type: ignore[misc]  # a coroutine of ask


def test_an_answer_comes_whole_and_in_order() -> None:
    """Parts come in the order they were sent, and the worker is started at the first question."""

    async def run() -> None:
        async with _probe("for n in (1, 2, 3): part([op, args, n])\ndone()") as probe:
            assert probe.state().kind is ProbeKind.IDLE
            assert probe.worker_pids() == ()
            answer = await probe.ask("host", {"x": 1})
            assert isinstance(answer, Answered)
            assert answer.parts == (["host", {"x": 1}, 1], ["host", {"x": 1}, 2], ["host", {"x": 1}, 3])
            assert not answer.late
            assert answer.sent_at <= answer.answered_at
            assert probe.state().kind is ProbeKind.OK
            assert probe.state().pid == probe.worker_pids()[0]

    asyncio.run(run())


def test_questions_asked_together_queue() -> None:
    """Twenty questions at once are all answered, each with its own answer, by one worker."""

    async def run() -> None:
        async with _probe("part([op, os.getpid()]); done()") as probe:
            answers = await asyncio.gather(*(probe.ask(f"op{n}") for n in range(20)))
            parts = [answer.parts[0] for answer in answers if isinstance(answer, Answered)]
            assert [op for op, _ in parts] == [f"op{n}" for n in range(20)]
            assert len({pid for _, pid in parts}) == 1

    asyncio.run(run())


_LATE = """
if op == "host":
    release = args["release"]
    while not os.path.exists(release): time.sleep(0.01)
part(op); done()
"""


def test_a_late_answer_is_used_and_counts_as_slow(tmp_path: Path) -> None:
    """Silent at the first limit, at once from then on; the late answer is used, then all is normal."""
    release = tmp_path / "release"
    args = {"release": str(release)}

    async def run() -> None:
        async with _probe(_LATE, _QUICK) as probe:
            await _warm(probe)
            began = time.monotonic()
            first, took = await _timed(probe.ask("host", args))
            assert isinstance(first, Silent)
            assert first.why.startswith("driver unresponsive: no answer to `host`")
            assert began <= first.since < began + 5
            assert 0.25 < took < 5
            again, took = await _timed(probe.ask("other"))
            assert isinstance(again, Silent)
            assert again.since == first.since
            assert took < 0.2, "a second question waited although one was in flight"
            assert probe.state().kind is ProbeKind.SILENT
            release.touch()
            await _until(lambda: probe.state().kind is ProbeKind.SLOW)
            late = await probe.ask("host", args)
            assert isinstance(late, Answered)
            assert late.late
            assert late.parts == ("host",)
            assert probe.state().kind is ProbeKind.SLOW
            assert isinstance(await probe.ask("host", args), Answered)
            assert probe.state().kind is ProbeKind.OK

    asyncio.run(run())


def test_a_late_answer_never_answers_another_question(tmp_path: Path) -> None:
    """A late answer to one question is dropped when another is asked."""
    release = tmp_path / "release"

    async def run() -> None:
        async with _probe(_LATE, _QUICK) as probe:
            await _warm(probe)
            assert isinstance(await probe.ask("host", {"release": str(release)}), Silent)
            release.touch()
            await _until(lambda: probe.state().kind is ProbeKind.SLOW)
            answer = await probe.ask("close", answer_within=20)
            assert isinstance(answer, Answered)
            assert (answer.parts, answer.late) == (("close",), False)

    asyncio.run(run())


def test_a_hung_worker_is_killed_and_replaced() -> None:
    """Past the second limit the worker is killed without a wait; since tells the first silence still."""
    clock = _Clock()

    async def run() -> None:
        async with _probe("if op == 'host': time.sleep(600)\ndone()", _QUICK, clock) as probe:
            pid = await _warm(probe)
            first = await probe.ask("host")
            assert isinstance(first, Silent)
            clock.ahead = 59
            assert isinstance(await probe.ask("host"), Silent)
            assert probe.worker_pids() == (pid,)
            clock.ahead = 61
            last, took = await _timed(probe.ask("host"))
            assert isinstance(last, Silent)
            assert took < 0.2, "killing a hung worker waited for it"
            await _until(lambda: not _is_alive(pid))
            assert probe.abandoned is None
            silent = await probe.ask("host")
            assert isinstance(silent, Silent)
            assert silent.since == first.since
            assert probe.worker_pids() not in ((), (pid,))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sock.sendall(b'what?\\n')", "it answered garbage"),
        ("sock.sendall(b'[' * 100000 + b'\\n')", "it answered garbage"),
        ("say(id=request['id'], nonsense=1)", "it answered garbage"),
        ("part(1); os._exit(3)", "it ended (exit code 3)"),
        ("part(1); os.kill(os.getpid(), 11)", "it ended (signal 11)"),
    ],
)
def test_a_lost_worker_is_our_fault_and_comes_back_when_due(body: str, says: str) -> None:
    """A worker that dies or talks nonsense is Failed, not Silent; the next starts only when it is due."""
    clock = _Clock()

    async def run() -> None:
        async with _probe(f"if op == 'host':\n    {body}\ndone()", clock=clock) as probe:
            pid = await _warm(probe)
            failed = await probe.ask("host")
            assert isinstance(failed, Failed)
            assert failed.kind == "failed"
            assert says in failed.message
            assert "started again in 0.5 s" in failed.mend
            assert not _is_alive(pid)
            assert await probe.ask("warm") == failed
            assert probe.worker_pids() == (), "a worker was started before it was due"
            clock.ahead = 1
            assert isinstance(await probe.ask("warm"), Answered)
            assert probe.worker_pids()[0] != pid

    asyncio.run(run())


def test_the_wait_before_a_restart_doubles() -> None:
    """From half a second to a minute."""
    assert [back_off_seconds(n) for n in (1, 2, 3, 7, 8, 50)] == [0.5, 1, 2, 32, 60, 60]


def test_failures_in_a_row_wait_longer() -> None:
    """A worker that dies each time is not started in each pass."""
    clock = _Clock()

    async def run() -> list[str]:
        mends = []
        async with _probe("os._exit(1)", clock=clock) as probe:
            for _ in range(3):
                failed = await probe.ask("host")
                assert isinstance(failed, Failed)
                mends.append(failed.mend.partition(";")[0])
                clock.ahead += 10
        return mends

    assert asyncio.run(run()) == [f"it is started again in {n} s" for n in ("0.5", "1.0", "2.0")]


def test_a_worker_that_cannot_be_started_is_a_value() -> None:
    """A missing program is Failed with its cause, not an exception."""

    async def run() -> None:
        probe = Probe("nvml", lambda _fd: ["/nonexistent/python"], _QUICK)
        failed = await probe.ask("host")
        assert isinstance(failed, Failed)
        assert "No such file" in failed.message
        assert probe.worker_pids() == ()

    asyncio.run(run())


def test_a_stopped_worker_is_not_the_drivers_fault() -> None:
    """SIGSTOP shows as stopped; after SIGCONT its answer is used."""

    async def run() -> None:
        async with _probe("done()", _QUICK) as probe:
            pid = await _warm(probe)
            os.kill(pid, signal.SIGSTOP)
            await _until(lambda: "\nState:\tT" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
            silent = await probe.ask("host")
            assert isinstance(silent, Silent)
            assert silent.cause is SilentCause.STOPPED
            os.kill(pid, signal.SIGCONT)
            await _until(lambda: probe.state().kind is ProbeKind.SLOW)
            assert isinstance(await probe.ask("host"), Answered)

    asyncio.run(run())


def test_the_workers_errors_keep_their_kind() -> None:
    """What the worker says of the driver arrives as it was said, and is proof of life."""
    body = "say(id=request['id'], error={'kind': op, 'message': 'no driver', 'mend': 'load it'})"

    async def run() -> None:
        async with _probe(body) as probe:
            assert await probe.ask("driver_absent") == Failed("driver_absent", "no driver", "load it")
            assert await probe.ask("unsuitable") == Failed("unsuitable", "no driver", "load it")
            assert probe.state().kind is ProbeKind.OK

    asyncio.run(run())


def test_a_cancelled_question_leaves_the_probe_in_order() -> None:
    """Whoever stops waiting does not make the next question Silent or give it the wrong answer."""

    async def run() -> None:
        async with _probe("time.sleep(0.3 if op == 'host' else 0); part(op); done()") as probe:
            await _warm(probe)
            asking = asyncio.ensure_future(probe.ask("host"))
            await asyncio.sleep(0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            answer = await probe.ask("other")
            assert isinstance(answer, Answered)
            assert answer.parts == ("other",)

    asyncio.run(run())


def test_a_new_worker_is_told_what_to_watch() -> None:
    """A worker that forgot the watched devices would see no holder: each new one hears them first."""
    body = """
if op == "watch": watched = args["devices"]
elif op == "die": os._exit(1)
else: part(watched)
done()
"""
    clock = _Clock()

    async def run() -> None:
        async with _probe(body, clock=clock, role="procfs") as probe:
            assert isinstance(await probe.ask("watch", {"devices": [[195, 0]]}), Answered)
            assert isinstance(await probe.ask("die"), Failed)
            clock.ahead = 1
            answer = await probe.ask("look")
            assert isinstance(answer, Answered)
            assert answer.parts == ([[195, 0]],)

    asyncio.run(run())


def test_closing_has_a_bound_even_for_a_worker_that_ignores_it() -> None:
    """A worker that does not leave when its socket closes gets SIGKILL."""
    body = "done()\nif op == 'deaf':\n    while True: time.sleep(1)"

    async def run() -> None:
        async with _probe(body) as probe:
            assert isinstance(await probe.ask("deaf"), Answered)
            (pid,) = probe.worker_pids()
            began = time.monotonic()
            await probe.close()
            assert time.monotonic() - began < 3
            assert not _is_alive(pid)

    asyncio.run(run())


_LOOKED = ProcessLook(a_process(), Known(()))
_LOOK = f"""
for pid in args.get("pids", []):
    if pid == 7: time.sleep(600)
    if pid == 8: look(pid, "gone", True)
    elif pid == 9: look(pid, "unreadable", "no permission")
    elif pid == 10: look(pid, "look", {{"reading": 1}})
    else: look(pid, "look", json.loads({to_json(_LOOKED)!r}))
done()
"""


def test_one_process_that_hangs_its_reader_costs_200_ms_not_the_pass() -> None:
    """The others are looked at all the same; that one is unreadable and not asked again for a while."""
    clock = _Clock()

    async def run() -> None:
        async with _probe(_LOOK, clock=clock, role="procfs") as probe:
            began = time.monotonic()
            found = await probe.ask_each([5, 7, 6, 8, 9, 10], whole=[5])
            assert time.monotonic() - began < 10
            assert found[5] == found[6] == _LOOKED
            assert found[8] == Gone()
            assert found[9] == UnreadableProcess("no permission")
            assert isinstance(found[10], UnreadableProcess)
            hung = found[7]
            assert isinstance(hung, UnreadableProcess)
            assert "pid 7" in hung.why
            before = probe.worker_pids()
            assert await probe.ask_each([7, 5, 5]) == {7: hung, 5: found[5]}
            assert probe.worker_pids() == before, "it was asked again at once"
            clock.ahead = FIRST_SECONDS + 1
            assert isinstance((await probe.ask_each([7, 5]))[5], ProcessLook)
            assert probe.worker_pids() != before, "it was not asked again later"

    asyncio.run(run())


def test_a_reader_that_works_is_not_taken_for_stuck() -> None:
    """A process with very many threads takes longer: a worker that burns CPU gets its time."""
    body = _LOOK.replace("time.sleep(600)", "burn(0.45)")

    async def run() -> None:
        async with _probe(body, role="procfs") as probe:
            pid = await _warm(probe)
            found = await probe.ask_each([7, 5])
            assert isinstance(found[7], ProcessLook)
            assert probe.worker_pids() == (pid,)

    asyncio.run(run())


def test_a_reader_that_dies_on_a_process_leaves_it_unreadable() -> None:
    """No process is ever left out of the answer, nor called gone, because the worker died."""
    body = _LOOK.replace("time.sleep(600)", "os._exit(9)")

    async def run() -> None:
        async with _probe(body, role="procfs") as probe:
            found = await probe.ask_each([5, 7, 6])
            assert isinstance(found[5], ProcessLook)
            assert isinstance(found[7], UnreadableProcess)
            assert isinstance(found[6], UnreadableProcess)

    asyncio.run(run())


def test_a_look_has_a_bound_as_a_whole() -> None:
    """Processes past the time of one pass are named as not looked at."""
    body = _LOOK.replace(
        'for pid in args.get("pids", []):\n', 'for pid in args.get("pids", []):\n    time.sleep(0.1)\n'
    )

    async def run() -> None:
        limits = WorkerSettings(answer_within_seconds=1.0, hung_after_seconds=60)
        async with _probe(body, limits, role="procfs") as probe:
            await _warm(probe)
            began = time.monotonic()
            found = await probe.ask_each(range(100, 200))
            assert time.monotonic() - began < 5
            assert len(found) == 100
            assert isinstance(found[100], ProcessLook)
            assert found[199] == UnreadableProcess("not looked at: the time for this pass is up")

    asyncio.run(run())


def test_a_search_goes_on_without_the_process_that_hangs_it() -> None:
    """A full scan that hangs at one process is done again without it, in the same pass."""
    body = """
if 7 not in args["without"]:
    for _ in range(600):
        say(id=request["id"], parts=[{"progress": 7}])
        time.sleep(0.1)
part({"scan": args["without"]}); done()
"""

    async def run() -> None:
        async with _probe(body, role="procfs") as probe:
            answer = await probe.ask("scan", {"root": None, "deep": False})
            assert isinstance(answer, Answered)
            assert answer.parts == ({"scan": [7]},)

    asyncio.run(run())


def test_evidence_is_gathered_in_the_background() -> None:
    """The silent worker's own stack is read by whoever may, and never makes a question wait."""
    asked: list[int] = []

    async def stack_of(pid: int) -> str:
        asked.append(pid)
        await asyncio.sleep(0)
        return "task 1: nvidia_ioctl"

    async def run() -> None:
        async with _probe("if op == 'host': time.sleep(600)\ndone()", _QUICK) as probe:
            probe.explain_by(stack_of)
            pid = await _warm(probe)
            assert isinstance(await probe.ask("host"), Silent)
            await _until(lambda: asked == [pid])
            silent = await probe.ask("host")
            assert isinstance(silent, Silent)
            assert silent.evidence == "task 1: nvidia_ioctl"
            assert asked == [pid]

    asyncio.run(run())


def _ref_of(pid: int, shift: int = 0) -> ProcessRef:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ProcessRef(boot_id, pid, int(stat[19]) + shift)


def test_an_abandoned_worker_outlives_our_restart() -> None:
    """While the worker of our former life lives no other is started; once it is gone, one is."""
    old = subprocess.Popen(["/bin/sleep", "600"])

    async def run() -> None:
        async with _probe("done()") as probe:
            ref = _ref_of(old.pid)
            await probe.adopt_abandoned(ref)
            assert probe.abandoned == ref
            assert probe.state().kind is ProbeKind.ABANDONED
            silent, took = await _timed(probe.ask("host"))
            assert isinstance(silent, Silent)
            assert took < 0.2
            assert probe.worker_pids() == (old.pid,)
            old.kill()
            old.wait(10)
            assert isinstance(await probe.ask("host"), Answered)
            assert probe.abandoned is None

    try:
        asyncio.run(run())
    finally:
        old.kill()
        old.wait(10)


def test_the_silence_of_a_worker_that_outlived_us_goes_on_until_one_answers() -> None:
    """The driver's silence is as long as it is, not as long as we have run; an answer ends it."""
    old = subprocess.Popen(["/bin/sleep", "600"])

    async def run() -> None:
        async with _probe("done()") as probe:
            since = time.monotonic() - 600.0
            await probe.adopt_abandoned(_ref_of(old.pid), since)
            silent = await probe.ask("host")
            assert isinstance(silent, Silent)
            assert (silent.since, probe.silent_since, probe.state().since) == (since, since, since)
            old.kill()
            old.wait(10)
            assert isinstance(await probe.ask("host"), Answered)
            assert probe.silent_since is None

    try:
        asyncio.run(run())
    finally:
        old.kill()
        old.wait(10)


def test_the_silence_of_a_worker_that_is_gone_or_of_another_boot_is_forgotten() -> None:
    """The role may have answered in between, and another boot's clock is another clock."""
    gone = subprocess.Popen(["/bin/sleep", "600"])
    ref = _ref_of(gone.pid)
    gone.kill()
    gone.wait(10)
    stranger = subprocess.Popen(["/bin/sleep", "600"])

    async def run() -> None:
        async with _probe("done()") as probe:
            await probe.adopt_abandoned(ref, 1.0)
            await probe.adopt_abandoned(_ref_of(stranger.pid, shift=1), 1.0)
            await probe.adopt_abandoned(replace(_ref_of(stranger.pid), boot_id="another boot"), 1.0)
            assert (probe.abandoned, probe.silent_since) == (None, None)

    try:
        asyncio.run(run())
    finally:
        stranger.kill()
        stranger.wait(10)


def test_a_worker_that_was_started_ahead_is_the_one_that_answers() -> None:
    """`start` saves the first question the wait: no second worker is started for it."""

    async def run() -> None:
        async with _probe("done()") as probe:
            await probe.start()
            (pid,) = probe.worker_pids()
            assert await _warm(probe) == pid

    asyncio.run(run())


def test_a_worker_that_was_started_ahead_is_ended_beside_an_abandoned_one() -> None:
    """Our earlier start's worker still lives: the one that was started before we knew is gone at once."""
    old = subprocess.Popen(["/bin/sleep", "600"])

    async def run() -> None:
        async with _probe("done()") as probe:
            await probe.start()
            (ahead,) = probe.worker_pids()
            await probe.adopt_abandoned(_ref_of(old.pid))
            await _until(lambda: not _is_alive(ahead))
            assert probe.worker_pids() == (old.pid,)
            assert isinstance(await probe.ask("host"), Silent)
            assert old.poll() is None
            old.kill()
            old.wait(10)

    try:
        asyncio.run(run())
    finally:
        old.kill()
        old.wait(10)


def test_new_limits_hold_from_the_next_question_on() -> None:
    """A policy that was loaded after the start decides how long a question waits."""

    async def run() -> None:
        async with _probe("op == 'host' or done()") as probe:
            await _warm(probe)
            probe.take_limits(WorkerSettings(answer_within_seconds=0.1))
            answer, took = await _timed(probe.ask("host"))
            assert isinstance(answer, Silent)
            assert took < 4

    asyncio.run(run())


def test_a_worker_at_work_is_told_too_for_it_may_outlive_us() -> None:
    """C20: what may be left when we end is known before we end, by the worker's own word of who it is."""

    async def run() -> None:
        async with _probe("done()") as probe:
            told = [probe.left_if_we_end]
            pid = await _warm(probe)
            told.append(probe.left_if_we_end)
            ref = _ref_of(pid)
            assert probe.abandoned is None
            await probe.close()
            assert [*told, probe.left_if_we_end] == [None, ref, None]

    asyncio.run(run())


def test_a_stranger_with_the_same_pid_is_not_adopted() -> None:
    """Another start time or another boot is another process: it neither blocks us nor is touched."""
    stranger = subprocess.Popen(["/bin/sleep", "600"])

    async def run() -> None:
        async with _probe("done()") as probe:
            await probe.adopt_abandoned(_ref_of(stranger.pid, shift=1))
            await probe.adopt_abandoned(
                ProcessRef("another boot", stranger.pid, _ref_of(stranger.pid).start_ticks)
            )
            assert probe.abandoned is None
            assert isinstance(await probe.ask("host"), Answered)

    try:
        asyncio.run(run())
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(10)


@pytest.mark.root
def test_an_unkillable_worker_is_abandoned_once_and_replaced_when_freed() -> None:
    """A worker in an uninterruptible sleep: one abandoned, no second worker, no waiting; then back."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    from tests.rigs.raw_fuse import RawFuse  # noqa: PLC0415  # a rig for root alone

    clock = _Clock()
    with RawFuse(withhold="read") as fuse:
        body = f"if op == 'host': os.read(os.open({str(fuse.path('stuck'))!r}, os.O_RDONLY), 1)\ndone()"

        async def run() -> None:
            async with _probe(body, _QUICK, clock) as probe:
                pid = await _warm(probe)
                first = await probe.ask("host")
                assert isinstance(first, Silent)
                clock.ahead = 61
                for _ in range(5):
                    silent, took = await _timed(probe.ask("host"))
                    assert isinstance(silent, Silent)
                    assert silent.since == first.since
                    assert took < 0.2
                    assert probe.worker_pids() == (pid,)
                    await asyncio.sleep(0.02)
                assert probe.state().kind is ProbeKind.ABANDONED
                assert probe.abandoned == _ref_of(pid)
                assert _is_alive(pid), "the rig did not hold the worker"
                fuse.release()
                await _until(lambda: probe.abandoned is None)
                assert isinstance(await probe.ask("other", answer_within=20), Answered)
                assert probe.worker_pids() != (pid,)

        asyncio.run(run())


def test_a_question_behind_a_long_one_is_busy_not_unresponsive() -> None:
    """Whoever queues longer than its own limit is told so, and it never counts against the driver."""

    async def run() -> None:
        async with _probe("time.sleep(1 if op == 'host' else 0); done()") as probe:
            await _warm(probe)
            asking = asyncio.ensure_future(probe.ask("host"))
            await asyncio.sleep(0)
            silent = await probe.ask("other", answer_within=0.1)
            assert isinstance(silent, Silent)
            assert silent.cause is SilentCause.BUSY
            assert isinstance(await asking, Answered)
            assert probe.state().kind is ProbeKind.OK

    asyncio.run(run())


def test_a_stack_that_cannot_be_had_is_no_text() -> None:
    """Evidence is best effort: an error or silence gives no words, and no exception."""
    body = "part({'stack': 'task 1: x'}) if args['pid'] == 1 else part(0); done()"

    async def run() -> None:
        async with _probe(body, role="procfs") as probe:
            assert await probe.read_stack(1) == "task 1: x"
            assert await probe.read_stack(2) == ""
        lost = Probe("procfs", lambda _fd: ["/nonexistent/python"], _QUICK)
        assert await lost.read_stack(1) == ""

    asyncio.run(run())


def test_an_answer_without_end_loses_the_worker() -> None:
    """A worker out of order can't fill our memory."""
    body = "while op == 'host': sock.sendall(b'x' * 1000000)\ndone()"

    async def run() -> None:
        async with _probe(body) as probe:
            pid = await _warm(probe)
            failed = await probe.ask("host")
            assert isinstance(failed, Failed)
            assert "without end" in failed.message
            assert not _is_alive(pid)

    asyncio.run(run())
