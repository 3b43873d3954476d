"""Real CUDA processes on a real GPU, each reclaimed by `reclaimctl kill --force`, memory proven back.

Never resets a GPU, changes no mode, takes plain memory only, and ends only what it started. Each test
prints one line of figures (`pytest -s`): seconds from our signal to the kernel's word that the last
thread is gone, and from there to our proof.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.commands import reclaimctl
from tests.gpu.cuda import cuda_process

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.root,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What `reclaimctl kill` said, and when the kernel said that the process is gone (wall seconds)."""

    code: int
    result: dict[str, Any]
    gone_at: float | None
    incident: dict[str, Any]


def reclaim(pid: int, place: Path, *options: str) -> Reclaimed:
    """Run `reclaimctl kill` on one process, and watch its pidfd beside it."""
    pidfd = os.pidfd_open(pid)
    argv = reclaimctl(place, "kill", "--pid", str(pid), "--json", *options)
    running = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    gone_at = time.time() if poller.poll(60_000) else None
    os.close(pidfd)
    out, _ = running.communicate(timeout=120)
    result = json.loads(out)
    name = result["targets"][0]["incident"]
    shown = subprocess.run(
        reclaimctl(place, "incidents", "show", str(name), "--json"),
        capture_output=True,
        text=True,
        check=False,
    )
    incident = json.loads(shown.stdout)["incident"]["record"] if shown.returncode == 0 else {}
    return Reclaimed(running.returncode, result, gone_at, incident)


def used_mib() -> int:
    """Return the GPU's used memory as the vendor's tool shows it."""
    out = subprocess.run(
        [
            shutil.which("nvidia-smi") or "/usr/bin/nvidia-smi",
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(out.stdout.split()[0])


def seconds_of(text: str | None) -> float | None:
    """Return an RFC 3339 time of the command line's JSON as wall-clock seconds."""
    return None if text is None else datetime.fromisoformat(text).timestamp()


def report(case: str, done: Reclaimed) -> None:
    """Print the figures of one case."""
    record = done.incident
    signals = [at for one in record.get("attempts", ()) if (at := seconds_of(one["intent_at"])) is not None]
    ended = seconds_of(record.get("ended_at"))
    figures = {
        "case": case,
        "exit": done.code,
        "end": done.result["targets"][0]["end"],
        "proof": (record.get("proof") or {}).get("kind"),
        "first_signal_to_gone_s": round(done.gone_at - signals[0], 4) if done.gone_at and signals else None,
        "last_signal_to_gone_s": round(done.gone_at - signals[-1], 4) if done.gone_at and signals else None,
        "gone_to_proof_ms": round(1000 * (ended - done.gone_at), 1) if done.gone_at and ended else None,
    }
    sys.stdout.write("\nFIGURES " + json.dumps(figures) + "\n")


def raw_kernel_seconds(*args: str) -> float:
    """Return the kernel's own time from SIGKILL to the last thread's end, without us."""
    with cuda_process(*args) as one:
        pidfd = os.pidfd_open(one.pid)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        began = time.monotonic()
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        assert poller.poll(60_000)
        took = time.monotonic() - began
        os.close(pidfd)
    return took


@pytest.mark.parametrize("gib", [0, 8, 100])
def test_memory_holder_is_reclaimed(gib: int, tmp_path: Path) -> None:
    """A CUDA process of 0, 8 or 100 GiB is reclaimed with its memory proven back; the raw time beside it."""
    raw = raw_kernel_seconds("--gib", str(gib))
    with cuda_process("--gib", str(gib)) as one:
        done = reclaim(one.pid, tmp_path, "--force", "--grace", "5s")
    report(f"{gib} GiB, idle (raw SIGKILL to gone {raw:.4f} s)", done)
    assert done.code == 0, done.result
    assert done.incident["proof"]["kind"] == "exclusive"
    assert used_mib() < 1024


@pytest.mark.parametrize(
    ("case", "args"),
    [
        ("busy", ("--gib", "8", "--busy")),
        ("ignores SIGTERM", ("--gib", "8", "--ignore-term")),
        ("stopped", ("--gib", "8", "--stop-self")),
        ("leader gone, thread lives", ("--gib", "8", "--exit-leader")),
    ],
)
def test_awkward_process_is_reclaimed(case: str, args: tuple[str, ...], tmp_path: Path) -> None:
    """A busy, deaf, stopped or leaderless CUDA process is reclaimed and its memory is proven back."""
    with cuda_process(*args) as one:
        done = reclaim(one.pid, tmp_path, "--force", "--grace", "2s")
    report(case, done)
    assert done.code == 0, done.result
    assert done.incident["proof"]["kind"] == "exclusive"


def test_child_that_holds_for_a_dead_parent(tmp_path: Path) -> None:
    """A kill of the dead parent that NVML lists names the living child; killing the child frees all."""
    leave = tmp_path / "leave"
    with cuda_process("--gib", "4", "--fork-and-leave", str(leave)) as one:
        leave.touch()
        pidfd = os.pidfd_open(one.pid)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(30_000), "the parent did not leave"
        os.close(pidfd)
        dead = reclaim_code(one.pid, tmp_path)
        assert dead[0] == 6, dead
        assert str(one.child) in dead[1]
        done = reclaim(one.child, tmp_path, "--force", "--grace", "2s")
    report("child of a dead parent", done)
    assert done.code == 0, done.result


def reclaim_code(pid: int, place: Path) -> tuple[int, str]:
    """Return exit code and words of a kill that is expected to be declined."""
    argv = reclaimctl(place, "kill", "--pid", str(pid), "--force")
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("nested", [1, 2])
def test_pid_namespaces(nested: int, tmp_path: Path) -> None:
    """A CUDA process in one or two PID namespaces is reclaimed by its host pid."""
    one_level = ("unshare", "--pid", "--fork", "--mount-proc")
    with cuda_process("--gib", "2", prefix=one_level * nested) as one:
        done = reclaim(one.pid, tmp_path, "--force", "--grace", "2s")
    report(f"{nested} PID namespace(s)", done)
    assert done.code == 0, done.result


def test_ps_names_the_holder(tmp_path: Path) -> None:
    """`ps` names the CUDA holder, how it was seen, and its memory."""
    command = reclaimctl(tmp_path, "ps", "--json")
    with cuda_process("--gib", "3") as one:
        table = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    rows = [row for row in table["rows"] if row["pid"] == one.pid]
    assert rows
    assert rows[0]["how"] == "listed+node"
    assert rows[0]["used_bytes"] > 3 * 1024**3
