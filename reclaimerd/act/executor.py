"""Perform exactly one permitted step and say what came of it.

It may not decide, wait for a death, or try anything twice. A dry run takes the same road up to the
last call and has its own outcome.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from reclaimerd.act.cgroup import Forbidden, Unusable, close
from reclaimerd.act.members import FirstSights, JudgeMembersPort, MemberHands, kill_members
from reclaimerd.act.signals import SIDE_BY_SIDE, SignalOrder, send
from reclaimerd.model.incident import ActorKind, Outcome, OutcomeKind, Stage, TargetOutcome
from reclaimerd.model.policy import Scope
from reclaimerd.model.ports import LookAgainPort
from reclaimerd.model.process import WorkloadKind
from reclaimerd.model.step import Permit, Step

OPEN_AT_ONCE = 256
"""Pidfds that steps side by side may hold together: far below the usual limit of 1024 descriptors."""
GRAVEST_FIRST = (
    OutcomeKind.UNKNOWN,
    OutcomeKind.NOT_PERMITTED,
    OutcomeKind.IDENTITY_CHANGED,
    OutcomeKind.WITHHELD,
    OutcomeKind.FAILED,
    OutcomeKind.SENT,
    OutcomeKind.DRY_RUN,
    OutcomeKind.ALREADY_GONE,
)
"""An outcome of many targets has the first of these kinds that any of them has."""
WENT_WELL = frozenset({OutcomeKind.SENT, OutcomeKind.DRY_RUN, OutcomeKind.ALREADY_GONE})


class WarnPort(Protocol):
    """Tells the owner of a target, within a bound."""

    async def warn(self, step: Step, *, dry_run: bool) -> Outcome:
        """Return DELIVERED, NOT_DELIVERED, or in a dry run what would be."""
        ...


@dataclass(frozen=True, slots=True)
class Executor:
    """The hands: every port they need, and the cgroups they have seen."""

    look_again: LookAgainPort
    judge_members: JudgeMembersPort
    plan_drain: Callable[[Step], str]
    """Return what a drain request would send to each target, byte for byte."""
    boot_id: str
    warner: WarnPort
    sights: FirstSights = field(default_factory=FirstSights)

    async def execute(self, permit: Permit) -> Outcome:
        """Perform the permitted step once. Raises TypeError for anything but a Permit."""
        _require_permit(permit)
        step = permit.step
        dry_run = permit.dry_run or step.dry_run
        match step.stage:
            case Stage.WARNED:
                return await self._warn(step, dry_run=dry_run)
            case Stage.SIGTERM:
                return await self._terminate(step, dry_run=dry_run)
            case Stage.SIGKILL:
                return await self._kill(step, dry_run=dry_run)
            case Stage.RESET:
                return self._reset(step, dry_run=dry_run)
            case Stage.DRAIN:
                return self._drain(step, dry_run=dry_run)
            case _:
                return Outcome(OutcomeKind.FAILED, f"no hand for stage {step.stage}; nothing was done")

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Perform many permitted steps side by side; outcomes in the same order.

        Raises TypeError, before anything is done, when one of them is no Permit. A step that breaks
        off is UNKNOWN and hides no other's outcome.
        """
        for permit in permits:
            _require_permit(permit)
        outcomes: list[Outcome] = []
        for batch in _batches(permits):
            ends = await asyncio.gather(*(self.execute(permit) for permit in batch), return_exceptions=True)
            outcomes += [_outcome_of(end) for end in ends]
        return tuple(outcomes)

    async def _warn(self, step: Step, *, dry_run: bool) -> Outcome:
        """Tell the owner, if a last look finds the same process; no signal is sent, whatever it finds."""
        root = step.target.root
        look_at = (root if root in step.targets else step.targets[0],)
        order = SignalOrder(signal.SIGTERM, dry_run=True)
        (seen,) = await send(step, look_at, order, look_again=self.look_again, boot_id=self.boot_id)
        if seen.kind is not OutcomeKind.DRY_RUN:
            return Outcome(seen.kind, f"{seen.detail}; nobody was told".removeprefix("; "))
        return await self.warner.warn(step, dry_run=dry_run)

    async def _terminate(self, step: Step, *, dry_run: bool) -> Outcome:
        """Send SIGTERM to each target, and see the workload's cgroup for the first time.

        What may never be killed as a whole is not told to end as a whole either.
        """
        if step.target.scope is Scope.WORKLOAD:
            seen = self.sights.remember(step.incident, step.target.workload)
            if isinstance(seen, Forbidden) and len(step.targets) > 1:
                return Outcome(OutcomeKind.WITHHELD, f"{seen.why}; nothing was sent")
        order = SignalOrder(signal.SIGTERM, resume=may_resume(step), dry_run=dry_run)
        return combined(await self._send(step, order))

    async def _send(self, step: Step, order: SignalOrder) -> tuple[TargetOutcome, ...]:
        """Signal the step's own targets."""
        return await send(step, step.targets, order, look_again=self.look_again, boot_id=self.boot_id)

    async def _kill(self, step: Step, *, dry_run: bool) -> Outcome:
        """SIGKILL the targets, as a whole where they are a workload."""
        if step.target.scope is Scope.WORKLOAD:
            return await self._kill_workload(step, dry_run=dry_run)
        return combined(await self._send(step, SignalOrder(signal.SIGKILL, dry_run=dry_run)))

    async def _kill_workload(self, step: Step, *, dry_run: bool) -> Outcome:
        """SIGKILL the workload as a whole, then each target that is not in its cgroup (an heir)."""
        order = SignalOrder(signal.SIGKILL, dry_run=dry_run)
        cgroup = self.sights.same_as_first(step.incident, step.target.workload)
        if isinstance(cgroup, Forbidden):
            return Outcome(OutcomeKind.WITHHELD, f"{cgroup.why}; nothing was sent")
        if isinstance(cgroup, Unusable):
            outcome = combined(await self._send(step, order))
            return replace(outcome, detail=f"{outcome.detail}; one by one: {cgroup.why}")
        try:
            hands = MemberHands(self.look_again, self.judge_members, self.boot_id)
            members = await kill_members(step, cgroup, hands, dry_run=dry_run)
        finally:
            close(cgroup)
        if members.kind is not None:
            return Outcome(members.kind, members.why, members.targets)
        done = {target.ref for target in members.targets}
        rest = tuple(ref for ref in step.targets if ref not in done)
        others = await send(step, rest, order, look_again=self.look_again, boot_id=self.boot_id)
        outcome = combined(members.targets + others)
        return replace(outcome, detail=f"{outcome.detail}; {members.why}".removesuffix("; "))

    def _reset(self, step: Step, *, dry_run: bool) -> Outcome:
        """Say what a reset would be: a real one takes minutes and is the reset procedure's."""
        gpus = ", ".join(step.target.gpus)
        if dry_run and gpus:
            return Outcome(OutcomeKind.DRY_RUN, f"would reset {gpus}")
        return Outcome(OutcomeKind.FAILED, f"no hand resets {gpus or 'no GPU'} in a step; nothing was done")

    def _drain(self, step: Step, *, dry_run: bool) -> Outcome:
        """Say what a drain request would be: a real one is the drain procedure's, beside the passes."""
        if dry_run:
            return Outcome(OutcomeKind.DRY_RUN, f"would ask for a drain: {self.plan_drain(step)}")
        return Outcome(OutcomeKind.FAILED, "no hand asks for a drain in a step; nothing was done")


