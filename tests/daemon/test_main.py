"""The daemon as a real process: how it starts, reloads, tells its manager, and ends, with which code."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reclaimerd.act.reset_files import Claim, take_claim
from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon import main
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.past import read_stored
from reclaimerd.daemon.this_host import read_boot_id, read_own_ref
from reclaimerd.host.files import ensure_directory
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy, ResetSettings
from reclaimerd.model.reset_run import Change, ChangeKind, ChangeState, ResetPhase, ResetResult
from reclaimerd.record.store import STORE_NAME, Store
from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from reclaimerd.simulation.units import SimulatedUnit, read_jobs, write_units
from tests.e2e.rig import Rig, is_alive, rule, signals_in, simulated_host
from tests.judge.reset_builders import a_run
from tests.rigs.simulated import wait_until

pytestmark = pytest.mark.process
DAEMON = [sys.executable, "-m", "reclaimerd.daemon.main"]
BOUND = 20.0
PATIENCE = 40.0
"""For what takes a second on a machine that is not busy with other tests."""


@dataclass(frozen=True, slots=True)
class Manager:
    """The service manager's end of the notification socket."""

    end: socket.socket
    path: Path

    def next_with(self, field: str) -> dict[str, str]:
        """Return the next message that has this field."""
        deadline = time.monotonic() + BOUND
        while time.monotonic() < deadline:
            fields = dict(line.split("=", 1) for line in self.end.recv(8192).decode().splitlines())
            if field in fields:
                return fields
        raise AssertionError(f"no {field} in {BOUND:g} s")


@contextmanager
def manager(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    """Listen for what the daemons of this block tell their manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        path = folder / "notify"
        end.bind(str(path))
        end.settimeout(BOUND)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield Manager(end, path)


def run(*words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run the daemon to its end."""
    return subprocess.run([*DAEMON, *words], capture_output=True, text=True, timeout=seconds, check=False)


def log_events(rig: Rig) -> list[dict[str, object]]:
    """Return the lines of the last daemon's log."""
    return [json.loads(line) for line in rig.daemons[-1].words().splitlines() if line.startswith("{")]


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Return a simulated host under an enforcing rule."""
    with simulated_host(rule()) as made:
        yield made


def test_once_makes_one_pass_and_ends_with_zero(rig: Rig) -> None:
    """Started and stopped on record, no socket opened, nothing left in the state but what is kept."""
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    assert (told.returncode, told.stdout) == (0, "")
    assert [record["kind"] for record in rig.records()] == ["started", "tally", "stopped"]
    assert not (rig.host / "reclaimerd.sock").exists()
    assert not (rig.state / "writer.json").exists()


def test_every_record_of_a_pass_is_in_the_log_and_the_head_too(rig: Rig) -> None:
    """One line per record, in the record's order, with incident, pid, action and outcome."""
    pid = rig.launch().pid
    daemon = rig.start_daemon()
    rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE)
    assert daemon.stop() == 0
    recorded = [(record["kind"], record.get("action") or None) for record in rig.records()]
    lines = log_events(rig)
    kinds = {kind for kind, _ in recorded}
    logged = [(line["event"], line.get("action")) for line in lines if line["event"] in kinds]
    assert logged == recorded
    sent = next(line for line in lines if line["event"] == "outcome")
    assert (sent["pid"], sent["outcome"]) == (pid, "sent")
    assert any(line["event"] == "audit_head" for line in lines)


