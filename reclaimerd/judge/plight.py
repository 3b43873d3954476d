"""What the exit of a process, or its wait in the kernel, amounts to over several looks; pure.

Stuck is said of what released nothing for the whole patience, in at least three looks, and then either
did not move at all, or moved with a frame of the driver in its sampled stacks. Motion without release
and without such a frame is never called stuck in the driver. Nothing here acts: a verdict is words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from reclaimerd.judge.advice import words
from reclaimerd.judge.culprits import Culprit, Survey, culprit_in, survey_of, waits_for_namespace
from reclaimerd.judge.exit_path import condition_of, process_condition
from reclaimerd.judge.progress import fingerprint
from reclaimerd.judge.stack_frames import GPU_MODULES, certain, inside
from reclaimerd.judge.trails import Leaver, Sight, Trail, evidence_of, followed, quiet
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import KernelLook, KernelTask, Leaving, Plight, Signature, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    PF_EXITING,
    PF_KTHREAD,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Unreadable

MOST_TRAILS = 4096
"""Processes remembered at once; past it those seen longest ago are forgotten."""
FORGOTTEN_AFTER_SECONDS = 600.0
"""How long a process that is not shown is remembered: a reader may be refused one for a minute."""
DRAIN_FACTOR = 5
"""A process that moves, releases nothing and shows no stack leads to a request after so many patiences."""
_SLEEPER_SHARE = 2
"""What moves at least once in half a patience moves; what moved only before that is judged as still later."""

_STUCK = frozenset({Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING})
_HELD = frozenset({TaskCondition.FROZEN, TaskCondition.STOPPED, TaskCondition.TRACED})
_LEAVES = frozenset({TaskCondition.EXITING, TaskCondition.DUMPING_CORE})
_OURS_TO_DRAIN = frozenset({FaultDomain.DRIVER, FaultDomain.HARDWARE})


@dataclass(frozen=True, slots=True)
class PlightSettings:
    """The policy's patience, and the known places; `core_grace_seconds` is for a core that grows."""

    exit_grace_seconds: float = 120.0
    samples: int = 3
    core_grace_seconds: float = 600.0
    signatures: tuple[Signature, ...] = ()


