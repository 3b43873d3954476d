"""A child that appends to the log until it is killed, and acknowledges each durable record on stdout."""

import os
import sys
import time
from pathlib import Path

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit import Audit


def main() -> None:
    """Append batches of three; the acknowledgement follows the return of `append`."""
    settings = AuditSettings(file_bytes=20_000, keep_files=1000)
    audit = Audit.open(Path(sys.argv[1]), boot_id="boot", settings=settings, anchor=None)
    number = 0
    while True:
        entries = [AuditEntry(RecordKind.NOTE, reason=f"{number}.{part} " + "x" * 300) for part in range(3)]
        head = audit.append(entries, wall=time.time(), mono=time.monotonic())
        os.write(1, f"{head.seq} {head.hash}\n".encode())
        number += 1


if __name__ == "__main__":
    main()
