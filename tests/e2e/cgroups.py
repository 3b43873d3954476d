"""Real cgroups for workloads: made by root, named as a runtime names them, removed at the end."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.observe.peers import cgroup_root
from tests.rigs.simulated import wait_until


@contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """Make a cgroup v2 of root's and remove it at the end; skip where there is none."""
    try:
        folder = cgroup_root("") / name
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup v2 can be made here: {error}")
    try:
        yield folder
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")
        folder.rmdir()


def container() -> str:
    """Return a directory's name as a container runtime makes it."""
    return f"docker-{secrets.token_hex(32)}.scope"


def moved(folder: Path, pid: int) -> int:
    """Move a process into a cgroup."""
    (folder / "cgroup.procs").write_text(str(pid))
    return pid
