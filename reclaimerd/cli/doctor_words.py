"""The words of `doctor`: what a check is, and what it may say. Pure.

A check never changes the host. What it can't tell is UNKNOWN with the reason, never OK.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from reclaimerd.cli.doctor_host import Host


class State(StrEnum):
    """How a check ended; the order is the one in which they are shown."""

    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Said:
    """What one check found: its state, one sentence, and what mends it ("" where nothing needs to)."""

    state: State
    text: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, under its name."""

    name: str
    state: State
    text: str
    mend: str = ""


Read: TypeAlias = Callable[[Host], Said]


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the host. Checks of one group run one after the other in one child."""

    name: str
    group: str
    asks: str
    read: Read


def ok(text: str) -> Said:
    """Return that all is well."""
    return Said(State.OK, text)


def warn(text: str, mend: str) -> Said:
    """Return that it works, and not as well as it could."""
    return Said(State.WARN, text, mend)


def fail(text: str, mend: str) -> Said:
    """Return that a person has to mend it."""
    return Said(State.FAIL, text, mend)


def unknown(text: str, mend: str = "") -> Said:
    """Return that it can't be told, and why."""
    return Said(State.UNKNOWN, text, mend)


def gravest(said: list[Said], otherwise: Said) -> Said:
    """Return the worst of several answers with the texts of all that are as bad, or the other one."""
    for state in (State.FAIL, State.WARN, State.UNKNOWN):
        same = [one for one in said if one.state is state]
        if same:
            mends = dict.fromkeys(one.mend for one in same if one.mend)
            return Said(state, "; ".join(one.text for one in same), "; ".join(mends))
    return otherwise
