"""record/audit_read: each kind of tampering is found with its line; listing goes both ways."""

from pathlib import Path

import pytest

from reclaimerd.record import audit_files
from reclaimerd.record.audit_check import MOST_FAULTS
from reclaimerd.record.audit_read import current_path, read_records, verify
from reclaimerd.record.chain import Head
from tests.builders import MONO, WALL
from tests.record.log_rig import Log, a_note


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a folder for a log."""
    return Log(tmp_path / "log")


def test_an_intact_log_is_intact(log: Log) -> None:
    """Without tampering there is no fault, and every record is counted."""
    head = log.write(10)
    found = verify(log.directory, head)
    assert (found.ok, found.records, found.faults, found.head) == (True, 10, (), head)
    assert (found.unanchored, found.torn_bytes) == (0, 0)


@pytest.mark.parametrize("number", [1, 5, 10])
@pytest.mark.parametrize("anchored", [True, False])
def test_an_edit_is_found(log: Log, number: int, *, anchored: bool) -> None:
    """One changed letter is found with its file and line, first and last line too, without an anchor too."""
    head = log.write(10)
    lines = log.lines()
    lines[number - 1] = lines[number - 1].replace(b'"note"', b'"Note"', 1)
    log.put(lines)
    found = verify(log.directory, head if anchored else None)
    assert found.faults == (f"audit.jsonl:{number}: its bytes do not match its hash (edited)",)


def test_a_changed_blank_is_found(log: Log) -> None:
    """The hash is over the bytes as they stand: a blank that changes no meaning is found."""
    head = log.write(3)
    lines = log.lines()
    lines[1] = lines[1].replace(b'"kind":"note"', b'"kind": "note"')
    log.put(lines)
    assert verify(log.directory, head).faults == ("audit.jsonl:2: its bytes do not match its hash (edited)",)


def test_a_deletion_in_the_middle_is_found(log: Log) -> None:
    """A missing record is found at the line after it."""
    head = log.write(10)
    lines = log.lines()
    log.put(lines[:4] + lines[5:])
    (fault,) = verify(log.directory, head).faults
    assert fault == "audit.jsonl:5: record 6 stands after record 4 (missing or moved)"


def test_a_swap_is_found(log: Log) -> None:
    """Two records in each other's place are found."""
    head = log.write(5)
    lines = log.lines()
    lines[1], lines[2] = lines[2], lines[1]
    log.put(lines)
    found = verify(log.directory, head)
    assert found.faults[0] == "audit.jsonl:2: record 3 stands after record 1 (missing or moved)"


def test_a_doubled_record_is_found(log: Log) -> None:
    """A record that stands there twice is found."""
    head = log.write(3)
    lines = log.lines()
    log.put([*lines[:2], lines[1], lines[2]])
    assert verify(log.directory, head).faults[0].startswith("audit.jsonl:3: record 2 stands after record 2")


def test_a_record_exchanged_for_one_of_another_log_is_found(log: Log, tmp_path: Path) -> None:
    """A record whose own hash is right, but that belongs to another chain, is found at the next one."""
    head = log.write(3)
    other = Log(tmp_path / "other")
    audit = other.open()
    audit.append([a_note("forged")] * 3, wall=WALL, mono=MONO)
    audit.close()
    lines = log.lines()
    log.put([lines[0], other.lines()[1], lines[2]])
    found = verify(log.directory, head)
    assert found.faults == (
        "audit.jsonl:2: record 2 does not name the record before it (changed)",
        "audit.jsonl:3: record 3 does not name the record before it (changed)",
    )


@pytest.mark.parametrize("left", [0, 3, 9])
def test_a_cut_at_the_end_is_found_against_the_anchor(log: Log, left: int) -> None:
    """A log behind its anchor is tampering, also when nothing is left of it."""
    head = log.write(10)
    log.put(log.lines()[:left])
    found = verify(log.directory, head)
    assert not found.ok
    assert f"ends with record {left}, the store knows record 10 (cut)" in found.faults[0]


def test_a_log_ahead_of_its_anchor_is_intact(log: Log) -> None:
    """A crash between record and anchor is no tampering; how far ahead is told."""
    head = log.write(5)
    later = log.write(2, anchor=head)
    found = verify(log.directory, head)
    assert (found.ok, found.unanchored, found.head) == (True, 2, later)


