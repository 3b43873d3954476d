"""Evidence of stuck tasks on disk: two files each, readable by root alone, a bounded number of them.

Runs on the recorder's thread: every call may block on the disk. Nothing is opened through a link.
It keeps and forgets; what stands in the files is not its concern.
"""

import hashlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import ensure_directory, opened_directory, write_durably

DIRECTORY = "evidence"
MOST_FILES = 64
MOST_BYTES = 32 << 20
_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
_ODD = re.compile(r"[^A-Za-z0-9._@-]")
_OURS = re.compile(r"[A-Za-z0-9._@-]{1,160}-\d{8}T\d{6}\.\d{3}Z\.(?:json|txt)", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeptEvidence:
    """Where evidence lies, and the SHA-256 of its JSON, by which incident and audit name it."""

    json_path: Path
    text_path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept: files of either kind, and bytes in all."""

    most_files: int = MOST_FILES
    most_bytes: int = MOST_BYTES


def keep_evidence(
    state_dir: Path, subject: str, pages: tuple[str, str], *, wall: float, retention: Retention | None = None
) -> KeptEvidence:
    """Write evidence durably, forget the oldest past the retention, and return where it is.

    `subject` is an incident's id or `PID@START`, `pages` the JSON and the text. Raises OSError; then
    at most one of the two files is there.
    """
    folder = state_dir / DIRECTORY
    ensure_directory(folder, _DIRECTORY_MODE)
    stem = f"{_safe(subject)}-{_stamp(wall)}"
    content = pages[0].encode("utf-8", "backslashreplace")
    kept = KeptEvidence(folder / f"{stem}.json", folder / f"{stem}.txt", hashlib.sha256(content).hexdigest())
    write_durably(kept.json_path, content, _FILE_MODE)
    write_durably(kept.text_path, pages[1].encode("utf-8", "backslashreplace"), _FILE_MODE)
    forget_oldest(folder, retention or Retention(), but=frozenset({kept.json_path.name, kept.text_path.name}))
    return kept


def forget_oldest(
    folder: Path, retention: Retention, *, but: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Remove the oldest evidence files until the rest is within the retention; return their names.

    Files that are not ours by name, links and folders are left alone and not counted. Raises OSError.
    """
    gone: list[str] = []
    with opened_directory(folder) as descriptor:
        found: list[tuple[int, str, int]] = []
        for entry in os.scandir(descriptor):
            if not _OURS.fullmatch(entry.name):
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, entry.name, status.st_size))
        files, size = len(found), sum(one[2] for one in found)
        for _, name, length in sorted(found):
            if files <= retention.most_files and size <= retention.most_bytes:
                break
            if name in but:
                continue
            os.unlink(name, dir_fd=descriptor)
            gone.append(name)
            files, size = files - 1, size - length
    return tuple(gone)


def _safe(subject: str) -> str:
    """Return a subject as a file's name may hold it."""
    return _ODD.sub("_", subject)[:120].lstrip(".") or "unnamed"


def _stamp(wall: float) -> str:
    millis = int(wall * 1000)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(millis // 1000))}.{millis % 1000:03}Z"
