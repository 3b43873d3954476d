"""Proc files that stay open: each read is new, a life that is over can't be read, and they are bounded."""

import os
import signal
from pathlib import Path

import pytest

from reclaimerd.observe import open_processes
from reclaimerd.observe.open_processes import OpenProcesses, open_process, read_now
from reclaimerd.observe.processes import ProcessReader
from tests.rigs.proc_children import script

pytestmark = pytest.mark.process

SLEEP = "\nimport signal\nready()\nsignal.pause()\n"
RENAMES = """
import ctypes, signal
signal.signal(signal.SIGUSR1, lambda *_: (ctypes.CDLL(None).prctl(15, b'renamed', 0, 0, 0), ready()))
ready()
while True:
    signal.pause()
"""
ROOT = b"/proc/"


def open_descriptors() -> int:
    """Return how many descriptors we have open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_each_read_of_an_open_file_says_what_is_true_now() -> None:
    """A process that changes its name is seen with the new one through the same descriptors."""
    with script(RENAMES) as pid:
        reader = ProcessReader()
        before = reader.look(pid, whole=False).reading
        os.kill(pid, signal.SIGUSR1)
        tries = 100_000
        while reader.look(pid, whole=False).reading.comm == before.comm and tries:
            tries -= 1
        after = reader.look(pid, whole=False).reading
        assert after.comm == "renamed"
        assert after.ref == before.ref


def test_a_life_that_is_over_raises_and_leaves_no_descriptor() -> None:
    """Once a process is reaped its open files say so; the reader lets go of them."""
    reader = ProcessReader()
    before = open_descriptors()
    with script(SLEEP) as pid:
        reader.look(pid, whole=False)
        assert open_descriptors() > before
    with pytest.raises(ProcessLookupError):
        reader.look(pid, whole=False)
    assert open_descriptors() == before


def test_an_open_process_is_of_one_life_though_its_pid_may_be_used_again() -> None:
    """Reading a reaped process through its descriptors raises: it never shows the pid's next owner."""
    with script(SLEEP) as pid:
        opened = open_process(ROOT, pid)
        assert f"\nPid:\t{pid}\n" in read_now(opened.status, pid)
    try:
        for descriptor in (opened.stat, opened.status, opened.cgroup):
            with pytest.raises(ProcessLookupError):
                read_now(descriptor, pid)
    finally:
        opened.close()
    with pytest.raises(ProcessLookupError):
        open_process(ROOT, pid)


def test_a_process_that_can_not_be_opened_leaves_no_descriptor() -> None:
    """A failure half way closes what was opened."""
    before = open_descriptors()
    with pytest.raises(ProcessLookupError):
        open_process(ROOT, 4_194_303)
    assert open_descriptors() == before


def test_past_the_bound_the_one_used_least_recently_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of holders costs a bounded number of descriptors."""
    monkeypatch.setattr(open_processes, "MOST_OPEN", 2)
    kept = OpenProcesses()
    with script(SLEEP) as one, script(SLEEP) as two, script(SLEEP) as three:
        before = open_descriptors()
        for pid in (one, two):
            kept.keep(pid, open_process(ROOT, pid))
        assert kept.kept(one) is not None
        kept.keep(three, open_process(ROOT, three))
        assert kept.kept(two) is None
        assert (kept.kept(one) is None, kept.kept(three) is None) == (False, False)
        assert open_descriptors() == before + 2 * 4
        del kept
        assert open_descriptors() == before


def test_a_text_longer_than_one_read_comes_whole(tmp_path: Path) -> None:
    """Many groups or long cgroup paths need more than one read."""
    long = tmp_path / "long"
    long.write_text("x" * 20_000, encoding="ascii")
    descriptor = os.open(long, os.O_RDONLY)
    try:
        assert len(read_now(descriptor, 1)) == 20_000
    finally:
        os.close(descriptor)