def test_the_manager_hears_ready_status_watchdog_and_stopping(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real datagram socket, in this order."""
    with manager(rig.directory, monkeypatch) as listening:
        daemon = rig.start_daemon()
        first = listening.next_with("READY")
        assert first["READY"] == "1"
        assert first["STATUS"] == "enforce: 2 GPUs, 0 holders, 0 incidents"
        assert listening.next_with("WATCHDOG")["WATCHDOG"] == "1"
        daemon.send(signal.SIGTERM)
        assert listening.next_with("STOPPING")["STOPPING"] == "1"
        assert daemon.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_asked_with_the_socket_and_the_claim_removed(rig: Rig, number: signal.Signals) -> None:
    """Exit 0 within 5 s, STOPPED on record."""
    daemon = rig.start_daemon()
    began = time.monotonic()
    daemon.send(number)
    assert daemon.process.wait(BOUND) == 0
    assert time.monotonic() - began < 5.0
    assert not (rig.host / "reclaimerd.sock").exists()
    assert not (rig.state / "writer.json").exists()
    assert rig.records()[-1]["kind"] == "stopped"


def hang(rig: Rig) -> None:
    """Let every NVML call from now on block for ever, deaf to SIGTERM."""
    write_simulated_host(rig.host, replace(read_simulated_host(rig.host), hang=True))


@pytest.mark.parametrize("when", ["before the first look", "while it runs"])
def test_it_stops_within_five_seconds_with_a_stuck_worker(rig: Rig, when: str) -> None:
    """Also before the worker's first answer; the workers are gone with it."""
    if when == "before the first look":
        hang(rig)
        daemon = rig.start_daemon()
    else:
        daemon = rig.start_daemon()
        rig.passes(2)
        hang(rig)
        time.sleep(0.5)
    children = children_of(daemon.pid)
    assert children
    began = time.monotonic()
    daemon.send(signal.SIGTERM)
    assert daemon.process.wait(BOUND) == 0
    assert time.monotonic() - began < 5.0
    wait_until(lambda: not any(is_alive(pid) for pid in children), "the workers are gone")


def children_of(pid: int) -> list[int]:
    """Return the children of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_a_stuck_driver_is_told_in_status_and_acts_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon outlives the driver: STATUS says so, and nothing is signalled meanwhile."""
    pid, signals = rig.recorder()
    rig.write_policy(rule(**{"for": "2s"}), workers={"answer_within": "500ms", "hung_after": "60s"})
    with manager(rig.directory, monkeypatch) as listening:
        rig.start_daemon()
        listening.next_with("READY")
        hang(rig)
        while "driver unresponsive" not in listening.next_with("STATUS")["STATUS"]:
            pass
        rig.passes(3)
    assert is_alive(pid)
    assert signals_in(signals) == []


def test_a_good_reload_is_announced_recorded_and_in_force(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """RELOADING then READY; the rule that vanished stands its incident down without a further signal."""
    rig.write_policy(rule(grace="60s"))
    pid, signals = rig.recorder()
    with manager(rig.directory, monkeypatch) as listening:
        daemon = rig.start_daemon()
        rig.wait_record("outcome", pid=pid, seconds=PATIENCE)
        listening.next_with("READY")
        rig.write_policy()
        daemon.send(signal.SIGHUP)
        assert int(listening.next_with("RELOADING")["MONOTONIC_USEC"]) > 0
        listening.next_with("READY")
        end = rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE)
        assert end["end"] == "stood_down"
        assert "is gone" in end["reason"]
        assert rig.records("policy_loaded")
        rig.passes(3)
    assert signals_in(signals).count("SIGTERM") == 1
    assert is_alive(pid)


def test_a_bad_reload_keeps_the_old_policy_and_says_why(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record and log name the line; READY comes all the same, and the old rule still acts."""
    with manager(rig.directory, monkeypatch) as listening:
        daemon = rig.start_daemon()
        listening.next_with("READY")
        rig.policy.write_text("[daemon]\nmode = 'kill-all'\n", encoding="utf-8")
        daemon.send(signal.SIGHUP)
        listening.next_with("RELOADING")
        listening.next_with("READY")
        note = rig.wait_record("note", seconds=PATIENCE)
        assert f"{rig.policy}:2" in note["reason"]
        pid = rig.launch().pid
        assert rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE)["end"] == "reclaimed"
    assert any(line["event"] == "reload_refused" for line in log_events(rig))


@pytest.mark.slow
@pytest.mark.root
def test_a_reload_brings_new_users_to_the_judge(rig: Rig) -> None:
    """A user named only by the new policy is matched by uid from then on."""
    rig.write_policy(rule(**{"match.uid": ["60000-60001"]}))
    pid = rig.launch().pid
    daemon = rig.start_daemon()
    rig.passes(4)
    assert rig.records("incident_opened") == []
    named = {key: value for key, value in rule().items() if key != "match.uid"}
    rig.write_policy({**named, "match.user": ["root"]})
    daemon.send(signal.SIGHUP)
    assert rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE)["end"] == "reclaimed"


def test_a_bad_policy_is_two_with_a_line_for_each_fault(rig: Rig) -> None:
    """FILE:LINE: key: what; nothing is started, nothing is written."""
    rig.policy.write_text("[daemon]\nmode = 'x'\nnope = 1\n", encoding="utf-8")
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    assert told.returncode == 2
    assert [line.split(": ")[0] for line in told.stderr.splitlines()] == [
        f"{rig.policy}:2",
        f"{rig.policy}:3",
    ]
    assert not rig.state.exists()


@pytest.mark.root
def test_a_policy_that_others_may_write_is_two(rig: Rig) -> None:
    """Whoever can write the policy could kill."""
    rig.policy.chmod(0o666)
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    assert told.returncode == 2
    assert str(rig.policy) in told.stderr


@pytest.mark.parametrize("words", [["--nope"], ["--config"], ["extra"]])
def test_a_faulty_command_line_is_two(words: list[str]) -> None:
    """Argparse's own sentence, no traceback."""
    told = run(*words)
    assert told.returncode == 2
    assert "Traceback" not in told.stderr


def test_a_corrupt_store_is_eleven_and_is_not_touched(rig: Rig) -> None:
    """Never taken as empty: the file stays as it is, and the mend is told."""
    rig.state.mkdir(mode=0o700)
    store = rig.state / "store.sqlite"
    store.write_bytes(b"this is no database" * 400)
    store.chmod(0o600)
    before = store.read_bytes()
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    assert told.returncode == 11
    assert "move it aside" in told.stderr
    assert "Traceback" not in told.stderr
    assert store.read_bytes() == before
    assert rig.records() == []


@pytest.mark.slow
def test_a_store_that_becomes_corrupt_ends_the_running_daemon_with_eleven(rig: Rig) -> None:
    """The next commit of a pass meets it: no act follows, the daemon ends."""
    daemon = rig.start_daemon()
    rig.passes(2)
    for name in ("store.sqlite", "store.sqlite-wal", "store.sqlite-shm"):
        path = rig.state / name
        if path.exists():
            with path.open("r+b") as file:
                file.write(b"\xff" * path.stat().st_size)
    pid, signals = rig.recorder()
    assert daemon.process.wait(BOUND) == 11
    assert "can't be trusted" in daemon.words()
    assert "Traceback" not in daemon.words()
    assert is_alive(pid)
    assert signals_in(signals) == []


@pytest.mark.slow
def test_a_second_writer_is_three_and_the_first_goes_on(rig: Rig) -> None:
    """The living one is named with the mend."""
    daemon = rig.start_daemon()
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    assert told.returncode == 3
    assert str(daemon.pid) in told.stderr
    rig.passes(2)


@pytest.mark.slow
def test_a_dry_run_daemon_sends_nothing_for_rule_or_operator(rig: Rig) -> None:
    """Both are planned on record; the targets live and got no signal; the kill ends with 0."""
    hog, hog_signals = rig.recorder("hog")
    asked, asked_signals = rig.recorder("asked")
    rig.start_daemon("--dry-run")
    rig.wait_record("planned", pid=hog, seconds=PATIENCE)
    told = rig.kill(asked, options=["--force"])
    assert told.code == 0, told
    assert {signals_in(path) == [] for path in (hog_signals, asked_signals)} == {True}
    assert is_alive(hog)
    assert is_alive(asked)
    assert rig.ask("/v1/status")["dry_run"] is True


def test_no_driver_is_ready_with_nothing_to_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without library or driver, no --simulate: READY, the words in STATUS, exit 0 at the end."""
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    inode = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116  # a link that names no path
    if inode != 4026531836:
        pytest.skip("not in the host's PID namespace: the daemon rightly refuses to start")
    policy = tmp_path / "policy.toml"
    policy.write_text("[daemon]\nmode = 'observe'\n", encoding="utf-8")
    words = [f"--{name}={tmp_path / name}" for name in ("state-dir", "log-dir")]
    with manager(tmp_path, monkeypatch) as listening:
        child = subprocess.Popen(
            [*DAEMON, f"--config={policy}", f"--socket={tmp_path / 's'}", *words], stderr=subprocess.DEVNULL
        )
        try:
            ready = listening.next_with("READY")
            assert ready["STATUS"] == "no NVIDIA driver: nothing to watch"
            child.terminate()
            assert child.wait(BOUND) == 0
        finally:
            child.kill()
            child.wait(BOUND)


@pytest.mark.root
def test_another_pid_namespace_is_two_with_the_mend(tmp_path: Path) -> None:
    """NVML's pids mean nothing there; nothing is written."""
    words = [f"--{name}={tmp_path / name}" for name in ("state-dir", "log-dir", "socket")]
    argv = ["/usr/bin/unshare", "--pid", "--fork", "--mount-proc", *DAEMON, *words, "--once"]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 2
    assert "hostPID" in told.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_client_that_hangs_up_leaves_its_incident_to_the_daemon(rig: Rig) -> None:
    """The stream is cut after SIGTERM: the ladder climbs to SIGKILL, and no descriptor is left."""
    rig.write_policy()
    pid, signals = rig.recorder()
    daemon = rig.start_daemon()
    rig.passes(2)
    before = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    body = json.dumps({"targets": [{"pid": pid}], "force": True, "grace_seconds": 1.0})
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(BOUND)
        channel.connect(str(rig.host / "reclaimerd.sock"))
        head = f"POST /v1/reclaims HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        channel.sendall((head + body).encode())
        found = b""
        while b'"step"' not in found:
            found += channel.recv(65536)
    end = rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE)
    assert end["end"] == "reclaimed"
    assert "SIGTERM" in signals_in(signals)
    rig.passes(2)
    wait_until(
        lambda: len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())) <= before, "the descriptors are closed"
    )


