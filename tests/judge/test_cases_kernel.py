"""Public incidents of stuck tasks, by their numbers in our collection; inputs are made again from facts."""

from dataclasses import replace

import pytest

from reclaimerd.judge.culprits import NobodyKnown, culprit_of
from reclaimerd.judge.exit_path import is_exiting, is_kernel_thread, is_released, process_condition
from reclaimerd.judge.plight import Beside, needs_drain
from reclaimerd.judge.signatures import ab_ba, lock_waited_for, matched
from reclaimerd.model.kernel import KernelLook, Leaving, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    PF_EXITING,
    PF_KTHREAD,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.builders import GIB, MONO, a_process, a_ref, a_task
from tests.judge.kernel_builders import (
    EXIT,
    GRACE,
    SIGNATURES,
    SYSTEM_CALL,
    Watch,
    a_ktask,
    a_look,
    busier,
    by_pid,
    exiting,
    stack,
)

KILLED = Beside(killed_at={a_ref(100): MONO})


def in_module(symbols: str, module: str) -> str:
    """Return frames of one module, in the notation of the builders."""
    return " ".join(f"{symbol}/{module}" for symbol in symbols.split())


C01 = in_module(
    "uvm_spin_loop wait_for_entry_with_spin uvm_tracker_wait_for_entry uvm_push_end_and_wait "
    "channel_pool_add uvm_channel_manager_create init_gpu add_gpu uvm_gpu_retain_by_uuid "
    "uvm_va_space_register_gpu uvm_api_register_gpu uvm_ioctl uvm_unlocked_ioctl",
    "nvidia_uvm",
)


@pytest.mark.parametrize("state", ["R", "D"])
def test_c01_a_spin_in_an_ioctl_is_stuck_in_either_letter_and_is_no_exit(state: str) -> None:
    """C01: after our SIGKILL it is stuck in the driver although it never reached its exit."""
    look = a_look(100, a_ktask(100, state, 0, f"{C01} {SYSTEM_CALL}", kill_pending=True))
    found = Watch().spin(look, beside=KILLED)
    assert found.leaving is Leaving.STUCK_SPINNING
    assert found.condition is not TaskCondition.EXITING
    assert (found.signature, found.fault_domain) == ("uvm_spin_loop", FaultDomain.DRIVER)
    assert "a reset is refused" in found.text


def test_c03_many_tasks_behind_one_lock_have_one_holder_and_names_with_brackets_say_nothing() -> None:
    """C03: container tools pile up behind the host-wide lock; the one without the lock frame is named."""
    lock = in_module("uvm_gpu_retain_by_uuid uvm_va_space_register_gpu uvm_ioctl", "nvidia_uvm")
    frames = f"schedule schedule_preempt_disabled __mutex_lock_slowpath mutex_lock {lock} {SYSTEM_CALL}"
    waiting = [
        a_look(pid, a_ktask(pid, "D", 0, frames, comm="nvc:[driver]"), comm="nvc:[driver]")
        for pid in (5403, 6067)
    ]
    found = matched(stack(frames), TaskCondition.BLOCKED, "nvc:[driver]", SIGNATURES)
    assert found is not None
    assert found.name == "uvm_global_lock"
    assert isinstance(culprit_of(a_ref(5403), by_pid(*waiting)), NobodyKnown)
    holder = a_look(5000, a_ktask(5000, "R", 0, C01))
    assert getattr(culprit_of(a_ref(6067), by_pid(*waiting, holder)), "ref", None) == holder.ref


def test_c04_a_wait_for_the_drivers_lock_with_a_signal_pending_is_found_behind_closed_names() -> None:
    """C04: the lock's frame decides, the closed driver's names between do not matter."""
    frames = (
        "__schedule schedule schedule_preempt_disabled rwsem_down_read_slowpath down_read "
        + in_module(
            "os_acquire_rwlock_read _nv051482rm _nv000777rm rm_gpu_ops_get_external_alloc_ptes", "nvidia"
        )
        + " map_rm_pt_range/nvidia_uvm "
        + SYSTEM_CALL
    )
    found = Watch().stay(a_look(100, a_ktask(100, "D", 0, frames, kill_pending=True)), beside=KILLED)
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "rm_lock_wait")
    assert lock_waited_for(stack(frames)) == "os_acquire_rwlock_read [nvidia]"
    assert "SIGKILL cannot help" in found.text


