"""record/audit_anchors: each kind of tampering shows to somebody who holds only the anchor file."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reclaimerd.record import audit_anchors
from reclaimerd.record.audit_anchors import AnchorFile, MixedAnchorsError, anchor_line, read_anchors
from reclaimerd.record.audit_check import Anchors, Verification
from reclaimerd.record.audit_read import verify
from reclaimerd.record.chain import Head
from tests.builders import MONO, WALL
from tests.record.log_rig import Log, a_note

DIGEST = "ab" * 32


def anchored(tmp_path: Path, count: int = 20) -> tuple[Log, Path]:
    """Return a log whose every head was written to an anchor file, over several files."""
    anchors = tmp_path / "anchors"
    log = Log(tmp_path / "log", file_bytes=2500, anchor_file=str(anchors))
    for number in range(count):
        audit = log.open()
        audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)
        audit.close()
    return log, anchors


def compared(log: Log, anchors: Path) -> Verification:
    """Verify with nothing but the anchor file."""
    return verify(log.directory, None, Anchors(read_anchors(anchors), "the file"))


def test_each_head_stands_in_the_file_and_an_intact_log_agrees(tmp_path: Path) -> None:
    """Every anchor is compared, and a line says when, where, number and hash."""
    log, anchors = anchored(tmp_path)
    found = compared(log, anchors)
    assert (found.ok, found.faults) == (True, ())
    assert found.compared == len(read_anchors(anchors)) == 20
    assert anchors.stat().st_mode & 0o777 == 0o640
    last = json.loads(anchors.read_bytes().splitlines()[-1])
    assert found.head == Head(last["seq"], last["hash"])
    assert last["at"] == "2027-01-15T08:00:00.000Z"


def cut(lines: list[bytes]) -> list[bytes]:
    """Take the end away."""
    return lines[:-1]


def emptied(_lines: list[bytes]) -> list[bytes]:
    """Take all away."""
    return []


TAMPERING: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "cut": (cut, "(cut)"),
    "emptied": (emptied, "(cut)"),
    "edited": (lambda lines: [lines[0].replace(b'"at"', b'"aT"'), *lines[1:]], "(edited)"),
    "deleted": (lambda lines: [*lines[:1], *lines[2:]], "missing or moved"),
    "swapped": (lambda lines: [lines[1], lines[0], *lines[2:]], "missing or moved"),
    "doubled": (lambda lines: [lines[0], *lines], "missing or moved"),
    "rubbish": (lambda lines: [lines[0], b"rubbish\n", *lines[1:]], "no audit record"),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_each_kind_of_tampering_shows_to_who_holds_only_the_anchor(tmp_path: Path, kind: str) -> None:
    """A cut tail, an edit, a deletion, another order, a doubled record and rubbish are each found."""
    log, anchors = anchored(tmp_path)
    change, word = TAMPERING[kind]
    log.put(change(log.lines()))
    found = compared(log, anchors)
    assert not found.ok
    assert word in " ".join(found.faults)
    assert found.faults[0].split(":")[0] == "audit.jsonl"


def test_a_log_written_anew_whole_shows_to_who_holds_only_the_anchor(tmp_path: Path) -> None:
    """Root can compute every hash again, in log and store; only the anchor file elsewhere betrays it."""
    log, anchors = anchored(tmp_path)
    for path in log.directory.glob("audit*.jsonl"):
        path.unlink()
    new = Log(log.directory)
    audit = new.open()
    head = audit.append([a_note("forged")] * 30, wall=WALL, mono=MONO)
    audit.close()
    assert verify(log.directory, head).ok
    found = compared(log, anchors)
    assert len(found.faults) == 20
    assert "is not the one that the file names (overwritten)" in found.faults[0]


def test_the_oldest_files_may_be_gone(tmp_path: Path) -> None:
    """What retention removed can't be compared, and is no fault: the log itself says from where it keeps."""
    anchors = tmp_path / "anchors"
    log = Log(tmp_path / "log", file_bytes=1500, keep_files=2, anchor_file=str(anchors))
    for number in range(30):
        audit = log.open()
        audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)
        audit.close()
    found = compared(log, anchors)
    assert found.ok
    assert 0 < found.compared < 30


def test_lines_of_the_daemons_log_are_anchors_too(tmp_path: Path) -> None:
    """What the journal kept is taken, in either form, between other lines."""
    lines = [
        "Nov 30 14:00:00 gpu-1 reclaimerd[7]: pass_slow seconds=3.2",
        f"Nov 30 14:00:00 gpu-1 reclaimerd[7]: audit_head seq=812 hash={DIGEST}",
        json.dumps({"level": "info", "event": "audit_head", "seq": 900, "hash": DIGEST}),
        '{"seq": 901, "hash": "short"}', "[]", '{"seq": "902", "hash": 7}', "",
        f"audit_head seq=9 hash={DIGEST}ff",
        f'reclaimerd[7]: incident_opened reason="audit_head seq=999 hash={DIGEST}"',
        json.dumps({"event": "paused", "reason": f"audit_head seq=998 hash={DIGEST}"}),
        f"reclaimerd[7]: paused reason=seq=997 hash={DIGEST}",
    ]  # fmt: skip
    (tmp_path / "a").write_text("\n".join(lines))
    assert read_anchors(tmp_path / "a") == {812: DIGEST, 900: DIGEST}


