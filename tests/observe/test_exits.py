"""When a process is gone: by its pidfd, on real children in every shape."""

import asyncio
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.model.identity import ProcessRef
from reclaimerd.observe.exits import ExitWatch
from tests.builders import BOOT
from tests.rigs.proc_children import ZOMBIE_LEADER, script
from tests.rigs.simulated import state_of, wait_until

pytestmark = pytest.mark.process


def _ref(pid: int, start: int = 1) -> ProcessRef:
    return ProcessRef(BOOT, pid, start)


@contextmanager
def _watch(*refs: ProcessRef) -> Iterator[ExitWatch]:
    watch = ExitWatch()
    try:
        watch.watch(refs)
        yield watch
    finally:
        watch.close()


@contextmanager
def _sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield child
    finally:
        child.kill()
        child.wait(10)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count, no paths


def test_a_living_process_is_not_gone_and_a_dead_one_is_before_it_is_reaped() -> None:
    """An unreaped zombie holds nothing: it is gone."""
    with _sleeper() as child, _watch(_ref(child.pid)) as watch:
        assert watch.gone() == frozenset()
        child.kill()
        wait_until(lambda: bool(watch.gone()), "the pidfd becomes readable")
        assert watch.gone() == {_ref(child.pid)}
        assert state_of(child.pid) == "Z"


def test_a_zombie_that_was_dead_before_we_watched_is_gone() -> None:
    """Its pidfd can still be opened and is readable at once."""
    with _sleeper() as child:
        child.kill()
        wait_until(lambda: state_of(child.pid) == "Z", "it is a zombie")
        with _watch(_ref(child.pid)) as watch:
            assert watch.gone() == {_ref(child.pid)}


def test_a_reaped_process_is_gone() -> None:
    """There is no such pid any more."""
    with _sleeper() as child:
        child.kill()
        child.wait(10)
        with _watch(_ref(child.pid)) as watch:
            assert watch.gone() == {_ref(child.pid)}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the rig's raw exit call is x86-64's")
def test_a_zombie_leader_with_a_living_thread_is_not_gone() -> None:
    """The letter Z of its leader says nothing; the last thread's end does."""
    with script(ZOMBIE_LEADER) as pid, _watch(_ref(pid)) as watch:
        assert state_of(pid) == "Z"
        assert watch.gone() == frozenset()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: bool(watch.gone()), "its last thread is gone")


def test_a_stopped_process_is_not_gone() -> None:
    """Stopping is not leaving."""
    with _sleeper() as child, _watch(_ref(child.pid)) as watch:
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: state_of(child.pid) == "T", "it is stopped")
        assert watch.gone() == frozenset()


def test_a_pid_that_a_stranger_has_now_says_nothing_until_the_stranger_ends() -> None:
    """Opened after the pid was given away: unreadable proves nothing; readable means ours is gone too."""
    with _sleeper() as stranger:
        ours = _ref(stranger.pid, start=0)
        with _watch(ours) as watch:
            assert watch.gone() == frozenset()
            stranger.kill()
            wait_until(lambda: watch.gone() == {ours}, "the stranger ended, and ours long before")


def test_the_end_calls_once_and_at_once() -> None:
    """The pass comes early; afterwards nothing is left open, and the end is remembered."""

    async def scene() -> None:
        before = _descriptors()
        called: asyncio.Queue[ProcessRef] = asyncio.Queue()
        watch = ExitWatch(called.put_nowait)
        with _sleeper() as child:
            ref = _ref(child.pid)
            watch.watch((ref,))
            watch.watch((ref,))
            assert _descriptors() == before + 1
            child.kill()
            assert await asyncio.wait_for(called.get(), 10) == ref
            assert watch.gone() == {ref}
            watch.watch((ref,))
            await asyncio.sleep(0)
            assert called.empty()
            assert _descriptors() == before
        watch.close()

    asyncio.run(scene())


def test_whoever_is_no_longer_of_interest_is_let_go() -> None:
    """Its descriptor is closed and its end forgotten; the others stay."""
    with _sleeper() as one, _sleeper() as two, _sleeper() as dead:
        dead.kill()
        dead.wait(10)
        refs = (_ref(one.pid), _ref(two.pid), _ref(dead.pid))
        before = _descriptors()
        with _watch(*refs) as watch:
            assert _descriptors() == before + 2
            watch.forget_others((refs[0],))
            assert _descriptors() == before + 1
            assert watch.gone() == frozenset()
            two.kill()
            one.kill()
            wait_until(lambda: bool(watch.gone()), "the one that is still watched ended")
            assert watch.gone() == {refs[0]}
        assert _descriptors() == before


def test_a_thread_is_no_process_and_is_left_alone() -> None:
    """pidfd_open refuses it: neither watched nor called gone."""
    body = "\nimport threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    with script(body + "ready()\nthreading.Event().wait()\n") as pid:
        tid = max(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        assert tid != pid
        with _watch(_ref(tid)) as watch:
            assert watch.gone() == frozenset()


def test_closing_after_the_loop_is_gone_still_closes() -> None:
    """The engine may be closed when its loop has ended."""
    before = _descriptors()
    watch = ExitWatch(lambda _ref: None)
    with _sleeper() as child:

        async def scene() -> None:
            watch.watch((_ref(child.pid),))

        asyncio.run(scene())
        watch.close()
    assert _descriptors() == before


@contextmanager
def _free_descriptors(count: int) -> Iterator[None]:
    """Let this process open about so many files more, when half of all that it may open are taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208  # names alone
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * (free + count), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_flood_of_holders_leaves_us_descriptors_and_its_ends_to_the_looks() -> None:
    """Anybody who may use a GPU can fork with its node open: half of what we may open is the most."""
    with _sleeper() as child, _free_descriptors(64):
        flood = [_ref(child.pid, start) for start in range(1, 1000)]
        with _watch(*flood) as watch:
            assert 0 < watch.count <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
            others = [os.dup(0) for _ in range(16)]
            for one in others:
                os.close(one)
            assert watch.gone() == frozenset()


def test_whoever_is_named_first_is_watched_in_place_of_others() -> None:
    """Targets come before holders whose end nobody waits for; the bound holds."""
    with _sleeper() as child, _sleeper() as target, _free_descriptors(64):
        flood = [_ref(child.pid, start) for start in range(1, 1000)]
        with _watch(*flood) as watch:
            most = watch.count
            watch.watch((_ref(target.pid), *flood))
            assert watch.count == most
            target.kill()
            wait_until(lambda: bool(watch.gone()), "the target's pidfd becomes readable")
            assert watch.gone() == {_ref(target.pid)}
