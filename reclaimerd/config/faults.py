"""One fault of a policy file, and the names that keys have for people."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from reclaimerd.config.lines import KeyPath

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong at one key, before its line is known."""

    path: KeyPath
    what: str
    mend: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault as it is shown: `FILE:LINE: key: what is wrong; how to mend it`."""

    path: str
    line: int
    key: str
    what: str
    mend: str

    def __str__(self) -> str:
        """Return the fault as one line."""
        return f"{self.path}:{self.line}: {self.key}: {self.what}; {self.mend}"


@dataclass(frozen=True, slots=True)
class Refused:
    """The keys that were refused already."""

    paths: frozenset[KeyPath]

    def touches(self, *keys: KeyPath) -> bool:
        """Tell whether one of these keys, or something in or around it, was refused."""
        return any(key[: len(path)] == path or path[: len(key)] == key for key in keys for path in self.paths)


def dotted(path: KeyPath) -> str:
    """Return a key path as people write it, such as `rule[0].match.uid[1]`, always on one line."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part if _BARE_KEY.fullmatch(part) else json.dumps(part)
            text += f".{bare}" if text else bare
    return text or "file"


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a key, or of the nearest table around it when the key is not written."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1
