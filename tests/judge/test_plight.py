"""Stuck is only what released nothing for the whole patience; everything else has its own word."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaimerd.judge import plight as module
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance, needs_drain
from reclaimerd.model.kernel import KernelLook, KernelTask, Leaving, Signature, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    PF_DUMPCORE,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.builders import GIB, MONO, a_ref
from tests.judge.kernel_builders import (
    EXIT,
    GRACE,
    SETTINGS,
    SIGNATURES,
    SYSTEM_CALL,
    Watch,
    a_ktask,
    a_look,
    busier,
    exiting,
)

SPIN = f"uvm_spin_loop/nvidia_uvm uvm_tracker_wait/nvidia_uvm uvm_release/nvidia_uvm {EXIT}"
FLUSH = f"request_wait_answer __fuse_simple_request fuse_flush filp_flush filp_close {EXIT}"
CLOSE = f"down_write os_acquire_rwlock_write/nvidia nvidia_close/nvidia __fput {EXIT}"
IOCTL = f"schedule some_wait/nvidia nvidia_ioctl/nvidia {SYSTEM_CALL}"
STUCK = {Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING}
REF = a_ref(100)


def test_a_process_that_runs_or_is_dead_has_no_plight() -> None:
    """Asleep, or a zombie that waits for its parent: nothing is said, nothing remembered."""
    watch = Watch()
    assert watch.look(a_look(100)) is None
    assert watch.look(exiting(state="Z")) is None
    assert watch.memory == PlightMemory()


def test_an_exit_is_progressing_until_its_patience_is_over() -> None:
    """Just before it is over nothing is stuck; after it, motionless and in the driver, it is."""
    watch = Watch()
    watch.look(exiting(frames=CLOSE))
    before = watch.stay(exiting(frames=CLOSE), GRACE - 4)
    assert before.leaving is Leaving.PROGRESSING
    after = watch.stay(exiting(frames=CLOSE), 4)
    assert after.leaving is Leaving.STUCK_BLOCKED
    assert after.condition is TaskCondition.EXITING
    assert after.signature == "close_waits_for_rm_lock"
    assert after.fault_domain is FaultDomain.DRIVER
    assert after.since == MONO + 2
    assert after.released_at == pytest.approx(MONO + 2)
    assert needs_drain(after, watch.now, GRACE)


def test_three_looks_are_needed_however_long_they_are_apart() -> None:
    """Two looks with an hour between them, as after a pause of the machine, make nothing stuck."""
    watch = Watch()
    assert watch.stay(exiting(frames=CLOSE), 0).leaving is Leaving.PROGRESSING
    for _ in range(2):
        found = watch.look(exiting(frames=CLOSE), after=3600)
        assert found is not None
        assert found.leaving is Leaving.PROGRESSING
    found = watch.look(exiting(frames=CLOSE), after=3600)
    assert found is not None
    assert found.leaving is Leaving.STUCK_BLOCKED


def test_three_looks_are_needed_even_without_any_patience() -> None:
    """With a patience of nothing the third look decides, not the first."""
    watch = Watch(replace(SETTINGS, exit_grace_seconds=0.0))
    found = watch.through([exiting(frames=CLOSE)] * 3)
    assert [one.leaving for one in found if one] == [Leaving.PROGRESSING] * 2 + [Leaving.STUCK_BLOCKED]


def test_a_spin_with_a_driver_frame_in_any_sample_is_stuck_spinning() -> None:
    """State R shows no stack; one sample among sixty that shows the driver is enough."""
    watch = Watch()
    watch.spin(exiting(state="R"), GRACE / 2)
    watch.look(busier(exiting(state="R", frames=SPIN), 500))
    found = watch.spin(busier(exiting(state="R"), 1000), GRACE)
    assert found.leaving is Leaving.STUCK_SPINNING
    assert found.signature == "uvm_spin_loop"
    assert found.fault_domain is FaultDomain.DRIVER
    assert "in uvm_spin_loop [nvidia_uvm]" in found.evidence
    assert needs_drain(found, watch.now, GRACE)


def test_a_spin_without_any_stack_is_never_called_stuck_in_the_driver() -> None:
    """Motion, no release, no stack: undetermined, and after five patiences a request is considered."""
    watch = Watch()
    found = watch.spin(exiting(state="R"), GRACE * 2)
    assert found.leaving is Leaving.NO_RELEASE
    assert found.fault_domain is FaultDomain.UNKNOWN
    assert not needs_drain(found, watch.now, GRACE)
    found = watch.spin(busier(exiting(state="R"), 1000), GRACE * 3 + 10)
    assert found.leaving is Leaving.NO_RELEASE
    assert needs_drain(found, watch.now, GRACE)


def test_a_spin_in_a_place_that_is_not_the_drivers_is_no_release() -> None:
    """Only the driver's or the hardware's places make a spin stuck."""
    own = Signature("loop", "t", "m", "m", FaultDomain.UNKNOWN, symbols=("shrink*",))
    watch = Watch(replace(SETTINGS, signatures=(own,)))
    found = watch.spin(exiting(state="R", frames=f"shrink_node {EXIT}"))
    assert (found.leaving, found.signature) == (Leaving.NO_RELEASE, "loop")


def test_what_could_be_released_unseen_is_undetermined() -> None:
    """With neither GPU memory nor a cgroup's figure a moving exit may release what we can't see."""
    blind = exiting(state="R", frames=SPIN, cgroup_bytes=Unreadable("no right"))
    found = Watch().spin(blind)
    assert found.leaving is Leaving.UNDETERMINED
    assert not needs_drain(found, MONO + 10_000, GRACE)
    seen = Watch().spin(blind, beside=Beside(gpu_bytes={REF: GIB}))
    assert seen.leaving is Leaving.STUCK_SPINNING


def test_a_release_starts_the_patience_again_and_forgets_where_it_was() -> None:
    """GPU memory that falls once, in the middle, is progress; the stack from before it proves nothing."""
    watch = Watch()
    watch.spin(exiting(state="R", frames=SPIN), GRACE - 10, Beside(gpu_bytes={REF: 8 * GIB}))
    found = watch.spin(busier(exiting(state="R"), 500), GRACE - 10, Beside(gpu_bytes={REF: 4 * GIB}))
    assert found.leaving is Leaving.PROGRESSING
    found = watch.spin(busier(exiting(state="R"), 900), 20, Beside(gpu_bytes={REF: 4 * GIB}))
    assert found.leaving is Leaving.NO_RELEASE
    assert found.signature == ""


def test_memory_that_others_of_the_cgroup_use_is_no_release() -> None:
    """A figure that goes up and down above its lowest mark hides no stuck exit."""
    watch = Watch()
    for turn in range(70):
        used = (8 + turn % 3) * GIB
        watch.look(exiting(frames=CLOSE, cgroup_bytes=Known(used)))
    assert watch.plights[0].leaving is Leaving.STUCK_BLOCKED


def test_motion_that_ended_long_ago_makes_no_spin() -> None:
    """What moved at first and then stands still is undetermined until it stood still for the patience."""
    watch = Watch()
    watch.spin(exiting(state="D", frames=CLOSE), 30)
    still = busier(exiting(state="D", frames=CLOSE), 99)
    assert watch.stay(still, GRACE - 20).leaving is Leaving.NO_RELEASE
    assert watch.stay(still, 24).leaving is Leaving.STUCK_BLOCKED


def test_threads_that_come_and_go_make_no_stuck_process() -> None:
    """A healthy pool has a thread in its exit at every look, each time another one."""
    watch = Watch()
    for turn in range(200):
        watch.look(a_look(100, a_ktask(100), a_ktask(1000 + turn, "D", PF_EXITING, CLOSE)))
        assert watch.plights[0].leaving is Leaving.PROGRESSING


def test_one_thread_that_stays_is_stuck_although_others_come_and_go() -> None:
    """The threads around it that end count as nothing it lets go of."""
    watch = Watch()
    stuck = a_ktask(101, "D", PF_EXITING, CLOSE)
    for turn in range(70):
        watch.look(a_look(100, a_ktask(100), stuck, a_ktask(1000 + turn, "R", PF_EXITING)))
    assert watch.plights[0].leaving is Leaving.STUCK_BLOCKED
    assert "task 101" in watch.plights[0].evidence[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "leaving"), [(0, Leaving.STUCK_BLOCKED), (1, Leaving.PROGRESSING), (5, Leaving.PROGRESSING)]
)
def test_tasks_that_leave_beyond_the_bound_are_a_release(step: int, leaving: Leaving) -> None:
    """Of 1000 tasks a look shows the same 256, all still, while others of them end: 70, or 350, or none."""
    watch = Watch()
    shown = [a_ktask(100 + number, "D", PF_EXITING, CLOSE) for number in range(256)]
    for turn in range(70):
        watch.look(a_look(100, *shown, task_count=1000 - step * turn))
    assert watch.plights[0].leaving is leaving
    assert f"left: {1000 - step * 69} tasks" in watch.plights[0].evidence[-1]


@pytest.mark.slow
def test_300_of_1000_tasks_that_go_between_two_looks_begin_the_patience_anew() -> None:
    """A single fall beyond the bound is a release of that moment; after it the patience runs again."""
    watch = Watch()
    shown = [a_ktask(100 + number, "D", PF_EXITING, CLOSE) for number in range(256)]
    watch.stay(a_look(100, *shown, task_count=1000), GRACE - 4)
    fewer = a_look(100, *shown, task_count=700)
    assert watch.stay(fewer, GRACE - 4).leaving is Leaving.PROGRESSING
    assert watch.stay(fewer, 8).leaving is Leaving.STUCK_BLOCKED


def test_a_task_blocked_in_the_driver_is_stuck_only_when_we_sent_sigkill() -> None:
    """Not asked to end, it only waits, as long as it likes; a SIGKILL of others is none of ours."""
    look = a_look(100, a_ktask(100, "D", 0, IOCTL, kill_pending=True))
    watch = Watch()
    found = watch.stay(look, GRACE * 3)
    assert (found.leaving, found.condition) == (Leaving.NOT_LEAVING, TaskCondition.BLOCKED)
    assert found.signature == "gpu_driver"
    assert not needs_drain(found, watch.now, GRACE)
    killed = Beside(killed_at={REF: watch.now})
    assert watch.stay(look, GRACE - 4, killed).leaving is Leaving.PROGRESSING
    found = watch.stay(look, 8, killed)
    assert (found.leaving, found.condition) == (Leaving.STUCK_BLOCKED, TaskCondition.BLOCKED)


def test_a_task_that_runs_on_after_our_sigkill_is_followed() -> None:
    """A spin in an ioctl is in state R and not in the exit path; before our signal nothing is said."""
    look = a_look(100, a_ktask(100, "R", 0, SPIN.replace("do_exit", "x")))
    watch = Watch()
    later = Beside(killed_at={REF: MONO + 10_000})
    assert watch.look(look, beside=later) is None
    found = watch.spin(look, beside=Beside(killed_at={REF: MONO}))
    assert (found.leaving, found.condition) == (Leaving.STUCK_SPINNING, TaskCondition.RUNNING)


def test_a_wait_that_moves_is_another_wait() -> None:
    """What a task in D waits for changes all the time: the wait of before is over, and counts no more."""
    watch = Watch()
    found = watch.spin(a_look(100, a_ktask(100, "D", 0, IOCTL)))
    assert found.looks == 1
    assert found.since == watch.now


@pytest.mark.parametrize(
    ("look", "condition"),
    [
        (a_look(100, a_ktask(100, "D"), frozen=Known(value=True)), TaskCondition.FROZEN),
        (a_look(100, a_ktask(100, "T")), TaskCondition.STOPPED),
        (a_look(100, a_ktask(100, "t"), tracer_pid=7), TaskCondition.TRACED),
        (a_look(100, a_ktask(100, "t", PF_POSTCOREDUMP), tracer_pid=7), TaskCondition.TRACED),
        (
            a_look(100, a_ktask(100, "D", PF_EXITING), a_ktask(101, "t", PF_POSTCOREDUMP), tracer_pid=7),
            TaskCondition.TRACED,
        ),
    ],
)
def test_what_is_held_from_outside_is_never_stuck(look: KernelLook, condition: TaskCondition) -> None:
    """Frozen, stopped and traced are the workload's matter, with or without our SIGKILL."""
    for beside in (Beside(), Beside(killed_at={REF: MONO})):
        found = Watch().stay(look, GRACE * 6, beside)
        assert (found.leaving, found.condition) == (Leaving.HELD, condition)
        assert found.fault_domain is FaultDomain.WORKLOAD
        assert not needs_drain(found, MONO + 10_000, GRACE)


