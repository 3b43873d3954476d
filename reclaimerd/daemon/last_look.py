"""The look between opening a pidfd and the signal: same process, same program, and nobody said hold.

Handed to `act` as callables, so that the hands need not know who looks. The procfs worker reads; the
judge's protections decide; what can't be read is not signalled.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from reclaimerd.judge.companions import By, against_member
from reclaimerd.judge.protections import protection_of
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import ActorKind
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import LastLook, NoLongerRight, StillRight
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Step
from reclaimerd.observe.probe import Gone, Probe, UnreadableProcess


@dataclass(frozen=True, slots=True)
class Judged:
    """What the last look compares with: the policy in force, and the snapshot that was judged."""

    policy: Policy
    snapshot: Snapshot
    judge: JudgeContext
    hold_file: str


@dataclass(frozen=True, slots=True)
class LastLooker:
    """Looks once more at one process, and says whether it is still what was judged."""

    procfs: Probe
    judged: Callable[[], Judged]

    async def __call__(self, step: Step, ref: ProcessRef) -> LastLook:
        """Compare start ticks, program, uids, workload, protections and hold files once more."""
        judged = self.judged()
        if step.actor.kind is ActorKind.RULE and judged.hold_file:
            return NoLongerRight(f"{judged.hold_file} stands: no act by rule")
        answer = (await self.procfs.ask_each([ref.pid], [])).get(ref.pid)
        match answer:
            case None:
                return NoLongerRight("the last look got no answer")
            case Gone():
                return StillRight()
            case UnreadableProcess(why=why):
                return NoLongerRight(f"the last look could not read it: {why}")
            case _:
                return _foreign(step, answer.reading) or _compared(answer.reading, ref, judged)

    async def members(self, step: Step, pids: tuple[int, ...]) -> tuple[ProcessRef, ...] | str:
        """Return the identities of a workload's living members, deepest first, or why none may be killed."""
        judged = self.judged()
        if step.actor.kind is ActorKind.RULE and judged.hold_file:
            return f"{judged.hold_file} stands: no act by rule"
        answers = await self.procfs.ask_each(list(pids), list(pids))
        readings: list[ProcessReading] = []
        for pid in pids:
            match answers.get(pid):
                case None:
                    return f"member {pid} got no answer"
                case Gone():
                    continue
                case UnreadableProcess(why=why):
                    return f"member {pid} can't be read: {why}"
                case look:
                    if not look.reading.is_released:
                        readings.append(look.reading)
        why = next((text for one in readings if (text := _against_member(step, one, judged))), "")
        if why:
            return why
        readings.sort(key=lambda one: one.ref.start_ticks, reverse=True)
        return tuple(reading.ref for reading in readings)


def _compared(reading: ProcessReading, ref: ProcessRef, judged: Judged) -> LastLook:
    if reading.ref != ref:
        return NoLongerRight(
            f"pid {ref.pid} is another process now (started {reading.ref.start_ticks})", changed=True
        )
    before = judged.snapshot.process(ref)
    if before is not None and not reading.is_leaving:
        for what, was, now in (
            ("uids", before.uids, reading.uids),
            ("program", before.exe_file, reading.exe_file),
            ("workload", before.workload.path, reading.workload.path),
        ):
            if was != now:
                return NoLongerRight(f"its {what} changed since it was judged")
    why = _protected(reading, judged)
    return NoLongerRight(f"it is protected: {why}") if why else StillRight()


def _against_member(step: Step, reading: ProcessReading, judged: Judged) -> str:
    """Return why this member of a workload may not be killed with it, "" where it may."""
    pid = reading.ref.pid
    if _foreign(step, reading) is not None:
        return f"member {pid} is not the owner's"
    why = _protected(reading, judged)
    if why:
        return f"member {pid} is protected: {why}"
    why = _left_alone(step, reading, judged)
    return f"member {pid} may not go with it: {why}" if why else ""


def _left_alone(step: Step, reading: ProcessReading, judged: Judged) -> str:
    """Return why a rule may not take this member along, "" where it may, or a person asked."""
    if step.actor.kind is not ActorKind.RULE:
        return ""
    before = judged.snapshot.process(reading.ref)
    known = step.target.workload if before is None else before.workload
    if (known.controller, known.path) == (reading.workload.controller, reading.workload.path):
        reading = replace(reading, workload=known)  # with the names that a last look does not ask for
    return against_member(step, reading, By(judged.snapshot, judged.policy, judged.judge))


def _foreign(step: Step, reading: ProcessReading) -> NoLongerRight | None:
    """Return that a process is not its owner's by all four uids (any more); None where it may be touched."""
    if not step.actor.is_owner or set(reading.uids) == {step.actor.uid}:
        return None
    return NoLongerRight("it does not belong to the owner who asked")


def _protected(reading: ProcessReading, judged: Judged) -> str:
    protection = protection_of(
        reading, host_files=judged.snapshot.host_files, policy=judged.policy, ours=judged.judge.ours
    )
    return "" if protection is None else protection.text
