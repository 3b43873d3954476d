"""record/audit: what was acknowledged stays, what a crash left is sealed, the chain crosses files."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record import audit as audit_module
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.chain import Head
from tests.builders import BOOT, MONO, OPERATOR, WALL, a_target
from tests.record.log_rig import Log, a_note

ROOT = Path(__file__).resolve().parents[2]


def kinds(log: Log) -> list[object]:
    """Return each record's kind, oldest first."""
    return [record["kind"] for record in read_records(log.directory)]


def test_a_line_has_its_fields_and_its_hash_last(tmp_path: Path) -> None:
    """A line names schema, place, times, host and the entry; the hash is over the bytes before it."""
    log = Log(tmp_path / "log")
    audit = log.open()
    entry = AuditEntry(
        RecordKind.INTENT,
        incident=IncidentId("inc-1"),
        attempt=AttemptId("try-1"),
        actor=OPERATOR,
        action="sigterm",
        target=a_target(),
        evidence=("odd \x1b[31m text", "\udcff"),
    )
    head = audit.append([entry], wall=WALL, mono=MONO)
    audit.close()
    (line,) = log.lines()
    record = json.loads(line)
    assert list(record)[:8] == ["schema", "seq", "prev", "at", "mono", "boot", "host", "kind"]
    assert list(record)[-1] == "hash"
    assert record["at"] == "2027-01-15T08:00:00.000000Z"
    assert (record["boot"], record["mono"], record["prev"]) == (BOOT, MONO, "0" * 64)
    assert record["target"]["root"]["pid"] == 100
    assert "refusals" not in record
    assert "outcome" not in record
    body = line[: line.index(b',"hash":')]
    assert hashlib.sha256(body).hexdigest() == record["hash"] == head.hash
    assert b"\x1b" not in line


def test_files_are_closed_to_others(tmp_path: Path) -> None:
    """The directory is 0750 and the file 0640, whatever the umask."""
    log = Log(tmp_path / "log")
    log.write(1)
    assert log.directory.stat().st_mode & 0o777 == 0o750
    assert log.path.stat().st_mode & 0o777 == 0o640


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="chown needs root")
def test_files_belong_to_the_group(tmp_path: Path) -> None:
    """Directory and file belong to the group that was named."""
    log = Log(tmp_path / "log")
    settings = AuditSettings(file_bytes=1000)
    audit = audit_module.Audit.open(log.directory, boot_id=BOOT, settings=settings, anchor=None, gid=4321)
    audit.close()
    assert log.directory.stat().st_gid == log.path.stat().st_gid == 4321


