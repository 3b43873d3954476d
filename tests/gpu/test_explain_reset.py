"""What the reset gate says on a real GPU; nothing is reset, no mode is changed, only our own children end.

Each test prints one line of figures (`pytest -s`): the answer's kinds, the pids concerned, and the time.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
NVML_CLIENT = (
    "import pynvml, sys, time\n"
    "pynvml.nvmlInit()\n"
    "handle = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
)


@dataclass(frozen=True, slots=True)
class Told:
    """What `explain reset` said: exit code, body, seconds."""

    code: int
    body: dict[str, Any]
    seconds: float

    def pids(self, kind: str) -> set[int]:
        """Return whom the reasons of one kind name."""
        found: set[int] = set()
        for reason in self.body["reasons"]:
            if reason["kind"] == kind:
                found |= set(reason["pids"])
        return found

    @property
    def others(self) -> list[str]:
        """Return the reasons but those about who holds it and about PID 1, which some machines hide."""
        texts = [(str(one["kind"]), str(one["text"])) for one in self.body["reasons"]]
        hidden = ("pid 1 ", "pid 1:", "PID 1")
        return [
            f"{kind}: {text}"
            for kind, text in texts
            if kind != "holders" and not any(word in text for word in hidden)
        ]


def explained(case: str, place: Path) -> Told:
    """Run `reclaimctl explain reset --gpu 0` in the foreground, and print its figures."""
    argv = reclaimctl(place, "explain", "reset", "--gpu", "0", "--json")
    began = time.monotonic()
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert ran.stdout, ran.stderr
    told = Told(ran.returncode, json.loads(ran.stdout), time.monotonic() - began)
    reasons = [[one["kind"], one["pids"], one["text"]] for one in told.body["reasons"]]
    figures = {"case": case, "exit": told.code, "seconds": round(told.seconds, 3), "reasons": reasons}
    sys.stdout.write(f"\nFIGURES {json.dumps(figures | {'steps': told.body['steps']})}\n")
    return told


def wait_gone(pid: int) -> None:
    """Wait until the last thread of a process is gone."""
    pidfd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    assert poller.poll(30_000), f"pid {pid} did not go"
    os.close(pidfd)


@contextmanager
def nvml_client() -> Iterator[int]:
    """Start a client that only has NVML open, as a monitoring program has; yield its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", NVML_CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        ready, _, _ = select.select([client.stdout], [], [], 60.0)
        assert ready
        assert client.stdout.readline() == "ready\n"
        try:
            yield client.pid
        finally:
            client.kill()


def test_nobody_on_it(tmp_path: Path) -> None:
    """No holder, nothing against it but what this machine hides; persistence mode is a step, no refusal."""
    told = explained("nobody", tmp_path)
    assert told.pids("holders") == set()
    assert told.others == []
    assert told.code == (0 if told.body["permitted"] else 3)


@pytest.mark.parametrize("count", [1, 2])
def test_cuda_holders_are_named(count: int, tmp_path: Path) -> None:
    """One and two CUDA processes: refused, each of them named, and nothing else against it."""
    with cuda_process("--gib", "2") as first:
        if count == 1:
            told, pids = explained("one CUDA holder", tmp_path), {first.pid}
        else:
            with cuda_process("--gib", "1") as second:
                told, pids = explained("two CUDA holders", tmp_path), {first.pid, second.pid}
    assert told.code == 3
    assert told.pids("holders") == pids
    assert told.others == []


def test_a_forked_child_whose_parent_died(tmp_path: Path) -> None:
    """NVML lists the dead parent; the gate names the living child that holds its context."""
    leave = tmp_path / "leave"
    with cuda_process("--gib", "2", "--fork-and-leave", str(leave)) as one:
        leave.touch()
        wait_gone(one.pid)
        told = explained("forked child, parent dead", tmp_path)
        os.kill(one.child, signal.SIGKILL)
    assert told.code == 3
    assert one.child in told.pids("holders")
    assert told.others == []


def test_an_nvml_client(tmp_path: Path) -> None:
    """A client with no context, only NVML open: in no process list, and it refuses by name all the same."""
    with nvml_client() as pid:
        told = explained("NVML client", tmp_path)
    assert told.code == 3
    assert pid in told.pids("holders")
    assert told.others == []
