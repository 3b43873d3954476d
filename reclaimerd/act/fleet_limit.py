"""How many nodes of a fleet may be drained by us at once: pure counting, whoever keeps the marks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import floor

from reclaimerd.model.drain_policy import FleetSettings

_MINUTE = 60.0
_SHOWN = 5
"""Names in one sentence."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A node that we have drained: why, and since when by the clock of whoever keeps the marks."""

    node: str
    code: str
    at: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """Every mark of ours, and how many nodes there are; `settings` say how many may carry one."""

    marks: tuple[Mark, ...]
    nodes: int
    settings: FleetSettings

    @property
    def limit(self) -> int:
        """Return how many nodes may be marked at once: at least one."""
        share = floor(self.settings.percent * self.nodes / 100.0)
        return max(1, min(self.settings.nodes, share))

    def others(self, node: str) -> tuple[Mark, ...]:
        """Return the marks of all other nodes."""
        return tuple(mark for mark in self.marks if mark.node != node)

    def why_full(self, node: str, code: str) -> str:
        """Return why this node may not be marked beside the others, "" when there is room for it.

        Nodes with one code within the window stop further ones for as long as they stand: the window is
        between their marks, so that nothing but a person ends it.
        """
        others = self.others(node)
        if len(others) >= self.limit:
            names = ", ".join(sorted(mark.node for mark in others)[:_SHOWN])
            return (
                f"{len(others)} of {self.nodes} nodes are drained by us ({names}), and the limit is"
                f" {self.limit} ([drain.fleet] nodes, percent)"
            )
        settings = self.settings
        same = sorted(mark.at for mark in others if mark.code == code)
        if settings.same_code_nodes > _most_within(same, settings.same_code_seconds):
            return ""
        minutes = settings.same_code_seconds / _MINUTE
        return (
            f"{settings.same_code_nodes} nodes asked for {code} within {minutes:g} min: a person looks first"
            " (reclaimctl undrain on one of them, or raise same_code_nodes)"
        )

    def comes_first(self, node: str, code: str) -> bool:
        """Tell whether this node's mark is one of those that stay, where more were set than there is room."""
        order = sorted(self.marks, key=lambda mark: (mark.at, mark.node))
        same = [mark for mark in order if mark.code == code]
        return _is_among(node, order[: self.limit]) and _is_among(node, same[: self.settings.same_code_nodes])


def _is_among(node: str, marks: Collection[Mark]) -> bool:
    return any(mark.node == node for mark in marks)


def _most_within(instants: Sequence[float], seconds: float) -> int:
    """Return how many of the sorted instants lie within so many seconds of each other, at most."""
    return max(
        (sum(1 for at in instants[place:] if at - first <= seconds) for place, first in enumerate(instants)),
        default=0,
    )
