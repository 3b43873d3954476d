"""Where a task hangs, by its kernel stack: the first frame that is not common to all waits decides.

wchan is not asked: it names the lock or the scheduler. Scheduler, lock, exit and system call frames and
the unwinder's uncertain lines are passed over. Names of the closed driver change with each build: the
next name that is known decides, and where there is none their module. Pure, and total: no stack raises.
"""

from collections.abc import Iterable, Mapping, Sequence

from reclaimerd.judge.stack_frames import (
    GPU_MODULES,
    bare,
    fits,
    inside,
    is_generic,
    is_kernel_thread_stack,
    is_lock,
    is_obfuscated,
    is_page_fault,
    is_scheduler,
)
from reclaimerd.model.kernel import Frame, KernelLook, Leaving, Plight, Signature, TaskCondition
from reclaimerd.model.reading import Known

_CLOSE = ("nvidia_close*",)
_IOCTL = ("nvidia_ioctl*", "nvidia_unlocked_ioctl*", "rm_ioctl*")
_RM_RWLOCK = ("os_acquire_rwlock_*",)
_RM_MUTEX = ("os_acquire_mutex", "os_acquire_semaphore")
_LOOKS_OF_A_WAIT = 3


def deciding(
    frames: Sequence[Frame], condition: TaskCondition, comm: str, signatures: Sequence[Signature]
) -> tuple[Signature | None, Frame | None]:
    """Return the signature of this stack and the frame that decided; (None, frame) for an unknown place."""
    sure = tuple(frame for frame in frames if frame.reliable)
    closed: int | None = None
    for at, frame in enumerate(sure):
        if is_generic(frame):
            continue
        if is_obfuscated(frame):
            closed = at if closed is None else closed
            continue
        found = _first(signatures, sure[at:], condition, comm)
        if found is not None:
            return found, frame
        # What is further out of a page fault or of another module only led here.
        if frame.module or is_page_fault(frame):
            return _closed(sure, closed, condition, comm, signatures, otherwise=frame)
    return _closed(sure, closed, condition, comm, signatures, otherwise=None)


def matched(
    frames: Sequence[Frame], condition: TaskCondition, comm: str, signatures: Sequence[Signature]
) -> Signature | None:
    """Return the first signature (the administrator's stand first) that this stack has; never raises."""
    return deciding(frames, condition, comm, signatures)[0]


def _closed(  # noqa: PLR0913 - the five of `deciding`, and what to answer without a closed frame
    sure: tuple[Frame, ...],
    closed: int | None,
    condition: TaskCondition,
    comm: str,
    signatures: Sequence[Signature],
    *,
    otherwise: Frame | None,
) -> tuple[Signature | None, Frame | None]:
    if closed is None:
        return None, otherwise
    return _first(signatures, sure[closed:], condition, comm), sure[closed]


def _first(
    signatures: Iterable[Signature], stack: tuple[Frame, ...], condition: TaskCondition, comm: str
) -> Signature | None:
    return next((one for one in signatures if _has(one, stack, condition, comm)), None)


def _has(signature: Signature, stack: tuple[Frame, ...], condition: TaskCondition, comm: str) -> bool:
    """Tell whether a stack that begins with its deciding frame has this signature."""
    frame = stack[0]
    if signature.kernel_threads:
        named = any(comm.startswith(prefix) for prefix in signature.kernel_threads)
        # A process may call itself nv_queue; it can't have a kernel thread's stack.
        if not named or not is_kernel_thread_stack(stack):
            return False
        if not signature.symbols and not signature.modules:
            return bool(frame.module)
    if signature.symbols and not fits(bare(frame.symbol), signature.symbols):
        return False
    if signature.modules and frame.module not in signature.modules:
        return False
    if not (signature.symbols or signature.modules):
        return False
    return _is_within(signature.within, stack, condition)


def _is_within(within: Sequence[str], stack: tuple[Frame, ...], condition: TaskCondition) -> bool:
    if not within:
        return True
    if condition is TaskCondition.EXITING and "do_exit" in within:
        return True  # the kernel shows at most 64 frames; the flags say it for a deeper stack
    return any(fits(bare(frame.symbol), within) for frame in stack)


def lock_waited_for(frames: Sequence[Frame]) -> str:
    """Return the outermost frame of the lock that the task waits for, "" when it waits for none.

    `os_acquire_rwlock_write [nvidia]` and not the kernel's `down_write` below it, where both stand.
    """
    lock: Frame | None = None
    for frame in frames:
        if not frame.reliable or is_scheduler(frame):
            continue
        if is_lock(frame):
            lock = frame
        elif not (lock is not None and is_obfuscated(frame)):
            break
    return "" if lock is None else str(lock)


def _waits(frames: Sequence[Frame], lock: Sequence[str], outer: Sequence[str]) -> bool:
    """Tell whether a stack waits in one of these locks of the driver, taken on behalf of `outer`."""
    sure = [frame for frame in frames if frame.reliable]
    if not lock_waited_for(sure) or not inside(sure, GPU_MODULES):
        return False
    symbols = [bare(frame.symbol) for frame in sure]
    taken = next((at for at, symbol in enumerate(symbols) if fits(symbol, lock)), None)
    return taken is not None and any(fits(symbol, outer) for symbol in symbols[taken:])


def ab_ba(plights: Iterable[Plight], looks: Mapping[int, KernelLook]) -> str | None:
    """Return both sides of a deadlock between the driver's two locks, None when the host shows none.

    One side closes the device and waits for the RM rwlock; the other is in an ioctl and waits for the RM
    mutex. Either alone, or both for a moment, is ordinary contention: both must last, one be stuck.
    """
    lasting = [plight for plight in plights if _lasts(plight)]
    closing = [one for plight in lasting if (one := _side(plight, looks, _RM_RWLOCK, _CLOSE))]
    calling = [one for plight in lasting if (one := _side(plight, looks, _RM_MUTEX, _IOCTL))]
    stuck = [one for one in (*closing, *calling) if one.leaving is Leaving.STUCK_BLOCKED]
    if not closing or not calling or not stuck:
        return None
    return (
        f"AB-BA deadlock in the driver: {_named(closing[0], looks)} closes the device and waits for the RM "
        f"rwlock, {_named(calling[0], looks)} is in an ioctl and waits for the RM mutex; each may hold what "
        "the other waits for, and neither can be ended: reboot the node"
    )


def _lasts(plight: Plight) -> bool:
    if plight.leaving is Leaving.NOT_LEAVING:
        return plight.condition is TaskCondition.BLOCKED and plight.looks >= _LOOKS_OF_A_WAIT
    return plight.leaving is Leaving.STUCK_BLOCKED


def _side(
    plight: Plight, looks: Mapping[int, KernelLook], lock: Sequence[str], outer: Sequence[str]
) -> Plight | None:
    look = looks.get(plight.ref.pid)
    if look is None or look.ref != plight.ref:
        return None
    stacks = (task.frames.value for task in look.tasks if isinstance(task.frames, Known))
    return plight if any(_waits(stack, lock, outer) for stack in stacks) else None


def _named(plight: Plight, looks: Mapping[int, KernelLook]) -> str:
    return f"{plight.ref} ({looks[plight.ref.pid].comm})"
