"""The marks of a fleet as one arbiter has them: pure counting, whoever keeps them.

How many nodes may carry one is the policy's to say (`FleetSettings`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from reclaimerd.model.drain_policy import FleetMark, FleetSettings


@dataclass(frozen=True, slots=True)
class Fleet:
    """Every mark of ours, and how many nodes there are; `settings` say how many may carry one."""

    marks: tuple[FleetMark, ...]
    nodes: int
    settings: FleetSettings

    @property
    def limit(self) -> int:
        """Return how many nodes may be marked at once: at least one."""
        return self.settings.limit(self.nodes)

    def others(self, node: str) -> tuple[FleetMark, ...]:
        """Return the marks of all other nodes."""
        return tuple(mark for mark in self.marks if mark.node != node)

    def why_full(self, node: str, code: str) -> str:
        """Return why this node may not be marked beside the others, "" when there is room for it."""
        return self.settings.why_full(node, code, self.marks, self.nodes)

    def comes_first(self, node: str, code: str) -> bool:
        """Tell whether this node's mark is one of those that stay, where more were set than there is room."""
        order = sorted(self.marks, key=lambda mark: (mark.at, mark.node))
        same = [mark for mark in order if mark.code == code]
        return _is_among(node, order[: self.limit]) and _is_among(node, same[: self.settings.same_code_nodes])


def _is_among(node: str, marks: Collection[FleetMark]) -> bool:
    return any(mark.node == node for mark in marks)
