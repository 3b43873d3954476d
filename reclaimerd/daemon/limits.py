"""How much one uid may ask of the control socket: connections at once, and calls in a time.

Root and our own uid are bound by the whole number of connections alone, of which others can't take all; nor
can those who are in none of the policy's groups take all that is there for others than root.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_CONNECTIONS = 64
MOST_OF_OTHERS = 48
"""All but root together: the rest is root's, whatever the others do."""
MOST_OF_STRANGERS = 32
"""Owners and whoever else is in no group with a role, all together: the rest is for those with one."""
MOST_OF_ONE = 16
CALLS_PER_SECOND = 20.0
CALLS_AT_ONCE = 40.0
_MOST_UIDS = 1024
_SHARED = -1
"""The bucket of all uids past `_MOST_UIDS`: one user namespace can bring 65536."""


@dataclass(slots=True)
class Buckets:
    """One token bucket for each uid: `per_second` come back, `burst` are there at most."""

    per_second: float
    burst: float
    clock: Callable[[], float]
    _levels: dict[int, tuple[float, float]] = field(default_factory=dict)

    def take(self, uid: int) -> float:
        """Take one and return what is left: under 0 is too many, -burst far too many."""
        now = self.clock()
        if uid not in self._levels and len(self._levels) >= _MOST_UIDS:
            self._levels = {
                key: kept for key, kept in self._levels.items() if self._at(kept, now) < self.burst
            }
            if len(self._levels) >= _MOST_UIDS:
                uid = _SHARED
        level = max(self._at(self._levels.get(uid, (self.burst, now)), now) - 1.0, -self.burst)
        self._levels[uid] = (level, now)
        return level

    def _at(self, kept: tuple[float, float], now: float) -> float:
        level, then = kept
        return min(self.burst, level + max(0.0, now - then) * self.per_second)


@dataclass(slots=True)
class Limits:
    """Who is connected, and how much each uid has asked lately."""

    clock: Callable[[], float]
    known_groups: Callable[[], frozenset[int]] = frozenset
    """Gids that have a role by the policy in force."""
    _open: Counter[tuple[int, frozenset[int]]] = field(default_factory=Counter)
    _calls: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self._calls = Buckets(CALLS_PER_SECOND, CALLS_AT_ONCE, self.clock)

    def enter(self, uid: int, groups: frozenset[int] = frozenset()) -> bool | None:
        """Count one more connection: True to serve it, False to answer 429, None to cut it at once.

        What is not cut must be given to `leave` at its end, with the same uid and groups.
        """
        if self._open.total() >= MOST_CONNECTIONS:
            return None
        level = 0.0
        if uid not in (0, os.geteuid()):
            if not self._has_place(uid, groups):
                return None
            level = self._calls.take(uid)
            if level <= -CALLS_AT_ONCE:
                return None
        self._open[uid, groups] += 1
        return level >= 0.0

    def leave(self, uid: int, groups: frozenset[int] = frozenset()) -> None:
        """Count a connection that ended."""
        self._open[uid, groups] -= 1
        if not self._open[uid, groups]:
            del self._open[uid, groups]

    def _has_place(self, uid: int, groups: frozenset[int]) -> bool:
        """Tell whether one more of this uid is within its own, the strangers' and all others' number."""
        trusted = {0, os.geteuid()}
        others = {key: count for key, count in self._open.items() if key[0] not in trusted}
        if sum(others.values()) >= MOST_OF_OTHERS:
            return False
        if sum(count for (each, _), count in others.items() if each == uid) >= MOST_OF_ONE:
            return False
        # They may change by a reload: who is connected is counted by those of now.
        known = self.known_groups()
        if groups & known:
            return True
        return sum(count for (_, theirs), count in others.items() if not theirs & known) < MOST_OF_STRANGERS
