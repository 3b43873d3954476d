"""What the runner of a reset tool and the daemon leave each other, so that the death of either loses nothing.

In STATE/resets, by the run's id: `.ready` (a runner stands ready), `.go` (the word to it), `.claim` (whoever
makes it decides: the runner that the tool runs, the daemon that it never will), `.started`, `.ended`.
Every file appears whole or not at all. Nothing here runs, waits or judges. It blocks on the disk.
"""

import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import (
    open_below,
    opened_directory,
    read_bounded,
    write_all,
    write_beside,
    write_durably,
)
from reclaimerd.model.identity import AttemptId, ProcessRef

OUTPUT_LIMIT_BYTES = 64 * 1024
_FILE_BYTES = OUTPUT_LIMIT_BYTES * 6 + 4096
"""The most that an end can need: JSON writes a control character as six bytes."""
_RUN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Claim:
    """Who decided: a runner (its process), or the daemon (None, and why the tool never runs)."""

    runner: ProcessRef | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """A runner waits for the word; `cgroup` is where it runs, and the tool would."""

    runner: ProcessRef
    cgroup: str


@dataclass(frozen=True, slots=True)
class Word:
    """The word to run the tool: when it was given and how long it is good, in monotonic seconds."""

    given_at: float
    not_after: float


@dataclass(frozen=True, slots=True)
class Started:
    """The tool was started: its pid, when it had been loaded, and how long after the word that was."""

    tool_pid: int
    began_at: float
    after_word_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: the tool's exit code and text, or None and why the tool was not run."""

    code: int | None
    text: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """All that stands of one run."""

    ready: Ready | None = None
    claim: Claim | None = None
    started: Started | None = None
    ended: Ended | None = None


def run_fault(run: AttemptId) -> str:
    """Return why this id can't name a run's files, or ""."""
    return "" if _RUN.fullmatch(run) else f"run {run!r} can't name a file"


