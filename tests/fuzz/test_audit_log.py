"""Whoever changes a byte of the audit log: the check says so, and no reader breaks on it."""

import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from reclaimerd.errors import ReclaimerdError
from reclaimerd.record.audit_anchors import read_anchors
from reclaimerd.record.audit_filter import Filter
from reclaimerd.record.audit_follow import Follower
from reclaimerd.record.audit_keeping import pack_full_files
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.audit_review import review
from reclaimerd.record.audit_stats import Statistics
from reclaimerd.record.chain import Head
from tests.fuzz.strategies import payloads
from tests.record.log_rig import Log

RECORDS = 12
CI_EXAMPLES = 200
NIGHTLY_EXAMPLES = 2000
HOUSE = (OSError, ReclaimerdError)
"""What a reader may raise: both end a command with a sentence."""


@contextmanager
def a_log(*, compress: bool) -> Iterator[tuple[Log, Head, dict[str, bytes]]]:
    """Yield a log of several files, its head, and what its files hold."""
    with tempfile.TemporaryDirectory(prefix="fuzz-audit-") as folder:
        log = Log(Path(folder) / "log", file_bytes=1200)
        head = log.write(RECORDS)
        if compress:  # here, and not by the log's own thread, whose end nobody tells
            pack_full_files(log.directory)
            assert not any(log.directory.glob("audit-*.jsonl"))
        yield log, head, files_of(log.directory)


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the content of each file of a log that has records in it."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("audit*.jsonl*"))}


def records_in(files: dict[str, bytes]) -> list[bytes]:
    """Return the lines that stand in a log's plain files, in order; the last newline is no record."""
    return [line for _, content in sorted(files.items()) for line in content.split(b"\n") if line]


def read_every_way(directory: Path) -> None:
    """Read the log as each command does; only an error of the house may come of it."""
    statistics, follower = Statistics(), Follower(directory)
    try:
        for record in (*read_records(directory), *read_records(directory, newest_first=True)):
            statistics.take(record)
        list(review(directory, Filter(), None, newest_first=True))
        list(follower.news())
    except HOUSE:
        return
    finally:
        follower.close()


def changes(files: dict[str, bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    """Return one file's name and what somebody made of it: bent bytes, lines moved, doubled or taken out."""

    @st.composite
    def changed(draw: st.DrawFn) -> tuple[str, bytes]:
        name = draw(st.sampled_from(sorted(files)))
        if draw(st.booleans()):
            return name, draw(payloads(files[name]).drawn)
        lines = files[name].splitlines(keepends=True)
        return name, b"".join(draw(st.lists(st.sampled_from(lines), max_size=len(lines) + 1)))

    return changed()


def attack(examples: int, *, compress: bool, number: int | None = None) -> int:
    """Change one file in so many ways; return how many were found out."""
    found_out = 0
    with a_log(compress=compress) as (log, head, files):
        assert verify(log.directory, head).ok

        @settings(max_examples=examples, derandomize=number is None, suppress_health_check=list(HealthCheck))
        @given(changes(files))
        def one(change: tuple[str, bytes]) -> None:
            nonlocal found_out
            name, content = change
            path = log.directory / name
            path.write_bytes(content)
            try:
                found = verify(log.directory, head)
                sound = found.ok and not found.torn_bytes and not found.unanchored
                read_every_way(log.directory)
            except HOUSE:
                sound = False
            finally:
                path.write_bytes(files[name])
            found_out += not sound
            if sound:
                assert same_records(files, name, content), (name, content)

        (one if number is None else seed(number)(one))()
        assert files_of(log.directory) == files
    return found_out


def same_records(files: dict[str, bytes], name: str, content: bytes) -> bool:
    """Tell whether a changed file still says the same: all but the newline after the last record."""
    if files[name] == content:
        return True
    return name == "audit.jsonl" and records_in({name: content}) == records_in({name: files[name]})


@pytest.mark.parametrize("compress", [False, True])
def test_no_changed_log_passes_and_no_reader_breaks(*, compress: bool) -> None:
    """Bent bytes, moved, doubled and missing lines, in plain and in packed files."""
    assert attack(CI_EXAMPLES, compress=compress) > CI_EXAMPLES // 2


def test_each_byte_counts() -> None:
    """One bit turned, at every place of every file: found each time."""
    with a_log(compress=False) as (log, head, files):
        for name, content in files.items():
            for at in range(0, len(content) - 1, 7):
                turned = bytearray(content)
                turned[at] ^= 1 << at % 8
                (log.directory / name).write_bytes(turned)
                assert not verify(log.directory, head).ok, (name, at)
            (log.directory / name).write_bytes(content)
        assert verify(log.directory, head).ok


def test_no_file_of_anchors_breaks_the_check() -> None:
    """Bent anchors: heads, or an error of the house; never a head that no line names."""
    with tempfile.TemporaryDirectory(prefix="fuzz-anchors-") as folder:
        path = Path(folder) / "anchors.jsonl"
        log = Log(Path(folder) / "log", anchor_file=str(path))
        log.write(4)
        whole = path.read_bytes()

        @settings(max_examples=CI_EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(payloads(whole).drawn)
        def one(content: bytes) -> None:
            path.write_bytes(content)
            try:
                heads = read_anchors(path)
            except HOUSE:
                return
            assert all(head.encode() in content for head in heads.values())

        one()


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_changed_log_of_five_minutes_passes() -> None:
    """The same, exploring; RECLAIMERD_SEED goes the same way again, RECLAIMERD_FUZZ_MINUTES sets how long."""
    number = int(os.environ.get("RECLAIMERD_SEED") or random.SystemRandom().randrange(2**32))
    minutes = float(os.environ.get("RECLAIMERD_FUZZ_MINUTES") or 5)
    sys.stdout.write(f"RECLAIMERD_SEED={number}\n")  # pytest shows it where the test fails
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        assert attack(NIGHTLY_EXAMPLES, compress=rounds % 2 == 0, number=number + rounds)
        rounds += 1
