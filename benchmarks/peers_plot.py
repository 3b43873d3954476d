"""Draw how the cost of a look grows, as one small SVG of three panels, both axes logarithmic."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDE, HIGH, EDGE = 300, 240, 46
COLOURS = {
    "reclaimerd": "#c0392b",
    "gpustat": "#2471a3",
    "nvitop": "#229954",
    "fuser": "#7d3c98",
    "lsof": "#b9770e",
}
Line = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: title, what the axis below counts, one line (count, milliseconds) for each program."""

    title: str
    below: str
    lines: Mapping[str, Line]


def svg(panels: Sequence[Panel]) -> str:
    """Return the whole picture."""
    width = WIDE * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HIGH}" font-size="10">',
        '<g font-family="sans-serif">',
        f'<rect width="{width}" height="{HIGH}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * WIDE},0)">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</g></svg>\n"])


def _panel(panel: Panel) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    if not points:
        return [f'<text x="{EDGE}" y="16">{panel.title}: nothing measured</text>']
    across = _Axis([x for x, _ in points], EDGE, WIDE - 62)
    up = _Axis([y for _, y in points], HIGH - EDGE, 30)
    parts = [
        f'<text x="{EDGE}" y="16" font-weight="bold">{panel.title}</text>',
        f'<text x="{WIDE // 2 - 20}" y="{HIGH - 12}" text-anchor="middle">{panel.below}</text>',
        f'<path d="M{EDGE},30V{HIGH - EDGE}H{WIDE - 62}" fill="none" stroke="#888"/>',
    ]
    counts = sorted({x for x, _ in points})
    parts += [
        f'<text x="{across.at(x):.0f}" y="{HIGH - 30}" text-anchor="middle">{x:g}</text>' for x in counts
    ]
    for y in up.marks():
        parts.append(f'<text x="{EDGE - 4}" y="{up.at(y) + 3:.0f}" text-anchor="end">{y:g} ms</text>')
        parts.append(f'<path d="M{EDGE},{up.at(y):.0f}H{WIDE - 62}" stroke="#eee"/>')
    label_ys = _apart([up.at(line[-1][1]) for line in panel.lines.values()])
    for (name, line), label_y in zip(panel.lines.items(), label_ys, strict=True):
        path = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{WIDE - 58}" y="{label_y + 3:.0f}" fill="{COLOURS[name]}">{name}</text>')
    return parts


class _Axis:
    """One logarithmic axis between two places of the picture."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.log10(min(values)) - 0.1
        self._high = math.log10(max(values)) + 0.1
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """Return where a value lies."""
        part = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + part * (self._end - self._begin)

    def marks(self) -> list[float]:
        """Return the round values on it: 1, 2, 5 of each power of ten."""
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        every = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        return [value for value in every if self._low <= math.log10(value) <= self._high]


def _apart(places: Sequence[float]) -> list[float]:
    """Return label places at least 11 apart, in their order."""
    moved = list(places)
    last = -math.inf
    for index in sorted(range(len(places)), key=lambda one: places[one]):
        moved[index] = last = max(places[index], last + 11)
    return moved
