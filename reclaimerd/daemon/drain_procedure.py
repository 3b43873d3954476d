"""Drive this node's drain request from its slot in the fleet to its withdrawal, whatever happens on the way.

It may not decide whether a drain is due or over. Each asking is on record before it leaves the host; after
our death the same request is asked again, which its targets know by its id. Nothing waits for it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.drain_answers import answer_of, answers_of
from reclaimerd.daemon.drain_asks import (
    FIRST_RETRY_SECONDS,
    asked_anew,
    at_once,
    is_due,
    next_due,
    owes_verified,
    seconds_until,
    slot_pause,
    told_to_wait,
    waits_for_first,
    with_answers,
    with_tries,
    with_withdrawals,
    without_slot,
)
from reclaimerd.daemon.drain_joints import DrainJoints
from reclaimerd.daemon.drain_tending import UNSEEN
from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.judge.drain_steps import next_phase
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.drain import AskState, DrainFact, DrainPhase, NodeDrain
from reclaimerd.model.drain_ports import NotAsked, SlotTaken, SlotWaits, TargetAnswer
from reclaimerd.model.ledger import Ledger
from reclaimerd.record import logs


class DrainProcedure:
    """This node's drain request, one task beside the passes."""

    __slots__ = ("_joints", "_news", "_task")

    def __init__(self, joints: DrainJoints) -> None:
        self._joints = joints
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look_after(self) -> None:
        """Go on with the request that the ledger has, if there is one; it may have changed."""
        self._news.set()
        if self._task is None and _is_open(self._joints.ledger().drain):
            self._news = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def rest(self, seconds: float) -> None:
        """Wait until nothing of it is open any more, at most so long: for a command, which ends after it."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=seconds)

    async def stop(self) -> None:
        """Let go of it where it stands: the record says how to go on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logs.error("drain_broke_off", error=f"{type(error).__name__}: {error}")

    async def _run(self) -> None:
        while _is_open(self._joints.ledger().drain):
            self._news.clear()
            try:
                due_in = await self._round()
            except RecordError as error:
                logs.error("drain_not_recorded", error=str(error))
                due_in = FIRST_RETRY_SECONDS
            except CorruptStoreError:
                return
            try:
                async with asyncio.timeout(due_in):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _round(self) -> float:
        """Do what is due; return in how many seconds there may be more."""
        drain = self._joints.ledger().drain
        if drain is None:
            return 0.0
        if drain.withdrawal is not None and drain.phase is not DrainPhase.WITHDRAW:
            text = f"{drain.withdrawal.by} takes it back: {drain.withdrawal.why}"
            return await self._advance(DrainFact.WITHDRAWAL_ORDERED, text, at_once)
        match drain.phase:
            case DrainPhase.SLOT:
                return await self._take_slot(drain)
            case DrainPhase.ASK | DrainPhase.STANDS:
                return await self._ask(drain)
            case DrainPhase.WITHDRAW:
                return await self._withdraw(drain)
            case DrainPhase.DONE:
                return 0.0

    async def _take_slot(self, drain: NodeDrain) -> float:
        """Take this node's place in the fleet; without anybody who counts only the reports are asked."""
        if held := self._joints.held(drain):
            return await self._says(drain, held, f"no place yet: {held}")
        now = self._joints.wall()
        if (wait := seconds_until(drain.slot_retry_at, now)) > 0:
            return wait
        match await self._place(drain):
            case SlotTaken(text=text):
                return await self._advance(
                    DrainFact.SLOT_TAKEN, text, lambda one: replace(one, slot=text, has_slot=True)
                )
            case SlotWaits(text=text, report_only=True):
                reports = self._joints.reports()
                return await self._advance(
                    DrainFact.SLOT_TAKEN, text, lambda one: without_slot(one, reports, text, now)
                )
            case SlotWaits(text=text):
                return await self._slot_waits(drain, text, slot_pause(drain.began_at, now))

    async def _place(self, drain: NodeDrain) -> SlotTaken | SlotWaits:
        """Ask for this node's place; a fault of the arbiter's gives none."""
        answer = await answer_of("fleet", self._joints.fleet().take(drain.request))
        return SlotWaits(answer.text) if isinstance(answer, NotAsked) else answer

    async def _says(self, drain: NodeDrain, text: str, record: str) -> float:
        """Let the request say what it waits for, on record once; return when that is looked at again."""
        if text != drain.slot:
            await self._change(lambda one: replace(one, slot=text), entries.of_drain(drain, record))
        return FIRST_RETRY_SECONDS

    async def _slot_waits(self, drain: NodeDrain, text: str, seconds: float) -> float:
        retry_at = self._joints.wall() + seconds
        note = () if text == drain.slot else (entries.of_drain(drain, f"no place yet: {text}"),)
        await self._change(lambda one: replace(one, slot=text, slot_retry_at=retry_at), *note)
        return seconds

    async def _ask(self, drain: NodeDrain) -> float:
        """Ask everybody who is due, side by side; each asking is durable first."""
        held = self._joints.held(drain)
        if held in ("", UNSEEN) and owes_verified(drain, self._joints.wall()):
            await self._say_verified(drain)
        if held:
            return FIRST_RETRY_SECONDS
        if drain.asked_boot != self._joints.boot_id:
            text = "the host was booted since: everybody is asked again"
            await self._change(
                lambda one: asked_anew(one, self._joints.boot_id), entries.of_drain(drain, text)
            )
            return 0.0
        now = self._joints.wall()
        due = await self._with_leave(drain, [ask.target for ask in drain.asks if is_due(ask, now)])
        if due:
            await self._change(
                lambda one: with_tries(one, due, now),
                *(entries.of_drain(drain, f"asking {name}") for name in due),
            )
            drain = self._joints.ledger().drain or drain
            if drain.withdrawal is not None:
                return 0.0
            if held := self._joints.held(drain):  # that was written while a pass, or a person, had its turn
                return await self._says(drain, held, f"nobody was asked after all: {held}")
            request = drain.request
            await self._take_answers(
                await answers_of(due, self._joints.targets(), lambda target: target.request(request))
            )
            drain = self._joints.ledger().drain or drain
        asked = all(ask.tries or ask.text for ask in drain.asks)
        if drain.phase is DrainPhase.ASK and asked:
            return await self._advance(DrainFact.ALL_ANSWERED, "everybody was asked")
        return next_due(drain.asks, self._joints.wall())

    async def _with_leave(self, drain: NodeDrain, due: list[str]) -> list[str]:
        """Return those who may be asked: without a place in the fleet's count the reports alone."""
        reports = self._joints.reports()
        if set(due) <= reports:
            return due
        now = self._joints.wall()
        if drain.has_slot:
            first = self._joints.first()
            if not waits_for_first(drain, first):
                return due
            await self._change(lambda one: told_to_wait(one, first, reports))
            return [name for name in due if name == first or name in reports]
        match await self._place(drain):
            case SlotTaken(text=text):
                await self._change(
                    lambda one: replace(one, slot=text, has_slot=True), entries.of_drain(drain, text)
                )
                return due
            case SlotWaits(text=text):
                await self._change(lambda one: without_slot(one, reports, text, now))
                return [name for name in due if name in reports]

    async def _take_answers(self, answers: Mapping[str, TargetAnswer]) -> None:
        before = self._joints.ledger().drain
        now = self._joints.wall()
        if before is None:
            return
        after = with_answers(before, answers, now)
        notes = [
            entries.of_drain(after, f"{ask.target}: {ask.state.replace('_', ' ')}: {ask.text}")
            for ask, old in zip(after.asks, before.asks, strict=True)
            if (ask.state, ask.text) != (old.state, old.text)
        ]
        if after.all_failed and not before.all_failed:
            texts = "; ".join(f"{ask.target}: {ask.text}" for ask in after.asks)
            notes.append(entries.drain_alarm(after, f"the drain request reached nobody: {texts}"))
        await self._change(lambda one: with_answers(one, answers, now), *notes)

    async def _withdraw(self, drain: NodeDrain) -> float:
        """Take back from everybody who may have it; give the slot back when nobody has it any more."""
        if held := self._joints.held(drain):
            return await self._says(drain, held, f"not taken back yet: {held}")
        now = self._joints.wall()
        targets = self._joints.targets()
        left = [ask for ask in drain.asks if ask.tries and ask.state is not AskState.WITHDRAWN]
        due = [ask.target for ask in left if seconds_until(ask.retry_at, now) <= 0]
        if due:
            request = drain.request
            found = await answers_of(due, targets, lambda target: target.withdraw(request))
            notes = [
                entries.of_drain(drain, f"{name}: taking it back: {answer.text}")
                for name, answer in found.items()
            ]
            await self._change(lambda one: with_withdrawals(one, found, now), *notes)
            drain = self._joints.ledger().drain or drain
            left = [ask for ask in drain.asks if ask.tries and ask.state is not AskState.WITHDRAWN]
        if left:
            return min(seconds_until(ask.retry_at, now) for ask in left)
        if (wait := seconds_until(drain.slot_retry_at, now)) > 0:
            return wait
        return await self._give_back(drain, now)

    async def _give_back(self, drain: NodeDrain, now: float) -> float:
        """Let go of fences and of the fleet's place; a place that can't be given back is tried again."""
        kept = await self._release_fences(drain)
        released = await answer_of("fleet", self._joints.fleet().release(drain.request))
        if not isinstance(released, NotAsked):
            return await self._advance(DrainFact.ALL_WITHDRAWN, f"taken back everywhere; {released.text}")
        text = f"the fleet's place could not be given back: {released.text}"
        notes = [] if text in drain.slot else [entries.of_drain(drain, text)]
        said, retry_at = "; ".join(part for part in (text, kept) if part), now + FIRST_RETRY_SECONDS
        await self._change(lambda one: replace(one, slot=said, slot_retry_at=retry_at), *notes)
        return FIRST_RETRY_SECONDS

    async def _say_verified(self, drain: NodeDrain) -> None:
        """Have it said that the GPUs are well after a boot; what stands otherwise stays."""
        answer = await answer_of("verified", self._joints.note_verified(drain.request))
        if isinstance(answer, NotAsked) and not answer.lasting:
            again_at = self._joints.wall() + FIRST_RETRY_SECONDS
            await self._change(lambda one: replace(one, slot_retry_at=again_at))
            return
        record = entries.of_drain(drain, f"well after a boot: {answer.text}")
        await self._change(lambda one: replace(one, verified_told=True), record)

    async def _release_fences(self, drain: NodeDrain) -> str:
        """Let go of the fences that failed resets kept; return what can't be: a person's, and said once."""
        calls = [await answer_of("fence", self._joints.release_fence(one.incident)) for one in drain.joined]
        whys = [why.text if isinstance(why, NotAsked) else why for why in calls]
        said = "; ".join(dict.fromkeys(why for why in whys if why))
        if said and said not in drain.slot:
            text = f"the fence of its reset could not be released: {said}; release it by hand"
            await self._change(lambda one: replace(one, slot=said), entries.drain_alarm(drain, text))
        return said

    async def _advance(
        self, fact: DrainFact, text: str, change: Callable[[NodeDrain], NodeDrain] = lambda one: one
    ) -> float:
        now = self._joints.wall()
        drain = self._joints.ledger().drain
        if drain is None:
            return 0.0
        phase = next_phase(drain.phase, fact)
        await self._change(
            lambda one: replace(change(one), phase=phase, phase_at=now), entries.of_drain(drain, text)
        )
        self._joints.wake()
        return 0.0

    async def _change(self, change: Callable[[NodeDrain], NodeDrain], *records: AuditEntry) -> None:
        """Make a change of the request durable; what a pass has joined meanwhile is kept."""

        def changed(ledger: Ledger) -> Ledger:
            return ledger if ledger.drain is None else replace(ledger, drain=change(ledger.drain))

        await self._joints.write(changed, records)


def _is_open(drain: NodeDrain | None) -> bool:
    return drain is not None and drain.phase is not DrainPhase.DONE
