"""Full audit files packed: gzip in blocks of at most 64 KiB, each of which names its own size (BGZF).

Any gzip reads such a file; we read a line from its middle, or the whole backwards, by inflating one
block. The form is that of the SAM/BAM specification, part 4.1: gzip members with an extra field
`BC`, and an empty member at the end. It opens and removes nothing.
"""

import os
import struct
import zlib
from bisect import bisect_right
from typing import BinaryIO, Protocol

from reclaimerd.host.files import write_all

BLOCK_BYTES = 0xFF00
"""As much as a block can hold when nothing can be made smaller."""
_LEVEL = 6
_HEAD = struct.Struct("<4s6xHccHH")
_MAGIC = b"\x1f\x8b\x08\x04"
_MOST_INFLATED = 1 << 16
_GZIP = 31
"""zlib's wbits for one gzip member, its CRC and length checked."""
END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


class Content(Protocol):
    """The bytes of an audit file, packed or not."""

    @property
    def size(self) -> int:
        """Return how many bytes there are, unpacked."""
        ...

    @property
    def damage(self) -> str:
        """Return what could not be unpacked and where, or ""; what stands before it can be read."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Return these bytes; fewer at the end, or where the file is damaged."""
        ...

    def close(self) -> None:
        """Let go of the descriptor."""
        ...


class Plain:
    """A file as it lies, maybe still growing."""

    __slots__ = ("_fd", "damage")

    def __init__(self, descriptor: int, damage: str = "") -> None:
        self._fd = descriptor
        self.damage = damage

    @property
    def size(self) -> int:
        """Return its size now."""
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def read_at(self, offset: int, length: int) -> bytes:
        """Return these bytes; fewer at the end."""
        chunks: list[bytes] = []
        while length > 0 and (chunk := os.pread(self._fd, length, offset)):
            chunks.append(chunk)
            offset, length = offset + len(chunk), length - len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)


class Packed:
    """A packed file; its blocks are found by their heads, and inflated one at a time."""

    __slots__ = ("_block", "_fd", "_places", "_starts", "damage", "size")

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._starts: list[int] = []
        self._places: list[tuple[int, int]] = []
        self._block = (-1, b"")
        self.size = 0
        self.damage = self._walk()

    def _walk(self) -> str:
        """Find every block by its head; return what is wrong with the file, or ""."""
        place, end = 0, os.fstat(self._fd).st_size
        last = b""
        while place < end:
            packed = _block_bytes(os.pread(self._fd, _HEAD.size, place))
            tail = os.pread(self._fd, 4, place + packed - 4) if packed else b""
            inflated = int.from_bytes(tail, "little") if len(tail) == 4 else _MOST_INFLATED + 1  # noqa: PLR2004 (RFC 1952, ISIZE)
            if inflated > _MOST_INFLATED:
                return f"the block at byte {place} is damaged or cut"
            if inflated:
                self._starts.append(self.size)
                self._places.append((place, packed))
                self.size += inflated
            last = b"" if inflated else os.pread(self._fd, packed, place)
            place += packed
        return "" if last == END_BLOCK else "its last block is missing (cut)"

    def read_at(self, offset: int, length: int) -> bytes:
        """Return these bytes; fewer at the end, or where a block can't be inflated."""
        chunks: list[bytes] = []
        while length > 0 and offset < self.size:
            number = bisect_right(self._starts, offset) - 1
            within = offset - self._starts[number]
            chunk = self._inflated(number)[within : within + length]
            if not chunk:
                break
            chunks.append(chunk)
            offset, length = offset + len(chunk), length - len(chunk)
        return b"".join(chunks)

    def _inflated(self, number: int) -> bytes:
        """Return one block's bytes, none when it is damaged; the last one asked for is kept."""
        if self._block[0] != number:
            place, packed = self._places[number]
            try:
                content = zlib.decompress(os.pread(self._fd, packed, place), _GZIP)
            except zlib.error as error:
                self.damage = f"the block at byte {place} can't be inflated ({error})"
                content = b""
            self._block = (number, content)
        return self._block[1]

    def close(self) -> None:
        """Let go of the descriptor."""
        os.close(self._fd)


def is_packed(descriptor: int) -> bool:
    """Tell whether a file begins with a block of ours, and is not what another gzip made."""
    return _block_bytes(os.pread(descriptor, _HEAD.size, 0)) > 0


def _block_bytes(head: bytes) -> int:
    """Return the whole size of the block that begins with these bytes, 0 when none does."""
    if len(head) < _HEAD.size:
        return 0
    *field, size = _HEAD.unpack(head)
    ours = field == [_MAGIC, 6, b"B", b"C", 2]
    return size + 1 if ours and size + 1 >= len(END_BLOCK) else 0


def block_of(content: bytes) -> bytes:
    """Return one block that holds these bytes, at most BLOCK_BYTES of them."""
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(content) + deflate.flush()
    size = _HEAD.size + len(body) + 8
    head = _MAGIC + b"\0\0\0\0\0\xff" + struct.pack("<HccHH", 6, b"B", b"C", 2, size - 1)
    return head + body + struct.pack("<II", zlib.crc32(content), len(content))


def pack(source: BinaryIO, descriptor: int) -> None:
    """Write the source packed to the descriptor, its last block too; raises OSError."""
    while content := source.read(BLOCK_BYTES):
        write_all(descriptor, block_of(content))
    write_all(descriptor, END_BLOCK)
