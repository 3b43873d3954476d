"""One culprit is named, or none: never a guess between two, and nobody is made untouchable."""

from dataclasses import replace

import pytest

from reclaimerd.judge.culprits import Culprit, NobodyKnown, culprit_of, is_victim
from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Unreadable
from tests.builders import a_ref
from tests.judge.kernel_builders import EXIT, SIGNATURES, SYSTEM_CALL, a_ktask, a_look, by_pid, exiting

ZAP = f"do_wait kernel_wait4 zap_pid_ns_processes {EXIT}"
FLUSH = f"request_wait_answer fuse_flush filp_close {EXIT}"
LOCK = "schedule mutex_lock uvm_gpu_retain_by_uuid/nvidia_uvm uvm_ioctl/nvidia_uvm"
HOLDS = "uvm_spin_loop/nvidia_uvm mutex_lock uvm_ioctl/nvidia_uvm"


def an_init(pid: int = 300, **overrides: object) -> KernelLook:
    """Return the init of a PID namespace that exits and waits for its members."""
    look = a_look(pid, a_ktask(pid, "S", PF_EXITING, ZAP, wchan="do_wait"), ns_pids=(pid, 1))
    return replace(look, **overrides)  # type: ignore[arg-type]  # a test's overrides


def a_member(pid: int, ppid: int = 300, frames: str = FLUSH) -> KernelLook:
    """Return a member of that namespace in its exit."""
    return exiting(pid, frames, ppid=ppid, ns_pids=(pid, pid - 290))


def a_shell(pid: int = 400, state: str = "S", flags: int = 0) -> KernelLook:
    """Return a process that waits for its child."""
    return a_look(pid, a_ktask(pid, state, flags, f"do_wait kernel_wait4 {SYSTEM_CALL}"))


def named(ref: KernelLook, *others: KernelLook) -> int | None:
    """Return the pid of whom the first waits for, None when none can be told."""
    found = culprit_of(ref.ref, by_pid(ref, *others), SIGNATURES)
    return found.ref.pid if isinstance(found, Culprit) else None


def test_the_init_of_a_namespace_waits_for_its_stuck_member() -> None:
    """State S in the exit path, and not its own fault."""
    init, child = an_init(), a_member(301)
    found = culprit_of(init.ref, by_pid(init, child), SIGNATURES)
    assert isinstance(found, Culprit)
    assert found.ref == child.ref
    assert found.fault_domain is FaultDomain.WORKLOAD
    assert is_victim(init.ref, by_pid(init, child))
    assert not is_victim(child.ref, by_pid(init, child))


def test_it_is_known_by_its_wait_where_its_stack_is_not_readable() -> None:
    """Inner number 1, in the exit path, asleep in do_wait; not exiting it is an ordinary init."""
    task = replace(an_init().tasks[0], frames=Unreadable("no right"))
    assert named(an_init(tasks=(task,)), a_member(301)) == 301
    assert named(an_init(tasks=(replace(task, wchan="f"),)), a_member(301)) is None
    living = an_init(tasks=(replace(task, flags=0, wchan="f"),))
    assert named(living, a_member(301)) is None


@pytest.mark.parametrize("numbers", [(300,), (300, 2)])
def test_only_the_init_of_a_namespace_waits_for_one(numbers: tuple[int, ...]) -> None:
    """Another process in the same wait is not one: names and frames alone make none."""
    assert not is_victim(a_ref(300), by_pid(an_init(ns_pids=numbers), a_look(301, ppid=7)))


def test_a_member_may_be_a_grandchild_and_of_a_deeper_namespace() -> None:
    """All that descend from it are its members; what does not, or lives higher, is none."""
    middle = a_look(301, a_ktask(301, "Z", PF_EXITING), ppid=300, ns_pids=(301, 2))
    deep = exiting(302, FLUSH, ppid=301, ns_pids=(302, 3, 1))
    assert named(an_init(), middle, deep) == 302
    assert named(an_init(), replace(deep, ppid=9)) is None
    assert named(an_init(), exiting(303, FLUSH, ppid=300)) is None