def test_a_core_dump_has_its_own_patience_while_it_grows() -> None:
    """Growth is progress for ten minutes; then it is undetermined, and never a reason for a drain."""
    watch = Watch()

    def dump(turn: int) -> KernelLook:
        parked = a_ktask(101, "I", PF_POSTCOREDUMP, EXIT)
        return a_look(
            100, a_ktask(100, "D", PF_DUMPCORE), parked, dumping_core=True, written_bytes=Known(turn)
        )

    said = {one.leaving for one in watch.through([dump(turn) for turn in range(299)]) if one}
    assert said == {Leaving.PROGRESSING}
    found = watch.look(dump(300), after=10)
    assert found is not None
    assert (found.leaving, found.condition) == (Leaving.NO_RELEASE, TaskCondition.DUMPING_CORE)
    assert found.fault_domain is FaultDomain.WORKLOAD
    assert not needs_drain(found, watch.now + 10_000, GRACE)


def test_a_core_that_does_not_grow_is_blocked_or_undetermined() -> None:
    """Motionless it is stuck in its pipe, which is the workload's fault; unreadable it is undetermined."""
    frames = "anon_pipe_write dump_emit elf_core_dump do_coredump get_signal"
    still = a_look(100, a_ktask(100, "S", PF_DUMPCORE, frames), dumping_core=True, written_bytes=Known(9))
    found = Watch().stay(still)
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "core_dump_pipe")
    assert found.fault_domain is FaultDomain.WORKLOAD
    assert not needs_drain(found, MONO + 10_000, GRACE)
    assert Watch().spin(still).leaving is Leaving.NO_RELEASE
    unread = replace(still, written_bytes=Unreadable("no right"))
    assert Watch().stay(unread).leaving is Leaving.UNDETERMINED


