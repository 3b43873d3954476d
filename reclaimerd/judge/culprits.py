"""Who makes whom wait: tells the task that is stuck from those that only wait for it; pure.

It names one process or says that none can be told; it never guesses between two. What is named here
comes from parents, tracers, namespaces and stacks, never from a name that a process chose.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reclaimerd.judge.exit_path import condition_of, process_condition
from reclaimerd.judge.signatures import deciding, lock_waited_for
from reclaimerd.judge.stack_frames import GPU_MODULES, bare, certain, inside
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import Frame, KernelLook, KernelTask, Signature, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_EXITING,
    PF_POSTCOREDUMP,
)

_CHILD_WAITS = frozenset(
    {"do_wait", "__do_wait", "kernel_wait4", "do_wait4", "kernel_waitid", "wait_for_vfork_done"}
)
_NAMESPACE_WAIT = "zap_pid_ns_processes"
_HARD = frozenset({TaskCondition.EXITING, TaskCondition.DUMPING_CORE, TaskCondition.BLOCKED})
_HARD_OR_HALF_DEAD = _HARD | {TaskCondition.ZOMBIE_LEADER}


@dataclass(frozen=True, slots=True)
class Culprit:
    """The process that another waits for, why we say so, and whose fault its own place is."""

    ref: ProcessRef
    why: str
    fault_domain: FaultDomain = FaultDomain.UNKNOWN


@dataclass(frozen=True, slots=True)
class NobodyKnown:
    """No one process can be named, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All looks of one pass, each stack gone through once: who waits for which lock, who works where.

    `locks` are by pid: the driver's lock and the module it belongs to. `busy` are the processes with a
    task at work in a module that waits for none of its locks. `children` are pids by parent.
    """

    looks: Mapping[int, KernelLook]
    locks: Mapping[int, tuple[str, str]]
    behind: Mapping[str, int]
    busy: Mapping[str, tuple[int, ...]]
    children: Mapping[int, tuple[int, ...]]


def survey_of(looks: Mapping[int, KernelLook]) -> Survey:
    """Return the looks (by pid) with what the search for a culprit asks of them."""
    locks = {pid: lock for pid, look in looks.items() if (lock := _lock_of(look))[0]}
    busy: dict[str, list[int]] = {}
    children: dict[int, list[int]] = {}
    for pid, look in looks.items():
        children.setdefault(look.ppid, []).append(pid)
        for module in sorted({module for task in look.tasks for module in _works_in(task, look)}):
            busy.setdefault(module, []).append(pid)
    return Survey(
        looks=looks,
        locks=locks,
        behind=Counter(lock for lock, _ in locks.values()),
        busy={module: tuple(pids) for module, pids in busy.items()},
        children={parent: tuple(pids) for parent, pids in children.items()},
    )


def culprit_of(
    ref: ProcessRef, looks: Mapping[int, KernelLook], signatures: Sequence[Signature] = ()
) -> Culprit | NobodyKnown:
    """Return whom a process waits for in the end, over any number of waits, or why none can be told.

    `looks` are by pid, and only what is among them can be named.
    """
    return culprit_in(ref, survey_of(looks), signatures)


def culprit_in(
    ref: ProcessRef, survey: Survey, signatures: Sequence[Signature] = ()
) -> Culprit | NobodyKnown:
    """Return the same for one of many processes of a pass."""
    start = _look(ref, survey.looks)
    if start is None:
        return NobodyKnown("it was not looked at")
    found = _next(start, survey)
    seen = {ref}
    while isinstance(found, Culprit) and found.ref not in seen:
        seen.add(found.ref)
        culprit = survey.looks[found.ref.pid]
        further = _next(culprit, survey)
        if not isinstance(further, Culprit):
            return replace(found, fault_domain=_fault_of(culprit, signatures))
        found = replace(further, why=f"{found.why}; {further.why}")
    if isinstance(found, Culprit):
        return NobodyKnown(f"they wait for each other: {found.why}")
    return found


def is_victim(ref: ProcessRef, looks: Mapping[int, KernelLook]) -> bool:
    """Tell whether a process is itself on its way out and only waits for another, so that no act helps.

    A process that lives and waits for its child can still be ended, so it is none: else anyone could
    make a holder untouchable by giving it a stuck child, or by tracing it.
    """
    look = _look(ref, looks)
    live = () if look is None else _live(look)
    if look is None or not live or not all(_leaves(task) for task in live):
        return False
    return waits_for_namespace(look) or isinstance(culprit_of(ref, looks), Culprit)


def _look(ref: ProcessRef, looks: Mapping[int, KernelLook]) -> KernelLook | None:
    look = looks.get(ref.pid)
    return look if look is not None and look.ref == ref else None


def _live(look: KernelLook) -> tuple[KernelTask, ...]:
    return tuple(task for task in look.tasks if task.state not in DEAD_STATES)


def _leaves(task: KernelTask) -> bool:
    return bool(task.flags & (PF_EXITING | PF_POSTCOREDUMP))


def _next(look: KernelLook, survey: Survey) -> Culprit | NobodyKnown:
    """Return whom this process waits for directly."""
    if any(condition_of(task, look) is TaskCondition.TRACED for task in look.tasks):
        return _tracer(look, survey.looks)
    if waits_for_namespace(look):
        return _member(look, survey)
    if _waits_for_child(look):
        return _child(look, survey)
    return _lock_holder(look, survey)


def _tracer(look: KernelLook, looks: Mapping[int, KernelLook]) -> Culprit | NobodyKnown:
    tracer = looks.get(look.tracer_pid)
    if tracer is None:
        return NobodyKnown(f"it is traced by process {look.tracer_pid}, which was not looked at")
    return Culprit(tracer.ref, f"{look.ref} is stopped by its tracer {tracer.ref}")


def waits_for_namespace(look: KernelLook) -> bool:
    """Tell whether this is the init of a PID namespace that waits for its members to end.

    It is in the exit path, shows `zap_pid_ns_processes`, or waits as child reaper while it exits
    (kernel/pid_namespace.c): state S, and as innocent as can be.
    """
    if len(look.ns_pids) < 2 or look.ns_pids[-1] != 1:  # noqa: PLR2004 - the host's number and its own
        return False
    for task in _live(look):
        shown = certain(task.frames)
        if _shows(shown, frozenset({_NAMESPACE_WAIT})):
            return True
        if _leaves(task) and not shown and task.wchan in {"do_wait", _NAMESPACE_WAIT}:
            return True
    return False


def _shows(frames: Sequence[Frame], symbols: frozenset[str]) -> bool:
    return any(bare(frame.symbol) in symbols for frame in frames)


def _member(look: KernelLook, survey: Survey) -> Culprit | NobodyKnown:
    depth = len(look.ns_pids)
    below = (survey.looks[pid] for pid in _descendants(look.ref.pid, survey))
    members = [other for other in below if len(other.ns_pids) >= depth and _live(other)]
    why = f"{look.ref} is the init of a PID namespace and waits for its members"
    return _only(members, why, "of its namespace")


def _descendants(pid: int, survey: Survey) -> tuple[int, ...]:
    """Return the pids below this one that were looked at; a namespace's init inherits its orphans."""
    found: dict[int, None] = {}
    open_ends = [pid]
    while open_ends:
        for child in survey.children.get(open_ends.pop(), ()):
            if child != pid and child not in found:
                found[child] = None
                open_ends.append(child)
    return tuple(found)


