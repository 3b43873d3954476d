"""Children are real processes; every bound is shown with room for a busy machine."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reclaimerd.host.child import (
    OUTPUT_LIMIT_BYTES,
    Child,
    Finished,
    Overran,
    abandon,
    adopt,
    kill,
    reap,
    run_bounded,
    send_kill,
    spawn,
    wait,
)

pytestmark = pytest.mark.process

_SLEEP = ("/bin/sleep", "60")
_PYTHON = (sys.executable, "-I", "-S", "-c")


def _end(child: Child) -> None:
    """End a child of a test, whatever became of it."""
    send_kill(child)
    if child.code is None:
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        assert poll.poll(5000), "a test's child did not die"
        reap(child)


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _children() -> str:
    """Return the pids of our children, zombies too."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")


def test_a_child_ends_with_its_code_or_its_signal() -> None:
    """The code of an exit is its status, of a signal minus its number; asking again gives the same."""

    async def both() -> tuple[int | None, int | None]:
        one = spawn(["/bin/sh", "-c", "exit 7"])
        two = spawn(_SLEEP)
        send_kill(two)
        codes = await wait(one, 10), await wait(two, 10)
        assert (reap(one), reap(two)) == codes
        assert await wait(two, 0) == -signal.SIGKILL
        send_kill(two)
        return codes

    assert asyncio.run(both()) == (7, -signal.SIGKILL)


def test_waiting_has_a_bound_and_leaves_the_child_alone() -> None:
    """A wait that runs out says None, and the child lives on, still ours to wait for."""
    child = spawn(_SLEEP)
    try:
        began = time.monotonic()
        assert asyncio.run(wait(child, 0.1)) is None
        assert time.monotonic() - began < 5
        assert reap(child) is None
        assert _is_alive(child.pid)
    finally:
        _end(child)
    assert not _is_alive(child.pid)


def test_several_may_wait_for_one_child() -> None:
    """Two waits on one child both end when it ends."""

    async def two_waits() -> tuple[int | None, int | None]:
        child = spawn(["/bin/sleep", "0.2"])
        first, second = await asyncio.gather(wait(child, 10), wait(child, 10))
        return first, second

    assert asyncio.run(two_waits()) == (0, 0)


def test_a_relative_program_is_refused() -> None:
    """No search path decides what root runs; nothing is started."""
    with pytest.raises(ValueError, match="absolute path"):
        spawn(["sleep", "60"])
    with pytest.raises(ValueError, match="absolute path"):
        asyncio.run(run_bounded(["true"], deadline_seconds=1))
    with pytest.raises(FileNotFoundError):
        spawn(["/nonexistent/tool"])


def test_a_child_inherits_only_what_is_named() -> None:
    """Descriptors that are inheritable by mistake stay ours; the session is the child's own."""
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    script = (
        "import os; fds = sorted(int(name) for name in os.listdir('/proc/self/fd'));"
        "print(fds[:-1], os.getsid(0) == os.getpid())"
    )
    done = asyncio.run(run_bounded([*_PYTHON, script], deadline_seconds=20))
    os.close(read_fd)
    os.close(write_fd)
    assert isinstance(done, Finished)
    assert done.out == "[0, 1, 2] True\n"


def test_run_bounded_gives_input_output_and_code() -> None:
    """The text goes in, both outputs come back apart, the code is the program's."""
    done = asyncio.run(
        run_bounded(
            ["/bin/sh", "-c", "cat; echo bad >&2; exit 3"],
            deadline_seconds=20,
            stdin_text="good\n",
        ),
    )
    assert done == Finished(3, "good\n", "bad\n")


@pytest.mark.parametrize("kill_at_deadline", [True, False])
def test_output_is_bounded(kill_at_deadline: bool) -> None:  # noqa: FBT001  # pytest's parameter
    """A program that floods its output ends normally, and only the beginning is kept."""
    script = "import sys; sys.stdout.write('x' * 5_000_000)"
    done = asyncio.run(
        run_bounded([*_PYTHON, script], deadline_seconds=30, kill_at_deadline=kill_at_deadline),
    )
    assert isinstance(done, Finished)
    assert done.code == 0
    assert done.out == "x" * OUTPUT_LIMIT_BYTES


