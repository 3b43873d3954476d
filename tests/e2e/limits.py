"""Limits of the kernel's that a running daemon or worker meets: memory, tasks, descriptors."""

import os
import resource
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rigs.simulated import wait_until

CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def limited_group(controller: str, v1_file: str, v2_file: str, limit: int) -> Iterator[Path]:
    """Make a cgroup with one limit, of either version, and remove it at the end; skip where there is none.

    Whoever is still in it then goes to its parent.
    """
    first = (CGROUPS / controller).is_dir()
    parent = CGROUPS / controller if first else CGROUPS
    folder = parent / f"reclaimerd-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            (folder / (v1_file if first else v2_file)).write_text(str(limit), encoding="ascii")
        except OSError as error:
            pytest.skip(f"no limit of {controller} can be set here: {error}")
        yield folder
    finally:
        for pid in members(folder):
            (parent / "cgroup.procs").write_text(pid, encoding="ascii")
        wait_until(lambda: not members(folder), f"{folder} is empty")
        folder.rmdir()


def members(folder: Path) -> list[str]:
    """Return the pids in a cgroup."""
    return (folder / "cgroup.procs").read_text(encoding="ascii").split()


def put_into(folder: Path, pid: int) -> None:
    """Move a process into a cgroup."""
    (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")


def oom_kills(folder: Path) -> int:
    """Return how often the kernel's out-of-memory killer ended somebody in this cgroup."""
    name = "memory.oom_control" if (folder / "memory.oom_control").exists() else "memory.events"
    rows = dict(line.split() for line in (folder / name).read_text(encoding="ascii").splitlines())
    return int(rows["oom_kill"])


@contextmanager
def no_more_descriptors(pid: int) -> Iterator[None]:
    """Let a process open nothing more than what it has open (prlimit), and take that back at the end."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(one) for one in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  # names, not paths
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
