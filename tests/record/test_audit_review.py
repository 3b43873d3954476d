"""record/audit_review and audit_index: the index finds what the scan finds, and never hides a change."""

import hashlib
import json
import os
import resource
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.record import audit_index, audit_review
from reclaimerd.record.audit_filter import Filter, keys_of
from reclaimerd.record.audit_index import INDEX_NAME, AuditIndex
from reclaimerd.record.audit_keeping import pack_full_files
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.audit_review import Found, behind_bytes, ready_index, review
from tests.builders import WALL
from tests.record.log_rig import Log, a_note
from tests.record.review_rig import GPU_A, GPU_B, append, stories

HOUR = 3600.0
FILTERS = {
    "all": (Filter(), 62),
    "incident": (Filter(incident="inc-3"), 5),
    "incident's beginning": (Filter(incident="inc-"), 0),
    "pid": (Filter(pid=103), 5),
    "pid's beginning": (Filter(pid=10), 0),
    "uid": (Filter(uid=1001), 20),
    "gpu": (Filter(gpu=GPU_B), 30),
    "gpu in an Xid's text": (Filter(gpu=GPU_A, kind="xid"), 1),
    "gpu's beginning": (Filter(gpu="gpu-BBBB"), 30),
    "rule": (Filter(rule="leak"), 60),
    "actor by name": (Filter(actor="ana"), 1),
    "actor by kind": (Filter(actor="operator"), 1),
    "actor and rule": (Filter(actor="rule", rule="leak"), 60),
    "rule of a person's name": (Filter(rule="ana"), 0),
    "action": (Filter(action="sigkill"), 24),
    "outcome": (Filter(outcome="sent"), 12),
    "end": (Filter(outcome="reclaimed"), 12),
    "kind": (Filter(kind="refused"), 12),
    "since": (Filter(since=WALL + 11 * HOUR), 12),
    "until": (Filter(until=WALL + 2 * HOUR), 5),
    "window": (Filter(since=WALL + 2 * HOUR, until=WALL + 3 * HOUR), 5),
    "text": (Filter(text="FALLEN off"), 1),
    "text that is no ASCII": (Filter(text="ÜBERGABE"), 1),
    "text of a hostile name": (Filter(text="\x1b[2J\n4243", pid=103), 5),
    "name of a field is no text": (Filter(text="policy_digest"), 0),
    "all of it": (Filter(pid=104, uid=1001, gpu=GPU_B, rule="leak", kind="outcome", outcome="sent"), 1),
    "contradiction": (Filter(pid=104, uid=1002), 0),
}


def lines(found: list[Found]) -> list[object]:
    """Return the numbers of what was found."""
    return [one.record.get("seq") for one in found]


def indexed(log: Log) -> AuditIndex:
    """Return the log's index, whole."""
    index = AuditIndex.open(log.directory, write=True)
    assert index is not None
    index.update(log.directory)
    return index


