"""One look as a file: what `reclaimctl snapshot` writes and `policy test` reads back.

Pure. It holds what judging needs and nothing of an environment; command lines are masked since they were
read. What the mind made of exiting tasks is left out: it belongs to more looks than one.
"""

import json
from dataclasses import dataclass, replace
from typing import NoReturn

from reclaimerd import __version__
from reclaimerd.daemon.rows import Json
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.host.wire import Decoder, to_wire
from reclaimerd.judge.protections import Ours
from reclaimerd.model.fault import StandingXid
from reclaimerd.model.identity import FileIdentity, ProcessRef
from reclaimerd.model.process import ProgramSigns
from reclaimerd.model.snapshot import Snapshot

FORMAT = "reclaimerd snapshot"
VERSION = 1
"""Counts up when an older program could no longer read the file."""
_MEND = "record it again: reclaimctl snapshot --out FILE"


class SnapshotFileError(ReclaimerdError):
    """What should be a recorded snapshot is none, is damaged, or is of a newer form."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class HostFile:
    """One program file of the host's own: what the snapshot's mapping has, in a form that JSON takes."""

    device: int
    inode: int
    path: str


@dataclass(frozen=True, slots=True)
class SignsOfOne:
    """What was read of one program besides: the same."""

    ref: ProcessRef
    signs: ProgramSigns


@dataclass(frozen=True, slots=True)
class RecordedLook:
    """One recorded look. `programs` are the paths and globs whose files the host was asked for.

    `ours` are the processes of the program that took it; `xids` stood against GPUs at that time. `signs`
    came later than the form itself: a file without them was written before.
    """

    format: str
    version: int
    made_by: str
    ours: Ours
    programs: tuple[str, ...]
    xids: tuple[StandingXid, ...]
    host_files: tuple[HostFile, ...]
    snapshot: Snapshot
    signs: tuple[SignsOfOne, ...] = ()

    @property
    def look(self) -> Snapshot:
        """Return the snapshot whole, with its program files and signs."""
        files = {FileIdentity(one.device, one.inode): one.path for one in self.host_files}
        signs = {one.ref: one.signs for one in self.signs}
        return replace(self.snapshot, host_files=files, signs=signs)


_RECORDED: Decoder[RecordedLook] = Decoder(RecordedLook)


def recorded(
    snapshot: Snapshot, ours: Ours, programs: tuple[str, ...], xids: tuple[StandingXid, ...]
) -> Json:
    """Return a look in the form that is written to a file."""
    files = tuple(HostFile(file.device, file.inode, path) for file, path in snapshot.host_files.items())
    signs = tuple(SignsOfOne(ref, found) for ref, found in sorted(snapshot.signs.items()))
    bare = replace(snapshot, host_files={}, plights={}, signs={})
    look = RecordedLook(FORMAT, VERSION, __version__, ours, programs, xids, files, bare, signs)
    wire = to_wire(look)
    if not isinstance(wire, dict):
        raise TypeError("a recorded look has no wire form")
    return wire


def read_recorded(content: bytes, source: str) -> RecordedLook:
    """Return the look of a file's content. Raises SnapshotFileError; `source` is named in it."""
    try:
        found = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        what = "it is nested too deep" if isinstance(error, RecursionError) else f"it is no JSON: {error}"
        raise SnapshotFileError(f"{source} is damaged or no snapshot: {what}", _MEND) from None
    return look_of(found, source)


def look_of(found: object, source: str) -> RecordedLook:
    """Return the look of parsed JSON. Raises SnapshotFileError; `source` is named in it."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SnapshotFileError(f"{source} is no snapshot of reclaimerd", _MEND)
    version = found.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise SnapshotFileError(f"{source} is damaged: it has no format version", _MEND)
    if version != VERSION:
        what = f"{source} has format version {version}, and this program knows {VERSION}"
        maker = str(found.get("made_by"))[:32]
        raise SnapshotFileError(what, f"use the reclaimctl of the version that made it ({maker})")
    try:
        return _RECORDED.from_object(found)
    except ValueError as error:
        raise SnapshotFileError(f"{source} is damaged: {error}", _MEND) from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
