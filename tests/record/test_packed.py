"""record/packed and audit_keeping: packed files read as they were, and a plain one goes only after that."""

import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.record import audit_keeping
from reclaimerd.record.audit_files import content_of, each_file, lines_backward, lines_forward
from reclaimerd.record.audit_keeping import pack_full_files
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.packed import BLOCK_BYTES, END_BLOCK, Packed, block_of, pack
from tests.builders import MONO, WALL
from tests.record.log_rig import Log, a_note

CHANCE = random.Random(7)  # noqa: S311 (the same each time, no secret)


def packed_file(tmp_path: Path, content: bytes) -> Path:
    """Return a packed file with this content."""
    plain, target = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(content)
    with plain.open("rb") as source, target.open("wb") as out:
        pack(source, out.fileno())
    return target


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 77])
@pytest.mark.parametrize("dense", [True, False])
def test_what_was_packed_reads_back(tmp_path: Path, size: int, *, dense: bool) -> None:
    """Any gzip reads it whole, and we any part of it, also what can't be made smaller."""
    content = CHANCE.randbytes(size) if dense else b"ab" * (size // 2) + b"c" * (size % 2)
    path = packed_file(tmp_path, content)
    assert gzip.decompress(path.read_bytes()) == content
    packed = Packed(os.open(path, os.O_RDONLY))
    assert (packed.size, packed.damage, packed.read_at(0, size + 9)) == (size, "", content)
    for _ in range(20):
        start, length = CHANCE.randrange(size + 1), CHANCE.randrange(2 * BLOCK_BYTES)
        assert packed.read_at(start, length) == content[start : start + length]
    packed.close()


@pytest.mark.parametrize("at", [3, 12, 16, 40, -60, -30])
def test_a_changed_byte_of_a_packed_file_is_damage(tmp_path: Path, at: int) -> None:
    """Whatever byte somebody changed: the file says that it is damaged, or its content is what it was."""
    content = b"".join(b"%d\n" % number for number in range(30_000))
    path = packed_file(tmp_path, content)
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x55
    path.write_bytes(whole)
    found = content_of(os.open(path, os.O_RDONLY))
    text = b"".join(line + b"\n" for _, line, whole_line in lines_forward(found) if whole_line)
    assert found.damage or text == content
    assert content.startswith(text)
    found.close()


@pytest.mark.parametrize("cut", [1, len(END_BLOCK), len(END_BLOCK) + 5])
def test_a_cut_packed_file_is_damage(tmp_path: Path, cut: int) -> None:
    """A packed file without its end says so, and what is whole of it can be read."""
    content = b"".join(b"%d\n" % number for number in range(30_000))
    path = packed_file(tmp_path, content)
    path.write_bytes(path.read_bytes()[:-cut])
    packed = Packed(os.open(path, os.O_RDONLY))
    assert packed.damage
    assert content.startswith(packed.read_at(0, len(content)))
    packed.close()


def test_a_block_holds_what_it_can(tmp_path: Path) -> None:
    """The largest block of chance bytes still fits the 16 bits of its own size."""
    assert len(block_of(CHANCE.randbytes(BLOCK_BYTES))) <= 1 << 16
    assert packed_file(tmp_path, b"").read_bytes() == END_BLOCK


@pytest.fixture
def full(tmp_path: Path) -> Log:
    """Return a log of several full files, and the current one."""
    log = Log(tmp_path / "log", file_bytes=3000)
    log.write(60)
    return log


def test_full_files_are_packed_and_nothing_is_lost(full: Log) -> None:
    """Mode, owner and time stay; records, their order and the chain are the same, in both directions."""
    before = list(read_records(full.directory))
    oldest = full.directory / "audit-000000000001.jsonl"
    oldest.chmod(0o600)
    os.utime(oldest, (1e9, 1e9))
    pack_full_files(full.directory)
    names = sorted(path.name for path in full.directory.glob("audit-*"))
    assert len(names) > 3
    assert all(name.endswith(".jsonl.gz") for name in names)
    status = (full.directory / "audit-000000000001.jsonl.gz").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o600, 1e9)
    assert list(read_records(full.directory)) == before
    assert list(read_records(full.directory, newest_first=True)) == before[::-1]
    found = verify(full.directory, None)
    assert (found.ok, found.records) == (True, len(before))
    text = subprocess.run(
        ["/usr/bin/env", "zcat", str(full.directory / names[0])], capture_output=True, check=True
    ).stdout
    assert len(text.splitlines()) == sum(1 for one in before if int(str(one["seq"])) < int(names[1][6:18]))


def test_the_writer_has_its_full_files_packed_and_pruned(tmp_path: Path) -> None:
    """After a rotation full files are packed beside the writing; those beyond the number go all the same."""
    log = Log(tmp_path / "log", file_bytes=3000, keep_files=3, compress=True)
    audit = log.open()
    for number in range(60):
        head = audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)
        if audit._upkeep._thread is not None:
            audit._upkeep._thread.join(10)
    audit.close()
    names = sorted(path.name for path in log.directory.glob("audit-*"))
    assert len(names) == 3
    assert all(name.endswith(".gz") for name in names)
    assert verify(log.directory, head).faults == ()
    head = log.write(1, anchor=head)
    assert verify(log.directory, head).faults == ()


