"""SIGKILL a whole workload: every member listed, every member judged, then all or none.

It may not judge: whether the members may be killed is asked of a callable, while they are held
still. It may not choose the boundary either: that was decided with the step.
"""

import asyncio
import os
import signal
from dataclasses import dataclass, field, replace
from typing import Protocol

from reclaimerd.act import cgroup as groups
from reclaimerd.act.cgroup import Cgroup, Forbidden, Unusable
from reclaimerd.act.signals import SignalOrder, send
from reclaimerd.act.thaw_guard import dismiss, stand_by
from reclaimerd.model.identity import FileIdentity, IncidentId, ProcessRef
from reclaimerd.model.incident import OutcomeKind, TargetOutcome
from reclaimerd.model.ports import LookAgainPort
from reclaimerd.model.process import Workload
from reclaimerd.model.step import Step

ROUNDS = 8
"""How often members are listed again while new ones keep appearing."""
JUDGE_SECONDS = 5.0
"""A workload is not held still for longer than this while its members are judged."""
KEPT = 1024
"""Incidents whose directory is remembered at most; the oldest is dropped first."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Every listed pid that is still there, by identity, deepest first; all may be killed."""

    refs: tuple[ProcessRef, ...]


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """At least one member may not be killed, so none is."""

    why: str