@pytest.fixture(params=["plain", "packed"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    """Return a log of 12 incidents over several files."""
    made = stories(tmp_path / "log")
    if request.param == "packed":
        pack_full_files(made.directory)
    assert len(list(made.directory.glob("audit-*"))) > 2
    return made


@pytest.mark.parametrize("name", FILTERS)
def test_index_and_scan_find_the_same(log: Log, name: str) -> None:
    """Each filter finds the same records with no index, a whole one, and one that is behind."""
    wanted, count = FILTERS[name]
    plain = list(review(log.directory, wanted, None, newest_first=False))
    assert sum(one.record["kind"] != "rotated" for one in plain) == count
    assert {one.fault for one in plain} <= {""}
    whole = indexed(log)
    for index in (whole, None):
        backwards = list(review(log.directory, wanted, index, newest_first=True))
        assert lines(backwards) == lines(plain)[::-1]
        assert list(review(log.directory, wanted, index, newest_first=False)) == plain
    append(log, a_note("later"))
    later = list(review(log.directory, wanted, whole, newest_first=True))
    assert lines(later) == lines(list(review(log.directory, wanted, None, newest_first=True)))
    whole.close()


def test_an_index_behind_is_brought_up_to_date_without_being_made_anew(log: Log) -> None:
    """Only what is new is added, also after full files were packed."""
    index = indexed(log)
    assert index.update(log.directory) == 0
    append(log, a_note("later"))
    assert index.update(log.directory) == 1
    pack_full_files(log.directory)
    assert index.update(log.directory) == 0
    assert behind_bytes(log.directory, index) == 0
    index.close()


def test_files_that_are_gone_leave_the_index(log: Log) -> None:
    """What retention removed is found no more, and its words go too."""
    index = indexed(log)
    min(log.directory.glob("audit-*")).unlink()
    assert lines(list(review(log.directory, Filter(incident="inc-1"), index, newest_first=False))) == []
    index.update(log.directory)
    count = index._connection.execute("SELECT count(*) FROM words WHERE text = 'inc-1'").fetchone()
    assert count == (0,)
    index.close()


def edited(log: Log, change: Callable[[bytes], bytes]) -> None:
    """Change the current file's bytes, as somebody with an editor would."""
    log.path.write_bytes(change(log.path.read_bytes()))


def test_an_edited_record_says_so_with_and_without_an_index(tmp_path: Path) -> None:
    """A record whose bytes changed since it was written is shown as what it is."""
    log = stories(tmp_path / "log", 2)
    index = indexed(log)
    edited(log, lambda content: content.replace(b'"action":"sigkill"', b'"action":"sigterm"', 1))
    for one in (index, None):
        found = list(review(log.directory, Filter(incident="inc-1"), one, newest_first=False))
        assert [bool(record.fault) for record in found] == [False, False, True, False, False]
        assert "edited" in found[2].fault
    index.close()


def test_a_record_written_anew_with_a_right_hash_is_noticed_by_the_index(tmp_path: Path) -> None:
    """Who computes a new hash for a changed line is betrayed by the hash that was indexed."""
    log = stories(tmp_path / "log", 2)
    index = indexed(log)
    forged = stories(tmp_path / "other", 2)
    content = forged.lines()
    target = json.loads(content[2])
    assert target["kind"] == "intent"
    body = content[2].replace(b"3 MiB/s", b"9 MiB/s")
    body = body[: body.index(b',"hash":"')]
    content[2] = b'%s,"hash":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode())
    log.put(content)
    found = list(review(log.directory, Filter(incident="inc-1"), index, newest_first=False))
    assert [one.fault for one in found] == ["", "", audit_review.CHANGED, "", ""]
    index.close()


def test_a_record_that_is_gone_from_its_place_says_so(tmp_path: Path) -> None:
    """Rubbish where a record stood is not passed over in silence."""
    log = stories(tmp_path / "log", 2)
    index = indexed(log)
    content = log.lines()
    log.put([content[0], b"x" * (len(content[1]) - 1) + b"\n", *content[2:]])
    found = list(review(log.directory, Filter(incident="inc-1"), index, newest_first=False))
    assert [one.fault for one in found] == ["", audit_review.NO_RECORD, "", "", ""]
    index.close()


def test_a_file_that_was_cut_or_written_anew_is_read_and_not_looked_up(tmp_path: Path) -> None:
    """An index whose last line is not there any more is not believed for that file."""
    log = stories(tmp_path / "log", 2)
    index = indexed(log)
    log.put(log.lines()[:5])
    found = list(review(log.directory, Filter(rule="leak"), index, newest_first=False))
    assert lines(found) == [1, 2, 3, 4, 5]
    assert index.update(log.directory) == 5
    index.close()


def test_an_unreadable_part_is_told(log: Log) -> None:
    """Where a packed block is damaged, the review says which file it could not read whole."""
    pack_full_files(log.directory)
    first = min(log.directory.glob("audit-*.gz"))
    content = bytearray(first.read_bytes())
    content[60] ^= 0xFF
    first.write_bytes(content)
    found = list(review(log.directory, Filter(), None, newest_first=True))
    assert [one.record for one in found if one.fault] == [{"file": first.name}]


@pytest.mark.parametrize("damage", [b"rubbish" * 900, b""])
def test_a_damaged_index_is_not_used_and_is_made_anew(log: Log, damage: bytes) -> None:
    """An index that is no database costs a reader nothing, and a writer makes a new one."""
    (log.directory / INDEX_NAME).write_bytes(damage)
    assert AuditIndex.open(log.directory, write=False) is None
    index = indexed(log)
    assert len(list(review(log.directory, Filter(pid=103), index, newest_first=False))) == 5
    index.close()


def test_an_index_that_breaks_under_way_loses_nothing(log: Log) -> None:
    """Where the index fails, the log itself is read."""
    index = indexed(log)
    index._connection.execute("DROP TABLE records")
    for newest_first in (True, False):
        found = list(review(log.directory, Filter(pid=103), index, newest_first=newest_first))
        assert len(found) == 5
    index._connection.execute("DROP TABLE words")
    assert len(list(review(log.directory, Filter(pid=103), index, newest_first=False))) == 5
    append(log, a_note("later"))
    with pytest.raises(RecordError, match="index"):
        index.update(log.directory)
    index.close()


def test_an_index_that_others_may_write_is_not_believed(log: Log) -> None:
    """Who could write the index could hide records: it is not used."""
    indexed(log).close()
    path = log.directory / INDEX_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o660)
    assert AuditIndex.open(log.directory, write=False) is None
    index = indexed(log)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    index.close()
    path.unlink()
    (log.directory / "elsewhere").write_bytes(b"precious")
    path.symlink_to(log.directory / "elsewhere")
    indexed(log).close()
    assert (log.directory / "elsewhere").read_bytes() == b"precious"


def test_small_logs_get_no_index_and_large_gaps_are_left_to_a_person(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the way only a gap is indexed that is worth it and not too large, and only by who may write."""
    ready = ready_index(log.directory, may_write=True)
    assert (ready.index, ready.behind_bytes > 0) == (None, True)
    monkeypatch.setattr(audit_review, "MOST_BEHIND_BYTES", 100)
    assert ready_index(log.directory, may_write=False).index is None
    assert ready_index(log.directory, may_write=True, at_most=200).index is None
    assert not (log.directory / INDEX_NAME).exists()
    ready = ready_index(log.directory, may_write=True)
    assert ready.index is not None
    assert ready.behind_bytes == 0
    ready.index.close()


def test_an_index_of_another_schema_is_made_anew(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version's index is not guessed at."""
    indexed(log).close()
    monkeypatch.setattr(audit_index, "SCHEMA", 99)
    assert AuditIndex.open(log.directory, write=False) is None


def test_a_busy_index_is_no_fault(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody else writes the index, the log is read."""
    indexed(log).close()
    append(log, a_note("later"))
    monkeypatch.setattr(audit_review, "MOST_BEHIND_BYTES", 0)
    other = sqlite3.connect(log.directory / INDEX_NAME, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    ready = ready_index(log.directory, may_write=True)
    found = list(review(log.directory, Filter(pid=103), ready.index, newest_first=False))
    assert len(found) == 5
    if ready.index is not None:
        ready.index.close()
    other.close()


def test_a_full_disk_costs_the_index_and_not_the_review(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first index of a log can't be made, the log is read, and whoever asks for one is told why."""
    monkeypatch.setattr(audit_review, "MOST_BEHIND_BYTES", 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file grows, as on a full disk
    try:
        ready = ready_index(log.directory, may_write=True)
        found = list(review(log.directory, Filter(pid=103), ready.index, newest_first=False))
        (log.directory / INDEX_NAME).unlink(missing_ok=True)
        with pytest.raises(RecordError, match="the log is not concerned"):
            AuditIndex.open(log.directory, write=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(found) == 5


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_reader_of_the_group_uses_the_index_and_writes_nothing(log: Log) -> None:
    """Whoever may read the log, but not write beside it, is served by what root made."""
    indexed(log).close()
    for path in (*log.directory.parents, log.directory):
        if str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    for path in log.directory.iterdir():
        path.chmod(0o644)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            index = AuditIndex.open(log.directory, write=False)
            found = list(review(log.directory, Filter(pid=103), index, newest_first=True))
            code = 0 if index is not None and len(found) == 5 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_keys_of_rubbish_are_empty() -> None:
    """Whatever a forged record holds, nothing raises, and nothing is found by it."""
    rubbish = {
        "at": 5, "kind": ["x"], "incident": {}, "actor": "x", "target": {"root": 3, "members": {"a": 1},
        "gpus": [7, "GPU-1"], "uid": True + 2**40}, "outcome": {"targets": "x", "kind": None}, "end": 3,
        "refusals": [1, {"gpu": 4, "processes": [{"pid": "x"}]}], "evidence": [None, 3], "reason": None,
    }  # fmt: skip
    keys = keys_of(rubbish)
    assert (keys.at, keys.uid, keys.kind, keys.pids, keys.gpus) == (None, None, "", "", " GPU-1 ")
    assert Filter().takes(rubbish)
    assert not Filter(since=0.0).takes(rubbish)


def test_holding_passes_lines_by_unparsed(log: Log) -> None:
    """Only lines with the bytes are parsed."""
    found = list(read_records(log.directory, holding=b'"incident":"inc-7"'))
    assert [record["incident"] for record in found] == ["inc-7"] * 5
