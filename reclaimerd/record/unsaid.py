"""Records that a death took between store and log: which the log lacks, and what is said before them.

The store keeps a change's records with the change until the log has them. Here is only compared, by what the
records say: the log may have some of them, all, or one that was torn. Written they are by the recorder.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.chain import STAMP_KEYS, Head, entry_body
from reclaimerd.record.faults import record_error


def newer_records(log: Path, anchor: Head | None) -> tuple[dict[str, object], ...]:
    """Return the log's records beyond the anchor; raises RecordError when it can't be read."""
    found = []
    try:
        for record in read_records(log, newest_first=True):
            seq = record.get("seq")
            if anchor is not None and isinstance(seq, int) and seq <= anchor.seq:
                break
            found.append(record)
    except OSError as error:
        raise record_error("audit", log, error) from error
    return tuple(found)


def late_entries(
    unsaid: Sequence[AuditEntry], newer: Iterable[Mapping[str, object]]
) -> tuple[AuditEntry, ...]:
    """Return what is to be written now: those that the log lacks, in order, and before them why so late."""
    said = Counter(
        _text({key: value for key, value in record.items() if key not in STAMP_KEYS}) for record in newer
    )
    missing = []
    for entry in unsaid:
        text = _text(entry_body(entry))
        if said[text] > 0:
            said[text] -= 1
        else:
            missing.append(entry)
    reason = (
        f"we ended between store and log: of {len(unsaid)} records of what the store has,"
        f" {len(missing)} were not in the log, and follow"
    )
    return (AuditEntry(RecordKind.NOTE, reason=reason), *missing)


def _text(body: Mapping[str, object]) -> str:
    return json.dumps(body, sort_keys=True)