class JudgeMembersPort(Protocol):
    """What `members` must ask before it kills, handed to it by `wiring`."""

    async def __call__(self, step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
        """Judge every pid once more: protections, hold files, ourselves, and what can't be read."""
        ...


@dataclass(frozen=True, slots=True)
class MembersOutcome:
    """What came of each member; `kind` is set when the act was not made, or not on all of them."""

    targets: tuple[TargetOutcome, ...] = ()
    kind: OutcomeKind | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class MemberHands:
    """What killing a workload needs besides the step."""

    look_again: LookAgainPort
    judge_members: JudgeMembersPort
    boot_id: str
    judge_seconds: float = JUDGE_SECONDS


async def kill_members(step: Step, cgroup: Cgroup, hands: MemberHands, *, dry_run: bool) -> MembersOutcome:
    """SIGKILL every process of the cgroup's subtree, or none of them.

    By cgroup.kill where the kernel has it, else each through its pidfd until no new one appears.
    """
    if not groups.can_kill(cgroup):
        return await _kill_each(step, cgroup, hands, dry_run=dry_run)
    try:
        return await _kill_at_once(step, cgroup, hands, dry_run=dry_run)
    except OSError as error:
        return MembersOutcome((), OutcomeKind.FAILED, f"{cgroup.path}: {error.strerror}; nothing was sent")


async def _kill_at_once(step: Step, cgroup: Cgroup, hands: MemberHands, *, dry_run: bool) -> MembersOutcome:
    """Freeze, list, judge every member, then kill or let go; a dry run freezes nothing.

    Our own death lets them go too.
    """
    if dry_run or not groups.may_freeze(cgroup):
        return await _judge_then_kill(step, cgroup, hands, dry_run=dry_run)
    guard = stand_by(cgroup)
    still_frozen = ""
    try:
        groups.freeze(cgroup)
        outcome = await _judge_then_kill(step, cgroup, hands, dry_run=dry_run)
    finally:
        still_frozen = groups.thaw(cgroup)
        dismiss(guard, thawed=not still_frozen)
    if still_frozen:
        return replace(outcome, why=f"{outcome.why}; {still_frozen}".removeprefix("; "))
    return outcome


async def _judge_then_kill(
    step: Step,
    cgroup: Cgroup,
    hands: MemberHands,
    *,
    dry_run: bool,
) -> MembersOutcome:
    """Kill once a fresh listing shows nobody but judged members."""
    admitted: tuple[ProcessRef, ...] = ()
    for _ in range(ROUNDS):
        listed = groups.members_now(cgroup.directory_fd)
        if set(listed) <= {ref.pid for ref in admitted}:
            if admitted and not dry_run:
                groups.kill(cgroup)
            return MembersOutcome(tuple(_by_cgroup(ref, dry_run=dry_run) for ref in admitted))
        answer = await _judged(step, listed, hands)
        if isinstance(answer, NotAdmitted):
            return MembersOutcome((), OutcomeKind.WITHHELD, answer.why)
        admitted = answer.refs
    why = f"members of {cgroup.path} kept appearing that nobody had judged; nothing was sent"
    return MembersOutcome((), OutcomeKind.WITHHELD, why)


async def _kill_each(step: Step, cgroup: Cgroup, hands: MemberHands, *, dry_run: bool) -> MembersOutcome:
    """List, judge and signal until a listing shows nobody new (cgroup v1, Linux before 5.14)."""
    seen: set[int] = set()
    sent: tuple[TargetOutcome, ...] = ()
    order = SignalOrder(signal.SIGKILL, dry_run=dry_run)
    for _ in range(ROUNDS):
        try:
            fresh = tuple(pid for pid in groups.members_now(cgroup.directory_fd) if pid not in seen)
        except OSError as error:
            return MembersOutcome(
                sent, OutcomeKind.FAILED, f"{cgroup.path} can't be listed ({error.strerror})"
            )
        if not fresh:
            return MembersOutcome(sent)
        answer = await _judged(step, fresh, hands)
        if isinstance(answer, NotAdmitted):
            return MembersOutcome(sent, OutcomeKind.WITHHELD, answer.why)
        refs = tuple(ref for ref in answer.refs if ref.pid in fresh)
        sent += await send(step, refs, order, look_again=hands.look_again, boot_id=hands.boot_id)
        seen |= set(fresh)
    return MembersOutcome(sent, OutcomeKind.FAILED, f"new members of {cgroup.path} kept appearing")


async def _judged(step: Step, pids: tuple[int, ...], hands: MemberHands) -> Admitted | NotAdmitted:
    """Return the judgement of every pid; one that can't be seen or is not answered in time is a no."""
    if 0 in pids:
        return NotAdmitted("a member lives outside our PID namespace and can't be judged")
    if not {1, os.getpid()}.isdisjoint(pids):
        return NotAdmitted("init or this daemon is a member")
    try:
        async with asyncio.timeout(hands.judge_seconds):
            return await hands.judge_members(step, pids)
    except TimeoutError:
        return NotAdmitted(f"the members could not be judged within {hands.judge_seconds:g} s")
    except Exception as error:  # noqa: BLE001 - a bug in the judging is a no, and the record gets it
        return NotAdmitted(f"judging the members broke off ({error!r})")


def _by_cgroup(ref: ProcessRef, *, dry_run: bool) -> TargetOutcome:
    """Return what cgroup.kill did, or would do, to one judged member."""
    if dry_run:
        return TargetOutcome(ref, OutcomeKind.DRY_RUN, "would send SIGKILL by cgroup.kill")
    return TargetOutcome(ref, OutcomeKind.SENT, "SIGKILL by cgroup.kill")


@dataclass(frozen=True, slots=True)
class FirstSights:
    """Which cgroup directory each open incident's workload was when it was first seen.

    One made again under the same path has another inode (cgroup inodes are 64-bit ids that are not
    given twice): the verdict was not about it.
    """

    seen: dict[IncidentId, FileIdentity] = field(default_factory=dict)

    def remember(self, incident: IncidentId, workload: Workload) -> Forbidden | None:
        """Note the directory's identity, once; return why it may not be acted on as a whole, if so.

        What can't be opened is told when it is to be killed.
        """
        found = groups.open_cgroup(workload)
        if isinstance(found, Cgroup):
            self._note(incident, found)
            groups.close(found)
        return found if isinstance(found, Forbidden) else None

    def forget(self, incident: IncidentId) -> None:
        """Drop the incident's directory."""
        self.seen.pop(incident, None)

    def same_as_first(self, incident: IncidentId, workload: Workload) -> Cgroup | Forbidden | Unusable:
        """Return the open cgroup if its path still leads to what was first seen; the caller closes it."""
        found = groups.open_cgroup(workload)
        if not isinstance(found, Cgroup):
            return found
        self._note(incident, found)
        if found.file == self.seen[incident]:
            return found
        groups.close(found)
        return Forbidden(f"{workload.path} was removed and made again: it is another cgroup")

    def _note(self, incident: IncidentId, cgroup: Cgroup) -> None:
        """Keep the first identity, and bound how many are kept."""
        self.seen.setdefault(incident, cgroup.file)
        while len(self.seen) > KEPT:
            del self.seen[next(key for key in self.seen if key != incident)]
