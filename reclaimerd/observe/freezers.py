"""Whether the cgroups of holders are frozen: what stands still by another's will is not idle by its own.

`read_freezers` is for the procfs worker; `ask_freezers` is the main process's end, which reads nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reclaimerd.host.wire import Decoder, to_wire
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.observe.answers import Answer, Answered, Silent
from reclaimerd.observe.cgroup_state import read_freezer


@dataclass(frozen=True, slots=True)
class Freezers:
    """Whether one of its freezers holds, for each cgroup text that was asked about, in their order."""

    frozen: tuple[Reading[bool], ...]


_FREEZERS = Decoder(Freezers)
MOST_CHARACTERS = 12_288
"""Of one request, which must fit the socket's buffer: users name directories, at up to 4 KiB a path."""
_TOO_LONG = Unreadable("its cgroup's path is too long to ask about")


class Asks(Protocol):
    """The probe of the procfs worker."""

    async def ask(self, op: str, args: Mapping[str, object] | None = None) -> Answer:
        """Return the answer to one question."""
        ...


def read_freezers(cgroups: Sequence[str]) -> object:
    """Return on the wire, for each text of /proc/PID/cgroup, whether one of its freezers holds."""
    return to_wire(Freezers(tuple(read_freezer(Known(text), refrigerated=False)[1] for text in cgroups)))


async def ask_freezers(procfs: Asks, readings: Iterable[ProcessReading]) -> Mapping[int, Reading[bool]]:
    """Return whether each process is frozen, by pid; each cgroup is looked at once."""
    texts = {reading.ref.pid: reading.cgroup for reading in readings}
    found: dict[str, Reading[bool]] = {}
    for cgroups in _shares(sorted(set(texts.values()))):
        answer = await procfs.ask("freezers", {"cgroups": cgroups})
        if isinstance(answer, Answered):
            told = _FREEZERS.from_object(answer.parts[0])
            found |= zip(cgroups, told.frozen, strict=True)
        else:
            why = answer.why if isinstance(answer, Silent) else answer.message
            found |= dict.fromkeys(cgroups, Unreadable(why))
    return {pid: found.get(text, _TOO_LONG) for pid, text in texts.items()}


def _shares(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts in such shares as one request may be; without those that no request can hold."""
    share: list[str] = []
    left = MOST_CHARACTERS
    for text in texts:
        if len(text) > MOST_CHARACTERS:
            continue
        if len(text) > left:
            yield share
            share, left = [], MOST_CHARACTERS
        share.append(text)
        left -= len(text)
    if share:
        yield share
