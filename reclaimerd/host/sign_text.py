"""Pure parsers of what /proc says of a process's input and output, and of TCP connections.

The tables are of a whole network namespace; whose a connection is only its socket's inode tells.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.host.proc_text import is_number
from reclaimerd.model.process import Connection

_ESTABLISHED = "01"
"""TCP_ESTABLISHED (include/net/tcp_states.h)."""
_REMOTE, _STATE, _INODE = 2, 3, 9
_V4_DIGITS, _V6_DIGITS = 8, 32
_MAPPED = b"\0" * 10 + b"\xff\xff"
_SOCKET = "socket:["


@dataclass(frozen=True, slots=True)
class TcpRow:
    """One established connection: the inode of its socket (0: nobody has it any more), the other end."""

    inode: int
    remote: Connection


def parse_io(text: str) -> int:
    """Return the bytes read and written through calls (rchar and wchar of proc_pid_io(5)).

    Raises ValueError for a text that does not say both.
    """
    found = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return int(found["rchar"]) + int(found["wchar"])
    except KeyError as missing:
        raise ValueError(f"no {missing.args[0]} in the figures of its input and output") from None


def parse_tcp(text: str) -> Iterator[TcpRow]:
    """Yield the established connections of a tcp or tcp6 table (proc_pid_net(5)) and no other line."""
    for line in text.split("\n"):
        fields = line.split()
        if len(fields) <= _INODE or fields[_STATE] != _ESTABLISHED:
            continue
        remote = _remote(fields[_REMOTE])
        if remote is not None and is_number(fields[_INODE]):
            yield TcpRow(int(fields[_INODE]), remote)


def socket_inode(link: str) -> int | None:
    """Return the inode of a socket from a descriptor's link, None for a link to anything else."""
    number = link.removeprefix(_SOCKET).removesuffix("]")
    return int(number) if link.startswith(_SOCKET) and is_number(number) else None


def _remote(text: str) -> Connection | None:
    """Return address and port: 32-bit words as this machine keeps them, in hexadecimal; the port plain."""
    address, colon, port = text.partition(":")
    if not colon or len(address) not in {_V4_DIGITS, _V6_DIGITS}:
        return None
    try:
        words = [int(address[at : at + _V4_DIGITS], 16) for at in range(0, len(address), _V4_DIGITS)]
        raw, number = struct.pack(f"={len(words)}I", *words), int(port, 16)
    except (ValueError, struct.error):
        return None
    if raw.startswith(_MAPPED):
        raw = raw.removeprefix(_MAPPED)
    family = socket.AF_INET6 if len(raw) > 4 else socket.AF_INET  # noqa: PLR2004  # bytes of an IPv4 address
    return Connection(socket.inet_ntop(family, raw), number)