def test_a_loop_of_parents_ends() -> None:
    """A pid that was used again can make a ring of two looks; the search ends all the same."""
    assert named(an_init(ppid=301), a_member(301), a_member(302, ppid=302)) == 301


def test_of_several_members_none_is_guessed() -> None:
    """All are named in the reason; one that is stuck among healthy ones is the culprit."""
    found = culprit_of(a_ref(300), by_pid(an_init(), a_member(301), a_member(302)))
    assert isinstance(found, NobodyKnown)
    assert "301@1" in found.why
    assert "302@1" in found.why
    assert is_victim(a_ref(300), by_pid(an_init(), a_member(301), a_member(302)))
    healthy = a_look(302, ppid=300, ns_pids=(302, 3))
    assert named(an_init(), a_member(301), healthy) == 301
    assert named(an_init(), healthy) == 302


def test_waits_are_followed_to_their_end() -> None:
    """A shim waits for an init, the init for a member: the member is named."""
    shim, init, child = a_shell(), an_init(ppid=400), a_member(301)
    assert named(shim, init, child) == 301
    found = culprit_of(shim.ref, by_pid(shim, init, child))
    assert isinstance(found, Culprit)
    assert "300@1" in found.why
    assert named(shim, init) == 300


def test_a_parent_waits_for_the_child_that_does_not_end() -> None:
    """A healthy or dead child is no culprit; of two stuck ones none is guessed."""
    assert named(a_shell(), exiting(401, FLUSH, ppid=400)) == 401
    assert named(a_shell(), a_look(401, ppid=400)) is None
    assert named(a_shell(), exiting(401, FLUSH, ppid=9)) is None
    assert named(a_shell(), exiting(401, ppid=400), exiting(402, ppid=400)) is None
    half_dead = a_look(401, a_ktask(401, "Z", PF_EXITING), a_ktask(402), ppid=400)
    assert named(a_shell(), half_dead) == 401


def test_a_parent_with_a_task_of_its_own_in_trouble_is_no_mere_parent() -> None:
    """One thread waits for a child, another is blocked in the driver: it waits for nobody else."""
    own = replace(a_shell(), tasks=(*a_shell().tasks, a_ktask(402, "D", 0, HOLDS)))
    assert named(own, exiting(401, FLUSH, ppid=400)) is None


def test_a_living_parent_is_no_victim_and_a_leaving_one_is() -> None:
    """Else anyone could keep a holder from being ended by giving it a stuck child."""
    child = exiting(401, FLUSH, ppid=400)
    assert not is_victim(a_ref(400), by_pid(a_shell(), child))
    assert is_victim(a_ref(400), by_pid(a_shell(flags=PF_EXITING), child))


def test_a_traced_exit_waits_for_its_tracer() -> None:
    """The tracer is named when it was looked at; tracing a living process makes it no victim."""
    traced = a_look(100, a_ktask(100, "t", PF_POSTCOREDUMP), tracer_pid=7)
    assert named(traced, a_look(7)) == 7
    assert is_victim(traced.ref, by_pid(traced, a_look(7)))
    found = culprit_of(traced.ref, by_pid(traced))
    assert isinstance(found, NobodyKnown)
    assert "7" in found.why
    living = replace(traced, tasks=(a_ktask(100, "t"),))
    assert not is_victim(living.ref, by_pid(living, a_look(7)))


def test_two_that_wait_for_each_other_are_no_culprits() -> None:
    """A ring has no end."""
    one = a_look(100, a_ktask(100, "t"), tracer_pid=200)
    two = a_look(200, a_ktask(200, "t"), tracer_pid=100)
    found = culprit_of(one.ref, by_pid(one, two))
    assert isinstance(found, NobodyKnown)
    assert "each other" in found.why


