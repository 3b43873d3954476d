"""What the daemon knows of itself, by the kernel's word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.daemon.this_host import host_name, read_ancestors, read_boot_id, read_own_ref, sees_host_pids
from tests.builders import BOOT


def test_our_own_identity_is_ours() -> None:
    """Pid and start ticks as /proc/self/stat has them (field 22)."""
    with Path("/proc/self/stat").open(encoding="utf-8") as text:
        start = int(text.read().rpartition(")")[2].split()[19])
    ref = read_own_ref(BOOT)
    assert (ref.boot_id, ref.pid, ref.start_ticks) == (BOOT, os.getpid(), start)


def test_the_boot_id_is_a_uuid_that_stays() -> None:
    """Two reads of one boot agree."""
    assert len(read_boot_id()) == 36
    assert read_boot_id() == read_boot_id()


def test_our_ancestors_go_up_to_the_root_and_leave_us_out() -> None:
    """The parent is among them, we and 0 are not."""
    found = read_ancestors(os.getpid())
    assert os.getppid() in found
    assert os.getpid() not in found
    assert 0 not in found


def test_a_process_that_is_gone_has_no_ancestors() -> None:
    """An unreadable status ends the walk."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(30)
    assert read_ancestors(child.pid) == frozenset()


def test_the_host_has_a_name() -> None:
    """The node's name goes into a drain request."""
    assert host_name()


@pytest.mark.root
@pytest.mark.process
def test_another_pid_namespace_is_recognised() -> None:
    """C29: a process in an own PID namespace does not see the host's pids."""
    code = "from reclaimerd.daemon.this_host import sees_host_pids; print(sees_host_pids())"
    told = subprocess.run(
        ["/usr/bin/unshare", "--pid", "--fork", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout.strip() == "False"
    inode = Path("/proc/self/ns/pid").stat().st_ino
    assert sees_host_pids() is (inode == 4026531836)
