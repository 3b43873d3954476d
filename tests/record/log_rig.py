"""What the audit's tests share: a log in a folder, and its lines."""

from dataclasses import dataclass
from pathlib import Path

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit import Audit
from reclaimerd.record.chain import Head
from tests.builders import BOOT, MONO, WALL


def a_note(text: str = "a note") -> AuditEntry:
    """Return a small entry."""
    return AuditEntry(RecordKind.NOTE, reason=text)


@dataclass(frozen=True, slots=True)
class Log:
    """A log directory of a test."""

    directory: Path
    file_bytes: int = 1024 * 1024
    keep_files: int = 64
    compress: bool = False
    anchor_file: str = ""

    @property
    def path(self) -> Path:
        """Return the current file."""
        return self.directory / "audit.jsonl"

    def open(self, anchor: Head | None = None) -> Audit:
        """Open the log for appending."""
        settings = AuditSettings(self.file_bytes, self.keep_files, self.compress, self.anchor_file)
        return Audit.open(self.directory, boot_id=BOOT, settings=settings, anchor=anchor)

    def write(self, count: int, anchor: Head | None = None) -> Head:
        """Append so many notes, each in a batch of its own, and return the head."""
        audit = self.open(anchor)
        head = anchor
        for number in range(count):
            head = audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)
        audit.close()
        assert head is not None
        return head

    def lines(self) -> list[bytes]:
        """Return the current file's lines, each with its newline."""
        return self.path.read_bytes().splitlines(keepends=True)

    def put(self, lines: list[bytes]) -> None:
        """Overwrite the current file as somebody with an editor would."""
        self.path.write_bytes(b"".join(lines))
