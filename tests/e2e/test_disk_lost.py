"""A daemon whose records cannot be written: a disk of its own is full, read-only or closed."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.rig import Daemon, Json, Rig, is_alive, rule, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.process,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv", "mount"))),
        reason="a mount namespace needs root and util-linux",
    ),
]
BOUND_SECONDS = 60.0
NO_OVERRIDE = "--bounding-set=-dac_override,-dac_read_search"
"""Root without them is bound by a file's mode as anybody is."""
ON_A_DISK_OF_ITS_OWN = """
mount -t tmpfs -o size=8m,mode=0755 tmpfs "$1" && shift && exec setpriv "$0" "$@"
"""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk as the daemon sees it: its state and log lie there, and nobody else has it mounted."""

    mounted_at: Path
    daemon: Daemon

    @property
    def seen(self) -> Path:
        """Return its folder, through the daemon's own root."""
        return Path(f"/proc/{self.daemon.process.pid}/root{self.mounted_at}")

    def run(self, *words: str) -> None:
        """Run a program where the daemon's mounts are."""
        nsenter = ["nsenter", f"--mount=/proc/{self.daemon.process.pid}/ns/mnt", *words]
        subprocess.run(nsenter, check=True, timeout=30)


@contextmanager
def full(disk: Disk) -> Iterator[None]:
    """Leave no free block."""
    filler = disk.seen / "filler"
    with filler.open("wb", buffering=0) as stream:
        size = 65536
        while size:
            try:
                stream.write(b"\0" * size)
            except OSError:
                size //= 2
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Disk) -> Iterator[None]:
    """Put a disk that nobody may write in the log's place."""
    log = str(disk.mounted_at / "log")
    disk.run("mount", "-t", "tmpfs", "-o", "ro,mode=0755", "tmpfs", log)
    try:
        yield
    finally:
        disk.run("umount", log)


@contextmanager
def forbidden(disk: Disk) -> Iterator[None]:
    """Give the log's folder to somebody else."""
    log = disk.seen / "log"
    before = log.stat()
    os.chown(log, 65534, 65534)
    log.chmod(0o700)
    try:
        yield
    finally:
        os.chown(log, before.st_uid, before.st_gid)
        log.chmod(before.st_mode & 0o7777)


LOSSES: dict[str, Callable[[Disk], AbstractContextManager[None]]] = {
    "no space left": full,
    "read-only": read_only,
    "may not be": forbidden,
}


def status(rig: Rig) -> Json:
    """Return the daemon's status."""
    return rig.ask("/v1/status")


def lost_and_back(rig: Rig, disk: Disk, word: str) -> None:
    """Lose the disk: a hog lives on and `status` names the cause; with it back the hog is ended."""
    with LOSSES[word](disk):
        pid = rig.launch().pid
        wait_until(lambda: bool(status(rig)["record_fault"]), f"{word}: the fault is known", BOUND_SECONDS)
        rig.passes(2)
        assert is_alive(pid), word
        told = status(rig)
        assert word in told["record_fault"].lower()
        assert any("nothing is done" in one and word in one.lower() for one in told["attention"])
    wait_until(lambda: not is_alive(pid), f"{word}: the hog was ended", BOUND_SECONDS)
    wait_until(lambda: not status(rig)["record_fault"], f"{word}: it is over", BOUND_SECONDS)


def test_no_record_no_act_and_status_says_why_and_it_recovers_by_itself() -> None:
    """Each loss in turn, of one daemon, which is what takes the time; the log has each end and is whole."""
    hog = rule(grace="400ms", stages=["sigterm"])
    with simulated_host(hog, tables={"audit": {"file_size": "1MiB"}}) as rig:
        disk_at = rig.directory / "disk"
        disk_at.mkdir()
        rig.front = ("unshare", "--mount", "sh", "-c", ON_A_DISK_OF_ITS_OWN, NO_OVERRIDE, str(disk_at))
        disk = Disk(
            disk_at,
            rig.start_daemon("--state-dir", str(disk_at / "state"), "--log-dir", str(disk_at / "log")),
        )
        rig.front = ()
        rig.passes(1)
        for word in LOSSES:
            lost_and_back(rig, disk, word)
        seen = ("--state-dir", str(disk.seen / "state"), "--log-dir", str(disk.seen / "log"))
        verified = rig.ctl("audit", "verify", *seen)
        assert (verified.code, verified.answer["faults"]) == (0, []), verified
        ended = rig.ctl("audit", "list", "--kind", "incident_ended", *seen)
        assert [one["end"] for one in ended.answer["records"]] == ["reclaimed"] * len(LOSSES)
