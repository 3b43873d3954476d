"""The first frame that says anything decides, whatever the name of the task and the noise around it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.signatures import ab_ba, deciding, lock_waited_for, matched
from reclaimerd.judge.stack_frames import bare, fits, inside, is_kernel_thread_stack
from reclaimerd.model.kernel import Frame, Leaving, Plight, Signature, TaskCondition
from reclaimerd.model.policy import FaultDomain
from tests.builders import MONO, a_ref
from tests.judge.kernel_builders import EXIT, SIGNATURES, SYSTEM_CALL, a_ktask, a_look, by_pid, stack

N = "/nvidia"
U = "/nvidia_uvm"
CLOSE_SIDE = (
    f"__schedule schedule rwsem_down_write_slowpath down_write os_acquire_rwlock_write{N} "
    f"portSyncRwLockAcquireWrite{N} rmapiLockAcquire{N} rm_cleanup_file_private{N} nvidia_close_callback{N} "
    f"nvidia_close{N} __fput task_work_run {EXIT}"
)
IOCTL_SIDE = (
    f"__schedule schedule schedule_timeout __down down os_acquire_mutex{N} _nv012345rm{N} rm_ioctl{N} "
    f"nvidia_ioctl{N} nvidia_unlocked_ioctl{N} __x64_sys_ioctl {SYSTEM_CALL}"
)
KTHREAD = "kthread ret_from_fork"


def name_of(text: str, condition: TaskCondition = TaskCondition.EXITING, comm: str = "python3") -> str:
    """Return the name of the built-in signature of a stack, "" for none."""
    found = matched(stack(text), condition, comm, SIGNATURES)
    return "" if found is None else found.name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            f"uvm_spin_loop{U} uvm_tracker_wait{U} uvm_api_map_external_allocation{U} uvm_ioctl{U}",
            "uvm_spin_loop",
        ),
        (
            f"schedule os_schedule{N} _kgspRpcRecvPoll{N} _issueRpcAndWait{N} nvidia_close{N}",
            "gsp_rpc_timeout",
        ),
        (f"os_delay{N} nv_pci_remove_helper{N} nv_pci_remove{N} pci_device_remove", "pci_removal"),
        (CLOSE_SIDE, "close_waits_for_rm_lock"),
        (IOCTL_SIDE, "ioctl_waits_for_rm_mutex"),
        (f"down_read os_acquire_rwlock_read{N} _nv1rm{N} nvUvmInterfaceGetPtes{N}", "rm_lock_wait"),
        (f"mutex_lock uvm_page_tree_get_ptes_async{U} uvm_ioctl{U}", "uvm_page_tree_mutex"),
        (
            f"rcu_barrier uvm_gpu_release_locked{U} uvm_va_space_destroy{U} uvm_release{U} __fput",
            "uvm_release",
        ),
        (f"uvm_hmm_unregister_gpu{U} uvm_va_space_destroy{U}", "uvm_hmm_unregister"),
        (f"schedule nvidia_dev_put_uuid{N} nvUvmInterfaceUnregisterGpu{N}", "nvidia_close"),
        ("nvDIFRPrefetchSurfaces/nvidia_modeset kthread", "modeset"),
        ("nvEvoMakeRoom/nvidia_modeset nv_drm_remove/nvidia_drm", "modeset"),
        (f"some_new_function{N} {EXIT}", "gpu_driver"),
        ("schedule do_exit rewind_stack_and_make_dead", "oops_in_exit"),
        (f"request_wait_answer __fuse_simple_request fuse_flush filp_flush filp_close {EXIT}", "fuse_flush"),
        (f"request_wait_answer/fuse fuse_readpage/fuse filemap_read {SYSTEM_CALL}", "fuse_request"),
        ("rpc_wait_bit_killable/sunrpc __wait_on_bit nfs_wait_on_request/nfs", "nfs_wait"),
        ("anon_pipe_write pipe_write dump_emit elf_core_dump do_coredump get_signal", "core_dump_pipe"),
        ("__refrigerator get_signal arch_do_signal_or_restart", "cgroup_freezer"),
        (f"schedule do_wait kernel_wait4 {SYSTEM_CALL}", ""),
        (EXIT, ""),
        ("", ""),
    ],
)
def test_each_known_place_is_recognised_by_its_first_telling_frame(text: str, name: str) -> None:
    """Scheduler, lock and exit frames say nothing; the first frame after them does."""
    assert name_of(text) == name


def test_a_pipe_that_is_no_core_dump_is_no_signature() -> None:
    """`within` must hold: an ordinary write to a full pipe is not a dump."""
    assert name_of(f"anon_pipe_write vfs_write {SYSTEM_CALL}") == ""


def test_frames_that_the_unwinder_is_not_sure_of_never_count() -> None:
    """A left-over of an earlier call in the driver does not make a FUSE wait the driver's fault."""
    assert name_of(f"?uvm_spin_loop{U} request_wait_answer fuse_flush {EXIT}") == "fuse_flush"
    assert name_of(f"?uvm_spin_loop{U}") == ""