def test_a_dead_leader_with_living_threads_is_said_and_not_judged() -> None:
    """Nobody asked it to end."""
    found = Watch().stay(a_look(100, a_ktask(100, "Z", PF_EXITING), a_ktask(101)))
    assert (found.leaving, found.condition) == (Leaving.NOT_LEAVING, TaskCondition.ZOMBIE_LEADER)


def test_a_process_without_a_readable_task_is_undetermined() -> None:
    """What was not seen is not gone."""
    found = Watch().look(replace(a_look(100), tasks=()))
    assert found is not None
    assert found.leaving is Leaving.UNDETERMINED


def test_an_unreadable_stack_leaves_the_place_unknown_and_the_wait_stuck() -> None:
    """No motion and no release is seen without the right to read stacks; whose fault it is, is not."""
    look = a_look(100, a_ktask(100, "D", PF_EXITING, frames="", wchan="fuse_flush"))
    look = replace(look, tasks=(replace(look.tasks[0], frames=Unreadable("no right")),))
    found = Watch().stay(look)
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "")
    assert found.fault_domain is FaultDomain.UNKNOWN
    assert any("stack unreadable (no right)" in line for line in found.evidence)


def test_what_may_only_be_frozen_is_undetermined() -> None:
    """Neither freezer nor stack can be read: what SIGKILL does not move may be in a v1 freezer."""
    task = replace(a_ktask(100, "D"), frames=Unreadable("no right"))
    look = a_look(100, task, frozen=Unreadable("no right"))
    killed = Beside(killed_at={REF: MONO})
    assert Watch().stay(look, beside=killed).leaving is Leaving.UNDETERMINED
    placed = a_look(100, a_ktask(100, "D", 0, IOCTL), frozen=Unreadable("no right"))
    assert Watch().stay(placed, beside=killed).leaving is Leaving.STUCK_BLOCKED
    leaves = replace(look, tasks=(replace(task, flags=PF_EXITING),))
    assert Watch().stay(leaves).leaving is Leaving.STUCK_BLOCKED


