"""One writer per state directory: whose turn it is stands in `writer.json`, by process identity.

There is no lock that a task stuck in the kernel could keep: a claim is worth what its process is
worth. It reads and writes the state directory only; who lives is for the caller's `state_of`.

Why no two can hold it: a free claim is taken by link(2), which fails when the name exists. A dead
one is taken over by rename(2), and only by somebody who showed a candidate file first and then saw
neither another candidate nor another claim. Of two who try at once the later look sees the other,
so at worst both step back.
"""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from reclaimerd.errors import RecordError
from reclaimerd.host.files import opened_directory, read_bounded, write_beside
from reclaimerd.host.wire import Decoder, to_json
from reclaimerd.model.identity import ProcessRef
from reclaimerd.record.faults import record_error

CLAIM_NAME = "writer.json"
_CANDIDATE = f".{CLAIM_NAME}."
_MOST_BYTES = 4096
_TRIES = 6
_STEP_BACK_SECONDS = 0.02
_REF = Decoder(ProcessRef)


class WriterState(Enum):
    """What became of a process that claimed to be the writer."""

    DEAD = "dead"
    EXITING = "exiting"
    ALIVE = "alive"


@dataclass(frozen=True, slots=True)
class Claimed:
    """We are the writer; `after` is the dead one we took over from."""

    after: ProcessRef | None = None


@dataclass(frozen=True, slots=True)
class Busy:
    """This process is the writer, and it lives."""

    ref: ProcessRef


@dataclass(frozen=True, slots=True)
class _Claim:
    """What stands in the claim's file, and which file it is."""

    ref: ProcessRef
    inode: int


def claim(state_dir: Path, me: ProcessRef, state_of: Callable[[ProcessRef], WriterState]) -> Claimed | Busy:
    """Become the writer of this state directory unless a living process is.

    A writer of another boot, or one that is dead or whose every task is exiting, is taken over from.
    Raises RecordError when the claim can't be read or written.
    """
    path = state_dir / CLAIM_NAME
    try:
        with opened_directory(state_dir) as folder:
            answer = _tried(folder, me, state_of)
            for attempt in range(1, _TRIES):
                if not isinstance(answer, _SteppedBack):
                    return answer
                # Two who stepped back for each other must not do so in step.
                time.sleep(random.uniform(0, _STEP_BACK_SECONDS * attempt))  # noqa: S311 (no secret)
                answer = _tried(folder, me, state_of)
            return Busy(answer.other) if isinstance(answer, _SteppedBack) else answer
    except OSError as error:
        raise record_error("writer claim", path, error) from error


def release(state_dir: Path, me: ProcessRef) -> None:
    """Give the claim back if it is still ours; nobody takes it from a living process."""
    try:
        with opened_directory(state_dir) as folder:
            found = _read(folder, CLAIM_NAME)
            if found is not None and found.ref == me:
                os.unlink(CLAIM_NAME, dir_fd=folder)
    except OSError as error:
        raise record_error("writer claim", state_dir / CLAIM_NAME, error) from error


def current_writer(state_dir: Path) -> ProcessRef | None:
    """Return who claims to be the writer, dead or alive, or None."""
    try:
        with opened_directory(state_dir) as folder:
            found = _read(folder, CLAIM_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise record_error("writer claim", state_dir / CLAIM_NAME, error) from error
    return None if found is None else found.ref


@dataclass(frozen=True, slots=True)
class _SteppedBack:
    """Another living process tries to take over at this moment."""

    other: ProcessRef


def _tried(
    folder: int, me: ProcessRef, state_of: Callable[[ProcessRef], WriterState]
) -> Claimed | Busy | _SteppedBack:
    """Try once."""

    def lives(ref: ProcessRef) -> bool:
        return ref.boot_id == me.boot_id and state_of(ref) is WriterState.ALIVE

    candidate = write_beside(folder, CLAIM_NAME, to_json(me).encode("ascii"))
    try:
        try:
            os.link(candidate, CLAIM_NAME, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            pass
        else:
            os.fsync(folder)
            return Claimed()
        before = _read(folder, CLAIM_NAME)
        if before is None or before.ref == me:
            return Claimed() if before is not None else _SteppedBack(me)
        if lives(before.ref):
            return Busy(before.ref)
        rival = _living_rival(folder, candidate, lives)
        if rival is not None:
            return _SteppedBack(rival)
        if _read(folder, CLAIM_NAME) != before:
            return _SteppedBack(before.ref)
        os.rename(candidate, CLAIM_NAME, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
        return Claimed(before.ref)
    finally:
        _remove(folder, candidate)


def _living_rival(folder: int, mine: str, lives: Callable[[ProcessRef], bool]) -> ProcessRef | None:
    """Return another living process that tries now; what dead ones left is removed."""
    for name in os.listdir(folder):
        if not name.startswith(_CANDIDATE) or name == mine:
            continue
        try:
            found = _read(folder, name)
        except RecordError:
            continue  # Half written: its maker has yet to look, and will see ours.
        if found is not None and lives(found.ref):
            return found.ref
        _remove(folder, name)
    return None


def _read(folder: int, name: str) -> _Claim | None:
    """Return the claim in a file, or None when there is no such file."""
    try:
        content = read_bounded(folder, name, _MOST_BYTES)
        inode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None
    try:
        return _Claim(_REF.decode(content), inode)
    except ValueError as error:
        raise RecordError(
            f"writer claim: {name} can't be read: {error}",
            "if no reclaimerd and no reclaimctl runs, remove it",
        ) from error


def _remove(folder: int, name: str) -> None:
    """Remove a candidate that may be gone already."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
