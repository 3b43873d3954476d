"""Whether the cgroups of holders are frozen: what stands still by another's will is not idle by its own.

`read_freezers` is for the procfs worker; `ask_freezers` is the main process's end, which reads nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    cgroups = sorted(set(texts.values()))
    if not cgroups:
        return {}
    answer = await procfs.ask("freezers", {"cgroups": cgroups})
    if not isinstance(answer, Answered):
        why = answer.why if isinstance(answer, Silent) else answer.message
        return dict.fromkeys(texts, Unreadable(why))
    told = _FREEZERS.from_object(answer.parts[0])
    found = dict(zip(cgroups, told.frozen, strict=True))
    return {pid: found[text] for pid, text in texts.items()}