def test_a_kernel_thread_blocked_in_the_driver_is_due_and_others_are_not() -> None:
    """Nobody can end it, so its patience runs; a busy one, or one elsewhere, is left alone."""
    close = "down os_acquire_rwlock_write/nvidia nvidia_close_deferred/nvidia _main_loop/nvidia kthread"
    thread = a_ktask(100, "D", PF_KTHREAD, close, comm="nv_queue")
    found = Watch().stay(a_look(100, thread, comm="nv_queue", cgroup_bytes=Absent("none")))
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "deferred_close")
    elsewhere = replace(thread, frames=a_ktask(frames="jbd2_log_wait kthread").frames)
    assert Watch().stay(a_look(100, elsewhere)).leaving is Leaving.NOT_LEAVING
    killed = Beside(killed_at={REF: MONO})
    assert Watch().look(a_look(100, replace(thread, state="R")), beside=killed) is None


def test_of_several_tasks_the_one_that_tells_most_is_named() -> None:
    """Who waits for no lock before who does, a known place before an unknown one."""
    tasks = (
        a_ktask(100, "D", PF_EXITING, f"unknown_wait {EXIT}"),
        a_ktask(101, "D", PF_EXITING, CLOSE),
        a_ktask(102, "D", PF_EXITING, f"rcu_barrier uvm_release/nvidia_uvm {EXIT}"),
        a_ktask(103, "D", PF_EXITING, FLUSH),
    )
    assert Watch().stay(a_look(100, *tasks)).signature == "uvm_release"
    assert Watch().stay(a_look(100, *tasks[:2])).signature == "close_waits_for_rm_lock"
    assert Watch().stay(a_look(100, *tasks[:2], tasks[3])).fault_domain is FaultDomain.WORKLOAD


