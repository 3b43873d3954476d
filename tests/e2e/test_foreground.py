"""Commands without a daemon, one writer at a time, and who may ask at all."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e import others
from tests.e2e.rig import GPU_A, Ran, is_alive, rule, signals_in, simulated_host

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root]
CTL = ("-m", "reclaimerd.cli.main")


@contextmanager
def bare_places() -> Iterator[tuple[str, ...]]:
    """Give the options that put everything into an empty directory of our own, which anybody may look at."""
    with tempfile.TemporaryDirectory(prefix="b-") as name:
        Path(name).chmod(0o711)
        yield ("--socket", f"{name}/none.sock", "--state-dir", f"{name}/state", "--log-dir", f"{name}/log")


def run(*words: str, front: tuple[str, ...] = (), python: str = sys.executable) -> Ran:
    """Run reclaimctl on this very host, not on a simulated one."""
    ran = subprocess.run(
        [*front, python, *CTL, *words],
        env=others.environment(),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_reading_needs_no_daemon_and_makes_nothing() -> None:
    """ps, status, inspect, explain and incidents answer from one fresh look; no state, no record is made."""
    with simulated_host(rule()) as rig:
        pid = rig.launch().pid
        rows = rig.ctl("ps").answer["rows"]
        assert [(row["pid"], row["gpu"]) for row in rows] == [(pid, GPU_A)]
        status = rig.ctl("status")
        assert status.answer["source"] == "foreground"
        assert rig.ctl("inspect", str(pid)).answer["process"]["pid"] == pid
        told = rig.ctl("explain", "reset", "--gpu", "0")
        assert told.code == 3, told
        assert pid in [each for reason in told.answer["reasons"] for each in reason["pids"]]
        assert rig.ctl("incidents").answer == {"incidents": []}
        assert rig.ctl("inspect", "4194304").code == 6
        assert not rig.state.exists()
        assert not (rig.host / "log").exists()
        assert is_alive(pid)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this host has an NVIDIA driver")
def test_without_a_driver_there_is_nothing_to_do() -> None:
    """`ps` exits 0 without rows, status needs a person (10), kill has no target (6)."""
    with bare_places() as places:
        table = run("ps", "--json", *places)
        assert (table.code, table.answer["rows"]) == (0, []), table
        assert "no NVIDIA driver" in table.answer["driver"]["text"]
        assert run("status", "--json", *places).code == 10
        child = subprocess.Popen(["/bin/sleep", "60"])
        try:
            ran = run("kill", "--force", "--pid", str(child.pid), "--json", *places)
            assert ran.code == 6, ran
            assert child.poll() is None
        finally:
            child.kill()
            child.wait()


def test_an_ordinary_user_without_a_daemon_gets_seven() -> None:
    """Exit 7 with the mend; nothing is made."""
    python = others.python_of_nobody()
    with bare_places() as places:
        for words in (("kill", "--pid", "4242"), ("ps",), ("pause",)):
            ran = run(*words, "--json", *places, front=others.AS_NOBODY, python=python)
            assert ran.code == 7, ran
            assert "root" in ran.err
        assert list(Path(places[1]).parent.iterdir()) == []


def test_an_ordinary_user_may_not_ask_the_daemon() -> None:
    """Exit 4 where the socket is root's: no act, and no foreground engine instead."""
    python = others.python_of_nobody()
    with simulated_host() as rig, bare_places() as places:
        rig.start_daemon("--socket", places[1])
        pid, path = rig.recorder()
        ran = run(
            "kill", "--force", "--pid", str(pid), "--json", *places, front=others.AS_NOBODY, python=python
        )
        assert ran.code == 4, ran
        assert is_alive(pid)
        assert signals_in(path) == []