def test_a_batch_is_one_write_and_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many entries cost one fdatasync, and each has its own place in the chain."""
    log = Log(tmp_path / "log")
    audit = log.open()
    syncs: list[int] = []
    real = os.fdatasync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    head = audit.append([a_note(str(number)) for number in range(5)], wall=WALL, mono=MONO)
    audit.close()
    assert (head.seq, len(syncs)) == (5, 1)
    assert verify(log.directory, head).records == 5


def test_rotation_keeps_the_chain_and_names_files_by_their_first_record(tmp_path: Path) -> None:
    """Full files are put aside under their first number; the whole still verifies."""
    log = Log(tmp_path / "log", file_bytes=3000)
    head = log.write(30)
    names = sorted(path.name for path in log.directory.glob("audit-*.jsonl"))
    assert len(names) > 2
    for name in names:
        first = json.loads((log.directory / name).read_bytes().splitlines()[0])
        assert name == f"audit-{first['seq']:012d}.jsonl"
    found = verify(log.directory, head)
    assert (found.ok, found.faults, found.head, found.records) == (True, (), head, head.seq)
    assert all(path.stat().st_size <= 3000 for path in log.directory.glob("audit*.jsonl"))


def test_old_files_go_and_the_log_says_from_where_it_keeps(tmp_path: Path) -> None:
    """Past the number to keep the oldest goes, which is no fault; one that somebody removed is."""
    log = Log(tmp_path / "log", file_bytes=1500, keep_files=2)
    head = log.write(30)
    assert len(list(log.directory.glob("audit-*.jsonl"))) == 2
    assert verify(log.directory, head).ok
    min(log.directory.glob("audit-*.jsonl")).unlink()
    found = verify(log.directory, head)
    assert not found.ok
    assert "missing at the beginning" in found.faults[0]


def test_a_torn_line_is_sealed_to_the_byte(tmp_path: Path) -> None:
    """What a crash cut stays, is followed by a seal that says how many bytes, and is no fault."""
    log = Log(tmp_path / "log")
    head = log.write(3)
    torn = log.lines()[-1][:50]
    log.put([*log.lines(), torn])
    assert verify(log.directory, head).torn_bytes == 50
    head = log.write(1, anchor=head)
    assert kinds(log) == ["note", "note", "note", "sealed", "note"]
    assert "50 bytes" in str(list(read_records(log.directory))[3]["reason"])
    assert torn + b"\n" in log.lines()
    assert verify(log.directory, head).faults == ()


def test_torn_bytes_that_hold_newlines_are_sealed_when_the_anchor_stands(tmp_path: Path) -> None:
    """A power cut may leave whole rubbish lines after the anchored record: sealed as one piece."""
    log = Log(tmp_path / "log")
    head = log.write(2)
    log.put([*log.lines(), b"\x00\x00\n", b"rubbish\n", b"\x00"])
    head = log.write(1, anchor=head)
    assert kinds(log) == ["note", "note", "sealed", "note"]
    assert verify(log.directory, head).faults == ()


def test_editing_what_was_sealed_is_found(tmp_path: Path) -> None:
    """A seal covers exactly the bytes that it names."""
    log = Log(tmp_path / "log")
    head = log.write(1)
    log.put([*log.lines(), b"torn bytes"])
    head = log.write(1, anchor=head)
    lines = log.lines()
    log.put([lines[0], b"TORN bytes\n", *lines[2:]])
    assert verify(log.directory, head).faults[0].startswith("audit.jsonl:2: it is no audit record")


def test_a_crash_after_the_seal_but_before_its_anchor_is_no_break(tmp_path: Path) -> None:
    """The log may be ahead of its anchor by a seal; starting again with the old anchor breaks nothing."""
    log = Log(tmp_path / "log")
    old = log.write(2)
    log.put([*log.lines(), b"torn"])
    log.write(1, anchor=old)
    head = log.write(1, anchor=old)
    assert "chain_broken" not in kinds(log)
    assert verify(log.directory, head).ok


def test_a_whole_record_without_its_newline_is_kept(tmp_path: Path) -> None:
    """A crash that cut only the newline lost nothing: the record counts and nothing is sealed."""
    log = Log(tmp_path / "log")
    log.write(2)
    log.path.write_bytes(log.path.read_bytes()[:-1])
    head = log.write(1)
    assert kinds(log) == ["note"] * 3
    assert verify(log.directory, head).ok


def test_a_log_behind_its_anchor_is_recorded_and_stays_broken(tmp_path: Path) -> None:
    """A cut log does not stop the next record, which says so; numbers never go back; verify stays broken."""
    log = Log(tmp_path / "log")
    anchor = log.write(5)
    log.put(log.lines()[:3])
    head = log.write(1, anchor=anchor)
    records = list(read_records(log.directory))
    assert [record["kind"] for record in records[3:]] == ["chain_broken", "note"]
    assert "record 5 was written" in str(records[3]["reason"])
    assert [record["seq"] for record in records[3:]] == [6, 7]
    head = log.write(1, anchor=head)
    found = verify(log.directory, head)
    assert not found.ok
    assert found.faults[0].startswith("audit.jsonl:4: ")


def test_a_log_written_anew_by_somebody_else_is_recorded(tmp_path: Path) -> None:
    """A log whose own chain is right, but is not the one that was anchored, is found and stays broken."""
    log, other = Log(tmp_path / "log"), Log(tmp_path / "other")
    anchor = log.write(5)
    other_audit = other.open()
    other_audit.append([a_note(f"forged {number}") for number in range(7)], wall=WALL, mono=MONO)
    other_audit.close()
    log.path.write_bytes(other.path.read_bytes())
    head = log.write(1, anchor=anchor)
    assert kinds(log)[-2:] == ["chain_broken", "note"]
    assert not verify(log.directory, head).ok


def test_a_missing_log_is_recorded(tmp_path: Path) -> None:
    """A removed log with an anchor left is a broken chain, not a fresh start."""
    log = Log(tmp_path / "log")
    anchor = log.write(5)
    log.path.unlink()
    head = log.write(1, anchor=anchor)
    assert kinds(log) == ["chain_broken", "note"]
    assert head.seq == 7


def test_a_crash_in_the_middle_of_rotation_goes_on(tmp_path: Path) -> None:
    """A full file that was put aside, with no new one yet, is gone on from."""
    log = Log(tmp_path / "log")
    anchor = log.write(3)
    log.path.rename(log.directory / "audit-000000000001.jsonl")
    head = log.write(1, anchor=anchor)
    assert head.seq == 4
    assert verify(log.directory, head).ok


def test_a_file_cut_while_open_is_noticed_before_the_next_record(tmp_path: Path) -> None:
    """Somebody who empties the open log does not make later records vanish or the fault go unsaid."""
    log = Log(tmp_path / "log")
    audit = log.open()
    audit.append([a_note()], wall=WALL, mono=MONO)
    os.truncate(log.path, 0)
    audit.append([a_note("after")], wall=WALL, mono=MONO)
    audit.close()
    assert kinds(log) == ["chain_broken", "note"]


def test_a_file_removed_while_open_is_written_anew(tmp_path: Path) -> None:
    """Records never go into a file that is no longer at its path."""
    log = Log(tmp_path / "log")
    audit = log.open()
    audit.append([a_note()], wall=WALL, mono=MONO)
    log.path.unlink()
    audit.append([a_note("after")], wall=WALL, mono=MONO)
    audit.close()
    assert kinds(log) == ["chain_broken", "note"]


def test_a_directory_removed_while_open_is_made_again(tmp_path: Path) -> None:
    """Somebody who removes the whole log stops no act: the next record says that the chain is broken."""
    log = Log(tmp_path / "log")
    audit = log.open()
    audit.append([a_note()], wall=WALL, mono=MONO)
    shutil.rmtree(log.directory)
    audit.append([a_note("after")], wall=WALL, mono=MONO)
    audit.close()
    assert kinds(log) == ["chain_broken", "note"]


def test_a_rotation_that_fails_half_way_is_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file that can't be made costs that record; the next one finds its way and the chain holds."""
    log = Log(tmp_path / "log", file_bytes=1000)
    audit = log.open()
    for number in range(3):
        audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)

    def fails(_folder: int, _gid: int | None) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(audit_module, "_open_current", fails)
    for _ in range(2):
        with pytest.raises(RecordError, match="no space left"):
            audit.append([a_note("lost")], wall=WALL, mono=MONO)
    monkeypatch.undo()
    head = audit.append([a_note("kept")], wall=WALL, mono=MONO)
    audit.close()
    assert (log.directory / "audit-000000000001.jsonl").exists()
    assert (verify(log.directory, head).faults, head.seq) == ((), 4)


