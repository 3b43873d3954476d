"""What each holder used over the last while: a bounded history that has neither gaps nor guesses in it.

One series for each process, GPU and length of time that a rule looks back. A look that could not tell
leaves a hole that is seen; a gap of more than three intervals, a clock that went back or a restart
starts it anew; and a process that another holds still adds nothing. Pure: the cycle carries it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from reclaimerd.judge.concern import Concerns
from reclaimerd.judge.conditions import MOST_GAP_INTERVALS
from reclaimerd.judge.exit_path import live_tasks
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.policy import Policy, Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, Unreadable, known_or_none
from reclaimerd.model.snapshot import GpuProcess, Holder, Snapshot

POINTS = 128
"""A series is thinned to points of at least so small a part of its window, whatever the interval."""
LOOKING_BACK = frozenset({RuleKind.MEMORY_GROWTH, RuleKind.IDLE, RuleKind.MINER})
USING = frozenset({RuleKind.IDLE, RuleKind.MINER})
"""Kinds that need to know what each process uses of its GPU."""
STANDING_STILL = LOOKING_BACK | {RuleKind.AGE}
"""Kinds that a suspended, frozen or traced process must not be judged by."""

Key = tuple[ProcessRef, GpuUuid, float]
"""The last is how far back it goes, in seconds."""


@dataclass(frozen=True, slots=True)
class Point:
    """The looks of one short stretch; None is what a look in it could not tell.

    `at` is its last look. `used_bytes` is the least of all of them and `sm_percent` the most: a thinned
    series loses no activity and no emptiness; `sm_least_percent` keeps the pauses as well. `cpu_ticks` are
    the main thread's at the last look, in hundredths of a second; `io_bytes` what the process had read and
    written since its start, as last known in the stretch.
    """

    began_at: float
    at: float
    used_bytes: int | None
    sm_percent: int | None
    cpu_ticks: int | None = None
    sm_least_percent: int | None = None
    io_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """An unbroken history since `since`, of which the last `window_seconds` are kept."""

    since: float
    window_seconds: float
    points: tuple[Point, ...]

    @property
    def is_full(self) -> bool:
        """Tell whether it goes back over the whole window."""
        return self.points[-1].at - self.since >= self.window_seconds


@dataclass(frozen=True, slots=True)
class Past:
    """What the judge remembers besides since when each rule holds.

    `chosen`: whom a rule has taken of each workload or user that is over its cap. `concerns`: which rules
    concern which holder, for as long as nothing changes that says so.
    """

    series: Mapping[Key, Series] = field(default_factory=dict)
    chosen: Mapping[tuple[str, str], ProcessRef] = field(default_factory=dict)
    concerns: Concerns = field(default_factory=Concerns)


def wants_utilisation(policy: Policy) -> bool:
    """Tell whether some rule needs to know what each process uses of its GPU."""
    return any(rule.kind in USING for rule in policy.rules)


def wants_freezers(policy: Policy) -> bool:
    """Tell whether some rule needs to know who is frozen."""
    return any(rule.kind in STANDING_STILL for rule in policy.rules)


def wants_signs(policy: Policy) -> bool:
    """Tell whether some rule needs to know what programs are: their hashes, or the signs of a miner."""
    selectors = (one for rule in policy.rules for one in (rule.match, rule.exempt, rule.avoid))
    return any(one.sha256 for one in selectors) or any(rule.kind is RuleKind.MINER for rule in policy.rules)


def held_still(reading: ProcessReading, snapshot: Snapshot) -> str:
    """Return how somebody else keeps the process from running, or why that is unknown; "" when none does."""
    states = {task.state for task in live_tasks(reading)}
    if reading.tracer_pid or "t" in states:
        return f"traced by pid {reading.tracer_pid}" if reading.tracer_pid else "traced"
    if "T" in states:
        return "suspended by a signal"
    match snapshot.frozen.get(reading.ref.pid, Unreadable("not looked at")):
        case Known(value=True):
            return "frozen by its cgroup"
        case Unreadable(why=why):
            return f"maybe frozen: {why}"
        case _:
            return ""


def advance_series(
    before: Mapping[Key, Series], snapshot: Snapshot, rules: Sequence[Rule], interval_seconds: float
) -> dict[Key, Series]:
    """Return the series after this look; whoever holds nothing any more has none."""
    windows = sorted({rule.window_seconds for rule in rules if rule.kind in LOOKING_BACK})
    after: dict[Key, Series] = {}
    for holder, point in _points(snapshot) if windows else ():
        for window in windows:
            key = (holder.ref, holder.gpu, window)
            kept = before.get(key)
            if point is not None:
                after[key] = extended(kept, point, window, MOST_GAP_INTERVALS * interval_seconds)
            elif kept is not None:
                after[key] = kept
    return after


def extended(series: Series | None, look: Point, window_seconds: float, most_gap_seconds: float) -> Series:
    """Return a series with one more look, thinned, and without what lies before the window."""
    if series is None or not 0 <= look.at - series.points[-1].at <= most_gap_seconds:
        return Series(look.at, window_seconds, (look,))
    last = series.points[-1]
    if look.at - last.began_at < window_seconds / POINTS:
        points = (*series.points[:-1], _joined(last, look))
    else:
        points = (*series.points, look)
    oldest = look.at - window_seconds
    first = next(index for index, point in enumerate(points) if point.at >= oldest)
    return Series(series.since, series.window_seconds, points[first:])


def _joined(point: Point, look: Point) -> Point:
    return Point(
        began_at=point.began_at,
        at=look.at,
        used_bytes=_unless_unknown(min, point.used_bytes, look.used_bytes),
        sm_percent=_unless_unknown(max, point.sm_percent, look.sm_percent),
        cpu_ticks=look.cpu_ticks,
        sm_least_percent=_unless_unknown(min, point.sm_least_percent, look.sm_least_percent),
        io_bytes=point.io_bytes if look.io_bytes is None else look.io_bytes,
    )


def _unless_unknown(worst: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else worst(one, other)


def _points(snapshot: Snapshot) -> Iterator[tuple[Holder, Point | None]]:
    """Yield what this look says of each holder; None of one that is held still."""
    shares = {
        gpu.uuid: _shares(gpu.processes.value) for gpu in snapshot.gpus if isinstance(gpu.processes, Known)
    }
    for holder in snapshot.holders:
        reading = snapshot.process(holder.ref)
        if reading is None:
            yield holder, Point(snapshot.at, snapshot.at, None, None)
            continue
        if held_still(reading, snapshot):
            yield holder, None
            continue
        own = shares.get(holder.gpu, {}).get(holder.ref.pid) if holder.listed else None
        leader = next((task.cpu_ticks for task in reading.tasks if task.tid == holder.ref.pid), None)
        signs = snapshot.signs.get(holder.ref)
        io_bytes = None if signs is None else known_or_none(signs.io_bytes)
        used = known_or_none(holder.used_bytes)
        yield holder, Point(snapshot.at, snapshot.at, used, own, leader, own, io_bytes)


def _shares(rows: Iterable[GpuProcess]) -> dict[int, int | None]:
    """Return what each pid uses; of one in several rows the most, and unknown if one of them is."""
    found: dict[int, int | None] = {}
    for row in rows:
        share = known_or_none(row.sm_percent)
        before = found.get(row.pid, 0)
        found[row.pid] = None if share is None or before is None else max(before, share)
    return found
