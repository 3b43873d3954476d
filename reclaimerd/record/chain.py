"""The form of one line of the audit log, and of the hash that joins it to the line before.

A line is one JSON object; its first keys are `schema`, `seq` and `prev`, its last key is `hash`:
the SHA-256, in hex, of the line's bytes up to (not including) `,"hash"`. The hash is over the bytes
as they stand, so nothing needs to be serialised again to check it, and a changed blank is found.
No file is opened here.
"""

import hashlib
import json
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from reclaimerd.host.wire import to_wire
from reclaimerd.model.audit_record import AuditEntry, RecordKind

SCHEMA = 1
_SCHEMA_TEXT = b"%d" % SCHEMA
FIRST_PREVIOUS = "0" * 64
"""What the first record of all names as the one before."""
CURRENT_NAME = "audit.jsonl"
PACKED_END = ".gz"
_ROTATED_NAME = re.compile(r"audit-(\d{12,18})\.jsonl(?:\.gz)?", re.ASCII)
_HEAD = re.compile(rb'\{"schema":(\d{1,9}),"seq":(\d{1,18}),"prev":"(.{64})",')
_TAIL_START = b',"hash":"'
_TAIL_END = b'"}'
_TAIL_BYTES = len(_TAIL_START) + 64 + len(_TAIL_END)
_KIND = b',"kind":"'
_TOLD = tuple(
    b'%s"' % kind.encode() for kind in (RecordKind.SEALED, RecordKind.CHAIN_BROKEN, RecordKind.ROTATED)
)
"""Kinds that say something about the chain itself."""
TORN_BYTES_KEY = "torn_bytes="
TORN_HASH_KEY = "torn_sha256="
OLDEST_KEY = "oldest_kept="


@dataclass(frozen=True, slots=True)
class Head:
    """The last record of the log: its sequence number and its hash."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Stamp:
    """When and where a record is written: wall and monotonic seconds, boot and host."""

    wall: float
    mono: float
    boot_id: str
    host: str


class LineFault(StrEnum):
    """Why a line is no record."""

    NO_RECORD = "it is no audit record (torn, overwritten or edited)"
    SCHEMA = "its schema is not known to this version"
    EDITED = "its bytes do not match its hash (edited)"


class Link(NamedTuple):
    """What a line says of its place in the chain; `fault` is None when its own hash is right.

    A tuple, since a million of them are made in one `audit verify`.
    """

    seq: int
    prev: str
    hash: str
    fault: LineFault | None

    @property
    def head(self) -> Head:
        """Return this line as the head of the log that ends with it."""
        return Head(self.seq, self.hash)


def link_of(line: bytes) -> Link | None:
    """Return the place in the chain of one line (without its newline), or None when it shows none."""
    start = _HEAD.match(line)
    tail = line[-_TAIL_BYTES:]
    if start is None or not (tail.startswith(_TAIL_START) and tail.endswith(_TAIL_END)):
        return None
    schema, seq, prev = start.groups()
    digest = hashlib.sha256(line[:-_TAIL_BYTES]).hexdigest()
    stated = tail[len(_TAIL_START) : -len(_TAIL_END)].decode("latin-1")
    fault = None
    if schema != _SCHEMA_TEXT:
        fault = LineFault.SCHEMA
    elif digest != stated:
        fault = LineFault.EDITED
    return Link(int(seq), prev.decode("latin-1"), stated, fault)


def sound_run(before: Link, lines: Iterable[bytes], stops: Container[int]) -> tuple[int, Link]:
    """Return how many of these lines are plain sound records, each after the other, and the last one's link.

    It ends at a line that is none, at a kind that a walk must look at, and before a number in `stops`. It
    says nothing that `link_of` would not, in half the time.
    """
    seq, previous, count = before.seq, before.hash.encode("latin-1"), 0
    for line in lines:
        if not line.startswith(b'{"schema":%d,"seq":%d,"prev":"%s",' % (SCHEMA, seq + 1, previous)):
            break
        digest = hashlib.sha256(line[:-_TAIL_BYTES]).hexdigest().encode("ascii")
        if not line.endswith(b',"hash":"%s"}' % digest):
            break
        if seq + 1 in stops or line.startswith(_TOLD, line.find(_KIND) + len(_KIND)):
            break
        seq, previous, count = seq + 1, digest, count + 1
    return count, Link(seq, "", previous.decode("latin-1"), None) if count else before


STAMP_KEYS = frozenset({"schema", "seq", "prev", "at", "mono", "boot", "host", "hash"})
"""What a line has besides its entry."""


def entry_body(entry: AuditEntry) -> dict[str, object]:
    """Return the entry's fields as they stand in a line: `kind` first, empty ones left out."""
    wire = to_wire(entry)
    if not isinstance(wire, dict):
        raise TypeError("an audit entry has no wire form")
    return {key: value for key, value in wire.items() if value not in (None, "", [], {})}


