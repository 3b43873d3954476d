"""The signs of real processes: what they moved, whom they talk to, what they run, whose children they are."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.process import Connection
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.observe import program_signs
from reclaimerd.observe.program_signs import SignReader, SignsOf
from tests.rigs.proc_children import script

pytestmark = pytest.mark.process

PAUSE = "\nimport signal\nready()\nsignal.pause()\n"
CONNECTS = """
import socket
mine = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
"""


def start_of(pid: int) -> int:
    """Return a process's start ticks."""
    return parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")).start_ticks


def read(pid: int, reader: SignReader | None = None) -> SignsOf:
    """Read a process's signs, by a fresh reader unless one is given."""
    return (reader or SignReader()).read(pid, start_of(pid))


def connections_of(pid: int) -> tuple[Connection, ...]:
    """Return the other ends of a process's connections."""
    found = read(pid).signs.connections
    assert isinstance(found, Known), found
    return found.value


@contextmanager
def listener(family: int = socket.AF_INET, address: str = "127.0.0.1") -> Iterator[int]:
    """Listen on a port of the loopback device, and take whoever comes."""
    with socket.create_server((address, 0), family=family, backlog=512) as server:
        yield server.getsockname()[1]


@contextmanager
def program(source: str, folder: Path) -> Iterator[int]:
    """Run a copy of a real program from a file of our own."""
    path = folder / "program"
    shutil.copy(source, path)
    with subprocess.Popen([str(path), "600"], stdin=subprocess.PIPE) as child:
        try:
            yield child.pid
        finally:
            child.kill()
            child.wait(10)


def test_what_a_process_reads_and_writes_counts_up() -> None:
    """A megabyte read is a megabyte more; nothing read is hardly any more."""
    body = "\nwith open('/dev/zero', 'rb') as zero: zero.read(1 << 20)\n"
    with script(PAUSE) as quiet, script(body + PAUSE) as busy:
        few, much = read(quiet).signs.io_bytes, read(busy).signs.io_bytes
        assert isinstance(few, Known)
        assert isinstance(much, Known)
        assert 1 << 20 <= much.value - few.value < 2 << 20


def test_a_real_connection_is_seen_by_its_remote_end() -> None:
    """Of the process that has the socket open, and of no other; when it closes it is gone."""
    with listener() as port:
        with script(CONNECTS + PAUSE, "127.0.0.1", str(port), "1") as miner, script(PAUSE) as other:
            assert connections_of(miner) == (Connection("127.0.0.1", port),)
            assert connections_of(other) == ()
        with script(CONNECTS + "\nmine[0].close()\n" + PAUSE, "127.0.0.1", str(port), "1") as closed:
            assert connections_of(closed) == ()


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_a_connection_over_ipv6_is_seen() -> None:
    """By the second table."""
    with listener(socket.AF_INET6, "::1") as port, script(CONNECTS + PAUSE, "::1", str(port), "1") as miner:
        assert connections_of(miner) == (Connection("::1", port),)


