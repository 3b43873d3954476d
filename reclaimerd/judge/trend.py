"""Tell a leak from a warm-up, a single allocation and a saw-tooth: memory rises all the while.

The window is cut into ten parts, each with the median of what was used in it. The slope is the median of
the slopes between any two parts (Theil and Sen), so that single odd looks count for nothing; and most
parts, the last ones among them, must lie higher than the one before. Pure.
"""

from dataclasses import dataclass
from itertools import combinations, pairwise

from reclaimerd.judge.series import Series

PARTS = 10
LEAST_RISES = 7
"""Of nine steps between ten parts: a load at the start, or a few large allocations, have fewer."""
LATE_STEPS = 3
LEAST_LATE_RISES = 2
"""Of the last three steps: what was steep and is flat now has none."""
_RISE_SHARE = 0.25
"""A step counts as a rise from a quarter of what the rule's rate makes of it on."""
_ANY_TWO = tuple(combinations(range(PARTS), 2))


@dataclass(frozen=True, slots=True)
class Trend:
    """How fast memory grew over the window, and in how many of the nine steps it rose and fell.

    A fall is as large as a whole step's growth: an allocator gave memory back, which no leak does.
    """

    bytes_per_second: float
    rises: int
    late_rises: int
    falls: int

    def is_steady(self) -> bool:
        """Tell whether it rose all the while, and still does."""
        return self.rises >= LEAST_RISES and self.late_rises >= LEAST_LATE_RISES and not self.falls


@dataclass(frozen=True, slots=True)
class Climb:
    """How memory went from part to part: all of a trend that no rule's rate enters."""

    bytes_per_second: float
    steps: tuple[float, ...]
    part_seconds: float

    def trend(self, bytes_per_second: float) -> Trend:
        """Return the trend, steps counted against this rate."""
        whole = max(bytes_per_second * self.part_seconds, 1.0)
        return Trend(
            bytes_per_second=self.bytes_per_second,
            rises=sum(step >= whole * _RISE_SHARE for step in self.steps),
            late_rises=sum(step >= whole * _RISE_SHARE for step in self.steps[-LATE_STEPS:]),
            falls=sum(step <= -whole for step in self.steps),
        )


def trend_of(series: Series, bytes_per_second: float) -> Trend | None:
    """Return the trend, steps counted against this rate; None where a part of the window has no figure."""
    climb = climb_of(series)
    return None if climb is None else climb.trend(bytes_per_second)


def climb_of(series: Series) -> Climb | None:
    """Return how memory climbed; None where a part of the window has no figure."""
    medians = _medians(series)
    if medians is None:
        return None
    part_seconds = series.window_seconds / PARTS
    spans = [parts * part_seconds for parts in range(PARTS)]
    slopes = [(medians[late] - medians[early]) / spans[late - early] for early, late in _ANY_TWO]
    steps = tuple([after - before for before, after in pairwise(medians)])
    return Climb(_median(slopes), steps, part_seconds)


def _medians(series: Series) -> list[float] | None:
    """Return the median of each part; None where one has no look, or a look without a figure."""
    end, window = series.points[-1].at, series.window_seconds
    parts: list[list[int]] = [[] for _ in range(PARTS)]
    for point in series.points:
        used = point.used_bytes
        if used is None:
            return None
        back = int((end - point.at) * PARTS / window)
        parts[-1 - back if back < PARTS else 0].append(used)
    return [_median(part) for part in parts] if all(parts) else None


def _median(values: list[int] | list[float]) -> float:
    """Return the median, as `statistics.median` does, which costs several times as much for a few values."""
    values.sort()
    half = len(values) // 2
    return float(values[half]) if len(values) % 2 else (values[half - 1] + values[half]) / 2