def test_a_file_server_that_blocks_a_task_inside_the_driver_is_no_fault_of_the_driver() -> None:
    """Whoever holds the driver's lock and waits for FUSE makes the others wait: no drain by itself."""
    hostile = "request_wait_answer fuse_readahead handle_mm_fault asm_exc_page_fault nvidia_ioctl/nvidia"
    killed = Beside(killed_at={REF: MONO})
    both = a_look(
        100, a_ktask(100, "D", 0, f"rcu_barrier f/nvidia {SYSTEM_CALL}"), a_ktask(101, "D", 0, hostile)
    )
    assert Watch().stay(both, beside=killed).fault_domain is FaultDomain.WORKLOAD
    watch = Watch()
    attacker = a_look(200, a_ktask(200, "D", 0, hostile))
    for _ in range(70):
        watch.look(exiting(frames=CLOSE), attacker)
    found = watch.plights[0]
    assert found.leaving is Leaving.STUCK_BLOCKED
    assert found.culprit == attacker.ref
    assert found.fault_domain is FaultDomain.WORKLOAD


def test_the_init_of_a_namespace_takes_the_fault_of_the_one_it_waits_for() -> None:
    """Its own stack says nothing; without a known member nobody's fault is known."""
    zap = a_ktask(300, "S", PF_EXITING, f"kernel_wait4 zap_pid_ns_processes {EXIT}", wchan="do_wait")
    init = a_look(300, zap, ns_pids=(300, 1))
    child = exiting(301, FLUSH, ppid=300, ns_pids=(301, 2))
    watch = Watch()
    for _ in range(70):
        watch.look(init, child)
    assert watch.plights[0].culprit == child.ref
    assert watch.plights[0].fault_domain is FaultDomain.WORKLOAD
    alone = Watch().stay(init)
    assert alone.culprit is None
    assert alone.fault_domain is FaultDomain.UNKNOWN


