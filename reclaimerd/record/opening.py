"""Opens store and audit together: the store's anchor is what the audit's end is compared with."""

from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import ensure_directory
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit import Audit
from reclaimerd.record.faults import record_error
from reclaimerd.record.recorder_ports import Opened
from reclaimerd.record.store import STORE_NAME, Store
from reclaimerd.record.unsaid import newer_records

_STATE_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Places:
    """Where the records lie, and whose they are; `gid` owns the audit files (None: ours)."""

    state: Path
    log: Path
    boot_id: str
    settings: AuditSettings
    gid: int | None = None


def open_records(places: Places) -> Opened:
    """Return store and audit, open and checked; missing directories are made.

    Raises CorruptStoreError and RecordError. It blocks on the disk: the recorder's thread calls it.
    """
    try:
        ensure_directory(places.state, _STATE_MODE)
    except OSError as error:
        raise record_error("store", places.state, error) from error
    store = Store.open(places.state / STORE_NAME)
    try:
        stored = store.load()
        audit = Audit.open(
            places.log,
            boot_id=places.boot_id,
            settings=places.settings,
            anchor=stored.anchor,
            gid=places.gid,
        )
        newer = newer_records(places.log, stored.anchor) if stored.unsaid else ()
    except BaseException:
        store.close()
        raise
    return Opened(store, audit, stored, newer)
