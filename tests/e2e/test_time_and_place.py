"""The ground under a daemon changes: stolen time, another boot, no state directory, a clock that jumps."""

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.rig import Json, Rig, is_alive, rule, signals_in, simulated_host
from tests.record.old_versions import VERSIONS, lay_out
from tests.rigs.simulated import wait_until
from tests.soak.meters import children_of

pytestmark = [pytest.mark.process, pytest.mark.slow]
BOUND_SECONDS = 60.0
STOLEN_SECONDS = 4.0
UNSHARE = shutil.which("unshare")
ANOTHER_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
CLOCK = Path(__file__).with_name("clock_daemon.py")
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or UNSHARE is None, reason="a mount namespace of its own needs root and util-linux"
)


def intents(rig: Rig, pid: int) -> list[str]:
    """Return the acts that were begun about a process."""
    return [one["action"] for one in rig.records("intent", pid=pid)]


def status(rig: Rig) -> Json:
    """Return the daemon's status."""
    return rig.ask("/v1/status")


def test_stolen_time_fires_nothing_twice_and_nobody_is_new_to_a_rule() -> None:
    """Stopped past the grace: one SIGTERM, one SIGKILL; who came meanwhile gets its whole `for`."""
    with simulated_host(rule(**{"grace": "2s", "for": "2s"})) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        rig.wait_record("outcome", pid=pid, seconds=BOUND_SECONDS)
        daemon.send(signal.SIGSTOP)
        late, _ = rig.recorder("late")
        time.sleep(STOLEN_SECONDS)  # the time that passes is the claim
        daemon.send(signal.SIGCONT)
        went_on = time.monotonic()
        for one in (pid, late):
            ended = rig.wait_record("incident_ended", pid=one, seconds=BOUND_SECONDS)
            assert ended["end"] == "reclaimed", rig.story()
            assert intents(rig, one) == ["sigterm", "sigkill"]
        assert signals_in(path).count("SIGTERM") == 1
        first = rig.records("intent", pid=late)[0]
        assert first["mono"] >= went_on + 2.0, "a process that nobody watched has held for no time"
        assert status(rig)["last_error"] == ""


@needs_mounts
@pytest.mark.root
def test_an_incident_of_another_boot_only_ends(tmp_path: Path) -> None:
    """The boot id is another at the next start: the target lives, and nothing more is sent."""
    other = tmp_path / "boot_id"
    other.write_text("11111111-2222-4333-8444-555555555555\n", encoding="ascii")
    with simulated_host(rule(grace="4s")) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        rig.wait_record("outcome", pid=pid, seconds=BOUND_SECONDS)
        daemon.kill_now()
        rig.write_policy()  # no rule: it is the old incident that this is about
        rig.front = (str(UNSHARE), "--mount", "/bin/sh", "-c", ANOTHER_BOOT, str(other))
        rig.start_daemon()
        rig.front = ()
        ended = rig.wait_record("incident_ended", pid=pid, seconds=BOUND_SECONDS)
        rig.passes(5)
        assert ended["end"] != "reclaimed", ended
        assert "boot" in ended["reason"], ended
        assert (intents(rig, pid), signals_in(path).count("SIGTERM")) == (["sigterm"], 1)
        assert is_alive(pid)
        assert status(rig)["incidents"] == []


def test_a_lost_state_directory_stops_every_act_until_it_is_back() -> None:
    """Away and back, another in its place, then gone for good: no act, the cause told, a restart mends."""
    with simulated_host(rule(grace="1s", stages=["sigterm"])) as rig:
        daemon = rig.start_daemon()
        rig.passes(1)
        away = rig.state.with_name("away")
        rig.state.rename(away)
        held_back = rig.launch().pid
        wait_until(lambda: "is gone" in status(rig)["record_fault"], "the cause is told", BOUND_SECONDS)
        rig.state.mkdir(mode=0o700)
        shutil.copy(away / "store.sqlite", rig.state)
        rig.passes(3)
        assert "another file" in status(rig)["record_fault"]
        assert (is_alive(held_back), rig.records("intent")) == (True, [])
        assert any("nothing is done" in line for line in status(rig)["attention"])
        shutil.rmtree(rig.state)
        away.rename(rig.state)
        wait_until(lambda: not is_alive(held_back), f"it goes on by itself: {rig.story()}", BOUND_SECONDS)
        wait_until(lambda: not status(rig)["record_fault"], "the fault is over", BOUND_SECONDS)
        shutil.rmtree(rig.state)
        pid = rig.launch().pid
        wait_until(lambda: bool(status(rig)["record_fault"]), "the cause is told again", BOUND_SECONDS)
        assert is_alive(pid)
        assert daemon.stop() == 0
        rig.start_daemon()
        wait_until(lambda: not is_alive(pid), f"a new store serves: {rig.story()}", BOUND_SECONDS)
        assert rig.verify_audit().code == 0


def test_a_wall_clock_that_jumps_moves_no_deadline() -> None:
    """A day ahead, then two days back, in mid-ladder: the grace is what it was, nothing is sent twice."""
    with simulated_host(rule(grace="3s")) as rig:
        shift = rig.directory / "shift"
        rig.front = (sys.executable, str(CLOCK), str(shift))
        rig.start_daemon()
        rig.front = ()
        for number, seconds in enumerate((86_400, -172_800)):
            pid, path = rig.recorder(f"signals-{number}")
            rig.wait_record("outcome", pid=pid, seconds=BOUND_SECONDS)
            shift.write_text(str(seconds), encoding="ascii")
            ended = rig.wait_record("incident_ended", pid=pid, seconds=BOUND_SECONDS)
            assert ended["end"] == "reclaimed", rig.story()
            first, second = rig.records("intent", pid=pid)
            assert [first["action"], second["action"]] == ["sigterm", "sigkill"]
            assert second["mono"] - first["mono"] >= 2.9
            assert second["at"][:10] != first["at"][:10], "the clock did jump"
            assert signals_in(path).count("SIGTERM") == 1
        assert status(rig)["last_error"] == ""
        assert rig.verify_audit().code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_daemon_takes_over_what_a_released_version_left(version: str) -> None:
    """Its open incident comes to an end without another signal, its pause binds, the log is one chain."""
    with simulated_host(rule()) as rig:
        lay_out(version, rig.state, rig.host / "log")
        began = len(rig.records())
        rig.start_daemon()
        rig.wait_record("started", seconds=BOUND_SECONDS)
        wait_until(lambda: len(rig.records("incident_ended")) > 1, f"it ends: {rig.story()}", BOUND_SECONDS)
        pid = rig.launch().pid
        rig.passes(5)
        told = status(rig)
        assert told["paused"]["reason"] == "upgrade"
        assert is_alive(pid)
        assert [one for one in rig.records("intent") if one["seq"] > began] == []
        assert rig.verify_audit().code == 0


@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset of util-linux")
def test_one_core_is_enough() -> None:
    """Bound to one CPU with all its workers: a hog is ended, step by step, and calls are answered."""
    one = min(os.sched_getaffinity(0))
    with simulated_host(rule(grace="1s")) as rig:
        rig.front = ("taskset", "--cpu-list", str(one))
        daemon = rig.start_daemon()
        rig.front = ()
        pid, _ = rig.recorder()
        ended = rig.wait_record("incident_ended", pid=pid, seconds=BOUND_SECONDS)
        assert (ended["end"], intents(rig, pid)) == ("reclaimed", ["sigterm", "sigkill"])
        assert os.sched_getaffinity(daemon.pid) == {one}
        assert {frozenset(os.sched_getaffinity(child)) for child in children_of(daemon.pid)} == {
            frozenset({one})
        }
