"""What follows a durable append, and may fail without harm: old files packed, the head told elsewhere.

Both run in threads of their own, never in the writer's: a commit waits for neither. A full file is
removed only after its packed form was read back whole.
"""

import hashlib
import os
import threading
from contextlib import suppress
from pathlib import Path

from reclaimerd.host.files import open_below, opened_directory
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record import logs
from reclaimerd.record.audit_anchors import AnchorFile
from reclaimerd.record.chain import PACKED_END, Head, rotated_files
from reclaimerd.record.packed import BLOCK_BYTES, Content, Packed, Plain, pack

_UNFINISHED_END = ".new"


class Upkeep:
    """The work beside the writing of one log directory."""

    __slots__ = ("_anchor_file", "_directory", "_packs", "_thread")

    def __init__(self, directory: Path, settings: AuditSettings) -> None:
        self._directory = directory
        self._packs = settings.compress
        self._anchor_file = AnchorFile(Path(settings.anchor_file)) if settings.anchor_file else None
        self._thread: threading.Thread | None = None

    def appended(self, head: Head, wall: float) -> None:
        """Tell the head of a durable append; `wall` is in seconds. Never waits."""
        if self._anchor_file is not None:
            self._anchor_file.tell(head, wall)

    def rotated(self) -> None:
        """Have full files packed, unless that is under way. Never waits."""
        if self._packs and (self._thread is None or not self._thread.is_alive()):
            # A daemon thread: what it leaves unfinished is done after the next rotation.
            self._thread = threading.Thread(
                target=pack_full_files, args=(self._directory,), name="pack", daemon=True
            )
            self._thread.start()

    def anchor_fault(self) -> str:
        """Return why the head could not be written to the anchor file, or ""."""
        return "" if self._anchor_file is None else self._anchor_file.fault()

    def close(self) -> None:
        """Let the last head be written, for a moment; packing is left where it is."""
        if self._anchor_file is not None:
            self._anchor_file.close()


def pack_full_files(directory: Path) -> None:
    """Pack each full file that is not; one that can't be packed stays as it is, and that is logged."""
    with suppress(FileNotFoundError), opened_directory(directory) as folder:
        for unfinished in directory.glob(f".audit-*{PACKED_END}{_UNFINISHED_END}"):
            unfinished.unlink(missing_ok=True)
        for path in rotated_files(directory):
            if path.name.endswith(PACKED_END):
                continue
            try:
                _pack(folder, path.name)
            except FileNotFoundError:
                continue  # Pruned meanwhile.
            except OSError as error:
                logs.warning("audit_file_not_packed", file=path.name, why=error.strerror or str(error))
                return


def _pack(folder: int, name: str) -> None:
    """Replace one file by its packed form: written, read back and durable before the plain one goes."""
    unfinished = f".{name}{PACKED_END}{_UNFINISHED_END}"
    with os.fdopen(open_below(folder, name, os.O_RDONLY), "rb") as source:
        status = os.fstat(source.fileno())
        free = os.fstatvfs(folder)
        if free.f_bavail * free.f_frsize < status.st_size:
            raise OSError(None, "too little room on its disk: records come first")
        target = open_below(folder, unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            pack(source, target)
            _refuse_difference(Packed(os.dup(target)), Plain(os.dup(source.fileno())))
            os.fchown(target, status.st_uid, status.st_gid)
            os.fchmod(target, status.st_mode & 0o7777)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(target)
            os.stat(name, dir_fd=folder)  # One that was pruned meanwhile does not come back.
            os.rename(unfinished, name + PACKED_END, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)
            raise
        finally:
            os.close(target)
    os.fsync(folder)
    os.unlink(name, dir_fd=folder)


def _refuse_difference(packed: Content, plain: Content) -> None:
    """Raise OSError unless both hold the same bytes; both are closed."""
    same = _digest(packed) == _digest(plain)
    if not same:
        raise OSError(None, "what was packed does not read back as it was")


def _digest(content: Content) -> tuple[bytes, str]:
    """Return the SHA-256 of all bytes, and what damage there is; the content is closed."""
    digest, place = hashlib.sha256(), 0
    while block := content.read_at(place, BLOCK_BYTES):
        digest.update(block)
        place += len(block)
    content.close()
    return digest.digest(), content.damage
