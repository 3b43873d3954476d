"""The kernel's reader on real tasks: stuck, held, dying, dumping. Nothing here is a fixture of text."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reclaimerd.model.kernel import KernelLook, KernelTask
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_DUMPCORE,
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe.kernel_stacks import MOST_TASKS, read_kernel_look
from tests.rigs.kernel_children import (
    LARGE,
    PAUSE,
    THREADS,
    ZOMBIE_WITH_STUCK_THREAD,
    NoCoreReaderError,
    child,
    dumping_core,
    frozen,
    namespace_init_with_stuck_child,
    stuck_in_flush,
    stuck_in_read,
    traced,
    wait_for,
    why_no_freezer,
)
from tests.rigs.raw_fuse import why_unavailable

pytestmark = [pytest.mark.process, pytest.mark.root]
needs_fuse = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
GIB = 1 << 30


def symbols(task: KernelTask) -> list[str]:
    """Return the functions of a task's stack."""
    assert isinstance(task.frames, Known)
    return [frame.symbol.partition(".")[0] for frame in task.frames.value]


def task_of(look: KernelLook, tid: int | None = None) -> KernelTask:
    """Return the leader, or the named task."""
    return next(task for task in look.tasks if task.tid == (look.ref.pid if tid is None else tid))


def look_when(pid: int, condition: Callable[[KernelLook], bool], what: str) -> KernelLook:
    """Return the first look of which the condition holds."""
    seen: list[KernelLook] = []

    def holds() -> bool:
        seen[:] = [read_kernel_look(pid)]
        return condition(seen[0])

    wait_for(holds, what)
    return seen[0]


@needs_fuse
def test_a_task_stuck_in_its_last_close_is_exiting_in_d_and_its_stack_says_where() -> None:
    """SIGKILLed with a FUSE file open: PF_EXITING, the flush in the stack below do_exit, no memory left."""
    with stuck_in_flush() as pid:
        look = look_when(
            pid,
            lambda one: (
                "fuse_flush" in symbols(task_of(one))
                and (task_of(one).state, task_of(one).wchan) == ("D", "request_wait_answer")
            ),
            "the flush in the stack of a task that has come to rest in D",
        )
        task = task_of(look)
        assert task.flags & PF_EXITING
        assert (task.wchan, look.resident_bytes) == ("request_wait_answer", 0)
        assert symbols(task).index("fuse_flush") < symbols(task).index("do_exit")
        again = task_of(read_kernel_look(pid))
        assert (again.cpu_ticks, again.voluntary_switches, again.involuntary_switches) == (
            task.cpu_ticks,
            task.voluntary_switches,
            task.involuntary_switches,
        )


@needs_fuse
def test_a_task_blocked_in_a_read_has_sigkill_pending_and_is_not_exiting() -> None:
    """The kill is taken note of and nothing else happens: state D, memory there, not in the exit path."""
    with stuck_in_read() as pid:
        before = look_when(
            pid, lambda one: "fuse_direct_io" in symbols(task_of(one)), "the read in the stack"
        )
        assert not task_of(before).kill_pending
        os.kill(pid, signal.SIGKILL)
        look = look_when(
            pid, lambda one: task_of(one).kill_pending and task_of(one).state == "D", "SIGKILL pending in D"
        )
        assert not task_of(look).flags & PF_EXITING
        assert look.resident_bytes > 0


@needs_fuse
def test_a_zombie_leader_is_read_with_its_stuck_thread() -> None:
    """The leader is Z, the killed thread D: both are in the look, and the process still has its memory."""
    with stuck_in_read(ZOMBIE_WITH_STUCK_THREAD) as pid:
        look_when(pid, lambda one: task_of(one).state == "Z", "a dead leader")
        os.kill(pid, signal.SIGKILL)
        look = look_when(pid, lambda one: any(task.state == "D" for task in one.tasks), "a blocked thread")
        assert task_of(look).state == "Z"
        other = next(task for task in look.tasks if task.tid != pid)
        assert other.kill_pending
        assert not other.flags & PF_EXITING
        assert "fuse_direct_io" in symbols(other)
        assert look.resident_bytes > 0


@needs_fuse
def test_an_init_of_a_pid_namespace_sleeps_in_its_exit_and_waits_for_its_stuck_child() -> None:
    """State S with PF_EXITING in zap_pid_ns_processes; the child it waits for is in the same namespace."""
    with namespace_init_with_stuck_child() as (init, inner):
        look = look_when(init, lambda one: "zap_pid_ns_processes" in symbols(task_of(one)), "the wait")
        assert task_of(look).state == "S"
        assert task_of(look).flags & PF_EXITING
        assert look.ns_pids[-1] == 1
        stuck = read_kernel_look(inner)
        assert (task_of(stuck).state, len(stuck.ns_pids)) == ("D", len(look.ns_pids))
        assert task_of(stuck).flags & PF_EXITING
        assert stuck.ppid == init


