"""A bounded memory: the entries used least recently are forgotten first. No clock, no reading."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

IDLE_ROUNDS = 64
"""For memories of processes that each pass asks for: who is left out so often has gone."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps at most `most` values by key.

    With `idle_rounds` it forgets, when the next is kept, also what was not used in so many rounds: what is
    kept of those who come and go does not fill it. A round is over when some entry is used again.
    """

    __slots__ = ("_idle_rounds", "_most", "_round", "_values")

    def __init__(self, most: int, idle_rounds: int | None = None) -> None:
        self._most = most
        self._idle_rounds = idle_rounds
        self._round = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value and count it as used, or None."""
        kept = self._values.get(key)
        if kept is None:
            return None
        self._use(key, kept[0])
        return kept[0]

    def put(self, key: K, value: V) -> None:
        """Keep a value; the one used least recently makes room."""
        self._use(key, value)
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        while self._idle_rounds is not None and self._oldest_round() < self._round - self._idle_rounds:
            self._values.popitem(last=False)

    def _use(self, key: K, value: V) -> None:
        kept = self._values.get(key)
        if kept is not None and kept[1] == self._round:
            self._round += 1
        self._values[key] = (value, self._round)
        self._values.move_to_end(key)

    def _oldest_round(self) -> int:
        return next(iter(self._values.values()))[1]