def test_of_two_kills_at_once_one_is_the_writer() -> None:
    """The second foreground kill exits 3 with the mend while the first works; both end in turn."""
    with simulated_host() as rig:
        one, two = rig.launch("--ignore-term").pid, rig.launch().pid
        first = rig.begin("kill", "--pid", str(one), "--grace", "60s", "--json")
        rig.wait_record("outcome", pid=one)
        second = rig.kill(two)
        assert second.code == 3, second
        assert "--takeover" in second.err
        assert is_alive(two)
        assert rig.records(pid=two) == []
        os.kill(one, signal.SIGKILL)
        assert first.result().code == 0
        assert rig.kill(two).code == 0
        assert rig.verify_audit().code == 0


def test_a_silent_daemon_is_taken_over_only_when_asked() -> None:
    """A stopped daemon: exit 3 with the mend; --takeover ends it, on record, and the kill goes on."""
    with simulated_host() as rig:
        daemon = rig.start_daemon()
        rig.passes(1)
        pid = rig.launch().pid
        daemon.send(signal.SIGSTOP)
        ran = rig.kill(pid)
        assert ran.code == 3, ran
        assert "--takeover" in ran.err
        assert is_alive(pid)
        assert daemon.process.poll() is None
        taken = rig.kill(pid, options=["--takeover"])
        assert taken.code == 0, taken
        assert daemon.process.wait(5) == -signal.SIGKILL
        assert not is_alive(pid)
        told = [one for one in rig.records() if str(daemon.pid) in one["reason"]]
        assert told, f"the takeover is on record: {rig.story()}"
        assert rig.verify_audit().code == 0


def test_an_interrupted_kill_takes_no_further_step() -> None:
    """Ctrl-C after SIGTERM: exit 130, no SIGKILL, not even by a daemon that is started afterwards."""
    with simulated_host() as rig:
        pid, path = rig.recorder()
        asked = rig.begin("kill", "--pid", str(pid), "--force", "--grace", "2s")
        rig.wait_record("outcome", pid=pid)
        asked.process.send_signal(signal.SIGINT)
        ran = asked.result()
        assert ran.code == 130, ran
        assert "Traceback" not in ran.err
        rig.start_daemon()
        rig.passes(14)
        assert is_alive(pid), rig.story()
        assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm"]
        assert signals_in(path).count("SIGTERM") == 1
        assert rig.verify_audit().code == 0


def test_a_corrupt_store_stops_everybody() -> None:
    """Exit 11 for the daemon and for a kill; the target is not touched, and the store is not made anew."""
    with simulated_host() as rig:
        rig.start_daemon().stop()
        store = next(path for path in rig.state.iterdir() if path.suffix in (".db", ".sqlite", ".sqlite3"))
        store.write_bytes(b"not a database" * 100)
        before = store.read_bytes()
        pid, path = rig.recorder()
        ran = rig.kill(pid, options=["--force"])
        assert ran.code == 11, ran
        daemon = rig.begin_daemon()
        assert daemon.process.wait(15) == 11, daemon.words()
        assert "Traceback" not in daemon.words()
        assert store.read_bytes() == before
        assert signals_in(path) == []


def test_a_spoilt_audit_log_is_told_and_does_not_protect() -> None:
    """`audit verify` exits 9 with file and line; a kill goes on and records that the chain was broken."""
    with simulated_host() as rig:
        assert rig.kill(rig.launch().pid).code == 0
        log = rig.host / "log" / "audit.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        lines[1] = lines[1].replace("an operator asked", "nobody ever asked")
        log.write_text("".join(lines))
        spoilt = rig.verify_audit()
        assert spoilt.code == 9, spoilt
        assert f"{log.name}:2" in str(spoilt.answer["faults"])
        assert rig.kill(rig.launch().pid).code == 0
        assert rig.verify_audit().code == 9


def test_a_store_of_another_making_is_not_taken_for_empty() -> None:
    """A newer schema is refused with exit 11 and left as it is."""
    with simulated_host() as rig:
        rig.start_daemon().stop()
        store = next(path for path in rig.state.iterdir() if path.suffix in (".db", ".sqlite", ".sqlite3"))
        connection = sqlite3.connect(store)
        connection.execute("PRAGMA user_version = 9999")
        connection.close()
        pid, path = rig.recorder()
        ran = rig.kill(pid)
        assert ran.code == 11, ran
        assert signals_in(path) == []
