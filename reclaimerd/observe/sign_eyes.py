"""Joins what rules about programs need to each look that asks for it, and never makes a pass wait for it.

A worker of its own reads beside the passes: each holder at most every 30 s, and early when its program has
changed. A hash is told only of the program that the process runs now. A failure is a reading.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from reclaimerd.host.wire import Decoder
from reclaimerd.model.identity import FileIdentity, ProcessRef
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.process import ProcessReading, ProgramSigns
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answered
from reclaimerd.observe.kernel_looks import Asking, why_not
from reclaimerd.observe.program_signs import SignsOf

EVERY_SECONDS = 30.0
EARLY_SECONDS = 5.0
"""So soon again after a program has changed: one that runs another each moment costs no more."""
FIRST_SECONDS = 1.0
"""How long the very first look waits, so that one command has something to say."""
MOST_HOLDERS = 256
ANSWER_SECONDS = 20.0
_ASKED_AT_ONCE = 16
"""Of one question; each may cost the worker some seconds of hashing once."""
_SIGNS: Decoder[SignsOf] = Decoder(SignsOf)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read of one process, at which time (monotonic), and whose hash it is."""

    signs: ProgramSigns
    file: FileIdentity | None
    at: float


class SignEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with its holders' signs in it."""

    __slots__ = ("_clock", "_kept", "_sampler", "_task", "_waited", "_worker")

    def __init__(self, sampler: SamplerPort, worker: Asking, clock: Callable[[], float]) -> None:
        self._sampler = sampler
        self._worker = worker
        self._clock = clock
        self._kept: dict[ProcessRef, _Kept] = {}
        self._task: asyncio.Task[None] | None = None
        self._waited = False

    async def sample(self, look: Look) -> Snapshot:
        """Return the look, with signs of every holder if it asks for them; raises what the sampler raises."""
        snapshot = await self._sampler.sample(look)
        if not look.signs:
            return snapshot
        refs = sorted({holder.ref for holder in snapshot.holders})
        readings = {ref: found for ref in refs if (found := snapshot.process(ref)) is not None}
        concerned = dict(list(readings.items())[:MOST_HOLDERS])
        self._kept = {ref: kept for ref, kept in self._kept.items() if ref in concerned}
        due = [ref for ref, reading in concerned.items() if self._is_due(ref, reading)]
        if due and self._task is None and not (look.reset or look.without_driver):
            self._task = asyncio.ensure_future(self._refresh(due))
        if self._task is not None and not self._waited:
            self._waited = True
            await asyncio.wait({self._task}, timeout=FIRST_SECONDS)
        return replace(snapshot, signs={ref: self._signs(ref, concerned.get(ref)) for ref in refs})

    def _is_due(self, ref: ProcessRef, reading: ProcessReading) -> bool:
        kept = self._kept.get(ref)
        if kept is None:
            return True
        every = EVERY_SECONDS if _is_of(kept, reading) else EARLY_SECONDS
        return self._clock() >= kept.at + every

    def _signs(self, ref: ProcessRef, reading: ProcessReading | None) -> ProgramSigns:
        """Return what may be said of one holder now."""
        if reading is None:
            return _unread(f"it can't be read, or there are more than {MOST_HOLDERS} holders")
        kept = self._kept.get(ref)
        if kept is None:
            return _unread("not read yet")
        if _is_of(kept, reading):
            return kept.signs
        return replace(kept.signs, sha256=Unreadable("it runs another program since its file was hashed"))

    async def _refresh(self, refs: Sequence[ProcessRef]) -> None:
        try:
            for start in range(0, len(refs), _ASKED_AT_ONCE):
                some = refs[start : start + _ASKED_AT_ONCE]
                told, why = await self._ask(some)
                now = self._clock()
                for ref in some:
                    self._kept[ref] = told.get(ref) or _Kept(_unread(why), None, now)
        finally:
            self._task = None

    async def _ask(self, refs: Sequence[ProcessRef]) -> tuple[Mapping[ProcessRef, _Kept], str]:
        """Return what the worker says of each, and why it says nothing of the rest."""
        asked = [[ref.pid, ref.start_ticks] for ref in refs]
        answer = await self._worker.ask("signs", {"asked": asked}, answer_within=ANSWER_SECONDS)
        if not isinstance(answer, Answered):
            return {}, why_not(answer)
        by_pid = {ref.pid: ref for ref in refs}
        found = {}
        for part in answer.parts:
            kept = _kept_of(part, answer.answered_at)
            if kept is not None and part["pid"] in by_pid:
                found[by_pid[part["pid"]]] = kept
        return found, "the worker left it out: it did not answer before, or it is gone"


def _kept_of(part: object, at: float) -> _Kept | None:
    """Return what one part of the answer says, None for a part that says nothing of a process."""
    match part:
        case {"pid": int(), "signs": dict()}:
            try:
                told = _SIGNS.from_object(part)
            except ValueError as error:
                return _Kept(_unread(str(error)), None, at)
            return _Kept(told.signs, told.file, at)
        case {"pid": int(), "unreadable": str(why)}:
            return _Kept(_unread(why), None, at)
        case _:
            return None


def _is_of(kept: _Kept, reading: ProcessReading) -> bool:
    """Tell whether a process runs the program that was hashed, as far as is known; no hash is of any."""
    return not isinstance(kept.signs.sha256, Known) or reading.exe_file == Known(kept.file)


def _unread(why: str) -> ProgramSigns:
    unread = Unreadable(why)
    return ProgramSigns(unread, unread, unread)
