"""The audit's head written down a second time: a line for each in a file of the administrator's choice.

It may lie on another disk, be append-only (chattr +a) or be shipped off the host. A thread of its own
writes: a file server that hangs holds up no record and no act. It is a witness, never asked by us.
"""

import json
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.host.files import append_durably
from reclaimerd.record import logs
from reclaimerd.record.chain import Head

MOST_ANCHORS = 100_000
"""So many of a file's newest lines are compared."""
_MOST_LINE_BYTES = 4096
_MODE = 0o640
_MOST_HOSTS = 1000
_MOST_SHOWN = 4
_CLOSE_SECONDS = 1.0
HANGS_SECONDS = 30.0
"""A write that takes longer is told as a fault while it lasts."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_LOGGED = re.compile(rb"\baudit_head seq=(\d{1,18}) hash=([0-9a-f]{64})\s*\Z")
"""To the line's end: a caller's own words (`--reason`) stand in quotes, and so never end one."""
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Anchor:
    """What one line keeps; `host` is "" where it names none."""

    seq: int
    hash: str
    host: str = ""


class MixedAnchorsError(ReclaimerdError):
    """A file holds the heads of several hosts' logs, and none was chosen."""

    exit_code = ExitCode.USAGE

    def __init__(self, path: Path, hosts: Sequence[str]) -> None:
        shown = ", ".join(repr(one) for one in hosts[:_MOST_SHOWN])
        more = f" and {len(hosts) - _MOST_SHOWN} more" if len(hosts) > _MOST_SHOWN else ""
        super().__init__(
            f"{path} holds the heads of several hosts: {shown}{more}", "choose one with --anchor-host"
        )


class AnchorFile:
    """Appends the newest head from its own thread; heads that come while it writes are passed over."""

    __slots__ = ("_began_mono", "_closing", "_fault", "_head", "_lock", "_path", "_thread", "_wake")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._head: tuple[Head, float] | None = None
        self._closing = False
        self._fault = ""
        self._began_mono: float | None = None
        self._thread: threading.Thread | None = None

    def tell(self, head: Head, wall: float) -> None:
        """Have this head written; `wall` is when its record was. Never waits."""
        with self._lock:
            self._head = (head, wall)
        self._wake.set()
        if self._thread is None:
            # A daemon thread: a file server that hangs must not keep the process from ending.
            self._thread = threading.Thread(target=self._serve, name="anchor", daemon=True)
            self._thread.start()

    def fault(self) -> str:
        """Return why the last head could not be written, or ""."""
        began = self._began_mono
        if began is not None and time.monotonic() > began + HANGS_SECONDS:
            return f"{self._path}: its disk has not answered for {time.monotonic() - began:.0f} s"
        return self._fault

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Write what is waiting, for at most this long."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _serve(self) -> None:
        """Write head after head; one that fails is tried again with the next, and the fault is told once."""
        while True:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing
            with self._lock:
                waiting, self._head = self._head, None
            if waiting is not None:
                self._began_mono = time.monotonic()
                self._write(*waiting)
                self._began_mono = None
            if closing:
                return

    def _write(self, head: Head, wall: float) -> None:
        try:
            _append(self._path, anchor_line(head, wall))
            fault = ""
        except OSError as error:
            fault = f"{self._path}: {error.strerror or error}"
        if fault and fault != self._fault:
            logs.error("audit_anchor_not_written", why=fault, seq=head.seq)
        elif self._fault and not fault:
            logs.event("audit_anchor_written_again", seq=head.seq)
        self._fault = fault


def anchor_line(head: Head, wall: float) -> bytes:
    """Return the line that keeps a head, with its newline; `wall` is in seconds."""
    return json.dumps(anchor_fields(head, wall), separators=(",", ":")).encode("ascii") + b"\n"


def anchor_fields(head: Head, wall: float) -> dict[str, object]:
    """Return what an anchor says: when it was written, whose it is, number and hash."""
    at = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"at": at, "host": os.uname().nodename, "seq": head.seq, "hash": head.hash}


def _append(path: Path, line: bytes) -> None:
    """Append one durable line; what a crash left of the one before is closed by a newline first."""
    descriptor = os.open(path, _FLAGS, _MODE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is not a regular file")
        torn = status.st_size > 0 and os.pread(descriptor, 1, status.st_size - 1) != b"\n"
        append_durably(descriptor, b"\n" + line if torn else line)
    finally:
        os.close(descriptor)


def read_anchors(path: Path, host: str = "") -> dict[int, str]:
    """Return the newest heads of an anchor file, of what a webhook's receiver kept, or of our log lines.

    Lines of another kind are stepped over. Of two heads with one number the first counts: whoever writes a
    log anew may still append to the file, but not undo what stands in it. `host`: only of this host, and of
    lines that name none. Raises OSError, and MixedAnchorsError where several hosts are and none is given.
    """
    newest: deque[tuple[int, str]] = deque(maxlen=MOST_ANCHORS)
    hosts: set[str] = set()
    with path.open("rb") as stream:
        while line := stream.readline(_MOST_LINE_BYTES):
            anchor = _anchor_of(line)
            if anchor is None or (host and anchor.host not in ("", host)):
                continue
            if anchor.host and len(hosts) < _MOST_HOSTS:
                hosts.add(anchor.host)
            newest.append((anchor.seq, anchor.hash))
    if len(hosts) > 1:
        raise MixedAnchorsError(path, sorted(hosts))
    found: dict[int, str] = {}
    for seq, digest in newest:
        found.setdefault(seq, digest)
    return found


def _anchor_of(line: bytes) -> _Anchor | None:
    """Return what one line says, or None."""
    logged = _LOGGED.search(line)
    if logged is not None:
        return _Anchor(int(logged[1]), logged[2].decode("ascii"))
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    seq, digest, host = fields.get("seq"), fields.get("hash"), fields.get("host", "")
    if isinstance(seq, int) and isinstance(digest, str) and _HASH.fullmatch(digest):
        return _Anchor(seq, digest, host if isinstance(host, str) else "")
    return None