def _waits_for_child(look: KernelLook) -> bool:
    """Tell whether it sleeps until a child ends, and none of its own tasks is stuck elsewhere."""
    waits = False
    for task in _live(look):
        if _shows(certain(task.frames), _CHILD_WAITS) or task.wchan in _CHILD_WAITS:
            waits = True
        elif condition_of(task, look) in _HARD:
            return False
    return waits


def _child(look: KernelLook, survey: Survey) -> Culprit | NobodyKnown:
    below = (survey.looks[pid] for pid in survey.children.get(look.ref.pid, ()) if pid != look.ref.pid)
    children = [other for other in below if process_condition(other)[0] in _HARD_OR_HALF_DEAD]
    return _only(children, f"{look.ref} waits for its child", "among its children")


def _only(found: Sequence[KernelLook], why: str, whose: str) -> Culprit | NobodyKnown:
    """Return the one that is stuck; with several or none of them stuck, the one there is at all."""
    stuck = [look for look in found if process_condition(look)[0] in _HARD and not _only_waits(look)]
    few = stuck or [look for look in found if not _only_waits(look)] or list(found)
    if len(few) == 1:
        return Culprit(few[0].ref, f"{why} {few[0].ref}")
    if not few:
        return NobodyKnown(f"{why}, and nobody {whose} was looked at")
    pids = ", ".join(str(look.ref) for look in sorted(few, key=lambda look: look.ref)[:8])
    return NobodyKnown(f"{why}, and {len(few)} {whose} are left: {pids}; which one holds it up can't be told")


def _only_waits(look: KernelLook) -> bool:
    return waits_for_namespace(look) or _waits_for_child(look)


def _lock_holder(look: KernelLook, survey: Survey) -> Culprit | NobodyKnown:
    """Return the one process that is at work in the module whose lock this one waits for."""
    if look.ref.pid not in survey.locks:
        return NobodyKnown("it waits for no lock, child or tracer that we can see")
    lock, module = survey.locks[look.ref.pid]
    behind = survey.behind[lock]
    why = f"{look.ref} waits for {lock}" + (f", as {behind} processes do" if behind > 1 else "")
    holders = survey.busy.get(module, ())
    if look.ref.pid in holders:
        return NobodyKnown(f"{why}, and another of its own tasks is in [{module}] without it")
    if len(holders) == 1:
        holder = survey.looks[holders[0]].ref
        return Culprit(holder, f"{why}; only {holder} is in [{module}] without it")
    told = f"{len(holders)} processes are" if holders else "nobody is"
    return NobodyKnown(f"{why}, and {told} in [{module}] without it: none can be told")


def _lock_of(look: KernelLook) -> tuple[str, str]:
    """Return the lock that a task waits for inside the driver, and the innermost driver frame's module."""
    for task in _live(look):
        frames = certain(task.frames)
        lock = lock_waited_for(frames)
        module = next((frame.module for frame in frames if frame.module in GPU_MODULES), "")
        if lock and module:
            return lock, module
    return "", ""


def _works_in(task: KernelTask, look: KernelLook) -> frozenset[str]:
    """Return the driver's modules that a task is at work in while it waits for no lock."""
    frames = certain(task.frames)
    modules = frozenset(module for module in GPU_MODULES if inside(frames, frozenset({module})))
    if not modules or lock_waited_for(frames):
        return frozenset()
    busy = task.state in {"D", "R"} or condition_of(task, look) is TaskCondition.EXITING
    return modules if busy else frozenset()


def _fault_of(look: KernelLook, signatures: Sequence[Signature]) -> FaultDomain:
    """Return whose fault the culprit's own place is: unknown unless a stack of it tells."""
    found = [
        signature.fault_domain
        for task in _live(look)
        if (signature := deciding(certain(task.frames), condition_of(task, look), task.comm, signatures)[0])
    ]
    # Of two, the workload's: a drain is for what nobody else can be the cause of.
    return FaultDomain.WORKLOAD if FaultDomain.WORKLOAD in found else next(iter(found), FaultDomain.UNKNOWN)