def may_resume(step: Step) -> bool:
    """Tell whether SIGCONT may follow SIGTERM: by rule never for what Slurm may have suspended."""
    by_rule = step.actor.kind is ActorKind.RULE
    return not (by_rule and step.target.workload.kind is WorkloadKind.SLURM_JOB)


def combined(targets: tuple[TargetOutcome, ...]) -> Outcome:
    """Return one outcome for many targets: the gravest kind, how many of each, and the gravest's sentence."""
    if not targets:
        return Outcome(OutcomeKind.FAILED, "the step names no process; nothing was done")
    counts = Counter(target.kind for target in targets)
    kind = next(kind for kind in GRAVEST_FIRST if kind in counts)
    gravest = next(target for target in targets if target.kind is kind)
    if len(targets) == 1:
        return Outcome(kind, gravest.detail, targets)
    tally = ", ".join(f"{counts[kind]} {kind.replace('_', ' ')}" for kind in GRAVEST_FIRST if kind in counts)
    cause = "" if kind in WENT_WELL else f"; {gravest.ref}: {gravest.detail}"
    return Outcome(kind, f"{tally}{cause}", targets)


def _require_permit(permit: object) -> None:
    """Raise TypeError for anything but a Permit, whatever the type checker was told."""
    if not isinstance(permit, Permit):
        raise TypeError(f"only a Permit is performed, not {type(permit).__name__}")


def _batches(permits: Sequence[Permit]) -> Iterator[tuple[Permit, ...]]:
    """Return the permits in order, in batches whose pidfds fit together."""
    batch: list[Permit] = []
    opened = 0
    for permit in permits:
        cost = min(len(permit.step.targets), SIDE_BY_SIDE)
        if batch and opened + cost > OPEN_AT_ONCE:
            yield tuple(batch)
            batch, opened = [], 0
        batch.append(permit)
        opened += cost
    if batch:
        yield tuple(batch)


def _outcome_of(end: Outcome | BaseException) -> Outcome:
    """Return a step's outcome; one that broke off is UNKNOWN: look again, never send again blindly."""
    if isinstance(end, Outcome):
        return end
    if isinstance(end, Exception):
        return Outcome(OutcomeKind.UNKNOWN, f"the step broke off ({end!r}); what was sent is not known")
    raise end
