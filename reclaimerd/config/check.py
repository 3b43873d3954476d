"""Finds every fault of one policy file at once, each with its file, line, key and mend.

It reads the file and what it names on this host, and acts on nothing.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.config.combinations import impossible_combinations, warnings_of
from reclaimerd.config.faults import Fault, Flaw, dotted, line_of
from reclaimerd.config.known_here import KnownHere, known_here
from reclaimerd.config.lines import KeyPath, key_lines
from reclaimerd.config.source import Source, read_source
from reclaimerd.config.typed import typed_file
from reclaimerd.model.policy import Policy

_PLACE = re.compile(r"^(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)$", re.DOTALL)
"""How tomllib says where it stopped; it gives the place in no other form before Python 3.14."""
_TOML_MEND = "write it as TOML: key = value, texts in quotes, one setting a line"


@dataclass(frozen=True, slots=True)
class Examined:
    """One file's faults; `policy` is whole only when there are none."""

    policy: Policy
    here: KnownHere
    faults: tuple[Fault, ...]
    warnings: tuple[str, ...]


def check(path: Path, *, enforce_ownership: bool = False) -> tuple[Fault, ...]:
    """Return every fault of a policy file, in the order of its lines; none means that it may be loaded.

    `enforce_ownership`: that anyone but root could change it is one, as when the daemon loads it; else `load`
    warns.
    """
    try:
        source = read_source(path)
    except OSError as error:
        return (unreadable_file(path, error),)
    concerns = source.concerns if enforce_ownership else ()
    owned = tuple(Fault(str(path), 1, "file", *_parted(concern)) for concern in concerns)
    return (*owned, *examine(source).faults)


def _parted(concern: str) -> tuple[str, str]:
    """Return what is wrong with a file's owner or mode, and what mends it."""
    what, _, mend = concern.partition("; ")
    return what, mend


def unreadable_file(path: Path, error: OSError) -> Fault:
    """Return the fault of a file that can't be read."""
    return Fault(
        str(path), 1, "file", f"it can't be read: {error.strerror or error}", "name a readable TOML file"
    )


def examine(source: Source) -> Examined:
    """Return the typed policy of a file and all that is wrong with it."""
    try:
        text = source.content.decode("utf-8")
        parsed = tomllib.loads(text)
        lines = key_lines(text)
    except (ValueError, RecursionError) as error:
        return Examined(Policy(), KnownHere({}, {}), (_not_toml(source, error),), ())
    typed = typed_file(parsed)
    here = known_here(parsed, frozenset(flaw.path for flaw in typed.flaws))
    flaws = (*typed.flaws, *impossible_combinations(typed), *here.flaws)
    faults = [_fault(source, flaw, lines) for flaw in flaws]
    faults.sort(key=lambda fault: (fault.line, fault.key))
    return Examined(typed.policy, here, tuple(faults), warnings_of(typed.policy))


def _fault(source: Source, flaw: Flaw, lines: Mapping[KeyPath, int]) -> Fault:
    return Fault(str(source.path), line_of(flaw.path, lines), dotted(flaw.path), flaw.what, flaw.mend)


def _not_toml(source: Source, error: ValueError | RecursionError) -> Fault:
    """Return the one fault of a text that is no TOML: what comes after it can't be known."""
    path = str(source.path)
    match error:
        case RecursionError():
            return Fault(path, 1, "file", "lists or tables are nested too deep", "nest at most a few levels")
        case UnicodeDecodeError():
            line = source.content.count(b"\n", 0, error.start) + 1
            return Fault(path, line, "file", "it is not UTF-8 text", "save it as UTF-8")
    said = str(error)
    place = _PLACE.match(said)
    if place is not None:
        what = f"not TOML: {_one_line(place['what'])} at column {place['column']}"
        return Fault(path, int(place["line"]), "file", what, _TOML_MEND)
    last = max(1, source.content.rstrip().count(b"\n") + 1)
    return Fault(path, last, "file", f"not TOML: {_one_line(said)}", _TOML_MEND)


def _one_line(text: str) -> str:
    return " ".join(text.split())
