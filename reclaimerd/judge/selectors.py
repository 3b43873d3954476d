"""Say whether a selector concerns a process on a GPU: yes, no, or it can't be known.

What can't be read is never "yes" for a match and never "no" for an exemption: the caller gets
UNKNOWN. The answer names the fields that decided, since a command line is only what a process says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from reclaimerd.judge.tri import Tri, one_like, tri
from reclaimerd.judge.workload_fields import workload_answers
from reclaimerd.model.policy import Selector
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Absent, Known, Reading
from reclaimerd.model.snapshot import GpuReading, Snapshot

Patterns = Callable[[str, str], bool]
"""Tell whether a pattern of the policy is found in a text (RE2; `wiring` gives it)."""


class Lookups(Protocol):
    """What selectors need besides: RE2, and the policy's users and groups as they were resolved."""

    @property
    def patterns(self) -> Patterns:
        """Return what searches an RE2 pattern."""

    @property
    def user_ids(self) -> Mapping[str, int]:
        """Return the uid of each user name that the policy has."""

    @property
    def group_ids(self) -> Mapping[str, int]:
        """Return the gid of each group name that the policy has."""


@dataclass(frozen=True, slots=True)
class Match:
    """A selector's answer: `fields` are those that decided, `text` says why it is unknown."""

    answer: Tri
    fields: tuple[str, ...] = ()
    text: str = ""


_EVERYONE = Match(Tri.YES)
_NO_DIGEST: Reading[str] = Absent("not read")


def digest_of(reading: ProcessReading, snapshot: Snapshot) -> Reading[str]:
    """Return the SHA-256 of the process's program, as far as this look has it."""
    signs = snapshot.signs.get(reading.ref)
    return _NO_DIGEST if signs is None else signs.sha256


def asks_gpu(selector: Selector) -> bool:
    """Tell whether the answer may be another one on another GPU."""
    return bool(selector.gpus or selector.models) or selector.mig is not None


def matches(
    selector: Selector,
    reading: ProcessReading,
    gpu: GpuReading | None,
    lookups: Lookups,
    digest: Reading[str] = _NO_DIGEST,
) -> Match:
    """Return whether every field that is set holds; an empty selector is YES for everyone.

    Users and uids are the real uid: who started it, also of a set-uid program. `digest` is the SHA-256 of
    its program. Whatever else this reads of the process or the GPU must stand in `concern`'s inputs.
    """
    if selector.is_empty:
        return _EVERYONE
    answers = _own_answers(selector, reading, lookups, digest)
    answers |= workload_answers(selector, reading.workload)
    if selector.gpus:
        answers["gpu"] = Tri.UNKNOWN if gpu is None else one_like(gpu.uuid, selector.gpus)
    if selector.models:
        answers["model"] = Tri.UNKNOWN if gpu is None else one_like(gpu.name, selector.models)
    if selector.mig is not None:
        answers["mig"] = _mig(gpu, wanted=selector.mig)
    return _all_of(answers)


def _own_answers(
    selector: Selector, reading: ProcessReading, lookups: Lookups, digest: Reading[str]
) -> dict[str, Tri]:
    answers: dict[str, Tri] = {}
    if selector.users:
        answers["user"] = _named(selector.users, reading.uids[:1], lookups.user_ids)
    if selector.uids:
        answers["uid"] = tri(low <= reading.uids[0] <= high for low, high in selector.uids)
    if selector.groups:
        answers["group"] = _named(selector.groups, reading.gids, lookups.group_ids)
    if selector.exe:
        answers["exe"] = _exe(selector.exe, reading)
    if selector.sha256:
        answers["sha256"] = _sha256(selector.sha256, digest)
    if selector.cmdline:
        answers["cmdline"] = _cmdline(selector.cmdline, reading, lookups.patterns)
    if selector.cgroup:
        answers["cgroup"] = _cgroup(selector.cgroup, reading)
    return answers


def _all_of(answers: Mapping[str, Tri]) -> Match:
    for decisive in (Tri.NO, Tri.UNKNOWN):
        fields = tuple(name for name, answer in answers.items() if answer is decisive)
        if fields:
            unknown = decisive is Tri.UNKNOWN
            return Match(decisive, fields, f"can't be known: {', '.join(fields)}" if unknown else "")
    return Match(Tri.YES, tuple(answers))


def _named(names: tuple[str, ...], own: tuple[int, ...], ids: Mapping[str, int]) -> Tri:
    """Return whether one of these users or groups is its own; a name that nobody knows may be."""
    if any(ids.get(name) in own for name in names):
        return Tri.YES
    return Tri.UNKNOWN if not own or any(name not in ids for name in names) else Tri.NO


def _exe(globs: tuple[str, ...], reading: ProcessReading) -> Tri:
    if not isinstance(reading.exe, Known):
        return Tri.UNKNOWN
    path = reading.exe.value
    # A program whose package was upgraded reads "PATH (deleted)": it is still that program.
    names = {path, path.removesuffix(" (deleted)")}
    return tri(fnmatchcase(name, glob) for name in names for glob in globs)


def _sha256(wanted: tuple[str, ...], digest: Reading[str]) -> Tri:
    if not isinstance(digest, Known):
        return Tri.UNKNOWN
    return tri(digest.value.lower() == one.lower() for one in wanted)


def _cmdline(wanted: tuple[str, ...], reading: ProcessReading, patterns: Patterns) -> Tri:
    if not isinstance(reading.cmdline, Known):
        return Tri.UNKNOWN
    text = " ".join(reading.cmdline.value)
    return tri(patterns(pattern, text) for pattern in wanted)


def _cgroup(globs: tuple[str, ...], reading: ProcessReading) -> Tri:
    found = tri(fnmatchcase(path, glob) for path in _cgroup_paths(reading.cgroup) for glob in globs)
    if found is Tri.YES and not reading.workload.trusted:
        # A user can make a directory of any name in a subtree that is delegated to them.
        return Tri.UNKNOWN
    return found


def _cgroup_paths(text: str) -> tuple[str, ...]:
    lines = text.splitlines()
    return tuple(line if line.startswith("/") else line.split(":", 2)[-1] for line in lines)


def _mig(gpu: GpuReading | None, *, wanted: bool) -> Tri:
    match None if gpu is None else gpu.mig:
        case Known(value=on):
            return Tri.YES if on is wanted else Tri.NO
        case Absent():  # a GPU that has no such mode
            return Tri.NO if wanted else Tri.YES
        case _:
            return Tri.UNKNOWN
