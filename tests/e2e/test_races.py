"""What changes between the look and the signal: the target ends, or its pid becomes somebody else's."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reclaimerd.simulation.keeper import LaunchedWorkload
from tests.e2e.rig import GPU_A, Rig, is_alive, rule, signals_in, simulated_host
from tests.e2e.test_restart import freeze_at_intent
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process]
TRIES = 6
OWN_PIDS = ("/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def let_the_stranger_live(module: str) -> None:
    """Run a module as the first of a PID namespace, where pids can be used again; it says how it ended."""
    ran = subprocess.run(
        [*OWN_PIDS, sys.executable, "-m", module],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "the stranger lives", ran.stdout + ran.stderr


def frozen_before_the_act(rig: Rig, name: str) -> int | None:
    """Freeze the daemon at its intent about a fresh target; return the pid, None if it was too late."""
    pid, path = rig.recorder(name)
    freeze_at_intent(rig, pid, rig.daemons[-1].pid, signal.SIGSTOP)
    wait_until(lambda: _state(rig.daemons[-1].pid) == "T", "the daemon stands still")
    return None if rig.records("outcome", pid=pid) or signals_in(path) else pid


def test_a_target_that_ends_between_look_and_signal_is_already_gone() -> None:
    """The target ends after the intent: the signal finds nobody, and the end is told truly."""
    with simulated_host(rule(grace="600s")) as rig:
        rig.start_daemon()
        for number in range(TRIES):
            pid = frozen_before_the_act(rig, f"signals-{number}")
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda gone=pid: not Path(f"/proc/{gone}").exists(), "it is reaped")  # type: ignore[misc]  # a lambda's default has no type
            rig.daemons[-1].send(signal.SIGCONT)
            if pid is None:
                continue
            outcome = rig.wait_record("outcome", pid=pid)
            assert outcome["outcome"]["kind"] == "already_gone", outcome
            ended = rig.wait_record("incident_ended", pid=pid)
            assert ended["end"] == "stood_down", rig.story()
            return
        pytest.fail(f"the daemon was never frozen before its act in {TRIES} tries")


@pytest.mark.slow
@pytest.mark.root
def test_a_stranger_with_the_target_s_pid_lives() -> None:
    """In a PID namespace: the pid is used again between intent and signal; the stranger gets nothing."""
    let_the_stranger_live("tests.e2e.test_races")


def _reuse() -> None:
    """As the first of a PID namespace: do it, and print the end."""
    with simulated_host(rule(grace="600s")) as rig:
        rig.start_daemon()
        for number in range(TRIES):
            pid = frozen_before_the_act(rig, f"signals-{number}")
            if pid is None:
                rig.daemons[-1].send(signal.SIGCONT)
                continue
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda gone=pid: not Path(f"/proc/{gone}").exists(), "it is reaped")  # type: ignore[misc]  # a lambda's default has no type
            stranger = a_stranger(rig, pid)
            rig.daemons[-1].send(signal.SIGCONT)
            outcome = rig.wait_record("outcome", pid=pid)
            assert outcome["outcome"]["kind"] in ("identity_changed", "already_gone"), outcome
            rig.passes(6)
            assert is_alive(stranger)
            assert signals_in(rig.directory / "stranger") == [], rig.story()
            ended = rig.wait_record("incident_ended", pid=pid)
            assert ended["end"] == "stood_down", rig.story()
            print("the stranger lives", flush=True)  # noqa: T201 - the test outside reads it
            return
        raise AssertionError("never frozen in time")


def a_stranger(rig: Rig, pid: int) -> int:
    """Start a recording workload, small and under the cap, that has exactly this pid."""
    time.sleep(0.02)  # the start time of a process has 10 ms: the stranger's must be another
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1), encoding="ascii")
        found: LaunchedWorkload = rig.keeper.launch(
            "--gpu", GPU_A, "--bytes", "1GiB", "--record-signals", str(rig.directory / "stranger")
        )
        if found.pid == pid:
            return pid
        os.kill(found.pid, signal.SIGKILL)
    raise AssertionError(f"pid {pid} was never given again")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


if __name__ == "__main__":
    _reuse()