def test_restore_without_anything_to_restore_ends_with_zero_and_writes_nothing(rig: Rig) -> None:
    """After every end of the service: it starts no engine and needs no policy."""
    told = run("--simulate", str(rig.host), "--config", "/nonexistent", "--restore")
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert rig.records() == []
    assert not (rig.state / "writer.json").exists()


@pytest.mark.slow
def test_restore_puts_back_what_a_reset_had_stopped_and_no_tool_runs(rig: Rig) -> None:
    """From the record alone, as after a kill: the run is refused and done, and the writer's claim is free."""
    leave_run(rig, ResetPhase.STOP_CLIENTS)
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--restore")
    assert (told.returncode, told.stderr) == (0, "")
    (left,) = read_stored(rig.state).ledger.resets
    assert (left.phase, left.result) == (ResetPhase.DONE, ResetResult.REFUSED)
    assert not (rig.state / "writer.json").exists()


@pytest.mark.slow
def test_restore_starts_every_unit_though_the_first_starts_slowly(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service manager ends it soon: all are asked for at once, and what is not seen to run is said.

    The record keeps it open, so the next start proves it.
    """
    names = ("exporter.service", "dcgm.service")
    write_units(rig.host, [SimulatedUnit(name, active=False, slow_start_seconds=60.0) for name in names])
    changes = tuple(Change(ChangeKind.UNIT, name, "active", ChangeState.MADE) for name in names)
    leave_run(rig, ResetPhase.STOP_CLIENTS, changes)
    monkeypatch.setattr(main, "RESTORE_SECONDS", 3.0)
    paths = Paths(rig.state, rig.host / "log", rig.directory / "socket", rig.policy, rig.host)
    began = time.monotonic()
    asyncio.run(main._restore(main.Options(paths, once=False, dry_run=False)))
    assert time.monotonic() - began < BOUND
    assert read_jobs(rig.host) == ("ask dcgm.service", "ask exporter.service")
    said = capsys.readouterr().err
    assert "not seen to be put back in time: exporter.service, dcgm.service" in said
    (left,) = read_stored(rig.state).ledger.resets
    assert (left.phase, {one.state for one in left.changes}) == (ResetPhase.RESTORE, {ChangeState.MADE})
    assert not (rig.state / "writer.json").exists()


def test_restore_speaks_before_the_service_manager_ends_it() -> None:
    """Its own bound is well within TimeoutStopSec, and a GPU that does not come back takes a part of it."""
    text = (Path(__file__).parents[2] / "systemd" / "reclaimerd.service").read_text(encoding="utf-8")
    stop = float(text.partition("TimeoutStopSec=")[2].partition("s")[0])
    assert stop >= main.RESTORE_SECONDS + 5.0
    reset = main.in_haste(LoadedPolicy(Policy())).policy.reset
    assert reset.verify_seconds < main.RESTORE_SECONDS / 2 < ResetSettings().verify_seconds


@pytest.mark.slow
def test_restore_leaves_a_reset_whose_tool_may_run_to_the_next_start(rig: Rig) -> None:
    """And says so. Its marks tell that it runs: here it is this very process."""
    leave_run(rig, ResetPhase.LEFT_ALONE)
    boot_id = read_boot_id()
    ensure_directory(rig.state / "resets", 0o700)
    take_claim(rig.state / "resets", a_run().id, Claim(read_own_ref(boot_id)))
    told = run("--simulate", str(rig.host), "--config", str(rig.policy), "--restore")
    assert told.returncode == 0
    assert "its tool may be running, so nothing is put back yet" in told.stderr
    (left,) = read_stored(rig.state).ledger.resets
    assert (left.phase, left.result) == (ResetPhase.LEFT_ALONE, None)


def leave_run(rig: Rig, phase: ResetPhase, changes: tuple[Change, ...] = ()) -> None:
    """Leave a reset in the store as a daemon that was killed would."""
    run("--simulate", str(rig.host), "--config", str(rig.policy), "--once")
    store = Store.open(rig.state / STORE_NAME)
    left = replace(a_run(), boot_id=read_boot_id(), phase=phase, changes=changes)
    store.save((), Ledger(resets=(left,)))
    store.close()
