"""An answer that may be unknown: yes, no, or it can't be told."""

from collections.abc import Iterable
from enum import Enum, auto
from fnmatch import fnmatchcase


class Tri(Enum):
    """An answer that may be unknown."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()


def tri(found: Iterable[bool]) -> Tri:
    """Return YES where one of these is so, else NO."""
    return Tri.YES if any(found) else Tri.NO


def one_like(text: str, globs: Iterable[str]) -> Tri:
    """Return whether one of these fnmatch globs fits a text that is known."""
    return tri(fnmatchcase(text, glob) for glob in globs)