def test_a_failed_write_leaves_nothing_and_the_next_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that the disk cut short is taken back whole; the chain goes on without a gap."""
    log = Log(tmp_path / "log")
    audit = log.open()
    audit.append([a_note("first")], wall=WALL, mono=MONO)
    before = log.path.read_bytes()

    def half(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(audit_module, "append_durably", half)
    with pytest.raises(RecordError, match="no space left"):
        audit.append([a_note("lost")], wall=WALL, mono=MONO)
    assert log.path.read_bytes() == before
    monkeypatch.undo()
    head = audit.append([a_note("second")], wall=WALL, mono=MONO)
    audit.close()
    assert (head.seq, verify(log.directory, head).ok) == (2, True)


def test_what_could_not_be_cut_back_is_cut_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When even the taking back failed, it is done first next time: no half line is built upon."""
    log = Log(tmp_path / "log")
    audit = log.open()

    def half(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[:10])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fails(_descriptor: int, _length: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(audit_module, "append_durably", half)
    monkeypatch.setattr(os, "ftruncate", fails)
    for _ in range(2):
        with pytest.raises(RecordError):
            audit.append([a_note("lost")], wall=WALL, mono=MONO)
    assert log.path.stat().st_size == 10
    monkeypatch.undo()
    head = audit.append([a_note("kept")], wall=WALL, mono=MONO)
    audit.close()
    assert (kinds(log), verify(log.directory, head).ok) == (["note"], True)


def test_links_are_refused(tmp_path: Path) -> None:
    """A link in the log's place is refused, and nothing is written behind it."""
    log = Log(tmp_path / "log")
    log.directory.mkdir()
    (tmp_path / "outside").write_text("precious")
    log.path.symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="symbolic link"):
        log.open()
    assert (tmp_path / "outside").read_text() == "precious"


def test_what_json_lacks_is_refused_whole(tmp_path: Path) -> None:
    """A time that is no number gives a RecordError, and the file is as it was."""
    log = Log(tmp_path / "log")
    audit = log.open()
    with pytest.raises(RecordError, match="can't be written as JSON"):
        audit.append([a_note()], wall=WALL, mono=float("nan"))
    audit.close()
    assert log.path.read_bytes() == b""


def killed_in_the_middle(directory: Path, rounds: int) -> dict[int, str]:
    """Kill so many writers by SIGKILL, each a little later; return every record they acknowledged."""
    acknowledged: dict[int, str] = {}
    for round_number in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.record.appender", str(directory)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        with child, child.stdout:
            seen = [child.stdout.readline() for _ in range(1 + round_number % 17)]
            child.kill()
            seen.extend(child.stdout.readlines())
        for line in seen:
            if line.endswith(b"\n"):
                seq, digest = line.split()
                acknowledged[int(seq)] = digest.decode()
    return acknowledged


@pytest.mark.process
@pytest.mark.parametrize(
    "rounds", [30, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_nothing_acknowledged_is_lost_to_kill_dash_nine(tmp_path: Path, rounds: int) -> None:
    """Writers killed in mid-append, rotation or packing: what was acknowledged stands, and all verifies."""
    directory = tmp_path / "log"
    acknowledged = killed_in_the_middle(directory, rounds)
    last = max(acknowledged)
    found = verify(directory, Head(last, acknowledged[last]))
    assert found.faults == ()
    records = {record["seq"]: record["hash"] for record in read_records(directory)}
    assert acknowledged.items() <= records.items()
