"""Which frames of a kernel stack tell where a task waits, and which every wait has in common.

Pure, and about names alone. The unwinder's uncertain lines never count: they are left-overs of
earlier calls. Module tags are the kernel's own and can't be forged by a process.
"""

import re
from collections.abc import Sequence

from reclaimerd.model.kernel import Frame
from reclaimerd.model.reading import Known, Reading

GPU_MODULES = frozenset({"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem"})
"""The vendor's modules, as the kernel writes them behind a frame."""

IDLE_LOOP = "_main_loop"
"""Where the driver's kernel threads sleep while nothing is queued (nv-kthread-q.c)."""

_OBFUSCATED = re.compile(r"_nv\d+(?:rm|kms)?", re.ASCII)
"""Names that the closed builds of the driver carry; they change with each build."""

_DRIVER_LOCKS = (
    "os_acquire_*",
    "os_cond_acquire_*",
    "portSync*Acquire*",
    "rmapiLockAcquire",
    "rmGpuLocksAcquire",
    "rmapiPrologue*",
    "nv_down_*",
)
_KERNEL_LOCKS = (
    "__mutex_lock*",
    "mutex_lock*",
    "rwsem_down_*",
    "down",
    "down_*",
    "__down",
    "__down_*",
    "___down_*",
    "rt_mutex_*",
    "__rt_mutex_*",
    "percpu_down_*",
    "__percpu_down_*",
    "queued_*lock*",
    "native_queued_*",
    "osq_lock",
    "_raw_*lock*",
)
_SCHEDULER = (
    "__schedule",
    "schedule",
    "schedule_*",
    "__schedule_*",
    "preempt_schedule*",
    "__cond_resched",
    "_cond_resched",
    "io_schedule*",
    "context_switch",
    "msleep*",
    "usleep_range*",
    "wait_for_completion*",
    "__wait_for_common",
    "wait_for_common*",
    "rcu_barrier*",
    "synchronize_rcu*",
    "synchronize_srcu*",
    "__synchronize_srcu*",
    "__wait_rcu_gp",
    "flush_work*",
    "__flush_work*",
    "kthread_stop*",
    "nv_kthread_q_flush",
    IDLE_LOOP,
)
_EXIT_AND_ENTRY = (
    "do_exit",
    "do_group_exit",
    "get_signal",
    "arch_do_signal*",
    "do_signal",
    "exit_to_user_mode_*",
    "syscall_exit_to_user_mode*",
    "__x64_sys_*",
    "__arm64_sys_*",
    "__se_sys_*",
    "__do_sys_*",
    "sys_ioctl",
    "ksys_*",
    "do_syscall_*",
    "x64_sys_call",
    "entry_SYSCALL_*",
    "el0*",
    "invoke_syscall*",
    "vfs_ioctl",
    "do_vfs_ioctl",
    "task_work_run",
    "fput",
    "__fput*",
    "____fput",
    "filp_close",
    "filp_flush",
    "close_files",
    "put_files_struct",
    "exit_files",
    "exit_mm",
    "exit_mm_release",
    "exit_mmap",
    "mmput*",
    "__mmput",
    "remove_vma*",
    "kthread",
    "ret_from_fork*",
)

_PAGE_FAULT = (
    "handle_mm_fault",
    "__handle_mm_fault",
    "do_user_addr_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
    "page_fault",
    "do_page_fault",
    "faultin_page*",
)


def _compiled(*groups: Sequence[str]) -> re.Pattern[str]:
    """Return one expression for all these names; a stack is asked for many of them."""
    names = [re.escape(name).replace(r"\*", ".*") for group in groups for name in group]
    return re.compile("|".join(names), re.DOTALL)


_IS_SCHEDULER = _compiled(_SCHEDULER)
_IS_LOCK = _compiled(_KERNEL_LOCKS, _DRIVER_LOCKS)
_IS_GENERIC = _compiled(_SCHEDULER, _KERNEL_LOCKS, _EXIT_AND_ENTRY)
_IS_PAGE_FAULT = _compiled(_PAGE_FAULT)


def bare(symbol: str) -> str:
    """Return a function's name without the compiler's suffixes (`.isra.0`, `.part.0`, `.cold`)."""
    return symbol.partition(".")[0] or symbol


def fits(symbol: str, patterns: Sequence[str]) -> bool:
    """Tell whether a name is one of these, exactly or by a prefix that ends in `*`."""
    return any(
        symbol.startswith(pattern[:-1]) if pattern.endswith("*") else symbol == pattern
        for pattern in patterns
    )


def certain(frames: Reading[tuple[Frame, ...]]) -> tuple[Frame, ...]:
    """Return the frames that the unwinder is sure of, innermost first; none when they can't be read."""
    if not isinstance(frames, Known):
        return ()
    return tuple(frame for frame in frames.value if frame.reliable)


def is_generic(frame: Frame) -> bool:
    """Tell whether the frame is one that waits of every kind have: scheduler, lock, exit, system call."""
    return _IS_GENERIC.fullmatch(bare(frame.symbol)) is not None


def is_obfuscated(frame: Frame) -> bool:
    """Tell whether the name is one of the closed driver's; only its module says anything."""
    return _OBFUSCATED.fullmatch(bare(frame.symbol)) is not None


def is_lock(frame: Frame) -> bool:
    """Tell whether the frame takes a lock, of the kernel or of the driver."""
    return _IS_LOCK.fullmatch(bare(frame.symbol)) is not None


def is_page_fault(frame: Frame) -> bool:
    """Tell whether what is further in serves a page fault, so that frames further out only triggered it."""
    return _IS_PAGE_FAULT.fullmatch(bare(frame.symbol)) is not None


def is_scheduler(frame: Frame) -> bool:
    """Tell whether the frame only gives up the CPU."""
    return _IS_SCHEDULER.fullmatch(bare(frame.symbol)) is not None


def is_kernel_thread_stack(frames: Sequence[Frame]) -> bool:
    """Tell whether the stack is a kernel thread's: it begins in `kthread`, as no process's does."""
    return any(bare(frame.symbol) == "kthread" for frame in frames if not frame.module)


def inside(frames: Sequence[Frame], modules: frozenset[str]) -> bool:
    """Tell whether a task is at work in one of these modules (a kernel thread's idle loop is no work)."""
    return any(frame.module in modules and bare(frame.symbol) != IDLE_LOOP for frame in frames)