def seal_of(torn: bytes) -> AuditEntry:
    """Return the record that follows a torn end and says exactly what it was."""
    left = torn.removesuffix(b"\n")
    return AuditEntry(
        RecordKind.SEALED,
        reason=f"a crash left {len(left)} bytes that are no record; none of them was acknowledged",
        evidence=(f"{TORN_BYTES_KEY}{len(left)}", f"{TORN_HASH_KEY}{hashlib.sha256(left).hexdigest()}"),
    )


def sealed_line(head: Head, stamp: Stamp, body: dict[str, object]) -> tuple[bytes, Head]:
    """Return the line (with its newline) that follows `head`, and the new head.

    `body` begins with `kind`. Raises ValueError for what JSON has no word for (NaN, infinity).
    """
    at = datetime.fromtimestamp(stamp.wall, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    seq = head.seq + 1
    record = {
        "schema": SCHEMA,
        "seq": seq,
        "prev": head.hash,
        "at": at,
        "mono": round(stamp.mono, 6),
        "boot": stamp.boot_id,
        "host": stamp.host,
        **body,
    }
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    hashed = text[:-1].encode("ascii")
    digest = hashlib.sha256(hashed).hexdigest()
    return b'%s,"hash":"%s"}\n' % (hashed, digest.encode("ascii")), Head(seq, digest)


def kind_of(line: bytes) -> bytes:
    """Return a record's kind: what stands after the first `"kind":`, for only texts come before it.

    Inside a JSON string the quotes would be escaped.
    """
    begin = line.find(_KIND) + len(_KIND)
    return line[begin : line.find(b'"', begin)] if begin >= len(_KIND) else b""


def noted(line: bytes, key: str) -> str | None:
    """Return what a record's evidence notes under `key`, or None."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    evidence = record.get("evidence", []) if isinstance(record, dict) else []
    notes = (note for note in evidence if isinstance(note, str) and note.startswith(key))
    return next((note.removeprefix(key) for note in notes), None)


def rotated_name(first_seq: int) -> str:
    """Return the name of a full file by its first record."""
    return f"audit-{first_seq:012d}.jsonl"


def first_seq_of(name: str) -> int | None:
    """Return the first sequence number that a rotated file's name states, or None for another file."""
    found = _ROTATED_NAME.fullmatch(name)
    return None if found is None else int(found.group(1))


def rotated_files(directory: Path) -> tuple[Path, ...]:
    """Return the full files, oldest first; none when the directory does not exist.

    One that stands there packed and unpacked (a crash while it was packed) is named once, unpacked.
    """
    if not directory.is_dir():
        return ()
    found: dict[int, Path] = {}
    for path in directory.iterdir():
        first = first_seq_of(path.name)
        if first is not None and (first not in found or not path.name.endswith(PACKED_END)):
            found[first] = path
    return tuple(found[first] for first in sorted(found))
