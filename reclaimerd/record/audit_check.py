"""Walks the lines of the audit log in order and says where the chain does not hold. It opens nothing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from reclaimerd.model.audit_record import RecordKind
from reclaimerd.record.chain import (
    CURRENT_NAME,
    OLDEST_KEY,
    TORN_BYTES_KEY,
    TORN_HASH_KEY,
    Head,
    LineFault,
    Link,
    kind_of,
    link_of,
    noted,
    sound_run,
)

MOST_FAULTS = 100
_SEALED = RecordKind.SEALED.encode()
_BROKEN = RecordKind.CHAIN_BROKEN.encode()
_ROTATED = RecordKind.ROTATED.encode()


@dataclass(frozen=True, slots=True)
class Verification:
    """What the whole log shows.

    `faults` are `file:line: what`, at most MOST_FAULTS and one that counts the rest; `head` is the
    last record; `unanchored` counts records after the anchor (a crash, or a writer at work);
    `torn_bytes` is an unfinished last line, which the next start seals; `compared` counts the anchors
    (the store's not among them) whose record was there to be compared.
    """

    ok: bool
    records: int
    faults: tuple[str, ...]
    head: Head | None
    unanchored: int = 0
    torn_bytes: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class Anchors:
    """Heads that were kept elsewhere, by their numbers; `where` is how a fault calls the place."""

    heads: Mapping[int, str]
    where: str


class ChainCheck:
    """The state of one walk along the chain."""

    __slots__ = (
        "anchor",
        "anchors",
        "bad",
        "compared",
        "extra",
        "faults",
        "file",
        "first",
        "head",
        "line",
        "oldest",
        "records",
        "stops",
        "torn",
    )

    def __init__(self, anchor: Head | None, anchors: Anchors | None = None) -> None:
        self.anchor = anchor
        self.anchors = anchors or Anchors({}, "")
        self.stops = {*self.anchors.heads, *(() if anchor is None else (anchor.seq,))}
        self.compared = 0
        self.faults: list[str] = []
        self.extra = 0
        self.file = CURRENT_NAME
        self.line = 0
        self.records = 0
        self.head: Link | None = None
        self.first: int | None = None
        self.oldest = 1
        self.bad: Region | None = None
        self.torn = 0

    def begin(self, name: str) -> None:
        """Start the next file."""
        self._end_region()
        self.file = name
        self.line = 0

    def damaged(self, what: str) -> None:
        """Report what of this file can't be read at all; the chain goes on in the next one."""
        self._end_region()
        self._fault(f"{self.file}:{self.line + 1}: {what}")

    def take_all(self, lines: list[bytes], *, whole: bool) -> None:
        """Look at the next lines, given without their newlines; `whole` tells whether they had them."""
        done = 0
        while done < len(lines):
            if self.bad is None and self.head is not None:
                count, self.head = sound_run(self.head, islice(lines, done, None), self.stops)
                done, self.line, self.records = done + count, self.line + count, self.records + count
            if done < len(lines):
                self.take(lines[done], whole=whole)
                done += 1

    def take(self, text: bytes, *, whole: bool) -> None:
        """Look at the next line, given without its newline; `whole` tells whether it had one."""
        self.line += 1
        link = link_of(text)
        if link is None or link.fault is not None:
            self.bad = self.bad or Region()
            what = LineFault.NO_RECORD if link is None or link.fault is None else link.fault
            self.bad.take(text, f"{self.file}:{self.line}: {what}", link)
            self.bad.open_end = not whole
            return
        if self.bad is not None and not self._is_sealed(text, link):
            self._end_region()
        self.bad = None
        self._follow(text, link)

    def _is_sealed(self, text: bytes, link: Link) -> bool:
        """Tell whether this record seals the bad lines before it, to the byte."""
        region = self.bad
        if region is None or kind_of(text) != _SEALED or (self.head and link.prev != self.head.hash):
            return False
        stated = (noted(text, TORN_BYTES_KEY), noted(text, TORN_HASH_KEY))
        return stated == (str(region.size_bytes), region.digest.hexdigest())

    def _follow(self, text: bytes, link: Link) -> None:
        """Compare a whole record with the one before it and with the anchor."""
        self.records += 1
        if self.head is None:
            self.first = link.seq
        elif link.seq != self.head.seq + 1:
            self._here(f"record {link.seq} stands after record {self.head.seq} (missing or moved)")
        elif link.prev != self.head.hash:
            self._here(f"record {link.seq} does not name the record before it (changed)")
        kind = kind_of(text)
        if kind == _BROKEN:
            self._here("the daemon found the chain broken when it went on here")
        elif kind == _ROTATED:
            self.oldest = int(noted(text, OLDEST_KEY) or self.oldest)
        self.head = link
        if self.anchor is not None and link.seq == self.anchor.seq and link.hash != self.anchor.hash:
            self._here(f"record {link.seq} is not the one that the store's anchor names (overwritten)")
        kept = self.anchors.heads.get(link.seq)
        if kept is not None:
            self.compared += 1
            if kept != link.hash:
                self._here(f"record {link.seq} is not the one that {self.anchors.where} names (overwritten)")

    def _end_region(self) -> None:
        """Report bad lines that no record seals, and go on from what the last of them claims to be."""
        region = self.bad
        if region is None:
            return
        for fault in region.faults:
            self._fault(fault)
        self.extra += region.extra
        if region.last is not None:
            if self.head is None:
                self.first = region.last.seq
            self.head = region.last
        self.bad = None

    def _here(self, what: str) -> None:
        """Keep one fault of the line that was just read."""
        self._fault(f"{self.file}:{self.line}: {what}")

    def _fault(self, text: str) -> None:
        """Keep one fault, or count it when there are too many."""
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(text)
        else:
            self.extra += 1

    def finished(self) -> Verification:
        """Return what the walk found, after the end was compared with the anchor."""
        region = self.bad
        if region is not None and region.open_end and len(region.faults) == 1 and not region.extra:
            self.torn = region.size_bytes
        else:
            self._end_region()
        seq = 0 if self.head is None else self.head.seq
        if self.anchor is not None and seq < self.anchor.seq:
            self._here(f"the log ends with record {seq}, the store knows record {self.anchor.seq} (cut)")
        newest = max(self.anchors.heads, default=0)
        if seq < newest:
            where = self.anchors.where
            self._here(f"the log ends with record {seq}, {where} knows record {newest} (cut)")
        if self.first is not None and self.first > self.oldest:
            self._here(f"records {self.oldest} to {self.first - 1} are missing at the beginning")
        faults = (*self.faults, f"and {self.extra} more faults") if self.extra else tuple(self.faults)
        ahead = 0 if self.anchor is None else max(0, seq - self.anchor.seq)
        head = None if self.head is None else self.head.head
        return Verification(not faults, self.records, faults, head, ahead, self.torn, self.compared)


class Region:
    """Adjoining lines that are no records: sealed by the record after them, or faults."""

    __slots__ = ("digest", "extra", "faults", "last", "open_end", "size_bytes")

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.extra = 0
        self.size_bytes = 0
        self.digest = hashlib.sha256()
        self.last: Link | None = None
        self.open_end = False

    def take(self, text: bytes, fault: str, link: Link | None) -> None:
        """Add one line; the newline between two lines belongs to the region, the last one does not."""
        joined = b"\n" + text if self.faults else text
        self.size_bytes += len(joined)
        self.digest.update(joined)
        self.last = link
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)
        else:
            self.extra += 1
