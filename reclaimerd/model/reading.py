"""A reading is known, unreadable, or absent; unknown is a value and never zero.

`Known(0)` and `Unreadable("no permission")` must never be mixed up by an `if reading:`, so
asking any reading for its truth raises.
"""

from dataclasses import dataclass
from typing import Generic, Literal, NoReturn, TypeVar, assert_never

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Known(Generic[T_co]):
    """A value that was read."""

    value: T_co
    kind: Literal["known"] = "known"

    def __bool__(self) -> NoReturn:
        """Refuse: compare `.value`, a reading is not its value."""
        raise TypeError("a reading has no truth value: match on Known, Unreadable, Absent")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The value exists, and reading it failed: hands off, and a reset gate refuses."""

    why: str
    kind: Literal["unreadable"] = "unreadable"

    def __bool__(self) -> NoReturn:
        """Refuse: unknown is neither true nor false."""
        raise TypeError("a reading has no truth value: match on Known, Unreadable, Absent")


@dataclass(frozen=True, slots=True)
class Absent:
    """The vendor or the kernel does not offer this value here; it refuses nothing."""

    why: str
    kind: Literal["absent"] = "absent"

    def __bool__(self) -> NoReturn:
        """Refuse: absent is neither true nor false."""
        raise TypeError("a reading has no truth value: match on Known, Unreadable, Absent")


Reading = Known[T] | Unreadable | Absent


def known_or_none(reading: "Reading[T]") -> T | None:
    """Return the value of a known reading, else None (for display and for filters only)."""
    return reading.value if isinstance(reading, Known) else None


def text_of(reading: "Reading[T]") -> str:
    """Return a reading as words for people: its value, or why there is none."""
    match reading:
        case Known(value=value):
            return str(value)
        case Unreadable(why=why):
            return f"unreadable ({why})"
        case Absent(why=why):
            return f"absent ({why})"
        case _:
            assert_never(reading)
