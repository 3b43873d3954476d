"""What /proc says of input, output and connections, as values; no line of it raises where it may not."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.sign_text import TcpRow, parse_io, parse_tcp, socket_inode
from reclaimerd.model.process import Connection

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
IO = "rchar: 100\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"


def words(*addresses: bytes) -> str:
    """Return an address as the kernel prints it on this machine."""
    return "".join(f"{word:08X}" for raw in addresses for word in struct.unpack(f"={len(raw) // 4}I", raw))


def row(remote: str, state: str = "01", inode: str = "777") -> str:
    """Return a line of a table."""
    queues = "00000000:00000000 00:00000000 00000000"
    return f"   0: 0100007F:1F90 {remote} {state} {queues}  1000 0 {inode} 1 0 20\n"


def test_input_and_output_are_what_calls_moved() -> None:
    """Both figures of calls are added; disk figures and others are not."""
    assert parse_io(IO) == 120


@pytest.mark.parametrize("text", ["", "rchar: 1\n", "wchar: 1\n", "rchar: x\nwchar: 1\n"])
def test_half_a_text_of_input_and_output_is_none(text: str) -> None:
    """Without both figures there is no sum."""
    with pytest.raises(ValueError, match=r"rchar|wchar|invalid"):
        parse_io(text)


def test_only_established_connections_count() -> None:
    """Listeners, closing ones, heads and broken lines are left out; address and port are the other end's."""
    four = words(socket.inet_pton(socket.AF_INET, "203.0.113.9"))
    text = HEAD + row(f"{four}:0D05") + row(f"{four}:0D05", "0A") + row(f"{four}:0D05", "06") + "junk\n\n"
    assert list(parse_tcp(text)) == [TcpRow(777, Connection("203.0.113.9", 3333))]


def test_both_families_are_read_and_a_mapped_address_is_plain() -> None:
    """An IPv6 address, and an IPv4 one that a socket of both families shows as IPv6."""
    six = words(socket.inet_pton(socket.AF_INET6, "2001:db8::7"))
    mapped = words(socket.inet_pton(socket.AF_INET6, "::ffff:203.0.113.9"))
    found = [one.remote for one in parse_tcp(row(f"{six}:1B39") + row(f"{mapped}:0D05"))]
    assert found == [Connection("2001:db8::7", 6969), Connection("203.0.113.9", 3333)]


@pytest.mark.parametrize("remote", ["0100007F", "0100007F:", "010000:1F90", "ZZ00007F:1F90", "0100007F:ZZ"])
def test_an_address_in_another_form_is_left_out(remote: str) -> None:
    """No guess is made about it."""
    assert list(parse_tcp(row(remote))) == []


@pytest.mark.parametrize(
    ("link", "inode"),
    [
        ("socket:[123]", 123),
        ("pipe:[123]", None),
        ("socket:[]", None),
        ("/socket:[1]", None),
        ("socket:[-1]", None),
    ],
)
def test_a_sockets_inode_is_in_its_link(link: str, inode: int | None) -> None:
    """Only sockets have one, and a file of that name is no socket."""
    assert socket_inode(link) == inode


@given(st.text(max_size=300))
def test_no_text_makes_the_table_raise(text: str) -> None:
    """Whatever stands there: rows or none, and never an inode without a number."""
    assert all(one.inode >= 0 for one in parse_tcp(row(text) + text))
    socket_inode(text)
