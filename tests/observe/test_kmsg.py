"""The kernel's log as news: only what came since our place in it, bounded, and what is missed is said."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.model.fault import KernelNews
from reclaimerd.observe import kmsg
from reclaimerd.observe.kmsg import KernelLogReader

XID = "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE"


def a_record(sequence: int, text: str = "eth0: link up", priority: int = 4) -> bytes:
    """Return one record as /dev/kmsg gives it."""
    return f"{priority},{sequence},{sequence * 1000},-;{text}\n".encode()


class FakeLog:
    """A log that gives one record at a time, from its oldest on, and then would block: as /dev/kmsg does.

    `fails` are errors that come before the next records.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *records: bytes) -> None:
        self.records = list(records)
        self.fails: list[OSError] = []
        self.next = 0
        self.opened = 0
        monkeypatch.setattr(os, "open", self._open)
        monkeypatch.setattr(os, "read", self._read)
        monkeypatch.setattr(os, "lseek", self._seek)
        monkeypatch.setattr(os, "close", lambda _descriptor: None)

    def _open(self, _path: Path, flags: int) -> int:
        assert flags & os.O_NONBLOCK
        self.next = 0
        self.opened += 1
        return 99

    def _seek(self, _descriptor: int, _offset: int, whence: int) -> int:
        assert whence == os.SEEK_END
        self.next = len(self.records)
        return 0

    def _read(self, _descriptor: int, size: int) -> bytes:
        assert size >= 8192
        if self.fails:
            raise self.fails.pop(0)
        if self.next == len(self.records):
            raise BlockingIOError
        self.next += 1
        return self.records[self.next - 1]


def test_a_first_start_begins_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stood there before never counts; what comes after does, and its number is known at once."""
    log = FakeLog(monkeypatch, a_record(4, XID), a_record(5))
    reader = KernelLogReader(None)
    assert reader.read() == KernelNews((), 5, "")
    log.records += [a_record(6), a_record(7, XID)]
    news = reader.read()
    assert [(line.seq, line.code) for line in news.xids] == [(7, 48)]
    assert (news.last_seq, news.gap) == (7, "")
    assert reader.read() == KernelNews((), 7, "")


def test_a_restart_goes_on_after_the_stored_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read twice and nothing in between is left out."""
    FakeLog(monkeypatch, a_record(4, XID), a_record(5, XID), a_record(6, XID))
    reader = KernelLogReader(5)
    news = reader.read()
    assert [line.seq for line in news.xids] == [6]
    assert (news.last_seq, news.gap) == (6, "")


def test_an_empty_log_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """None until a first record comes, which is no gap."""
    log = FakeLog(monkeypatch)
    reader = KernelLogReader(None)
    assert reader.read() == KernelNews((), None, "")
    log.records.append(a_record(900, XID))
    assert reader.read().gap == ""


def test_a_place_that_is_not_known_is_the_end_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log too long to pass over, and an error before its first new record: what stood there stays old."""
    monkeypatch.setattr(kmsg, "_MOST_OLD_RECORDS", 2)
    log = FakeLog(monkeypatch, a_record(1, XID), a_record(2, XID), a_record(3, XID))
    reader = KernelLogReader(None)
    log.fails.append(OSError(5, "Input/output error"))
    assert "could not be read" in reader.read().gap
    assert reader.read() == KernelNews((), None, "")
    assert log.opened == 2


def test_a_restart_after_records_were_overwritten_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest record is newer than our place: what was between is not known."""
    FakeLog(monkeypatch, a_record(10, XID))
    news = KernelLogReader(5).read()
    assert [line.seq for line in news.xids] == [10]
    assert news.gap == "4 records of the kernel's log were overwritten before we read them"


def test_a_log_that_ends_before_our_place_is_another_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored number from a machine's other life hides nothing that comes now."""
    log = FakeLog(monkeypatch, a_record(3), a_record(4))
    reader = KernelLogReader(900)
    news = reader.read()
    assert news.last_seq == 4
    assert "ends before the place" in news.gap
    log.records.append(a_record(5, XID))
    assert [line.seq for line in reader.read().xids] == [5]


def test_overwritten_records_are_counted_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """EPIPE between two looks: the rest is read, and the look says how much was lost."""
    log = FakeLog(monkeypatch, a_record(5))
    reader = KernelLogReader(None)
    log.fails.append(BrokenPipeError())
    log.records.append(a_record(105, XID))
    news = reader.read()
    assert [line.seq for line in news.xids] == [105]
    assert news.gap.startswith("99 records")
    assert reader.read().gap == ""


def test_one_look_is_bounded_and_the_rest_comes_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """By records and by bytes; that more waits is said, and no Xid is lost by it."""
    log = FakeLog(monkeypatch, a_record(0))
    reader = KernelLogReader(None)
    log.records += [a_record(number) for number in range(1, kmsg.MOST_RECORDS + 1)]
    log.records.append(a_record(kmsg.MOST_RECORDS + 1, XID))
    first = reader.read()
    assert (first.xids, first.last_seq) == ((), kmsg.MOST_RECORDS)
    assert (first.gap, first.more) == ("", True)
    second = reader.read()
    assert len(second.xids) == 1
    assert (second.gap, second.more) == ("", False)
    start = kmsg.MOST_RECORDS + 2
    log.records += [a_record(start + number, "x" * 8000) for number in range(100)]
    assert reader.read().more
    assert reader.read().last_seq == start + 99


