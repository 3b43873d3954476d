"""What owners say of their own workloads, joined to each look: pods by the cluster, units by systemd.

A unit's mark stands in the environment that its unit file sets, as systemd itself knows it; the
environment of a process proves nothing and is never looked at. Asks beside the passes, by a child with
a deadline, and only while the policy lets some user's marks count.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reclaimerd.host.child import OUTPUT_LIMIT_BYTES, Child, Finished, run_bounded
from reclaimerd.host.owner_text import mark_in_environment
from reclaimerd.model.allocation import ClusterView
from reclaimerd.model.policy import OwnerMarks
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.cluster_names import with_cluster
from reclaimerd.observe.recent import Recent
from reclaimerd.observe.units import RunPort

AGAIN_SECONDS = 60.0
ASK_SECONDS = 5.0
FIRST_SECONDS = 1.0
"""How long the very first look waits for systemd, so that one command has something to say."""
_MOST_UNITS = 32
_MOST_REMEMBERED = 1024
_PROPERTIES = "Id,ControlGroup,Environment"

_Place = tuple[str, str]
"""A unit, and the cgroup directory that it must have."""


class UnitMarks:
    """Remembers which units bear a mark, for a minute each; `systemctl` is an absolute path."""

    __slots__ = ("_booted", "_clock", "_known", "_left", "_run", "_systemctl", "_task", "_waited")

    def __init__(
        self,
        clock: Callable[[], float],
        systemctl: Path = Path("/usr/bin/systemctl"),
        booted: Path = Path("/run/systemd/system"),
        run: RunPort = run_bounded,
    ) -> None:
        self._clock = clock
        self._systemctl = systemctl
        self._booted = booted
        self._run = run
        self._known: Recent[_Place, tuple[str | None, float]] = Recent(_MOST_REMEMBERED)
        self._task: asyncio.Task[None] | None = None
        self._waited = False
        self._left: Child | None = None
        """A systemctl that SIGKILL did not end: while it lives no other is started."""

    async def marks(self, places: Sequence[_Place]) -> Mapping[_Place, str]:
        """Return what is known by now ("": no mark), and ask for what is due; waits only the first time."""
        due = [place for place in places if self._is_due(place)][:_MOST_UNITS]
        if due and self._task is None and self._booted.exists():
            self._task = asyncio.ensure_future(self._ask(due))
            if not self._waited:
                self._waited = True
                await asyncio.wait({self._task}, timeout=FIRST_SECONDS)
        kept = {place: self._known.get(place) for place in places}
        return {place: one[0] for place, one in kept.items() if one is not None and one[0] is not None}

    def _is_due(self, place: _Place) -> bool:
        kept = self._known.get(place)
        return kept is None or self._clock() >= kept[1] + AGAIN_SECONDS

    async def _ask(self, places: Sequence[_Place]) -> None:
        try:
            told = await self._shown([unit for unit, _ in places])
            now = self._clock()
            for unit, path in places:
                kept = self._known.get((unit, path))
                # Without an answer an earlier mark stays: it only spares. That there was none stays not.
                before = (kept[0] or None) if kept is not None else None
                self._known.put((unit, path), (before if told is None else told.get((unit, path)), now))
        finally:
            self._task = None

    async def _shown(self, units: Sequence[str]) -> Mapping[_Place, str] | None:
        """Return what systemd shows of these units, None when it gives no answer."""
        if self._left is not None and self._left.code is None:
            return None
        argv = [str(self._systemctl), "show", "-p", _PROPERTIES, "--", *units]
        try:
            ended = await self._run(argv, deadline_seconds=ASK_SECONDS)
        except (OSError, ValueError):
            return None
        if not isinstance(ended, Finished):
            self._left = ended.child
            return None
        return parse_marks(ended.out) if ended.code == 0 and len(ended.out) < OUTPUT_LIMIT_BYTES else None


def unit_marks_of(clock: Callable[[], float], simulate: Path | None) -> UnitMarks:
    """Return the reader for this host, or for a simulated one (its `DIR/systemctl`, where there is one)."""
    if simulate is None:
        return UnitMarks(clock)
    return UnitMarks(clock, systemctl=simulate / "systemctl", booted=simulate / "systemctl")


def parse_marks(text: str) -> dict[_Place, str]:
    """Return the mark of each unit that is shown, "" for none, by its name and cgroup; nothing else of it."""
    found = {}
    for block in text.split("\n\n"):
        rows = (line.partition("=") for line in block.splitlines())
        shown = {key: value for key, _, value in rows}
        if "Id" in shown:
            place = shown["Id"], shown.get("ControlGroup", "")
            found[place] = mark_in_environment(shown.get("Environment", ""))
    return found


class MarkEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with its owners' words in it."""

    __slots__ = ("_cluster", "_sampler", "_settings", "_units")

    def __init__(self, sampler: SamplerPort, units: UnitMarks, settings: Callable[[], OwnerMarks]) -> None:
        self._sampler = sampler
        self._units = units
        self._settings = settings
        self._cluster: ClusterView | None = None
        """The last view: while the cluster is away a mark stays, for it only spares."""

    async def sample(self, look: Look) -> Snapshot:
        """Return the look; before a reset nobody is asked: the look must stay fresh."""
        snapshot = await self._sampler.sample(look)
        processes = snapshot.processes
        self._cluster = _newest(snapshot.cluster, self._cluster)
        if self._cluster is not None:
            processes = with_cluster(processes, self._cluster, snapshot.at)
        if self._settings().users and not (look.reset or look.without_driver):
            places = {place for one in processes.values() if (place := _place_of(one.workload)) is not None}
            processes = _with_marks(processes, await self._units.marks(sorted(places)))
        return snapshot if processes is snapshot.processes else replace(snapshot, processes=processes)


def _newest(now: Reading[ClusterView], before: ClusterView | None) -> ClusterView | None:
    match now:
        case Known(value=view):
            return view
        case Unreadable():
            return before
        case Absent():
            return None


def _place_of(workload: Workload) -> _Place | None:
    """Return unit and directory of a process that is in a unit of the system's own manager."""
    if workload.kind is not WorkloadKind.UNIT or not workload.trusted or not workload.unit:
        return None
    is_name = not workload.unit.startswith("-") and workload.path.endswith(f"/{workload.unit}")
    return (workload.unit, workload.path) if is_name else None


def _with_marks(
    processes: Mapping[int, ProcessReading], marks: Mapping[_Place, str]
) -> Mapping[int, ProcessReading]:
    if not marks:
        return processes
    found = dict(processes)
    for pid, reading in processes.items():
        place = _place_of(reading.workload)
        mark = marks.get(place) if place is not None else None
        if mark is not None:
            names = replace(reading.workload.names or WorkloadNames(), spare_mark=mark, mark_known=True)
            found[pid] = replace(reading, workload=replace(reading.workload, names=names))
    return found