def test_an_emptied_current_file_is_gone_on_from_a_packed_one(full: Log) -> None:
    """A start that finds its last record in a packed file goes on with the next number."""
    pack_full_files(full.directory)
    last = max(full.directory.glob("audit-*.gz"))
    full.path.unlink()
    with gzip.open(last) as stream:
        count = sum(1 for _ in stream) + int(last.name[6:18]) - 1
    assert full.write(1).seq == count + 1


def test_a_crash_between_packing_and_removing_doubles_nothing(full: Log) -> None:
    """Both forms of one file are one file, an unfinished form is swept, and the next packing mends it."""
    before = list(read_records(full.directory))
    plain = full.directory / "audit-000000000001.jsonl"
    content = plain.read_bytes()
    pack_full_files(full.directory)
    plain.write_bytes(content)
    unfinished = full.directory / ".audit-000000000001.jsonl.gz.new"
    unfinished.write_bytes(b"half")
    assert list(read_records(full.directory)) == before
    assert verify(full.directory, None).ok
    pack_full_files(full.directory)
    assert not plain.exists()
    assert not unfinished.exists()
    assert list(read_records(full.directory)) == before


def test_a_packing_that_does_not_read_back_costs_nothing(full: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """When what was written is not what was there, the plain file stays and no packed one appears."""
    before = {path.name: path.read_bytes() for path in full.directory.iterdir()}
    monkeypatch.setattr(
        audit_keeping, "pack", lambda _source, fd: os.write(fd, block_of(b"wrong") + END_BLOCK)
    )
    pack_full_files(full.directory)
    assert {path.name: path.read_bytes() for path in full.directory.iterdir()} == before


def test_without_room_nothing_is_packed(full: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records come first: where less is free than the file is large, it stays as it is."""
    real = os.fstatvfs

    def no_room(fd: int) -> os.statvfs_result:
        fields = list(real(fd))
        fields[4] = 0
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "fstatvfs", no_room)
    before = {path.name: path.read_bytes() for path in full.directory.iterdir()}
    pack_full_files(full.directory)
    assert {path.name: path.read_bytes() for path in full.directory.iterdir()} == before


def test_what_another_gzip_packed_is_read_too(full: Log) -> None:
    """An administrator's own gzip has no blocks; it reads the same, and a damaged one is a fault."""
    before = list(read_records(full.directory))
    plain = full.directory / "audit-000000000001.jsonl"
    other = plain.with_name(f"{plain.name}.gz")
    other.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert list(read_records(full.directory, newest_first=True)) == before[::-1]
    assert verify(full.directory, None).ok
    other.write_bytes(other.read_bytes()[:-20])
    fault = verify(full.directory, None).faults[0]
    assert fault.startswith("audit-000000000001.jsonl.gz:")


def test_damage_in_a_packed_file_is_a_fault_with_its_name(full: Log) -> None:
    """A block that can't be inflated is named; the rest of the log is still walked."""
    pack_full_files(full.directory)
    second = sorted(full.directory.glob("audit-*.gz"))[1]
    content = bytearray(second.read_bytes())
    content[30] ^= 0xFF
    second.write_bytes(content)
    found = verify(full.directory, None)
    assert not found.ok
    assert found.faults[0].startswith(f"{second.name}:1: the block at byte 0 can't be inflated")
    assert found.records > 20


def test_lines_meet_whatever_the_block(full: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of lines are those of the file, and backwards gives the same lines, packed or not."""
    monkeypatch.setattr("reclaimerd.record.audit_files.BLOCK_BYTES", 97)
    pack_full_files(full.directory)
    for file in each_file(full.directory):
        lines = list(lines_forward(file.content))
        assert all(file.content.read_at(place, len(line) + 1) == line + b"\n" for place, line, _ in lines)
        backwards = list(lines_backward(file.content, 0, file.content.size))
        assert backwards == [line for _, line, _ in reversed(lines)]


def test_a_file_packed_while_it_is_read_is_read_on(full: Log) -> None:
    """A reader that listed plain files finds them packed, or gone, and goes on."""
    before = list(read_records(full.directory))
    reading = read_records(full.directory)
    first = next(reading)
    pack_full_files(full.directory)
    assert [first, *reading] == before


def test_packing_needs_no_more_than_a_block(tmp_path: Path) -> None:
    """A file far larger than a block is packed and read in bounded memory."""
    log = tmp_path / "audit-000000000001.jsonl"
    with log.open("wb") as stream:
        for _ in range(64):
            stream.write(b'{"x":"' + b"y" * (1 << 20) + b'"}\n')
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from reclaimerd.record.audit_keeping import pack_full_files\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "pack_full_files(Path(sys.argv[1]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < 16 * 1024
    assert (tmp_path / "audit-000000000001.jsonl.gz").exists()
