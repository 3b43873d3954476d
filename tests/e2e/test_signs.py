"""What is read of programs besides, from the worker to a recorded look: by the daemon and without it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import Rig, rule, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process]


def signs_in(rig: Rig, pid: int) -> dict[str, Any]:
    """Return what a snapshot of now has of one process, {} when it has nothing."""
    ran = rig.ctl("snapshot")
    assert ran.code == 0, ran
    rows = json.loads(ran.out)["signs"]
    return next((dict(row["signs"]) for row in rows if row["ref"]["pid"] == pid), {})


def digest_of(pid: int) -> str:
    """Return the SHA-256 of the program that a process runs."""
    return hashlib.sha256(Path(f"/proc/{pid}/exe").read_bytes()).hexdigest()


def test_one_command_reads_a_program_in_its_one_look() -> None:
    """Without a daemon: hash, figures, connections and parents of a real process that holds a GPU."""
    with simulated_host(rule()) as rig:
        pid = rig.launch().pid
        signs = signs_in(rig, pid)
        assert signs["sha256"] == {"value": digest_of(pid), "kind": "known"}
        assert signs["io_bytes"]["value"] > 0
        assert isinstance(signs["connections"]["value"], list)
        assert signs["ancestors"]


def workers_of(pid: int) -> list[str]:
    """Return the role of each worker that a daemon has, `procfs` for every reader of processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    lines = (Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0") for child in children)
    return sorted(line[line.index(b"--role") + 1].decode() for line in lines if b"--role" in line)


@pytest.mark.slow
def test_the_daemon_reads_programs_only_when_somebody_asks() -> None:
    """With rules about memory alone no pass starts a worker for it; a look of everything does."""
    with simulated_host(rule(**{"for": "600s"}, readings=500)) as rig:
        daemon = rig.start_daemon()
        pid = rig.launch().pid
        wait_until(lambda: rig.verdict(pid) == "watch", "it is seen")
        rig.passes(3)
        before = workers_of(daemon.process.pid)
        told = {"value": digest_of(pid), "kind": "known"}
        wait_until(lambda: signs_in(rig, pid).get("sha256") == told, "its hash is told")
        assert workers_of(daemon.process.pid) == sorted([*before, "procfs"])
