"""Reads the end of an audit file: the last whole record, what a crash left after it, and the anchor.

It changes nothing. Only the end is read, since a start must not wait for a hash over the whole log:
that is `audit verify`.
"""

from dataclasses import dataclass

from reclaimerd.record.chain import Head, Link, link_of
from reclaimerd.record.packed import Content

_FIRST_WINDOW_BYTES = 256 * 1024
_LONGEST_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one file.

    `links` are the whole records at the end, newest first, back to the anchor's where it is there;
    `size_bytes` is the file's; `torn` is what stands after the last whole record; `open_end` is true
    when that record lacks only its newline.
    """

    links: tuple[Link, ...]
    size_bytes: int
    torn: bytes
    open_end: bool
    first_seq: int | None

    @property
    def head(self) -> Head | None:
        """Return the last whole record, or None when there is none."""
        return self.links[0].head if self.links else None


def read_tail(content: Content, back_to_seq: int | None) -> Tail:
    """Return the end of an audit file, back to the record `back_to_seq` (None: the last one is enough)."""
    size = content.size
    window = _FIRST_WINDOW_BYTES
    while True:
        start = max(0, size - window)
        block = content.read_at(start, size - start)
        tail = _parsed(block, size, back_to_seq, _first_seq(content))
        if start == 0 or (tail.links and (back_to_seq is None or tail.links[-1].seq <= back_to_seq)):
            return tail
        window *= 8


def _first_seq(content: Content) -> int | None:
    """Return the number of the file's first record, or None when the file does not begin with one."""
    first, newline, _ = content.read_at(0, _LONGEST_HEAD_BYTES).partition(b"\n")
    link = link_of(first) if newline else None
    if link is not None:
        return link.seq
    # A first record longer than what we read still shows its number.
    text = first.removeprefix(b'{"schema":1,"seq":').partition(b",")[0]
    return int(text) if text.isdigit() else None


def _parsed(block: bytes, size: int, back_to_seq: int | None, first_seq: int | None) -> Tail:
    """Return what the end of a file shows; lines that are no records (torn, sealed) are stepped over."""
    links: list[Link] = []
    torn_from = 0
    open_end = False
    end = len(block)
    while end > 0:
        last = block.endswith(b"\n", 0, end)
        stop = end - 1 if last else end
        begin = block.rfind(b"\n", 0, stop) + 1
        link = link_of(block[begin:stop])
        if link is not None and link.fault is None:
            if not links:
                torn_from = end
                open_end = not last
            links.append(link)
            if back_to_seq is None or link.seq <= back_to_seq:
                break
        end = begin
    return Tail(tuple(links), size, block[torn_from:], open_end, first_seq)


def broken_why(tail: Tail, anchor: Head | None, torn: bytes) -> str | None:
    """Return why the log is not the one that was written up to `anchor`, or None.

    One that is ahead of its anchor is what a crash between record and anchor leaves; one that is
    behind it was cut. Without an anchor (a new store) only whole lines that are no records show.
    `torn` is what stands after the last record, maybe in a later file than the tail's.
    """
    head = tail.head
    if anchor is None:
        return (
            "the last lines are no records, and there is no anchor to compare with" if b"\n" in torn else None
        )
    if head is None:
        return f"it holds no whole record, but record {anchor.seq} was written: emptied, moved or overwritten"
    if head.seq < anchor.seq:
        return f"it ends with record {head.seq}, but record {anchor.seq} was written: cut or overwritten"
    for newer, older in zip(tail.links, tail.links[1:], strict=False):
        if newer.prev != older.hash or newer.seq != older.seq + 1:
            return f"record {newer.seq} does not follow the one before it"
    oldest = tail.links[-1]
    joined = oldest.head == anchor or (oldest.seq == anchor.seq + 1 and oldest.prev == anchor.hash)
    return None if joined else f"record {anchor.seq} is not the one that was written: overwritten"
