"""Opens the policy file once, and tells who could have written it.

It reads the file system and nothing else; it decides nothing about the file's content.
"""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import ROOT_ALONE, Concern, file_concerns, walk_owners

MOST_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of one policy file; `concerns` says who but root could change it, a line each."""

    path: Path
    content: bytes
    concerns: tuple[str, ...]


def read_source(path: Path) -> Source:
    """Return the file's bytes and ownership; raise OSError when it is no regular file we can read.

    Links are followed first, each folder and link on the way is looked at, and the file itself is
    judged by the opened descriptor, so what was judged is what was read.
    """
    trusted = _trusted_uids()
    resolved, concerns = walk_owners(path, trusted)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(resolved, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = _read_all(descriptor)
    finally:
        os.close(descriptor)
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_FILE_BYTES} bytes", str(path))
    found = (*concerns, *file_concerns(resolved, status, trusted))
    return Source(path, content, tuple(map(_sentence, found)))


def _read_all(descriptor: int) -> bytes:
    """Return the content up to one byte past the limit."""
    chunks: list[bytes] = []
    left = MOST_FILE_BYTES + 1
    while left > 0 and (chunk := os.read(descriptor, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _trusted_uids() -> frozenset[int]:
    """Return who may own the policy: root, and without root (a demo) ourselves."""
    return ROOT_ALONE | {os.geteuid()}


def _sentence(concern: Concern) -> str:
    """Return a concern with its mend."""
    return f"{concern.noun}{concern.text}; {concern.mend}"