@dataclass(frozen=True, slots=True)
class Beside:
    """What the looks don't show: GPU bytes per process (None or missing: unknown), and our own SIGKILLs.

    `killed_at` is monotonic, from our attempt records: a pending SIGKILL that is not ours proves nothing.
    """

    gpu_bytes: Mapping[ProcessRef, int | None] = field(default_factory=dict)
    killed_at: Mapping[ProcessRef, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlightMemory:
    """What is carried from pass to pass."""

    trails: Mapping[ProcessRef, Trail] = field(default_factory=dict)


def advance(
    memory: PlightMemory, looks: Sequence[KernelLook], beside: Beside, settings: PlightSettings, now: float
) -> tuple[tuple[Plight, ...], PlightMemory]:
    """Return what is to be said of every process that leaves, waits or is held, and the next memory.

    `now` is monotonic seconds. A process that runs, or is dead and only not yet reaped, has no plight.
    """
    trails: dict[ProcessRef, Trail] = {}
    plights: list[Plight] = []
    for look in looks:
        sight = _sight(look, beside, settings, now)
        if not (sight.due or sight.waiting):
            plights += _without_trail(look, now)
            continue
        trails[look.ref] = followed(memory.trails.get(look.ref), sight)
        plights.append(_plight(trails[look.ref], sight, settings))
    by_pid = {look.ref.pid: look for look in looks}
    survey = survey_of(by_pid)
    told = tuple(_told(plight, survey, settings, now) for plight in plights)
    shown = {look.ref for look in looks}
    kept = {ref: trail for ref, trail in memory.trails.items() if ref not in shown and _fresh(trail, now)}
    newest = sorted((kept | trails).items(), key=lambda item: item[1].at)[-MOST_TRAILS:]
    return told, PlightMemory(dict(newest))


def needs_drain(plight: Plight, now: float, exit_grace_seconds: float) -> bool:
    """Tell whether a process will not end and a drain is to be considered; its fault domain decides further.

    Nobody is drained for a core dump, nor for what is held, nor for a wait that nobody asked to end.
    """
    if plight.condition is TaskCondition.DUMPING_CORE:
        return False
    if plight.leaving is Leaving.NO_RELEASE:
        return now - plight.released_at >= DRAIN_FACTOR * exit_grace_seconds
    return plight.leaving in _STUCK


def _fresh(trail: Trail, now: float) -> bool:
    return now - trail.at < FORGOTTEN_AFTER_SECONDS


def _sight(look: KernelLook, beside: Beside, settings: PlightSettings, now: float) -> Sight:
    killed = look.ref in beside.killed_at and beside.killed_at[look.ref] <= now
    due, waiting = set(), set()
    for task in look.tasks:
        condition = condition_of(task, look)
        if _is_due(task, condition, killed=killed):
            due.add(task.tid)
        elif condition in _HELD or condition is TaskCondition.BLOCKED:
            waiting.add(task.tid)
    return Sight(
        look=look,
        seen=fingerprint(look, beside.gpu_bytes.get(look.ref)),
        due=frozenset(due),
        waiting=frozenset(waiting),
        signatures=settings.signatures,
        longest_step_seconds=settings.exit_grace_seconds / max(1, settings.samples),
        now=now,
    )


def _is_due(task: KernelTask, condition: TaskCondition, *, killed: bool) -> bool:
    """Tell whether the task is on its way out: it exits, dumps, or was sent SIGKILL by us.

    A kernel thread blocked in the driver is due too: nobody else can end the work that it was handed.
    """
    if condition in _LEAVES:
        return True
    if task.flags & PF_KTHREAD:
        return condition is TaskCondition.BLOCKED and inside(certain(task.frames), GPU_MODULES)
    return killed and condition in {TaskCondition.BLOCKED, TaskCondition.RUNNING}


def _without_trail(look: KernelLook, now: float) -> tuple[Plight, ...]:
    """Return the plight of a process of which no task leaves or waits: most have none."""
    condition, counts = process_condition(look)
    if counts and condition is not TaskCondition.ZOMBIE_LEADER:
        return ()
    leaving = Leaving.NOT_LEAVING if counts else Leaving.UNDETERMINED
    return (Plight(look.ref, condition, leaving, now, now, 1, ""),)


def _plight(trail: Trail, sight: Sight, settings: PlightSettings) -> Plight:
    condition, counts = process_condition(sight.look)
    held_on_its_way = any(_is_traced_away(task, sight.look) for task in sight.look.tasks)
    due = tuple(leaver for leaver in trail.leavers if leaver.due)
    group = due or trail.leavers
    if held_on_its_way or not due:
        held = held_on_its_way or condition in _HELD
        leaving, chosen = Leaving.HELD if held else Leaving.NOT_LEAVING, _most_telling(group)
        condition = TaskCondition.TRACED if held_on_its_way else condition
    elif TaskCondition.DUMPING_CORE in counts:
        condition = TaskCondition.DUMPING_CORE
        leaving, chosen = _dump(trail, due, sight, settings), _most_telling(due)
    else:
        leaving, chosen = _exit(trail, due, sight, settings)
    signature = chosen.place.signature
    return Plight(
        ref=trail.ref,
        condition=condition,
        leaving=leaving,
        since=min(leaver.since for leaver in group),
        released_at=sight.now - quiet(trail, group)[0],
        looks=max(leaver.looks for leaver in group),
        text="",
        signature="" if signature is None else signature.name,
        fault_domain=_domain(condition, signature),
        evidence=evidence_of(sight, chosen),
    )


def _is_traced_away(task: KernelTask, look: KernelLook) -> bool:
    """Tell whether a tracer stops the task on its way out: the exit waits for the tracer, not the kernel."""
    leaves = task.flags & (PF_EXITING | PF_POSTCOREDUMP)
    return bool(leaves) and condition_of(task, look) is TaskCondition.TRACED


def _exit(
    trail: Trail, due: tuple[Leaver, ...], sight: Sight, settings: PlightSettings
) -> tuple[Leaving, Leaver]:
    """Return what the exit amounts to, and the task that tells it best."""
    grace = settings.exit_grace_seconds
    seconds, looks = quiet(trail, due)
    if seconds < grace or looks < settings.samples:
        return Leaving.PROGRESSING, _most_telling(due)
    old = tuple(one for one in due if one.seconds >= grace and one.looks >= settings.samples)
    moving = tuple(one for one in old if one.still_seconds < grace)
    if not moving:
        chosen = _most_telling(old)
        return (Leaving.UNDETERMINED if _may_be_frozen(sight, chosen) else Leaving.STUCK_BLOCKED), chosen
    if sight.seen.gpu_bytes is None and sight.seen.cgroup_bytes is None:
        return Leaving.UNDETERMINED, _most_telling(moving)  # it may release what we can't see
    spinning = tuple(one for one in moving if _spins(one, settings))
    if spinning:
        return Leaving.STUCK_SPINNING, _most_telling(spinning)
    return Leaving.NO_RELEASE, _most_telling(moving)


def _spins(leaver: Leaver, settings: PlightSettings) -> bool:
    signature = leaver.place.signature
    return (
        signature is not None
        and signature.fault_domain in _OURS_TO_DRAIN
        and leaver.motions >= settings.samples
        and leaver.still_seconds * _SLEEPER_SHARE < settings.exit_grace_seconds
    )


def _may_be_frozen(sight: Sight, leaver: Leaver) -> bool:
    """Tell whether a still task may only be in a v1 freezer: neither its files nor its stack can be read.

    One with PF_EXITING can't be frozen, and a frame that decided says where it is.
    """
    exiting = leaver.seen.flags & PF_EXITING
    return isinstance(sight.look.frozen, Unreadable) and not exiting and not leaver.place.frame


def _dump(trail: Trail, due: tuple[Leaver, ...], sight: Sight, settings: PlightSettings) -> Leaving:
    """Return what a core dump amounts to: it leaves while the core grows, for the core's own patience."""
    if sight.seen.written_bytes is None:
        return Leaving.UNDETERMINED
    seconds, looks = quiet(trail, due)
    if seconds < settings.exit_grace_seconds or looks < settings.samples:
        in_time = max(leaver.seconds for leaver in due) < settings.core_grace_seconds
        return Leaving.PROGRESSING if in_time else Leaving.NO_RELEASE
    still = all(leaver.still_seconds >= settings.exit_grace_seconds for leaver in due)
    return Leaving.STUCK_BLOCKED if still else Leaving.NO_RELEASE


def _most_telling(leavers: Sequence[Leaver]) -> Leaver:
    """Return the task that tells most: a known place before none, who waits for no lock before who does.

    A task that waits for a lock only shows that somebody else holds it. One that waits for a file server
    from inside the driver makes the driver's other tasks wait: it comes first. Among equals the oldest.
    """

    def rank(leaver: Leaver) -> tuple[bool, bool, bool, bool, float, int]:
        place = leaver.place
        domain = FaultDomain.UNKNOWN if place.signature is None else place.signature.fault_domain
        elsewhere = place.in_driver and domain is FaultDomain.WORKLOAD
        known = place.signature is not None
        ours = domain in _OURS_TO_DRAIN
        return not known, not elsewhere, bool(place.lock), not ours, leaver.since, leaver.tid

    return min(leavers, key=rank)


def _domain(condition: TaskCondition, signature: Signature | None) -> FaultDomain:
    if condition in _HELD:
        return FaultDomain.WORKLOAD
    if signature is not None:
        return signature.fault_domain
    return FaultDomain.WORKLOAD if condition is TaskCondition.DUMPING_CORE else FaultDomain.UNKNOWN


def _told(plight: Plight, survey: Survey, settings: PlightSettings, now: float) -> Plight:
    """Return the plight with the one it waits for, whose fault it then is, and with its sentence."""
    found = culprit_in(plight.ref, survey, settings.signatures)
    if isinstance(found, Culprit):
        held = plight.leaving is Leaving.HELD
        domain = plight.fault_domain if held else found.fault_domain
        plight = replace(plight, culprit=found.ref, fault_domain=domain)
    elif waits_for_namespace(survey.looks[plight.ref.pid]):
        plight = replace(plight, fault_domain=FaultDomain.UNKNOWN)
    return replace(plight, text=words(plight, survey.looks, now, settings.signatures))