def test_a_chain_written_anew_is_found_against_the_anchor(log: Log, tmp_path: Path) -> None:
    """Somebody who computes every hash again can't meet the anchor."""
    head = log.write(5)
    other = Log(tmp_path / "other")
    audit = other.open()
    audit.append([a_note("forged")] * 6, wall=WALL, mono=MONO)
    audit.close()
    log.put(other.lines())
    (fault,) = verify(log.directory, head).faults
    assert fault.startswith("audit.jsonl:5: record 5 is not the one that the store's anchor names")


def test_a_line_of_rubbish_is_found(log: Log) -> None:
    """A line that is no record and that no seal follows is a fault."""
    head = log.write(3)
    lines = log.lines()
    log.put([lines[0], b"\xff rubbish \n", b"\n", *lines[1:]])
    found = verify(log.directory, head)
    assert [fault.split(": ")[0] for fault in found.faults] == ["audit.jsonl:2", "audit.jsonl:3"]


def test_an_unknown_schema_is_found(log: Log) -> None:
    """A record of a newer version is said to be one, not called edited."""
    head = log.write(1)
    log.put([log.lines()[0].replace(b'"schema":1', b'"schema":2')])
    assert "its schema is not known" in verify(log.directory, head).faults[0]


def test_faults_are_bounded(log: Log) -> None:
    """A log of nothing but rubbish gives a bounded report that counts the rest."""
    log.directory.mkdir()
    log.put([b"rubbish\n"] * (MOST_FAULTS + 50))
    found = verify(log.directory, None)
    assert len(found.faults) == MOST_FAULTS + 1
    assert found.faults[-1] == "and 50 more faults"


def test_an_endless_line_costs_bounded_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than any record is read in pieces and is a fault."""
    monkeypatch.setattr(audit_files, "MOST_LINE_BYTES", 1000)
    head = log.write(2)
    log.put([*log.lines(), b"x" * 5500 + b"\n"])
    assert not verify(log.directory, head).ok


def test_tampering_in_a_full_file_names_that_file(tmp_path: Path) -> None:
    """The fault names the file it is in."""
    log = Log(tmp_path / "log", file_bytes=1500)
    head = log.write(12)
    first = log.directory / "audit-000000000001.jsonl"
    first.write_bytes(first.read_bytes().replace(b"note 1", b"note X", 1))
    assert verify(log.directory, head).faults[0].startswith("audit-000000000001.jsonl:2: ")


def test_a_missing_full_file_is_found(tmp_path: Path) -> None:
    """A file removed from the middle is a gap in the chain."""
    log = Log(tmp_path / "log", file_bytes=1500)
    head = log.write(20)
    sorted(log.directory.glob("audit-*.jsonl"))[1].unlink()
    assert "missing or moved" in verify(log.directory, head).faults[0]


def test_no_log_is_empty_and_only_an_anchor_makes_it_a_fault(tmp_path: Path) -> None:
    """Where nothing was written nothing is wrong, unless the store knows better."""
    assert verify(tmp_path / "none", None).ok
    assert not verify(tmp_path / "none", Head(1, "0" * 64)).ok
    assert list(read_records(tmp_path / "none", newest_first=True)) == []
    assert not (tmp_path / "none").exists()


def test_reading_changes_nothing(log: Log) -> None:
    """Verify and list leave bytes, names and times as they were."""
    head = log.write(4)
    log.put([*log.lines(), b"torn"])
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.directory.iterdir()}
    verify(log.directory, head)
    list(read_records(log.directory))
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.directory.iterdir()}
    assert after == before


@pytest.mark.parametrize("block", [7, 300, 64 * 1024])
def test_both_directions_give_the_same_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Newest first is exactly the other way round, across files and whatever the block size."""
    monkeypatch.setattr(audit_files, "BLOCK_BYTES", block)
    log = Log(tmp_path / "log", file_bytes=1500)
    head = log.write(12)
    forwards = list(read_records(log.directory))
    assert [record["seq"] for record in forwards] == list(range(1, head.seq + 1))
    assert list(read_records(log.directory, newest_first=True)) == forwards[::-1]


def test_limit_and_condition(log: Log) -> None:
    """The limit counts what the condition takes."""
    log.write(10)
    odd = read_records(
        log.directory, newest_first=True, limit=2, where=lambda record: int(str(record["seq"])) % 2 == 1
    )
    assert [record["seq"] for record in odd] == [9, 7]
    assert list(read_records(log.directory, limit=0)) == []


def test_current_path_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The path that `audit path` prints is absolute."""
    monkeypatch.chdir(tmp_path)
    assert current_path(Path("log")) == tmp_path / "log" / "audit.jsonl"
