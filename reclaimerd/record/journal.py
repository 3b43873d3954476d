"""One event as the journal keeps it: fields that `journalctl RECLAIMERD_EVENT=...` finds, not a line's words.

The native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram an entry, `FIELD=value` a line. Every
value is one line of printable ASCII, so no field can break out of its own. It reads and acts on nothing.
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path

SOCKET = Path("/run/systemd/journal/socket")
MOST_VALUE_BYTES = 16 * 1024
"""A datagram has room for some 200 KiB; events have few fields."""
_NO_FIELD = re.compile(r"[^A-Z0-9_]")
_LONGEST_NAME = 64
"""A longer field's name is dropped by the journal (journal_field_valid())."""
_PREFIX = "RECLAIMERD_"


def connected(path: Path = SOCKET) -> socket.socket | None:
    """Return a socket whose every write is one entry, None where no journal listens."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        end.connect(str(path))
    except OSError:
        end.close()
        return None
    return end


def entry(priority: int, name: str, message: str, fields: Mapping[str, str]) -> str:
    """Return an entry without its last newline; the values must be single lines."""
    rows = {"MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "reclaimerd"}
    rows[f"{_PREFIX}EVENT"] = name
    rows.update((field_name(key), value) for key, value in fields.items())
    return "\n".join(f"{key}={value[:MOST_VALUE_BYTES]}" for key, value in rows.items())


def field_name(key: str) -> str:
    """Return what a field of ours is called in the journal."""
    return (_PREFIX + _NO_FIELD.sub("_", key.upper()))[:_LONGEST_NAME]