def take_claim(directory: Path, run: AttemptId, claim: Claim) -> bool:
    """Make the claim, durably and whole; False when somebody has it already. Raises OSError."""
    with opened_directory(directory) as folder:
        temporary = write_beside(folder, f"{run}.claim", _claim_bytes(claim))
        try:
            if not _link(folder, temporary, f"{run}.claim"):
                return False
        finally:
            os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    return True


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a runner has on the disk before the word, so that a link is all between the word and the tool."""

    folder: int
    run: AttemptId
    claim_name: str
    end_name: str
    end: int

    def take(self) -> bool:
        """Make the claim; False when somebody has it. Raises OSError.

        It waits for no disk: what a power cut could take away is of no use to another boot.
        """
        return _link(self.folder, self.claim_name, f"{self.run}.claim")

    def is_claimed(self) -> bool:
        """Tell whether anybody has the claim. Raises OSError."""
        try:
            os.stat(f"{self.run}.claim", dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read_word(self) -> Word | None:
        """Return the last word that was given. Raises OSError, and ValueError for a file not of ours."""
        content = _read(self.folder, f"{self.run}.go")
        if content is None:
            return None
        return Word(_seconds(content, "given_at"), _seconds(content, "not_after"))

    def leave_end(self, ended: Ended) -> None:
        """Leave the end in the room that was reserved for it, durably and whole. Raises OSError."""
        content = _bytes({"code": ended.code, "text": ended.text, "why": ended.why})
        write_all(self.end, content)
        os.ftruncate(self.end, len(content))
        os.fsync(self.end)
        os.rename(self.end_name, f"{self.run}.ended", src_dir_fd=self.folder, dst_dir_fd=self.folder)
        os.fsync(self.folder)


@contextmanager
def reserve(directory: Path, run: AttemptId, claim: Claim) -> Iterator[Reserved]:
    """Return a claim that is written but not made, and room for the end: a full disk can't lose it then.

    What is not used is gone after the block. Raises OSError: then the tool must not run.
    """
    end_name = f".{run}.ended.{secrets.token_hex(8)}.new"
    with opened_directory(directory) as folder:
        claim_name = write_beside(folder, f"{run}.claim", _claim_bytes(claim))
        try:
            end = open_below(folder, end_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.posix_fallocate(end, 0, _FILE_BYTES)
                yield Reserved(folder, run, claim_name, end_name, end)
            finally:
                os.close(end)
                with suppress(OSError):
                    os.unlink(end_name, dir_fd=folder)
        finally:
            with suppress(OSError):
                os.unlink(claim_name, dir_fd=folder)


def leave_ready(directory: Path, run: AttemptId, ready: Ready) -> None:
    """Leave on disk that a runner stands ready. Raises OSError."""
    content = {"runner": _ref_out(ready.runner), "cgroup": ready.cgroup}
    write_durably(directory / f"{run}.ready", _bytes(content))


def give_word(directory: Path, run: AttemptId, word: Word) -> None:
    """Put the word where the runner sees it at once, in the place of an earlier one. Raises OSError.

    Not durable: a word is good for a moment.
    """
    content = _bytes({"given_at": word.given_at, "not_after": word.not_after})
    temporary = f".{run}.go.{secrets.token_hex(8)}.new"
    with opened_directory(directory) as folder:
        descriptor = open_below(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write_all(descriptor, content)
            os.rename(temporary, f"{run}.go", src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(descriptor)


def leave_started(directory: Path, run: AttemptId, started: Started) -> None:
    """Leave on disk that the tool was started, and when. Raises OSError; the tool runs all the same."""
    content = {
        "tool_pid": started.tool_pid,
        "began_at": started.began_at,
        "after_word_seconds": started.after_word_seconds,
    }
    write_durably(directory / f"{run}.started", _bytes(content))


def read_trace(directory: Path, run: AttemptId) -> Trace:
    """Return what stands of one run. Raises OSError, and ValueError for a file that is none of ours."""
    try:
        with opened_directory(directory) as folder:
            # The last first: what is read later can only be older, so no order of writing can mislead.
            ended, started, claim, ready = (
                _read(folder, f"{run}.{kind}") for kind in ("ended", "started", "claim", "ready")
            )
    except FileNotFoundError:
        return Trace()
    try:
        return Trace(
            ready=None if ready is None else _ready(ready),
            claim=None if claim is None else Claim(_ref_in(claim["runner"]), str(claim["why"])),
            started=None if started is None else _started(started),
            ended=None if ended is None else _ended(ended),
        )
    except KeyError as missing:
        raise ValueError(f"a file of run {run} lacks {missing}") from None


def _ready(content: dict[str, object]) -> Ready:
    runner = _ref_in(content["runner"])
    if runner is None:
        raise ValueError("a runner that is no process")
    return Ready(runner, str(content["cgroup"]))


def _started(content: dict[str, object]) -> Started:
    pid, began_at = _whole(content["tool_pid"]), _seconds(content, "began_at")
    return Started(pid, began_at, _seconds(content, "after_word_seconds"))


def _ended(content: dict[str, object]) -> Ended:
    code = content["code"]
    return Ended(None if code is None else _whole(code), str(content["text"]), str(content["why"]))


def _link(folder: int, name: str, claim_name: str) -> bool:
    """Make a claim of a file: link(2) fails where the name stands, like O_EXCL, and is never half written."""
    try:
        os.link(name, claim_name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    return True


def _claim_bytes(claim: Claim) -> bytes:
    return _bytes({"runner": _ref_out(claim.runner), "why": claim.why})


def _bytes(content: Mapping[str, object]) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _read(folder: int, name: str) -> dict[str, object] | None:
    """Return the object of one file, None where there is no file; raises ValueError for anything else."""
    try:
        content = json.loads(read_bounded(folder, name, _FILE_BYTES))
    except FileNotFoundError:
        return None
    if not isinstance(content, dict):
        raise ValueError(f"{name} holds no object")  # noqa: TRY004 (a bad file, not a bad call)
    return content


def _ref_out(ref: ProcessRef | None) -> dict[str, object] | None:
    if ref is None:
        return None
    return {"boot_id": ref.boot_id, "pid": ref.pid, "start_ticks": ref.start_ticks}


def _ref_in(content: object) -> ProcessRef | None:
    if content is None:
        return None
    if not isinstance(content, dict):
        raise ValueError("a process that is none")  # noqa: TRY004 (a bad file, not a bad call)
    return ProcessRef(str(content["boot_id"]), _whole(content["pid"]), _whole(content["start_ticks"]))


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")  # noqa: TRY004 (a bad file, not a bad call)
    return value


def _seconds(content: dict[str, object], name: str) -> float:
    value = content.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number of seconds")
    return float(value)
