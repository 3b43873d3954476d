"""The real store and audit log with a boundary before and after each write, and a mirror of what is durable.

May not change what is written: it only fails it, tears it, or dies at it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.record.chain import CURRENT_NAME, Head
from reclaimerd.record.faults import NoSpaceError
from reclaimerd.record.recorder_ports import AuditPort, Opened, StorePort
from reclaimerd.record.store import Remembered, Stored
from tests.machine.hands import Fuse, Killed
from tests.machine.oracle import Oracle
from tests.machine.world import Disk


@dataclass(slots=True)
class BoundedStore:
    """The store of one life; implements `StorePort`."""

    store: StorePort
    oracle: Oracle
    fuse: Fuse
    disk: Disk

    def load(self) -> Stored:
        """Return all that a start needs."""
        return self.store.load()

    def save(
        self,
        incidents: Sequence[Incident],
        ledger: Ledger | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """Make incidents and ledger durable, or die on either side of that."""
        self.fuse.point("before a save")
        _check(self.disk, use_reserve=False)
        batch = self.store.save(incidents, ledger, entries)
        self.oracle.take_saved(incidents, ledger)
        self.fuse.point("after a save")
        return batch

    def take_back(self) -> None:
        """Undo the last save, or die on either side of that."""
        self.fuse.point("before a save is taken back")
        _check(self.disk, use_reserve=False)
        self.store.take_back()
        self.oracle.mirror.take_back()
        self.fuse.point("after a save is taken back")

    def anchor(self, head: Head, batches: Sequence[int] = ()) -> None:
        """Make the audit's head durable."""
        self.fuse.point("before an anchor")
        _check(self.disk, use_reserve=False)
        self.store.anchor(head, batches)
        self.fuse.point("after an anchor")

    def remember(self, remembered: Remembered) -> None:
        """Keep what was seen while healthy."""
        self.fuse.point("before remembering")
        _check(self.disk, use_reserve=False)
        self.store.remember(remembered)
        self.fuse.point("after remembering")

    def close(self) -> None:
        """Let go of it."""
        self.store.close()


@dataclass(slots=True)
class BoundedAudit:
    """The audit log of one life; implements `AuditPort`."""

    audit: AuditPort
    oracle: Oracle
    fuse: Fuse
    disk: Disk
    path: Path
    """The file that is being written."""

    def append(
        self, entries: Sequence[AuditEntry], *, wall: float, mono: float, use_reserve: bool = False
    ) -> Head:
        """Make all entries durable; a death in mid-write leaves a torn last line."""
        self.fuse.point("before an append")
        _check(self.disk, use_reserve=use_reserve)
        before = self.path.stat().st_size if self.path.exists() else 0
        head = self.audit.append(entries, wall=wall, mono=mono, use_reserve=use_reserve)
        try:
            self.fuse.point("in mid-append")
        except Killed:
            with self.path.open("r+b") as file:
                file.truncate(before + (self.path.stat().st_size - before) // 2)
            whole = self.path.read_bytes()[before:].count(b"\n")
            self.oracle.take_appended(entries[:whole])  # of several records the first are in the log
            raise
        self.oracle.take_appended(entries)
        self.fuse.point("after an append")
        return head

    def spend_reserve(self) -> bool:
        """Free the reserved room; tell whether there was any."""
        freed = not self.disk.reserve_is_spent and not self.disk.broken
        self.disk.reserve_is_spent = True
        return freed

    def reserve_is_spent(self, mono: float) -> bool:
        """Tell whether the reserved room was freed and is not there again."""
        del mono
        if not self.disk.full:
            self.disk.reserve_is_spent = False
        return self.disk.reserve_is_spent

    def anchor_fault(self) -> str:
        """Return that the head is kept elsewhere as it should."""
        return self.audit.anchor_fault()

    def close(self) -> None:
        """Let go of it."""
        self.audit.close()


def bounded(opened: Opened, oracle: Oracle, fuse: Fuse, directory: Path) -> Opened:
    """Return opened records with their boundaries."""
    disk = oracle.world.disk
    return Opened(
        BoundedStore(opened.store, oracle, fuse, disk),
        BoundedAudit(opened.audit, oracle, fuse, disk, directory / CURRENT_NAME),
        opened.stored,
        opened.newer,
    )


def _check(disk: Disk, *, use_reserve: bool) -> None:
    if disk.broken:
        raise RecordError("the disk: Input/output error")
    if disk.full and not (use_reserve or disk.reserve_is_spent):
        raise NoSpaceError("no space left on the disk")