def test_the_newest_anchors_are_kept_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded whatever the file's length."""
    monkeypatch.setattr(audit_anchors, "MOST_ANCHORS", 3)
    (tmp_path / "a").write_bytes(b"".join(anchor_line(Head(seq, DIGEST), WALL) for seq in range(1, 10)))
    assert list(read_anchors(tmp_path / "a")) == [7, 8, 9]


def test_a_torn_line_spoils_no_other(tmp_path: Path) -> None:
    """What a crash left of a line is closed before the next one is written."""
    path = tmp_path / "anchors"
    path.write_bytes(anchor_line(Head(1, DIGEST), WALL)[:40])
    file = AnchorFile(path)
    file.tell(Head(2, DIGEST), WALL)
    file.close(10)
    assert read_anchors(path) == {2: DIGEST}
    assert file.fault() == ""


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "missing"])
def test_what_can_t_be_written_is_told_and_holds_up_nothing(tmp_path: Path, kind: str) -> None:
    """A directory, a FIFO without a reader, a link, no folder: the record stands, the fault is told."""
    path = tmp_path / "anchors"
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            (tmp_path / "precious").write_bytes(b"precious")
            path.symlink_to(tmp_path / "precious")
        case _:
            path = tmp_path / "none" / "anchors"
    log = Log(tmp_path / "log", anchor_file=str(path))
    audit = log.open()
    head = audit.append([a_note()], wall=WALL, mono=MONO)
    audit.close()
    assert verify(log.directory, head).ok
    assert str(path) in audit.anchor_fault()
    if kind == "link":
        assert (tmp_path / "precious").read_bytes() == b"precious"


def test_it_recovers_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The fault is told once, and its end."""
    file = AnchorFile(tmp_path / "none" / "anchors")
    file._write(Head(1, DIGEST), WALL)
    file._write(Head(2, DIGEST), WALL)
    assert file.fault()
    (tmp_path / "none").mkdir()
    file._write(Head(3, DIGEST), WALL)
    assert file.fault() == ""
    told = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert told == ["audit_anchor_not_written", "audit_anchor_written_again"]


def test_a_hanging_file_holds_up_no_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the anchor's disk hangs, records go on; afterwards the newest head is written."""
    path, begun, go = tmp_path / "anchors", threading.Event(), threading.Event()
    real = audit_anchors._append

    def hangs(place: Path, line: bytes) -> None:
        begun.set()
        assert go.wait(20)
        real(place, line)

    monkeypatch.setattr(audit_anchors, "_append", hangs)
    log = Log(tmp_path / "log", anchor_file=str(path))
    audit = log.open()
    audit.append([a_note()], wall=WALL, mono=MONO)
    assert begun.wait(10)
    for _ in range(5):
        head = audit.append([a_note()], wall=WALL, mono=MONO)
    assert not path.exists()
    assert audit.anchor_fault() == ""
    monkeypatch.setattr(audit_anchors, "HANGS_SECONDS", 0.0)
    assert "has not answered" in audit.anchor_fault()
    go.set()
    audit.close()
    assert list(read_anchors(path)) == [1, head.seq]


def test_of_two_heads_with_one_number_the_first_counts(tmp_path: Path) -> None:
    """Who writes a log anew can have its heads kept too, and the one that was kept before betrays it."""
    log, anchors = anchored(tmp_path, 3)
    kept = anchors.read_bytes()
    log.path.unlink()
    audit = Log(log.directory).open()
    head = audit.append([a_note("forged")] * 3, wall=WALL, mono=MONO)
    audit.close()
    anchors.write_bytes(anchor_line(head, WALL))
    assert compared(log, anchors).ok
    anchors.write_bytes(kept + anchor_line(head, WALL))
    assert not compared(log, anchors).ok
    assert "(overwritten)" in " ".join(compared(log, anchors).faults)


def test_a_file_of_several_hosts_wants_one_of_them_named(tmp_path: Path) -> None:
    """Another host's head proves nothing of this log; a line without a host counts for each."""
    lines = [{"host": name, "seq": seq, "hash": f"{seq:064x}"} for seq, name in enumerate(("a", "b", "a"), 1)]
    lines.append({"seq": 9, "hash": DIGEST})
    path = tmp_path / "kept"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(read_anchors(path, "a")) == [1, 3, 9]
    assert list(read_anchors(path, "b")) == [2, 9]
    with pytest.raises(MixedAnchorsError, match="'a', 'b'") as raised:
        read_anchors(path)
    assert "--anchor-host" in raised.value.mend