def test_at_the_deadline_the_child_is_killed() -> None:
    """A program that ignores SIGTERM is gone soon after its deadline, and what it said is kept."""
    began = time.monotonic()
    done = asyncio.run(
        run_bounded(["/bin/sh", "-c", "trap '' TERM; echo here; exec sleep 60"], deadline_seconds=0.5),
    )
    assert isinstance(done, Overran)
    assert (done.gone, done.out) == (True, "here\n")
    assert time.monotonic() - began < 5
    assert not _is_alive(done.pid)


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_us() -> None:
    """The end is the child's death, not the end of its output."""
    began = time.monotonic()
    done = asyncio.run(run_bounded(["/bin/sh", "-c", "sleep 20 & echo $!"], deadline_seconds=15))
    assert isinstance(done, Finished)
    os.kill(int(done.out), signal.SIGKILL)
    assert time.monotonic() - began < 10


def test_a_tool_that_is_left_alone_lives_on_and_can_still_write(tmp_path: Path) -> None:
    """Past its deadline the vendor's tool gets no signal, not even SIGPIPE, and finishes its work."""
    mark = tmp_path / "finished"
    script = f"echo one; sleep 1; echo two && echo done > {mark}; exit 0"

    async def overrun_then_end() -> Overran:
        overran = await run_bounded(["/bin/sh", "-c", script], deadline_seconds=0.2, kill_at_deadline=False)
        assert isinstance(overran, Overran)
        assert _is_alive(overran.pid)
        assert await wait(overran.child, 20) == 0
        return overran

    overran = asyncio.run(overrun_then_end())
    assert (overran.gone, overran.out) == (False, "one\n")
    assert mark.read_text() == "done\n"


def test_an_abandoned_child_is_reaped_when_it_ends() -> None:
    """No zombie stays: the loop reaps it though nobody waits."""

    async def leave_it() -> Child:
        child = spawn(["/bin/sleep", "0.2"])
        abandon(child)
        for _ in range(500):
            if child.code is not None:
                break
            await asyncio.sleep(0.02)
        return child

    child = asyncio.run(leave_it())
    assert child.code == 0
    assert not _is_alive(child.pid)


def test_cancelling_a_run_ends_its_child() -> None:
    """Whoever stops waiting leaves no process behind."""
    before = _children()

    async def cancelled() -> None:
        run = asyncio.ensure_future(run_bounded(_SLEEP, deadline_seconds=60))
        await asyncio.sleep(0.1)
        assert _children() != before
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        for _ in range(500):
            if _children() == before:
                break
            await asyncio.sleep(0.02)

    asyncio.run(cancelled())
    assert _children() == before


def test_somebody_elses_process_can_be_watched() -> None:
    """An adopted process is seen to go, but never reaped: that is its parent's."""
    parent = subprocess.Popen(["/bin/sleep", "60"])
    child = adopt(parent.pid)
    assert child is not None
    assert reap(child) is None
    parent.kill()
    assert asyncio.run(wait(child, 10)) == 0
    assert parent.wait(10) == -signal.SIGKILL
    assert adopt(parent.pid) is None


@pytest.mark.root
def test_an_unkillable_child_is_abandoned_within_the_bound() -> None:
    """A child in an uninterruptible sleep costs the deadline and half a second, then is left."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("needs root and /dev/fuse")
    from tests.rigs.raw_fuse import RawFuse  # noqa: PLC0415  # a rig for root alone

    with RawFuse(withhold="read") as fuse:
        path = str(fuse.path("stuck"))

        async def stuck() -> Overran:
            began = time.monotonic()
            overran = await run_bounded(
                [*_PYTHON, f"import os; os.read(os.open({path!r}, os.O_RDONLY), 1)"],
                deadline_seconds=1.0,
            )
            assert time.monotonic() - began < 3
            assert isinstance(overran, Overran)
            assert not overran.gone
            assert await kill(overran.child, 0.1) is None
            fuse.release()
            assert await wait(overran.child, 10) is not None
            return overran

        assert not _is_alive(asyncio.run(stuck()).pid)
