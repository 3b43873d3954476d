"""The append side of the audit log: numbered, hashed, durable JSON lines in one directory.

The current file is `audit.jsonl`; a full one becomes `audit-<its first seq>.jsonl`, is packed some time
after (`.gz`), and the chain goes on across files. It runs in the recorder's thread (a disk may hang), and
never in two processes at once: the writer's claim sees to that. It judges nothing: a broken chain is
recorded and anchored again, because a log that somebody spoilt must not protect who spoilt it.
"""

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.errors import RecordError
from reclaimerd.host.files import append_durably, ensure_directory, open_below, opened_directory
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit_files import content_of
from reclaimerd.record.audit_keeping import Upkeep
from reclaimerd.record.audit_tail import Tail, broken_why, read_tail
from reclaimerd.record.chain import (
    CURRENT_NAME,
    FIRST_PREVIOUS,
    OLDEST_KEY,
    PACKED_END,
    Head,
    Stamp,
    entry_body,
    first_seq_of,
    rotated_files,
    rotated_name,
    seal_of,
    sealed_line,
)
from reclaimerd.record.faults import NO_SPACE, record_error
from reclaimerd.record.packed import Plain
from reclaimerd.record.reserve import Reserve

_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750
_MOST_RESERVE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the log lies, and what stays the same while it is open."""

    directory: Path
    boot_id: str
    settings: AuditSettings
    gid: int | None

    @property
    def path(self) -> Path:
        """Return the current file's path."""
        return self.directory / CURRENT_NAME


