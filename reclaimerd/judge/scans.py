"""What several rules of one look ask of the same process or series: found when first asked, then kept.

One object for one look, in which nothing that it was asked about changes. Pure but for what it keeps.
"""

from dataclasses import dataclass

from reclaimerd.judge.series import Key, Series, held_still
from reclaimerd.judge.trend import Climb, climb_of
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Use:
    """What a series says of one process on one GPU over all that it covers.

    `most_percent` is the most that is known of what it used; `was_empty`: at some time it held no memory.
    """

    most_percent: int
    was_empty: bool
    knows_memory: bool
    knows_share: bool


def use_of(series: Series) -> Use:
    """Return what a series says of the use of its GPU."""
    used = [point.used_bytes for point in series.points]
    shares = [point.sm_percent for point in series.points]
    known = [share for share in shares if share is not None]
    return Use(max(known, default=0), 0 in used, None not in used, len(known) == len(shares))


class Scans:
    """What was found in one look, by what it was asked about."""

    __slots__ = ("_climbs", "_still", "_uses")

    def __init__(self) -> None:
        self._still: dict[ProcessRef, str] = {}
        self._climbs: dict[Key, Climb | None] = {}
        self._uses: dict[Key, Use] = {}

    def held_still(self, reading: ProcessReading, snapshot: Snapshot) -> str:
        """Return what `series.held_still` says of this process."""
        found = self._still.get(reading.ref)
        if found is None:
            found = self._still[reading.ref] = held_still(reading, snapshot)
        return found

    def climb(self, key: Key, series: Series) -> Climb | None:
        """Return how memory climbed in this series, which goes by this key."""
        if key not in self._climbs:
            self._climbs[key] = climb_of(series)
        return self._climbs[key]

    def use(self, key: Key, series: Series) -> Use:
        """Return what this series, which goes by this key, says of the use of its GPU."""
        found = self._uses.get(key)
        if found is None:
            found = self._uses[key] = use_of(series)
        return found
