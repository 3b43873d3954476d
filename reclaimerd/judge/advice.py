"""One sentence about a process that leaves or waits, for the person who is paged: what, where, what helps.

Pure words: nothing here decides. A pending SIGKILL on a task that already exits is never called help.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import assert_never

from reclaimerd.judge.culprits import culprit_of, waits_for_namespace
from reclaimerd.model.kernel import KernelLook, Leaving, Plight, Signature, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    DEAD_STATES,
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Known

_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3600
_DOING = MappingProxyType(
    {
        TaskCondition.EXITING: "exiting",
        TaskCondition.DUMPING_CORE: "dumping core",
        TaskCondition.BLOCKED: "blocked in the kernel",
        TaskCondition.FROZEN: "frozen by its cgroup",
        TaskCondition.STOPPED: "stopped",
        TaskCondition.TRACED: "stopped by a tracer",
        TaskCondition.ZOMBIE_LEADER: "its leader is dead and other threads live, seen so",
        TaskCondition.RUNNING: "seen",
        TaskCondition.GONE: "dead",
    }
)
_NO_KILL = "SIGKILL cannot help"
_NO_RESET = "a reset is refused"


def duration(seconds: float) -> str:
    """Return a time as people write it: `12 s`, `4 m 10 s`, `2 h 05 m`."""
    whole = max(0, int(seconds))
    if whole < _MINUTE_SECONDS:
        return f"{whole} s"
    if whole < _HOUR_SECONDS:
        return f"{whole // _MINUTE_SECONDS} m {whole % _MINUTE_SECONDS:02} s"
    return f"{whole // _HOUR_SECONDS} h {whole % _HOUR_SECONDS // _MINUTE_SECONDS:02} m"


def words(
    plight: Plight, looks: Mapping[int, KernelLook], now: float, signatures: Sequence[Signature] = ()
) -> str:
    """Return the plight in one sentence; `signatures` give a place its title, mend and public issue."""
    signature = next((one for one in signatures if one.name == plight.signature), None)
    look = looks.get(plight.ref.pid)
    look = look if look is not None and look.ref == plight.ref else None
    parts = [_doing_for(plight, look, now), *_verdict(plight, look, signature, now)]
    waits = _waits(plight, look, looks)
    if waits:
        parts.append(waits)
    return "; ".join(parts)


def _doing_for(plight: Plight, look: KernelLook | None, now: float) -> str:
    """Return what it does and for how long; after one look nobody knows how long."""
    doing = _doing(plight, look)
    if plight.looks > 1:
        return f"{doing} for {duration(now - plight.since)}"
    return f"{doing.removesuffix(', seen so')}, seen once"


def _doing(plight: Plight, look: KernelLook | None) -> str:
    if plight.condition is TaskCondition.BLOCKED and _is_kernel_thread(look):
        return "a kernel thread, blocked"
    if plight.condition is TaskCondition.RUNNING and plight.leaving is not Leaving.UNDETERMINED:
        return "sent SIGKILL and not exiting"
    return _DOING[plight.condition]


def _is_kernel_thread(look: KernelLook | None) -> bool:
    return look is not None and any(task.flags & PF_KTHREAD for task in look.tasks)


def _verdict(plight: Plight, look: KernelLook | None, signature: Signature | None, now: float) -> list[str]:
    match plight.leaving:
        case Leaving.NOT_LEAVING:
            parts = _ordinary(plight, signature)
        case Leaving.PROGRESSING:
            parts = _progress(plight, look, signature)
        case Leaving.STUCK_BLOCKED:
            parts = _stuck(plight, "motionless", "blocked", signature)
        case Leaving.STUCK_SPINNING:
            parts = _stuck(plight, "spinning", "spinning", signature)
        case Leaving.NO_RELEASE:
            parts = _no_release(plight, signature, now)
        case Leaving.HELD:
            parts = _held(plight, look)
        case Leaving.UNDETERMINED:
            parts = ["what it does can't be read, so nothing is said of it", "hands off", _NO_RESET]
        case _:
            assert_never(plight.leaving)
    return parts


def _place(plight: Plight, signature: Signature | None) -> str:
    title = plight.signature.replace("_", " ") if signature is None else signature.title
    return f"{title} ({plight.fault_domain})"


def _ordinary(plight: Plight, signature: Signature | None) -> list[str]:
    where = [f"in {_place(plight, signature)}"] if plight.signature else []
    if plight.condition is TaskCondition.ZOMBIE_LEADER:
        return [*where, "it still holds all it had"]
    return [*where, "not asked to end"]


def _progress(plight: Plight, look: KernelLook | None, signature: Signature | None) -> list[str]:
    if plight.condition is TaskCondition.DUMPING_CORE:
        return ["the core grows and the GPU stays held until it is written", "SIGKILL cuts the core short"]
    where = [f"in {_place(plight, signature)}"] if plight.signature else []
    pending = look is not None and any(task.kill_pending for task in look.tasks)
    means = ["a pending SIGKILL means nothing now"] if pending and _exits(plight) else []
    if plight.looks > 1:
        return [*where, "not stuck as far as can be told: wait", *means]
    return [*where, "one look can't tell whether it is stuck: look again in a minute", *means]


def _exits(plight: Plight) -> bool:
    return plight.condition is TaskCondition.EXITING


def _stuck(plight: Plight, bare: str, verb: str, signature: Signature | None) -> list[str]:
    where = f"{verb} in {_place(plight, signature)}" if plight.signature else f"{bare}, in no known place"
    kill = "SIGKILL cuts the core short" if plight.condition is TaskCondition.DUMPING_CORE else _NO_KILL
    parts = [where, kill]
    if signature is None or signature.forbids_reset:
        parts.append(_NO_RESET)
    return [*parts, _mend(plight, signature)]


def _mend(plight: Plight, signature: Signature | None) -> str:
    if signature is not None:
        return f"{signature.mend} (public issue {signature.issue})" if signature.issue else signature.mend
    match plight.fault_domain:
        case FaultDomain.DRIVER | FaultDomain.HARDWARE:
            return "reboot the node"
        case FaultDomain.WORKLOAD:
            return "not the GPU's fault: mend what it waits for"
        case FaultDomain.UNKNOWN:
            return "take evidence, and let a person decide"
        case _:
            assert_never(plight.fault_domain)


def _no_release(plight: Plight, signature: Signature | None, now: float) -> list[str]:
    quiet = duration(now - plight.released_at)
    where = [f"last seen in {_place(plight, signature)}"] if plight.signature else []
    if plight.condition is TaskCondition.DUMPING_CORE:
        return ["longer than a core is given, and the GPU stays held", "SIGKILL cuts the core short"]
    return [*where, f"it moves but let go of nothing for {quiet}", "undetermined", _NO_KILL, _NO_RESET]


def _held(plight: Plight, look: KernelLook | None) -> list[str]:
    """Return what lets a held process go on: each kind of holding has its own way out."""
    if plight.condition is TaskCondition.FROZEN:
        freezer = look.freezer if look is not None else ""
        where = f" ({freezer})" if freezer else ""
        if freezer.startswith("v2"):
            return [
                f"not stuck in the kernel{where}",
                "SIGKILL ends it all the same; whoever froze it can thaw it",
            ]
        return [f"not stuck in the kernel{where}", "a signal waits until a person thaws it"]
    if plight.condition is TaskCondition.STOPPED:
        return [
            "not stuck in the kernel",
            "SIGTERM waits until SIGCONT, SIGKILL works; no SIGCONT where a scheduler suspended it",
        ]
    tracer = f" {look.tracer_pid}" if look is not None and look.tracer_pid else ""
    return ["not stuck in the kernel", f"the tracer{tracer} must let it go: end the tracer"]


def _waits(plight: Plight, look: KernelLook | None, looks: Mapping[int, KernelLook]) -> str:
    if plight.culprit is not None:
        return f"it waits for {plight.culprit}"
    if look is not None and waits_for_namespace(look):
        return culprit_of(plight.ref, looks).why
    return ""


def kill_pending_means(look: KernelLook) -> str:
    """Return what a pending SIGKILL says of this process, "" when none is pending."""
    live = [task for task in look.tasks if task.state not in DEAD_STATES]
    if not any(task.kill_pending for task in live):
        return ""
    if all(task.flags & (PF_EXITING | PF_POSTCOREDUMP) for task in live):
        return "SIGKILL is pending on a process that already exits: it means nothing"
    if look.frozen == Known(value=True):
        return "SIGKILL is pending: a v1 freezer holds it back until a person thaws the cgroup"
    return "SIGKILL is pending: sent by someone, or by an exec, a core dump or a default signal"
