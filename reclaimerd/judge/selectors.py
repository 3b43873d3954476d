"""Say whether a selector concerns a process on a GPU: yes, no, or it can't be known.

What can't be read is never "yes" for a match and never "no" for an exemption: the caller gets
UNKNOWN. The answer names the fields that decided, since a command line is only what a process says.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase

from reclaimerd.model.policy import Selector
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import GpuReading

Patterns = Callable[[str, str], bool]
"""Tell whether a pattern of the policy is found in a text (RE2; `wiring` gives it)."""


class Tri(Enum):
    """An answer that may be unknown."""

    YES = auto()
    NO = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Match:
    """A selector's answer: `fields` are those that decided, `text` says why it is unknown."""

    answer: Tri
    fields: tuple[str, ...] = ()
    text: str = ""


_EVERYONE = Match(Tri.YES)


def matches(
    selector: Selector,
    reading: ProcessReading,
    gpu: GpuReading | None,
    patterns: Patterns,
    user_ids: Mapping[str, int],
) -> Match:
    """Return whether every field that is set holds; an empty selector is YES for everyone.

    `user_ids` are the policy's user names as they were resolved when it was loaded. Users and uids
    are the real uid: who started it, also of a set-uid program.
    """
    if selector.is_empty:
        return _EVERYONE
    answers: dict[str, Tri] = {}
    if selector.users:
        answers["user"] = _user(selector.users, reading.uids[0], user_ids)
    if selector.uids:
        answers["uid"] = _tri(low <= reading.uids[0] <= high for low, high in selector.uids)
    if selector.exe:
        answers["exe"] = _exe(selector.exe, reading)
    if selector.cmdline:
        answers["cmdline"] = _cmdline(selector.cmdline, reading, patterns)
    if selector.cgroup:
        answers["cgroup"] = _cgroup(selector.cgroup, reading)
    if selector.gpus:
        answers["gpu"] = _gpu(selector.gpus, gpu)
    return _all_of(answers)


def _all_of(answers: Mapping[str, Tri]) -> Match:
    for decisive in (Tri.NO, Tri.UNKNOWN):
        fields = tuple(name for name, answer in answers.items() if answer is decisive)
        if fields:
            unknown = decisive is Tri.UNKNOWN
            return Match(decisive, fields, f"can't be known: {', '.join(fields)}" if unknown else "")
    return Match(Tri.YES, tuple(answers))


def _tri(found: Iterable[bool]) -> Tri:
    return Tri.YES if any(found) else Tri.NO


def _user(users: tuple[str, ...], uid: int, user_ids: Mapping[str, int]) -> Tri:
    if any(user_ids.get(user) == uid for user in users):
        return Tri.YES
    return Tri.UNKNOWN if any(user not in user_ids for user in users) else Tri.NO


def _exe(globs: tuple[str, ...], reading: ProcessReading) -> Tri:
    if not isinstance(reading.exe, Known):
        return Tri.UNKNOWN
    path = reading.exe.value
    # A program whose package was upgraded reads "PATH (deleted)": it is still that program.
    names = {path, path.removesuffix(" (deleted)")}
    return _tri(fnmatchcase(name, glob) for name in names for glob in globs)


def _cmdline(wanted: tuple[str, ...], reading: ProcessReading, patterns: Patterns) -> Tri:
    if not isinstance(reading.cmdline, Known):
        return Tri.UNKNOWN
    text = " ".join(reading.cmdline.value)
    return _tri(patterns(pattern, text) for pattern in wanted)


def _cgroup(globs: tuple[str, ...], reading: ProcessReading) -> Tri:
    found = _tri(fnmatchcase(path, glob) for path in _cgroup_paths(reading.cgroup) for glob in globs)
    if found is Tri.YES and not reading.workload.trusted:
        # A user can make a directory of any name in a subtree that is delegated to them.
        return Tri.UNKNOWN
    return found


def _cgroup_paths(text: str) -> tuple[str, ...]:
    lines = text.splitlines()
    return tuple(line if line.startswith("/") else line.split(":", 2)[-1] for line in lines)


def _gpu(wanted: tuple[str, ...], gpu: GpuReading | None) -> Tri:
    if gpu is None:
        return Tri.UNKNOWN
    return _tri(fnmatchcase(gpu.uuid, glob) for glob in wanted)