def test_what_is_further_out_of_a_page_fault_only_led_to_it() -> None:
    """A driver that copies from a page on a slow disk is not where the task hangs."""
    fault = (
        f"folio_wait_bit_common filemap_fault __do_fault handle_mm_fault asm_exc_page_fault nvidia_ioctl{N}"
    )
    assert name_of(fault, TaskCondition.BLOCKED) == ""
    fuse = f"request_wait_answer fuse_readahead filemap_fault handle_mm_fault nvidia_ioctl{N}"
    assert name_of(fuse, TaskCondition.BLOCKED) == "fuse_request"


def test_another_modules_frame_ends_the_search_and_is_told() -> None:
    """A file system that we do not know is an unknown place, although the driver is further out."""
    found, frame = deciding(
        stack(f"schedule ceph_wait/ceph nvidia_close{N}"), TaskCondition.EXITING, "x", SIGNATURES
    )
    assert found is None
    assert frame == Frame("ceph_wait", "ceph")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"_nv051482rm{N} _nv000123rm{N} uvm_spin_loop{U}", "uvm_spin_loop"),
        (f"_nv051482rm{N} _nv000123rm{N} {SYSTEM_CALL}", "gpu_driver"),
        (f"_nv051482rm{N} rm_cleanup_file_private{N} nvidia_close{N}", "nvidia_close"),
        (f"_nv051482rm{N} ceph_wait/ceph", "gpu_driver"),
        ("_nv1kms/nvidia_modeset", "gpu_driver"),
        ("_nv1rm", ""),
    ],
)
def test_names_of_the_closed_driver_are_passed_over_but_their_module_counts(text: str, name: str) -> None:
    """They change with each build; the next known name decides, else the module alone."""
    assert name_of(text) == name


def test_do_exit_may_be_beyond_the_frames_that_the_kernel_shows() -> None:
    """A signature within do_exit holds by the task's flags where the stack is cut."""
    signature = Signature("own", "t", "m", "m", FaultDomain.DRIVER, symbols=("f",), within=("do_exit",))
    assert matched(stack("f"), TaskCondition.EXITING, "x", (signature,)) == signature
    assert matched(stack("f"), TaskCondition.BLOCKED, "x", (signature,)) is None
    assert matched(stack("f do_exit"), TaskCondition.BLOCKED, "x", (signature,)) == signature


def test_the_administrators_signature_comes_before_ours() -> None:
    """The first in the sequence is taken."""
    own = Signature("own", "t", "m", "m", FaultDomain.HARDWARE, symbols=("uvm_spin*",))
    assert matched(stack(f"uvm_spin_loop{U}"), TaskCondition.EXITING, "x", (own, *SIGNATURES)) == own


@pytest.mark.parametrize("comm", ["nv_queue", "UVM deferred re", "UVM deferred release queue"])
def test_a_deferred_close_is_a_kernel_threads(comm: str) -> None:
    """By the prefix of its name and a kernel thread's own stack; idle it is none, nor is a process."""
    busy = f"down os_acquire_rwlock_write{N} nvidia_close_deferred{N} _main_loop{N} {KTHREAD}"
    assert name_of(busy, TaskCondition.BLOCKED, comm) == "deferred_close"
    assert name_of(f"schedule down_interruptible _main_loop{N} {KTHREAD}", TaskCondition.RUNNING, comm) == ""
    assert name_of(CLOSE_SIDE, TaskCondition.EXITING, comm) == "close_waits_for_rm_lock"
    assert name_of(busy, TaskCondition.BLOCKED, "kworker/0:1") == "close_waits_for_rm_lock"


def test_a_signature_of_kernel_threads_alone_takes_any_module() -> None:
    """With neither symbols nor modules a busy thread of that name is enough; without any key nothing is."""
    own = Signature("own", "t", "m", "m", FaultDomain.DRIVER, kernel_threads=("gpu_",))
    assert matched(stack(f"f/other {KTHREAD}"), TaskCondition.BLOCKED, "gpu_q", (own,)) == own
    assert matched(stack(f"f {KTHREAD}"), TaskCondition.BLOCKED, "gpu_q", (own,)) is None
    assert matched(stack("f/other"), TaskCondition.BLOCKED, "x", (replace(own, kernel_threads=()),)) is None


@pytest.mark.parametrize("name", ["uvm_release.isra.0", "uvm_release.part.0.isra.0", "uvm_release.cold"])
def test_the_compilers_suffixes_are_no_part_of_a_name(name: str) -> None:
    """`.isra.0`, `.part.0` and `.cold` are cut off; a name of dots alone stays."""
    assert bare(name) == "uvm_release"
    assert bare(".x") == ".x"