def test_a_stopped_process_is_t_and_not_in_the_exit_path() -> None:
    """SIGSTOP: state T, no tracer, not frozen; a SIGTERM to it does nothing yet."""
    with child(PAUSE) as started:
        os.kill(started.pid, signal.SIGSTOP)
        look = look_when(started.pid, lambda one: task_of(one).state == "T", "stopped")
        assert (look.tracer_pid, task_of(look).flags & PF_EXITING) == (0, 0)
        assert look.frozen == Known(value=False)


def test_a_traced_process_names_its_tracer() -> None:
    """Held by ptrace: state t, and the tracer's pid."""
    with child(PAUSE) as started, traced(started.pid) as tracer:
        look = look_when(started.pid, lambda one: task_of(one).state == "t", "traced")
        assert look.tracer_pid == tracer


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_frozen_process_is_told_from_its_cgroup_and_sigkill_shows_who_may_end_it(version: str) -> None:
    """Frozen is read from the cgroup's files; SIGKILL ends it in v2, and in v1 only once it is thawed."""
    if why_no_freezer(version):
        pytest.skip(why_no_freezer(version))
    with child(PAUSE) as started:
        with frozen(started.pid, version=version) as folder:
            look = read_kernel_look(started.pid)
            assert look.frozen == Known(value=True)
            assert look.freezer == f"{version} /{folder.name}"
            started.kill()
            if version == "v2":
                assert started.wait(10) == -signal.SIGKILL
            else:
                held = read_kernel_look(started.pid)
                assert held.frozen == Known(value=True)
                assert not task_of(held).flags & PF_EXITING
        assert started.wait(10) == -signal.SIGKILL


def test_a_thawed_process_is_not_frozen() -> None:
    """After the thaw the same reader says no."""
    if why_no_freezer("v1"):
        pytest.skip(why_no_freezer("v1"))
    with child(PAUSE) as started:
        with frozen(started.pid, version="v1"):
            assert read_kernel_look(started.pid).frozen == Known(value=True)
        assert read_kernel_look(started.pid).frozen == Known(value=False)
        assert read_kernel_look(started.pid).freezer == ""


def test_a_core_dump_shows_its_writer_and_its_parked_sibling(tmp_path: Path) -> None:
    """CoreDumping, the writer with PF_DUMPCORE, its sibling past the dump's gate, memory still there."""
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    pid = 0
    try:
        with dumping_core(tmp_path) as pid:
            look = look_when(pid, lambda one: one.dumping_core, "dumping")
            writer = next(task for task in look.tasks if task.flags & PF_DUMPCORE)
            others = [task for task in look.tasks if task.tid != writer.tid]
            assert not writer.flags & PF_EXITING
            assert all(task.flags & PF_POSTCOREDUMP for task in others)
            assert look.resident_bytes > 0
            first = look.written_bytes
            assert isinstance(first, Known)
            assert first.value > 0
    except NoCoreReaderError as error:
        pytest.skip(f"no core can be dumped to a reader here: {error}")
    finally:
        assert Path("/proc/sys/kernel/core_pattern").read_text() == before


ATTEMPTS = 8


def test_a_slow_exit_shows_memory_going_down_while_it_leaves() -> None:
    """A killed process with gigabytes of small pages: exiting, and its cgroup is charged less and less."""
    for attempt in range(ATTEMPTS):
        leaving = looks_at_a_slow_exit()
        figures = [look.cgroup_bytes.value for look in leaving if isinstance(look.cgroup_bytes, Known)]
        assert all(look.resident_bytes == 0 for look in leaving)
        # A reader that gets no CPU sees too few moments of an exit that takes a tenth of a second.
        if len(figures) >= 3 and min(figures) < figures[0] - GIB // 4:
            return
        assert attempt < ATTEMPTS - 1, figures


def looks_at_a_slow_exit() -> list[KernelLook]:
    """Return what was seen of a killed process with a GiB of small pages while it was in the exit path."""
    with child(LARGE + PAUSE, str(GIB)) as started:
        started.kill()
        looks: list[KernelLook] = []
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                look = read_kernel_look(started.pid)
            except ProcessLookupError:
                break
            if task_of(look).state in DEAD_STATES:
                break
            looks.append(look)
        return [look for look in looks if task_of(look).flags & PF_EXITING]


def test_many_threads_are_bounded_and_counted() -> None:
    """Of more tasks than are looked at the leader is among those told, and the whole number is known."""
    with child(THREADS + PAUSE, "300") as started:
        look = read_kernel_look(started.pid)
        assert (len(look.tasks), look.task_count) == (MOST_TASKS, 301)
        assert task_of(look).tid == started.pid
        few = read_kernel_look(started.pid, most_tasks=3)
        assert (len(few.tasks), few.task_count) == (3, 301)
