"""An unchanged look costs one short line: what both ends of the procfs worker remember of the last one.

The worker reads everything anew each time; only the telling is shortened. The parent names what it
has of each process, so an answer that was lost, or another worker, can never make a wrong look. A look
at every task is always told whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from reclaimerd.host.wire import Decoder, to_wire
from reclaimerd.model.process import (
    ProcessLook,
    ProcessReading,
    TaskReading,
)
from reclaimerd.observe.recent import IDLE_ROUNDS, Recent

_MOST_REMEMBERED = 4096
_LOOK = Decoder(ProcessLook)
_MOVES = frozenset({"age_seconds", "resident_bytes", "tasks"})
"""What moves in a healthy process: its age, its memory, its leader's motion. All else is compared."""
_STAYS = tuple(field.name for field in fields(ProcessReading) if field.name not in _MOVES)
_staying = attrgetter(*_STAYS)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What was told of a process last, and its number: unlike any other of this worker."""

    number: int
    tid: int
    stays: tuple[object, ...]
    nodes: object


@dataclass(frozen=True, slots=True)
class _Kept:
    """The same at the parent's end; `stays` by the names of the fields."""

    number: int
    tid: int
    stays: Mapping[str, Any]
    look: ProcessLook


class SentLooks:
    """The worker's end: says of a process only what has moved since the look that the parent has."""

    def __init__(self) -> None:
        self._sent: Recent[int, _Sent] = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)
        self._count = 0

    def told(self, look: ProcessLook, known: int | None) -> dict[str, object]:
        """Return the answer's part for one look; `known` is the number of the look that the parent has."""
        reading = look.reading
        pid = reading.ref.pid
        if reading.whole:
            return {"pid": pid, "look": to_wire(look)}
        task, stays = reading.tasks[0], _staying(reading)
        sent = self._sent.get(pid)
        if (
            sent is not None
            and sent.number == known
            and (sent.tid, sent.stays, sent.nodes)
            == (
                task.tid,
                stays,
                look.nodes,
            )
        ):
            moved = [reading.age_seconds, reading.resident_bytes, task.state, task.flags, task.cpu_ticks]
            return {"pid": pid, "same": known, "moved": moved}
        self._count += 1
        self._sent.put(pid, _Sent(self._count, task.tid, stays, look.nodes))
        return {"pid": pid, "look": to_wire(look), "number": self._count}


class KnownLooks:
    """The parent's end: the last looks that one worker told whole, by pid."""

    def __init__(self) -> None:
        self._worker: object = None
        self._known = _nothing_known()

    def numbers(self, worker: object, pids: Iterable[int]) -> list[list[int]]:
        """Return `[pid, number]` of what we have from this worker; another one's looks are forgotten."""
        if worker is not self._worker:
            self._worker, self._known = worker, _nothing_known()
        return [[pid, kept.number] for pid in pids if (kept := self._known.get(pid)) is not None]

    def look_of(self, part: Mapping[str, object]) -> ProcessLook:
        """Return the look that one part tells; raises ValueError for one that makes no sense."""
        match part:
            case {
                "pid": int(pid),
                "same": int(number),
                "moved": [int() | float() as age, int(resident), str(state), int(flags), int(ticks)],
            } if (kept := self._known.get(pid)) is not None and kept.number == number:
                tasks = (TaskReading(kept.tid, state, flags, ticks),)
                reading = ProcessReading(**kept.stays, age_seconds=age, resident_bytes=resident, tasks=tasks)
                return ProcessLook(reading, kept.look.nodes)
            case {"pid": int(pid), "look": told, "number": int(number)}:
                look = _LOOK.from_object(told)
                self._keep(pid, number, look)
                return look
            case {"look": told}:
                return _LOOK.from_object(told)
        raise ValueError("the worker told only what has moved since a look that we do not have")

    def _keep(self, pid: int, number: int, look: ProcessLook) -> None:
        stays = dict(zip(_STAYS, _staying(look.reading), strict=True))
        self._known.put(pid, _Kept(number, look.reading.tasks[0].tid, stays, look))


def _nothing_known() -> Recent[int, _Kept]:
    return Recent(_MOST_REMEMBERED, IDLE_ROUNDS)