def test_of_many_behind_one_lock_the_one_without_it_is_the_culprit() -> None:
    """It is in the same module, at work or asleep for good, and waits for no lock."""
    waiting = [a_look(pid, a_ktask(pid, "D", 0, LOCK)) for pid in (500, 501, 502)]
    holder = a_look(600, a_ktask(600, "R", 0, HOLDS))
    found = culprit_of(waiting[0].ref, by_pid(*waiting, holder), SIGNATURES)
    assert isinstance(found, Culprit)
    assert found.ref == holder.ref
    assert "3 processes" in found.why
    assert found.fault_domain is FaultDomain.DRIVER
    assert culprit_of(waiting[0].ref, by_pid(waiting[0], holder)) == Culprit(
        holder.ref, "500@1 waits for mutex_lock; only 600@1 is in [nvidia_uvm] without it"
    )


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "nobody"),
        ((a_look(600, a_ktask(600, "S", 0, HOLDS)),), "nobody"),
        ((a_look(600, a_ktask(600, "D", 0, "f/nvidia")),), "nobody"),
        ((a_look(600, a_ktask(600, "D", 0, HOLDS)), a_look(601, a_ktask(601, "R", 0, HOLDS))), "2 processes"),
        ((a_look(600, a_ktask(600, "S", 0, "schedule _main_loop/nvidia_uvm kthread")),), "nobody"),
    ],
)
def test_none_can_be_told_when_none_or_several_come_into_question(
    others: tuple[KernelLook, ...], said: str
) -> None:
    """An ordinary sleep in the driver, another module and an idle kernel thread are none."""
    waiting = a_look(500, a_ktask(500, "D", 0, LOCK))
    found = culprit_of(waiting.ref, by_pid(waiting, *others))
    assert isinstance(found, NobodyKnown)
    assert said in found.why
    assert "none can be told" in found.why


def test_a_sleeper_in_its_exit_may_hold_the_lock() -> None:
    """State S in the exit path counts as at work."""
    waiting = a_look(500, a_ktask(500, "D", 0, LOCK))
    assert named(waiting, a_look(600, a_ktask(600, "S", PF_EXITING, HOLDS))) == 600


def test_a_lock_that_its_own_other_task_may_hold_is_nobody_elses_fault() -> None:
    """A process that waits for itself is no victim."""
    own = a_look(500, a_ktask(500, "D", PF_EXITING, LOCK), a_ktask(501, "D", PF_EXITING, HOLDS))
    found = culprit_of(own.ref, by_pid(own))
    assert isinstance(found, NobodyKnown)
    assert "its own tasks" in found.why
    assert not is_victim(own.ref, by_pid(own))


def test_a_lock_outside_the_driver_names_nobody() -> None:
    """The kernel's own locks are not ours to explain."""
    waiting = a_look(500, a_ktask(500, "D", 0, f"mutex_lock ext4_write {SYSTEM_CALL}"))
    assert named(waiting, a_look(600, a_ktask(600, "D", 0, HOLDS))) is None


def test_a_culprit_in_no_known_place_is_nobodys_known_fault() -> None:
    """Whose fault it is comes from its own stack; a workload's place outweighs the driver's."""
    waiting = a_look(500, a_ktask(500, "D", 0, LOCK))
    holder = a_look(600, a_ktask(600, "D", 0, HOLDS))
    unknown = culprit_of(waiting.ref, by_pid(waiting, holder))
    assert isinstance(unknown, Culprit)
    assert unknown.fault_domain is FaultDomain.UNKNOWN
    mixed = replace(holder, tasks=(*holder.tasks, a_ktask(601, "D", 0, f"request_wait_answer {SYSTEM_CALL}")))
    known = culprit_of(waiting.ref, by_pid(waiting, mixed), SIGNATURES)
    assert isinstance(known, Culprit)
    assert known.fault_domain is FaultDomain.WORKLOAD


def test_what_was_not_looked_at_is_neither() -> None:
    """Nor is another process of the same number, nor a dead one."""
    assert isinstance(culprit_of(a_ref(9), {}), NobodyKnown)
    assert not is_victim(a_ref(9), {})
    assert not is_victim(a_ref(300, 7), by_pid(an_init()))
    assert not is_victim(a_ref(300), by_pid(a_look(300, a_ktask(300, "Z", PF_EXITING))))