def test_many_old_records_are_passed_over_in_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to our place does not count against the look's share."""
    FakeLog(monkeypatch, *(a_record(number) for number in range(20_000)), a_record(20_000, XID))
    news = KernelLogReader(19_999).read()
    assert [line.seq for line in news.xids] == [20_000]
    assert news.gap == ""


def test_a_log_longer_than_any_is_left_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a first start the end is reached by a seek when there are too many records to count."""
    monkeypatch.setattr(kmsg, "_MOST_OLD_RECORDS", 10)
    log = FakeLog(monkeypatch, *(a_record(number, XID) for number in range(30)))
    reader = KernelLogReader(None)
    assert reader.read() == KernelNews((), None, "")
    log.records.append(a_record(30, XID))
    assert [line.seq for line in reader.read().xids] == [30]


def test_a_log_that_fails_is_opened_again_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look says so, `fault` says so, and the next look goes on where we were."""
    log = FakeLog(monkeypatch, a_record(1), a_record(2))
    reader = KernelLogReader(None)
    log.fails.append(OSError(5, "Input/output error"))
    news = reader.read()
    assert "input/output error" in news.gap
    assert reader.fault
    assert reader.fileno() is None
    log.records.append(a_record(3, XID))
    news = reader.read()
    assert [line.seq for line in news.xids] == [3]
    assert (news.gap, reader.fault, log.opened) == ("", "", 2)


def test_a_first_opening_that_fails_never_reads_old_lines_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is looked for anew: lines from before our start stay out."""
    log = FakeLog(monkeypatch, a_record(1, XID), a_record(2, XID))
    log.fails.append(OSError(5, "Input/output error"))
    reader = KernelLogReader(None)
    assert reader.fault
    assert reader.read() == KernelNews((), 2, "")


def test_garbage_and_what_programs_wrote_are_no_xid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that can't be read as one is passed over; facility 1 proves nothing."""
    log = FakeLog(monkeypatch, a_record(1))
    reader = KernelLogReader(None)
    log.records += [b"\xff\xff", a_record(2, XID, priority=12), a_record(3)]
    assert reader.read() == KernelNews((), 3, "")


def test_no_log_is_said_and_raises_nothing(tmp_path: Path) -> None:
    """A machine without /dev/kmsg: the fault in words, each look has it as its gap."""
    reader = KernelLogReader(7, tmp_path / "kmsg")
    assert reader.fault == "the kernel's log can't be read: no such file or directory"
    assert reader.fileno() is None
    assert reader.read() == KernelNews((), 7, reader.fault)
    reader.close()


def test_a_log_that_is_a_plain_file_ends(tmp_path: Path) -> None:
    """The end of a file is the end of the look, and nobody waits for more."""
    path = tmp_path / "kmsg"
    path.write_bytes(b"")
    reader = KernelLogReader(None, path)
    assert reader.read() == KernelNews((), None, "")
    reader.close()
    reader.close()


@pytest.fixture
def real() -> Iterator[KernelLogReader]:
    """Give a reader of the machine's own log, at its end."""
    reader = KernelLogReader(None)
    if reader.fault:
        pytest.skip(reader.fault)
    yield reader
    reader.close()


def say(text: str) -> None:
    """Write one line into the kernel's log, as a program does; each with a rate limit of its own."""
    try:
        descriptor = os.open(kmsg.KMSG, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"the kernel's log can't be written: {error.strerror}")
    try:
        os.write(descriptor, f"<15>{text}\n".encode())
    finally:
        os.close(descriptor)


@pytest.mark.root
def test_the_real_log_gives_a_number_and_frames_nobody(real: KernelLogReader) -> None:
    """A program's line with the driver's words is read past: the number moves, no Xid comes."""
    before = real.read()
    assert before.last_seq is not None
    say("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=reclaimerd-test")
    after = real.read()
    assert after.last_seq is not None
    assert after.last_seq > before.last_seq
    assert [line for line in after.xids if "reclaimerd-test" in line.text] == []
    again = KernelLogReader(after.last_seq)
    assert again.read().gap == ""
    again.close()


@pytest.mark.slow
@pytest.mark.root
def test_a_flood_between_two_looks_is_a_gap_and_no_crash(real: KernelLogReader) -> None:
    """20,000 lines: each look reads its share and says that it may have missed something, until the end."""
    for number in range(20_000):
        say(f"reclaimerd-test flood {number:05} " + "x" * 60)
    looks = [real.read()]
    assert looks[0].gap
    while looks[-1].gap and len(looks) < 20:
        looks.append(real.read())
    assert looks[-1].gap == ""


def test_the_descriptor_wakes_a_loop() -> None:
    """What `fileno` gives can be waited on: here the real log's, which is no plain file."""
    reader = KernelLogReader(None)
    descriptor = reader.fileno()
    if descriptor is None:
        pytest.skip(reader.fault)
    assert not os.get_blocking(descriptor)
    reader.close()
    assert reader.fileno() is None