@pytest.mark.parametrize(
    ("bound", "why"),
    [("MOST_SOCKETS", "sockets"), ("MOST_DESCRIPTORS", "descriptors"), ("MOST_LINES", "network")],
)
def test_too_many_are_unreadable_and_never_half_a_list(
    bound: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past each bound the connections are unreadable; all else is read."""
    monkeypatch.setattr(program_signs, bound, 2)
    with listener() as port, script(CONNECTS + PAUSE, "127.0.0.1", str(port), "4") as miner:
        found = read(miner).signs
        assert isinstance(found.connections, Unreadable)
        assert why in found.connections.why
        assert isinstance(found.io_bytes, Known)


def test_a_programs_hash_is_that_of_its_file(tmp_path: Path) -> None:
    """SHA-256 of the very file, which is named; a deleted file is hashed all the same."""
    with program("/bin/sleep", tmp_path) as pid:
        file = tmp_path / "program"
        expected = Known(hashlib.sha256(file.read_bytes()).hexdigest())
        found = read(pid)
        assert found.signs.sha256 == expected
        assert found.file == FileIdentity(file.stat().st_dev, file.stat().st_ino)
        file.unlink()
        assert read(pid).signs.sha256 == expected


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path) -> None:
    """A second look reads nothing of it; a file changed since, in content or owner, is read anew."""
    reader, slices = SignReader(), list[int]()
    with program("/bin/sleep", tmp_path) as pid:
        for _ in range(2):
            reader.read(pid, start_of(pid), lambda: slices.append(pid))
        assert len(slices) == 1
        os.utime(tmp_path / "program", (1, 1))
        reader.read(pid, start_of(pid), lambda: slices.append(pid))
        assert len(slices) == 2


def test_a_large_program_and_a_slow_disk_are_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the size nothing is read; past the time it is given up, and not begun again for a while."""
    now, slices = [0.0], list[float]()
    reader = SignReader(clock=lambda: now[0])

    def slow() -> None:
        slices.append(now[0])
        now[0] += 3.0

    with program(sys.executable, tmp_path) as pid:
        monkeypatch.setattr(program_signs, "_SLICE_BYTES", 4096)
        late = reader.read(pid, start_of(pid), slow).signs.sha256
        assert isinstance(late, Unreadable)
        assert "longer than 5 s" in late.why
        assert reader.read(pid, start_of(pid), slow).signs.sha256 == late
        assert len(slices) == 2
        now[0] += 700.0
        assert isinstance(reader.read(pid, start_of(pid)).signs.sha256, Known)
        monkeypatch.setattr(program_signs, "MOST_FILE_BYTES", 1 << 10)
        large = read(pid).signs.sha256
        assert isinstance(large, Unreadable)
        assert "over" in large.why


def test_a_file_that_changes_while_it_is_read_has_no_hash(tmp_path: Path) -> None:
    """Half of one content and half of another is nobody's."""
    with program("/bin/sleep", tmp_path) as pid:
        found = SignReader().read(pid, start_of(pid), lambda: os.utime(tmp_path / "program", (1, 1)))
        assert found.signs.sha256 == Unreadable("its program's file changed while it was read")


def test_parents_are_named_the_nearest_first() -> None:
    """A child of a child of ours, up to us and beyond; names that a process gave itself are printable."""
    body = (
        """
import ctypes, subprocess
ctypes.CDLL(None).prctl(15, b"jup\\x1byter", 0, 0, 0)
child = subprocess.Popen(["/bin/sleep", "600"])
print(child.pid, file=sys.stderr, flush=True)
"""
        + PAUSE
    )
    with script(body) as kernel:
        (child,) = Path(f"/proc/{kernel}/task/{kernel}/children").read_text(encoding="ascii").split()
        try:
            found = read(int(child)).signs.ancestors
        finally:
            os.kill(int(child), signal.SIGKILL)
        ours = Path("/proc/self/comm").read_text(encoding="utf-8").strip()
        assert found[:2] == ("jup\\x1byter", ours)
        assert len(found) <= program_signs.MOST_ANCESTORS


def test_nobody_else_is_read_under_its_pid() -> None:
    """A process that is gone, or one that started at another time, has no signs."""
    with script(PAUSE) as pid:
        started = start_of(pid)
        with pytest.raises(ProcessLookupError):
            SignReader().read(pid, started + 1)
    with pytest.raises(ProcessLookupError):
        SignReader().read(pid, started)


def test_a_kernel_thread_has_no_program() -> None:
    """Its file is unreadable, and that is no error of the reading."""
    found = next(
        (int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and _is_kernel_thread(one)),
        None,
    )
    if found is None:
        pytest.skip("no kernel thread is seen from here")
    signs = read(found)
    assert isinstance(signs.signs.sha256, Unreadable)
    assert signs.file is None


def _is_kernel_thread(folder: Path) -> bool:
    try:
        return (
            parse_stat((folder / "stat").read_text(encoding="utf-8", errors="replace")).flags & 0x200000 != 0
        )
    except OSError:
        return False
