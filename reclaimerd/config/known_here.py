"""What a policy names that must exist on this host: users, groups, time zones.

A lookup may ask the network (NSS) and block: it is done when a file is loaded, before the daemon's loop
runs. It reads the user, group and time zone databases, and acts on nothing.
"""

import grp
import pwd
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reclaimerd.config.faults import Flaw
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import quoted
from reclaimerd.config.values import suggestion

_SELECTORS = ("match", "exempt", "avoid")
_UTC = "UTC"
_Names = Iterator[tuple[KeyPath, str]]


@dataclass(frozen=True, slots=True)
class KnownHere:
    """The uid of every user and the gid of every group that a policy names, and what does not exist."""

    user_ids: Mapping[str, int]
    group_ids: Mapping[str, int]
    flaws: tuple[Flaw, ...] = ()


def known_here(parsed: Mapping[str, Any], flawed: frozenset[KeyPath]) -> KnownHere:
    """Return what the names of a parsed policy mean on this host; keys that were refused are passed over."""
    flaws: list[Flaw] = []
    users = [*_in_selectors(parsed, "user"), *_in_marks(parsed)]
    user_ids = _numbers("user", users, flawed, flaws)
    group_ids = _numbers("group", _in_selectors(parsed, "group"), flawed, flaws)
    return KnownHere(user_ids, group_ids, (*flaws, *_zone_flaws(parsed, flawed)))


def _numbers(
    word: str,
    names: Iterator[tuple[KeyPath, str]] | list[tuple[KeyPath, str]],
    flawed: frozenset[KeyPath],
    flaws: list[Flaw],
) -> Mapping[str, int]:
    """Return the number of each name that exists; the others are added to the flaws, each at its place."""
    read: Callable[[str], int | None] = read_uid if word == "user" else read_gid
    known: dict[str, int] = {}
    for path, name in names:
        if path in flawed:
            continue
        number = known[name] if name in known else read(name)
        if number is None:
            mend = (
                f"create the {word} first, or write its uid" if word == "user" else f"create the {word} first"
            )
            flaws.append(Flaw(path, f"there is no {word} {quoted(name)} here", mend))
        else:
            known[name] = number
    return known


def _in_selectors(parsed: Mapping[str, Any], key: str) -> _Names:
    """Return each name as written, so that a fault beside it in the same list does not hide it."""
    for index, rule in _rules(parsed):
        for side in _SELECTORS:
            selector = rule.get(side)
            if isinstance(selector, dict):
                yield from _texts(("rule", index, side, key), selector.get(key))


def _in_marks(parsed: Mapping[str, Any]) -> _Names:
    marks = parsed.get("marks")
    if isinstance(marks, dict):
        yield from _texts(("marks", "users"), marks.get("users"))


def _texts(path: KeyPath, names: object) -> _Names:
    for position, name in enumerate(_list(names)):
        if isinstance(name, str):
            yield (*path, position), name


def _rules(parsed: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for index, rule in enumerate(_list(parsed.get("rule"))):
        if isinstance(rule, dict):
            yield index, rule


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _zone_flaws(parsed: Mapping[str, Any], flawed: frozenset[KeyPath]) -> Iterator[Flaw]:
    """Return a flaw for each time zone that nobody knows here, and for one that nothing is told by."""
    for index, rule in _rules(parsed):
        path: KeyPath = ("rule", index, "zone")
        written = rule.get("zone")
        if path in flawed or not isinstance(written, str | None):
            continue
        if "windows" not in rule:
            if written is not None:
                yield Flaw(
                    path, "there are no windows for which it could count", "add windows, or take it out"
                )
        elif not is_zone(written or _UTC):
            yield Flaw(
                path, f"there is no time zone {quoted(written or _UTC)} here", _zone_mend(written or _UTC)
            )


def _zone_mend(name: str) -> str:
    known = zoneinfo.available_timezones()
    if not known:
        return "install the package tzdata: this host has no time zones at all"
    return (
        suggestion(name, tuple(sorted(known)))
        + 'write a name such as "Europe/Berlin" (timedatectl list-timezones)'
    )


def is_zone(name: str) -> bool:
    """Tell whether the time zone database of this host has this name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def read_uid(name: str) -> int | None:
    """Return a user's uid from the user database, or None when there is no such user."""
    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None


def read_gid(name: str) -> int | None:
    """Return a group's gid from the group database, or None when there is no such group."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None