def test_a_process_that_is_not_shown_for_a_while_is_remembered() -> None:
    """A reader that refuses one for a minute does not start its patience again; after ten it does."""
    watch = Watch()
    watch.stay(exiting(frames=CLOSE), GRACE - 4)
    assert watch.look() is None
    found = watch.look(exiting(frames=CLOSE), after=60)
    assert found is not None
    assert found.leaving is Leaving.STUCK_BLOCKED
    watch.look(after=601)
    assert watch.memory.trails == {}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound those seen longest ago are forgotten."""
    monkeypatch.setattr(module, "MOST_TRAILS", 2)
    watch = Watch()
    for pid in (100, 200, 300):
        watch.look(exiting(pid))
    assert {ref.pid for ref in watch.memory.trails} == {200, 300}


def test_another_process_of_the_same_number_starts_anew() -> None:
    """Identity is boot, pid and start, never the pid."""
    watch = Watch()
    watch.stay(exiting(frames=CLOSE))
    found = watch.look(replace(exiting(frames=CLOSE), ref=a_ref(100, 9)))
    assert found is not None
    assert found.leaving is Leaving.PROGRESSING


def test_time_that_goes_backwards_counts_as_none() -> None:
    """A clock can be wrong; no verdict comes from it."""
    _, memory = advance(PlightMemory(), (exiting(),), Beside(), SETTINGS, MONO)
    plights, _ = advance(memory, (exiting(),), Beside(), SETTINGS, MONO - 500)
    assert plights[0].leaving is Leaving.PROGRESSING


steps = st.lists(
    st.tuples(
        st.floats(1, GRACE - 1),
        st.sampled_from(["task", "unseen", "gpu", "cgroup"]),
        st.lists(
            st.tuples(st.sampled_from("DRSI"), st.sampled_from(["", CLOSE, SPIN, FLUSH]), st.integers(0, 3)),
            min_size=1,
            max_size=4,
        ),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@settings(deadline=None)
@given(steps, st.integers(30, 60), st.text(max_size=15))
def test_an_exit_that_releases_in_time_is_never_called_stuck(
    run: list[tuple[float, str, list[tuple[str, str, int]]]], tasks_left: int, comm: str
) -> None:
    """Whatever its tasks show (case C50 too): pauses shorter than the patience make nothing stuck."""
    gpu, cgroup, unseen = 10**6, 10**6, 100
    watch = Watch()
    for beat, (pause, kind, shown) in enumerate(run):
        tasks_left -= kind == "task"
        unseen -= kind == "unseen"
        gpu -= 1000 * (kind == "gpu")
        cgroup -= 1000 * (kind == "cgroup")
        for state, frames, ticks in shown:
            task = a_ktask(100, state, PF_EXITING, frames, comm=comm)
            # Whoever gives memory back ran for it: without motion a falling cgroup is somebody else's.
            tasks = _many(task, tasks_left, ticks, since=100 * beat)
            look = a_look(100, *tasks, cgroup_bytes=Known(cgroup), comm=comm)
            look = replace(look, task_count=len(tasks) + unseen)
            watch.look(look, beside=Beside(gpu_bytes={REF: gpu}), after=pause / len(shown))
            assert watch.plights[0].leaving is Leaving.PROGRESSING


def _many(task: KernelTask, count: int, ticks: int, *, since: int) -> list[KernelTask]:
    return [replace(task, tid=100 + number, cpu_ticks=since + ticks * number) for number in range(count)]


@given(st.text(max_size=20))
def test_a_hostile_name_changes_no_verdict(comm: str) -> None:
    """The same looks under another name come to the same plight."""
    quick = PlightSettings(exit_grace_seconds=4, signatures=SIGNATURES)

    def run(name: str) -> tuple[object, ...]:
        task = a_ktask(100, "D", PF_EXITING, CLOSE, comm=name)
        found = Watch(quick).stay(a_look(100, task, comm=name), 12)
        return found.leaving, found.signature, found.fault_domain, found.text, found.evidence

    assert run(comm) == run("python3")