class Audit:
    """The open log; `append` is the only way in."""

    __slots__ = (
        "_cut_due",
        "_fd",
        "_first_seq",
        "_head",
        "_pending",
        "_place",
        "_prefix",
        "_reserve",
        "_size",
        "_upkeep",
    )

    def __init__(self, place: _Place, anchor: Head | None) -> None:
        self._place = place
        self._fd = -1
        self._size = 0
        self._first_seq: int | None = None
        self._head: Head | None = None
        self._pending: tuple[AuditEntry, ...] = ()
        self._prefix = b""
        self._cut_due = False
        self._examine(anchor)
        self._reserve = Reserve(place.directory, min(_MOST_RESERVE_BYTES, place.settings.file_bytes))
        self._reserve.make()
        self._upkeep = Upkeep(place.directory, place.settings)

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        boot_id: str,
        settings: AuditSettings,
        anchor: Head | None,
        gid: int | None = None,
    ) -> "Audit":
        """Return the log, ready to append; its end is compared with the anchor.

        A torn end is sealed, and a broken chain is recorded, by the next append. `gid` owns the files
        (None: ours). Raises RecordError when the directory or file can't be opened for writing.
        """
        place = _Place(directory, boot_id, settings, gid)
        try:
            return cls(place, anchor)
        except OSError as error:
            raise record_error("audit", place.path, error) from error

    @property
    def head(self) -> Head | None:
        """Return the last durable record, or None in an empty log."""
        return self._head

    def append(
        self, entries: Sequence[AuditEntry], *, wall: float, mono: float, use_reserve: bool = False
    ) -> Head:
        """Write all entries with one write and one fdatasync; return the new head.

        `wall` and `mono` are seconds. With `use_reserve` a full disk is met by giving up the reserve.
        Raises RecordError, and then none of the entries stands in the log.
        """
        stamp = Stamp(wall, mono, self._place.boot_id, os.uname().nodename)
        try:
            try:
                return self._append(entries, stamp)
            except OSError as error:
                if not (use_reserve and error.errno in NO_SPACE and self._reserve.spend()):
                    raise
                return self._append(entries, stamp)
        except OSError as error:
            raise record_error("audit", self._place.path, error) from error
        except (ValueError, TypeError) as error:
            raise RecordError(
                f"audit: a record can't be written as JSON: {error}", "report this bug"
            ) from error

    def spend_reserve(self) -> bool:
        """Free the reserve for whoever shares the disk (the store); tell whether there was one."""
        return self._reserve.spend()

    def reserve_is_spent(self, mono: float) -> bool:
        """Tell whether the reserve was given up for an operator and the disk has no ample room since."""
        return self._reserve.is_spent(mono)

    def anchor_fault(self) -> str:
        """Return why the head could not be written to the anchor file, or ""; it binds nobody."""
        return self._upkeep.anchor_fault()

    def close(self) -> None:
        """Close the file; every record is durable already."""
        self._close_file()
        self._upkeep.close()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, entries: Sequence[AuditEntry], stamp: Stamp) -> Head:
        """Write one batch after what is pending; on OSError cut the file back to what it was."""
        self._check_ours()
        content, head = self._lines(entries, stamp)
        if self._is_full(len(content)):
            self._rotate()
            content, head = self._lines(entries, stamp)
        try:
            append_durably(self._fd, content)
        except OSError:
            self._cut_due = True
            with suppress(OSError):
                self._cut_back()
            raise
        if self._first_seq is None:
            self._first_seq = 1 if self._head is None else self._head.seq + 1
        rotated = any(entry.kind is RecordKind.ROTATED for entry in self._pending)
        self._size += len(content)
        self._head, self._pending, self._prefix = head, (), b""
        self._upkeep.appended(head, stamp.wall)
        if rotated:
            self._prune()
            self._upkeep.rotated()
        self._reserve.restore(stamp.mono)
        return head

    def _is_full(self, more_bytes: int) -> bool:
        """Tell whether a new file is due; never before what is pending on this file's end was written."""
        if self._first_seq is None or self._pending or self._prefix:
            return False
        return self._size + more_bytes > self._place.settings.file_bytes

    def _lines(self, entries: Sequence[AuditEntry], stamp: Stamp) -> tuple[bytes, Head]:
        """Return the bytes of what is pending and of the entries, and the head they lead to."""
        head = self._head or Head(0, FIRST_PREVIOUS)
        lines = [self._prefix]
        for entry in (*self._pending, *entries):
            line, head = sealed_line(head, stamp, entry_body(entry))
            lines.append(line)
        return b"".join(lines), head

    def _cut_back(self) -> None:
        """Take back what a failed write left."""
        os.ftruncate(self._fd, self._size)
        os.fdatasync(self._fd)
        self._cut_due = False

    def _check_ours(self) -> None:
        """Make sure that the open file is still the one at its path, with nothing added or cut by others."""
        if self._fd < 0:  # Opening it failed last time.
            self._examine(self._head)
            return
        if self._cut_due:
            self._cut_back()
        ours = os.fstat(self._fd)
        try:
            there = self._place.path.lstat()
        except FileNotFoundError:
            there = None
        same = there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        if not same or ours.st_size != self._size:
            self._examine(self._head)

    def _examine(self, anchor: Head | None) -> None:
        """Open the current file, and find the head to go on from and what must be said first."""
        self._close_file()
        ensure_directory(self._place.directory, _DIRECTORY_MODE, self._place.gid)
        self._fd, tail, last = _opened(self._place, anchor)
        why = broken_why(last, anchor, tail.torn)
        self._size = tail.size_bytes
        self._first_seq = None if tail.size_bytes == 0 else tail.first_seq
        self._prefix = b"\n" if tail.open_end or (tail.torn and not tail.torn.endswith(b"\n")) else b""
        self._cut_due = False
        self._head = last.head
        self._pending = ()
        if why is not None:
            self._pending = (AuditEntry(RecordKind.CHAIN_BROKEN, reason=f"{CURRENT_NAME}: {why}"),)
            if anchor is not None and (last.head is None or last.head.seq < anchor.seq):
                self._head = anchor
        elif tail.torn:
            self._pending = (seal_of(tail.torn),)

    def _rotate(self) -> None:
        """Put the full file aside under its first number and begin a new one; the chain goes on."""
        name = rotated_name(self._first_seq or 0)
        with opened_directory(self._place.directory) as folder:
            if any((self._place.directory / each).exists() for each in (name, name + PACKED_END)):
                return  # An appended file that is too large is better than an overwritten one.
            os.rename(CURRENT_NAME, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._close_file()
            self._fd = _open_current(folder, self._place.gid)
            os.fsync(folder)
        self._size, self._first_seq = 0, None
        oldest = first_seq_of(self._kept()[0].name)
        entry = AuditEntry(
            RecordKind.ROTATED, reason=f"continues {name}", evidence=(f"{OLDEST_KEY}{oldest}",)
        )
        self._pending = (*self._pending, entry)

    def _kept(self) -> tuple[Path, ...]:
        """Return the full files that stay."""
        return rotated_files(self._place.directory)[-max(1, self._place.settings.keep_files) :]

    def _prune(self) -> None:
        """Remove the full files beyond the number to keep; what can't be removed stays."""
        kept = {first_seq_of(path.name) for path in self._kept()}
        for path in self._place.directory.iterdir():
            first = first_seq_of(path.name)
            if first is not None and first not in kept:
                with suppress(OSError):
                    path.unlink()


def _open_current(folder_fd: int, gid: int | None) -> int:
    """Return a descriptor of the current file, made with its mode and group when it is new."""
    descriptor = open_below(folder_fd, CURRENT_NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT, _FILE_MODE)
    if os.fstat(descriptor).st_size == 0:
        os.fchmod(descriptor, _FILE_MODE)
        if gid is not None:
            os.fchown(descriptor, -1, gid)
    return descriptor


def _opened(place: _Place, anchor: Head | None) -> tuple[int, Tail, Tail]:
    """Return the current file's descriptor and tail, and the tail of the file with the last record."""
    back_to = None if anchor is None else anchor.seq
    full = rotated_files(place.directory)
    with opened_directory(place.directory) as folder:
        descriptor = _open_current(folder, place.gid)
        try:
            os.fsync(folder)
            tail = read_tail(Plain(descriptor), back_to)
            if tail.head is not None or not full:
                return descriptor, tail, tail
            older = content_of(open_below(folder, full[-1].name, os.O_RDONLY))
            with closing(older):
                return descriptor, tail, read_tail(older, back_to)
        except OSError:
            os.close(descriptor)
            raise