def test_c06_a_kernel_thread_that_opens_a_gpu_is_named_as_one() -> None:
    """C06: it can be sent no signal; it is blocked in the driver, and the node needs a reboot."""
    frames = "schedule rwsem_down_write_slowpath down_write " + in_module(
        "os_acquire_rwlock_write portSyncRwLockAcquireWrite rmapiLockAcquire kgspInitRm_IMPL RmInitAdapter "
        "rm_init_adapter nv_open_device",
        "nvidia",
    )
    thread = a_ktask(1014, "D", PF_KTHREAD | 0x4000, f"{frames} _main_loop/nvidia kthread", comm="nv_open_q")
    look = a_look(1014, thread, ppid=2, comm="nv_open_q", cgroup_bytes=Absent("none"))
    found = Watch().stay(look)
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "open_waits_for_rm_lock")
    assert found.text.startswith("a kernel thread, blocked")
    assert needs_drain(found, MONO + 200, GRACE)


def test_c07_a_client_that_spins_without_a_stack_is_undetermined_and_asks_late() -> None:
    """C07: nothing is released and nothing can be seen; it is not laid to the driver, nor let be."""
    watch = Watch()
    assert watch.spin(exiting(state="R"), GRACE * 2).leaving is Leaving.NO_RELEASE
    last = watch.spin(busier(exiting(state="R"), 1000), GRACE * 4)
    assert needs_drain(last, watch.now, GRACE)


def test_c08_a_dead_leader_with_one_thread_in_the_driver_is_not_dead() -> None:
    """C08: the leader reads Z; the thread that never returns from its ioctl still holds the device."""
    frames = in_module("os_acquire_rwlock_read nvidia_ioctl", "nvidia") + f" __x64_sys_ioctl {SYSTEM_CALL}"
    look = a_look(100, a_ktask(100, "Z", PF_EXITING), a_ktask(108, "D", 0, frames, kill_pending=True))
    worst, counts = process_condition(look)
    assert worst is TaskCondition.BLOCKED
    assert counts == {TaskCondition.BLOCKED: 1, TaskCondition.ZOMBIE_LEADER: 1}
    assert Watch().stay(look).leaving is Leaving.NOT_LEAVING
    found = Watch().stay(look, beside=KILLED)
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "rm_lock_wait")
    assert not is_released(a_process(tasks=(a_task(100, "Z", PF_EXITING), a_task(108, "D"))))


def test_c11_the_compilers_suffixes_do_not_hide_the_release_of_uvm() -> None:
    """C11: task work in do_exit closes the file; names end in .isra.0 and .part.0."""
    frames = (
        "uvm_vm_close_managed_entry/nvidia_uvm remove_vma exit_mmap __mmput mmput "
        + in_module("uvm_release.isra.0 uvm_release_entry.part.0.isra.0 uvm_release_entry", "nvidia_uvm")
        + f" __fput ____fput task_work_run {EXIT}"
    )
    found = Watch().stay(exiting(frames=frames))
    assert (found.leaving, found.signature) == (Leaving.STUCK_BLOCKED, "uvm_release")
    assert found.condition is TaskCondition.EXITING


def test_c13_without_a_stack_a_lock_in_wchan_is_no_evidence_against_the_driver() -> None:
    """C13: rwsem_down_read_slowpath in wchan says that it waits, not for whom."""
    task = replace(a_ktask(100, "D", 0, wchan="rwsem_down_read_slowpath"), frames=Unreadable("no right"))
    found = Watch().stay(a_look(100, task), beside=KILLED)
    assert (found.leaving, found.fault_domain) == (Leaving.STUCK_BLOCKED, FaultDomain.UNKNOWN)
    assert "let a person decide" in found.text


