"""A fleet whose driver fails on many nodes at once: that the limit holds, and how long the queue takes.

A simulation with virtual time: the product's own limit (`FleetSettings.why_full`) and its own waiting
(`daemon.drain_asks.slot_pause`), nodes that fail together, and people who mend a drained node after a
while, which also ends
a stop for one code. Prints one line for each fleet.

    python -m benchmarks.fleet_drain
"""

import heapq
import random
from dataclasses import dataclass, field

from reclaimerd.daemon.drain_asks import slot_pause
from reclaimerd.model.drain_policy import FleetMark, FleetSettings

HOUR = 3600.0
BEGIN = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many nodes, so many of which fail within `spread_seconds`; a person mends one in `mend_seconds`."""

    nodes: int
    failing: int
    spread_seconds: float
    mend_seconds: float
    settings: FleetSettings = field(default_factory=FleetSettings)


@dataclass(slots=True)
class Told:
    """What came of it."""

    most: int = 0
    asked: int = 0
    looks: int = 0
    last_at: float = BEGIN
    waits: list[float] = field(default_factory=list)


def run(fleet: Fleet, seed: int = 1) -> Told:
    """Return what happened until every failing node was drained and mended."""
    spread = random.Random(seed)  # noqa: S311  # a simulation that can be repeated
    told = Told()
    marks: dict[str, FleetMark] = {}
    began: dict[str, float] = {}
    events: list[tuple[float, int, str, str]] = []
    for number in range(fleet.failing):
        at = BEGIN + spread.uniform(0.0, fleet.spread_seconds)
        began[f"n{number}"] = at
        heapq.heappush(events, (at, number, "ask", f"n{number}"))
    order = fleet.failing
    while events:
        now, _, what, node = heapq.heappop(events)
        order += 1
        if what == "mend":
            del marks[node]
            continue
        told.looks += 1
        own = FleetMark(node, "driver_unresponsive", now)
        if fleet.settings.why_full(own.node, own.code, marks.values(), fleet.nodes):
            heapq.heappush(events, (now + slot_pause(began[node], now), order, "ask", node))
            continue
        marks[node] = own
        told.most = max(told.most, len(marks))
        told.asked += 1
        told.last_at = now
        told.waits.append(now - began[node])
        mended = now + spread.expovariate(1.0 / fleet.mend_seconds)
        heapq.heappush(events, (mended, order, "mend", node))
    return told


FLEETS = (
    Fleet(10_000, 10, 600.0, 2 * HOUR),
    Fleet(10_000, 100, 600.0, 2 * HOUR),
    Fleet(10_000, 1_000, 600.0, 2 * HOUR),
    Fleet(10_000, 2_000, 600.0, 2 * HOUR, FleetSettings(nodes=100, same_code_nodes=1000)),
    Fleet(3, 3, 600.0, 2 * HOUR),
)


def main() -> None:
    """Print a line for each fleet."""
    print("nodes failing limit most_at_once looks median_wait_h last_drained_h")
    for fleet in FLEETS:
        told = run(fleet)
        waits = sorted(told.waits)
        median = waits[len(waits) // 2] / HOUR
        last = (told.last_at - BEGIN) / HOUR
        limit = fleet.settings.limit(fleet.nodes)
        assert told.most <= limit, "the limit did not hold"
        assert told.asked == fleet.failing, "somebody was forgotten"
        row = (fleet.nodes, fleet.failing, limit, told.most, told.looks, f"{median:.1f}", f"{last:.1f}")
        print(*row)


if __name__ == "__main__":
    main()
