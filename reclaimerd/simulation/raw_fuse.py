"""A raw /dev/fuse server that leaves chosen requests unanswered: tasks that nothing can end.

For tests and for the demo, as root. The server is a process of its own, started from this very
file, so whoever opens the files may block, die or fork without blocking the server. It answers
the kernel's requests (include/uapi/linux/fuse.h) and withholds one kind for ever: READ (a task stuck
in a read), FLUSH (stuck in close, so in the exit path once killed) or WRITE (stuck in writing back
a dirty mapping). `release` aborts the connection, which frees everybody; so does the end of the
process that made it. It touches nothing but its own mount. Standard library only.
"""

import ctypes
import os
import select
import stat
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Withhold = Literal["read", "flush", "write"]

_FUSE = "/dev/fuse"
_MNT_FORCE, _MNT_DETACH = 1, 2
_HEADER = struct.Struct("=IIQQIIII")
_READ, _WRITE, _FLUSH = 15, 16, 25
_FORGET, _INTERRUPT, _DESTROY, _BATCH_FORGET = 2, 36, 38, 42
_SILENT = frozenset({_FORGET, _BATCH_FORGET, _INTERRUPT, _DESTROY})
_OPCODES: dict[str, int] = {"read": _READ, "flush": _FLUSH, "write": _WRITE}
_FOPEN_DIRECT_IO = 1
_ROOT_NODE = 1
_FILE_BYTES = 4096
_NOT_OFFERED = 38  # ENOSYS: the kernel then stops asking
_ENDED_WITHIN_SECONDS = 5.0