def test_patterns_are_exact_or_a_prefix() -> None:
    """No other wildcard exists."""
    assert fits("nvidia_close_deferred", ("nvidia_close*",))
    assert not fits("nvidia_close_deferred", ("nvidia_close",))
    assert not fits("x", ())


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        (CLOSE_SIDE, "rmapiLockAcquire [nvidia]"),
        (IOCTL_SIDE, "os_acquire_mutex [nvidia]"),
        (f"schedule __mutex_lock mutex_lock uvm_gpu_retain_by_uuid{U}", "mutex_lock"),
        (f"os_acquire_rwlock_read{N} _nv1rm{N} rmapiLockAcquire{N} rm_ioctl{N}", "rmapiLockAcquire [nvidia]"),
        (f"?mutex_lock uvm_spin_loop{U} mutex_lock", ""),
        (f"_nv1rm{N} os_acquire_mutex{N}", ""),
        ("schedule", ""),
    ],
)
def test_the_lock_is_named_by_its_outermost_frame(text: str, lock: str) -> None:
    """Only frames at the inner end count: a task that holds a lock further out waits for none."""
    assert lock_waited_for(stack(text)) == lock


def test_work_in_a_module_is_more_than_an_idle_loop() -> None:
    """A kernel thread of the driver that waits for work is not inside it."""
    assert inside(stack(f"x{N}"), frozenset({"nvidia"}))
    assert not inside(stack(f"schedule _main_loop{N}"), frozenset({"nvidia"}))
    assert is_kernel_thread_stack(stack(KTHREAD))
    assert not is_kernel_thread_stack(stack(f"kthread{N}"))


def plight(pid: int, leaving: Leaving = Leaving.STUCK_BLOCKED, **overrides: object) -> Plight:
    """Return a plight of a process blocked in the kernel."""
    base = Plight(a_ref(pid), TaskCondition.BLOCKED, leaving, MONO, MONO, 3, "")
    return replace(base, **overrides)  # type: ignore[arg-type]  # a test's overrides


LOOKS = by_pid(
    a_look(100, a_ktask(100, "D", 4, CLOSE_SIDE)),
    a_look(200, a_ktask(200, "D", 0, IOCTL_SIDE)),
    a_look(300, a_ktask(300, "D", 0, f"request_wait_answer fuse_read {SYSTEM_CALL}")),
    a_look(400, a_ktask(400, "D", 0, f"down os_acquire_mutex nvidia_ioctl {SYSTEM_CALL}")),
)


def test_a_close_and_an_ioctl_that_wait_for_each_others_lock_are_named() -> None:
    """Both sides stand in the sentence."""
    text = ab_ba((plight(100), plight(200, Leaving.NOT_LEAVING)), LOOKS)
    assert text is not None
    assert "AB-BA" in text
    assert "100@1" in text
    assert "200@1" in text


@pytest.mark.parametrize(
    "plights",
    [
        (plight(100),),
        (plight(200),),
        (plight(100), plight(300)),
        (plight(100), plight(400)),
        (plight(100), plight(999)),
        (plight(100), replace(plight(200), ref=a_ref(200, 7))),
        (plight(100), plight(200, Leaving.NOT_LEAVING, looks=2)),
        (plight(100), plight(200, Leaving.NOT_LEAVING, condition=TaskCondition.STOPPED)),
        (plight(100, Leaving.PROGRESSING), plight(200)),
        (plight(100, Leaving.NOT_LEAVING), plight(200, Leaving.NOT_LEAVING), plight(300)),
        (),
    ],
)
def test_ordinary_contention_is_no_deadlock(plights: tuple[Plight, ...]) -> None:
    """One side alone, a short wait, a wait elsewhere or two waits of which none is stuck name nothing."""
    assert ab_ba(plights, LOOKS) is None


names = st.text(max_size=12) | st.sampled_from(
    ["uvm_spin_loop", "do_exit", "_nv1rm", "kthread", "nvidia_close", "*"]
)
any_frames = st.lists(
    st.builds(Frame, names, st.sampled_from(["", "nvidia", "nvidia_uvm", "fuse", "x"]), st.booleans()),
    max_size=12,
)


@given(any_frames, st.sampled_from(TaskCondition), st.text(max_size=20))
def test_no_stack_and_no_name_makes_it_raise(
    frames: list[Frame], condition: TaskCondition, comm: str
) -> None:
    """Whatever stands in a stack, the answer is a signature or None."""
    found = matched(frames, condition, comm, SIGNATURES)
    assert found is None or found in SIGNATURES
    assert isinstance(lock_waited_for(frames), str)


@given(any_frames, st.text(max_size=20) | st.sampled_from(["nv_queue", "UVM deferred re", "nv_open_q"]))
def test_a_hostile_name_changes_nothing(frames: list[Frame], comm: str) -> None:
    """A process may call itself what it likes; without a kernel thread's stack its name says nothing."""
    mine = [frame for frame in frames if bare(frame.symbol) != "kthread"]
    plain = matched(mine, TaskCondition.EXITING, "python3", SIGNATURES)
    assert matched(mine, TaskCondition.EXITING, comm, SIGNATURES) == plain
