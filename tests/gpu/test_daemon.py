"""The daemon itself over a real driver, enforcing one rule that concerns our own children alone.

Nothing is reset and no setting is changed. One line of figures is printed (`pytest -s`); the variable
RECLAIMERD_GPU_SECONDS sets how long it goes on.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from reclaimerd.record.audit_read import read_records
from tests.e2e.policies import policy_text, rule
from tests.gpu.commands import LOG, SOCKET, STATE, places, reclaimctl
from tests.gpu.cuda import CHILD, CudaProcess, cuda_process
from tests.rigs.simulated import wait_until
from tests.soak.meters import MIB, Meters, measured

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.root,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU here"),
]
SECONDS = float(os.environ.get("RECLAIMERD_GPU_SECONDS") or 60)
OURS_ALONE = {"match.uid": [os.getuid()], "match.cmdline": [CHILD.name.replace(".", r"\.")]}
HOGS = (
    ("--gib", "6"),
    ("--gib", "6", "--busy"),
    ("--gib", "6", "--ignore-term"),
    ("--gib", "6", "--stop-self"),
)
GONE_WITHIN_MS = 30_000
MOST_GROWTH_BYTES = 12 * MIB


@contextmanager
def daemon(place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the daemon with a cap of 4 GiB for our own children, and stop it as systemd would."""
    policy = place / "policy.toml"
    policy.write_text(policy_text([rule(**OURS_ALONE)], {}), encoding="utf-8")
    argv = [sys.executable, "-m", "reclaimerd.daemon.main", "--config", str(policy), *places(place)]
    with (place / "words").open("wb") as words:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
    try:
        wait_until(lambda: (place / SOCKET).exists() or process.poll() is not None, "the daemon listens", 60)
        assert process.poll() is None, (place / "words").read_text(encoding="utf-8")
        yield process
    finally:
        process.terminate()
        process.wait(30)


def seconds_to_gone(hog: CudaProcess) -> float:
    """Return how long a process that breaks the rule lives from when it holds what it was told to."""
    began = time.monotonic()
    pidfd = os.pidfd_open(hog.pid)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    gone = poller.poll(GONE_WITHIN_MS)
    os.close(pidfd)
    assert gone, f"pid {hog.pid} still lives"
    return time.monotonic() - began


def churned(process: "subprocess.Popen[bytes]", place: Path) -> tuple[list[float], Meters]:
    """Let one after the other break the rule beside one who doesn't; return how long each lived."""
    lived: list[float] = []
    with (
        cuda_process("--gib", "1", "--busy") as bystander,
        measured(process.pid, (place / STATE, place / LOG), 0.5) as meters,
    ):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for args in HOGS:
                with cuda_process(*args) as hog:
                    lived.append(seconds_to_gone(hog))
                assert process.poll() is None, (place / "words").read_text(encoding="utf-8")
        assert bystander.popen.poll() is None
    return lived, meters


@pytest.mark.timeout(SECONDS + 300)
def test_a_rule_takes_back_a_real_gpu_again_and_again(tmp_path: Path) -> None:
    """Whoever breaks it is gone and proven so, its neighbour lives, the log verifies, and nothing grows."""
    with daemon(tmp_path) as process:
        lived, meters = churned(process, tmp_path)

        def ends() -> list[object]:
            ended = read_records(tmp_path / LOG, where=lambda one: one["kind"] == "incident_ended")
            return [one["end"] for one in ended]

        wait_until(lambda: len(ends()) >= len(lived), "each has its end on record", 30)
        ended = ends()
    assert process.returncode == 0
    verified = subprocess.run(reclaimctl(tmp_path, "audit", "verify"), check=False)
    figures = {
        "case": "daemon",
        "seconds": SECONDS,
        "reclaims": len(lived),
        "lived_s": [round(one, 2) for one in (min(lived), median(lived), max(lived))],
        "pss_mib": round(meters.middle(lambda one: one.pss_bytes) / MIB, 1),
        "growth_mib": round(meters.growth(lambda one: one.pss_bytes) / MIB, 2),
        "daemon_growth_mib": round(meters.growth(lambda one: one.daemon_bytes) / MIB, 2),
        "descriptors": meters.middle(lambda one: one.descriptors),
        "worker_descriptors": meters.middle(lambda one: one.worker_descriptors),
    }
    sys.stdout.write("\nFIGURES " + json.dumps(figures) + "\n")
    assert ended == ["reclaimed"] * len(lived)
    assert verified.returncode == 0
    assert meters.growth(lambda one: one.pss_bytes) <= MOST_GROWTH_BYTES
    assert meters.rise(lambda one: one.descriptors) <= 2