def why_unavailable() -> str:
    """Return why no such file system can be made here, or "" when it can."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return f"{_FUSE} is missing or can't be opened"
    return ""


class RawFuse:
    """A mounted file system whose every name is a file of its own, with one request withheld."""

    def __init__(self, *, withhold: Withhold) -> None:
        self._withhold = withhold
        self._mountpoint: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._withheld = 0
        self._heard = b""

    def __enter__(self) -> Self:
        """Mount; raises OSError with the server's words when that fails."""
        self._mountpoint = Path(tempfile.mkdtemp(prefix="raw-fuse-"))
        try:
            self._start(str(self._mountpoint))
        except BaseException:  # a Ctrl-C too: nobody else knows of the mount yet
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, mountpoint: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-I", __file__, mountpoint, self._withhold],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in our terminal is ours; the server goes by its pipe
        )
        if not self._hear_until("mounted", timeout=_ENDED_WITHIN_SECONDS):
            said = self._heard.decode(errors="replace").strip()
            raise OSError(f"the FUSE server did not mount: {said or 'no answer'}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Free everybody, unmount and leave nothing behind."""
        self.release()
        if self._mountpoint is not None:
            self._mountpoint.rmdir()
            self._mountpoint = None

    def path(self, name: str) -> Path:
        """Return the path of the file of this name; each name has an inode of its own."""
        if self._mountpoint is None:
            raise ValueError("not mounted: use it as a context manager")
        return self._mountpoint / name

    def wait_withheld(self, n: int = 1, timeout: float = 5.0) -> int:
        """Wait until `n` requests are withheld in all and return how many are.

        Raises TimeoutError after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while self._withheld < n:
            if not self._hear_until("withheld", timeout=deadline - time.monotonic()):
                raise TimeoutError(f"{self._withheld} of {n} requests were withheld in {timeout} s")
            self._withheld += 1
        return self._withheld

    def release(self) -> None:
        """Abort the connection: every blocked task goes on with an error. Safe to call twice."""
        server, self._server = self._server, None
        if server is None or self._mountpoint is None:
            return
        if server.stdin is not None:
            try:
                server.stdin.write(b"q")  # a word, not only the end: a forked opener may hold a copy
                server.stdin.close()
            except BrokenPipeError:
                pass  # the server has ended already
        try:
            server.wait(_ENDED_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(_ENDED_WITHIN_SECONDS)
        if server.stdout is not None:
            server.stdout.close()
        _unmount(str(self._mountpoint))

    def _hear_until(self, word: str, *, timeout: float) -> bool:
        """Read the server's lines until one is `word`; False at the time-out or its end."""
        deadline = time.monotonic() + timeout
        server = self._server
        if server is None or server.stdout is None:
            return False
        while True:
            line, found, rest = self._heard.partition(b"\n")
            if found:
                if line != word.encode():
                    return False
                self._heard = rest
                return True
            left = max(0.0, deadline - time.monotonic())
            if not select.select([server.stdout], [], [], left)[0]:
                return False
            piece = os.read(server.stdout.fileno(), 4096)
            if not piece:
                return False
            self._heard += piece


def _unmount(path: str) -> None:
    """Abort the connection and take the mount away; nothing to do when it is not mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.umount2(path.encode(), _MNT_FORCE | _MNT_DETACH)


def _mount(descriptor: int, path: str) -> None:
    """Mount the connection at `path`; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"raw-fuse", path.encode(), b"fuse", 0, options.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


class _Server:
    """Answers one connection's requests; `names` gives every name its own inode."""

    def __init__(self, descriptor: int, withhold: int) -> None:
        self._descriptor = descriptor
        self._withhold = withhold
        self._names: dict[bytes, int] = {}

    def answer_one(self) -> None:
        """Read one request and answer or withhold it; raises OSError when the connection ended."""
        request = os.read(self._descriptor, 1 << 18)
        _length, opcode, unique, node, *_rest = _HEADER.unpack_from(request)
        body = request[_HEADER.size :]
        if opcode in _SILENT:
            return
        if opcode == self._withhold:
            _say("withheld")
            return
        found = self._answer(opcode, node, body)
        error, payload = (-_NOT_OFFERED, b"") if found is None else (0, found)
        os.write(self._descriptor, struct.pack("=IiQ", 16 + len(payload), error, unique) + payload)

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes | None:
        """Return the payload for one request, or None for what this server doesn't offer."""
        payload: bytes | None = None
        match opcode:
            case 26:  # INIT: protocol 7.31, no optional features
                limits = (7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 32, 0, 0)
                payload = struct.pack("=IIIIHHIIHHI28x", *limits)
            case 1:  # LOOKUP: entries are valid for an hour
                inode = self._names.setdefault(body.rstrip(b"\0"), _ROOT_NODE + 1 + len(self._names))
                payload = struct.pack("=QQQQII", inode, 0, 3600, 3600, 0, 0) + _attributes(inode)
            case 3 | 4:  # GETATTR, SETATTR
                payload = struct.pack("=QII", 3600, 0, 0) + _attributes(node)
            case 14:  # OPEN: past the page cache, but a shared mapping needs it
                flags = 0 if self._withhold == _WRITE else _FOPEN_DIRECT_IO
                payload = struct.pack("=QII", 0, flags, 0)
            case 15:  # READ: fh, offset, size
                payload = bytes(min(struct.unpack_from("=QQI", body)[2], _FILE_BYTES))
            case 16:  # WRITE: fh, offset, size
                payload = struct.pack("=II", struct.unpack_from("=QQI", body)[2], 0)
            case 18 | 25:  # RELEASE, FLUSH
                payload = b""
        return payload


def _attributes(node: int) -> bytes:
    """Return struct fuse_attr: a directory for the root, else a file of one page."""
    mode = stat.S_IFDIR | 0o755 if node == _ROOT_NODE else stat.S_IFREG | 0o666
    return struct.pack("=6Q10I", node, _FILE_BYTES, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _say(word: str) -> None:
    """Tell the process that made us; it may be gone."""
    try:
        os.write(1, word.encode() + b"\n")
    except OSError:
        return


def _serve(path: str, withhold: int) -> None:
    """Serve until our maker closes our standard input or ends."""
    maker = os.pidfd_open(os.getppid())
    descriptor = os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _mount(descriptor, path)
        _say("mounted")
        server = _Server(descriptor, withhold)
        watched = select.poll()
        for source in (0, maker, descriptor):
            watched.register(source, select.POLLIN)
        while all(ready not in (0, maker) for ready, _events in watched.poll()):
            try:
                server.answer_one()
            except BlockingIOError:  # the request was taken back between poll and read
                continue
    finally:
        _unmount(path)
        os.close(descriptor)


def _main() -> int:
    """Serve as `raw_fuse.py MOUNTPOINT read|flush|write`."""
    path, withhold = sys.argv[1], sys.argv[2]
    try:
        _serve(path, _OPCODES[withhold])
    except OSError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