def test_c22_calls_that_time_out_one_by_one_are_the_hardwares_and_end_in_their_time() -> None:
    """C22: each wait is 45 s long; one that is followed by a release is slow and not stuck."""
    frames = "schedule " + in_module(
        "_kgspRpcRecvPoll _issueRpcAndWait rpcRmApiControl_GSP nvidia_close", "nvidia"
    )
    watch = Watch()
    for turn in range(8):
        gpu = Beside(gpu_bytes={a_ref(100): (80 - turn) * GIB})
        found = watch.spin(busier(exiting(state="D", frames=f"{frames} {EXIT}"), 100 * turn), 45, gpu)
        assert (found.leaving, found.signature) == (Leaving.PROGRESSING, "gsp_rpc_timeout")
        assert found.fault_domain is FaultDomain.HARDWARE


def test_c25_state_r_without_memory_is_in_the_exit_path_and_no_kernel_thread() -> None:
    """C25: a name in brackets, no memory, state R: only the flag tells the exit from a kernel thread."""
    look = exiting(100, state="R", comm="[dcgm-exporter]", resident_bytes=0)
    assert process_condition(look)[0] is TaskCondition.EXITING
    reading = a_process(tasks=(a_task(100, "R", PF_EXITING),), comm="[dcgm-exporter]")
    assert is_exiting(reading.tasks[0])
    assert not is_kernel_thread(reading)
    assert Watch().spin(look).leaving is Leaving.NO_RELEASE


def test_c33_a_defunct_leader_with_living_threads_does_not_count_as_gone() -> None:
    """C33: shown as defunct, and still there; one whose every task is dead has nothing to be said of."""
    half = a_look(100, a_ktask(100, "Z", PF_EXITING), a_ktask(101, "D", PF_EXITING, f"f/nvidia {EXIT}"))
    assert Watch().stay(half).leaving is Leaving.STUCK_BLOCKED
    assert Watch().look(a_look(100, a_ktask(100, "Z", PF_EXITING))) is None


def c50_teardown(turn: int, used: int) -> KernelLook:
    """Return a teardown of pinned memory at one moment: always in the driver, mostly on the CPU."""
    frames = f"rcu_barrier uvm_va_space_destroy/nvidia_uvm uvm_release/nvidia_uvm {EXIT}"
    look = exiting(state="R" if turn % 3 else "D", frames="" if turn % 3 else frames)
    return replace(busier(look, turn), cgroup_bytes=Known(used))


def test_c50_a_slow_teardown_of_hundreds_of_gigabytes_is_never_stuck() -> None:
    """C50: twenty minutes of it, with pauses of almost the whole patience between two releases."""
    watch = Watch()
    used = 600 * GIB
    for turn in range(600):
        if turn % 58 == 0:
            used -= 50 * GIB
        found = watch.look(c50_teardown(turn, used))
        assert found is not None
        assert found.leaving is Leaving.PROGRESSING
        assert not needs_drain(found, watch.now, GRACE)
    assert Watch().spin(replace(c50_teardown(0, used), ref=a_ref(100))).leaving is Leaving.STUCK_SPINNING


def test_the_seed_incident_close_and_ioctl_in_a_deadlock() -> None:
    """A close that waits for the rwlock and an ioctl that waits for the mutex: both sides are named."""
    close = in_module(
        "os_acquire_rwlock_write rm_cleanup_file_private nvidia_close_callback nvidia_close", "nvidia"
    )
    ioctl = in_module("os_acquire_mutex _nv9rm rm_ioctl nvidia_ioctl nvidia_unlocked_ioctl", "nvidia")
    looks = (
        exiting(100, f"down_write {close} __fput {EXIT}"),
        a_look(200, a_ktask(200, "D", 0, f"schedule_timeout __down down {ioctl} {SYSTEM_CALL}")),
    )
    watch = Watch()
    for turn in range(70):
        watch.look(*looks)
        if turn < 50:
            assert ab_ba(watch.plights, by_pid(*looks)) is None
    text = ab_ba(watch.plights, by_pid(*looks))
    assert text is not None
    assert text.startswith("AB-BA deadlock in the driver: 100@1")
    assert watch.plights[0].culprit is None
