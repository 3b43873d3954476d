"""The kernel's log as evidence: its own lines, the newest, bounded, and never a wait."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.observe import kernel_log
from reclaimerd.observe.kernel_log import KernelLog, read_kernel_log

HUNG = "3,9,5000000,-;INFO: task python:42 blocked for more than 120 seconds."


@contextmanager
def a_log(*records: str) -> Iterator[int]:
    """Give a descriptor that reads one record at a time and then would block, as /dev/kmsg does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.setblocking(False)
        for record in records:
            theirs.send(record.encode())
        yield ours.fileno()


def read(*records: str, most_bytes: int = 1 << 18) -> KernelLog:
    """Read a log of these records."""
    with a_log(*records) as descriptor:
        return kernel_log._read(descriptor, most_bytes)


def test_lines_that_matter_are_kept_with_what_follows_a_report() -> None:
    """A hung task's stack comes along; other lines before it do not."""
    found = read(
        "6,1,1,-;eth0: link up", HUNG, "3,10,5000001,-; schedule+0x1/0x2", "4,11,6000000,-;NVRM: Xid"
    )
    assert [line.topic for line in found.lines] == ["hung_task", "", "nvidia"]
    assert found.lines[0].at == pytest.approx(5.0)
    assert found.missing == ""


def test_what_programs_wrote_is_left_out() -> None:
    """A line with the words of the kernel, written by a program, is no evidence."""
    assert read("12,1,1,-;NVRM: Xid (PCI:0000:61:00): 79").lines == ()


def test_only_the_newest_lines_are_kept_and_that_is_said() -> None:
    """The bound holds, the oldest go first."""
    records = [f"4,{number},{number},-;NVRM: line {number:04}" for number in range(100)]
    found = read(*records, most_bytes=150)
    assert found.lines[-1].text == "NVRM: line 0099"
    assert sum(len(line.text) for line in found.lines) <= 150
    assert "only the newest" in found.missing


def test_records_that_were_overwritten_are_said_and_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """EPIPE means that records are lost; reading goes on after them."""
    faults = [BrokenPipeError()]
    real = os.read

    def once_broken(descriptor: int, size: int) -> bytes:
        if faults:
            raise faults.pop()
        return real(descriptor, size)

    with a_log(HUNG) as descriptor:
        monkeypatch.setattr(os, "read", once_broken)
        found = kernel_log._read(descriptor, 1 << 18)
    assert len(found.lines) == 1
    assert "overwritten" in found.missing


def test_no_right_or_no_log_is_said_and_raises_nothing(tmp_path: Path) -> None:
    """What can't be opened is a sentence."""
    found = read_kernel_log(tmp_path / "kmsg")
    assert found.lines == ()
    assert found.missing == "the kernel log can't be read: no such file or directory"


@pytest.mark.root
def test_the_real_log_is_read_without_a_wait_and_a_program_frames_nobody() -> None:
    """The machine's own log: it ends at once, and our line that reads like the kernel's is not in it."""
    mark = f"INFO: task reclaimerd-test:{os.getpid()} blocked for more than 120 seconds."
    try:
        with Path("/dev/kmsg").open("w", encoding="ascii") as log:
            log.write(mark)
    except OSError as error:
        pytest.skip(f"no kernel log here: {error.strerror}")
    began = time.monotonic()
    found = read_kernel_log()
    assert time.monotonic() - began < 5
    assert mark not in [line.text for line in found.lines]
